"""What a solver proposes is adopted if it holds at that moment and is better; else every promise stays as it was."""

import pytest

from schemas import InputRefused, PlanProposed, Plans, ProposalAnswer, ProposedLease, ProposedPlan
from services.admission import core as admission
from services.admission.core.judge import judge
from tests.builders import Fact, node_lost, registered, reservation, reservation_delete, reservation_update
from tests.harness import given
from tests.planner_cell import MINUTE, Cell

WIDE = "window(0, 1h, atom(b='1 cpu', g=1, h=8, l=2m, w=16m))"
"""Eight units for two minutes, or one for sixteen: the fewer at a time, the less is started and ended."""


def proposed(after=0, **leases):
    """`r=[(begin, end, units), ...]` in minutes, for atom 0."""
    plans = [
        ProposedPlan(name, [ProposedLease("0", begin * MINUTE, end * MINUTE, units) for begin, end, units in each])
        for name, each in leases.items()
    ]
    return Fact(PlanProposed(after, plans, "planner"))


def promising(*names, **knobs):
    """A cell that has promised each of these eight units at once."""
    cell = Cell(registered("n1", cpu=4_000), registered("n2", cpu=4_000), reservation_agent="gree", **knobs)
    cell.then(*(reservation(name, WIDE) for name in names))
    cell.settle(at=0)
    return cell


def verdict(body):
    (answer,) = body.proposals
    return "adopted" if answer.adopted else answer.reason


def test_a_better_plan_is_adopted_and_told_as_a_move():
    cell = promising("r")
    assert cell.promised == {"r": [(58, 60, 8)]}

    body = cell.then(proposed(r=[(10, 26, 1)])).round(at=1_000)

    assert verdict(body) == "adopted"
    assert cell.promised == {"r": [(10, 26, 1)]}
    (answer,) = body.answers
    assert (answer.reservation, answer.accepted, answer.reason) == ("r", True, "moved")
    assert "solver" in answer.detail
    assert [profile.reservation for profile in body.profiles] == ["r"]
    assert body.wake_ms == 10 * MINUTE


def test_what_is_adopted_is_room_that_later_requests_find_taken():
    cell = promising("r").then(proposed(r=[(10, 26, 1)]))
    cell.round(at=1_000)
    whole = "window(9m, 27m, atom(b='8 cpu', g=1, h=1, l=18m, w=18m))"
    freed = "window(57m, 60m, atom(b='4 cpu', g=2, h=2, l=3m, w=6m))"
    body = cell.then(reservation("whole", whole), reservation("freed", freed)).settle(at=2_000)
    assert [answer.accepted for answer in body.answers] == [False, True]


@pytest.mark.parametrize(
    ("leases", "reason"),
    [
        pytest.param([(10, 25, 1)], "infeasible", id="too little work"),
        pytest.param([(10, 26, 1), (26, 27, 1)], "infeasible", id="a lease that is too short"),
        pytest.param([(50, 66, 1)], "infeasible", id="beyond its window"),
        pytest.param([(0, 16, 1)], "stale", id="before the step that comes next"),
        pytest.param([(58, 60, 8)], "no_better", id="what it has"),
        pytest.param([(20, 22, 8)], "no_better", id="the same at another time"),
        pytest.param([(10, 58, 1)], "no_better", id="fewer at a time, but more than was asked for"),
    ],
)
def test_a_plan_that_breaks_its_request_or_is_no_better_is_refused(leases, reason):
    cell = promising("r")
    body = cell.then(proposed(r=leases)).round(at=1_000)
    assert verdict(body) == reason
    assert body.proposals[0].detail
    assert cell.promised == {"r": [(58, 60, 8)]}
    assert not body.profiles


def test_a_plan_that_takes_what_was_promised_meanwhile_is_refused():
    cell = promising("r")
    cell.then(reservation("new", "window(9m, 27m, atom(b='4 cpu', g=2, h=2, l=18m, w=36m))"))
    assert cell.settle(at=0).answers[0].accepted
    assert verdict(cell.then(proposed(r=[(10, 26, 1)])).round(at=1_000)) == "infeasible"


