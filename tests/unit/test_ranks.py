"""Sorted blocks with sets of classes: the order is that of a sorted list, and no class that is there is passed over."""

from hypothesis import strategies as st

from services.leftover.placement.leaf_queue import ReadyQueue
from services.leftover.placement.ranks import Ranks
from services.leftover.placement.task_class import Shape, TaskClass
from services.leftover.placement.task_span import SoleSpans, TaskSpan
from tests.strategies import for_all

MASK = 15
MOVES = st.lists(
    st.tuples(st.integers(0, 400), st.one_of(st.none(), st.integers(0, 50)), st.integers(0, MASK)), max_size=400
)


@for_all(MOVES)
def test_entries_come_in_the_order_of_key_and_id_whatever_was_moved(moves):
    ranks, model = Ranks(), {}
    for id_, key, _ in moves:
        if key is None:
            ranks.drop(id_)
            model.pop(id_, None)
        else:
            ranks.set(id_, key, 1)
            model[id_] = key
        assert ranks.first() == min(model, key=lambda id_: (model[id_], id_), default=None)
    in_order = sorted((key, id_) for id_, key in model.items())
    assert [entry for block in ranks.blocks for entry in block.entries] == in_order
    assert all(0 < len(block.entries) <= 48 for block in ranks.blocks)
    assert len(ranks) == len(model)


LIVES = st.tuples(st.integers(0, (1 << MASK + 1) - 1), st.one_of(st.none(), st.integers(0, 50)))


@for_all(MOVES, st.lists(LIVES, min_size=1, max_size=5))
def test_the_first_bin_of_a_live_class_is_found(moves, lives):
    ready, model = ReadyQueue(MASK), {}
    for number, (bucket_id, key, _) in enumerate(moves):
        if key is None:
            ready.drop(bucket_id)
            model.pop(bucket_id, None)
        else:
            ready.set(bucket_id, key, 1 << (bucket_id & MASK))
            ready.classes |= 1 << (bucket_id & MASK)
            model[bucket_id] = key
        live, end = lives[number % len(lives)]  # Searches in between correct the sets of blocks.
        before_end = [(key, bucket_id) for bucket_id, key in model.items() if end is None or key < end]
        able = [(key, bucket_id) for key, bucket_id in before_end if live >> (bucket_id & MASK) & 1]
        assert ready.first_of(live, end) == (min(able)[1] if able else None)


def test_what_lies_behind_the_end_of_a_search_is_found_by_the_next():
    ready = ReadyQueue(MASK)
    ready.set(1, 5, 1 << 1)
    ready.set(3, 20, 1 << 3)
    ready.classes = 1 << 1 | 1 << 3

    assert ready.first_of(1 << 3, end=10) is None
    assert ready.first_of(1 << 3) == 3


SOLE = st.tuples(st.integers(0, 60), st.integers(0, 3), st.lists(st.integers(0, MASK), max_size=4, unique=True))


@for_all(st.lists(SOLE, max_size=300), st.lists(LIVES, min_size=1, max_size=5))
def test_the_first_span_of_a_live_class_is_found_whatever_a_job_waits_for_by_now(changes, lives):
    ready, model = ReadyQueue(MASK), {}
    for number, (job, key, classes) in enumerate(changes):
        id_, segment = -1 - job, job << 4
        if classes:
            tasks = [TaskClass(index, "", Shape({}, [], 0), {}, {}, 0, [], True) for index in classes]
            spans = [TaskSpan("s", at, task, 0, 1, 1, 0) for at, task in enumerate(tasks)]
            for at, span in enumerate(spans):
                span.position = at
            sole = ready.sole_spans[id_] = SoleSpans(spans, segment)
            ready.set(id_, key * 8, sole.classes)  # Often with the key that it has, and other classes.
            ready.classes |= sole.classes
            model[id_] = [(key * 8 + at, segment | index, index) for at, index in enumerate(classes)]
        elif ready.sole_spans.pop(id_, None) is not None:
            ready.drop(id_)
            del model[id_]
        live, _ = lives[number % len(lives)]
        able = [(key, bucket) for of_job in model.values() for key, bucket, index in of_job if live >> index & 1]
        found = ready.first_of(live)
        assert (found is None) == (not able)
        if found is not None:
            assert ready.found_key == min(able)[0]
            assert (ready.found_key, found) in able
