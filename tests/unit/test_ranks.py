"""Sorted blocks with sets of classes: the order is that of a sorted list, and no class that is there is passed over."""

from hypothesis import strategies as st

from services.leftover.placement.entries import Draw
from services.leftover.placement.ranks import Ranks
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
    draw, model = Draw(MASK), {}
    for number, (bin_id, key, _) in enumerate(moves):
        if key is None:
            draw.drop(bin_id)
            model.pop(bin_id, None)
        else:
            draw.set(bin_id, key, 1 << (bin_id & MASK))
            draw.classes |= 1 << (bin_id & MASK)
            model[bin_id] = key
        live, end = lives[number % len(lives)]  # Searches in between correct the sets of blocks.
        before_end = [(key, bin_id) for bin_id, key in model.items() if end is None or key < end]
        able = [(key, bin_id) for key, bin_id in before_end if live >> (bin_id & MASK) & 1]
        assert draw.first_of(live, end) == (min(able)[1] if able else None)


def test_what_lies_behind_the_end_of_a_search_is_found_by_the_next():
    draw = Draw(MASK)
    draw.set(1, 5, 1 << 1)
    draw.set(3, 20, 1 << 3)
    draw.classes = 1 << 1 | 1 << 3

    assert draw.first_of(1 << 3, end=10) is None
    assert draw.first_of(1 << 3) == 3