def test_a_plan_made_before_a_node_was_lost_is_refused_where_it_has_no_room_any_more():
    cell = promising("r", reservation_check_ms=MINUTE)  # What is an hour away is not mended yet.
    cell.then(node_lost("n2"))
    assert verdict(cell.then(proposed(r=[(10, 13, 4), (13, 17, 1)])).round(at=1_000)) == "adopted"

    cell = promising("r", reservation_check_ms=MINUTE)
    cell.then(node_lost("n2"))
    assert verdict(cell.then(proposed(r=[(10, 12, 7), (12, 14, 1)])).round(at=1_000)) == "infeasible"


def test_units_of_a_proposal_have_to_fit_on_nodes():
    cell = Cell(*(registered(f"n{i}", cpu=4_000) for i in range(3)), reservation_agent="gree")
    cell.then(reservation("a", "window(0, 1h, atom(b='3 cpu', g=1, h=3, l=2m, w=12m))"))
    cell.then(reservation("b", "window(9m, 30m, atom(b='2 cpu', g=3, h=3, l=20m, w=60m))"))
    cell.settle(at=0)
    assert cell.promised == {"a": [(56, 60, 3)], "b": [(10, 30, 1)]}
    # The sum has room, 12 for 2 x 3 + 3 x 2; but beside units of 3 on two nodes the third has room for two units of 2.
    assert verdict(cell.then(proposed(a=[(10, 16, 2)])).round(at=1_000)) == "infeasible"
    assert verdict(cell.then(proposed(a=[(10, 22, 1)])).round(at=1_000)) == "adopted"


def test_a_queue_is_not_promised_more_than_its_limit_by_a_proposal():
    cell = promising("r", "s", reservation_instant_permille=500)
    before = cell.promised
    assert {gangs for mine in before.values() for _, _, gangs in mine} == {4}
    both = {"r": [(10, 13, 3), (13, 20, 1)], "s": [(10, 13, 3), (13, 20, 1)]}
    assert verdict(cell.then(proposed(**both)).round(at=1_000)) == "infeasible"
    assert cell.promised == before
    assert verdict(cell.then(proposed(r=[(10, 26, 1)], s=[(10, 26, 1)])).round(at=2_000)) == "adopted"


def test_a_proposal_is_adopted_as_a_whole_or_not_at_all():
    cell = promising("r", "s")
    before = cell.promised
    assert verdict(cell.then(proposed(r=[(10, 26, 1)], s=[(10, 11, 1)])).round(at=1_000)) == "infeasible"
    assert cell.promised == before


def test_two_promises_may_change_places():
    a = "window(0, 20m, atom(b='8 cpu', g=1, h=1, l=2m, w=2m))"
    cell = Cell(reservation_agent="early").then(reservation("a", a), reservation("b", a), reservation("r", WIDE))
    cell.settle(at=0)
    assert cell.promised == {"a": [(1, 3, 1)], "b": [(3, 5, 1)], "r": [(5, 7, 8)]}
    swapped = {"a": [(3, 5, 1)], "b": [(1, 3, 1)], "r": [(5, 21, 1)]}
    assert verdict(cell.then(proposed(**swapped)).round(at=1_000)) == "adopted"
    assert cell.promised == swapped


def test_a_proposal_for_what_is_given_back_is_stale():
    cell = promising("r", "s").then(reservation_delete("r"), proposed(r=[(10, 26, 1)], s=[(10, 26, 1)]))
    body = cell.settle(at=1_000)
    assert verdict(body) == "stale"
    assert cell.promised.keys() == {"s"}


def test_a_proposal_is_measured_by_the_terms_of_now():
    cell = promising("r")
    cell.then(reservation_update("r", "window(0, 1h, atom(b='1 cpu', g=1, h=8, l=2m, w=32m))"))
    cell.then(proposed(r=[(10, 26, 1)]))
    assert verdict(cell.settle(at=1_000)) == "infeasible"


