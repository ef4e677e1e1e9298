"""What pre-emption gives and costs: the time that queues are below their guarantee, and the work that is lost.

A day of a cell with four queues: batch work that fills it, a few of whose tasks run for hours, bursts of production,
short jobs of people, and gangs. All in virtual time, so figures do not depend on the machine. Run it with `make bench`,
or `python -m benchmarks.preemption [--quick] [SEED]`.
"""

import sys

from largesse.log.codec import decode
from schemas import Header, JobSpec, Queue, QueueShare, Shares, Stage
from schemas.edge.read import Cluster, ClusterNode
from schemas.quantities import MILLIONTHS, SHARE_UNITS
from services.simulator.run import Options, simulate
from services.simulator.schedule import ShortSchedule
from services.simulator.workloads.draws import below

NODES, CORES = 10, 8
MINUTE_MS = 60_000
DAY_MIN, QUICK_MIN = 24 * 60, 4 * 60
WEIGHTS = {"batch": 1, "production": 2, "people": 1, "gangs": 1}
TASK = SHARE_UNITS // (NODES * CORES)
ON: dict[str, int | str] = {"preemption": "on"}
MODES: dict[str, dict[str, int | str]] = {
    "off": {},
    "on, after 1 min": ON | {"preempt_after_ms": MINUTE_MS},
    "on, after 5 min": ON | {"preempt_after_ms": 5 * MINUTE_MS},
    "on, after 15 min": ON | {"preempt_after_ms": 15 * MINUTE_MS},
}


def job(name: str, queue: str, tasks: int, lasts_ms: list[int], *, gang: bool = False) -> JobSpec:
    """A job of one stage, whose tasks ask for a core each."""
    mean = sum(lasts_ms) // len(lasts_ms)
    return JobSpec(name, queue, [Stage("s", tasks, {"cpu": 1_000}, [], mean, lasts_ms, gang)])


def day(seed: int, minutes: int) -> list[tuple[int, JobSpec]]:
    """The jobs with their times: batch work of the whole cell, and what comes beside it."""

    def drawn(limit: int, what: str, number: int, task: int = 0) -> int:
        return below(limit, seed, f"preemption.{what}", f"{number}/{task}")

    lines: list[tuple[int, JobSpec]] = []
    core_min = 0
    while core_min < minutes * NODES * CORES:
        number, lasts = len(lines), list[int]()
        for task in range(20):
            long = drawn(100, "long", number, task) < 3
            lasts.append((120 + drawn(240, "hours", number, task)) if long else 2 + drawn(20, "lasts", number, task))
        lines.append((core_min * MINUTE_MS // (2 * NODES * CORES), job(f"batch-{number}", "batch", 20, _ms(lasts))))
        core_min += sum(lasts)
    for number in range(minutes // 60):
        at, tasks = number * 60 + drawn(60, "burst", number), 20 + drawn(20, "burst tasks", number)
        lasts = [3 + drawn(12, "burst lasts", number, task) for task in range(tasks)]
        lines.append((at * MINUTE_MS, job(f"production-{number}", "production", tasks, _ms(lasts))))
    for number in range(minutes // 10):
        at, tasks = number * 10 + drawn(10, "person", number), 1 + drawn(8, "person tasks", number)
        lasts = [1 + drawn(5, "person lasts", number, task) for task in range(tasks)]
        lines.append((at * MINUTE_MS, job(f"people-{number}", "people", tasks, _ms(lasts))))
    for number in range(minutes // 240):
        at = number * 240 + drawn(240, "gang", number)
        lines.append((at * MINUTE_MS, job(f"gang-{number}", "gangs", 12, [40 * MINUTE_MS] * 12, gang=True)))
    return sorted(lines, key=lambda line: (line[0], line[1].job))


def _ms(minutes: list[int]) -> list[int]:
    return [each * MINUTE_MS for each in minutes]


class Below:
    """For how long leaf queues asked for what they are guaranteed, and lacked more than a task of it."""

    def __init__(self) -> None:
        self.shares: dict[str, QueueShare] = {}
        self.since_ms: dict[str, int] = {}
        self.spans_ms: list[int] = []

    def listen(self, topic: str, header: Header | None, content: bytes) -> None:
        """Reads what fairness publishes."""
        record = decode(content)
        if not isinstance(record.body, Shares):
            return
        for share in record.body.queues:
            lacks = share.guaranteed - share.lent - share.allocated > TASK
            if lacks and share.queue:
                self.since_ms.setdefault(share.queue, record.time)
            elif share.queue in self.since_ms:
                self.spans_ms.append(record.time - self.since_ms.pop(share.queue))


def measured(seed: int, minutes: int, knobs: dict[str, int | str]) -> dict[str, float]:
    """Of one day: queue minutes below a guarantee, the longest of them, attempts that were taken back, what was lost
    with them as a part of what the cell could have done, and the mean completion in minutes.
    """
    tree = Queue("root", children=[Queue(name, weight * MILLIONTHS) for name, weight in WEIGHTS.items()])
    cluster = Cluster([ClusterNode(f"n{i}", {"cpu": CORES * 1_000}) for i in range(NODES)], tree)
    schedule, below_ = ShortSchedule(sys.maxsize), Below()
    result = simulate(day(seed, minutes), cluster, Options({"preset": "hdrf", **knobs}, schedule, below_.listen))
    lost = [span.end_ms - span.start_ms for span in schedule.spans if span.outcome == "revoked"]
    capacity_ms = result["makespan_ms"] * NODES * CORES
    return {
        "below_min": sum(below_.spans_ms) / MINUTE_MS,
        "longest_min": max(below_.spans_ms, default=0) / MINUTE_MS,
        "taken": len(lost),
        "lost": sum(lost) / capacity_ms,
        "jct_min": result["jct_ms"]["mean"] / MINUTE_MS,
    }


def main() -> None:
    """Prints a row for each mode."""
    numbers = [int(each) for each in sys.argv[1:] if each.isdecimal()]
    minutes = QUICK_MIN if "--quick" in sys.argv else DAY_MIN
    print(
        f"{minutes // 60} hours of {NODES * CORES} cores; below: queues that lack more than a task of their guarantee"
    )
    print(f"{'preemption':18}{'below min':>12}{'longest min':>14}{'taken':>8}{'lost %':>10}{'mean jct min':>14}")
    for name, knobs in MODES.items():
        row = measured(numbers[0] if numbers else 1, minutes, knobs)
        print(
            f"{name:18}{row['below_min']:12.1f}{row['longest_min']:14.1f}{row['taken']:8.0f}"
            f"{100 * row['lost']:10.3f}{row['jct_min']:14.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
