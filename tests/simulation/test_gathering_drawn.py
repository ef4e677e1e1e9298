"""No queue stays below its guarantee because what is free lies in fragments: drawn cells of tasks and gangs of unlike
sizes, in which every queue has more work than it can have, and comes to a full cell at a time of its own.

One queue always asks for tasks of one core, so that all room of a node is of use; and what all are guaranteed, less a
task or a gang each, can be packed with room for one more of any of them: where every task has only one possible place,
each that ends takes a queue below its guarantee until another like it starts. For the same reason a gang of which some
tasks still run counts as a whole: no other can start in the room of those that have ended.
"""

from collections import Counter
from fractions import Fraction
from math import ceil

from hypothesis import assume
from hypothesis import strategies as st

from tests.builders import queue
from tests.simulation.placed_cells import Load, PlacedCell
from tests.strategies import for_all

AFTER_MS = 2_000
LASTS_MS = (700, 1_300, 1_900, 900, 1_700)
LONGEST_MS = max(LASTS_MS)
UNTIL_MS = 4_000 + AFTER_MS + 5 * LONGEST_MS
OVERRUN_MS = 2 * LONGEST_MS
"""Room that is gathered is lent to tasks that end in time by what their stage takes on average, and may take longer."""


def least_tasks(load, weight, total, cores):
    """So many tasks a queue holds that is no more than one of them, or all of one gang, below its guarantee."""
    slack = load.tasks if load.gang else 1
    return max(0, ceil(Fraction(weight * cores, total * load.demand["cpu"]) - slack))


def can_pack(sizes, nodes, cores):
    """Whether tasks of these sizes, the largest first, fit on the nodes: a sufficient test, not a necessary one."""
    free = [cores] * nodes
    for size in sorted(sizes, reverse=True):
        number = next((n for n, have in enumerate(free) if have >= size), None)
        if number is None:
            return False
        free[number] -= size
    return True


