"""Where a job goes, against a slow and obvious reference; and never to a cell that could not run it."""

from fractions import Fraction

from hypothesis import given as for_all
from hypothesis import strategies as st

from schemas import Record
from schemas.quantities import MILLIONTHS
from schemas.routes import Bid, CellProblem, CellsJudged, JobRouted, MoveAsked, RouteAsked, RouteDeclined
from services.router.choosing import NEVER_PPM, Demand, load_of
from services.router.core import fold, start
from services.router.core.decide import decide
from services.router.core.state import wanted_of
from tests.builders import job, stage

AMOUNTS = st.integers(0, 50_000)
KINDS = ("cpu", "memory")
VECTORS = st.fixed_dictionaries(dict.fromkeys(KINDS, AMOUNTS))


def bids(names=("a", "b", "c", "d")):
    """What some cells say; of those with a problem it does not matter what else they say."""
    each = st.builds(
        Bid,
        cell=st.sampled_from(names),
        seq=st.integers(1, 99),
        time_ms=st.integers(0, 99),
        problem=st.one_of(st.none(), st.none(), st.just(CellProblem("", "unknown_queue", "queue", "no such queue"))),
        is_able=st.sampled_from([True, True, False]),
        capacity=VECTORS,
        ahead=VECTORS,
        queue_ahead=VECTORS,
        queue_permille=st.integers(1, 1_000),
    )
    return st.lists(each, max_size=4, unique_by=lambda bid: bid.cell)


def share_of(amounts, part, bid, coming, wanted):
    """What is to be run, over a part of the cell: the largest of all kinds; None where the cell lacks one."""
    shares = [Fraction(0)]
    for kind in KINDS:
        needed = amounts[kind] + coming.get(kind, 0) + wanted[kind]
        if needed and not bid.capacity[kind]:
            return None
        shares += [Fraction(needed) / (bid.capacity[kind] * part)] if needed else []
    return max(shares)


def slow_load(bid, coming, wanted):
    """The smaller of the two shares; None where the cell lacks a kind."""
    cell = share_of(bid.ahead, Fraction(1), bid, coming, wanted)
    queue = share_of(bid.queue_ahead, Fraction(bid.queue_permille, 1_000), bid, coming, wanted)
    return min((share for share in (cell, queue) if share is not None), default=None)


@for_all(VECTORS, VECTORS, VECTORS, VECTORS, VECTORS, st.integers(1, 1_000))
def test_the_load_is_the_smaller_of_two_rounded_down(capacity, ahead, queue_ahead, coming, wanted, permille):
    load = load_of("a", capacity, permille, Demand(ahead, queue_ahead, coming, wanted))
    slow = slow_load(Bid("a", 1, 1, None, False, True, capacity, ahead, queue_ahead, permille), coming, wanted)

    assert load.ppm == (NEVER_PPM if slow is None else slow * MILLIONTHS // 1)


def asked(spec):
    """A router that has been asked for one job."""
    state = start()
    fold(state, Record("RouteAsked", 1, ".router", 1, 0, 0, ".router/1", "", RouteAsked(spec, [], "ann")))
    return state


@for_all(bids(), st.integers(1, 5), st.integers(1, 20_000))
def test_a_job_goes_to_the_least_loaded_of_the_cells_that_could_run_it(said, tasks, cpu):
    spec = job("j", stage(tasks=tasks, cpu=cpu, memory=64))
    state = asked(spec)

    decided = decide(state, CellsJudged("j", "placing", said), 0)

    able = [bid for bid in said if bid.problem is None and bid.is_able]
    if able:
        assert isinstance(decided, JobRouted)
        slow = {bid.cell: slow_load(bid, {}, wanted_of(spec)) for bid in able}
        ranks = {cell: NEVER_PPM if share is None else share * MILLIONTHS // 1 for cell, share in slow.items()}
        assert ranks[decided.cell] == min(ranks.values())
        assert {load.cell for load in decided.loads} == {bid.cell for bid in able}
    elif said and all(bid.problem for bid in said):
        assert isinstance(decided, RouteDeclined)
    else:
        assert decided is None


@for_all(bids(), st.permutations(range(4)))
def test_in_whatever_order_cells_are_looked_at_the_same_one_is_chosen(said, order):
    state = asked(job("j"))
    turned = [said[at] for at in order if at < len(said)]
    found = [decide(state, CellsJudged("j", "placing", each), 0) for each in (said, turned)]

    assert [getattr(each, "cell", None) for each in found] == [getattr(found[0], "cell", None)] * 2


@for_all(bids(), st.integers(0, 200_000))
def test_a_job_moves_only_when_it_has_waited_and_only_to_where_it_starts_at_once_or_its_nodes_are_gone(said, waited):
    state = asked(job("j", stage(cpu=100, memory=64)))
    route = state.jobs["j"]
    route.phase, route.cell, route.admitted = "taken", "a", 7

    decided = decide(state, CellsJudged("j", "moving", said), waited)

    if decided is None:
        return
    assert isinstance(decided, MoveAsked)
    assert waited >= state.knobs.move_after_ms
    (there,) = [bid for bid in said if bid.cell == decided.to]
    (here,) = [bid for bid in said if bid.cell == "a"]
    assert decided.to != "a"
    assert there.is_able
    assert there.problem is None
    loads = {load.cell: min(load.cell_ppm, load.queue_ppm) for load in decided.loads}
    assert not here.is_able or (loads[decided.to] <= MILLIONTHS and loads[decided.to] * 1_000 <= loads["a"] * 700)
