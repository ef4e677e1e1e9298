"""Jobs of the recorded traces beside the project, thinned and dealt to queues, and cells that they congest."""

import json
import os
from dataclasses import replace
from itertools import islice
from pathlib import Path

from schemas import JobSpec, Queue
from schemas.edge.read import Cluster, ClusterNode, read_workload_line
from services.simulator.workloads import alibaba_dag
from services.simulator.workloads.files import read_lines

SHARED = Path(os.environ.get("LARGESSE_SHARED", Path(__file__).resolve().parents[3] / "shared"))
THINNED = 10
"""Of so many tasks of a stage there is one."""
QUEUES = ("ads", "ml", "web")
WEIGHTS = (3, 2, 1)
TREE = Queue("root", children=[Queue(name, weight=weight) for name, weight in zip(QUEUES, WEIGHTS, strict=True)])
SIZES = {"cpu": 20_000, "memory": 128 * 1_024, "disk_io": 4_000, "network": 10_000}

Jobs = list[tuple[int, JobSpec]]


def are_there() -> bool:
    """Whether the traces lie beside the project."""
    return (SHARED / "traces").is_dir()


def in_queues(jobs: Jobs) -> Jobs:
    """The same jobs, dealt to three queues and four users."""
    return [
        (at_ms, replace(spec, queue=QUEUES[i % len(QUEUES)], user=f"user-{i % 4}"))
        for i, (at_ms, spec) in enumerate(jobs)
    ]


def thinner(spec: JobSpec) -> JobSpec:
    """The same job with fewer tasks of each stage."""
    stages = []
    for stage in spec.stages:
        lasts_ms = stage.durations_ms[::THINNED] if len(stage.durations_ms) > 1 else stage.durations_ms
        stages.append(replace(stage, tasks=-(-stage.tasks // THINNED), durations_ms=lasts_ms))
    return replace(spec, stages=stages)


def carbyne(name: str, count: int, skip: int = 0) -> Jobs:
    """Jobs of a workload as Carbyne's authors published it, from a place of it on."""
    lines = islice(read_lines(str(SHARED / "traces" / "carbyne" / name)), skip, skip + count)
    return _from_zero([read_workload_line(json.loads(line)) for _, line in lines])


def alibaba(count: int, skip: int = 0) -> Jobs:
    """Jobs of Alibaba's trace of 2018, from a place of it on."""
    path = str(SHARED / "traces" / "alibaba-dag-2018" / "alibaba2018_random_a.jsonl.gz")
    return _from_zero([read_workload_line(line) for line in islice(alibaba_dag.convert(path), skip, skip + count)])


def _from_zero(jobs: Jobs) -> Jobs:
    first_ms = jobs[0][0] if jobs else 0
    return in_queues([(at_ms - first_ms, thinner(spec)) for at_ms, spec in jobs])


def cell_of(jobs: Jobs, nodes: int, tree: Queue = TREE) -> Cluster:
    """So many like nodes, with what the jobs ask for."""
    kinds = {kind for _, spec in jobs for stage in spec.stages for kind in stage.demand}
    return Cluster([ClusterNode(f"m-{i}", {kind: SIZES[kind] for kind in sorted(kinds)}) for i in range(nodes)], tree)
