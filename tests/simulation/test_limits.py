"""Whole schedules on trees with limits, arrivals and ends: maxima hold at any moment, guarantees within a task."""

from random import Random

import pytest

from tests.simulation.runs import faults, job, simulated, stage

CORES = 24
LONGEST_MS = 4_000
TREE = {
    "name": "root",
    "children": [
        {
            "name": "in",
            "guaranteed": {"cpu": "12"},
            "max": {"cpu": "14"},
            "children": [{"name": "x", "guaranteed": {"cpu": "7"}}, {"name": "y", "weight": 3}],
        },
        {"name": "b", "weight": 5, "max": {"cpu": "8"}},
        {"name": "c", "weight": 2},
    ],
}
MOST = {"in": 14, "b": 8}
GUARANTEED = {"in": 12, "in/x": 7}
LEAVES = ("in/x", "in/y", "b", "c")


def drawn(seed):
    """Jobs of one-core tasks of up to LONGEST_MS, more of them than there is room for, with pauses."""
    chance, at_ms = Random(seed), 0
    for number in range(60):
        at_ms += chance.choice([0, 0, 300, 2_500])
        lasts = [chance.randint(500, LONGEST_MS) for _ in range(chance.choice([3, 20, 60]))]
        yield job(f"j{number}", stage("s", durations_ms=lasts), submit_ms=at_ms, queue=chance.choice(LEAVES))


def counts(run, jobs, path):
    """(at_ms, tasks running, tasks that wait) of a queue, after everything that happens at each moment."""
    here = {each["job"]: each for each in jobs if f"{each['queue']}/".startswith(f"{path}/")}
    steps = [(line["start_ms"], 1, -1) for line in run.lines if line.get("job") in here]
    steps += [(line["end_ms"], -1, 0) for line in run.lines if line.get("job") in here]
    steps += [(each["submit_ms"], 0, len(each["stages"][0]["durations_ms"])) for each in here.values()]
    held = waiting = 0
    found = {}
    for at_ms, more, arrived in sorted(steps):
        held, waiting = held + more, waiting + arrived
        found[at_ms] = held, waiting
    return found


@pytest.mark.rotating(5)
@pytest.mark.parametrize("preset", ["hdrf", "largesse", "collapsed", "naive-hdrf", "capacity"])
@pytest.mark.parametrize("seed", range(3))
def test_limits_hold_while_jobs_come_and_go(shared, tmp_path, seed, preset):
    jobs = list(drawn(seed))
    nodes = [{"name": "n", "count": 4, "capacity": {"cpu": str(CORES // 4), "memory": "4Gi"}}]
    run = simulated(tmp_path, jobs, {"nodes": nodes, "queues": TREE}, preset=preset)

    assert faults(shared, run) == []
    for path, most in MOST.items():
        held = [tasks for tasks, _ in counts(run, jobs, path).values()]
        assert max(held) == most, path
    for path, guaranteed in GUARANTEED.items():
        since_ms, kept = None, 0
        for at_ms, (held, waiting) in counts(run, jobs, path).items():
            if waiting == 0 or held >= guaranteed:
                since_ms = None
            elif since_ms is None:
                since_ms = at_ms
            assert since_ms is None or at_ms - since_ms <= LONGEST_MS, (path, at_ms, held)
            kept += waiting > 0 and held >= guaranteed
        assert kept > 10, path
