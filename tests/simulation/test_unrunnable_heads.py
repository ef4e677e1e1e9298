"""Where nobody goes ahead of the head of a queue, a head that no available node could run is passed over: it would idle
the cell for as long as its node is away. One that only waits for room keeps its place.
"""

import pytest

from services.simulator.outages import Outage
from tests.simulation.runs import job, simulated, stage

STRICT = ["fifo", "capacity", "dress"]
NODES = {
    "nodes": [
        {"name": "g", "capacity": {"cpu": "4"}, "labels": {"zone": "1"}},
        {"name": "c", "count": 2, "capacity": {"cpu": "4"}},
    ],
    "queues": {"name": "root", "children": [{"name": "q"}]},
}
AWAY = Outage("g", 0, 600_000)


def first_start(run, name):
    return min(line["start_ms"] for line in run.of(name))


def started(folder, head, preset, outages=(AWAY,)):
    """When the head, and the job behind it, start."""
    lines = [
        job("head", stage(duration_ms=10_000, **head), queue="q", submit_ms=60_000),
        job("next", stage(duration_ms=10_000), queue="q", submit_ms=61_000),
    ]
    run = simulated(folder, lines, NODES, outages=outages, preset=preset)
    return first_start(run, "head"), first_start(run, "next")


@pytest.mark.parametrize("preset", STRICT)
@pytest.mark.parametrize(
    "head",
    [
        pytest.param({"labels": {"zone": "1"}}, id="a label"),
        pytest.param({"tasks": 3, "gang": True, "demand": {"cpu": 3}}, id="a gang for all nodes"),
        pytest.param({"tasks": 3, "gang": True, "anti_affinity": {}}, id="a gang, one a node"),
    ],
)
def test_a_head_whose_node_is_away_does_not_keep_others_waiting(tmp_path, head, preset):
    assert started(tmp_path, head, preset) == (600_000, 61_000)


@pytest.mark.parametrize("preset", STRICT)
def test_with_its_node_there_it_starts_first(tmp_path, preset):
    assert started(tmp_path, {"labels": {"zone": "1"}}, preset, outages=()) == (60_000, 61_000)


@pytest.mark.parametrize("preset", STRICT)
def test_a_head_that_waits_for_room_keeps_its_place(tmp_path, preset):
    lines = [
        job("first", stage(duration_ms=30_000, tasks=2, demand={"cpu": 3}), queue="q"),
        job("head", stage(duration_ms=10_000, demand={"cpu": 4}), queue="q", submit_ms=1_000),
        job("next", stage(duration_ms=10_000), queue="q", submit_ms=2_000),
    ]
    run = simulated(tmp_path, lines, NODES, outages=[AWAY], preset=preset)
    assert first_start(run, "head") <= first_start(run, "next")
