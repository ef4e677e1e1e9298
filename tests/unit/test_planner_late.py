"""Plans that follow late tasks and chains without gaps, and why a plan keeps more than it needs."""

import pytest

from tests.builders import ended, finished, registered, reservation, started
from tests.planner_cell import Cell, answers
from tests.unit.test_planner_progress import MINUTE, cell, flat, under


def late_alone(lasts=10, window=60, lease=1, **more):
    """A reservation of 10 minutes from minute 1 on, whose only task has begun a minute early and is late from minute
    10 on."""
    story = cell(flat(h=1, work=10, window=window, lease=lease), **more)
    return story.then(under(tasks=1, lasts=lasts * MINUTE), started("j/s", at=0))


def test_leases_go_on_step_by_step_while_the_only_task_runs_late():
    story = late_alone()
    ends = []
    for minute in range(10, 20):
        story.round(at=minute * MINUTE)
        ends.append(max(end for _, end, _ in story.promised["r"]))
    assert ends == [12, 13, 14, 15, 16, 17, 18, 19, 20, 21]  # To twice the work, not more.

    assert "the most that a promise grows to, leaves nothing" in story.round(at=20 * MINUTE).answers[0].detail
    assert story.round(at=21 * MINUTE).gone == ["r"]


def test_what_was_promised_to_a_late_task_alone_is_given_back_when_it_ends():
    story = late_alone()
    for minute in range(10, 14):
        story.round(at=minute * MINUTE)
    story.then(finished("j/s", at=14 * MINUTE - 1, run_ms=14 * MINUTE), ended("j", at=14 * MINUTE - 1))

    assert story.round(at=14 * MINUTE).gone == ["r"]


def test_a_late_task_keeps_what_it_holds_of_a_plan_that_is_not_due_yet():
    story = Cell(registered("n1", cpu=8_000), reservation_agent="gree")
    story.then(reservation("r", flat(h=2, work=10, lease=5)))
    story.settle(at=0)
    assert story.promised == {"r": [(55, 60, 2)]}
    story.then(under(tasks=1, lasts=MINUTE), started("j/s", at=MINUTE))
    story.then(
        under("k", tasks=1, lasts=8 * MINUTE), started("k/s", at=MINUTE), finished("k/s", at=9 * MINUTE), ended("k")
    )
    kept = []
    for minute in (10, 30, 50):
        story.round(at=minute * MINUTE)
        kept.append(story.promised["r"])

    assert kept == [[(55, 60, 1)]] * 3  # What nobody needs any more is given back, and not what the late task may.


def test_a_lease_that_ended_before_its_task_was_late_begins_again():
    story = cell(flat(h=1, work=10))
    story.then(under(tasks=1, lasts=10 * MINUTE), started("j/s", at=MINUTE))
    assert not answers(story.round(at=10 * MINUTE))

    body = story.round(at=11 * MINUTE)

    assert answers(body) == {"r": "behind"}
    assert story.promised == {"r": [(1, 11, 1), (12, 13, 1)]}


@pytest.mark.parametrize(
    ("window", "blocked"),
    [pytest.param(11, False, id="the window ends"), pytest.param(60, True, id="others are there")],
)
def test_where_a_late_task_finds_no_room_the_record_says_so_and_the_promise_ends(window, blocked):
    story = late_alone(window=window, cores=1)
    if blocked:
        story.then(reservation("other", "window(11m, 60m, atom(b='1 cpu', g=1, h=1, l=49m, w=49m))"))
        story.settle(at=0)

    body = story.round(at=10 * MINUTE)

    assert answers(body) == {"r": "behind"}
    assert "60 unit-seconds more than planned, and its window has no room for them" in body.answers[0].detail
    assert story.promised["r"] == [(1, 11, 1)]
    gone = story.round(at=11 * MINUTE)
    assert gone.gone == ["r"]


def test_of_many_units_only_as_many_are_kept_on_as_tasks_run_late():
    story = cell(flat(h=4, work=40))
    story.then(under(tasks=4, lasts=10 * MINUTE), started("j/s", 0, 4, at=0))
    story.then(finished("j/s", 0, 3, at=9 * MINUTE, run_ms=9 * MINUTE))

    story.round(at=10 * MINUTE)

    assert story.promised == {"r": [(1, 11, 3), (1, 12, 1)]}


def test_tasks_that_end_when_the_last_lease_does_keep_nothing():
    story = cell(flat(h=1, work=10))
    story.then(under(tasks=1, lasts=10 * MINUTE), started("j/s", at=MINUTE))
    story.then(finished("j/s", at=11 * MINUTE, run_ms=10 * MINUTE), ended("j", at=11 * MINUTE))

    assert story.round(at=11 * MINUTE).gone == ["r"]


def chain(*works, window=60):
    links = ", ".join(f"atom(b='1 cpu', g=1, h=1, l=1m, w={work}m)" for work in works)
    return f"window(0, {window}m, order_no_gap({links}))"


def first_of(story, done, at, lasts=MINUTE):
    """The job of the first part has done so many tasks of 10 by then, and goes on."""
    story.then(under(tasks=10, part="0"), started("j/s", 0, done, at=0))
    return story.then(finished("j/s", 0, done, at=at, run_ms=lasts))


