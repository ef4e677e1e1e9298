"""Rivals of the default on the workloads of CARBYNE's claims: `python -m benchmarks.rivals WHAT FOLDER [--part N]`.

WHAT is one of

- `presets`: every preset that orders or packs jobs, as factors over `drf`;
- `dags`: `carbyne` with its four orders within a job, on workflow instances and on Alibaba's production DAGs;
- `estimates`: what `carbyne` and `largesse` gain over `drf` where the scheduler is told wrong demands and durations,
  off by -50 % to +50 %: all stages alike, or each by errors of its own.

FOLDER is that of the traces. A factor is `drf`'s figure divided by the preset's, so above 1 is better. `--part N` takes
every Nth job, on the Nth part of the cluster. All in virtual time: figures do not depend on the machine.
"""

import argparse
import gzip
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from schemas import JobSpec, Vector
from schemas.edge.read import Cluster, read_cluster, read_workload_line
from services.simulator.report.table import took_ms
from services.simulator.result import SimulationResult
from services.simulator.run import Options, simulate
from services.simulator.workloads import alibaba_dag, wfcommons
from services.simulator.workloads.draws import below

GAP_MS = 100
PRESETS = ("srtf", "sjf", "tetris", "tetris-fair", "carbyne", "carbyne-dag")
MISLED_PRESETS = ("carbyne", "largesse")
ORDERS = ("tetris", "critical_path", "breadth_first", "dagps")
ALIBABA_TASKS_MAX = 2_000
ALIBABA_EVERY, ALIBABA_FIRSTS = 60, (0, 20, 40)
STAGES_MAX = 60
PERMILLE = 1_000
SPREAD_PERMILLE = 500
SEEDS = (1, 2, 3)

Jobs = list[tuple[int, JobSpec]]
Result = SimulationResult


def run(jobs: Jobs, cluster: Cluster, preset: str, **knobs: int | str) -> Result:
    """simulate's result."""
    return simulate(jobs, cluster, Options({"preset": preset, "round_gap_ms": GAP_MS, **knobs}))


def mean_ms(result: Result) -> float:
    return float(result["jct_ms"]["mean"])


def factors(base: Result, result: Result) -> str:
    """Mean and 95th percentile of completion, worst job, and makespan, as factors over `base`; and Jain's index."""
    before = {row["job"]: took_ms(row) for row in base["per_job"]}
    each = [before[row["job"]] / took_ms(row) for row in result["per_job"]]
    found = (
        mean_ms(base) / mean_ms(result),
        base["jct_ms"]["p95"] / result["jct_ms"]["p95"],
        min(each),
        base["makespan_ms"] / result["makespan_ms"],
        result["jain"]["mean"],
    )
    return " | ".join(f"{figure:.2f}" for figure in found)


