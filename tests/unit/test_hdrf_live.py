"""A live tree, step by step: who is next, who is blocked, and what happens when kinds fill up and free again."""

from fractions import Fraction

import pytest

from services.fairness.hdrf.dynamic import VIEWS_MAX, LiveTree
from services.fairness.hdrf.views import View
from services.fairness.tree import ONE, TreeNode
from tests.properties.hdrf_trees import inner, leaf

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


def serve(live):
    """The next task starts. Returns whose."""
    name = live.next()
    assert name is not None
    live.give(name)
    return name


def attributed(live, name):
    return Fraction(live.share(name), ONE).limit_denominator(1000)


def test_whoever_has_the_least_is_next_and_ties_go_by_name():
    live = LiveTree(inner("r", leaf("b", 1), leaf("a", 1), leaf("c", 1, weight=2)), (10,))

    assert [serve(live) for _ in range(8)] == ["a", "b", "c", "c", "a", "b", "c", "c"]


def test_nobody_is_next_where_nobody_waits_or_nothing_is_free():
    live = LiveTree(inner("r", leaf("a", 3, tasks=1)), (10,))
    live.give("a")
    assert live.next() is None  # It waits for no more.

    live.set_demand("a", (3,), None)
    assert live.fill() == {"a": 2}
    assert live.free == [1]
    assert live.next() is None  # What is left is of no use.


def test_an_inner_node_without_leaves_is_never_next():
    live = LiveTree(inner("r", inner("empty"), leaf("a", 1)), (2,))

    assert live.fill() == {"a": 2}


def test_a_bit_that_is_of_use_to_nobody_counts_as_full():
    """One CPU is left, and all need three. Counted as free, it would hold n down to its blocked a and starve k."""
    tree = inner("r", inner("n", leaf("a", 3, 0), leaf("b", 0, 1)), leaf("j", 3, 0), leaf("k", 0, 1))
    live = LiveTree(tree, (10, 30))
    live.fill()

    assert live.tasks() == {"a": 1, "b": 15, "j": 2, "k": 15}


def test_a_leaf_whose_task_does_not_fit_is_passed_over_and_keeps_its_claim():
    live = LiveTree(inner("r", leaf("big", 6, held=(6,)), leaf("small", 1, held=(1,))), (10,))
    assert live.next() == "small"
    assert live.fill() == {"small": 3}

    live.finish("small", 2)  # Now there are 2 left, and it takes them again.
    assert live.next() == "small"
    live.finish("big")  # 8 are free, and big holds nothing.
    assert live.next() == "big"


def test_who_is_blocked_counts_with_all_it_holds_and_the_others_with_the_least_of_them():
    tree = inner(
        "r",
        inner(
            "n",
            leaf("done", 1, 0, tasks=0, held=(2, 0)),
            leaf("low", 1, 0, held=(1, 0)),
            leaf("high", 0, 1, held=(0, 5)),
        ),
    )
    live = LiveTree(tree, (10, 10))

    assert attributed(live, "n") == Fraction(3, 10)  # 2 of done and 1 of low; high is rescaled to 1.


def test_kinds_that_are_full_count_in_no_inner_node():
    tree = inner("r", inner("n", leaf("a", 1, 0, held=(10, 0)), leaf("b", 0, 1, held=(0, 3))))
    live = LiveTree(tree, (10, 10))
    assert attributed(live, "n") == Fraction(3, 10)

    live.finish("a")
    assert attributed(live, "n") == Fraction(3, 10)  # a is free to take again, and rescaled to b.


def test_a_leaf_that_holds_what_it_no_longer_asks_for_counts_by_what_is_not_full():
    """It holds 5 CPUs and asks for GPUs. While CPUs are full only its GPUs count, so that it comes before b."""
    tree = inner("r", leaf("a", 0, 1, held=(5, 1)), leaf("b", 0, 1, held=(5, 2)), leaf("c", 1, 0))
    live = LiveTree(tree, (10, 10))
    assert live.next() == "a"

    live.finish("b", 0, (5, 0))  # CPUs are free again, and a has half of them.
    assert live.next() == "c"
    live.set_demand("c", (1, 0), 0)
    assert live.next() == "b"


def test_weights_change_who_is_next():
    tree = inner("r", inner("m", leaf("a", 1, held=(2,))), inner("n", leaf("b", 1, held=(1,))))
    live = LiveTree(tree, (10,))
    assert live.next() == "b"

    live.set_weight("m", 3)
    assert live.next() == "a"
    live.set_weight("m", 1)
    live.set_weight("n", HALF)
    live.give("b")
    assert live.next() == "a"


def test_ranks_change_who_is_served_first():
    live = LiveTree(inner("r", leaf("a", 1, rank=1), leaf("b", 1, rank=2), order="priority"), (4,))
    assert serve(live) == "a"
    live.set_rank("b", 0)

    assert live.fill() == {"b": 3}
    assert live.tasks() == {"a": 1, "b": 3}


