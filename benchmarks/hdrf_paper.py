"""The evaluation of the H-DRF paper (Bhattacharya et al., SoCC 2013, section 5) in simulation, beside its figures.

Run it with `make bench`, or `python -m benchmarks.hdrf_paper [--quick]`. The paper says neither how long tasks last nor
when jobs come, so both are drawn here, with one seed; what can be compared is who starves, who is pinned, and by how
much. Its job sizes (table 1) follow a Facebook trace of 2010: here 100 jobs in its four bins. `capacity, current`, the
scheduler that is not Pareto-efficient, is a model of a few lines below (section 5.2: it stops as soon as the leaf whose
turn it is does not fit); all others are presets of the cell.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

from schemas.edge.read import read_cluster, read_workload_line
from services.simulator.run import Options, simulate
from services.simulator.schedule import AttemptOutcome, ScheduleWriter, Why
from services.simulator.workloads.importers import IMPORTERS

Line = dict[str, Any]
Document = dict[str, Any]

BINS = ((1, 19), (20, 149), (150, 500), (501, 10**6))
"""Tasks of a job, by which figures 12 and 13 tell jobs apart."""
LEAVES = ("n1/n1,1", "n1/n1,2", "n2/n2,1", "n2/n2,2", "n2/n2,3", "n3/n3,1")
"""Figure 10. Jobs of n1,2 ask for GPUs, all others for cores."""
GPU_LEAF = "n1/n1,2"


@dataclass(frozen=True, slots=True)
class Span:
    """A task of a job, from its start to its end, in ms."""

    job: str
    start_ms: int
    end_ms: int


class Spans(ScheduleWriter):
    """Attempts in memory."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def attempt(
        self,
        job: str,
        stage: str,
        index: int,
        attempt: int,
        node: str,
        start_ms: int,
        end_ms: int,
        outcome: AttemptOutcome,
        why: Why,
    ) -> None:
        """One attempt that has ended."""
        self.spans.append(Span(job, start_ms, end_ms))

    def held(self, node: str, from_ms: int, to_ms: int, why: str, demand: dict[str, int]) -> None:
        """Room kept free is no part of these figures."""


@dataclass(slots=True)
class Outcome:
    """One run: who ran when, and of each job its row."""

    spans: list[Span]
    rows: dict[str, Line]
    makespan_s: float

    def running(self, jobs: Iterable[str], at_ms: int) -> int:
        """Tasks of these jobs that run at a moment."""
        named = dict.fromkeys(jobs)
        return sum(span.start_ms <= at_ms < span.end_ms for span in self.spans if span.job in named)

    def took_s(self, job: str) -> float:
        """From submission to end."""
        row = self.rows[job]
        return float(row["end_ms"] - row["submit_ms"]) / 1_000


def run(lines: list[Line], cluster: Document, **knobs: int | str) -> Outcome:
    """A workload in the cell."""
    spans = Spans()
    jobs = [read_workload_line(line) for line in lines]
    found = simulate(jobs, read_cluster(cluster), Options(dict(knobs), spans))
    return Outcome(spans.spans, {row["job"]: dict(row) for row in found["per_job"]}, found["makespan_ms"] / 1_000)


def nodes(count: int, **capacity: str) -> list[Document]:
    """Like servers."""
    return [{"name": "n", "count": count, "capacity": capacity}]


def job(name: str, queue: str, tasks: int, lasts_ms: int, submit_ms: int = 0, **demand: str) -> Line:
    """A job of one stage."""
    stage = {"stage": "s", "tasks": tasks, "duration_ms": lasts_ms, "demand": demand}
    return {"job": name, "queue": queue, "submit_ms": submit_ms, "stages": [stage]}


