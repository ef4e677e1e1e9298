"""Bit sets of nodes by what they have free: nothing that fits is left out, and listings follow what changes."""

from hypothesis import strategies as st

from services.leftover.placement.fits import (
    ClassIndex,
    FreeAmounts,
    NodeIndex,
    bit_set,
    fine_step,
    members,
    step,
    top_of_step,
)
from tests.strategies import for_all

AMOUNTS = st.one_of(st.integers(-5, 40), st.integers(0, 1 << 50))


@for_all(AMOUNTS, AMOUNTS)
def test_a_step_is_never_less_for_a_larger_amount(a, b):
    assert step(min(a, b)) <= step(max(a, b))


@for_all(AMOUNTS, AMOUNTS)
def test_a_fine_step_is_never_less_for_a_larger_amount(a, b):
    assert fine_step(min(a, b)) <= fine_step(max(a, b))


@for_all(st.integers(1, 1 << 50))
def test_amounts_of_one_step_differ_by_less_than_an_eighth(amount):
    assert step(amount + amount // 8 + 1) > step(amount)


@for_all(AMOUNTS)
def test_the_top_of_a_step_ends_a_step_of_both_scales(amount):
    top = top_of_step(amount)

    assert top >= amount
    assert step(top) == step(amount)
    assert top <= 0 or (step(top + 1) > step(top) and fine_step(top + 1) > fine_step(top))


@for_all(st.sets(st.integers(0, 300)))
def test_a_set_is_read_in_ascending_order_whether_sparse_or_dense(numbers):
    found = sum(1 << number for number in numbers)
    assert members(found) == sorted(numbers)


@for_all(
    st.lists(st.lists(AMOUNTS, min_size=2, max_size=2), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 19), st.lists(AMOUNTS, min_size=2, max_size=2)), max_size=10),
    st.dictionaries(st.integers(0, 1), st.integers(1, 1 << 50)),
)
def test_nodes_with_room_are_found_and_nodes_far_too_small_are_not(frees, moves, demand):
    fits = NodeIndex(frees, 2)
    now = [list(free) for free in frees]
    for number, free in moves:
        if number < len(now):
            now[number] = free
            fits.move([(number, free)])

    wants = [(p, step(amount)) for p, amount in demand.items()]
    found = members(fits.nodes(wants, (1 << len(now)) - 1))

    with_room = [i for i, free in enumerate(now) if all(free[p] >= amount for p, amount in demand.items())]
    near = [i for i, free in enumerate(now) if all(free[p] * 9 >= amount * 8 - 8 for p, amount in demand.items())]
    assert set(with_room) <= set(found) <= set(near)


def test_only_the_nodes_that_are_asked_about_are_found():
    fits = NodeIndex([[100], [100], [100]], 1)

    assert members(fits.nodes([(0, step(100))], 0b101)) == [0, 2]


@for_all(
    st.lists(st.lists(st.dictionaries(st.integers(0, 1), st.integers(1, 5_000)), max_size=20), max_size=4),
    st.lists(st.integers(-5, 10_000), min_size=2, max_size=2),
    st.sets(st.integers(0, 79)),
)
def test_classes_that_fit_are_found_and_classes_far_too_large_are_not(batches, free, others):
    demands = ClassIndex(2)
    known = []
    for batch in batches:
        demands.add(len(known), [[(p, amount, 0) for p, amount in demand.items()] for demand in batch])
        known += batch

    found = set(members(demands.classes(free, demands.all)))

    fitting = {i for i, demand in enumerate(known) if all(free[p] >= amount for p, amount in demand.items())}
    near = {
        i for i, demand in enumerate(known) if all(free[p] * 33 >= amount * 32 - 32 for p, amount in demand.items())
    }
    assert fitting <= found <= near
    among = [i for i in range(len(known)) if i not in others]
    assert set(members(demands.classes(free, bit_set(among)))) == found - others


@for_all(st.sets(st.integers(0, 200)))
def test_the_set_of_some_numbers_has_these_and_no_others(some):
    assert members(bit_set(list(some))) == sorted(some)


@for_all(
    st.lists(st.lists(st.integers(-5, 9), min_size=2, max_size=2), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 19), st.lists(st.integers(-5, 9), min_size=2, max_size=2)), max_size=10),
    st.dictionaries(st.integers(0, 1), st.tuples(st.integers(1, 9), st.integers(-3, -1))),
    st.sets(st.integers(0, 19)),
    st.sets(st.integers(0, 19)),
)
def test_of_the_open_nodes_with_room_the_first_of_the_least_rank_is_found(given, moves, needs, shut, barred):
    now = [list(free) for free in given]
    frees, moved = FreeAmounts(now, 2, [i not in shut for i in range(len(given))]), []
    for number, free in moves:
        if number < len(now):
            now[number][:] = free
            moved.append(number)
    frees.set(moved)

    wants = [(p, amount, weight) for p, (amount, weight) in needs.items()]
    best = frees.least(wants, sorted(number for number in barred if number < len(now)))

    out = shut | barred
    able = [i for i in range(len(now)) if i not in out and all(now[i][p] >= amount for p, amount, _ in wants)]
    assert best == min(able, key=lambda i: (sum(weight * now[i][p] for p, _, weight in wants), i), default=None)


@for_all(
    st.lists(st.lists(st.integers(0, 200), min_size=2, max_size=2), min_size=1, max_size=40),
    st.sets(st.integers(0, 39), min_size=1),
    st.integers(1, 40),
)
def test_the_least_that_classes_ask_for_is_found_in_their_lowest_step(amounts, among, first):
    demands, among = ClassIndex(2), {number for number in among if number < len(amounts)} or {0}
    needs = [[(p, amount, 1) for p, amount in enumerate(pair) if amount] for pair in amounts]
    demands.add(0, needs[:first])
    demands.add(len(needs[:first]), needs[first:])

    found = demands.least(bit_set(sorted(among)))

    least = [min(amounts[number][p] for number in among) for p in range(2)]
    assert found == {p: amount for p, amount in enumerate(least) if amount}
