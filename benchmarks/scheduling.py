"""What a placement costs: fill, steady, refill, growth, and whole simulated workloads, in CPU seconds.

Every record is made, encoded, hashed and folded by all cores; start-up and reading are outside. Medians of several
runs, each in a process of its own. Run it with `make bench`, or `python -m benchmarks.scheduling [--quick]` for the
small sizes, and `--million` for a million pending jobs on 10,000 nodes too; `--preset NAME` for another than the
default, e.g. `hdrf`, under which nothing keeps the order of a shadow cluster.
"""

import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

from schemas import (
    Grant,
    JobSpec,
    Policy,
    Queue,
    Record,
    RoundClosed,
    Stage,
    TaskEnd,
    TaskFinished,
    TaskRange,
    TaskStarted,
)
from schemas.edge.read import Cluster, ClusterNode, read_workload_line
from schemas.policy import KnobValue
from services.simulator.cluster import AUTHOR
from services.simulator.engine import Cell
from services.simulator.run import Options, set_up, simulate, uncollected
from services.simulator.workloads import tpch
from services.simulator.workloads.draws import arrivals_ms

CORES = 32
MS = 1_000


@dataclass(slots=True)
class Bench:
    """A cell under test; what runs on it ends when the benchmark says so."""

    nodes: int
    queues: int
    sizes: tuple[int, ...]
    gap_ms: int
    preset: str = Policy().preset
    cell: Cell = field(default_factory=Cell)
    running: list[Grant] = field(default_factory=list)
    jobs: int = 0

    def __post_init__(self) -> None:
        self.cell.observers = [self._observe]
        tree = Queue("root", children=[Queue(f"q{i}") for i in range(self.queues)])
        nodes = [ClusterNode(f"node-{i}", {"cpu": CORES * 1000}) for i in range(self.nodes)]
        values: dict[str, KnobValue] = {"preset": self.preset, "round_gap_ms": self.gap_ms, "name_kept_ms": 0}
        set_up(self.cell, values, tree, Cluster(nodes, tree))
        self.settle()

    def _observe(self, record: Record) -> None:
        if isinstance(record.body, RoundClosed):
            grants: list[Grant] = record.body.grants
            self.running += grants
            if grants:
                started = [TaskRange(g.job, g.stage, g.first, g.count, g.attempt, g.node, g.epoch) for g in grants]
                self.started.append(TaskStarted(started))

    started: list[TaskStarted] = field(default_factory=list)

    def settle(self) -> None:
        """One moment later: the round that is due, and the reports of what started."""
        self.cell.advance(self.cell.time + max(1, self.gap_ms))
        while self.cell.settle() is not None or self.started:
            while self.started:
                self.cell.take(self.started.pop(), AUTHOR)

    def specs(self, count: int) -> Iterator[JobSpec]:
        """One-task jobs, queue by queue and size by size in turn; each is made when it is submitted."""
        first = self.jobs
        self.jobs += count
        for i in range(first, self.jobs):
            cores = self.sizes[i // self.queues % len(self.sizes)]
            stage = Stage("run", 1, {"cpu": cores * 1000}, estimate_ms=600_000)
            yield JobSpec(f"job-{i}", f"q{i % self.queues}", [stage])

    def submit(self, specs: Iterable[JobSpec]) -> None:
        """Admits jobs."""
        for spec in specs:
            self.cell.take(spec, AUTHOR)

    def end(self, count: int) -> None:
        """The longest running attempts end, in one report."""
        over, self.running = self.running[:count], self.running[count:]
        ends = [TaskEnd(g.job, g.stage, g.first, g.count, g.attempt, g.node, g.epoch, [600_000]) for g in over]
        self.cell.take(TaskFinished(ends), AUTHOR)


def cpu_s() -> float:
    """CPU seconds of the process so far."""
    return time.process_time()


def peak_mib() -> float:
    """The most memory that the process ever had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fill(
    preset: str, nodes: int, pending: int, queues: int = 10, sizes: tuple[int, ...] = (1,), gap_ms: int = 0
) -> dict[str, float]:
    """First round, rounds on a full cluster, rounds that refill it; memory with all that it began with in it."""
    bench = Bench(nodes, queues, sizes, gap_ms, preset)
    with uncollected():
        begin = cpu_s()
        bench.submit(bench.specs(pending))
        admitted = cpu_s()
        bench.settle()
        placed = cpu_s()
        count = len(bench.running)
        result = {
            "placements": count,
            "placements_per_s": count / (placed - admitted),
            "with_admission_per_s": count / (placed - begin),
            "admitted_per_s": pending / (admitted - begin),
        }
        steady = []
        for spec in bench.specs(20):
            bench.submit([spec])
            at = cpu_s()
            bench.settle()
            steady.append(cpu_s() - at)
        result["steady_ms"] = median(steady) * MS
        result["peak_mib"] = peak_mib()
        for freed in (100, 1_000):
            refill = []
            for _ in range(5):
                at = cpu_s()
                bench.end(freed)
                bench.settle()
                refill.append(cpu_s() - at)
            result[f"refill_{freed}_ms"] = median(refill) * MS
    return result


def one_core_jobs(count: int, queues: int = 10) -> list[tuple[int, JobSpec]]:
    """One-core jobs of 300 s + exponential(300 s), all submitted at 0."""
    lasts = arrivals_gaps(300_000, count)
    return [
        (
            0,
            JobSpec(
                f"job-{i}",
                f"q{i % queues}",
                [Stage("run", 1, {"cpu": 1000}, estimate_ms=600_000, durations_ms=[300_000 + gap])],
            ),
        )
        for i, gap in enumerate(lasts)
    ]


def arrivals_gaps(mean_ms: int, count: int) -> Iterator[int]:
    """Exponential draws, as the gaps of seeded Poisson arrivals."""
    before = 0
    for at in arrivals_ms(mean_ms, count, 1, "bench"):
        yield at - before
        before = at


def simulated(preset: str, nodes: int, count: int, gap_ms: int) -> dict[str, float]:
    """A whole run of one-core jobs."""
    tree = Queue("root", children=[Queue(f"q{i}") for i in range(10)])
    cluster = Cluster([ClusterNode(f"node-{i}", {"cpu": CORES * 1000}) for i in range(nodes)], tree)
    jobs = one_core_jobs(count)
    begin = cpu_s()
    result = simulate(jobs, cluster, Options({"preset": preset, "round_gap_ms": gap_ms}))
    spent = cpu_s() - begin
    return {
        "jobs_per_s": count / spent,
        "rounds_per_s": result["rounds"] / spent,
        "times_real_time": result["makespan_ms"] / MS / spent,
    }


def tpch_load(preset: str, shared: Path, nodes: int, load: float, gap_ms: int, jobs: int) -> dict[str, float]:
    """TPC-H jobs (10 GB, stretched tenfold) arriving so that their dominant work is `load` of the cluster."""
    capacity = {"cpu": 20_000, "memory": 131_072, "disk_io": 4_000, "network": 10_000}
    options: dict[str, Any] = {
        "demands": str(shared / "traces/tpch/demands/tpch.demands.jsonl.gz"),
        "jobs": jobs,
        "stretch": Fraction(10),
        "seed": 1,
    }
    path = str(shared / "traces/tpch/tpch_10g.jsonl.gz")
    specs = [read_workload_line(line)[1] for line in tpch.convert(path, **options)]
    work_ms = sum(_dominant_ms(spec, capacity, nodes) for spec in specs) / len(specs)
    submits = arrivals_ms(max(1, round(work_ms / load)), len(specs), 1, "load")
    cluster = Cluster([ClusterNode(f"node-{i}", capacity) for i in range(nodes)])
    begin = cpu_s()
    result = simulate(zip(submits, specs, strict=True), cluster, Options({"preset": preset, "round_gap_ms": gap_ms}))
    spent = cpu_s() - begin
    return {"placements_per_s": result["placements"] / spent, "rounds_per_s": result["rounds"] / spent}


def _dominant_ms(spec: JobSpec, capacity: dict[str, int], nodes: int) -> float:
    """How long the whole cluster would be busy with the job, by its scarcest resource."""
    work: dict[str, int] = {}
    for stage in spec.stages:
        lasts = stage.durations_ms[0] * stage.tasks if len(stage.durations_ms) == 1 else sum(stage.durations_ms)
        for kind, amount in stage.demand.items():
            work[kind] = work.get(kind, 0) + amount * lasts
    return max(amount / (capacity[kind] * nodes) for kind, amount in work.items())


def alone(measured: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """One run in a process of its own: what others left behind in memory is not of it."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(measured, *arguments).result()


def show(name: str, rows: list[dict[str, float]]) -> dict[str, float]:
    """Prints the medians of a benchmark's runs."""
    middle = {key: median(row[key] for row in rows) for key in rows[0]}
    print(f"{name:58}", "  ".join(f"{key} {value:,.1f}" for key, value in middle.items()), flush=True)
    return middle


def main(quick: bool | None = None, runs: int = 3) -> None:
    """All of it."""
    quick = "--quick" in sys.argv[1:] if quick is None else quick
    preset = sys.argv[sys.argv.index("--preset") + 1] if "--preset" in sys.argv else Policy().preset
    print(f"preset {preset}; CPU seconds of a process that does nothing else; medians of {runs} runs")
    for gap_ms in (0, 100):
        for queues, sizes in ((10, (1,)), (10, (1, 2, 4)), (100, (1,))):
            name = f"fill 1,000 x 32 cores, 50,000 pending, {queues} queues, sizes {sizes}, gap {gap_ms}"
            show(name, [alone(fill, preset, 1_000, 50_000, queues, sizes, gap_ms) for _ in range(runs)])
    full = "--million" in sys.argv[1:]
    for nodes, pending in ((1_000, 100_000), *([(3_000, 300_000), (10_000, 1_000_000)] if full else [])):
        name = f"fill {nodes:,} x 32 cores, {pending:,} pending, 100 queues"
        show(name, [alone(fill, preset, nodes, pending, 100)])
    for nodes in (100, 1_000, 5_000):
        for pending in (10_000, 50_000, 200_000):
            show(
                f"growth {nodes:,} nodes, {pending:,} pending",
                [alone(fill, preset, nodes, pending) for _ in range(1 if quick else runs)],
            )
    for nodes, count in ((100, 10_000), (1_000, 50_000)):
        for gap_ms in (0, 100):
            name = f"simulate {nodes:,} nodes, {count:,} jobs, gap {gap_ms}"
            show(name, [alone(simulated, preset, nodes, count, gap_ms) for _ in range(runs)])
    shared = Path(__file__).resolve().parents[2] / "shared"
    if not shared.is_dir():
        print("tpch: left out, the traces are not beside the project")
        return
    for nodes in (100, 1_000):
        for load in (0.8, 1.2):
            for gap_ms in (0, 100):
                jobs = nodes * (2 if quick else 5)
                name = f"tpch {nodes:,} nodes, load {load:.0%}, gap {gap_ms}, {jobs:,} jobs"
                show(name, [alone(tpch_load, preset, shared, nodes, load, gap_ms, jobs)])


if __name__ == "__main__":
    main()