# ---------------------------------------------------------------- figures 8 and 9
FIGURE_9_TREE = {
    "name": "root",
    "children": [
        {"name": "n1", "weight": 4, "children": [{"name": "n1,1"}, {"name": "n1,2"}]},
        {"name": "n2", "weight": 1, "children": [{"name": "n2,1"}, {"name": "n2,2"}]},
    ],
}
FIGURE_9_CORES = 49 * 4
FIGURE_9 = {
    "200-350 s": (275, {"n1,1": 0.8, "n1,2": 1.0, "n2,1": 0.1, "n2,2": 0.1}),
    "350-400 s": (385, {"n1,1": 0.0, "n1,2": 1.0, "n2,1": 0.5, "n2,2": 0.5}),
    "400-550 s": (500, {"n1,1": 0.0, "n1,2": 1.0, "n2,1": 1.0, "n2,2": 0.0}),
    "550-600 s": (580, {"n1,1": 0.0, "n1,2": 1.0, "n2,1": 0.0, "n2,2": 0.0}),
}
"""Of each phase a moment in s, and the paper's dominant shares. Cores and GPUs are equally many, one a task."""
FIGURE_9_ENDS_S = {"n1,1": 350, "n2,2": 400, "n2,1": 550, "n1,2": 600}


def figure_9(scale: int = 1, **knobs: int | str) -> Outcome:
    """2,000 tasks a leaf, each as long as it takes for its job to end when the paper's did. `scale`: tasks so many
    times shorter and more.
    """
    slot_s = {"n1,1": 0.8 * 150, "n1,2": 1.0 * 400, "n2,1": 0.1 * 150 + 0.5 * 50 + 150, "n2,2": 0.1 * 150 + 0.5 * 50}
    lines = []
    for leaf, share_s in slot_s.items():
        kind = "gpu" if leaf == "n1,2" else "cpu"
        lasts_ms = round(share_s * FIGURE_9_CORES / 2_000 * 1_000 / scale)
        lines.append(job(leaf, f"{leaf[:2]}/{leaf}", 2_000 * scale, lasts_ms, 200_000, memory="1Gi", **{kind: "1"}))
    cluster = {"nodes": nodes(49, memory="16Gi", cpu="4", gpu="4"), "queues": FIGURE_9_TREE}
    return run(lines, cluster, **{"preset": "hdrf", **knobs})


def show_figure_9() -> None:
    """Shares of figure 9."""
    found = figure_9()
    print("\nfigure 9: dominant shares, the paper's in brackets")
    for phase, (at_s, shares) in FIGURE_9.items():
        held = {leaf: found.running([leaf], at_s * 1_000) / FIGURE_9_CORES for leaf in shares}
        print(f"  {phase}: " + "  ".join(f"{leaf} {held[leaf]:.2f} ({share})" for leaf, share in shares.items()))
    ends = {leaf: found.rows[leaf]["end_ms"] / 1_000 for leaf in FIGURE_9_ENDS_S}
    print("  ends, s: " + "  ".join(f"{leaf} {ends[leaf]:.0f} ({at_s})" for leaf, at_s in FIGURE_9_ENDS_S.items()))


# ---------------------------------------------------------------- figures 10 and 11
def figure_10(weight_n3: int = 1) -> Document:
    """The hierarchy. Jobs of a leaf are served in the order they came."""
    groups: dict[str, list[Document]] = {}
    for leaf in LEAVES:
        group, name = leaf.split("/")
        groups.setdefault(group, []).append({"name": name, "policy": "fifo"})
    weights = {"n1": 1, "n2": 1, "n3": weight_n3}
    return {"name": "root", "children": [{"name": g, "weight": weights[g], "children": c} for g, c in groups.items()]}


