"""The static filling, event by event: what each rule does to a tree that shows just that."""

from fractions import Fraction

import pytest

from schemas.quantities import SHARE_UNITS
from services.fairness.hdrf.static import fill
from services.fairness.hdrf.whole_tasks import fill_whole
from tests.properties.hdrf_trees import inner, leaf, shares

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


@pytest.mark.parametrize(
    ("tree", "capacity", "expected"),
    [
        pytest.param(inner("r", leaf("a", 3, tasks=2)), (10,), [Fraction(3, 5)], id="who has all takes no more"),
        pytest.param(inner("r", leaf("a", 1), leaf("b", 1, tasks=0)), (10,), [1, 0], id="who asks for nothing gets it"),
        pytest.param(
            inner("r", leaf("a", 0, 0), leaf("b", 1, 0)), (10, 10), [0, 1], id="a task of nothing takes nothing"
        ),
        pytest.param(
            inner("r", leaf("a", 1, 0), leaf("b", 1, 1)), (10, 0), [1, 0], id="what is not there blocks who needs it"
        ),
        pytest.param(inner("r", leaf("a", 1, 0), leaf("b", 1, 0)), (10, 0), [HALF, HALF], id="and nobody else"),
        pytest.param(
            inner("r", leaf("a", 1, 1), leaf("b", 1, 0)), (5, 10), [HALF, HALF], id="the dominant kind counts"
        ),
        pytest.param(
            inner("r", leaf("a", 1, weight=THIRD), leaf("b", 1, weight=2 * THIRD)),
            (9,),
            [THIRD, 2 * THIRD],
            id="a broken weight",
        ),
        pytest.param(leaf("a", 5, tasks=1), (10,), [HALF], id="a leaf alone is a tree"),
        pytest.param(
            inner("r", leaf("a", 5), inner("nobody")), (10,), [1, 0], id="a group without members gets nothing"
        ),
    ],
)
def test_filling(tree, capacity, expected):
    assert list(shares(fill(tree, capacity).leaves).values()) == expected


def test_weights_may_lie_far_apart():
    tree = inner("r", leaf("a", 1), leaf("b", 1, weight=10**12 - 1))

    found = fill(tree, (10**15,)).leaves

    assert abs(Fraction(found["a"].share, 2**128) - Fraction(1, 10**12)) < Fraction(1, 10**30)


def test_a_share_is_told_in_billionths_rounded_down():
    found = fill(inner("r", leaf("a", 1), leaf("b", 1), leaf("c", 1)), (10,)).leaves

    assert {node.share_units for node in found.values()} == {333_333_333}
    assert (
        fill(inner("r", leaf("a", 1)), (7,)).leaves["a"].share_units == SHARE_UNITS
    )  # What rounding took is put back.


def test_a_leaf_is_satisfied_or_held_back_by_a_full_kind():
    found = fill(inner("r", leaf("a", 1, 0, tasks=2), inner("g", leaf("b", 1, 0), leaf("c", 0, 1, tasks=5))), (10, 10))

    assert {name: node.satisfied for name, node in found.leaves.items()} == {"a": True, "b": False, "c": True}
    assert {name: node.satisfied for name, node in found.nodes.items()} == {"r": False, "g": False}
    assert found.full == [True, False]


def test_demands_that_fit_exactly_are_satisfied_and_fill_the_cell():
    found = fill(inner("r", leaf("a", 7, 1, tasks=1), leaf("b", 3, 9, tasks=1)), (10, 10))

    assert all(node.satisfied for node in found.leaves.values())
    assert found.full == [True, True]


def held_by_the_blocked(name):
    """Two leaves satisfied with 20 % of the CPU hold their group at 40 %; b, with 20 % of the memory, is behind."""
    return inner(name, leaf(f"{name}.a1", 1, 0, tasks=20), leaf(f"{name}.a2", 1, 0, tasks=20), leaf(f"{name}.b", 0, 1))