def test_a_leaf_comes_goes_and_moves_with_what_it_holds():
    live = LiveTree(inner("r", inner("m", leaf("a", 1)), inner("n", leaf("b", 1))), (12,))
    live.fill()
    live.add("n", leaf("c", 1))
    live.finish("b", 4)
    assert live.fill() == {"b": 1, "c": 3}  # b comes before c where both have as much.

    live.move("c", "m")
    assert live.tasks() == {"a": 6, "b": 3, "c": 3}
    live.remove("b")
    assert live.fill() == {"c": 3}


def test_a_group_comes_and_goes():
    live = LiveTree(inner("r", leaf("a", 1)), (12,))
    live.fill()
    live.add("r", inner("n", leaf("b", 1), inner("o", leaf("c", 1))))
    live.finish("a", 8)
    assert live.fill() == {"b": 3, "c": 3, "a": 2}

    live.remove("n")
    assert live.free == [6]
    assert live.fill() == {"a": 6}


def test_the_cell_grows_and_shrinks():
    live = LiveTree(inner("r", leaf("a", 1, 0), leaf("b", 0, 1)), (4, 4))
    live.fill()
    live.set_capacity((4, 8))
    assert live.fill() == {"b": 4}

    live.set_capacity((2, 8))  # a holds more than there is.
    assert live.next() is None
    live.finish("a", 3)
    assert live.fill() == {"a": 1}


def test_only_tasks_that_are_waited_for_can_be_given():
    live = LiveTree(inner("r", leaf("a", 1, tasks=1)), (4,))
    live.give("a")

    with pytest.raises(AssertionError, match="does not wait"):
        live.give("a")


def test_so_many_views_are_kept_and_no_more():
    """Six kinds that fill up and free again in every combination: the oldest views go, and come back as they were."""
    width = 6
    kinds = [leaf(f"k{j}", *[int(j == i) for i in range(width)], tasks=1) for j in range(width)]
    live = LiveTree(inner("r", *kinds), (1,) * width)
    for combination in range(2**width):
        for j in range(width):
            place = live.leaf_states[f"k{j}"]
            if combination >> j & 1 and not place.tasks:
                live.set_demand(place.name, place.demand, 1)
                live.give(place.name)
            elif not combination >> j & 1 and place.tasks:
                live.finish(place.name)

        assert live.view.full == combination
        assert len(live.views) <= VIEWS_MAX


def test_a_tree_starts_from_what_leaves_hold():
    live = LiveTree(
        TreeNode("r", children=[leaf("a", 2, 0, tasks=3, held=(6, 0)), leaf("b", 1, 1, held=(1, 1))]), (20, 20)
    )

    assert live.tasks() == {"a": 3, "b": 1}
    assert live.free == [13, 19]
    assert live.next() == "b"


@pytest.fixture
def built(monkeypatch):
    """The sets of full kinds whose view was built, in order."""
    found = []
    build = View.build

    def noting(view, branch):
        if branch.parent is None:
            found.append(view.full)
        return build(view, branch)

    monkeypatch.setattr(View, "build", noting)
    return found


@pytest.mark.parametrize(("foresees", "later"), [pytest.param(True, [], id="foreseen"), (False, [0b1, 0b10])])
def test_views_of_one_kind_more_that_is_full_can_be_built_beforehand(built, foresees, later):
    tree = inner("r", inner("m", leaf("a", 1, 0), leaf("b", 0, 1)), inner("n", leaf("c", 1, 1)))
    live = LiveTree(tree, (10, 10), foresees=foresees)
    beforehand = list(built)

    for name in ("a", "b"):
        live.give(name, 10)
        live.finish(name, 10)

    assert beforehand == ([0, 0b1, 0b10] if foresees else [0])
    assert built[len(beforehand) :] == later
    live.give("a", 10)
    live.give("b", 10)
    assert built[-1] == 0b11  # That both are full was not foreseen.


def test_of_many_kinds_no_more_views_are_built_beforehand_than_are_kept(built):
    tree = inner("r", leaf("a", *[1] * (VIEWS_MAX + 2)))

    live = LiveTree(tree, [10] * (VIEWS_MAX + 2), foresees=True)

    assert len(built) == VIEWS_MAX
    assert live.view.full == 0


def test_of_foreseen_views_those_of_the_scarcest_kinds_are_kept_up_to_date():
    groups = [inner(f"g{at}", leaf(f"a{at}", 3, 1, 2), leaf(f"b{at}", 1, 1, 1)) for at in range(9)]
    live = LiveTree(inner("r", *groups), (100, 100, 100), foresees=True)

    for _ in range(12):
        serve(live)

    behind = {full: len(view.dirty) for full, view in live.views.items()}
    assert behind[0b001] == behind[0b100] == 0
    assert behind[0b010] > 5