def test_behind_a_part_that_is_ahead_the_parts_of_an_order_without_gaps_move_up():
    story = first_of(cell(chain(10, 10, 5)), done=8, at=MINUTE)

    body = story.round(at=MINUTE)

    assert story.promised == {"r": [(1, 3, 1), (3, 13, 1), (13, 18, 1)]}
    assert "480 are given back" in body.answers[0].detail


def test_of_the_last_part_of_an_order_without_gaps_the_end_is_given_back():
    story = cell(chain(2, 10))
    story.then(under(tasks=10, part="1"), started("j/s", 0, 8, at=3 * MINUTE))
    story.then(finished("j/s", 0, 8, at=4 * MINUTE, run_ms=MINUTE))

    story.round(at=4 * MINUTE)

    assert story.promised == {"r": [(1, 3, 1), (3, 6, 1)]}


def test_behind_a_slow_part_the_parts_of_an_order_without_gaps_move_back():
    story = cell(chain(10, 10))
    story.then(under(tasks=10, part="0"), started("j/s", at=MINUTE))
    story.then(finished("j/s", at=3 * MINUTE, run_ms=2 * MINUTE), started("j/s", 1, at=3 * MINUTE))

    assert answers(story.round(at=3 * MINUTE)) == {"r": "behind"}
    assert story.promised == {"r": [(1, 21, 1), (21, 31, 1)]}


def test_the_parts_of_an_order_without_gaps_move_back_as_far_as_their_window_has_room():
    story = cell(chain(10, 10, window=24))
    story.then(under(tasks=10, part="0"), started("j/s", at=MINUTE))
    story.then(finished("j/s", at=3 * MINUTE, run_ms=2 * MINUTE), started("j/s", 1, at=3 * MINUTE))

    body = story.round(at=3 * MINUTE)

    (_, first_end, _), (second, _, _) = story.promised["r"]
    assert first_end == second == 13  # Of 10 minutes that lack, 2: a half, a half of that, ...
    assert "its window has no room to move the parts of an order without gaps as a whole" in body.answers[0].detail


def test_where_an_order_without_gaps_cannot_move_as_a_whole_nothing_of_it_does_and_the_record_says_why():
    story = cell(chain(10, 10), cores=1)
    story.then(reservation("other", "window(21m, 60m, atom(b='1 cpu', g=1, h=1, l=39m, w=39m))"))
    story.settle(at=0)
    story.then(under(tasks=10, part="0"), started("j/s", at=MINUTE))
    story.then(finished("j/s", at=3 * MINUTE, run_ms=2 * MINUTE), started("j/s", 1, at=3 * MINUTE))

    body = story.round(at=3 * MINUTE)

    assert story.promised["r"] == [(1, 11, 1), (11, 21, 1)]
    assert "its window has no room to move the parts of an order without gaps as a whole for" in body.answers[0].detail


def test_a_part_that_is_ahead_keeps_its_end_where_the_parts_behind_it_cannot_begin_sooner():
    later = "window(11m, 60m, atom(b='1 cpu', g=1, h=1, l=10m, w=10m))"
    story = cell(f"window(0, 60m, order_no_gap(atom(b='1 cpu', g=1, h=1, l=1m, w=10m), {later}))")
    assert story.promised == {"r": [(1, 11, 1), (11, 21, 1)]}
    first_of(story, done=8, at=MINUTE)

    body = story.round(at=MINUTE)

    assert story.promised == {"r": [(1, 11, 1), (11, 21, 1)]}
    assert (
        "an order without gaps moves as a whole, and the parts behind it cannot begin sooner" in body.answers[0].detail
    )


@pytest.mark.parametrize(
    ("lease", "done", "minute", "reason"),
    [
        pytest.param(10, 80, 2, "its leases have to last 600 s (l)", id="the lease"),
        pytest.param(1, 28, 3, "a step of a unit (60 unit-seconds) is the least that can be given back", id="the step"),
        pytest.param(1, 99, 10, "what is left of its leases ends with the step that has begun", id="the last step"),
    ],
)
def test_a_plan_that_keeps_more_than_it_needs_says_why(lease, done, minute, reason):
    story = cell(flat(h=1, lease=lease, work=10))
    story.then(under(tasks=100, lasts=6_000), started("j/s", 0, done, at=MINUTE))
    story.then(finished("j/s", 0, done, at=minute * MINUTE, run_ms=6_000))

    body = story.round(at=minute * MINUTE)

    assert body.answers[0].detail.endswith(f"than planned: {reason}")
    assert story.promised == {"r": [(1, 11, 1)]}


def test_a_plan_that_gives_back_a_part_says_why_the_rest_stays():
    story = cell(flat(h=1, lease=6, work=12))
    story.then(under(tasks=12), started("j/s", 0, 10, at=MINUTE), finished("j/s", 0, 10, at=2 * MINUTE, run_ms=MINUTE))

    reason = "360 are given back; the rest stays: its leases have to last 360 s (l)"
    assert story.round(at=2 * MINUTE).answers[0].detail.endswith(reason)