@st.composite
def crowds(draw):
    """Loads by queue, their weights, and the cell."""
    nodes, cores = draw(st.integers(2, 6)), draw(st.sampled_from([8, 12, 16]))
    comes_ms = st.sampled_from([0, 0, 1_000, 4_000])
    loads = {"small": Load({"cpu": 1}, tasks=9_000, durations_ms=LASTS_MS)}
    weights = {"small": draw(st.integers(1, 6))}
    for i in range(draw(st.integers(1, 4))):
        name = f"q{i}"
        weights[name] = draw(st.integers(1, 6))
        if draw(st.integers(0, 3)):
            demand = {"cpu": draw(st.integers(1, cores))}
            loads[name] = Load(demand, durations_ms=LASTS_MS, from_ms=draw(comes_ms))
        else:
            size, width = draw(st.integers(1, cores // 2)), draw(st.integers(2, 3))
            jobs = nodes * cores * UNTIL_MS // (size * width * min(LASTS_MS))
            loads[name] = Load({"cpu": size}, width, jobs, gang=True, durations_ms=LASTS_MS, from_ms=draw(comes_ms))
    least = {
        name: least_tasks(load, weights[name], sum(weights.values()), nodes * cores) for name, load in loads.items()
    }
    packed = [load.demand["cpu"] for name, load in loads.items() for _ in range(least[name])]
    at_once = [[load.demand["cpu"]] * (load.tasks if load.gang else 1) for load in loads.values()]
    assume(all(can_pack(packed + more, nodes, cores) for more in at_once))
    tree = [queue(name, weight=weight) for name, weight in weights.items()]
    capacity = {f"n{i}": ({"cpu": cores}, {}) for i in range(nodes)}
    return loads, least, PlacedCell(tree, capacity, loads, headroom_after_ms=AFTER_MS)


def longest_below(loads, least, cell, *, whole_gangs=False):
    """By queue, for how long (ms) it held fewer tasks than the least at a stretch, where it ever did. `whole_gangs`:
    the tasks of a gang count until the last of them ends."""
    since, longest_ms = {}, Counter()

    def judge():
        for name, tasks in least.items():
            now = cell.cell.time
            gang = whole_gangs and loads[name].gang
            held = cell.gang_tasks(name) if gang else cell.held[name, "cpu"] // loads[name].demand["cpu"]
            if held >= tasks:
                since.pop(name, None)
            elif now >= loads[name].from_ms:
                longest_ms[name] = max(longest_ms[name], now - since.setdefault(name, now))

    cell.run_until(UNTIL_MS, judge)
    return longest_ms


@for_all(crowds())
def test_no_queue_stays_below_its_guarantee_for_longer_than_the_wait_and_the_longest_task(drawn):
    longest_ms = longest_below(*drawn, whole_gangs=True)
    assert {name: ms for name, ms in longest_ms.items() if ms > AFTER_MS + OVERRUN_MS} == {}


def longest_beside_small(load, weight, nodes, cores):
    """For how long (ms) at most a queue of this weight holds too little beside one of weight 1 with one-core tasks."""
    loads = {"small": Load({"cpu": 1}, tasks=9_000, durations_ms=LASTS_MS), "q": load}
    weights = {"small": 1, "q": weight}
    tree = [queue(name, weight=weight) for name, weight in weights.items()]
    capacity = {f"n{i}": ({"cpu": cores}, {}) for i in range(nodes)}
    cell = PlacedCell(tree, capacity, loads, headroom_after_ms=AFTER_MS)
    least = {name: least_tasks(load, weights[name], 1 + weight, nodes * cores) for name, load in loads.items()}
    return longest_below(loads, least, cell)["q"]


def test_a_queue_of_gangs_gets_room_for_as_many_of_them_as_it_lacks():
    gangs = Load({"cpu": 8}, 2, 132, gang=True, durations_ms=LASTS_MS)
    assert longest_beside_small(gangs, weight=1, nodes=6, cores=16) <= AFTER_MS + LONGEST_MS


def test_what_a_queue_left_to_others_for_want_of_room_is_its_own_first_once_there_is_room():
    """Otherwise small tasks would take the room of each of its own tasks that ends, up to their raised level."""
    pairs = Load({"cpu": 2}, durations_ms=LASTS_MS)
    assert longest_beside_small(pairs, weight=3, nodes=5, cores=12) <= AFTER_MS + LONGEST_MS


def test_the_next_gang_gets_the_room_of_tasks_that_end_one_by_one():
    """Otherwise others would take it at once, and the gangs would need new room again and again."""
    gangs = {"demand": {"cpu": 5}, "tasks": 2, "jobs": 132, "gang": True, "durations_ms": LASTS_MS}
    loads = {
        "small": Load({"cpu": 1}, tasks=9_000, durations_ms=LASTS_MS),
        "few": Load(**gangs),
        "many": Load(**gangs, from_ms=1_000),
    }
    tree = [queue("small", weight=3), queue("few", weight=1), queue("many", weight=5)]
    cell = PlacedCell(tree, {f"n{i}": ({"cpu": 12}, {}) for i in range(5)}, loads, headroom_after_ms=AFTER_MS)
    assert longest_below(loads, {"many": 5}, cell)["many"] <= AFTER_MS + LONGEST_MS


def test_room_gathered_for_one_class_is_not_taken_for_another():
    """Otherwise each would be sent from node to node, and start again to wait for the tasks that run there."""
    loads = {
        "small": Load({"cpu": 1}, tasks=9_000, durations_ms=LASTS_MS),
        "gangs": Load({"cpu": 3}, 3, 177, gang=True, durations_ms=LASTS_MS),
        "later": Load({"cpu": 5}, durations_ms=LASTS_MS, from_ms=4_000),
    }
    tree = [queue("small", weight=1), queue("gangs", weight=2), queue("later", weight=1)]
    cell = PlacedCell(tree, {f"n{i}": ({"cpu": 12}, {}) for i in range(6)}, loads, headroom_after_ms=AFTER_MS)
    longest_ms = longest_below(loads, {"small": 17, "gangs": 9, "later": 3}, cell)
    assert max(longest_ms.values()) <= AFTER_MS + LONGEST_MS


def test_a_node_that_is_held_stays_so_when_those_whose_tasks_end_there_come_to_hold_less_than_they_are_due():
    """Only where it is chosen anew does it count whose tasks end; otherwise the wait would begin again and again."""
    loads = {
        "small": Load({"cpu": 1}, tasks=9_000, durations_ms=LASTS_MS),
        "gangs": Load({"cpu": 5}, 2, 106, gang=True, durations_ms=LASTS_MS, from_ms=1_000),
        "large": Load({"cpu": 8}, durations_ms=LASTS_MS, from_ms=4_000),
    }
    tree = [queue("small", weight=1), queue("gangs", weight=2), queue("large", weight=2)]
    cell = PlacedCell(tree, {f"n{i}": ({"cpu": 12}, {}) for i in range(4)}, loads, headroom_after_ms=AFTER_MS)
    assert longest_below(loads, {"large": 2}, cell)["large"] <= AFTER_MS + LONGEST_MS


def test_room_is_gathered_alike_by_a_core_that_was_restored_before_each_round():
    """What only the process remembers, such as what it tried in vain, decides nothing."""

    def record_ids(*, forgets):
        gangs = {"demand": {"cpu": 3}, "tasks": 3, "jobs": 60, "gang": True, "durations_ms": LASTS_MS}
        loads = {
            "small": Load({"cpu": 1}, tasks=3_000, durations_ms=LASTS_MS),
            "gangs": Load(**gangs),
            "later": Load({"cpu": 5}, tasks=300, durations_ms=LASTS_MS, from_ms=1_000),
        }
        tree = [queue("small", weight=1), queue("gangs", weight=2), queue("later", weight=1)]
        cell = PlacedCell(tree, {f"n{i}": ({"cpu": 12}, {}) for i in range(6)}, loads, headroom_after_ms=500)
        ids = []

        def note(record):
            ids.append(record.id)
            if forgets:
                cell.cell.leftover.board = None

        cell.cell.observers.insert(0, note)
        cell.run_until(9_000)
        return ids

    assert record_ids(forgets=True) == record_ids(forgets=False)
