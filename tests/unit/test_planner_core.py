"""The planner's core: what it answers to requests, and what it promises."""

from importlib import import_module

import pytest

from largesse.lifecycle.promises import earlier_parts
from schemas.plans import AtomOrder
from tests.builders import (
    configured,
    registered,
    reservation,
    reservation_delete,
    reservation_update,
)
from tests.planner_cell import HOUR, MINUTE, Cell, answers, flat, two_nodes

DECISION = import_module("services.planner.core.decide")  # The module: the package has a function of that name.


def test_a_request_is_answered_in_the_next_round_with_its_whole_plan():
    cell = Cell(reservation_agent="early")
    cell.then(registered("n1", cpu=8_000), reservation("r", "window(0, 1h, atom(b='1 cpu', g=4, h=8, l=5m, w=80m))"))

    body = cell.round(at=1_000)

    assert answers(body) == {"r": "accepted"}
    (profile,) = body.profiles
    assert (profile.reservation, profile.queue) == ("r", "default")
    (step,) = profile.steps
    assert (step.from_ms, step.to_ms, step.units, step.gang, step.atom) == (MINUTE, 11 * MINUTE, 8, 4, "0")
    assert (step.unit, step.usage) == ({"cpu": 1_000}, {"cpu": 8_000})
    assert body.wake_ms == MINUTE


def test_nothing_is_planned_before_the_next_step():
    cell = Cell(reservation_agent="early").then(reservation("r", flat()))
    cell.round(at=5 * MINUTE + 1)
    assert cell.promised == {"r": [(6, 16, 1)]}


def test_a_rejected_request_is_told_what_would_be_accepted():
    cell = Cell().then(reservation("a", flat(cores=8, minutes=50)), reservation("b", flat(cores=8, minutes=30)))

    body = cell.settle(at=0)

    assert answers(body) == {"a": "accepted", "b": "no_room"}
    answer = body.answers[1]
    assert (answer.offer_from_ms, answer.offer_to_ms) == (MINUTE, 81 * MINUTE)
    cell.then(reservation("b", "window(1m, 81m, atom(b='8 cpu', g=1, h=1, l=30m, w=30m))"))
    assert answers(cell.settle(at=0)) == {"b": "accepted"}


@pytest.mark.parametrize(
    ("gang", "said"), [(20, "g=8, h=8 and 40.0 % of w for atom 0"), (9, "g=8, h=8 and 88.8 % of w for atom 0")]
)
def test_an_offer_of_a_size_says_it_as_a_request_is_written_and_is_accepted(gang, said):
    """Eight cores; what is offered may be rounded, but never to what was refused."""

    def asked(name, gang):
        atom = f"atom(b='1 cpu', g={gang}, h={gang}, l=5m, w={5 * gang}m)"
        return Cell().then(reservation(name, f"window(0, 60m, {atom})")).settle(at=0).answers[0]

    answer = asked("r", gang)

    assert (answer.accepted, answer.detail.split("; it would be accepted with ")[1]) == (False, said)
    assert asked("s", 8).accepted


@pytest.mark.parametrize(
    ("rdl", "reason"),
    [
        pytest.param("window(0, 1h, atom(b='9 cpu', g=1, h=1, l=1m, w=1m))", "invalid", id="a unit above the cell"),
        pytest.param("window(0, 1h, atom(b='1 gpu', g=1, h=1, l=1m, w=1m))", "invalid", id="an unknown resource"),
        pytest.param("window(0, 1h, atom(b='1 cpu', g=1, h=1, l=2h, w=2h))", "invalid", id="a window too short"),
        pytest.param("window(0, 2m, atom(b='1 cpu', g=1, h=1, l=1m, w=1m))", "too_late", id="a window that is over"),
        pytest.param("window(9d, 10d, atom(b='1 cpu', g=1, h=1, l=1m, w=1m))", "horizon", id="beyond the horizon"),
    ],
)
def test_what_can_never_be_kept_is_refused_with_its_reason(rdl, reason):
    cell = Cell().then(reservation("r", rdl))
    body = cell.settle(at=10 * MINUTE)
    assert answers(body) == {"r": reason}
    assert body.answers[0].detail
    assert not body.profiles
    assert not cell.promised


def test_amounts_in_reasons_are_written_as_people_write_them():
    cell = Cell().then(reservation("r", "window(0, 1h, atom(b='9 cpu', g=1, h=1, l=1m, w=1m))"))
    assert "asks for 9 of cpu, the cell has 8" in cell.settle(at=0).answers[0].detail


