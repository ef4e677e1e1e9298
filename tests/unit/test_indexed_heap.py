"""A heap whose entries can change their key."""

from hypothesis import strategies as st

from services.leftover.placement.indexed_heap import IndexedHeap
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
