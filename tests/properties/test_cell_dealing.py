"""However many instances and cells there are: every cell has as many instances as it can have, in about equal parts."""

from hypothesis import given as for_all
from hypothesis import strategies as st

from largesse.bus.kafka.dealing import dealt

MEMBERS = st.sets(st.text("abcdef0123", min_size=1, max_size=6), min_size=1, max_size=8)
CELLS = st.integers(0, 40)
COPIES = st.integers(1, 4)


@for_all(MEMBERS, CELLS, COPIES)
def test_every_cell_has_its_copies_on_different_instances(members, cells, copies):
    shares = dealt(members, range(cells), copies)

    assert set(shares) == members
    for partition in range(cells):
        served = [member for member, places in shares.items() if partition in places]
        assert len(served) == min(copies, len(members))
    assert all(len(set(places)) == len(places) for places in shares.values())


@for_all(MEMBERS, CELLS, COPIES)
def test_nobody_has_much_more_than_its_part(members, cells, copies):
    each = min(copies, len(members))

    most = max(map(len, dealt(members, range(cells), copies).values()))

    # Where the last cells find too few with room, as many again as a cell has copies.
    assert most <= -(-cells * each // len(members)) + each


@for_all(MEMBERS, CELLS, COPIES)
def test_the_order_in_which_instances_and_cells_are_told_says_nothing(members, cells, copies):
    places = range(cells)

    assert dealt(members, places, copies) == dealt(sorted(members, reverse=True), reversed(places), copies)


def test_an_instance_that_leaves_hardly_moves_what_is_not_its_own():
    members = [f"instance-{number}" for number in range(5)]
    before = dealt(members, range(100), 2)
    after = dealt(members[:-1], range(100), 2)

    gained = sum(len(set(after[member]) - set(before[member])) for member in members[:-1])
    assert gained <= 1.5 * len(before[members[-1]])


def test_nobody_is_there():
    assert dealt([], range(3), 2) == {}
