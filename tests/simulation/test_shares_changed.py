"""Queues that come and go, and weights and maxima that a config changes meanwhile: one longest task and a second later
each queue that waits has its part by weight of what is asked for then.
"""

from fractions import Fraction
from random import Random

import pytest

from schemas.edge.read import ConfigPatch, read_cluster, read_workload_line
from services.simulator.run import Options, simulate
from services.simulator.schedule import ShortSchedule
from tests.simulation.runs import job, stage

CORES, TASKS = 20, 40  # Tasks of half a core.
COMES_MS = {"a": 0, "b": 1_000, "c": 2_000, "d": 62_000}
CHANGED_MS, UNTIL_MS, LATER_MS = 35_000, 110_000, 9_000 + 1_000


def drawn_tree(random):
    """-> the tree as a document, weights, and how many tasks each queue may have at most."""
    weights = {name: random.randint(1, 4) for name in COMES_MS}
    most = {name: random.choice((4, 10, 22)) for name in COMES_MS if random.random() < 0.4}
    children = [{"name": name, "weight": weight} for name, weight in weights.items()]
    for child in children:
        if child["name"] in most:
            child["max"] = {"cpu": f"{most[child['name']] * 500}m"}
    return {"name": "root", "children": children}, weights, most


def parts(weights, most, asking):
    """Of all tasks that the cell holds, what each queue is to have: by weight, and what a maximum leaves again."""
    found, left, open_ = {}, Fraction(TASKS), dict.fromkeys(asking)
    while open_:
        each = left / sum(weights[name] for name in open_)
        full = [name for name in open_ if most.get(name, TASKS) <= each * weights[name]]
        for name in full or list(open_):
            found[name] = Fraction(most[name]) if full else each * weights[name]
            left -= found[name]
            del open_[name]
    return found


@pytest.mark.parametrize("preset", ["hdrf", "largesse", "drf", "capacity"])
@pytest.mark.parametrize("seed", range(4))
def test_shares_follow_what_is_asked_for_and_the_config_within_one_longest_task(preset, seed):
    random = Random(f"shares changed {seed}")
    trees = [drawn_tree(random) for _ in range(2)]
    counts = {name: random.choice((60, 150, 900)) for name in COMES_MS}
    lines = [
        job(
            name,
            stage(durations_ms=[random.randint(6_000, 9_000) for _ in range(count)], demand={"cpu": "500m"}),
            queue=name,
            submit_ms=COMES_MS[name],
        )
        for name, count in counts.items()
    ]
    given = {"nodes": [{"name": "n", "count": 1, "capacity": {"cpu": str(CORES)}}], "queues": trees[0][0]}
    changed = read_cluster({**given, "queues": trees[1][0]}).queues

    def change(cell):
        if cell.time >= CHANGED_MS and cell.admission.queues != changed:
            cell.take(ConfigPatch({}, changed), "tester")

    schedule = ShortSchedule(5_000)
    jobs = [read_workload_line(line) for line in lines]
    simulate(jobs, read_cluster(given), Options({"preset": preset}, schedule, before_round=change))
    last_ms = {name: max(span.start_ms for span in schedule.spans if span.job == name) for name in counts}
    events_ms = [CHANGED_MS, *COMES_MS.values(), *last_ms.values()]
    looked_at = 0
    for at_ms in range(LATER_MS, UNTIL_MS, 500):
        if any(at_ms - LATER_MS < event_ms <= at_ms for event_ms in events_ms):
            continue
        asking = [name for name in counts if COMES_MS[name] <= at_ms < last_ms[name]]
        _, weights, most = trees[at_ms >= CHANGED_MS]
        for name, part in parts(weights, most, asking).items():
            runs = sum(span.start_ms <= at_ms < span.end_ms for span in schedule.spans if span.job == name)
            assert runs > part - 2, (name, at_ms)
            looked_at += 1
    assert looked_at > 100
