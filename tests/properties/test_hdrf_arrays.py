"""In arrays a tree is filled as by events, up to a stated rounding that is the same everywhere."""

import hashlib
from fractions import Fraction
from random import Random

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from benchmarks.fairness import CAPACITY, tree
from schemas.quantities import SHARE_UNITS
from services.fairness.hdrf import arrays, tree_lists
from services.fairness.hdrf.arrays import ArrayTree
from services.fairness.hdrf.baselines import ordered
from services.fairness.hdrf.static import fill, fill_by_events
from services.fairness.tree import ONE, TreeNode, leaves, walk
from tests.properties.hdrf_trees import cells, inner, leaf
from tests.strategies import for_all

ROUNDING = ONE >> 30
"""What shares may be off (services/fairness/hdrf/paths.py)."""

orders = st.sampled_from(tree_lists.ORDERS)
wide_weights = st.one_of(st.integers(1, 5), st.fractions(Fraction(1, 50), 50, max_denominator=99), st.just(10**4))
wide_amounts = st.one_of(st.integers(0, 3), st.integers(0, 10**6), st.integers(10**14, 2**66))
wide_capacities = st.one_of(st.integers(0, 40), st.integers(1, 10**15), st.sampled_from([10**15, 2**64, 2**72]))


def array_tree(root, capacity):
    """The tree in arrays, however small; assumes that arrays can hold it."""
    try:
        return ArrayTree(root, capacity)
    except OverflowError:
        assume(False)


def agree(root, capacity):
    """What arrays come to is what events do."""
    arrays_of_tree = array_tree(root, capacity)
    found, exact = arrays_of_tree.fill(), fill_by_events(root, capacity)
    for name, share in zip(found.names, found.shares(), strict=True):
        assert abs(share - min(ONE, exact.leaves[name].share)) < ROUNDING, name
    for name, share in zip(found.inner, found.inner_shares(), strict=True):
        assert abs(share - min(ONE, exact.nodes[name].share)) < ROUNDING, name
    assert found.satisfied.tolist() == [exact.leaves[name].satisfied for name in found.names]
    assert arrays_of_tree.inner_satisfied(found.satisfied) == [exact.nodes[name].satisfied for name in found.inner]
    assert [found.full >> j & 1 == 1 for j in range(len(capacity))] == exact.full


@for_all(cells(depth=4), st.data())
def test_with_small_numbers_and_many_ties(cell, data):
    root, capacity = cell
    for node in walk(root):
        node.order = data.draw(orders) if node.children else "hdrf"

    agree(root, capacity)


@for_all(cells(depth=4), st.data())
def test_with_weights_demands_and_capacities_of_any_size(cell, data):
    root, capacity = cell
    capacity = [data.draw(wide_capacities) for _ in capacity]
    for node in walk(root):
        node.weight = data.draw(wide_weights)
        if not node.children:
            node.demand = [data.draw(wide_amounts) for _ in capacity]
            node.tasks = data.draw(st.sampled_from([None, 0, 1, 2, 7, 10**9, 2**62]))
    found, exact = array_tree(root, capacity).fill(), fill_by_events(root, capacity)

    for name, share in zip(found.names, found.shares(), strict=True):
        assert abs(share - min(ONE, exact.leaves[name].share)) < ROUNDING << 14, name  # Heavier by so much.


@for_all(st.integers(0, 10**9), st.integers(1, 8), st.booleans(), orders)
def test_with_hundreds_of_leaves(seed, depth, limited, order):
    root = ordered(tree(300, depth, limited, Random(seed)), order)

    agree(root, CAPACITY)


@pytest.mark.parametrize("depth", [1, 3, 8])
def test_with_thousands_of_leaves(depth):
    draw = Random(depth)
    root = tree(3_000, depth, True, draw)
    for node in walk(root):
        if draw.random() < 0.1:
            node.weight = Fraction(draw.randint(1, 9), draw.randint(1, 9))

    agree(root, CAPACITY)


@for_all(cells(depth=3), st.data())
def test_a_plot_whose_leaves_ask_for_something_else_is_filled_as_a_new_one_to_the_last_bit(cell, data):
    root, capacity = cell
    laid_out = array_tree(root, capacity)
    for _ in range(3):
        for node in data.draw(st.lists(st.sampled_from(list(leaves(root))), max_size=3)):
            node.demand = data.draw(st.tuples(*[st.integers(0, 9)] * len(capacity)))
            laid_out.set_demand(node.name, node.demand)
        found, new = laid_out.fill(), ArrayTree(root, capacity).fill()

        assert (found.shares(), found.inner_shares()) == (new.shares(), new.inner_shares())
        assert found.satisfied.tolist() == new.satisfied.tolist()


