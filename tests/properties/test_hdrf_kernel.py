"""Compiled or not, a filling is the same to the last bit, so nobody can tell which of the two a record came from."""

import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest
from hypothesis import strategies as st

pytest.importorskip("numba")

from benchmarks.fairness import CAPACITY, tree
from services.fairness import arrays
from services.fairness.baselines import ordered
from services.fairness.hdrf import fill, fill_compiled, fill_plainly
from services.fairness.tree import ONE, RANK_ORDERS, leaves, share_units, walk
from tests.conftest import ROOT
from tests.properties.hdrf_trees import cells, inner, leaf
from tests.strategies import for_all

orders = st.sampled_from(["hdrf", "naive", "fair", *RANK_ORDERS])
wide_weights = st.one_of(
    st.integers(1, 5), st.fractions(Fraction(1, 50), 50, max_denominator=99), st.sampled_from([10**6, 2**40, 2**30 - 1])
)
wide_amounts = st.one_of(st.integers(0, 3), st.integers(0, 10**6), st.integers(10**14, 2**66))
wide_capacities = st.one_of(st.integers(0, 40), st.integers(1, 10**15), st.sampled_from([10**15, 2**64, 2**72]))


def agree(root, capacity):
    """Whether compiled code fills a tree at all; if so, as plain Python does."""
    found = fill_compiled(root, capacity)
    if found is not None:
        plainly = fill_plainly(root, capacity)
        assert found == plainly
        assert [*found.leaves] == [*plainly.leaves]
        told = arrays.plot_of(root, capacity).fill()
        assert told.units == [share_units(min(ONE, at.share)) for at in plainly.leaves.values()]
        of_nodes = [units for name, units in zip(told.inner, told.inner_units, strict=True) if name is not None]
        assert of_nodes == [share_units(min(ONE, at.share)) for at in plainly.nodes.values()]
    return found is not None


@for_all(cells(depth=3), st.data())
def test_a_plot_is_filled_anew_with_other_demands(cell, data):
    root, capacity = cell
    plot = arrays.plot_of(root, capacity)
    for _ in range(3):
        for node in data.draw(st.lists(st.sampled_from(list(leaves(root))), max_size=3)):
            node.demand = data.draw(st.tuples(*[st.integers(0, 9)] * len(capacity)))
            plot.put(node.name, node.demand)
        plainly = fill_plainly(root, capacity)

        assert dict(zip(plot.names, plot.fill().shares(), strict=True)) == {
            name: at.share for name, at in plainly.leaves.items()
        }


@for_all(cells(depth=4), st.data())
def test_with_small_numbers_and_many_ties(cell, data):
    root, capacity = cell
    for node in walk(root):
        node.order = data.draw(orders) if node.children else "hdrf"
        node.rank = data.draw(st.integers(0, 2))

    assert agree(root, capacity)


@for_all(cells(depth=4), st.data())
def test_with_weights_demands_and_capacities_of_any_size(cell, data):
    root, capacity = cell
    capacity = [data.draw(wide_capacities) for _ in capacity]
    for node in walk(root):
        node.weight = data.draw(wide_weights)
        if not node.children:
            node.demand = [data.draw(wide_amounts) for _ in capacity]
            node.tasks = data.draw(st.sampled_from([None, 0, 1, 2, 7, 10**9, 2**62]))
        elif data.draw(st.integers(0, 2)) == 0:
            node.order = data.draw(orders)

    agree(root, capacity)


@for_all(st.integers(0, 10**9), st.integers(1, 8), st.booleans(), orders)
def test_with_hundreds_of_leaves(seed, depth, limited, order):
    root = ordered(tree(300, depth, limited, Random(seed)), order)

    assert arrays.is_large(root)
    assert agree(root, CAPACITY)


@pytest.mark.parametrize("depth", [1, 3, 8])
def test_with_thousands_of_leaves(depth):
    draw = Random(depth)
    root = tree(3_000, depth, True, draw)
    for node in walk(root):
        if node.children and draw.random() < 0.2:
            node.order = draw.choice(["naive", "fair", "fifo"])
        if draw.random() < 0.1:
            node.weight = Fraction(draw.randint(1, 9), draw.randint(1, 9))

    assert agree(root, CAPACITY)