def test_leases_that_have_begun_stay():
    cell = Cell(reservation_agent="early")
    cell.then(reservation("r", "window(0, 1h, atom(b='1 cpu', g=1, h=4, l=5m, w=40m))"))
    cell.settle(at=0)
    assert cell.promised == {"r": [(1, 11, 4)]}
    cell.round(at=MINUTE)
    assert verdict(cell.then(proposed(r=[(10, 50, 1)])).round(at=2 * MINUTE)) == "stale"


def test_of_a_promise_that_runs_the_leases_to_come_may_move():
    rdl = "window(0, 2h, order(atom(b='1 cpu', g=1, h=1, l=5m, w=5m), atom(b='1 cpu', g=1, h=8, l=2m, w=16m)))"
    cell = Cell(reservation_agent="early").then(reservation("r", rdl))
    cell.settle(at=0)
    assert cell.promised == {"r": [(1, 6, 1), (6, 8, 8)]}
    cell.round(at=MINUTE)
    plan = [ProposedLease("0", MINUTE, 6 * MINUTE, 1), ProposedLease("1", 6 * MINUTE, 22 * MINUTE, 1)]
    body = cell.then(Fact(PlanProposed(0, [ProposedPlan("r", plan)]))).round(at=2 * MINUTE)
    assert verdict(body) == "adopted"
    assert cell.promised == {"r": [(1, 6, 1), (6, 22, 1)]}


@pytest.mark.parametrize(
    "lease",
    [
        pytest.param(ProposedLease("0", 10 * MINUTE + 1, 26 * MINUTE, 1), id="off the grid of steps"),
        pytest.param(ProposedLease("7", 10 * MINUTE, 26 * MINUTE, 1), id="an atom that it does not have"),
    ],
)
def test_what_means_nothing_here_is_refused(lease):
    cell = promising("r").then(Fact(PlanProposed(0, [ProposedPlan("r", [lease])])))
    assert verdict(cell.round(at=1_000)) in ("stale", "infeasible")
    assert cell.promised == {"r": [(58, 60, 8)]}


def test_part_of_a_gang_cannot_be_proposed():
    cell = Cell(reservation_agent="gree")
    cell.then(reservation("r", "window(0, 1h, atom(b='1 cpu', g=2, h=8, l=2m, w=16m))"))
    cell.settle(at=0)
    assert verdict(cell.then(proposed(r=[(10, 16, 3)])).round(at=1_000)) == "infeasible"
    assert verdict(cell.then(proposed(r=[(10, 18, 2)])).round(at=2_000)) == "adopted"


def test_proposals_and_requests_are_answered_in_the_order_of_the_log():
    cell = promising("r").then(
        reservation("a", WIDE), proposed(r=[(10, 26, 1)]), reservation("b", WIDE), reservation_delete("a")
    )
    body = cell.settle(at=1_000)
    reasons = {answer.reservation: answer.reason for answer in body.answers}
    assert reasons == {"a": "deleted", "b": "", "r": "moved"}
    assert verdict(body) == "adopted"
    assert cell.promised.keys() == {"r", "b"}


def test_a_planner_that_restarts_with_a_proposal_open_answers_alike():
    whole, broken = promising("r", "s"), promising("r", "s")
    for cell in (whole, broken):
        cell.then(proposed(r=[(10, 26, 1)], s=[(10, 26, 1)]))
    broken.story.restarted()
    assert broken.round(at=1_000) == whole.round(at=1_000)
    assert broken.promised == whole.promised


def admitting(*facts):
    return given(admission, registered("n1", cpu=8_000), *facts)


def test_one_proposal_at_a_time_is_taken_into_the_log():
    story = admitting(Fact(Plans(0)))
    body = proposed(r=[(10, 26, 1)]).body
    assert judge(story.state, body, "planner", 0) == body
    story.then(Fact(body))
    assert story.state.needs_round
    assert judge(story.state, body, "planner", 0) is None
    story.then(Fact(Plans(1, proposals=[ProposalAnswer(3, False, "stale")])))
    assert judge(story.state, body, "planner", 0) == body


def test_a_proposal_that_starts_from_a_plan_to_come_is_refused():
    story = admitting()
    found = judge(story.state, proposed(after=99, r=[(10, 26, 1)]).body, "planner", 0)
    assert isinstance(found, InputRefused)
    assert found.field == "propose.after"