def test_deleting_leaves_no_trace():
    cell = Cell().then(reservation("a", flat(cores=4)))
    cell.settle(at=0)
    before = cell.promised
    cell.then(reservation("b", flat(cores=2)), reservation_delete("b"))

    body = cell.settle(at=0)

    assert [(answer.reservation, answer.reason) for answer in body.answers] == [("b", "unknown"), ("b", "deleted")]
    assert cell.promised == before
    cell.then(reservation_delete("a"))
    assert cell.settle(at=0).gone == ["a"]
    assert not cell.promised
    assert cell.story.state.plan.book.used.most(0, 1_000) == [0, 0]


def test_an_update_does_not_count_what_it_replaces():
    cell = Cell().then(reservation("a", flat(cores=6, minutes=59)))
    cell.settle(at=0)
    cell.then(reservation_update("a", flat(cores=8, minutes=59)))
    assert answers(cell.settle(at=0)) == {"a": "accepted"}


def test_a_rejected_update_leaves_the_promise_as_it_was():
    cell = Cell().then(reservation("a", flat(cores=6)), reservation("b", flat(cores=2, minutes=59)))
    cell.settle(at=0)
    before = cell.promised
    cell.then(reservation_update("a", flat(cores=7, minutes=59)))

    body = cell.settle(at=0)

    assert answers(body) == {"a": "no_room"}
    assert not body.gone
    assert cell.promised == before


def test_a_promise_that_is_over_is_forgotten_and_that_is_told():
    cell = Cell(reservation_agent="early").then(reservation("r", flat()))
    assert cell.round(at=0).wake_ms == MINUTE
    assert cell.round(at=MINUTE).wake_ms == 11 * MINUTE
    assert cell.round(at=5 * MINUTE) is None

    body = cell.round(at=11 * MINUTE)

    assert (body.gone, body.wake_ms) == (["r"], None)
    assert not cell.story.state.promises
    assert cell.round(at=12 * MINUTE) is None


def test_what_has_begun_does_not_move():
    cell = Cell().then(reservation("a", flat(cores=8, minutes=20)))
    cell.settle(at=0)
    assert cell.promised == {"a": [(1, 21, 1)]}
    rival = "window(0, 25m, atom(b='8 cpu', g=1, h=1, l=20m, w=20m))"
    cell.then(reservation("b", rival))
    assert answers(cell.settle(at=2 * MINUTE)) == {"b": "no_room"}


def test_what_is_to_come_moves_for_a_request_that_needs_its_place():
    cell = Cell(reservation_agent="default").then(reservation("a", flat(cores=8, minutes=20)))
    cell.settle(at=0)
    cell.then(reservation("b", "window(0, 25m, atom(b='8 cpu', g=1, h=1, l=20m, w=20m))"))

    body = cell.settle(at=0)

    assert answers(body) == {"b": "accepted", "a": "moved"}
    assert [profile.reservation for profile in body.profiles] == ["a", "b"]


def test_links_of_an_order_say_what_they_come_after():
    rdl = "window(0, 1h, order(atom(b='1 cpu',g=1,h=1,l=5m,w=5m), any(atom(b='9 cpu',g=1,h=1,l=5m,w=5m), "
    rdl += "atom(b='1 cpu',g=1,h=1,l=5m,w=5m)), atom(b='1 cpu',g=1,h=1,l=5m,w=5m)))"
    body = Cell().then(reservation("r", rdl)).settle(at=0)
    assert [(each.atom, each.after) for each in body.profiles[0].order] == [("1.1", ["0"]), ("2", ["1.1"])]


@pytest.mark.parametrize(
    ("body", "entries"),
    [
        pytest.param("order({})", 39, id="one after the other"),
        pytest.param("order(all({}), all({}))", 1, id="all after all"),
        pytest.param("order_no_gap(order({}), all({}))", 40, id="nested"),
    ],
)
def test_what_comes_after_what_takes_as_much_as_the_request(body, entries):
    atoms = ", ".join(["atom(b='10m cpu', g=1, h=1, l=1m, w=1m)"] * 40)
    found = Cell().then(reservation("r", f"window(0, 5h, {body.replace('{}', atoms)})")).settle(at=0)
    order = found.profiles[0].order
    assert len(order) == entries
    assert all(len(each.after) == 1 for each in order)


def test_what_comes_before_a_part_is_all_that_comes_before_it():
    order = [AtomOrder("1", ["0"]), AtomOrder("2", ["1"]), AtomOrder("2.1", ["2.0"]), AtomOrder("3", ["2"])]
    assert earlier_parts(order, "0.4") == []
    assert sorted(earlier_parts(order, "2")) == ["0", "1"]
    assert sorted(earlier_parts(order, "2.1.7")) == ["0", "1", "2.0"]
    assert sorted(earlier_parts(order, "3")) == ["0", "1", "2"]
    in_full = [AtomOrder("1.1", ["0"]), AtomOrder("2", ["0", "1.1"])]  # As logs of earlier versions have it.
    assert sorted(earlier_parts(in_full, "2")) == ["0", "1.1"]


