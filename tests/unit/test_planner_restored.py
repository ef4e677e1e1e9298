"""A promise that was broken by a loss of capacity is tried again until its window ends."""

import pytest

from schemas.plans import PlanAnswer
from services.planner.core.broken import RETRIES_MAX
from tests.builders import configured, node_lost, registered, reservation, reservation_delete, reservation_update
from tests.planner_cell import HOUR, MINUTE, Cell, answers, flat, two_nodes

WIDE = "window(0, 2h, atom(b='4 cpu', g=2, h=2, l=20m, w=40m))"
"""Takes both nodes of `two_nodes` for 20 minutes."""


def quiet(cell, at):
    """Rounds until nothing is new; the last plan that told something."""
    told = None
    for _ in range(1_000):
        body = cell.round(at)
        if body is None:
            return told
        told = body if body.answers or body.gone else told
    raise AssertionError("the planner does not come to an end")


def back(name="n1"):
    return registered(name, epoch="e2", cpu=4_000)


def broken(rdl=WIDE, at=1_000, **knobs):
    """A cell that has lost a node, and with it the promise `r`."""
    cell = two_nodes(reservation_agent="early", **knobs).then(reservation("r", rdl))
    cell.settle(at=0)
    assert "r" in cell.promised
    cell.then(node_lost("n1"))
    return cell, quiet(cell, at)


def test_a_broken_promise_says_until_when_it_is_tried_again():
    cell, body = broken()
    (answer,) = body.answers
    assert (answer.reason, answer.retry_until_ms) == ("broken", 2 * HOUR)
    assert body.gone == ["r"]
    assert body.wake_ms == 2 * HOUR
    assert not cell.promised


def test_it_holds_again_once_the_capacity_is_back():
    cell, _ = broken()
    body = quiet(cell.then(back()), at=30 * MINUTE)
    (answer,) = body.answers
    assert (answer.reservation, answer.accepted, answer.reason) == ("r", True, "moved")
    assert "after it was broken" in answer.detail
    assert cell.promised == {"r": [(31, 51, 1)]}
    assert not cell.story.state.broken


def test_what_was_over_before_it_broke_counts():
    """Of 40 minutes in leases of at least 10, 15 were over."""
    rdl = "window(0, 2h, atom(b='4 cpu', g=2, h=2, l=10m, w=80m))"
    cell, _ = broken(rdl, at=15 * MINUTE)
    assert quiet(cell.then(back()), at=30 * MINUTE).answers[0].reason == "moved"
    (first, again) = cell.promised["r"]
    assert first == (1, 16, 1)
    assert again == (31, 56, 1)


def test_a_lease_that_was_cut_too_short_counts_for_nothing():
    cell, _ = broken(at=15 * MINUTE)
    quiet(cell.then(back()), at=30 * MINUTE)
    assert cell.promised == {"r": [(31, 51, 1)]}


@pytest.mark.parametrize(
    ("rdl", "at"),
    [
        pytest.param("window(0, 30m, atom(b='4 cpu', g=2, h=2, l=20m, w=40m))", 15 * MINUTE, id="no time is left"),
        pytest.param(
            "window(0, 2h, order_no_gap(atom(b='4 cpu', g=2, h=2, l=5m, w=10m),"
            " atom(b='4 cpu', g=2, h=2, l=20m, w=40m)))",
            10 * MINUTE,
            id="what follows without a gap",
        ),
    ],
)
def test_what_can_never_hold_again_is_given_up_at_once(rdl, at):
    cell, body = broken(rdl, at=at)
    assert [answer.retry_until_ms for answer in body.answers] == [None]
    assert not cell.story.state.broken


def test_after_its_window_it_is_gone():
    cell, _ = broken()
    body = quiet(cell, at=2 * HOUR)
    assert body.gone == ["r"]
    assert not cell.story.state.broken
    assert quiet(cell.then(back()), at=2 * HOUR + MINUTE) is None


