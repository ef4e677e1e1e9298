"""Requests that are hard to plan: they end, and they hold up neither others nor those that are given back."""

from importlib import import_module

import pytest

from services.planner.core import refusals, turns
from tests.builders import registered, reservation, reservation_delete, reservation_update
from tests.planner_cell import MINUTE, Cell, answers, flat

DECISION = import_module("services.planner.core.decide")
SMALL = flat(cores=1)


def hard(atoms=40, window=600):
    """In a cell that is nearly full, so that others are moved for it in vain."""
    one = "atom(b='3 cpu', g=1, h=1, l=20m, w=20m)"
    return f"window(0, {window}m, all({', '.join([one] * atoms)}))"


@pytest.fixture
def slow(monkeypatch):
    """A cell in which a round searches for little."""
    monkeypatch.setattr(DECISION, "WORK_MAX", 200)
    monkeypatch.setattr(refusals, "REQUEST_WORK_MAX", 10_000)
    return Cell(registered("n1", cpu=4_000))


def ended_at(cell, name, most=2_000):
    """The round in which a request was answered."""
    for number in range(most):
        body = cell.round(at=0)
        if body is not None and name in answers(body):
            return number
    raise AssertionError(f"{name} was not answered in {most} rounds")


def test_a_search_ends_in_an_answer_with_its_reason(slow, monkeypatch):
    monkeypatch.setattr(refusals, "REQUEST_WORK_MAX", 5_000)
    slow.then(reservation("before", flat(cores=1)))
    slow.settle(at=0)
    promised = slow.promised
    slow.then(reservation("r", hard()))

    assert ended_at(slow, "r") <= 5_000 // 200 + 1

    (answer,) = [each for body in slow.plans if body for each in body.answers if each.reservation == "r"]
    assert (answer.accepted, answer.reason) == (False, "no_room")
    assert "steps of search, which is what one request may take: ask for fewer atoms" in answer.detail
    assert slow.promised == promised
    slow.then(reservation_delete("before"))
    slow.settle(at=0)
    assert slow.story.state.plan.book.used.most(0, 1_000) == [0]


def test_new_terms_that_take_too_long_leave_the_old_ones(slow, monkeypatch):
    slow.then(reservation("r", SMALL))
    slow.settle(at=0)
    promised = slow.promised
    monkeypatch.setattr(refusals, "REQUEST_WORK_MAX", 3_000)
    slow.then(reservation_update("r", hard()))
    assert answers(slow.settle(at=0)) == {"r": "no_room"}
    assert slow.promised == promised


def test_a_search_that_each_new_step_ends_takes_less_each_time(slow, monkeypatch):
    monkeypatch.setattr(refusals, "REQUEST_WORK_MAX", 12_800)
    slow.then(reservation("r", hard()))
    for step in range(20):
        for _ in range(3):
            body = slow.round(at=step * MINUTE)
            if body is not None and answers(body):
                assert answers(body) == {"r": "no_room"}
                return
    raise AssertionError("it begins anew with every step")


def test_others_do_not_wait_for_a_hard_request(slow):
    slow.then(reservation("hard", hard()), *(reservation(f"r{i}", SMALL) for i in range(3)))
    rounds = [ended_at(slow, f"r{i}") for i in range(3)]
    assert sum(rounds) <= 2 * turns.SLICE_ROUNDS
    assert "hard" in {each.reservation for each in slow.story.state.waiting}
    slow.then(reservation("late", SMALL))
    assert ended_at(slow, "late") <= 2
    assert [each.reservation for each in slow.story.state.waiting] == ["hard"]
    slow.settle(at=0)


def test_a_stream_of_small_requests_does_not_keep_a_hard_one_for_ever(slow):
    slow.then(reservation("hard", hard()), reservation("r", SMALL))
    for number in range(1_000):
        body = slow.round(at=0)
        if body is not None and "hard" in answers(body):
            break
        if number % (turns.SLICE_ROUNDS * 4) == 0:
            slow.then(reservation(f"s{number}", flat(cores=1, minutes=1)))
            slow.then(reservation_delete(f"s{number}"))
    else:
        raise AssertionError("it was kept for ever")


def test_giving_a_hard_request_back_overtakes_its_search(slow):
    slow.then(reservation("hard", hard()), reservation("r", SMALL))
    for _ in range(3):
        slow.round(at=0)
    slow.then(reservation_delete("hard"))
    body = slow.round(at=0)
    found = [(answer.reservation, answer.reason) for answer in body.answers]
    assert found[:2] == [("hard", "unknown"), ("hard", "deleted")]
    assert list(slow.promised) == ["r"]
    assert not slow.story.state.waiting


def test_requests_for_one_reservation_are_answered_in_their_order(slow):
    slow.then(reservation("hard", hard()), reservation_update("hard", SMALL), reservation("r", SMALL))
    body = slow.settle(at=0)
    assert [answer.reservation for answer in body.answers if answer.reservation == "hard"] == ["hard", "hard"]
    assert body.answers[0].reservation == "r"


def test_a_planner_that_begins_anew_answers_the_same(slow):
    again = Cell(registered("n1", cpu=4_000))
    for cell in (slow, again):
        cell.then(reservation("hard", hard()), reservation("r", SMALL), reservation("gone", hard(40)))
    for number in range(400):
        bodies = [cell.round(at=0) for cell in (slow, again)]
        again.story.state.plan = None
        assert bodies[0] == bodies[1]
        if number == 12:
            for cell in (slow, again):
                cell.then(reservation_delete("gone"), reservation("late", SMALL))
        if not slow.story.state.waiting:
            break
    assert slow.promised == again.promised


def test_rounds_that_bring_nothing_are_paused(slow):
    slow.then(reservation("hard", hard()))
    bodies = [slow.round(at=1_000) for _ in range(DECISION.ROUNDS_AT_ONCE + 2)]
    assert [body.pauses for body in bodies] == [False] * DECISION.ROUNDS_AT_ONCE + [True] * 2
    assert bodies[-1].wake_ms == 1_000 + DECISION.PAUSE_MS
