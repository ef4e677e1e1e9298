"""A log of half a day in which nodes are busy, a queue is below its guarantee, and a gang waits for nodes of a zone."""

import json
from pathlib import Path
from typing import cast

from tests.unit.cli_process import largesse

MIN_MS = 60_000

NODES = [
    {"name": f"node-{index}", "capacity": {"cpu": "8", "memory": "32Gi"}, "labels": {"zone": "ab"[index % 2]}}
    for index in range(4)
]
QUEUES = {
    "name": "root",
    "children": [
        {"name": "ads", "weight": 2, "guaranteed": {"cpu": "12"}},
        {"name": "ml", "children": [{"name": "train"}]},
        {"name": "research"},
        {"name": "default"},
    ],
}


def _stage(name: str, tasks: int, minutes: int, cpu: int = 1, **more: object) -> dict[str, object]:
    demand = {"cpu": str(cpu), "memory": "2Gi"}
    return {"stage": name, "tasks": tasks, "duration_ms": minutes * MIN_MS, "demand": demand, **more}


def _job(name: str, queue: str, minute: int, *stages: dict[str, object]) -> dict[str, object]:
    return {"job": name, "queue": queue, "user": "ann", "submit_ms": minute * MIN_MS, "stages": [*stages]}


_JOIN = _stage("join", 3, 7, 2, after=["scan"])
JOBS = [
    *(_job(f"query-{n}", "ads", 17 * n, _stage("scan", 9, 11), _JOIN) for n in range(20)),
    *(_job(f"train-{n}", "ml/train", 40 * n, _stage("fit", 4, 25, 2)) for n in range(9)),
    _job("steady", "ads", 380, _stage("run", 4, 120)),
    _job("long", "research", 390, _stage("run", 60, 170)),
    _job("campaign", "ads", 400, _stage("score", 40, 15)),
    _job("nightly", "ml/train", 410, _stage("fit", 2, 30, 6, gang=True, labels={"zone": "b"})),
]  # fmt: skip
LAST_QUERIES_MIN, SHORT_MIN = 340, 425
"""Queries end about then; then the queue `ads` holds less than it is guaranteed, and `campaign` and `nightly` wait."""


def _submitted_ms(job: dict[str, object]) -> int:
    return cast(int, job["submit_ms"])


def day_log(folder: Path) -> Path:
    """Writes the log into a folder."""
    cluster, path = folder / "cluster.json", folder / "day.log"
    cluster.write_text(json.dumps({"nodes": NODES, "queues": QUEUES}))
    jobs = "".join(f"{json.dumps(job)}\n" for job in sorted(JOBS, key=_submitted_ms))
    said = largesse("simulate", "--workload", "-", "--cluster", cluster, "--log", path, stdin=jobs)
    assert said.code == 0, said.err
    return path
