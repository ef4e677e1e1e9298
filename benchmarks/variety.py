"""What a round costs where tasks differ: demands of their own, stages by the hundred, a million pending jobs, a
thousand queues.

Every record is made, encoded, hashed and folded by all cores, as in `benchmarks.scheduling`; a round's `decide` is
timed core by core. CPU seconds. Run it with `make bench`, or by rows: `python -m benchmarks.variety --help`.
"""

import argparse
import gzip
import json
import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.scheduling import MS, Bench, _dominant_ms, alone, cpu_s, show
from schemas import JobSpec, Record, RoundClosed, Stage
from schemas.edge.read import Cluster, ClusterNode, read_cluster, read_workload_line
from services.altruism import core as altruism
from services.fairness import core as fairness
from services.leftover import core as leftover
from services.simulator.cluster import SimCluster
from services.simulator.drive import Drive
from services.simulator.engine import Cell
from services.simulator.metrics import Metrics
from services.simulator.run import Options, set_up, simulate, total_capacity, uncollected
from services.simulator.workloads import tpch
from services.simulator.workloads.draws import arrivals_ms, below

SHARED = Path(__file__).resolve().parents[2] / "shared"
CAPACITY = {"cpu": 20_000, "memory": 131_072, "disk_io": 4_000, "network": 10_000}