# ---------------------------------------------------------------- workloads
def carbyne(folder: Path, workload: str, cluster: str, part: int) -> tuple[Jobs, Cluster]:
    """A workload of traces/carbyne, or a part of it."""
    with gzip.open(folder / "carbyne" / f"{workload}.jsonl.gz", "rt") as lines:
        jobs = [read_workload_line(json.loads(line)) for line in lines][::part]
    found = read_cluster(json.loads((folder / "carbyne" / f"{cluster}.json").read_text()))
    if part > 1:
        for node in found.nodes:
            node.capacity = {kind: amount // part for kind, amount in node.capacity.items()}
    return jobs, found


def workflows(folder: Path) -> tuple[Jobs, Cluster]:
    """Workflow instances of at most STAGES_MAX stages, all at once, on four nodes."""
    lines = wfcommons.convert(str(folder / "wfinstances" / "wfinstances_a.jsonl.gz"), group=True, disk_io=False)
    jobs = [(0, spec) for _, spec in _specs(lines) if len(spec.stages) <= STAGES_MAX]
    return jobs, _machines(4, {"cpu": "16", "memory": "64Gi"})


def alibaba(folder: Path, first: int, every: int) -> tuple[Jobs, Cluster]:
    """Some of Alibaba's jobs with at most ALIBABA_TASKS_MAX tasks, all at once, on two machines."""
    path = folder / "alibaba-dag-2018" / "alibaba2018_medium_a.jsonl.gz"
    lines = alibaba_dag.convert(str(path), tasks_max=ALIBABA_TASKS_MAX)
    jobs = [(0, spec) for _, spec in _specs(lines)[first::every]]
    return jobs, _machines(2, {"cpu": "96", "memory": "100Gi"})


def _specs(lines: Iterable[Any]) -> Jobs:
    return [read_workload_line(json.loads(json.dumps(line))) for line in lines]


def _machines(count: int, capacity: dict[str, str]) -> Cluster:
    return read_cluster({"nodes": [{"name": "m", "count": count, "capacity": capacity}]})


# ---------------------------------------------------------------- wrong estimates
def misled(jobs: Jobs, seed: int, permille: int | None) -> Jobs:
    """The same jobs with wrong estimates: everything `permille` of the truth, or, without it, each stage's duration and
    demand off by an error of its own."""
    return [(submit_ms, _misled(spec, seed, permille)) for submit_ms, spec in jobs]


def _misled(spec: JobSpec, seed: int, permille: int | None) -> JobSpec:
    stages = []
    for stage in spec.stages:
        lasts, asks = (
            permille
            or PERMILLE - SPREAD_PERMILLE + below(2 * SPREAD_PERMILLE + 1, seed, what, f"{spec.job}/{stage.stage}")
            for what in ("duration", "demand")
        )
        truth: Vector = stage.true_demand or stage.demand
        estimated = {kind: max(1, amount * asks // PERMILLE) for kind, amount in truth.items()}
        estimate_ms = max(1, stage.estimate_ms * lasts // PERMILLE)
        stages.append(replace(stage, demand=estimated, true_demand=truth, estimate_ms=estimate_ms))
    return replace(spec, stages=stages)


# ---------------------------------------------------------------- tables
def presets(folder: Path, part: int) -> None:
    """A row a preset."""
    jobs, cluster = carbyne(folder, "A-4", "A.pool", part)
    base = run(jobs, cluster, "drf")
    print(f"A-4 on its pool, every {part}. job: {len(jobs)} jobs\n")
    print(
        "| preset | mean | p95 | worst job | makespan | Jain |\n| --- | ---: | ---: | ---: | ---: | ---: |", flush=True
    )
    for preset in PRESETS:
        print(f"| `{preset}` | {factors(base, run(jobs, cluster, preset))} |", flush=True)


def dags(folder: Path, part: int) -> None:
    """A row a workload and order."""
    print("| workload | order | mean | p95 | worst job | makespan | Jain |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |", flush=True)
    workloads = {f"Alibaba {at}": alibaba(folder, at, ALIBABA_EVERY * part) for at in ALIBABA_FIRSTS}
    for name, (jobs, cluster) in {"workflows": workflows(folder), **workloads}.items():
        base = run(jobs, cluster, "drf")
        for order in ORDERS:
            result = run(jobs, cluster, "carbyne", job_order=order)
            print(f"| {name}, {len(jobs)} jobs | `{order}` | {factors(base, result)} |", flush=True)


def estimates(folder: Path, part: int) -> None:
    """A row a kind of error: the gain in mean completion over `drf`, and how much of the true one that is."""
    jobs, cluster = carbyne(folder, "A-4", "A.pool", part)
    cases = {"none": jobs, "all -50 %": misled(jobs, 0, 500), "all +50 %": misled(jobs, 0, 1_500)}
    cases |= {f"by stage, draw {seed}": misled(jobs, seed, None) for seed in SEEDS}
    print(f"A-4 on its pool, every {part}. job: {len(jobs)} jobs\n")
    print("| errors | preset | gain over `drf` | of the true gain |\n| --- | --- | ---: | ---: |", flush=True)
    true_gains: dict[str, float] = {}
    for name, those in cases.items():
        base_ms = mean_ms(run(those, cluster, "drf"))
        for preset in MISLED_PRESETS:
            gain = base_ms / mean_ms(run(those, cluster, preset)) - 1
            true_gain = true_gains.setdefault(preset, gain)
            print(f"| {name} | `{preset}` | {gain:+.1%} | {gain / true_gain:.0%} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rivals", description=(__doc__ or "").split("\n")[0])
    tables = {"presets": presets, "dags": dags, "estimates": estimates}
    parser.add_argument("what", choices=tables)
    parser.add_argument("folder", type=Path, help="the traces")
    parser.add_argument("--part", type=int, default=1, help="every Nth job, on the Nth part of the cluster")
    asked = parser.parse_args()
    tables[asked.what](asked.folder, asked.part)


if __name__ == "__main__":
    main()
