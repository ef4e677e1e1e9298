"""A tree that is kept from filling to filling says what one that is built anew does; and it is kept."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st

from schemas import Queue
from services.fairness.filling import levels as filling_levels
from services.fairness.hdrf import arrays
from tests.builders import queue, tree
from tests.cells import targets
from tests.properties.fairness_books import Books, walked
from tests.properties.test_fairness_levels import NEARLY, asks, steps
from tests.properties.test_fairness_queues import CAPACITIES, moves, shapes
from tests.strategies import for_all

BOTH = {"cpu": 1_000, "memory": 1_600}
"""Of both kinds as much of the cell."""

plain = shapes(limits=({},), maxima=({},), policies=("", "", "fifo", "hdrf"))
with_maxima = shapes(
    limits=({},),
    maxima=({}, {"cpu": 2_000}, {"cpu": 9_000}, {"cpu": 20_000, "memory": 3_000}, {"memory": 8_000}),
    policies=("", "", "fifo", "hdrf"),
)


@pytest.fixture(autouse=True)
def restored():
    before, arrays.LEAVES_MIN = arrays.LEAVES_MIN, 1
    yield
    arrays.LEAVES_MIN = before


def both(shape, preset):
    """A cell in which every tree is kept, and one in which none is, nor anything else."""
    return [Books(shape, preset, forgetful=forgets) for forgets in (False, True)]


presets = st.sampled_from(["hdrf", "hdrf", "drf", "collapsed", "naive-hdrf"])


@for_all(st.one_of(plain, with_maxima, shapes()), presets, asks, steps)
def test_in_a_full_cell_it_says_the_same_after_every_change(shape, preset, given, changes):
    books = both(shape, preset)
    for each in books:
        each.set_capacity(CAPACITIES[0])
        for ask in given:
            each.job(*ask)
        for leaf in range(10):
            each.job(leaf, BOTH, 9)
        for what, *values in changes:
            getattr(each, what)(*values)
            each.decide()

    assert books[0].published == books[1].published
    assert targets(books[0].state) == targets(books[1].state)


def test_a_kept_tree_hears_of_what_moved_while_everybody_got_all():
    books = both(Queue("root", children=[Queue("a"), Queue("b"), Queue("c")]), "hdrf")
    for each in books:
        each.set_capacity(CAPACITIES[0])
        for what, *values in (
            ("job", 0, {"cpu": 4_000, "memory": 512}, 11),  # More than there is: the tree is laid out.
            ("cancel", 0),
            ("job", 1, {"cpu": 1_000, "memory": 1_024}, 1),  # Fits.
            ("job", 0, {"cpu": 4_000, "memory": 512}, 10),  # Together they do not.
        ):
            getattr(each, what)(*values)
            each.look()

    assert books[0].published == books[1].published
    assert targets(books[0].state) == {"a": 975_000_000, "b": 25_000_000}


def test_a_kept_tree_knows_what_a_unit_asked_for_before_everybody_got_all():
    books = both(Queue("root", children=[Queue("a"), Queue("b")]), "hdrf")
    for each in books:
        each.set_capacity(CAPACITIES[0])
        for what, *values in (
            ("job", 0, {"cpu": 4_000, "memory": 512}, 9),
            ("job", 1, {"cpu": 4_000, "memory": 512}, 9),  # Too much: the tree is laid out.
            ("cancel", 1),  # Fits.
            ("job", 1, {"cpu": 4_000, "memory": 512}, 9),  # Does not; the first queue has not moved meanwhile.
            ("job", 0, {"cpu": 4_000, "memory": 512}, 1),
        ):
            getattr(each, what)(*values)
            each.look()

    assert books[0].published == books[1].published
    assert targets(books[0].state) == {"a": 500_000_000, "b": 500_000_000}


@for_all(plain, st.sampled_from(["hdrf", "drf"]), moves)
def test_it_says_the_same_whatever_happens(shape, preset, changes):
    books = both(shape, preset)
    for each in books:
        each.set_capacity(CAPACITIES[0])
        for what, *values in changes:
            getattr(each, what)(*values)
            each.look()

    assert books[0].published == books[1].published


of_cores = st.tuples(st.integers(0, 9), st.sampled_from([{"cpu": 1_000}, {"cpu": 700}]), st.integers(1, 60))


def below_leaves_alone(shape):
    """The same tree with the maxima of inner queues left out."""
    children = [below_leaves_alone(child) for child in shape.children]
    return replace(shape, children=children, max={} if children else shape.max)


@for_all(with_maxima.map(below_leaves_alone), st.lists(of_cores, min_size=1, max_size=9), st.lists(of_cores))
def test_under_maxima_of_units_with_one_set_of_kinds_it_comes_to_what_is_filled_by_events(shape, given, changes):
    """Others than those are filled on their own beforehand in arrays, which is not the same: services decision 140."""
    levels = []
    for least in (1, 10**9):
        arrays.LEAVES_MIN = least
        books = Books(shape, "hdrf")
        books.set_capacity(CAPACITIES[0])
        for ask in given:
            books.job(*ask)
        for leaf in range(10):
            books.job(leaf, {"cpu": 1_000}, 9)
        for ask in changes:
            books.job(*ask)
            books.decide()
        levels.append(targets(books.state))
    assert levels[0].keys() == levels[1].keys()
    assert all(abs(level - levels[1][unit]) <= NEARLY for unit, level in levels[0].items())


def test_a_list_of_which_one_leaf_asks_for_what_there_is_not_keeps_its_level_when_another_asks_no_more():
    shape = tree(queue("a", 1), replace(queue("b", 1, queue("b0"), queue("b1")), policy="fifo"))
    levels = []
    for each in both(shape, "hdrf"):
        each.set_capacity({"cpu": 100_000, "gpu": 0})
        each.job(1, {"gpu": 1_000}, 1)
        each.job(2, {"cpu": 1_000}, 1)
        each.look()
        each.cancel(1)
        each.look()
        levels.append(targets(each.state))

    assert levels == [{"b": 0}, {"b": 0}]


@pytest.fixture
def built(monkeypatch):
    """The trees built, one after the other."""
    found = []
    build = filling_levels.FillTree

    def counting(*given):
        found.append(build(*given))
        return found[-1]

    monkeypatch.setattr(filling_levels, "FillTree", counting)
    return found


def full_cell(*queues):
    books = Books(tree(*queues))
    books.set_capacity({"cpu": 100_000, "memory": 160_000})
    for at in range(sum(not each.children for _, each in walked(books.tree))):
        books.job(at, BOTH, 90)
    books.look()
    return books


def pair(name, *weights):
    return queue(name, 1, *[queue(f"{name}{at}", weight) for at, weight in enumerate(weights)])


def test_other_demands_build_no_tree(built):
    books = full_cell(pair("a", 1, 2), pair("b", 2, 2))
    for at in range(4):
        books.job(at, {"cpu": 1_000}, 10)  # Each of them asks for another set of kinds, for the first time.
    books.look()
    before = len(built)
    for at in range(4):
        books.job(at, {"cpu": 1_000}, 10 * at + 10)
        books.job(at, {"cpu": 1_000, "memory": 300}, 10)
        books.look()

    assert len(built) == before


def test_other_demands_below_a_maximum_build_no_tree(built):
    capped = replace(pair("a", 1, 2), max={"cpu": 20_000})
    books = full_cell(capped, pair("b", 2, 2))
    before = len(built)
    for at in range(4):
        books.job(at, BOTH, 10 * at + 10)
        books.look()

    assert len(built) == before
    assert 190 <= sum(targets(books.state)[leaf] for leaf in ("a/a0", "a/a1")) // 1_000_000 <= 200


@pytest.mark.parametrize(
    "leaves",
    [
        pytest.param([0], id="a light one among its siblings"),
        pytest.param([1], id="the heaviest"),
        pytest.param([2, 3], id="all below a queue"),
    ],
)
def test_a_queue_that_asks_for_nothing_keeps_its_place(built, leaves):
    books = full_cell(pair("a", 1, 2), pair("b", 2, 2))
    before = len(built)
    for at in reversed(leaves):
        books.cancel(at)
    books.look()
    for at in leaves:
        books.job(at, BOTH, 90)
    books.look()

    assert len(built) == before


def test_a_queue_that_never_asked_has_its_place_in_a_tree_in_which_many_do(built):
    books = Books(tree(queue("a"), queue("b"), pair("c", 3, 4)))
    books.set_capacity({"cpu": 100_000, "memory": 160_000})
    for at in range(2):
        books.job(at, BOTH, 90)
    books.look()
    before = len(built)
    books.job(3, BOTH, 90)
    books.look()

    assert len(built) == before
    assert set(targets(books.state)) == {"a", "b", "c/c1"}


def test_a_limit_that_begins_to_count_ends_it(built):
    books = full_cell(replace(queue("a"), max={"cpu": 95_000}), queue("b"))
    before = len(built)
    assert built[-1].bits == 0

    books.job(0, BOTH, 90)
    books.look()

    assert len(built) == before + 1
    assert built[-1].bits


def test_a_tree_in_which_few_ask_any_more_is_not_kept(built):
    books = full_cell(pair("a", 1, 2, 2), pair("b", 2, 2))
    arrays.LEAVES_MIN = 4
    before = len(built)
    for at, more in ((0, 0), (1, 1)):
        books.cancel(at)
        books.look()
        assert len(built) == before + more
