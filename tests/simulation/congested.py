"""Congested cells of many kinds, drawn by a seed: where tasks wait for everything that tasks can wait for."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from largesse.log.export import ExportWriter
from schemas import Queue
from schemas.edge.read import Cluster, read_cluster, read_workload_line
from services.replay.source import Source, open_source
from services.simulator.drawn import Dice
from services.simulator.drawn_reservations import KNOBS, drawn_reservations
from services.simulator.run import Options, Stuck, simulate
from tests.simulation import traces

PRESETS = ("largesse", "drf", "hdrf", "carbyne", "fifo", "dress", "rayon")
QUEUES = ("ads/prod", "ads/test", "ml/train", "ml/tune", "default")
SPAN_MS = 60_000
"""Jobs are submitted within so long."""


@dataclass(frozen=True)
class Drawn:
    """What is simulated."""

    arrivals: list
    cluster: Cluster
    preset: str
    knobs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Mix:
    """How many jobs there are, and one in how many stages (of jobs, the last one) is what; 0: none."""

    jobs: int = 60
    gpu: int = 6
    zone: int = 4
    gang: int = 5
    apart: int = 6
    few: int = 6
    held: int = 25


# ---------------------------------------------------------------- drawn
def nodes_of(dice: Dice) -> list[dict]:
    return [
        {
            "name": "a",
            "count": 2 + dice.upto(2, "a"),
            "labels": {"zone": "a"},
            "capacity": {"cpu": "8", "memory": "32Gi"},
        },
        {
            "name": "b",
            "count": 1 + dice.upto(2, "b"),
            "labels": {"zone": "b"},
            "capacity": {"cpu": "8", "memory": "64Gi"},
        },
        {"name": "gpu", "count": 1 + dice.upto(1, "gpu"), "capacity": {"cpu": "16", "memory": "64Gi", "gpu": "4"}},
    ]


def tree_of(dice: Dice, *, all_limits: bool) -> dict:
    limits = {"max": {"cpu": str(6 + 2 * dice.upto(4, "max"))}} if all_limits or dice.one_in(2, "has max") else {}
    running = {"running_jobs_max": 2 + dice.upto(3, "running")} if all_limits or dice.one_in(2, "has running") else {}
    users = {"user_running_max": 3 + dice.upto(5, "users")} if all_limits or dice.one_in(2, "has users") else {}
    ads = {"name": "ads", "weight": 60, **limits, "children": [{"name": "prod", "weight": 70}, {"name": "test"}]}
    ml = {"name": "ml", "weight": 40, "children": [{"name": "train", **users}, {"name": "tune", **running}]}
    return {"name": "root", "children": [ads, ml, {"name": "default"}]}


def cell_of(seed: int, *, all_limits: bool = False) -> Cluster:
    dice = Dice(seed)
    return read_cluster({"nodes": nodes_of(dice), "queues": tree_of(dice, all_limits=all_limits)})


def job_of(dice: Dice, i: int, mix: Mix) -> dict:
    def one_in(many: int, *name: object) -> bool:
        return many > 0 and dice.one_in(many, *name)

    stages = []
    for k in range(1 + dice.upto(2, i, "stages")):
        demand = {
            "cpu": f"{500 * (1 + dice.upto(7, i, k, 'cpu'))}m",
            "memory": f"{1 + dice.upto(11, i, k, 'memory')}Gi",
        }
        tasks = 1 + dice.upto(1 << dice.upto(4, i, k, "width"), i, k, "tasks")
        stage: dict = {"stage": f"s{k}", "after": [f"s{k - 1}"] if k and dice.one_in(2, i, k, "after") else []}
        if one_in(mix.gpu, i, k, "gpu"):
            demand["gpu"] = f"{500 * (1 + dice.upto(3, i, k, 'gpus'))}m"
            tasks = min(tasks, 4)
        elif one_in(mix.zone, i, k, "zone"):
            stage["labels"] = {"zone": "ab"[dice.upto(1, i, k, "which")]}
        if one_in(mix.gang, i, k, "gang"):
            stage["gang"] = True
            tasks = min(tasks, 5)
        elif one_in(mix.apart, i, k, "apart"):
            stage["anti_affinity"] = {"required": True}
            tasks = min(tasks, 5)
        elif one_in(mix.few, i, k, "few"):
            stage["running_max"] = 1 + dice.upto(2, i, k, "most")
        lasts_ms = 4_000 + dice.upto(40_000, i, k, "lasts")
        stage |= {"tasks": tasks, "demand": demand, "duration_ms": lasts_ms, "estimate_ms": lasts_ms}
        stages.append(stage)
    return {
        "job": f"job-{i}",
        "submit_ms": dice.upto(SPAN_MS, i, "at"),
        "queue": QUEUES[dice.upto(len(QUEUES) - 1, i, "queue")],
        "user": ("ann", "bob")[dice.upto(1, i, "user")],
        "priority": dice.upto(2, i, "priority"),
        "stages": stages,
    }


def jobs_of(seed: int, mix: Mix) -> list:
    """Some of which a user holds, and never releases."""
    dice = Dice(seed)
    found: list = []
    for i in range(mix.jobs):
        at_ms, spec = read_workload_line(job_of(dice, i, mix))
        is_held = mix.held > 0 and dice.one_in(mix.held, i, "held")
        found.append((at_ms, replace(spec, hold=True) if is_held else spec))
    return found


def mixed(seed: int, jobs: int = 60) -> Drawn:
    preset = PRESETS[seed % len(PRESETS)]
    lines = jobs_of(seed, Mix(jobs=jobs)) + (drawn_reservations(seed) if preset == "rayon" else [])
    return Drawn(lines, cell_of(seed), preset)


def limits(seed: int) -> Drawn:
    return Drawn(jobs_of(seed, Mix(gpu=0, gang=12)), cell_of(seed, all_limits=True), PRESETS[seed % 4])


def gangs(seed: int) -> Drawn:
    return Drawn(jobs_of(seed, Mix(jobs=45, gpu=2, gang=2, apart=4)), cell_of(seed), PRESETS[seed % 4])


def labels(seed: int) -> Drawn:
    return Drawn(jobs_of(seed, Mix(jobs=45, gpu=0, zone=1, gang=8)), cell_of(seed), PRESETS[seed % 4])


def reserved(seed: int) -> Drawn:
    return Drawn(jobs_of(seed, Mix(jobs=40)) + drawn_reservations(seed), cell_of(seed), "rayon")


def pools(seed: int) -> Drawn:
    """Two classes of jobs with a pool each."""
    small = 200 + 100 * Dice(seed).upto(3, "small")
    bounds = {"reserve_ratio_permille_min": small, "reserve_ratio_permille_max": small, "theta_permille": 200}
    preset, knobs = (("dress", {}), ("hdrf", {"classes": "on"}))[seed % 2]
    return Drawn(jobs_of(seed, Mix(gang=0, apart=0)), cell_of(seed), preset, bounds | knobs)


# ---------------------------------------------------------------- traces
def limited(dice: Dice, nodes: int) -> Queue:
    """The queues of the traces, each with a limit of its own."""
    ads, ml, web = traces.TREE.children
    most = {"cpu": traces.SIZES["cpu"] * nodes * (2 + dice.upto(3, "max")) // 10}
    return replace(
        traces.TREE,
        children=[
            replace(ads, max=most),
            replace(ml, running_jobs_max=2 + dice.upto(4, "running")),
            replace(web, user_running_max=4 + dice.upto(8, "users")),
        ],
    )


def of_trace(seed: int, jobs: traces.Jobs, nodes: int) -> Drawn:
    preset = ("largesse", "drf", "carbyne", "dress")[seed % 4]
    return Drawn(jobs, traces.cell_of(jobs, nodes, limited(Dice(seed), nodes)), preset, {"round_gap_ms": 100})


def tpch(seed: int) -> Drawn:
    return of_trace(seed, traces.carbyne("B-4.jsonl.gz", 30, 30 * (seed % 10)), 3)


def alibaba(seed: int) -> Drawn:
    return of_trace(seed, traces.alibaba(60, 60 * (seed % 10)), 2)


WORKLOADS: dict[str, Callable[[int], Drawn]] = {
    "mixed": mixed,
    "limits": limits,
    "gangs and GPUs": gangs,
    "labels": labels,
    "reservations": reserved,
    "pools": pools,
    "TPC-H": tpch,
    "Alibaba": alibaba,
}
TRACES = ("TPC-H", "Alibaba")
"""These lie beside the project, or are left out."""


def recorded(path: Path, drawn: Drawn, seed: int) -> Source:
    """The log of a simulation."""
    values = {"preset": drawn.preset, "seed": seed, **KNOBS, **drawn.knobs}
    arrivals = sorted(drawn.arrivals, key=lambda each: each[0])
    with ExportWriter(path) as writer, suppress(Stuck):  # Nobody releases what is held.
        simulate(arrivals, drawn.cluster, Options(values, listener=writer))
    return open_source(path)
