"""What the planner does about its promises when capacity is lost."""

import pytest

from tests.builders import (
    drained,
    node_lost,
    registered,
    reservation,
)
from tests.planner_cell import HOUR, MINUTE, Cell, answers, flat, two_nodes


def told(cell, name):
    """Why a promise is broken, as the last plan says it."""
    (answer,) = [answer for answer in cell.plans[-1].answers if (answer.reservation, answer.reason) == (name, "broken")]
    first, what, last = answer.detail.replace("capacity: ", "capacity; ").split("; ")
    assert (first, last) == ("the cell has lost capacity", "no plan that was tried keeps all promises")
    return what


def test_what_breaks_a_promise_names_the_part_and_the_resource():
    """Of two atoms in order only the second has too little room then."""
    cell = two_nodes(reservation_check_ms=HOUR)
    first, then = "atom(b='1 cpu', g=1, h=1, l=10m, w=10m)", "atom(b='3 cpu', g=2, h=2, l=40m, w=80m)"
    cell.then(reservation("r", f"window(0, 1h, order({first}, {then}))"))
    cell.settle(at=0)
    assert "r" in cell.promised
    cell.then(node_lost("n1"))

    assert mended(cell, at=1_000)["r"] == "broken"
    assert told(cell, "r") == "too little cpu is left for the leases of its atom 1"


@pytest.mark.parametrize("lose", [node_lost, drained])
def test_promises_move_to_where_less_capacity_holds_them(lose):
    cell = two_nodes(reservation_agent="early")
    cell.then(reservation("a", flat(cores=4, minutes=20)), reservation("b", flat(cores=4, minutes=20)))
    cell.settle(at=0)
    cell.then(lose("n2"))

    body = cell.round(at=1_000)

    assert set(answers(body).values()) == {"moved"}
    assert not body.gone
    taken = sorted(span for mine in cell.promised.values() for span in mine)
    assert len(taken) == 2
    assert taken[0][1] <= taken[1][0]


def test_the_least_is_lost_where_not_all_promises_can_be_kept():
    cell = two_nodes()
    cell.then(reservation("long", flat(cores=4, minutes=55)), reservation("short", flat(cores=3, minutes=30)))
    cell.settle(at=0)
    cell.then(node_lost("n1"))

    assert mended(cell, at=1_000)["short"] == "broken"
    assert told(cell, "short") == "too little cpu is left for the leases of its atom 0"
    assert cell.plans[-1].gone == ["short"]
    assert list(cell.promised) == ["long"]


def test_a_promise_that_is_far_off_is_not_broken_before_it_must_be():
    cell = two_nodes(reservation_check_ms=HOUR)
    cell.then(reservation("far", "window(10h, 11h, atom(b='4 cpu', g=2, h=2, l=50m, w=100m))"))
    cell.settle(at=0)
    cell.then(node_lost("n1"))

    body = cell.round(at=1_000)
    assert body is not None
    assert not body.gone
    wake_ms = body.wake_ms
    assert wake_ms is not None
    assert 8 * HOUR < wake_ms <= 9 * HOUR + 10 * MINUTE
    cell.then(registered("n1", epoch="e2", cpu=4_000))
    cell.round(at=wake_ms)
    assert "far" in cell.promised


def test_a_promise_that_is_far_off_is_broken_once_it_is_near():
    cell = two_nodes(reservation_check_ms=HOUR)
    cell.then(reservation("far", "window(10h, 11h, atom(b='4 cpu', g=2, h=2, l=50m, w=100m))"))
    cell.settle(at=0)
    cell.then(node_lost("n1"))
    wake_ms = cell.round(at=1_000).wake_ms
    assert cell.round(at=wake_ms).gone == ["far"]


def test_a_lease_that_runs_is_cut_short_rather_than_a_promise_broken():
    cell = two_nodes(reservation_agent="early")
    cell.then(reservation("wide", "window(0, 1h, atom(b='1 cpu', g=1, h=8, l=1m, w=160m))"))
    cell.settle(at=0)
    assert cell.promised == {"wide": [(1, 21, 8)]}
    cell.then(node_lost("n1"))

    body = cell.round(at=10 * MINUTE)

    assert answers(body) == {"wide": "moved"}
    assert sum((end - begin) * gangs for begin, end, gangs in cell.promised["wide"]) >= 160


