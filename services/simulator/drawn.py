"""A random workload and cluster by one seed: the same seed gives the same jobs and nodes everywhere.

Small enough to run in seconds, mixed enough to meet every rule: queues, priorities, graphs, gangs, parts of GPUs,
labels, time-outs, wrong estimates, jobs that no node can take.
"""

from largesse.ids import draw
from schemas import JobSpec
from schemas.edge.read import Cluster, read_cluster, read_workload_line
from schemas.quantities import quantity_texts

JOBS_MIN, JOBS_MORE = 40, 160
QUEUES = ("ads/prod", "ads/test", "ml/train", "ml/tune", "default")
ODD_ONE_IN = 25  # One job in so many asks for more than any node has.


class Dice:
    """Draws that have a name. Each question has one answer, whenever it is asked."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def upto(self, most: int, *name: object) -> int:
        """A whole number from 0 to `most`."""
        return draw(self.seed, 0, "drawn", "/".join(map(str, name))) * (most + 1) >> 64

    def one_in(self, many: int, *name: object) -> bool:
        """True once in `many`."""
        return self.upto(many - 1, *name) == 0


def drawn_cluster(seed: int) -> Cluster:
    """Plain nodes in two zones, and a few with GPUs; a tree of two levels; any preset's knobs at their defaults."""
    dice = Dice(seed)
    nodes: list[dict[str, object]] = []
    for zone in ("a", "b"):
        capacity = {
            "cpu": str(8 + 8 * dice.upto(2, "cpu", zone)),
            "memory": f"{32 + 32 * dice.upto(2, 'memory', zone)}Gi",
        }
        count = 2 + dice.upto(6, "nodes", zone)
        nodes.append({"name": f"zone-{zone}", "count": count, "labels": {"zone": zone}, "capacity": capacity})
    gpus = {"cpu": "16", "memory": "64Gi", "gpu": "4"}
    nodes.append({"name": "gpu", "count": 1 + dice.upto(3, "gpus"), "capacity": gpus})
    ml = [{"name": "train"}, {"name": "tune", "weight": 1 + dice.upto(9, "tune")}]
    ads = [{"name": "prod", "weight": 70}, {"name": "test", "weight": 30}]
    children = [{"name": "ads", "weight": 60, "children": ads}, {"name": "ml", "weight": 40, "children": ml}]
    return read_cluster({"nodes": nodes, "queues": {"name": "root", "children": children}})


def drawn_jobs(seed: int) -> list[tuple[int, JobSpec]]:
    """(submit_ms, spec) in order of submission."""
    dice = Dice(seed)
    at_ms, jobs = 0, []
    for i in range(JOBS_MIN + dice.upto(JOBS_MORE, "jobs")):
        at_ms += dice.upto(8_000, i, "gap") if dice.upto(2, i, "burst") else 0
        jobs.append(read_workload_line(_line(dice, i, at_ms)))
    return jobs


def _line(dice: Dice, i: int, at_ms: int) -> dict[str, object]:
    stages = [_stage(dice, i, k) for k in range(1 + dice.upto(4, i, "stages"))]
    if dice.one_in(ODD_ONE_IN, i, "odd"):
        stages[0]["demand"] = {"cpu": "4096"}
    return {
        "job": f"job-{i}",
        "submit_ms": at_ms,
        "queue": QUEUES[dice.upto(len(QUEUES) - 1, i, "queue")],
        "priority": dice.upto(2, i, "priority") - 1,
        "stages": stages,
    }


def _stage(dice: Dice, i: int, k: int) -> dict[str, object]:
    memory_mib = 256 * (1 + dice.upto(31, i, k, "memory"))
    demand = {"cpu": 250 * (1 + dice.upto(11, i, k, "cpu")), "memory": memory_mib}
    stage: dict[str, object] = {
        "stage": f"s{k}",
        "after": [f"s{j}" for j in range(k) if dice.one_in(2, i, k, "after", j)],
        "demand": {},
        "retries": dice.upto(2, i, k, "retries"),
    }
    tasks = 1 + dice.upto(1 << dice.upto(6, i, k, "width"), i, k, "tasks")
    if dice.one_in(8, i, k, "gpu"):
        demand["gpu"] = 250 * (1 + dice.upto(7, i, k, "gpus"))
        tasks = min(tasks, 4)
    if dice.one_in(8, i, k, "gang"):
        stage["gang"] = True
        tasks = min(tasks, 6)
    if dice.one_in(6, i, k, "zone"):
        stage["labels"] = {"zone": "ab"[dice.upto(1, i, k, "which")]}
        demand.pop("gpu", None)
    stage["demand"] = quantity_texts(demand)
    lasts_ms = 200 + dice.upto(30_000, i, k, "lasts")
    stage["durations_ms"] = [lasts_ms + dice.upto(lasts_ms, i, k, "task", t) for t in range(tasks)]
    if dice.one_in(5, i, k, "estimate"):
        stage["estimate_ms"] = 1 + dice.upto(60_000, i, k, "told")
    if dice.one_in(10, i, k, "limit"):
        stage["timeout_ms"] = lasts_ms + lasts_ms // 2
    return stage