def test_a_node_held_up_by_who_is_satisfied_is_filled_alone_until_another_kind_overtakes():
    """k waits at 40 % while b goes from 20 to 40 %, or as far as there is memory."""
    with_room = fill(inner("r", held_by_the_blocked("n"), leaf("k", 0, 1)), (100, 100)).leaves
    with_less = fill(
        inner("r", held_by_the_blocked("n"), leaf("k", 0, 1), leaf("m", 0, 25, tasks=1)), (100, 100)
    ).leaves

    assert (shares(with_room)["n.b"], shares(with_room)["k"]) == (HALF, HALF)
    assert (shares(with_less)["n.b"], shares(with_less)["k"]) == (Fraction(35, 100), Fraction(40, 100))


def test_several_such_nodes_are_filled_together():
    hog = leaf("m", 0, 1, tasks=25, weight=10)
    tree = inner("r", held_by_the_blocked("n"), held_by_the_blocked("o"), hog, leaf("k", 0, 1, tasks=10))

    found = shares(fill(tree, (100, 100)).leaves)

    assert found["n.b"] == found["o.b"] == Fraction(325, 1000)


def test_a_kind_that_is_full_no_longer_holds_a_group_back():
    """When CPU fills up n and k stand at a half. n by its CPUs; by its memory at a quarter, so b comes first."""
    n = inner("n", leaf("n.a1", 1, 0), leaf("n.a2", 1, 0), leaf("n.b", 0, 1))
    tree = inner("r", n, leaf("j", 1, 0), leaf("k", 0, 1), leaf("m", 0, 1, tasks=15))

    found = shares(fill(tree, (100, 100)).leaves)

    assert found["n.a1"] == found["n.a2"] == HALF / 2
    assert found["j"] == found["k"] == HALF
    assert found["n.b"] == Fraction(35, 100)


@pytest.mark.parametrize("order", ["fifo", "srtf", "priority"])
def test_a_subtree_may_serve_its_leaves_one_after_the_other(order):
    first, second = leaf("first", 1, 0, tasks=30, rank=1), leaf("second", 1, 0, rank=2)
    other = leaf("other kind", 0, 1, rank=3)
    tree = inner("r", inner("n", other, second, first, order=order), leaf("k", 1, 0))

    found = shares(fill(tree, (100, 100)).leaves)

    assert found == {"first": Fraction(3, 10), "second": Fraction(1, 5), "other kind": 1, "k": HALF}
    assert fill_whole(tree, (100, 100)).tasks() == {"first": 30, "second": 20, "other kind": 100, "k": 50}


def test_a_subtree_may_give_everybody_as_many_tasks():
    tree = inner("r", inner("n", leaf("small", 1), leaf("large", 4), order="fair"), leaf("k", 1))

    assert shares(fill(tree, (100,)).leaves) == {"small": Fraction(1, 10), "large": Fraction(2, 5), "k": HALF}
    assert fill_whole(tree, (100,)).tasks() == {"small": 10, "large": 10, "k": 50}


def test_groups_can_be_compared_by_their_tasks():
    tree = inner("r", inner("n", leaf("a", 3), leaf("b", 1)), leaf("k", 2, weight=2), order="fair")

    found = shares(fill(tree, (100,)).leaves)  # n has as much of a as of b, so three times as many of b's tasks.
    tasks = {"a": found["a"] * 100 / 3, "b": found["b"] * 100, "k": found["k"] * 50}

    assert tasks["b"] == 3 * tasks["a"]
    assert tasks["k"] == 2 * (tasks["a"] + tasks["b"])


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        pytest.param(inner("r", leaf("a", 1), leaf("b", 1)), [20_000_000, 20_000_000], id="side by side"),
        pytest.param(inner("r", leaf("a", 3), leaf("b", 7, weight=2)), [4_444_445, 3_809_523], id="of different sizes"),
        pytest.param(
            inner("r", leaf("a", 9_000_000), leaf("b", 1), leaf("c", 1)), [2, 11_000_000, 11_000_000], id="unlike"
        ),
        pytest.param(
            inner("r", leaf("a", 1), inner("n", leaf("b", 1, weight=3), leaf("c", 2))),
            [20_000_000, 15_000_000, 2_500_000],
            id="deep",
        ),
    ],
)
def test_millions_of_tasks_are_not_given_one_by_one(tree, expected):
    found = fill_whole(tree, (40_000_000,))

    assert all(abs(got - tasks) <= 1 for got, tasks in zip(found.tasks().values(), expected, strict=True)), (
        found.tasks()
    )
    assert found.free[0] < 3