def figure_10_jobs(seed: int = 1, divide: int = 1) -> list[Line]:
    """100 jobs of which ten are large, those in n1,1, n1,2 and n3,1; the others in every leaf. A third of them asks for
    more memory. `divide`: so many times fewer tasks.
    """
    draw, lines, at_ms = Random(seed), [], 0
    sizes = [draw.randint(*BINS[0]) for _ in range(70)] + [draw.randint(*BINS[1]) for _ in range(12)]
    sizes += [draw.randint(*BINS[2]) for _ in range(8)] + [draw.randint(700, 2_000) for _ in range(10)]
    draw.shuffle(sizes)
    turns = {"large": 0, "small": 0}
    for at, tasks in enumerate(sizes):
        size, homes = ("large", (LEAVES[0], LEAVES[1], LEAVES[5])) if tasks > BINS[2][1] else ("small", LEAVES)
        leaf = homes[turns[size] % len(homes)]
        turns[size] += 1
        kind = "gpu" if leaf == GPU_LEAF else "cpu"
        memory = "1536Mi" if draw.random() < 0.33 else "1Gi"
        lasts_ms = draw.randint(8_000, 16_000)
        lines.append(job(f"j{at}", leaf, -(-tasks // divide), lasts_ms, at_ms, memory=memory, **{kind: "1"}))
        at_ms += round(draw.expovariate(1 / 2_000))
    return lines


FIGURE_11 = {
    "hdrf": (83, 49, 9, 14, 8, 84),
    "naive-hdrf": (1, 48, 6, 11, 6, 158),
    "capacity, current": (79, 21, 9, 14, 7, 77),
}
"""Median tasks at once, by leaf."""


def figure_11(lines: list[Line], scheduler: str, servers: int = 50) -> Outcome:
    """One scheduler on 6 GB, 4 cores and a GPU a server."""
    if scheduler == "capacity, current":
        return not_pareto(lines, {"memory": servers * 6 * 1_024, "cpu": servers * 4, "gpu": servers})
    cluster = {"nodes": nodes(servers, memory="6Gi", cpu="4", gpu="1"), "queues": figure_10()}
    return run(lines, cluster, preset=scheduler)


def contended(found: Outcome, lines: list[Line]) -> list[int]:
    """Moments, a second apart, at which n1,1, n1,2 and n3,1 all have jobs that are not over: then somebody starves."""
    spans = []
    for leaf in (LEAVES[0], LEAVES[1], LEAVES[5]):
        rows = [found.rows[line["job"]] for line in lines if line["queue"] == leaf]
        large = [row for row in rows if row["tasks"] == max(each["tasks"] for each in rows)]
        spans.append((min(row["submit_ms"] for row in large), max(row["end_ms"] for row in rows)))
    return list(range(max(start for start, _ in spans) + 30_000, min(end for _, end in spans), 1_000))


def throughput(found: Outcome, lines: list[Line], moments: list[int]) -> list[int]:
    """Median tasks that run at once, leaf by leaf, over the moments at which the leaf has work."""
    medians = []
    for leaf in LEAVES:
        names = [line["job"] for line in lines if line["queue"] == leaf]
        counts = sorted(
            count for at_ms in moments if (count := found.running(names, at_ms)) or _asks(found, names, at_ms)
        )
        medians.append(counts[len(counts) // 2] if counts else 0)
    return medians


def _asks(found: Outcome, names: list[str], at_ms: int) -> bool:
    rows = (found.rows[name] for name in names)
    return any(row["submit_ms"] <= at_ms < row["end_ms"] for row in rows)


def not_pareto(lines: list[Line], capacity: dict[str, int]) -> Outcome:
    """The Capacity scheduler of Hadoop 2.0.2 as section 5.2 has it: inner nodes count all they hold, and nobody goes
    ahead of the leaf with the least that does not fit. Servers are taken as one.
    """
    free, time = dict(capacity), 0
    queues: dict[str, list[list[Any]]] = {leaf: [] for leaf in LEAVES}  # Jobs in turn: [line, tasks waiting].
    used = {path: dict.fromkeys(capacity, 0) for leaf in LEAVES for path in (leaf, leaf.split("/")[0])}
    events: list[tuple[int, int, str, Line]] = []
    for at, line in enumerate(lines):
        heappush(events, (line["submit_ms"], at, "comes", line))
    spans, rows, left, number = [], {}, {}, len(lines)
    while events:
        time, _, what, line = heappop(events)
        demand, tasks = _units(line), line["stages"][0]["tasks"]
        if what == "comes":
            queues[line["queue"]].append([line, tasks])
            rows[line["job"]] = {"submit_ms": time, "tasks": tasks, "end_ms": time}
            left[line["job"]] = tasks
        else:
            _count(used, free, line, demand, -1)
            left[line["job"]] -= 1
            rows[line["job"]]["end_ms"] = time
        while (leaf := _least(queues, used, capacity)) is not None:
            head = queues[leaf][0]
            demand = _units(head[0])
            if any(free[kind] < amount for kind, amount in demand.items()):
                break
            _count(used, free, head[0], demand, 1)
            number += 1
            ends_ms = time + head[0]["stages"][0]["duration_ms"]
            spans.append(Span(head[0]["job"], time, ends_ms))
            heappush(events, (ends_ms, number, "ends", head[0]))
            head[1] -= 1
            if not head[1]:
                queues[leaf].pop(0)
    return Outcome(spans, rows, (time - lines[0]["submit_ms"]) / 1_000)


def _units(line: Line) -> dict[str, int]:
    memory = {"1536Mi": 1_536, "1Gi": 1_024}
    demand = line["stages"][0]["demand"]
    return {kind: memory[amount] if kind == "memory" else int(amount) for kind, amount in demand.items()}


def _count(
    used: dict[str, dict[str, int]], free: dict[str, int], line: Line, demand: dict[str, int], tasks: int
) -> None:
    for kind, amount in demand.items():
        free[kind] -= amount * tasks
        for path in (line["queue"], line["queue"].split("/")[0]):
            used[path][kind] += amount * tasks


def _least(queues: dict[str, list[Any]], used: dict[str, dict[str, int]], capacity: dict[str, int]) -> str | None:
    """Down to the child that waits and has the least dominant share."""

    def share(path: str) -> float:
        return max(used[path][kind] / have for kind, have in capacity.items())

    waiting = [leaf for leaf, jobs in queues.items() if jobs]
    return min(waiting, key=lambda leaf: (share(leaf.split("/")[0]), share(leaf)), default=None)


def show_figure_11() -> None:
    """Throughput of figure 11(a), and response times of 11(b)."""
    lines = figure_10_jobs()
    print("\nfigure 11(a): median tasks at once while n1,1, n1,2 and n3,1 all have work, the paper's in brackets")
    outcomes = {}
    for scheduler, paper in FIGURE_11.items():
        outcomes[scheduler] = found = figure_11(lines, scheduler)
        medians = throughput(found, lines, contended(found, lines))
        shown = "  ".join(f"{leaf[3:]} {n} ({p})" for leaf, n, p in zip(LEAVES, medians, paper, strict=True))
        print(f"  {scheduler:18} {shown}")
    print("figure 11(b): response times under H-DRF are better by, %")
    for scheduler, paper in (
        ("naive-hdrf", (413, 3, -99, -22, 77, -72)),
        ("capacity, current", (33, 254, 6, 16, 31, 10)),
    ):
        gains = [
            _gain(outcomes["hdrf"], outcomes[scheduler], [x["job"] for x in lines if x["queue"] == q]) for q in LEAVES
        ]
        shown = "  ".join(f"{leaf[3:]} {n:.0f} ({p})" for leaf, n, p in zip(LEAVES, gains, paper, strict=True))
        print(f"  {scheduler:18} {shown}")


def _gain(ours: Outcome, other: Outcome, jobs: list[str]) -> float:
    """By how many percent of ours the other's jobs take longer, on average; negative where they are faster (the paper's
    definition of improvement).
    """
    gains = []
    for name in jobs:
        mine, theirs = max(0.001, ours.took_s(name)), max(0.001, other.took_s(name))
        gains.append(100 * (theirs - mine) / (mine if theirs >= mine else theirs))
    return mean(gains) if gains else 0.0


# ---------------------------------------------------------------- figures 12 and 13
FIGURE_12 = {"4": (0, 4, 33, 107), "5": (166, 129, 112, 32), "6": (351, 289, 275, 32)}
FIGURE_12_MAKESPAN_S = {"hdrf": 1_379, "4": 1_446, "5": 1_514, "6": 1_732}
FIGURE_13 = {"10": (83, 82, 80, 80), "12": (68, 67, 65, 64), "14": (48, 47, 47, 44)}
TRACE = Path(__file__).resolve().parents[2] / "shared/traces/facebook/FB-2010_samples_24_times_1hr_0.tsv.gz"


def figure_12(lines: list[Line], slots: int | None, servers: int = 50) -> Outcome:
    """H-DRF (None) or so many slots on 6 GB, 4 cores and 4 GPUs a server; n3 has weight 2."""
    cluster = {"nodes": nodes(servers, memory="6Gi", cpu="4", gpu="4"), "queues": figure_10(2)}
    return run(
        lines, cluster, **({"preset": "hdrf"} if slots is None else {"preset": "slots", "slots_per_node": slots})
    )


def by_bin(ours: Outcome, other: Outcome) -> list[float | None]:
    """Improvement of the jobs of each size, in percent; None where there are none."""
    found: list[float | None] = []
    for low, high in BINS:
        jobs = [name for name, row in ours.rows.items() if low <= row["tasks"] <= high and name in other.rows]
        found.append(_gain(ours, other, jobs) if jobs else None)
    return found


def show_figure_12() -> None:
    """Slots on the prototype's cluster."""
    lines = figure_10_jobs()
    ours = figure_12(lines, None)
    print("\nfigure 12: response times under H-DRF are better by, %, by tasks of a job, the paper's in brackets")
    spans = {"hdrf": ours.makespan_s}
    for slots, paper in FIGURE_12.items():
        other = figure_12(lines, int(slots))
        spans[slots] = other.makespan_s
        print(f"  {slots} slots  {_bins(by_bin(ours, other), paper)}")
    print("  makespan, s: " + "  ".join(f"{k} {s:.0f} ({FIGURE_12_MAKESPAN_S[k]})" for k, s in spans.items()))


def _bins(found: list[float | None], paper: tuple[int, ...]) -> str:
    names = [f"{low}-{high}" if high < 10**6 else f"over {low - 1}" for low, high in BINS]
    return "  ".join(
        f"{name}: {'-' if gain is None else f'{gain:.0f}'} ({theirs})"
        for name, gain, theirs in zip(names, found, paper, strict=False)
    )


def figure_13_jobs(trace: Path, hours: tuple[int, int], divide: int) -> list[Line]:
    """Jobs of the trace, dealt out to the leaves in turn; tasks ask for up to 9 GiB and 3 cores, those of n1,2 for a
    GPU instead of cores. `divide`: bytes of the trace so many times fewer.
    """
    draw, lines = Random(1), []
    options = {"divide": divide, "from_hour": hours[0], "to_hour": hours[1]}
    for at, line in enumerate(IMPORTERS["facebook"].convert(str(trace), **options)):
        line["queue"] = LEAVES[at % len(LEAVES)]
        memory = min(9 * 1_024, 512 + round(draw.expovariate(1 / 1_500)))
        kind = (
            {"gpu": "1"} if line["queue"] == GPU_LEAF else {"cpu": f"{draw.choice((500, 1_000, 1_000, 2_000, 3_000))}m"}
        )
        for stage in line["stages"]:
            stage["demand"] = {"memory": f"{memory}Mi", **kind}
        lines.append(line)
    return lines


def figure_13(lines: list[Line], slots: int | None, servers: int = 30) -> Outcome:
    """H-DRF (None) or so many slots on 32 GB and 16 cores a server, of which a sixth has 16 GPUs."""
    plain, special = nodes(servers - servers // 6, memory="32Gi", cpu="16"), servers // 6
    gpus = {"name": "g", "count": special, "capacity": {"memory": "32Gi", "cpu": "16", "gpu": "16"}}
    cluster = {"nodes": [*plain, gpus], "queues": figure_10()}
    return run(
        lines, cluster, **({"preset": "hdrf"} if slots is None else {"preset": "slots", "slots_per_node": slots})
    )


def show_figure_13(quick: bool) -> None:
    """Slots on the Facebook trace."""
    if not TRACE.is_file():
        print("\nfigure 13: left out, the trace is not beside the project")
        return
    lines = figure_13_jobs(TRACE, (0, 1), 20 if quick else 10)
    servers = 12 if quick else 24
    print(f"\nfigure 13: the same on an hour of the Facebook trace of 2010, {len(lines):,} jobs, {servers} servers")
    ours = figure_13(lines, None, servers)
    for slots, paper in FIGURE_13.items():
        print(f"  {slots} slots  {_bins(by_bin(ours, figure_13(lines, int(slots), servers)), paper)}")


SHOWN: tuple[Callable[[], None], ...] = (show_figure_9, show_figure_11, show_figure_12)


def main() -> None:
    """All of it."""
    for show in SHOWN:
        show()
    show_figure_13("--quick" in sys.argv[1:])


if __name__ == "__main__":
    main()