@dataclass(slots=True)
class Spent:
    """CPU seconds of each round's `decide`, by core."""

    fairness: list[float] = field(default_factory=list)
    altruism: list[float] = field(default_factory=list)
    leftover: list[float] = field(default_factory=list)

    def figures(self, first: int = 0) -> dict[str, float]:
        """Medians and 99th percentiles of the rounds from `first` on, in ms."""
        mine, planning = sorted(self.leftover[first:]), sorted(self.altruism[first:])
        return {
            "leftover_ms": median(mine) * MS,
            "leftover_p99_ms": mine[len(mine) * 99 // 100] * MS,
            "altruism_ms": median(planning) * MS,
            "altruism_p99_ms": planning[len(planning) * 99 // 100] * MS,
            "fairness_ms": median(self.fairness[first:]) * MS,
            "rounds": len(mine),
        }


@contextmanager
def timed() -> Iterator[Spent]:
    """Times what fairness, altruism and leftover decide while it lasts. The engine looks `decide` up in the module each
    round.
    """
    spent, decides = Spent(), (fairness.decide, altruism.decide, leftover.decide)

    def wrapped(decide: Callable[..., Any], took: list[float]) -> Callable[..., Any]:
        def measured(*arguments: Any) -> Any:
            begin = cpu_s()
            answer = decide(*arguments)
            took.append(cpu_s() - begin)
            return answer

        return measured

    fairness.decide = wrapped(decides[0], spent.fairness)
    altruism.decide = wrapped(decides[1], spent.altruism)
    leftover.decide = wrapped(decides[2], spent.leftover)
    try:
        yield spent
    finally:
        fairness.decide, altruism.decide, leftover.decide = decides


class Enough(Exception):
    """The rounds that are measured are over."""


def rounds_of(
    jobs: list[tuple[int, JobSpec]], cluster: Cluster, values: dict[str, int | str], warm: int, measured: int
) -> dict[str, float]:
    """Rounds of a workload in virtual time, the first `warm` of them left out."""
    cell = Cell()
    agents = SimCluster(Metrics(total_capacity(cluster)), None, None)
    counts: list[tuple[float, int, int]] = []
    placements = [0]

    def observe(record: Record) -> None:
        if isinstance(record.body, RoundClosed):
            placements[0] += sum([grant.count for grant in record.body.grants])
        agents.observe(record)

    def before(cell: Cell) -> None:
        counts.append((cpu_s(), placements[0], len(agents.jobs)))
        if len(counts) > warm + measured:
            raise Enough

    cell.observers, cell.grants_observer, cell.before_round = [observe], agents.observe_held, before
    set_up(cell, {"name_kept_ms": 0, **values}, cluster.queues, cluster)
    with uncollected(), timed() as spent, suppress(Enough):
        Drive(cell, agents, sorted(jobs, key=lambda job: job[0]), None).run()
    (begin, placed, _), (end, placed_by, live) = counts[min(warm, len(counts) - 2)], counts[-1]
    return {
        "first_s": spent.leftover[0],
        "altruism_first_s": spent.altruism[0],
        **spent.figures(warm),
        "placements_per_s": (placed_by - placed) / (end - begin),
        "a_round": (placed_by - placed) / max(1, len(counts) - 1 - warm),
        "live": live,
    }


def tpch_jobs(count: int, own: bool, stretch: int = 10) -> list[JobSpec]:
    """TPC-H jobs (10 GB, stretched); `own`: the demands of every stage times a factor of its own, 0.8 to 1.25."""
    options: dict[str, Any] = {
        "demands": str(SHARED / "traces/tpch/demands/tpch.demands.jsonl.gz"),
        "jobs": count,
        "stretch": Fraction(stretch),
        "seed": 1,
    }
    lines = tpch.convert(str(SHARED / "traces/tpch/tpch_10g.jsonl.gz"), **options)
    specs = [read_workload_line(line)[1] for line in lines]
    for spec in specs:
        spec.queue = "default"  # Jobs outside any queue are entitled to nothing, and not planned.
    if own:
        for spec in specs:
            for stage in spec.stages:
                for kind, amount in stage.demand.items():
                    permille = 800 + below(451, 1, "variety", f"{spec.job}/{stage.stage}/{kind}")
                    stage.demand[kind] = max(1, amount * permille // 1_000)
    return specs


def live_tpch(
    own: bool, preset: str = "largesse", live: int = 2_000, nodes: int = 1_000, rounds: int = 300, stretch: int = 10
) -> dict[str, float]:
    """So many live TPC-H jobs and, every 100 ms, what ends and what arrives at a load of 1.2. `stretch`: by what
    factor tasks last longer than they did; the longer they last, the fewer start in a round.
    """
    specs = tpch_jobs(live + live // 2, own, stretch)
    work_ms = sum(_dominant_ms(spec, CAPACITY, nodes) for spec in specs) / len(specs)
    later = arrivals_ms(max(1, round(work_ms / 1.2)), len(specs) - live, 1, "load")
    submits = [0] * live + [1_000 + at for at in later]
    cluster = Cluster([ClusterNode(f"node-{i}", CAPACITY) for i in range(nodes)])
    values: dict[str, int | str] = {"round_gap_ms": 100, "preset": preset}
    return rounds_of(list(zip(submits, specs, strict=True)), cluster, values, 50, rounds)


def one_round(tasks: int, preset: str, nodes: int = 1_000, rounds: int = 100) -> dict[str, float]:
    """So many pending tasks, in stages of 50 with a stage of 10 behind each, and what follows every 100 ms. There is
    room for a fifth of 50,000 at once.
    """
    specs = []
    for i in range(tasks // 50):
        stages: list[Stage] = []
        for name, count in (("map", 50), ("reduce", 10)):
            drawn = [below(1_000, 1, f"one_round.{what}", f"{i}/{name}") for what in ("cpu", "memory", "ms")]
            demand, lasts = {"cpu": 1_000 + drawn[0], "memory": 4_096 + 8 * drawn[1]}, 5_000 + 50 * drawn[2]
            after = ["map"] if stages else []
            stages.append(Stage(name, count, demand, after=after, estimate_ms=lasts, durations_ms=[lasts]))
        specs.append(JobSpec(f"job-{i}", "default", stages))
    cluster = Cluster([ClusterNode(f"node-{i}", CAPACITY) for i in range(nodes)])
    values: dict[str, int | str] = {"round_gap_ms": 100, "preset": preset}
    return rounds_of([(0, spec) for spec in specs], cluster, values, 5, rounds)


def ratios(gap_ms: int, cut: int = 0) -> dict[str, float]:
    """Placements a CPU second under three presets on the same workload, and as parts of the figure under `drf`."""
    found: dict[str, float] = {}
    for preset in ("drf", "carbyne", "largesse"):
        found[preset] = carbyne("B-4", "B.pool", preset, cut, gap_ms)["placements_per_s"]
    parts = {f"{preset} / drf": found[preset] / found["drf"] for preset in ("carbyne", "largesse")}
    return {f"{preset} a second": found[preset] for preset in found} | parts


def wide(shapes: int, jobs: int = 1_000, stages: int = 100, nodes: int = 1_000, rounds: int = 100) -> dict[str, float]:
    """Jobs of many stages that could all start at once; `shapes`: how many demands there are among them, 0: each stage
    has its own.
    """
    specs = []
    for i in range(jobs):
        parts = []
        for k in range(stages):
            shape = (i * stages + k) if not shapes else (i * stages + k) % shapes
            cpu, memory = 500 + below(3_500, 1, "wide.cpu", str(shape)), 1_024 + below(16_000, 1, "wide.m", str(shape))
            lasts = 10_000 + below(590_000, 1, "wide.ms", f"{i}/{k}")
            parts.append(Stage(f"s{k}", 1, {"cpu": cpu, "memory": memory}, estimate_ms=lasts, durations_ms=[lasts]))
        specs.append(JobSpec(f"job-{i}", "", parts))
    cluster = Cluster([ClusterNode(f"node-{i}", CAPACITY) for i in range(nodes)])
    return rounds_of([(0, spec) for spec in specs], cluster, {"round_gap_ms": 100}, 5, rounds)


def carbyne(
    name: str = "B-4", nodes: str = "B2.nodes", preset: str = "drf", cut: int = 0, gap_ms: int = 100
) -> dict[str, float]:
    """A ready workload to its end (`cut`: so many of its jobs)."""
    folder = SHARED / "traces/carbyne"
    cluster = read_cluster(json.loads((folder / f"{nodes}.json").read_text()))
    with gzip.open(folder / f"{name}.jsonl.gz", "rt") as lines:
        jobs = [read_workload_line(json.loads(line)) for line in lines]
    with timed() as spent:
        begin = cpu_s()
        result = simulate(jobs[: cut or len(jobs)], cluster, Options({"preset": preset, "round_gap_ms": gap_ms}))
        took = cpu_s() - begin
    return {
        "placements_per_s": result["placements"] / took,
        **spent.figures(),
        "leftover_s": sum(spent.leftover),
        "fairness_s": sum(spent.fairness),
    }


def pending(
    jobs: int = 1_000_000, nodes: int = 10_000, preset: str = "largesse", queues: int = 100
) -> dict[str, float]:
    """One-task jobs that fill a large cell, and wait. Memory is the process's most, all cores in it."""
    bench = Bench(nodes, queues, (1,), 0, preset)
    with uncollected():
        begin = cpu_s()
        for _ in range(10):
            bench.submit(bench.specs(jobs // 10))
        admitted = cpu_s()
        with timed() as spent:
            bench.settle()
            placed, count = cpu_s(), len(bench.running)
            first_s = spent.leftover[0]
            refill = []
            for _ in range(10):
                bench.end(100)
                at = cpu_s()
                bench.settle()
                refill.append(cpu_s() - at)
    return {
        "placements_per_s": count / (placed - admitted),
        "admitted_per_s": jobs / (admitted - begin),
        "first_leftover_s": first_s,
        "refill_100_ms": median(refill) * MS,
        "leftover_ms": median(spent.leftover[1:]) * MS,
        "fairness_ms": median(spent.fairness[1:]) * MS,
        "memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_048_576,
    }


def busy_queues(queues: int, nodes: int = 1_000, backlog: int = 50_000, rounds: int = 50) -> dict[str, float]:
    """Rounds in which 100 tasks end and 100 jobs arrive, with tasks of three sizes in every queue."""
    bench = Bench(nodes, queues, (1, 2, 4), 0)
    with uncollected():
        bench.submit(bench.specs(backlog))
        bench.settle()
        with timed() as spent:
            took = []
            for _ in range(rounds):
                bench.submit(bench.specs(100))
                bench.end(100)
                at = cpu_s()
                bench.settle()
                took.append(cpu_s() - at)
    return {"round_ms": median(took) * MS, **spent.figures()}


def _tpch_rows() -> Iterable[tuple[str, str, Callable[..., dict[str, float]], tuple[Any, ...]]]:
    """The same jobs under `drf`, and with tasks that last five times as long. Some 15 seconds after they came the jobs
    get to their widest stages, and ten times as many tasks start in a round: `early` rounds are those before.
    """
    for preset, stretch, rounds in (("drf", 10, 100), ("drf", 10, 300), ("drf", 50, 300), ("largesse", 50, 300)):
        for own in (False, True):
            name = f"the same, {'demands of their own' if own else 'shared classes'}, {preset}"
            name += ", tasks five times as long" if stretch == 50 else ", 100 rounds" if rounds == 100 else ""
            key = f"{'own' if own else 'tpch'}{preset}{stretch}{'early' if rounds == 100 else ''}"
            yield key, name, live_tpch, (own, preset, 2_000, 1_000, rounds, stretch)


def rows(quick: bool) -> Iterable[tuple[str, str, Callable[..., dict[str, float]], tuple[Any, ...]]]:
    """Key, name, measure and arguments of every row."""
    yield "tpch", "2,000 live TPC-H jobs, 1,000 nodes, shared classes", live_tpch, (False,)
    yield "own", "2,000 live TPC-H jobs, 1,000 nodes, demands of their own", live_tpch, (True,)
    yield from _tpch_rows()
    yield "planned", "the same, demands of their own, carbyne", live_tpch, (True, "carbyne")
    for tasks in (10_000, 50_000):
        for preset in ("carbyne", "largesse"):
            name = f"{tasks:,} pending tasks, 1,000 nodes, {preset}"
            yield f"round{tasks // 1_000}{preset}", name, one_round, (tasks, preset)
    yield "shapes", "1,000 jobs of 100 stages, ten shapes", wide, (10,)
    yield "wide", "1,000 jobs of 100 stages, demands of their own", wide, (0,)
    some = 60 if quick else 0
    yield "carbyne", "carbyne B-4 on B2.nodes, drf", carbyne, ("B-4", "B2.nodes", "drf", some)
    yield "giving", "carbyne B-4 on B2.nodes, carbyne", carbyne, ("B-4", "B2.nodes", "carbyne", some)
    for gap_ms in (0, 100):
        yield f"ratios{gap_ms}", f"carbyne B-4 on B.pool, gap {gap_ms}, three presets", ratios, (gap_ms, some)
    jobs, nodes = (100_000, 1_000) if quick else (1_000_000, 10_000)
    for preset in ("largesse", "hdrf"):
        name = f"{jobs:,} pending one-task jobs, {nodes:,} nodes, 100 queues, {preset}"
        yield "pending" if preset == "largesse" else f"pending{preset}", name, pending, (jobs, nodes, preset)
    for queues in (10, 100, 1_000):
        yield f"queues{queues}", f"busy rounds, {queues:,} queues", busy_queues, (queues,)


def main(quick: bool | None = None, only: Sequence[str] = ()) -> None:
    """All rows, or those named in `only`."""
    quick = "--quick" in sys.argv[1:] if quick is None else quick
    for key, name, measured, arguments in rows(quick):
        if only and key not in only:
            continue
        if measured in (live_tpch, carbyne, ratios) and not SHARED.is_dir():
            print(f"{key}: left out, the traces are not beside the project")
            continue
        show(name, [alone(measured, *arguments)])


def command() -> None:
    """Reads what the command line asks for, and measures it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.variety",
        description="CPU time of rounds in which tasks differ. Rows:",
        epilog="\n".join(f"  {key:17}{name}" for key, name, _, _ in rows(False)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = [key for key, _, _, _ in rows(False)]
    parser.add_argument("rows", nargs="*", metavar="ROW", help="without any, all of them")
    parser.add_argument("--quick", action="store_true", help="smaller: whether it works, not how fast it is")
    given = parser.parse_args()
    if unknown := [row for row in given.rows if row not in known]:
        parser.error(f"no row is called {unknown[0]}; there are {', '.join(known)}")
    main(given.quick, given.rows)


if __name__ == "__main__":
    command()
