"""How far both forecasters of the estimator are off, by horizon, on real workloads beside the project.

The error is the mean over all forecasts of a run: by how much of the cell, in the kind of resource and the mean of the
classes where it is largest, what running tasks gave back within 1, 5, 10 and 30 s differed from what was forecast.
`python -m benchmarks.forecasts [--quick | --large]`: a quarter of the jobs, or five times as many of TPC-H and Alibaba
and all 1,000 of Facebook.
"""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from schemas import JobSpec
from schemas.edge.read import Cluster, ClusterNode, read_workload_line
from services.estimator import scores
from services.estimator.core.state import FORECASTERS
from services.simulator.engine import Cell
from services.simulator.run import Options, simulate, uncollected
from services.simulator.workloads import alibaba_dag
from services.simulator.workloads.files import read_lines

SHARED = Path(__file__).parents[2] / "shared" / "traces"
KNOBS: dict[str, int | str | list[int]] = {"preset": "capacity", "classes": "on", "round_gap_ms": 100}

Jobs = list[tuple[int, JobSpec]]


def ready(name: str, count: int) -> Jobs:
    """The first jobs of a workload file."""
    return [read_workload_line(json.loads(line)) for _, line in islice(read_lines(str(SHARED / name)), count)]


def alibaba(count: int) -> Jobs:
    """The first jobs of the random sample of 2018."""
    path = str(SHARED / "alibaba-dag-2018" / "alibaba2018_random_a.jsonl.gz")
    return [read_workload_line(line) for line in islice(alibaba_dag.convert(path), count)]


def without_estimates(jobs: Jobs) -> Jobs:
    """The same jobs without any word of how long their tasks take."""
    return [
        (at_ms, replace(spec, stages=[replace(stage, estimate_ms=0) for stage in spec.stages])) for at_ms, spec in jobs
    ]


def errors(jobs: Jobs, nodes: int, cores: int, memory: int) -> Iterator[tuple[str, list[int], int]]:
    """Forecaster, mean errors by horizon in millionths of the cell, number of forecasts."""
    kinds = {kind for _, spec in jobs for stage in spec.stages for kind in stage.demand}
    sizes = {"cpu": cores * 1_000, "memory": memory * 1_024, "disk_io": 4_000, "network": 10_000}
    capacity = {kind: sizes[kind] for kind in sorted(kinds)}
    cluster = Cluster([ClusterNode(f"m-{i}", capacity) for i in range(nodes)])
    cells: list[Cell] = []

    def note(cell: Cell) -> None:
        cells[:] = [cell]

    with uncollected():
        simulate(jobs, cluster, Options(KNOBS, before_round=note))
    for name, score in zip(FORECASTERS, cells[0].estimator.scores, strict=True):
        yield name, scores.mean_errors(score), score.samples[0]


def main() -> None:
    """Prints the table."""
    scores.SAMPLES_MAX = 1 << 60  # Every forecast counts alike.
    if not SHARED.is_dir():
        print("left out: the traces are not beside the project")
        return
    tpch, facebook, alibabas = 20, 100, 100
    if "--quick" in sys.argv[1:]:
        tpch, facebook, alibabas = tpch // 4, facebook // 4, alibabas // 4
    elif "--large" in sys.argv[1:]:
        tpch, facebook, alibabas = 5 * tpch, 10 * facebook, 5 * alibabas
    workloads = (
        ("TPC-H", ready("carbyne/B-4.jsonl.gz", tpch), 40),
        ("Facebook", ready("carbyne/C-4.jsonl.gz", facebook), 20),
        ("Alibaba", alibaba(alibabas), 20),
    )
    heads = (f"{horizon} s" for horizon in scores.HORIZONS_S)
    print("| workload | run times | forecaster | " + " | ".join(heads) + " | forecasts |")
    print("| --- | --- | --- |" + " ---: |" * (len(scores.HORIZONS_S) + 1))
    for title, jobs, nodes in workloads:
        for run_times, those in (("told", jobs), ("not told", without_estimates(jobs))):
            at = time.process_time()
            for name, by_horizon, samples in errors(those, nodes, 20, 128):
                row = " | ".join(f"{error / 10_000:.2f} %" for error in by_horizon)
                print(f"| {title} | {run_times} | {name} | {row} | {samples} |", flush=True)
            print(f"{time.process_time() - at:.1f} CPU s", file=sys.stderr)


if __name__ == "__main__":
    main()
