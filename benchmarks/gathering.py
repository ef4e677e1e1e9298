"""What gathering costs: mean completion, makespan and the room that is held, with and without `headroom`.

Random DAG jobs whose tasks ask for 0.25 to 9 GiB on ten nodes, in one queue and in four, and the workflow instances of
the traces. All in virtual time, so figures do not depend on the machine. Run it with `make bench`, or
`python -m benchmarks.gathering [--quick] [SEEDS]`.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.scheduling import alone
from schemas import JobSpec, Queue, Stage
from schemas.edge.read import Cluster, ClusterNode, read_workload_line
from schemas.quantities import MILLIONTHS
from services.simulator.run import Options, simulate
from services.simulator.schedule import ShortSchedule
from services.simulator.workloads import wfcommons
from services.simulator.workloads.draws import arrivals_ms, below

WORKFLOWS = Path(__file__).resolve().parents[2] / "shared/traces/wfinstances/wfinstances_a.jsonl.gz"
GIB = 1_024
MEMORY = (GIB // 4, GIB // 2, GIB, 2 * GIB, 4 * GIB, 6 * GIB, 9 * GIB)
NODES = 10
LOAD_PERMILLE = 900
QUEUES = {"a": 4, "b": 3, "c": 2, "d": 1}
MODES: dict[str, dict[str, int | str]] = {
    "headroom=off": {"headroom": "off"},
    "the default": {},
    "headroom_after_ms=10000": {"headroom_after_ms": 10_000},
    "headroom=always": {"headroom": "always"},
}

Workload = tuple[list[tuple[int, JobSpec]], Cluster]


def dags(seed: int, memory: int, queues: dict[str, int], jobs: int = 120) -> Workload:
    """Jobs of 2 to 8 stages of 1 to 20 tasks, small and large, that arrive at 90 % load. `memory`: of a node, MiB."""
    capacity = {"cpu": 16_000, "memory": memory}
    specs, work_ms = [], 0
    for number in range(jobs):
        stages: list[Stage] = []

        def drawn(limit: int, what: str, stage: int, job: int = number) -> int:
            return below(limit, seed, f"gathering.{what}", f"{job}/{stage}")

        for i in range(2 + drawn(7, "stages", 0)):
            demand = {"cpu": 500 << drawn(4, "cpu", i), "memory": MEMORY[drawn(len(MEMORY), "memory", i)]}
            parents = [f"s{p}" for p in range(i) if drawn(5, f"parent-{p}", i) < 2]
            tasks, lasts_ms = 1 + drawn(20, "tasks", i), 2_000 + drawn(58_000, "lasts", i)
            durations = [lasts_ms * (750 + drawn(501, f"task-{t}", i)) // 1_000 for t in range(tasks)]
            stages.append(Stage(f"s{i}", tasks, demand, parents, lasts_ms, durations))
            work_ms += max(sum(durations) * amount // (capacity[kind] * NODES) for kind, amount in demand.items())
        names = list(queues)
        specs.append(JobSpec(f"job-{number}", names[drawn(len(names), "queue", 0)] if names else "", stages))
    gap_ms = work_ms * 1_000 // LOAD_PERMILLE // jobs
    tree = Queue("root", children=[Queue(name, weight * MILLIONTHS) for name, weight in queues.items()])
    cluster = Cluster([ClusterNode(f"node-{i}", capacity) for i in range(NODES)], tree if queues else None)
    return list(zip(arrivals_ms(gap_ms, jobs, seed, "gathering"), specs, strict=True)), cluster


def workflows(seed: int) -> Workload:
    """The workflow instances one after the other, faster than the nodes can run them."""
    lines = wfcommons.convert(str(WORKFLOWS), disk_io=False, mean_gap_ms=60_000, seed=seed)
    jobs = [read_workload_line(line) for line in lines]
    return jobs, Cluster([ClusterNode(f"node-{i}", {"cpu": 4_000, "memory": 32 * GIB}) for i in range(NODES)])


def measured(workload: Workload, knobs: dict[str, int | str]) -> tuple[float, float, float]:
    """Mean completion and makespan in ms, and the part of all node time in which a node held room."""
    jobs, cluster = workload
    schedule = ShortSchedule(sys.maxsize)
    result = simulate(jobs, cluster, Options(dict(knobs), schedule))
    held_ms = sum(span.end_ms - span.start_ms for span in schedule.spans if span.job is None)
    return result["jct_ms"]["mean"], result["makespan_ms"], held_ms / (result["makespan_ms"] * NODES)


def compared(make: Callable[..., Workload], arguments: tuple[object, ...], seeds: int) -> dict[str, float]:
    """By mode, what it adds to the first mode's completion and makespan in percent, and the room held: means."""
    found: dict[str, float] = {}
    runs = [[measured(make(seed, *arguments), knobs) for knobs in MODES.values()] for seed in range(1, seeds + 1)]
    for i, mode in enumerate(MODES):
        found[f"{mode}: mean completion"] = 100 * (sum(run[i][0] / run[0][0] for run in runs) / seeds - 1)
        found[f"{mode}: makespan"] = 100 * (sum(run[i][1] / run[0][1] for run in runs) / seeds - 1)
        found[f"{mode}: held"] = 100 * sum(run[i][2] for run in runs) / seeds
    return found


def main(quick: bool | None = None) -> None:
    """A table a workload."""
    quick = "--quick" in sys.argv[1:] if quick is None else quick
    seeds = next((int(word) for word in sys.argv[1:] if word.isdigit()), 1 if quick else 5)
    print(f"{seeds} seeds; percent of the run without headroom; held: percent of all node time")
    rows: list[tuple[str, Callable[..., Workload], tuple[object, ...]]] = [
        ("120 DAG jobs, 10 nodes of 32 GiB, one queue", dags, (32 * GIB, {})),
        ("120 DAG jobs, 10 nodes of 10 GiB, one queue", dags, (10 * GIB, {})),
        ("120 DAG jobs, 10 nodes of 10 GiB, four queues", dags, (10 * GIB, QUEUES)),
        ("18 scientific workflows, 10 nodes of 32 GiB", workflows, ()),
    ]
    for name, make, arguments in rows:
        if make is workflows and not WORKFLOWS.exists():
            print(f"{name}: left out, the traces are not beside the project")
            continue
        found = alone(compared, make, arguments, seeds)
        print(name)
        for mode in MODES:
            parts = (f"{part} {found[f'{mode}: {part}']:+6.2f}" for part in ("mean completion", "makespan", "held"))
            print(f"  {mode:26}", "  ".join(parts), flush=True)


if __name__ == "__main__":
    main()
