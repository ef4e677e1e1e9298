"""The planner's core follows the progress of jobs: what they will not use is given back, what they lack is added."""

from dataclasses import replace

import pytest

from schemas import JobEnd, JobEnded
from schemas.jobs import JobSpec
from schemas.tasks import SpareAttempt
from services.planner.core.progress import GROWTH_MAX, LOOKS_MAX, units
from tests.builders import (
    Fact,
    admitted,
    ended,
    failed,
    finished,
    registered,
    reservation,
    reservation_delete,
    reservation_update,
    stage,
    started,
)
from tests.planner_cell import Cell, answers

MINUTE = 60_000


def cell(rdl, cores=8, **knobs):
    """A cell with reservation `r` accepted at time 0: plans are early, so the first lease begins in minute 1."""
    found = Cell(registered("n1", cpu=cores * 1_000), **{"reservation_agent": "early"} | knobs)
    found.then(reservation("r", rdl))
    assert answers(found.round(at=0)) == {"r": "accepted"}
    return found


def under(name="j", tasks=4, lasts=MINUTE, reservation="r", part="", **more):
    """A job of one stage under a reservation is admitted."""
    one = stage("s", tasks, duration_ms=lasts, **more)
    return admitted(JobSpec(name, "default", [one], reservation=reservation, reservation_atom=part))


def flat(h=1, work=10, window=60, lease=1, g=1, at=0):
    return f"window({at}m, {window}m, atom(b='1 cpu', g={g}, h={h}, l={lease}m, w={work}m))"


def test_work_that_was_done_sooner_than_planned_is_given_back():
    story = cell(flat(h=1, work=10))  # Minutes 1 to 11.
    story.then(under(tasks=10), started("j/s", 0, 8, at=1_000), finished("j/s", 0, 8, at=MINUTE, run_ms=MINUTE))

    body = story.round(at=MINUTE)

    assert answers(body) == {"r": "ahead"}
    assert story.promised == {"r": [(1, 3, 1)]}
    (profile,) = body.profiles
    assert [(each.atom, each.work_ms, each.missing_ms) for each in profile.progress] == [("0", 2 * MINUTE, 0)]
    assert "480 are given back" in body.answers[0].detail


def test_the_freed_room_is_promised_to_others_in_the_same_round():
    story = cell(flat(h=8, work=80, window=11))
    story.then(under(tasks=80), started("j/s", 0, 8, at=0), finished("j/s", 0, 72, at=MINUTE, run_ms=MINUTE))
    story.then(reservation("other", flat(h=8, work=64, window=11)))

    assert answers(story.settle(at=MINUTE)) == {"r": "ahead", "other": "accepted"}


def test_a_job_that_is_all_done_gives_its_promise_back():
    story = cell(flat(h=2, work=10))
    story.then(under(tasks=10), started("j/s", 0, 10, at=0), finished("j/s", 0, 10, at=MINUTE, run_ms=MINUTE))
    story.then(ended("j", at=MINUTE))

    body = story.round(at=MINUTE)

    assert body.gone == ["r"]
    assert answers(body) == {"r": "ahead"}
    assert story.promised == {}


def test_tasks_that_are_faster_than_estimated_have_done_what_was_estimated():
    story = cell(flat(h=1, work=10))
    story.then(under(tasks=10), started("j/s", at=MINUTE))
    for index in range(9):
        at = MINUTE + (index + 1) * 30_000
        story.then(finished("j/s", index, at=at, run_ms=30_000), started("j/s", index + 1, at=at))

    story.round(at=6 * MINUTE)

    assert story.promised == {"r": [(1, 7, 1)]}  # The one task that runs has done half of its minute.


def test_a_slow_job_gets_longer_leases():
    story = cell(flat(h=1, work=10))
    story.then(under(tasks=10), started("j/s", at=MINUTE), finished("j/s", at=3 * MINUTE, run_ms=2 * MINUTE))
    story.then(started("j/s", 1, at=3 * MINUTE))

    body = story.round(at=3 * MINUTE)

    assert answers(body) == {"r": "behind"}
    assert story.promised == {"r": [(1, 21, 1)]}  # 9 tasks of 2 minutes from minute 3 on.
    assert "600 unit-seconds more than planned: leases are added" in body.answers[0].detail


