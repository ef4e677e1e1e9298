"""Capacity is taken back for queues below their guarantee by these laws, in drawn cells (preemption_laws.py)."""

from hypothesis import settings
from hypothesis import strategies as st

from services.leftover.placement.leaf_queue import LeafEntry
from services.leftover.placement.preemption.holdings import Holdings, meeting
from services.leftover.placement.preemption.taking import Loan, LoanPart, Taking
from services.leftover.placement.promised import empty
from tests.properties.preemption_laws import Drawn
from tests.properties.test_promises_kept import a_class, table_of
from tests.strategies import for_all


@settings(max_examples=25, deadline=None)
@for_all(st.data())
def test_what_is_taken_back_is_within_the_law(data):
    Drawn(lambda options: data.draw(st.sampled_from(options))).run()


def leaf_of(name, cores, guaranteed_permille):
    leaf = LeafEntry(name, [cores])
    leaf.own_level = leaf.guaranteed = guaranteed_permille * 1_000_000
    return leaf


@for_all(
    st.integers(2, 5),
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 3), st.integers(0, 9), st.sampled_from("bcd")), max_size=6),
    st.integers(1, 4),
    st.sampled_from([0, 300, 600, 1_000]),
    st.dictionaries(st.sampled_from("bcd"), st.integers(0, 400)),
)
def test_room_is_found_wherever_it_can_be_and_no_leaf_loses_what_it_is_guaranteed(
    cores, tasks, wanted, rate_permille, guaranteed
):
    """One task of a claim on two nodes, beside a search of all that could end."""
    table = table_of(cores, cores)
    total = 2 * cores
    loans, held, free = {}, dict.fromkeys("abcd", 0), [cores, cores]
    for at, (node, size, lost, leaf) in enumerate(tasks):
        if free[node] >= size:
            free[node] -= size
            held[leaf] += size
            loan = Loan(f"t{at}", leaf, [])
            loan.parts, loan.lost = [LoanPart(node, f"t{at}", [(0, size)], [])], lost
            loan.share = -(-size * 1_000_000_000 // total)
            loans.setdefault(node, []).append(loan)
    wanted = min(wanted, cores)
    leaves = [leaf_of(name, count, guaranteed.get(name, 0)) for name, count in held.items() if name != "a"]
    leaves.append(leaf_of("a", 0, 1_000))

    def space_of(number):
        space = empty(table.nodes[number])
        space.free[0] = free[number]
        return space

    holdings = Holdings(table.total, leaves, {}, flat=False)
    taking = Taking(table, holdings, space_of, {}, loans, rate_permille * 1_000_000)
    found = taking.find("a", a_class(table, wanted), 1, [0, 1], whole=False)

    def may_end(chosen):
        left = dict(held)
        for loan in chosen:
            left[loan.leaf] -= loan.parts[0].pairs[0][1]
        losers = {loan.leaf for loan in chosen}
        keep = all(left[name] * 1_000 >= guaranteed.get(name, 0) * total for name in losers)
        return keep and sum(loan.share for loan in chosen) <= rate_permille * 1_000_000

    able = []
    for node in (0, 1):
        here = loans.get(node, [])
        for chosen in ([loan for i, loan in enumerate(here) if bits >> i & 1] for bits in range(1, 1 << len(here))):
            room = free[node] + sum(loan.parts[0].pairs[0][1] for loan in chosen)
            if free[node] < wanted <= room and may_end(chosen):
                able.append(chosen)
    assert found == bool(able)
    chosen = [loan for loan, _ in taking.taken]
    if found:
        (room,) = taking.rooms
        assert may_end(chosen)
        assert room.leaf == "a"
        given = sum(loan.parts[0].pairs[0][1] for loan in chosen)
        assert free[room.node] + given >= wanted
        assert all(free[room.node] + given - loan.parts[0].pairs[0][1] < wanted for loan in chosen)


def test_a_leaf_takes_nothing_from_who_has_taken_from_it_be_it_by_others():
    leaves = [leaf_of(name, 4, 100) for name in "abc"]
    holdings = Holdings([12], leaves, {"a": {"b": True}, "b": {"c": True}}, flat=False)

    assert not holdings.may_claim("b", "a", [(0, 1)], 1)
    assert not holdings.may_claim("c", "a", [(0, 1)], 1)
    assert holdings.may_claim("a", "c", [(0, 1)], 1)


def test_a_claim_goes_beyond_a_queue_only_as_far_as_that_is_below_its_own_guarantee():
    """p is guaranteed 600 and holds 600, all of it in a: b may have of a what it lacks, and nothing of c."""
    leaves = [leaf_of("p/a", 6, 300), leaf_of("p/b", 0, 300), leaf_of("c", 4, 400)]
    holdings = Holdings([10], leaves, {}, flat=False)

    assert holdings.may_claim("p/b", "p/a", [(0, 1)], 1)
    assert not holdings.may_claim("p/b", "c", [(0, 1)], 1)
    assert Holdings([10], leaves, {}, flat=True).may_claim("p/b", "c", [(0, 1)], 1)


def test_where_paths_meet():
    assert meeting("a/b/c", "a/b/d") == "a/b"
    assert meeting("a", "b") == ""
    assert meeting("a/b", "a") == "a"
