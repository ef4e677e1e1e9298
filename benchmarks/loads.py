"""What presets cost beside each other, by what makes a cell expensive: CPU seconds of whole simulations.

    python -m benchmarks.loads [ROW ...] [--presets hdrf,drf,capacity,dress,largesse] [--digests]

`stuck N`: 3,000 tasks that go, beside at least 3,000 of N classes that fit nowhere until the end, since a service on
each node holds the memory that they need. `gpus`, `gpus 20000`: 5,000 and 20,000 pods that ask for parts of a GPU, one
or several of them, on 303 nodes of which all is asked for. `short`: 10,000 jobs of one task that arrive faster than
they can start, so that thousands wait, and run in the shadow under `largesse`. `queues N`: 5,000 of them in so many
queues. Every record is made, hashed and folded by all cores; each figure is of a process of its own and stands beside
its factor over that of the first preset. `--digests`: the beginning of each log's digest, to see whether other code
has decided otherwise.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from benchmarks.scheduling import alone, cpu_s
from schemas import JobSpec, Queue, Stage
from schemas.edge.read import Cluster, ClusterNode
from services.simulator.run import Options, simulate
from services.simulator.workloads.draws import arrivals_ms, below

PRESETS: Final = ("hdrf", "drf", "capacity", "dress", "largesse")
SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60_000
GIB: Final = 1_024

Load = tuple[list[tuple[int, JobSpec]], Cluster]
"""Jobs as (arrival in ms, job), and the cell they come to."""

PODS: Final = ((0, 250), (250, 50), (500, 300), (1_000, 250), (2_000, 50), (4_000, 50), (8_000, 50))
"""Milli-GPUs of a pod, and how many in a thousand ask for so many."""


def _job(name: str, demand: dict[str, int], lasts_ms: int, queue: str = "default") -> JobSpec:
    return JobSpec(name, queue, [Stage("run", 1, demand, estimate_ms=lasts_ms, durations_ms=[lasts_ms])])


def stuck(classes: int) -> Load:
    """Tasks that fit nowhere beside others that do."""
    nodes = [ClusterNode(f"node-{i}", {"cpu": 32_000, "memory": 64 * GIB}) for i in range(50)]
    jobs = [(0, _job(f"service-{i}", {"cpu": 1_000, "memory": 24 * GIB}, 20 * MINUTE_MS)) for i in range(len(nodes))]
    for i in range(max(3_000, classes)):
        memory = 41 * GIB + i % classes  # Of 64, a service holds 24.
        jobs.append((SECOND_MS, _job(f"stuck-{i}", {"cpu": 1_000, "memory": memory}, SECOND_MS)))
    for i, at_ms in enumerate(arrivals_ms(300, 3_000, 1, "loads.goes")):
        lasts_ms = 10_000 + below(10_000, 1, "loads.goes.lasts", str(i))
        jobs.append((2 * SECOND_MS + at_ms, _job(f"goes-{i}", {"cpu": 1_000, "memory": GIB // 2}, lasts_ms)))
    return jobs, Cluster(nodes)


def gpus(pods: int) -> Load:
    """Pods that ask for GPUs, for as many as there are in the mean."""
    sizes = (8, 8, 4, 2)
    nodes = [
        ClusterNode(f"node-{i:03}", {"cpu": 96_000, "memory": 512 * GIB, "gpu": 1_000 * sizes[i % len(sizes)]})
        for i in range(303)
    ]
    there = sum(node.capacity["gpu"] for node in nodes)
    drawn = []
    for i in range(pods):
        at, kind = below(1_000, 1, "loads.pod", str(i)), 0
        while at >= PODS[kind][1]:
            at, kind = at - PODS[kind][1], kind + 1
        gpu, cpu = PODS[kind][0], 2_000 * (1 + below(8, 1, "loads.cpu", str(i)))
        lasts_ms = (10 + below(220, 1, "loads.lasts", str(i))) * MINUTE_MS
        drawn.append((gpu, {"cpu": cpu, "memory": 4 * GIB} | ({"gpu": gpu} if gpu else {}), lasts_ms))
    gap_ms = sum(gpu * lasts_ms for gpu, _, lasts_ms in drawn) // (there * pods)
    jobs = []
    for i, at_ms in enumerate(arrivals_ms(gap_ms, pods, 1, "loads.gaps")):
        jobs.append((at_ms, _job(f"pod-{i}", drawn[i][1], drawn[i][2])))
    return jobs, Cluster(nodes)


def short(count: int, queues: int = 1) -> Load:
    """Jobs of one task, half as many again as the cell can take."""
    tree = Queue("root", children=[Queue(f"q{i}") for i in range(queues)])
    nodes = [ClusterNode(f"node-{i}", {"cpu": 32_000}) for i in range(50)]
    gap_ms = 60_000 * 2 * 2 // (32 * len(nodes) * 3)
    jobs = []
    for i, at_ms in enumerate(arrivals_ms(gap_ms, count, 1, "loads.short")):
        cores = 1 + below(3, 1, "loads.cores", str(i))
        lasts_ms = 10_000 + below(100_000, 1, "loads.short.lasts", str(i))
        jobs.append((at_ms, _job(f"job-{i}", {"cpu": 1_000 * cores}, lasts_ms, f"q{i % queues}")))
    return jobs, Cluster(nodes, tree)


ROWS: Final[dict[str, tuple[Callable[..., Load], Sequence[int]]]] = {
    "stuck 1": (stuck, (1,)),
    "stuck 100": (stuck, (100,)),
    "stuck 10000": (stuck, (10_000,)),
    "gpus": (gpus, (5_000,)),
    "gpus 20000": (gpus, (20_000,)),
    "short": (short, (10_000,)),
    "queues 1": (short, (5_000, 1)),
    "queues 100": (short, (5_000, 100)),
    "queues 1000": (short, (5_000, 1_000)),
}


def run(row: str, preset: str) -> dict[str, Any]:
    """One simulation: its CPU seconds and digest."""
    make, arguments = ROWS[row]
    jobs, cluster = make(*arguments)
    begin = cpu_s()
    result = simulate(jobs, cluster, Options({"preset": preset, "round_gap_ms": 1_000}))
    return {"cpu_s": cpu_s() - begin, "rounds": result["rounds"], "digest": result["digest"][:12]}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loads", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; without any, all of them")
    parser.add_argument("--presets", default=",".join(PRESETS))
    parser.add_argument("--digests", action="store_true")
    given = parser.parse_args([] if arguments is None else arguments)
    if unknown := [row for row in given.rows if row not in ROWS]:
        parser.error(f"no row is called {unknown[0]!r}; there are {', '.join(ROWS)}")
    presets = given.presets.split(",")
    print(f"CPU seconds of a simulation, and how many times the first preset's: {', '.join(presets)}")
    for row in given.rows or ROWS:
        found = [alone(run, row, preset) for preset in presets]
        texts = []
        for each in found:
            text = f"{each['cpu_s']:6.1f} ({each['cpu_s'] / found[0]['cpu_s']:.1f})"
            texts.append(f"{text} {each['digest']}" if given.digests else text)
        print(f"{row:12} {'  '.join(texts)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