def test_a_promise_grows_to_twice_what_was_asked_for_and_says_what_is_missing():
    story = cell(flat(h=1, work=10, window=100))
    story.then(under(tasks=10), started("j/s", at=MINUTE), finished("j/s", at=6 * MINUTE, run_ms=5 * MINUTE))
    story.then(started("j/s", 1, at=6 * MINUTE))

    body = story.round(at=6 * MINUTE)

    assert story.promised == {"r": [(1, 1 + 10 * GROWTH_MAX, 1)]}
    assert [each.missing_ms for each in body.profiles[0].progress] == [45 * MINUTE - 15 * MINUTE]


def test_nothing_is_added_beyond_the_window_or_at_the_cost_of_another_promise():
    story = cell(flat(h=1, work=10, window=13), cores=2)
    story.then(reservation("other", "window(11m, 12m, atom(b='1 cpu', g=2, h=2, l=1m, w=2m))"))
    story.settle(at=0)
    story.then(under(tasks=10), started("j/s", at=MINUTE), finished("j/s", at=3 * MINUTE, run_ms=2 * MINUTE))
    story.then(started("j/s", 1, at=3 * MINUTE))

    body = story.round(at=3 * MINUTE)

    assert answers(body) == {"r": "behind"}
    assert story.promised["other"] == [(11, 12, 1)]
    assert story.promised["r"] == [(1, 11, 1), (12, 13, 1)]
    assert "its window has no room for the rest" in body.answers[0].detail


def test_what_found_no_room_is_tried_again_once_room_is_given_back():
    story = cell(flat(h=1, work=10, window=13), cores=2)
    story.then(reservation("other", "window(11m, 13m, atom(b='1 cpu', g=2, h=2, l=2m, w=4m))"))
    story.settle(at=0)
    story.then(under(tasks=10), started("j/s", at=MINUTE), finished("j/s", at=3 * MINUTE, run_ms=2 * MINUTE))
    story.then(started("j/s", 1, at=3 * MINUTE))
    assert answers(story.round(at=3 * MINUTE)) == {"r": "behind"}
    assert story.promised["r"] == [(1, 11, 1)]
    story.then(finished("j/s", 1, at=5 * MINUTE, run_ms=2 * MINUTE), started("j/s", 2, at=5 * MINUTE))
    assert not answers(story.round(at=5 * MINUTE))

    story.then(reservation_delete("other"))
    story.settle(at=6 * MINUTE)
    story.then(finished("j/s", 2, at=7 * MINUTE, run_ms=2 * MINUTE), started("j/s", 3, at=7 * MINUTE))
    story.settle(at=7 * MINUTE)

    assert story.promised["r"] == [(1, 13, 1)]


def test_a_job_that_runs_as_planned_changes_nothing():
    story = cell(flat(h=2, work=20))
    story.then(under(tasks=20), started("j/s", 0, 2, at=MINUTE))
    for wave in range(1, 10):
        at = (wave + 1) * MINUTE
        story.then(finished("j/s", 2 * wave - 2, 2, at=at, run_ms=MINUTE), started("j/s", 2 * wave, 2, at=at))
        body = story.round(at=at)
        assert body is None or not (body.answers or body.profiles)
    assert story.promised == {"r": [(1, 11, 2)]}


def test_a_reservation_without_a_job_keeps_its_plan():
    story = cell(flat(h=1, work=10))
    for minute in range(1, 11):
        body = story.round(at=minute * MINUTE)
        assert body is None or not (body.answers or body.profiles)
    assert story.promised == {"r": [(1, 11, 1)]}


def test_a_job_that_has_not_begun_is_neither_ahead_nor_behind():
    story = cell(flat(h=1, work=10))
    story.then(under(tasks=30))
    assert not answers(story.round(at=5 * MINUTE))
    assert story.promised == {"r": [(1, 11, 1)]}


def test_of_tasks_without_an_estimate_nothing_is_expected_before_one_has_ended():
    story = cell(flat(h=1, work=10))
    story.then(under(tasks=40, lasts=0), started("j/s", at=MINUTE))
    assert not answers(story.round(at=2 * MINUTE))
    story.then(finished("j/s", at=3 * MINUTE, run_ms=2 * MINUTE), started("j/s", 1, at=3 * MINUTE))

    assert answers(story.round(at=3 * MINUTE)) == {"r": "behind"}