def test_too_little_capacity_leaves_it_broken_and_says_what_it_was_tried_for():
    cell, body = broken()
    why = body.answers[0].detail
    body = quiet(cell.then(registered("n3", cpu=2_000)), at=2 * MINUTE)
    (answer,) = body.answers
    assert (answer.reason, answer.retry_until_ms) == ("broken", 2 * HOUR)
    assert answer.detail.startswith(f"{why}; tried again: ")
    assert not body.gone
    assert "r" in cell.story.state.broken
    assert quiet(cell.then(back()), at=3 * MINUTE).answers[0].reason == "moved"


def test_room_that_another_gives_back_restores_it():
    cell = two_nodes(reservation_agent="early")
    cell.then(reservation("a", flat(cores=4, minutes=55)), reservation("b", flat(cores=3, minutes=30)))
    cell.settle(at=0)
    cell.then(node_lost("n1"))
    assert "b" not in cell.promised or quiet(cell, at=1_000)
    quiet(cell, at=1_000)
    assert list(cell.promised) == ["a"]

    cell.then(reservation_delete("a"))
    quiet(cell, at=2_000)
    assert list(cell.promised) == ["b"]


def test_who_has_taken_the_room_meanwhile_keeps_it():
    cell, _ = broken("window(0, 1h, atom(b='4 cpu', g=2, h=2, l=50m, w=100m))")
    cell.then(reservation("other", flat(cores=4, minutes=55)))
    quiet(cell, at=1_000)
    before = cell.promised
    assert list(before) == ["other"]
    quiet(cell.then(back()), at=2_000)
    assert cell.promised == before


def test_its_owner_gives_it_back():
    cell, _ = broken()
    assert answers(quiet(cell.then(reservation_delete("r")), at=2_000)) == {"r": "deleted"}
    assert quiet(cell.then(back()), at=MINUTE) is None
    assert not cell.promised


def test_other_terms_take_its_place():
    cell, _ = broken()
    assert answers(quiet(cell.then(reservation_update("r", flat())), at=2_000)) == {"r": "accepted"}
    assert len(cell.promised) == 1
    quiet(cell.then(back()), at=MINUTE)
    assert not cell.story.state.broken
    assert sum(end - begin for begin, end, _ in cell.promised["r"]) == 10


def test_other_terms_that_are_refused_leave_it_tried_again():
    cell, _ = broken()
    too_much = "window(0, 1h, atom(b='4 cpu', g=3, h=3, l=10m, w=30m))"
    assert answers(quiet(cell.then(reservation_update("r", too_much)), at=2_000)) == {"r": "invalid"}
    assert quiet(cell.then(back()), at=MINUTE).answers[0].reason == "moved"


def test_while_reservations_are_off_nothing_is_tried():
    cell, _ = broken()
    cell.then(configured(reservation_agent="early", reservations="off"), back())
    quiet(cell, at=2_000)
    assert not cell.promised
    cell.then(configured(reservation_agent="early"))
    quiet(cell, at=3_000)
    assert list(cell.promised) == ["r"]


def test_many_are_tried_in_turn():
    many = RETRIES_MAX + 5
    cell = Cell(registered("n1", cpu=many * 1_000), reservation_agent="early")
    cell.then(*(reservation(f"r{i:03}", flat(cores=1, minutes=50)) for i in range(many)))
    cell.settle(at=0)
    cell.then(node_lost("n1"))
    quiet(cell, at=1_000)
    assert len(cell.story.state.broken) == many
    cell.then(registered("n2", cpu=1_000))
    quiet(cell, at=2_000)
    assert list(cell.promised) == ["r000"]
    cell.then(registered("n3", cpu=1_000))
    quiet(cell, at=3_000)
    assert list(cell.promised) == ["r000", f"r{RETRIES_MAX:03}"]


def test_an_answer_of_before_names_no_time():
    assert PlanAnswer("r", accepted=False, reason="broken").retry_until_ms is None
