"""Where pods with GPUs are put: the cores on Alibaba's openb trace, beside other placements (openb_rivals.py).

    python -m benchmarks.openb FOLDER [fill|models|churn|fifo] [--seeds 1,2,3] [--preset hdrf] [--placement packed]

FOLDER is that of the trace (`nodes.csv.gz`, `pods_a.csv.gz`). Pods are drawn from it with replacement. `fill`: on all
nodes with GPUs pods arrive until 130 % of the GPUs are asked for, and none ends; `models`: the same, where pods run
only on the models of GPU that they name. `churn`: on every fourth of the nodes 20,000 pods come and go at loads of 0.9,
1.0 and 1.1, each for a time of its own, two hours in the mean (exponential: the trace's own times are too unlike for a
steady load); `fifo`: the same at 1.0 under that preset. Each pod is a job of one task. The cores are driven by the
simulator, round by round, with every record made and folded. Shares and waits are in virtual time and do not depend on
the machine.
"""

import argparse
import csv
import gzip
import sys
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Final

from benchmarks.openb_rivals import Node, Placement, Pod, starts
from schemas import JobSpec, Stage
from schemas.edge.read import Cluster, ClusterNode
from services.simulator.run import Options, simulate
from services.simulator.workloads.draws import arrivals_ms, below

LASTS_MS: Final = 7_200_000
FOREVER_MS: Final = 10**10
CHURN_PODS: Final = 20_000
CHURN_NODES: Final = 303
LOADS: Final = (900, 1_000, 1_100)
RIVALS: Final = ("fgd", "best_fit", "tight")


@dataclass(frozen=True, slots=True)
class Trace:
    """What stands in the trace: nodes with GPUs, and pods."""

    nodes: list[Node]
    pods: list[Pod]

    @property
    def mix(self) -> dict[Pod, int]:
        """How often each kind of pod occurs."""
        counts: dict[Pod, int] = {}
        for pod in self.pods:
            counts[pod] = counts.get(pod, 0) + 1
        return counts

    @property
    def gpu(self) -> int:
        """Milli-GPUs of all nodes."""
        return sum(node.gpu for node in self.nodes)

    def fresh(self) -> list[Node]:
        """Empty nodes."""
        return [Node(node.model, node.cpu, node.memory, list(node.devices)) for node in self.nodes]