@for_all(st.integers(0, 10**9), st.integers(1, 8), st.booleans(), orders)
def test_kept_paths_of_a_large_tree_are_those_of_a_new_one_to_the_last_bit(seed, depth, limited, order):
    """A tree of this size is more than Hypothesis draws, so it is made from a seed."""
    draw = Random(seed)
    root = ordered(tree(200, depth, limited, draw), order)
    everyone = list(leaves(root))
    for node in draw.sample(everyone, draw.choice([0, 100, 200])):
        node.demand = [0] * len(CAPACITY)
    laid_out = ArrayTree(root, CAPACITY)
    for changes in (0, 1, 2, 40, 1, 150):
        for node in draw.sample(everyone, changes):
            node.demand = [draw.choice([0, 1, draw.randint(1, have // 10)]) for have in CAPACITY]
            laid_out.set_demand(node.name, node.demand)
        found, new = laid_out.fill(), ArrayTree(root, CAPACITY).fill()

        assert (found.shares(), found.inner_shares()) == (new.shares(), new.inner_shares())
        assert (found.satisfied.tolist(), found.full) == (new.satisfied.tolist(), new.full)


def test_it_comes_to_the_same_on_every_machine():
    shares = []
    for depth, limited in ((1, True), (3, True), (8, False)):
        found = ArrayTree(tree(2_000, depth, limited, Random(depth)), CAPACITY).fill()
        shares += [*found.shares(), *found.inner_shares()]

    assert hashlib.sha256(str(shares).encode()).hexdigest() == DIGEST


DIGEST = "0c1b7fd8073db609c87024c8f7c7e0a6e8dbf7e4ca26034617905c4284312570"


def held_by_the_satisfied(name):
    """Two leaves satisfied with 20 % of the CPU hold their group at 40 %; b, with 20 % of the memory, is behind."""
    return inner(name, leaf(f"{name}.a1", 1, 0, tasks=20), leaf(f"{name}.a2", 1, 0, tasks=20), leaf(f"{name}.b", 0, 1))


@pytest.mark.parametrize("others", [1, 2, 3])
def test_nodes_that_take_without_rising_are_filled_together_before_the_others(others):
    groups = [held_by_the_satisfied(f"n{at}") for at in range(others)]

    agree(inner("r", *groups, leaf("k", 0, 1), leaf("m", 0, 25, tasks=1)), (100, 100))


@pytest.mark.parametrize(
    ("root", "capacity"),
    [
        pytest.param(inner("r", leaf("a", 1), leaf("b", 1, weight=tree_lists.WEIGHTS_MAX)), (10,), id="weights"),
        pytest.param(inner("r", leaf("a", *[1] * 62)), [10] * 62, id="kinds"),
        pytest.param(inner("r", leaf("a", 1, tasks=2**2000 >> 1000)), (1,), id="tasks"),
        pytest.param(inner("r", inner("nobody")), (10,), id="a group without members"),
    ],
)
def test_so_much_fits_into_arrays(root, capacity):
    agree(root, capacity)


@pytest.mark.parametrize(
    ("root", "capacity"),
    [
        pytest.param(inner("r", leaf("a", 1), leaf("b", 1, weight=tree_lists.WEIGHTS_MAX + 1)), (10,), id="weights"),
        pytest.param(inner("r", leaf("a", *[1] * 63)), [10] * 63, id="kinds"),
        pytest.param(inner("r", leaf("a", 10**309)), (1,), id="demands"),
        pytest.param(inner("r", leaf("a", 1), order="fifo"), (10,), id="one child after the other"),
        pytest.param(inner("r", leaf("a", 1)), (0,), id="nothing to give"),
    ],
)
def test_what_does_not_is_filled_by_events(root, capacity):
    with pytest.raises(OverflowError):
        ArrayTree(root, capacity)
    idle = [leaf(f"idle {at}", *[0] * len(capacity), tasks=0) for at in range(arrays.LEAVES_MIN)]
    large = TreeNode("top", children=[root, *idle])

    assert fill(large, capacity) == fill_by_events(large, capacity)


def test_trees_are_large_by_their_leaves():
    few = [leaf(f"n{at}", 1) for at in range(arrays.LEAVES_MIN - 1)]

    assert arrays.array_tree_of(inner("r", inner("g", *few)), (10,)) is None
    assert arrays.array_tree_of(inner("r", inner("g", *few), leaf("one more", 1)), (10,)) is not None


def test_shares_are_told_in_billionths_after_what_rounding_took_is_put_back():
    found = ArrayTree(inner("r", *[leaf(f"n{at}", 1) for at in range(7)], leaf("x", 1, tasks=2)), (16,)).fill()

    assert found.units().tolist() == [SHARE_UNITS // 8] * 8
    assert found.inner_units().tolist() == [SHARE_UNITS]