def test_what_is_reserved_for_a_job_that_waits_is_not_given_back():
    story = cell(flat(h=1, work=20))
    story.then(under("one", tasks=10), under("two", tasks=10))
    story.then(started("one/s", 0, 10, at=0), finished("one/s", 0, 10, at=MINUTE, run_ms=1_000), ended("one"))

    story.round(at=MINUTE)

    assert story.promised == {"r": [(1, 11, 1)]}


def test_failures_are_no_progress():
    story = cell(flat(h=1, work=10))
    story.then(under(tasks=10, retries=5), started("j/s", 0, 5, at=0), failed("j/s", 0, 5, at=MINUTE))

    assert not answers(story.round(at=MINUTE))


def test_what_was_done_for_a_job_that_failed_counts_no_more():
    story = cell(flat(h=1, work=10))
    story.then(under(tasks=10), started("j/s", 0, 5, at=0), finished("j/s", 0, 5, at=MINUTE, run_ms=MINUTE))
    story.round(at=MINUTE)
    assert story.promised == {"r": [(1, 6, 1)]}
    story.then(Fact(JobEnded([JobEnd("j", "failed")]), at=MINUTE))
    story.then(under("again", tasks=10), started("again/s", at=2 * MINUTE))

    assert answers(story.round(at=2 * MINUTE)) == {"r": "behind"}
    assert story.promised == {"r": [(1, 12, 1)]}


def test_a_gang_is_done_when_all_of_it_is():
    story = cell(flat(h=4, g=4, lease=10, work=40))
    story.then(under(tasks=4, lasts=10 * MINUTE, gang=True), started("j/s", 0, 4, at=MINUTE))
    story.then(finished("j/s", 0, 3, at=4 * MINUTE, run_ms=3 * MINUTE))
    story.round(at=4 * MINUTE)
    assert story.promised == {"r": [(1, 11, 1)]}
    story.then(finished("j/s", 3, 1, at=5 * MINUTE, run_ms=4 * MINUTE), ended("j"))

    assert story.round(at=5 * MINUTE).gone == ["r"]


def test_a_lease_lasts_as_long_as_it_must_while_work_is_left():
    story = cell(flat(h=1, lease=6, work=12))
    story.then(under(tasks=12), started("j/s", 0, 10, at=MINUTE), finished("j/s", 0, 10, at=2 * MINUTE, run_ms=MINUTE))

    story.round(at=2 * MINUTE)

    assert story.promised == {"r": [(1, 7, 1)]}


def test_a_job_of_a_part_counts_for_that_part_alone():
    rdl = "window(0, 60m, all(atom(b='1 cpu', g=1, h=1, l=1m, w=10m), atom(b='2 cpu', g=1, h=1, l=1m, w=10m)))"
    story = cell(rdl)
    story.then(under(tasks=5, lasts=MINUTE, part="1", cpu=2_000), started("j/s", 0, 5, at=0))
    story.then(finished("j/s", 0, 5, at=MINUTE, run_ms=MINUTE))

    story.round(at=MINUTE)

    assert story.promised == {"r": [(1, 6, 1), (1, 11, 1)]}


def test_what_an_order_puts_behind_a_slow_part_moves_behind_it():
    rdl = "window(0, 60m, order(atom(b='1 cpu', g=1, h=1, l=1m, w=10m), atom(b='1 cpu', g=1, h=1, l=1m, w=10m)))"
    story = cell(rdl)
    story.then(under(tasks=10, part="0"), started("j/s", at=MINUTE), finished("j/s", at=3 * MINUTE, run_ms=2 * MINUTE))
    story.then(started("j/s", 1, at=3 * MINUTE))

    assert answers(story.round(at=3 * MINUTE)) == {"r": "behind"}
    first, *more = sorted(story.story.state.promises["r"].leases, key=lambda lease: (lease.atom, lease.begin))
    assert sum(lease.end - lease.begin for lease in (first, *more) if lease.atom == "0") == 20
    assert max(lease.end for lease in (first, *more) if lease.atom == "0") <= min(
        lease.begin for lease in more if lease.atom == "1"
    )