@pytest.mark.parametrize(
    ("root", "capacity"),
    [
        pytest.param(inner("r", leaf("a", 1), leaf("b", 1, weight=2**70)), (10,), id="a weight of 71 bits"),
        pytest.param(
            inner("r", leaf("a", 1, weight=Fraction(1, 2**40)), leaf("b", 1, weight=Fraction(2**40, 3))),
            (10,),
            id="weights that differ by 80 bits",
        ),
        pytest.param(inner("r", leaf("a", 2**130)), (1,), id="a demand of 131 bits"),
        pytest.param(inner("r", leaf("a", 1, tasks=2**64)), (1,), id="2^64 tasks"),
        pytest.param(inner("r", leaf("a", 2**100, tasks=2**40), leaf("b", 1)), (1,), id="2^140 times the cell"),
        pytest.param(inner("r", leaf("a", *[1] * 63)), [10] * 63, id="63 kinds"),
    ],
)
def test_what_compiled_code_has_too_few_bits_for_is_left_to_python(root, capacity):
    assert fill_compiled(root, capacity) is None
    idle = [leaf(f"idle {at}", *root.children[0].demand, tasks=0) for at in range(arrays.LEAVES_MIN)]
    large = replace(root, children=[*root.children, *idle])

    assert fill(large, capacity) == fill_plainly(large, capacity)


@pytest.mark.parametrize(
    ("root", "capacity"),
    [
        pytest.param(inner("r", leaf("a", 1), leaf("b", 1, weight=2**61)), (10,), id="a weight of 62 bits"),
        pytest.param(inner("r", leaf("a", 2**100)), (1,), id="a demand of 101 bits"),
        pytest.param(inner("r", leaf("a", 1, tasks=2**63 - 1)), (1,), id="2^63 tasks"),
        pytest.param(inner("r", leaf("a", *[1] * 62)), [10] * 62, id="62 kinds"),
        pytest.param(leaf("a", 5, tasks=1), (10,), id="a leaf alone"),
        pytest.param(inner("r", inner("nobody")), (10,), id="nobody"),
        pytest.param(inner("r", leaf("a", 1)), (0,), id="nothing to give"),
    ],
)
def test_and_up_to_there_it_is_not(root, capacity):
    assert agree(root, capacity)


@pytest.mark.parametrize(
    ("loaded", "least"),
    [pytest.param(False, arrays.LEAVES_MIN, id="not yet"), pytest.param(True, arrays.LEAVES_FEW, id="loaded")],
)
def test_so_many_leaves_are_worth_compiled_code(loaded, least):
    arrays._code.cache_clear()
    if loaded:
        arrays.warm_up()
    few = [leaf(f"n{at}", 1) for at in range(least - 1)]

    assert not arrays.is_large(inner("r", inner("g", *few)))
    assert arrays.is_large(inner("r", inner("g", *few), leaf("one more", 1)))


def test_without_numba_large_trees_come_to_the_same():
    script = (
        "import sys; sys.modules['numba'] = None\n"
        "from random import Random; from benchmarks.fairness import CAPACITY, tree\n"
        "from services.fairness.hdrf import fill, fill_compiled\n"
        "root = tree(400, 3, True, Random(1)); assert fill_compiled(root, CAPACITY) is None\n"
        "print(sorted((name, at.share) for name, at in fill(root, CAPACITY).leaves.items()))"
    )
    told = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    found = fill_compiled(tree(400, 3, True, Random(1)), CAPACITY).leaves
    assert told.strip() == str(sorted((name, at.share) for name, at in found.items()))


def test_a_demand_next_to_nothing_takes_no_more_than_that():
    """It is satisfied at once, within what counts as equal, and must not go on taking."""
    root = inner("r", leaf("mite", 1, tasks=1), leaf("a", 2**70), leaf("b", 2**70))

    found = fill_plainly(root, (2**70,))

    assert found.leaves["mite"].satisfied
    assert abs(found.leaves["a"].share - 2**127) < 2**70
    assert agree(root, (2**70,))
