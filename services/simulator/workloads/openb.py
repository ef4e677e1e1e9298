"""Pods and nodes of Alibaba's GPU cluster of 2023 (openb): CPU, memory, parts of GPUs, GPU models.

A pod is a job of one task; pods that were never scheduled have no length and are left out. Times count from `start_s`:
what ran by then comes at 0 with the rest of its life. A pod that accepts one GPU model requires the label
`gpu-model`; one that accepts several requires a label that the cluster file gives to nodes of any of them.
"""

import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from schemas.quantities import quantity_texts
from services.simulator.workloads.draws import drawn_names
from services.simulator.workloads.files import Damaged
from services.simulator.workloads.source import Leave, Line, Option, Row, require, table_rows, unheard

OPTIONS = (
    Option("nodes", str, "", "the trace's node list; needed for a cluster file"),
    Option("cluster", str, "", "writes a cluster file of the nodes here"),
    Option("sample", int, 0, "only this many nodes, drawn by the seed; 0: all 1,523, far more than the pods need"),
    Option("start_s", int, 10_000_000, "time 0: 99 % of the pods come after it"),
    Option("compress", Fraction, Fraction(1), "divides times of arrival: a heavier load"),
    Option("models", bool, True, "keeps the GPU models that pods accept"),
    Option("queues", bool, True, "makes a queue of each quality class (LS, BE, Burstable, Guaranteed)"),
    Option("seed", int, 0, "of the sample of nodes"),
)

MODEL = "gpu-model"
_ANY_MODEL = "gpu-any/"
_POD_COLUMNS = (
    *("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"),
    *("creation_time", "deletion_time", "scheduled_time"),
)
_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu")
_GPU_MILLI = 1000


def convert(
    path: str,
    *,
    nodes: str = "",
    cluster: str = "",
    sample: int = 0,
    start_s: int = 10_000_000,
    compress: Fraction = Fraction(1),
    models: bool = True,
    queues: bool = True,
    seed: int = 0,
    leave: Leave = unheard,
) -> Iterator[Line]:
    """Workload lines in order of arrival; writes the cluster file at once.

    Raises ValueError for a wrong option, Damaged for a damaged line, OSError where the cluster file cannot be written.
    """
    require("sample", sample >= 0, "at least 0", sample)
    require("start_s", start_s >= 0, "at least 0", start_s)
    require("compress", compress > 0, "above 0", compress)
    require("nodes", bool(nodes) == bool(cluster), "given together with cluster", nodes or "missing")
    pods = sorted(
        (
            line
            for row in table_rows(path, ",", needed=_POD_COLUMNS)
            if (line := _job(row, start_s, compress, models, queues, leave))
        ),
        key=lambda line: line["submit_ms"],  # Stable: the trace's order decides.
    )
    if cluster:
        Path(cluster).write_text(_text_of(cluster_of(nodes, pods, sample, seed)), encoding="utf-8")
    return iter(pods)


def cluster_of(nodes: str, pods: list[Line], count: int, seed: int) -> Line:
    """The cluster file of a node list: labels that the pods ask for, and their queues. Raises Damaged."""
    rows = {row.text("sn"): row for row in table_rows(nodes, ",", needed=_NODE_COLUMNS)}
    if not rows:
        raise Damaged(nodes, "", "has no node")
    accepted = sorted({label for pod in pods for label in pod["stages"][0].get("labels", {}) if label != MODEL})
    chosen = drawn_names(list(rows), count or len(rows), seed, "openb.node")
    document: Line = {"nodes": [_node(rows[name], accepted) for name in chosen]}
    if names := sorted({pod["queue"] for pod in pods if "queue" in pod}):
        document["queues"] = {"name": "root", "children": [{"name": name} for name in names]}
    return document


def _text_of(document: Line) -> str:
    """One node a line, easy to read and to compare."""
    nodes = ",\n".join(json.dumps(node) for node in document["nodes"])
    rest = "".join(f',\n"{name}": {json.dumps(part)}' for name, part in document.items() if name != "nodes")
    return f'{{"nodes": [\n{nodes}]{rest}}}\n'


def _node(row: Row, accepted: list[str]) -> Line:
    capacity = {"cpu": row.whole("cpu_milli"), "memory": row.whole("memory_mib")}
    gpus = row.whole("gpu")
    if not gpus:
        return {"name": row.text("sn"), "capacity": quantity_texts(capacity)}
    model = row.text("model")
    labels = {MODEL: model} | {label: "yes" for label in accepted if model in label.removeprefix(_ANY_MODEL).split(".")}
    capacity["gpu"] = gpus * _GPU_MILLI
    return {"name": row.text("sn"), "capacity": quantity_texts(capacity), "labels": labels}


def _job(row: Row, start_s: int, compress: Fraction, models: bool, queues: bool, leave: Leave) -> Line | None:
    if "scheduled_time" not in row:
        leave("never scheduled")
        return None
    created_s, scheduled_s, deleted_s = (
        row.whole(name) - start_s for name in ("creation_time", "scheduled_time", "deletion_time")
    )
    duration_s = deleted_s - max(0, scheduled_s)
    if deleted_s <= 0 or duration_s <= 0:
        leave(f"over by second {start_s:,} (--start-s)" if deleted_s <= 0 else "deleted as soon as they were scheduled")
        return None
    demand = {"cpu": row.whole("cpu_milli"), "memory": row.whole("memory_mib")}
    if gpu := row.whole("num_gpu") * row.whole("gpu_milli"):
        demand["gpu"] = gpu
    asked = quantity_texts(demand)
    stage: Line = {"stage": "pod", "after": [], "tasks": 1, "demand": asked, "duration_ms": duration_s * 1000}
    if models and "gpu_spec" in row:
        stage["labels"] = _labels(sorted(set(row.text("gpu_spec").split("|"))))
    line: Line = {"job": row.text("name"), "submit_ms": int(max(0, created_s) * 1000 / compress), "stages": [stage]}
    return line | ({"queue": row.text("qos")} if queues else {})


def _labels(models: list[str]) -> dict[str, str]:
    return {MODEL: models[0]} if len(models) == 1 else {_ANY_MODEL + ".".join(models): "yes"}