# ---------------------------------------------------------------- losses that only nodes show
def uneven(*facts, **knobs):
    """Two nodes that hold a unit of 6 cores and two that do not."""
    sizes = {"big-1": 8_000, "big-2": 8_000, "small-1": 4_000, "small-2": 4_000}
    return Cell(*(registered(name, cpu=cores) for name, cores in sizes.items()), **knobs).then(*facts)


def mended(cell, at):
    """What a repair tells, however many rounds it takes."""
    for _ in range(1_000):
        body = cell.round(at)
        if body is not None and body.answers:
            return answers(body)
    raise AssertionError("the planner does not come to an end")


def test_a_loss_that_leaves_enough_cores_but_not_on_nodes_moves_what_does_not_fit():
    cell = uneven(reservation("r", "window(0, 1h, atom(b='6 cpu', g=1, h=2, l=10m, w=20m))"), reservation_agent="early")
    cell.settle(at=0)
    assert cell.promised == {"r": [(1, 11, 2)]}

    assert mended(cell.then(node_lost("big-1")), at=1_000) == {"r": "moved"}

    widths = {step: sum(n for a, b, n in cell.promised["r"] if a <= step < b) for step in range(60)}
    assert max(widths.values()) == 1
    assert sum(widths.values()) == 20


def test_a_gang_that_fits_no_nodes_any_more_is_broken_and_the_others_stay():
    gang = reservation("gang", "window(0, 1h, atom(b='6 cpu', g=2, h=2, l=10m, w=20m))")
    cell = uneven(gang, reservation("alone", "window(0, 1h, atom(b='6 cpu', g=1, h=1, l=10m, w=10m))"))
    cell.settle(at=0)
    assert cell.promised.keys() == {"gang", "alone"}

    assert mended(cell.then(node_lost("big-1")), at=1_000)["gang"] == "broken"
    assert told(cell, "gang") == "no node has room for all units of its atom 0"
    assert cell.promised.keys() == {"alone"}


def test_what_fits_no_nodes_later_is_mended_when_it_comes_near():
    cell = uneven(
        reservation("r", "window(5h, 6h, atom(b='6 cpu', g=1, h=2, l=10m, w=20m))"),
        reservation_agent="early",
        reservation_check_ms=HOUR,
    )
    cell.settle(at=0)
    cell.then(node_lost("big-1"))
    body = cell.round(at=1_000)
    assert not body.answers
    assert body.wake_ms == 4 * HOUR
    assert mended(cell, at=4 * HOUR) == {"r": "moved"}


def test_nodes_that_come_back_in_time_leave_a_promise_where_it_was():
    cell = uneven(
        reservation("r", "window(5h, 6h, atom(b='6 cpu', g=1, h=2, l=10m, w=20m))"), reservation_agent="early"
    )
    cell.settle(at=0)
    before = cell.promised
    cell.then(node_lost("big-1"))
    cell.round(at=1_000)
    cell.then(registered("big-1", cpu=8_000))
    cell.round(at=2_000)
    cell.round(at=5 * HOUR - MINUTE)
    assert cell.promised == before


def test_a_request_is_planned_no_wider_than_the_nodes_hold_its_units():
    cell = uneven(reservation("r", "window(0, 1h, atom(b='5 cpu', g=1, h=4, l=5m, w=20m))"))
    assert answers(cell.settle(at=0)) == {"r": "accepted"}
    widths = {step: sum(n for a, b, n in cell.promised["r"] if a <= step < b) for step in range(60)}
    assert max(widths.values()) <= 2


def test_a_request_gets_narrower_where_others_leave_its_units_fewer_nodes():
    beside = reservation("beside", "window(0, 1h, atom(b='5 cpu', g=1, h=1, l=59m, w=59m))")
    cell = uneven(beside, reservation("r", "window(0, 1h, atom(b='5 cpu', g=1, h=2, l=5m, w=20m))"))
    assert answers(cell.settle(at=0)) == {"beside": "accepted", "r": "accepted"}
    assert {gangs for _, _, gangs in cell.promised["r"]} == {1}
