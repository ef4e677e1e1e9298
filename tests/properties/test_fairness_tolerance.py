"""Levels that follow what queues ask for only once that has moved by enough, or for long enough."""

from hypothesis import strategies as st

from schemas.quantities import SHARE_UNITS
from tests.builders import queue, tree
from tests.cells import targets
from tests.properties.fairness_books import Books
from tests.properties.test_fairness_queues import shapes
from tests.strategies import for_all

CAPACITY = {"cpu": 1_000_000, "memory": 1_000_000}
BOTH = {"cpu": 200_000, "memory": 160_000}
SMALL = ({"cpu": 100}, {"cpu": 200, "memory": 50}, {"memory": 300}, {"cpu": 20, "memory": 20})
TOLERANCE_MS = 1_000
PERMILLE = SHARE_UNITS // 1_000
ROUNDING = 8

small_moves = st.lists(
    st.one_of(
        *[st.tuples(st.just("job"), st.integers(0, 9), st.sampled_from(SMALL), st.integers(1, 9))] * 3,
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("end"), st.integers(0, 30), st.integers(1, 9)),
        st.tuples(st.just("wait"), st.integers(1, 700)),
        *[st.tuples(st.just("decide"), st.tuples(st.integers(0, 9), st.integers(1, 9)))] * 3,
    ),
    min_size=5,
    max_size=30,
)


def full(shape, preset="hdrf", *, forgetful=False, **knobs):
    """A cell in which every leaf asks for more than there is for it."""
    books = Books(shape, preset, forgetful=forgetful, **knobs)
    books.set_capacity(CAPACITY)
    for leaf in range(10):
        books.job(leaf, BOTH, 6)
    books.look()
    return books


def tolerant(shape, preset="hdrf", **knobs):
    return full(shape, preset, demand_tolerance_permille=1, **knobs)


def play(books, moves):
    for what, *values in moves:
        getattr(books, what)(*values)


@for_all(shapes(), st.sampled_from(["hdrf", "drf", "collapsed", "capacity"]), small_moves)
def test_once_the_time_is_over_the_next_round_says_what_one_that_tolerates_nothing_says(shape, preset, moves):
    both = tolerant(shape, preset), full(shape, preset)
    for books in both:
        play(books, moves)
        books.decide()
        books.wait(TOLERANCE_MS)
        books.decide()

    assert both[0].state.levels == both[1].state.levels


@for_all(shapes(), st.sampled_from(["hdrf", "capacity"]), small_moves, st.integers(0, 30))
def test_a_restart_at_any_point_or_before_every_round_changes_no_answer(shape, preset, moves, cut):
    whole, forgetful, resumed = (
        tolerant(shape, preset),
        tolerant(shape, preset, forgetful=True),
        tolerant(shape, preset),
    )
    for books in (whole, forgetful):
        play(books, moves)
    play(resumed, moves[:cut])
    resumed.restore()
    play(resumed, moves[cut:])

    assert whole.published == forgetful.published == resumed.published


@for_all(small_moves)
def test_with_one_kind_no_level_is_off_by_more_than_is_tolerated(moves):
    shape = tree(*[queue(f"q{at}", 1 + at % 3) for at in range(6)])
    given = [
        (what, values[0], {"cpu": 100}, values[2]) if what == "job" else (what, *values) for what, *values in moves
    ]
    both = tolerant(shape, "drf"), full(shape, "drf")
    for each in given:
        for books in both:
            play(books, [each])
        if each[0] == "decide":
            for unit, level in targets(both[1].state).items():
                assert abs(targets(both[0].state)[unit] - level) <= PERMILLE + ROUNDING, unit


@for_all(shapes(), small_moves)
def test_what_is_said_of_queues_and_guarantees_meanwhile_is_so(shape, moves):
    books = tolerant(shape)
    play(books, [("look" if what == "decide" else what, *values) for what, *values in moves])
