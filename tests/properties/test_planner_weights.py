"""Promises of greater weight are kept before lighter ones: in repairs, and in the solver's program."""

from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from tests.builders import configured, node_lost, registered, reservation
from tests.planner_cell import Cell

NODES = 6
STEPS = 40

ASKED = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 10), st.integers(1, 12), st.sampled_from([1, 2, 5, 1_000])),
    min_size=2,
    max_size=7,
)
"""Units at a time, begin, length, weight: each fills its window, so that none can move."""


def weighed(name, units, begin, lasts, weight):
    atom = f"atom(b='1 cpu', g={units}, h={units}, l={lasts}m, w={units * lasts}m)"
    fact = reservation(name, f"window({begin + 1}m, {begin + 1 + lasts}m, {atom})")
    fact.body.weight = weight
    return fact


def kept_after(asked, lost):
    """The promises before and after nodes are lost, with their spans."""
    cell = Cell(configured(seed=0), *(registered(f"n{i}", cpu=1_000) for i in range(NODES)))
    cell.then(*(weighed(f"r{i}", *each) for i, each in enumerate(asked)))
    cell.settle(at=0)
    before = dict(cell.story.state.promises)
    cell.then(*(node_lost(f"n{i}") for i in range(lost)))
    for _ in range(2_000):
        if cell.round(at=1_000) is None:
            return before, dict(cell.story.state.promises)
    raise AssertionError("the planner does not come to an end")


def used(promises, step):
    """Units that are promised in a step; here a gang is one of `units`, so leases are counted by their terms."""
    leases = [(lease, units) for promise, units in promises for lease in promise.leases]
    return sum(lease.gangs * units for lease, units in leases if lease.begin <= step < lease.end)


@settings(max_examples=60, deadline=None)
@for_all(ASKED, st.integers(1, NODES - 1))
def test_a_heavier_promise_is_not_broken_where_it_would_do_to_break_a_lighter_one_alone(asked, lost):
    before, after = kept_after(asked, lost)
    units = {f"r{i}": each[0] for i, each in enumerate(asked)}
    broken = [name for name in before if name not in after]
    for light in before:
        others = [(promise, units[name]) for name, promise in before.items() if name != light]
        if all(used(others, step) <= NODES - lost for step in range(1, STEPS)):
            assert all(before[name].weight <= before[light].weight for name in broken)


@settings(max_examples=30, deadline=None)
@for_all(ASKED, st.integers(1, NODES - 1), st.sampled_from([2, 1_000]))
def test_weights_that_are_all_alike_change_nothing(asked, lost, weight):
    alike = [kept_after([(*each[:3], n) for each in asked], lost) for n in (1, weight)]
    assert [list(promises) for promises in alike[0]] == [list(promises) for promises in alike[1]]
    for one, other in zip(*alike, strict=True):
        assert [each.leases for each in one.values()] == [each.leases for each in other.values()]
