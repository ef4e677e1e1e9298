"""A heap whose entries can change their key."""

import pytest
from hypothesis import strategies as st

from services.leftover.placement.indexed_heap import IndexedHeap, JobHeap
from services.leftover.placement.keys import ADMITTED_BITS, POSITION_BITS
from tests.strategies import for_all


def keyed(**keys):
    heap = IndexedHeap()
    for name, key in keys.items():
        heap.set(name, key)
    return heap


def test_the_least_key_is_on_top_and_ties_go_to_the_least_id():
    assert keyed(b=1, a=2).top() == "b"
    assert keyed(b=1, a=1).top() == "a"
    assert keyed().top() is None


def test_a_key_can_move_both_ways():
    heap = keyed(a=1, b=2)
    heap.set("a", 3)
    assert heap.top() == "b"
    heap.set("a", 0)
    assert heap.top() == "a"
    heap.set("a", 3)
    assert heap.top() == "b"


def test_what_was_dropped_comes_back_only_when_it_is_set_again():
    heap = keyed(a=1, b=2)
    heap.drop("a")
    heap.drop("a")
    assert heap.top() == "b"
    heap.set("a", 1)
    assert heap.top() == "a"
    heap.drop("a")
    heap.drop("b")
    assert heap.top() is None
    assert len(heap) == 0


def test_fill_replaces_everything():
    heap = keyed(a=1)
    heap.fill({"b": 5, "c": 4})
    assert (heap.top(), len(heap)) == ("c", 2)


def test_moves_leave_no_heap_of_leftovers():
    heap = keyed(a=0, b=1)
    for i in range(100_000):
        heap.set("a", i % 7)
    assert len(heap._heap) < 200


moves = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 6), st.integers(-3, 3)),
        st.tuples(st.just("drop"), st.integers(0, 6)),
        st.tuples(st.just("top")),
        st.tuples(st.just("drop_top")),
    ),
    max_size=200,
)


@for_all(moves)
def test_the_top_depends_on_ids_and_keys_alone(moves):
    heap, plain = IndexedHeap(), {}
    for what, *given in moves:
        if what == "set":
            heap.set(*given)
            plain[given[0]] = given[1]
        elif what == "drop":
            heap.drop(*given)
            plain.pop(*given, None)
        else:
            least, first = min(((key, id_) for id_, key in plain.items()), default=(None, None))
            assert (heap.top(), heap.least()) == (first, least)
            if what == "drop_top" and first is not None:
                assert heap.drop_top() == first
                del plain[first]
    assert heap.key == plain


def served_by(rank, admitted, position):
    return (rank << ADMITTED_BITS | admitted) << POSITION_BITS | position


job_moves = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(1, 6), st.integers(0, 3), st.integers(0, 2)),
        st.tuples(st.just("drop"), st.integers(1, 6)),
        st.tuples(st.just("look")),
    ),
    max_size=300,
)


@for_all(job_moves)
def test_jobs_come_in_the_order_of_their_keys_whatever_moves_came_before(moves):
    """And whether or not somebody looked in between, which leaves the heap with what it has found."""
    heap, plain = JobHeap(), {}
    for what, *given in [*moves, ("look",)]:
        if what == "set":
            admitted, rank, position = given
            plain[admitted] = served_by(rank, admitted, position)
            heap.set(admitted, plain[admitted])
        elif what == "drop":
            plain.pop(*given, None)
            heap.drop(*given)
        else:
            least = min(plain.values(), default=None)
            assert heap.least() == least
            assert heap.top() == next((each for each, key in plain.items() if key == least), None)
        assert (heap.key, len(heap)) == (plain, len(plain))


def test_moves_of_a_job_leave_no_heap_of_leftovers():
    heap = JobHeap()
    heap.set(1, served_by(0, 1, 0))
    for i in range(100_000):
        heap.set(2, served_by(1 + i % 7, 2, 0))
    assert len(heap._heap) + len(heap._in_order) < 200


def test_a_key_of_another_job_is_a_bug():
    with pytest.raises(AssertionError, match="no key of job 2"):
        JobHeap().set(2, served_by(0, 1, 0))
