"""The choice of linked devices, beside the plainest way to make it: all choices, and the best of them."""

from collections import Counter
from itertools import combinations

from hypothesis import example
from hypothesis import given as for_all
from hypothesis import strategies as st

from schemas.quantities import on_devices
from services.leftover.placement.linked import for_tasks, numbered, on_linked, whole_devices
from services.leftover.placement.node_table import NodeTable

ROOMS = st.sampled_from([1_000, 1_000, 1_000, 600, 400, 0, -200])


@st.composite
def nested(draw, most=9):
    """Devices whose groups of linked ones each lie on one NUMA node, or on none that is known."""
    groups = draw(st.lists(st.tuples(st.integers(1, 4), st.sampled_from([None, 0, 1])), min_size=1, max_size=5))
    near = [
        (f"g{at}" if draw(st.booleans()) or size > 1 else "", numa)
        for at, (size, numa) in enumerate(groups)
        for _ in range(size)
    ][:most]
    near = draw(st.permutations(near))
    return near, [draw(ROOMS) for _ in near]


@st.composite
def anyhow(draw):
    """Devices with groups and NUMA nodes that have nothing to do with each other."""
    near = draw(st.lists(st.tuples(st.sampled_from(["", "a", "b", "c"]), st.sampled_from([None, 0, 1])), max_size=9))
    return near, [draw(ROOMS) for _ in near]


def group_of(near, position):
    link, _ = near[position]
    return link or position


def groups(near, positions):
    return {group_of(near, position) for position in positions}


def is_near(near, positions):
    numas = {near[position][1] for position in positions}
    return len(numas) == 1 and None not in numas


def broken(near, free, positions):
    """What is left of each group, the largest first, as it compares."""
    left = Counter(group_of(near, position) for position, room in enumerate(free) if room >= 1_000)
    left.subtract(group_of(near, position) for position in positions)
    return sorted(-count for count in left.values())


def plain(count, near, free):
    """The rank of the best of all choices of `count` untouched devices; None: there is none."""
    untouched = [position for position, room in enumerate(free) if room >= 1_000]
    ranks = [
        (len(groups(near, choice)), not is_near(near, choice), broken(near, free, choice))
        for choice in combinations(untouched, count)
    ]
    return min(ranks, default=None)


@for_all(nested(), st.integers(1, 6))
@example(([("a", 0)] * 4 + [("b", 0)] * 2, [1_000] * 6), 2)
@example(([("a", 0)] * 4 + [("b", 1)] * 4, [0, *[1_000] * 7]), 3)
@example(([("a", 0)] * 2 + [("b", 1)] * 2 + [("c", 1)] * 2, [1_000] * 6), 4)
def test_the_fewest_groups_then_one_numa_node_then_the_largest_stay_whole(devices, count):
    near, free = devices
    links, numas = numbered(near)
    best = plain(count, near, free)

    chosen = whole_devices(count, free, links, numas) if links else None

    if not links:
        assert all(link == "" and numa is None for link, numa in near)
    elif best is None:
        assert chosen is None
    else:
        assert chosen == sorted(set(chosen))
        assert len(chosen) == count
        assert all(free[position] >= 1_000 for position in chosen)
        assert (len(groups(near, chosen)), not is_near(near, chosen), broken(near, free, chosen)) == best


@for_all(anyhow(), st.integers(1, 6))
def test_whatever_links_and_numa_nodes_are_the_groups_are_the_fewest(devices, count):
    near, free = devices
    links, numas = numbered(near)
    best = plain(count, near, free)
    if links and best is not None:
        chosen = whole_devices(count, free, links, numas)
        assert (len(groups(near, chosen)), not is_near(near, chosen)) == best[:2]


@for_all(anyhow(), st.integers(1, 4_500))
def test_what_is_left_of_devices_is_the_same_as_without_links(devices, milli):
    near, free = devices
    links, numas = numbered(near)

    taken, as_ever = on_linked(milli, free, links, numas), on_devices(milli, free)

    if not links:
        assert taken == as_ever
    assert (taken is None) == (as_ever is None)
    if taken is not None:
        assert len({position for position, _ in taken}) == len(taken)
        assert left(free, taken) == left(free, as_ever)


def left(free, taken):
    after = list(free)
    for position, milli in taken:
        after[position] -= milli
    return sorted(after)


@for_all(nested(), st.integers(1, 3), st.integers(1, 4))
def test_tasks_that_start_together_get_what_one_task_of_their_sum_would(devices, each, tasks):
    near, free = devices
    links, numas = numbered(near)
    if links:
        parts = for_tasks(each, tasks, free, links, numas)
        together = whole_devices(each * tasks, free, links, numas)

        assert (parts is None) == (together is None)
        if parts is not None:
            assert sorted(position for part in parts for position in part) == together
            assert [len(part) for part in parts] == [each] * tasks


# ---------------------------------------------------------------- on a table of nodes
def table(near):
    rooms = NodeTable([{"gpu": 1_000 * len(near)}])
    rooms.add("n", "e", {"gpu": 1_000 * len(near)}, {}, [(at, 1_000) for at in range(len(near))], True, near)
    return rooms


def asks(rooms, gpu, gang=0):
    return rooms.task_class(0, rooms.shape({"gpu": gpu}), {}, {}, gang)


def test_a_pair_that_is_left_is_taken_before_a_group_of_four_is_broken():
    rooms = table([("a", 0)] * 4 + [("b", 0)] * 2)

    assert rooms.take(asks(rooms, 2_000), 0) == [(4, 1_000), (5, 1_000)]
    assert rooms.take(asks(rooms, 1_500), 0) == [(0, 1_000), (1, 500)]


def test_a_gang_of_single_devices_lies_in_one_group_of_its_node():
    rooms = table([("", None), ("a", 0), ("a", 0), ("a", 0), ("a", 0)])
    task = asks(rooms, 1_000, gang=4)
    task.waiting = 4

    taken = rooms.take_best(task, 4)

    assert taken == [(0, [(at, 1_000)]) for at in (1, 2, 3, 4)]
    assert rooms.nodes[0].devices == [1_000, 0, 0, 0, 0]
    for number, devices in reversed(taken):
        rooms.put_back(task, number, devices)
    assert rooms.nodes[0].devices == [1_000] * 5


def test_without_links_devices_are_taken_as_ever():
    rooms = table([("", None)] * 4)

    assert rooms.nodes[0].links == []
    assert rooms.take(asks(rooms, 2_000), 0) == [(0, 1_000), (1, 1_000)]