def test_no_more_requests_are_answered_in_a_round_than_the_knob_says():
    cell = Cell(reservations_per_round_max=2)
    cell.then(*(reservation(f"r{i}", flat()) for i in range(5)))
    assert [len(cell.round(at=0).answers) for _ in range(3)] == [2, 2, 1]


def test_planning_that_takes_long_goes_on_in_later_rounds(monkeypatch):
    rdl = "window(0, 10h, all(" + ", ".join(["atom(b='100m cpu', g=1, h=4, l=10m, w=100m)"] * 40) + "))"
    cell = Cell().then(reservation("a", rdl))
    whole = cell.settle(at=0)
    monkeypatch.setattr(DECISION, "WORK_MAX", 200)
    slow = Cell().then(reservation("a", rdl))

    rounds = []
    while slow.story.state.waiting:
        rounds.append(slow.round(at=0))

    assert len(rounds) > 5
    assert not rounds[0].answers
    assert slow.promised == cell.promised
    assert [answer for body in rounds for answer in body.answers] == whole.answers


def test_a_step_of_time_that_passes_begins_a_long_search_anew(monkeypatch):
    monkeypatch.setattr(DECISION, "WORK_MAX", 200)
    rdl = "window(0, 10h, all(" + ", ".join(["atom(b='100m cpu', g=1, h=4, l=10m, w=100m)"] * 20) + "))"
    cell = Cell(reservation_agent="early").then(reservation("a", rdl))
    assert not cell.round(at=0).answers
    cell.settle(at=3 * MINUTE)
    assert min(begin for begin, _, _ in cell.promised["a"]) == 4


def test_a_queue_is_promised_no_more_than_its_limits():
    cell = Cell(reservation_instant_permille=500)
    cell.then(
        reservation("a", flat(cores=4, minutes=55), queue="ads"),
        reservation("b", flat(cores=1, minutes=10), queue="ads"),
        reservation("c", flat(cores=4, minutes=55), queue="web"),
    )
    assert answers(cell.settle(at=0)) == {"a": "accepted", "b": "no_room", "c": "accepted"}


def test_a_queue_is_promised_no_more_on_average_than_its_limit():
    cell = Cell(reservation_average_permille=100, reservation_average_ms=HOUR)
    cell.then(reservation("a", flat(cores=8, minutes=7)), reservation("b", flat(cores=4, minutes=10)))
    assert answers(cell.settle(at=0)) == {"a": "limit", "b": "accepted"}


def test_part_of_the_capacity_is_never_promised():
    cell = Cell(reservation_best_effort_permille=250)
    cell.then(reservation("a", flat(cores=7)), reservation("b", flat(cores=6)))
    assert answers(cell.settle(at=0)) == {"a": "invalid", "b": "accepted"}


def test_nothing_is_promised_where_reservations_are_off():
    cell = Cell(reservations="off").then(reservation("a", flat()))
    assert answers(cell.settle(at=0)) == {"a": "off"}


def test_the_step_changes_only_once_nothing_is_promised():
    cell = Cell(reservation_agent="early").then(reservation("r", flat()))
    cell.settle(at=0)
    cell.then(configured(reservation_agent="early", reservation_step_ms=10_000))
    cell.round(at=0)
    assert cell.story.state.step_ms == MINUTE
    cell.then(reservation_delete("r"))
    cell.settle(at=0)
    cell.then(reservation("s", flat()))
    cell.settle(at=0)
    assert cell.promised == {"s": [(1, 61, 1)]}
    assert cell.story.state.step_ms == 10_000


def test_a_unit_has_to_fit_on_a_node():
    cell = two_nodes().then(reservation("r", flat(cores=6)))
    body = cell.settle(at=0)
    assert answers(body) == {"r": "invalid"}
    assert "room for 0 units" in body.answers[0].detail


def test_units_of_several_reservations_have_to_fit_on_the_nodes_together():
    cell = two_nodes()
    wide = "window(0, 30m, atom(b='3 cpu', g=2, h=2, l=25m, w=50m))"
    cell.then(reservation("a", wide), reservation("b", flat(cores=2, minutes=25, window=30)))
    assert answers(cell.settle(at=0)) == {"a": "accepted", "b": "no_room"}
    cell.then(reservation("c", "window(0, 30m, atom(b='1 cpu', g=2, h=2, l=25m, w=50m))"))
    assert answers(cell.settle(at=0)) == {"c": "accepted"}
