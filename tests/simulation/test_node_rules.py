"""Preferred nodes with a bounded wait, anti-affinity and spread in whole simulations."""

from random import Random

import pytest

from tests.simulation.runs import CONSERVING, faults, job, simulated, stage

NODES = [
    {"name": zone, "count": 3, "capacity": {"cpu": "4", "memory": "32Gi"}, "labels": {"zone": zone}} for zone in "abc"
]
WAIT_MS = 3_000


def drawn(seed, **rules):
    """Jobs of one stage that come faster than they end for a while. `rules`: fields of every second stage."""
    chance, lines, at_ms = Random(seed), [], 0
    for i in range(40):
        at_ms += chance.randint(0, 2_500)
        each = stage("s", chance.randint(1, 9), chance.randint(2_000, 15_000))
        each["demand"] = {"cpu": chance.choice(["500m", "1", "2"]), "memory": "1Gi"}
        each["gang"] = chance.random() < 0.15
        each["prefer"] = {"zone": chance.choice("abc")}
        if i % 2:
            each |= rules
        lines.append(job(f"j{i}", each, submit_ms=at_ms))
    return lines


@pytest.mark.parametrize("preset", CONSERVING)
def test_room_stands_free_only_where_it_is_said_that_tasks_wait_for_better_nodes(shared, tmp_path, preset):
    run = simulated(tmp_path, drawn(1, locality_wait_ms=WAIT_MS), {"nodes": NODES}, preset=preset)

    assert faults(shared, run, conserving=True) == []
    assert any(line.get("why") == "locality" and "held" in line for line in run.lines)


def near(lines, workload):
    """How many tasks ran where their job prefers to."""
    zones = {line["job"]: line["stages"][0]["prefer"]["zone"] for line in workload}
    return sum(line["node"].startswith(zones[line["job"]]) for line in lines if "job" in line)


def test_tasks_that_wait_run_more_often_where_they_prefer_to(tmp_path):
    hasty, patient = drawn(1), drawn(1, locality_wait_ms=WAIT_MS)
    runs = [simulated(tmp_path, lines, {"nodes": NODES}, preset="hdrf") for lines in (hasty, patient)]

    assert near(runs[1].lines, patient) > near(runs[0].lines, hasty)


@pytest.mark.parametrize("preset", ["largesse", "hdrf", "fifo", "tetris", "carbyne", "dress"])
def test_rules_hold_at_every_moment_of_a_run(shared, tmp_path, preset):
    rules = {"anti_affinity": {}, "spread": {"label": "zone"}}
    run = simulated(tmp_path, drawn(2, **rules), {"nodes": NODES}, preset=preset)

    assert faults(shared, run) == []
    for i in range(1, 40, 2):
        check_apart([line for line in run.lines if line.get("job") == f"j{i}"])


def check_apart(lines):
    """No two tasks on a node at a time; when one starts, its zone has at most one more than any other has."""
    for line in lines:
        at_ms = line["start_ms"]
        running = [each for each in lines if each["start_ms"] <= at_ms < each["end_ms"]]
        nodes = [each["node"] for each in running]
        assert len(nodes) == len(set(nodes)), f"at {at_ms}: {nodes}"
        zones = [sum(node.startswith(zone) for node in nodes) for zone in "abc"]
        started = [each["node"][0] for each in running if each["start_ms"] == at_ms]
        assert all(zones["abc".index(zone)] <= min(zones) + 1 for zone in started), f"at {at_ms}: {zones}"
