"""Groups have their shares from the first minute on though one of their queues has tasks that fit on few nodes, ask for
a label, or are gangs wider than the queue's share: g1 with leaves a and b, and g2 with c, of equal weight; everybody
asks for more than there is. Judged from the schedule alone.
"""

from collections import Counter

import pytest

from tests.builders import queue
from tests.simulation.placed_cells import Load, PlacedCell
from tests.simulation.runs import job, simulated, stage

SECONDS = 1_000
NODES = 50
CORES = 4
TREE = {
    "name": "root",
    "children": [
        {"name": "g1", "children": [{"name": "a"}, {"name": "b"}]},
        {"name": "g2", "children": [{"name": "c"}]},
    ],
}
LABELLED = 5


def lasts_ms(tasks, draw):
    """6 to 9 s."""
    return [6_000 + 7_919 * (i + draw) % 3_001 for i in range(tasks)]


def loads(until_ms, kind):
    """The jobs of a, and those of b and c with tasks of one core."""
    tasks = NODES * CORES * until_ms // 7_000 + 200
    if kind == "gangs":
        gangs = until_ms // 4_000
        jobs = [job(f"a-{i}", stage(durations_ms=lasts_ms(60, i), gang=True), queue="g1/a") for i in range(gangs)]
    elif kind == "label":
        jobs = [job("a-0", stage(durations_ms=lasts_ms(tasks, 5), labels={"disk": "ssd"}), queue="g1/a")]
    else:
        large = {"cpu": "2", "memory": "16Gi"}
        jobs = [job("a-0", stage(durations_ms=lasts_ms(tasks, 5), demand=large), queue="g1/a")]
    others = [("b", "g1/b", 1), ("c", "g2/c", 2)]
    return jobs + [job(f"{n}-0", stage(durations_ms=lasts_ms(tasks, draw)), queue=q) for n, q, draw in others]


def shares(folder, kind, until_ms, preset):
    """Of all cores, by leaf, from 30 s on."""
    few = {
        "name": "few",
        "count": LABELLED,
        "capacity": {"cpu": str(CORES), "memory": "64Gi"},
        "labels": {"disk": "ssd"},
    }
    rest = {"name": "n", "count": NODES - LABELLED, "capacity": {"cpu": str(CORES), "memory": "8Gi"}}
    run = simulated(folder, loads(until_ms, kind), {"nodes": [few, rest], "queues": TREE}, preset=preset)
    cores = {"a": 2 if kind == "few nodes" else 1, "b": 1, "c": 1}
    found = Counter()
    for line in run.lines:
        if "held" not in line:
            span_ms = min(line["end_ms"], until_ms) - max(line["start_ms"], 30 * SECONDS)
            leaf = line["job"][0]
            found[leaf] += max(0, span_ms) * cores[leaf]
    return {leaf: area / (until_ms - 30 * SECONDS) / (NODES * CORES) for leaf, area in found.items()}


DUE = {"hdrf": 0.5, "largesse": 0.5, "rayon": 0.5, "drf": 0.45}
"""Of c. Under `drf` groups are none: what a cannot place is shared by b and c."""


def check(of, kind, preset="hdrf"):
    assert of["a"] + of["b"] >= 0.48
    if kind != "gangs":
        assert of["c"] >= DUE[preset] - 0.02
        assert of["a"] >= 0.099  # All that exists for it.
        return
    assert of["a"] >= 0.22
    if preset == "drf":
        assert of["c"] >= 0.29  # A third is due to each of the three.
    else:
        # A gang holds 30 % where 25 % are due. Rescaled to the least child (H-DRF, section 3), g1 has twice what b has,
        # and 30 + x + 2x is all of the cell for x = 23.3: that leaves c 46.7 %.
        assert of["c"] >= 0.46


KINDS = ["few nodes", "label", "gangs"]


@pytest.mark.parametrize("kind", KINDS)
def test_groups_have_their_shares_from_the_first_minute_on(tmp_path, kind):
    """g1 had 45 to 47 % where siblings had to wait for what a leaf cannot place, 36 % with gangs."""
    check(shares(tmp_path, kind, 90 * SECONDS, "hdrf"), kind)


@pytest.mark.whole
@pytest.mark.parametrize("preset", ["hdrf", "largesse", "rayon", "drf"])
@pytest.mark.parametrize("kind", KINDS)
def test_and_for_ten_minutes(tmp_path, kind, preset):
    check(shares(tmp_path, kind, 600 * SECONDS, preset), kind, preset)


@pytest.mark.parametrize("width", [4, 8, 12, 16])
def test_over_time_a_queue_of_gangs_has_what_it_is_due_however_wide_they_are(width):
    """A quarter of 16 cores. Without turns gangs as wide as the cell had 41 %, and would have all with no wait."""
    gangs = Load({"cpu": 1}, width, 200, gang=True, durations_ms=(900, 1_000, 1_100))
    others = Load({"cpu": 1}, tasks=9_000, durations_ms=(700, 1_000, 1_300))
    nodes = {f"n{i}": ({"cpu": 4}, {}) for i in range(4)}
    cell = PlacedCell([queue("gangs", 1), queue("others", 3)], nodes, {"gangs": gangs, "others": others})
    cell.over(5 * SECONDS)

    assert 0.22 <= cell.over(40 * SECONDS)["gangs"] <= 0.26