def test_other_terms_begin_without_progress():
    story = cell(flat(h=1, work=10))
    story.then(under(tasks=10), started("j/s", 0, 8, at=1_000), finished("j/s", 0, 8, at=MINUTE, run_ms=MINUTE))
    story.round(at=MINUTE)
    story.then(reservation_update("r", flat(h=1, work=5)))

    assert answers(story.settle(at=MINUTE)) == {"r": "accepted"}
    assert story.promised == {"r": [(2, 7, 1)]}
    assert story.story.state.promises["r"].works == {}


def test_plans_stay_where_following_is_switched_off():
    story = cell(flat(h=1, work=10), reservation_progress="off")
    story.then(under(tasks=10), started("j/s", 0, 8, at=1_000), finished("j/s", 0, 8, at=MINUTE, run_ms=MINUTE))

    story.round(at=MINUTE)

    assert story.promised == {"r": [(1, 11, 1)]}


def test_a_round_compares_so_many_plans_and_the_next_one_the_others():
    count = LOOKS_MAX + 3
    story = Cell(registered("n1", cpu=count * 1_000), reservation_agent="early")
    story.then(*(reservation(f"r{i}", flat(h=1, work=10)) for i in range(count)))
    story.settle(at=0)
    for i in range(count):
        story.then(under(f"j{i}", tasks=10, reservation=f"r{i}"), started(f"j{i}/s", 0, 8))
        story.then(finished(f"j{i}/s", 0, 8, run_ms=MINUTE))

    first, second = story.round(at=MINUTE), story.round(at=MINUTE)

    assert [len(answers(each)) for each in (first, second)] == [LOOKS_MAX, 3]


def test_a_job_whose_lease_holds_is_looked_at_in_the_next_step_also_before_a_task_of_it_starts():
    story = cell(flat(h=1, work=10, at=3))
    story.then(under(tasks=10))
    wakes = []
    for minute in (1, 2, 3):
        story.round(at=minute * MINUTE)
        wakes.append(story.story.state.wake_ms)
    assert wakes == [3 * MINUTE, 3 * MINUTE, 4 * MINUTE]


def test_a_plan_is_looked_at_again_in_the_next_step_while_its_job_runs():
    story = cell(flat(h=1, work=10))
    story.then(under(tasks=10), started("j/s", at=MINUTE))
    assert story.round(at=MINUTE).wake_ms == 2 * MINUTE
    story.then(finished("j/s", at=2 * MINUTE, run_ms=MINUTE))
    story.then(ended("j"))
    assert story.round(at=2 * MINUTE).wake_ms == 11 * MINUTE  # Only the lease's end is of interest.


@pytest.mark.parametrize(
    ("demand", "unit", "millionths"),
    [
        pytest.param({"cpu": 1_000}, {"cpu": 1_000, "memory": 5}, 1_000_000, id="a task of one unit"),
        pytest.param({"cpu": 500}, {"cpu": 1_000}, 500_000, id="two tasks in a unit"),
        pytest.param({"cpu": 1_000, "memory": 15}, {"cpu": 1_000, "memory": 5}, 3_000_000, id="the most of all kinds"),
        pytest.param({"cpu": 1, "gpu": 1_000}, {"cpu": 1}, 0, id="what a unit has not got"),
        pytest.param({"cpu": 1}, {"cpu": 3}, 333_334, id="parts are rounded up"),
    ],
)
def test_units_of_a_task(demand, unit, millionths):
    assert units(demand, unit) == millionths


def test_an_attempt_that_does_not_end_its_task_is_no_progress():
    story = cell(flat(h=1, work=10))
    story.then(under(tasks=10), started("j/s", 0, 8, at=0))
    one = finished("j/s", 0, 1, run_ms=MINUTE).body
    story.then(Fact(replace(one, spare=[SpareAttempt("j", "s", 0, 1)]), at=MINUTE))

    assert story.story.state.jobs["j"].progress.left == [10]
    assert list(story.story.state.jobs["j"].running) == [f"0/{index}" for index in range(1, 8)]