def read(folder: Path, *, models: bool, part: int = 0) -> Trace:
    """The trace. `models`: pods ask for models; `part`: so many of the nodes, evenly chosen; 0: all."""
    nodes = []
    for row in _rows(folder / "nodes.csv.gz"):
        if count := int(row["gpu"]):
            nodes.append(Node(row["model"], int(row["cpu_milli"]), int(row["memory_mib"]), [1_000] * count))
    if part:
        nodes = [nodes[i * len(nodes) // part] for i in range(part)]
    pods = []
    for row in _rows(folder / "pods_a.csv.gz"):
        gpu = int(row["num_gpu"]) * int(row["gpu_milli"] or 0)
        names = tuple(sorted({*row["gpu_spec"].split("|")})) if models and gpu and row["gpu_spec"] else ()
        pods.append(Pod(int(row["cpu_milli"]), int(row["memory_mib"]), gpu, names))
    return Trace(nodes, pods)


def _rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt") as file:
        return list(csv.DictReader(file))


# ---------------------------------------------------------------- workloads
Arrivals = list[tuple[int, int, Pod]]
"""Pods as (arrival in ms, how long it runs in ms, what it asks for)."""


def filling(trace: Trace, seed: int, percent: int = 130) -> Arrivals:
    """One pod a second until so much of the GPUs is asked for; none ends."""
    pods: Arrivals = []
    asked = 0
    while asked * 100 < trace.gpu * percent:
        pod = trace.pods[below(len(trace.pods), seed, "openb.fill", str(len(pods)))]
        pods.append((1_000 * (len(pods) + 1), FOREVER_MS, pod))
        asked += pod.gpu
    return pods


def churning(trace: Trace, seed: int, load_permille: int) -> Arrivals:
    """Poisson arrivals of pods that ask for so much of the GPUs in the mean."""
    drawn = [trace.pods[below(len(trace.pods), seed, "openb.churn", str(i))] for i in range(CHURN_PODS)]
    ends = [0, *arrivals_ms(LASTS_MS, CHURN_PODS, seed, "openb.lasts")]
    lasts = [ends[i + 1] - ends[i] for i in range(CHURN_PODS)]
    work = sum(pod.gpu * each for pod, each in zip(drawn, lasts, strict=True))
    gap_ms = work * 1_000 // (trace.gpu * load_permille * CHURN_PODS)
    at_ms = arrivals_ms(gap_ms, CHURN_PODS, seed, "openb.gaps")
    return list(zip(at_ms, lasts, drawn, strict=True))


# ---------------------------------------------------------------- the cores
def by_cores(trace: Trace, pods: Arrivals, knobs: dict[str, int | str]) -> list[float | None]:
    """When each pod starts in a simulated cell, in ms."""
    accepted = sorted({pod.models for _, _, pod in pods if pod.models})
    keys = {names: f"accepted-{i}" for i, names in enumerate(accepted)}
    nodes = []
    for i, node in enumerate(trace.nodes):
        labels = {"model": node.model} | {key: "yes" for names, key in keys.items() if node.model in names}
        capacity = {"cpu": node.cpu, "gpu": node.gpu, "memory": node.memory}
        nodes.append(ClusterNode(f"node-{i:04}", capacity, labels))
    jobs = []
    for i, (at_ms, lasts_ms, pod) in enumerate(pods):
        demand = {"cpu": pod.cpu, "gpu": pod.gpu, "memory": pod.memory}
        stage = Stage("pod", 1, {kind: amount for kind, amount in demand.items() if amount})
        stage.estimate_ms, stage.durations_ms = lasts_ms, [lasts_ms]
        stage.labels = {keys[pod.models]: "yes"} if pod.models else {}
        jobs.append((at_ms, JobSpec(f"pod-{i:05}", "default", [stage])))
    result = simulate(jobs, Cluster(nodes), Options(dict(knobs)))
    begun = {row["job"]: row["start_ms"] for row in result["per_job"]}
    return [begun.get(f"pod-{i:05}") for i in range(len(pods))]  # A pod that fits on no empty node is refused.


# ---------------------------------------------------------------- figures
def fill_figures(trace: Trace, pods: Arrivals, begun: list[float | None]) -> str:
    """GPUs in use once 100, 110 and 130 % are asked for; pods of 8 that start; when the first of several GPUs fails."""
    asked, used, eights, placed, shares = 0, 0, 0, 0, []
    first: int | None = None
    marks = [100, 110, 130]
    for (at_ms, _, pod), start in zip(pods, begun, strict=True):
        asked += pod.gpu
        fits = start is not None and start < at_ms + 1_000
        used += pod.gpu if fits else 0
        if pod.gpu == 8_000:
            eights, placed = eights + 1, placed + fits
        if not fits and pod.gpu > 1_000 and first is None:
            first = 100 * asked // trace.gpu
        while marks and asked * 100 >= trace.gpu * marks[0]:
            shares.append(f"{100 * used / trace.gpu:.1f}")
            marks.pop(0)
    return " | ".join([*shares, f"{placed} of {eights}", "none" if first is None else f"{first} %"])


def churn_figures(trace: Trace, pods: Arrivals, begun: list[float | None]) -> str:
    """Mean wait of pods of several GPUs and of all, in s; GPUs in use after the first quarter of the arrivals."""
    waits = [(start - at_ms, pod) for (at_ms, _, pod), start in zip(pods, begun, strict=True) if start is not None]
    wide = [wait for wait, pod in waits if pod.gpu > 1_000]
    begin, end = pods[len(pods) // 4][0], pods[-1][0]
    busy = sum(
        pod.gpu * max(0, min(end, start + lasts) - max(begin, start))
        for (_, lasts, pod), start in zip(pods, begun, strict=True)
        if start is not None and start < end
    )
    figures = sum(wide) / len(wide) / 1_000, sum(wait for wait, _ in waits) / len(waits) / 1_000
    return f"{figures[0]:,.0f} | {figures[1]:,.0f} | {100 * busy / trace.gpu / (end - begin):.1f}"


# ---------------------------------------------------------------- tables
@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for."""

    folder: Path
    seeds: list[int]
    rivals: list[str]
    loads: list[int]
    knobs: dict[str, int | str]

    def each(self, trace: Trace, name: str, pods: Arrivals, *, strict: bool) -> None:
        """A row by the cores and one by each rival."""
        figures = churn_figures if "load" in name else fill_figures
        knobs = self.knobs | ({"preset": "fifo"} if strict else {})
        if "none" not in knobs.values():
            begin = process_time()
            begun = by_cores(trace, pods, knobs)
            took = process_time() - begin
            text = ", ".join(f"{value}" for value in knobs.values())
            print(f"| {name} | {text} | {figures(trace, pods, begun)} | {took:.1f} |", flush=True)
        for rival in self.rivals:
            begin = process_time()
            begun = starts(Placement(rival, trace.fresh(), trace.mix), [(a, b, c) for a, b, c in pods], strict=strict)
            took = process_time() - begin
            print(f"| {name} | {rival} | {figures(trace, pods, begun)} | {took:.1f} |", flush=True)

    def fill(self, *, models: bool) -> None:
        """Rows of a cell that fills."""
        trace = read(self.folder, models=models)
        print("| fill | placement | in use at 100 % asked | 110 % | 130 % | pods of 8 GPUs | first fails at | CPU s |")
        print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
        for seed in self.seeds:
            name = f"{'models, ' if models else ''}seed {seed}"
            self.each(trace, name, filling(trace, seed), strict=False)

    def churn(self, *, strict: bool) -> None:
        """Rows of a cell in which pods come and go."""
        trace = read(self.folder, models=False, part=CHURN_NODES)
        print("| churn | placement | wait of several GPUs, s | of all | GPUs in use, % | CPU s |")
        print("| --- | --- | ---: | ---: | ---: | ---: |")
        for seed in self.seeds:
            for load in (1_000,) if strict else self.loads:
                name = f"load {load / 1_000}, seed {seed}"
                self.each(trace, name, churning(trace, seed, load), strict=strict)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.openb", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="the trace: nodes.csv.gz, pods_a.csv.gz")
    parser.add_argument("what", nargs="*", help="fill, models, churn, fifo; without any, all of them")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--preset", default="hdrf", help="none: only the rivals")
    parser.add_argument("--placement", default="packed")
    parser.add_argument("--rivals", default=",".join(RIVALS), help="of fgd, best_fit, tight; or empty")
    parser.add_argument("--loads", default=",".join(map(str, LOADS)), help="of churn, per mille")
    given = parser.parse_args()
    if not (given.folder / "pods_a.csv.gz").is_file():
        sys.exit(f"left out: {given.folder} has no pods_a.csv.gz, the openb trace is not there")
    knobs: dict[str, int | str] = {"preset": given.preset, "placement": given.placement}
    rivals = [name for name in given.rivals.split(",") if name]
    seeds, loads = ([int(number) for number in each.split(",")] for each in (given.seeds, given.loads))
    asked = Asked(given.folder, seeds, rivals, loads, knobs)
    tables = {
        "fill": lambda: asked.fill(models=False),
        "models": lambda: asked.fill(models=True),
        "churn": lambda: asked.churn(strict=False),
        "fifo": lambda: asked.churn(strict=True),
    }
    for what in given.what or tables:
        if what not in tables:
            parser.error(f"no table is called {what}; there are {', '.join(tables)}")
        tables[what]()
        print()


if __name__ == "__main__":
    main()
