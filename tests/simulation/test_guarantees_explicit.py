"""Drawn trees whose leaves are guaranteed cores and GPUs by name, under every preset that serves guarantees: beside
streams of small jobs, wide tasks and gangs a leaf with a task that fits is below its guarantee for no longer than the
longest task lasts, and a second.
"""

from contextlib import suppress
from itertools import groupby
from random import Random

import pytest

from schemas.edge.read import read_cluster, read_workload_line
from services.simulator.run import Options, simulate
from services.simulator.schedule import ShortSchedule
from tests.simulation.runs import job, stage

NODES, CORES, GPUS = 4, 8, 4
SHORT_MS, WITHIN_MS, UNTIL_MS = (2_000, 6_000), 6_000 + 1_000, 40_000
PRESETS = ("hdrf", "largesse", "carbyne", "carbyne-dag", "dress", "capacity", "rayon", "drf")


class Leaf:
    """A queue with one job, or a stream of jobs, of one kind of task."""

    def __init__(self, path, kind, random):
        self.path, self.kind, self.comes_ms = path, kind, random.choice((0, 1_000, 12_000))
        self.demand = {
            "small": {"cpu": 1},
            "wide": {"cpu": CORES // 2},
            "gang": {"cpu": 1},
            "gpu": {"cpu": 1, "gpu": 1},
        }[kind]
        self.width = random.randint(2, 4) if kind == "gang" else 1
        self.guaranteed = 0  # Tasks.

    def jobs(self, random):
        demand = {kind: str(amount) for kind, amount in self.demand.items()}
        if self.kind == "small":
            works = [stage(tasks=1, duration_ms=random.randint(*SHORT_MS), demand=demand) for _ in range(300)]
        elif self.kind == "gang":
            works = [
                stage(tasks=self.width, duration_ms=random.randint(*SHORT_MS), demand=demand, gang=True)
                for _ in range(100)
            ]
        else:
            works = [stage(durations_ms=[random.randint(*SHORT_MS) for _ in range(160)], demand=demand)]
        name = self.path.replace("/", "-")
        for number, work in enumerate(works):
            # Most are there from the beginning, others keep coming: with less work, under presets that look at it.
            later_ms = random.randint(0, UNTIL_MS) if number > 40 else 0
            yield job(f"{name}-{number}", work, queue=self.path, submit_ms=self.comes_ms + later_ms)


def drawn(seed):
    """-> (the tree as a document, leaves)"""
    random = Random(f"guarantees explicit {seed}")
    leaves, children = [], []
    left = {"cpu": NODES * CORES * 3 // 4, "gpu": NODES * GPUS * 3 // 4}
    for g in range(random.randint(2, 3)):
        group = {"name": f"g{g}", "weight": random.randint(1, 4), "children": []}
        for q in range(random.randint(1, 2)):
            leaf = Leaf(f"g{g}/q{q}", random.choice(("small", "small", "wide", "gang", "gpu")), random)
            document = {"name": f"q{q}", "weight": random.randint(1, 3)}
            most = min(left[kind] // amount for kind, amount in leaf.demand.items()) // leaf.width
            if most and random.random() < 0.7:
                leaf.guaranteed = leaf.width * random.randint(1, min(most, 8))
                guaranteed = {kind: amount * leaf.guaranteed for kind, amount in leaf.demand.items()}
                left = {kind: amount - guaranteed.get(kind, 0) for kind, amount in left.items()}
                document["guaranteed"] = {kind: str(amount) for kind, amount in guaranteed.items()}
            group["children"].append(document)
            leaves.append(leaf)
        children.append(group)
    return {"name": "root", "children": children}, leaves, random


def tasks_of(line):
    of = line["stages"][0]
    return len(of["durations_ms"]) if "durations_ms" in of else of["tasks"]


class OverError(Exception):
    """All that is judged has happened."""


def stop(cell):
    if cell.time > UNTIL_MS + SHORT_MS[1]:
        raise OverError


def longest_below(leaf, submits, spans):
    """For how many ms a leaf runs so few tasks without a break that one task, or gang, more would be guaranteed, while
    one waits. `submits`: when its tasks come.
    """
    changes = [(at_ms, 0, 1) for at_ms in submits]
    changes += [(span.start_ms, 1, -1) for span in spans] + [(span.end_ms, -1, 0) for span in spans]
    worst, since_ms, runs, waits = 0, None, 0, 0
    for at_ms, of_moment in groupby(sorted(changes), key=lambda change: change[0]):
        if at_ms > UNTIL_MS:
            break
        for _, running, waiting in of_moment:
            runs, waits = runs + running, waits + waiting
        if waits >= leaf.width and runs + leaf.width <= leaf.guaranteed:
            since_ms = at_ms if since_ms is None else since_ms
        elif since_ms is not None:
            worst, since_ms = max(worst, at_ms - since_ms), None
    return worst if since_ms is None else max(worst, UNTIL_MS - since_ms)


@pytest.mark.rotating(8)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("seed", range(8))
def test_a_leaf_has_what_it_is_guaranteed_whatever_others_run(seed, preset):
    tree, leaves, random = drawn(seed)
    jobs = {leaf.path: list(leaf.jobs(random)) for leaf in leaves}
    capacity = {"cpu": str(CORES), "gpu": str(GPUS)}
    given = {"nodes": [{"name": "n", "count": NODES, "capacity": capacity}], "queues": tree}
    schedule = ShortSchedule(50_000)
    with suppress(OverError):
        simulate(
            [read_workload_line(line) for lines in jobs.values() for line in lines],
            read_cluster(given),
            Options({"preset": preset}, schedule, before_round=stop),
        )
    found = {}
    for leaf in leaves:
        name = leaf.path.replace("/", "-") + "-"
        spans = [span for span in schedule.spans if span.job is not None and span.job.startswith(name)]
        submits = [line["submit_ms"] for line in jobs[leaf.path] for _ in range(tasks_of(line))]
        if leaf.guaranteed:
            assert spans
            found[leaf.path] = longest_below(leaf, submits, spans)
    assert {path: ms for path, ms in found.items() if ms > WITHIN_MS} == {}
