"""Reserved jobs under the preset that gives, and gangs of a promise whose tasks are asked for in several parts."""

from dataclasses import replace

import pytest

from schemas import ReservationRequested
from tests.builders import config, job, node, single, stage
from tests.promised_cell import GRACE, advance, cell, give_back, lasting, promise, reserved, step, taken_back, why
from tests.unit.test_altruism_plans import asked, bodies, forked, plans


def granted_at(story, time):
    return [
        grant
        for grant in story.granted
        if grant.job == "mine" and grant.why == "reserved" and grant_ms(story, grant) == time
    ]


def grant_ms(story, grant):
    """When a closing granted this."""
    return next(r.time for r in story.records if r.type == "RoundClosed" and grant in r.body.grants)


def given(story):
    """Of the reserved job in the open round: what it asks for, whether it is planned, whether it is in the accounts."""
    accounts = [entry.job for entry in bodies(story, "asks").ledger]
    return asked(story).get("mine"), "mine" in plans(story), "mine" in accounts


def requested(story):
    """Nobody has answered the request yet."""
    story.put(ReservationRequested("r", "", "{}", "tester", "a"))
    return story


def named_forked():
    spec = forked("mine", queue="a")
    spec.reservation = "r"
    return spec


@pytest.mark.parametrize("preset", ["hdrf", "fifo", "carbyne", "largesse"])
def test_units_of_a_promise_start_whole_where_some_tasks_are_asked_for_again(preset):
    """Task 0 has failed, so it is asked for apart from the three that never ran."""
    story = promise(cell(preset=preset, retry_backoff_ms=10_000), step(0, 1_000, 1), step(30_000, 60_000, 4, gang=2))
    story.take(lasting("other", stage(tasks=9, duration_ms=500_000), queue="b"))
    story.take(reserved("mine", stage(tasks=4, duration_ms=2_000, retries=1)))
    first = [grant for grant in story.settle() if grant.job == "mine"]
    assert [grant.count for grant in first] == [1]
    story.at(1_000).fail(*first)
    advance(story, 30_000 - GRACE)
    give_back(story)

    advance(story, 30_000)

    assert sum(grant.count for grant in granted_at(story, 30_000)) == 4
    assert {(grant.first, grant.attempt) for grant in granted_at(story, 30_000)} >= {(0, 2), (1, 1)}


def test_a_reserved_job_gives_nothing_away():
    """All that could start is required; it is not planned and keeps no account."""
    story = promise(cell(preset="carbyne"), step(0, 60_000, 2))
    story.take(named_forked(), forked("other", queue="b"))
    story.open()

    assert given(story) == ([("short", 1, "required"), ("long", 1, "required")], False, False)
    assert "other" in plans(story)
    story.close()
    assert ("mine", 1, "reserved", False) in why(story.granted)
    assert not [grant for grant in story.granted if grant.job == "mine" and grant.why == "optional"]

    story.at(1_000).finish(*[grant for grant in story.granted if grant.job == "mine" and grant.stage == "short"])
    story.at(2_000).cancel("mine")
    story.open()
    assert "mine" not in [entry.job for body in story.bodies_of("Asks") for entry in body.ledger]


@pytest.mark.parametrize("how", ["gone", "off"])
@pytest.mark.parametrize("restore", [False, True])
def test_a_job_is_planned_exactly_while_its_reservation_is_not_accepted(how, restore):
    story = cell(preset="carbyne")
    story.take(config(share_tolerance_permille=0))
    story.take(job("other", stage(tasks=9, duration_ms=500_000), queue="b"))
    story.settle()
    requested(story)
    story.take(named_forked())
    story.open()
    assert given(story)[1]
    story.close()
    story.settle()

    story.at(1_000)
    promise(story, step(30_000, 60_000, 2))
    if restore:
        story.restore()
    story.open()
    asks, planned, accounted = given(story)
    assert not planned
    assert accounted
    assert all(kind == "required" for _, _, kind in asks or [])
    assert [entry.over for entry in bodies(story, "asks").ledger if entry.job == "mine"] == [True]
    story.close()
    story.settle()

    story.at(2_000)
    if how == "gone":
        promise(story, gone=["r"])
    else:
        story.take(config(reservations="off"))
    if restore:
        story.restore()
    story.open()
    assert given(story)[1]


def test_a_plan_that_was_made_before_a_reservation_was_accepted_does_not_come_into_force():
    story = requested(cell(preset="carbyne"))
    story.take(named_forked())
    story.open()
    assert given(story)[1]
    promise(story, step(0, 60_000, 2))
    story.close()

    kept = story.states["altruism/0"].jobs["mine"]
    assert (kept.plan, kept.account) == (None, None)
    story.open()
    assert not given(story)[1]


def test_of_a_job_that_ends_nothing_is_kept_of_its_reservation():
    story = promise(cell(preset="carbyne"), step(0, 60_000, 2))
    story.take(reserved("mine", stage()))
    story.settle()
    state = story.states["altruism/0"]
    assert (state.reserving, state.outside) == ({"mine": "r"}, {"mine": True})

    story.cancel("mine")
    assert (state.reserving, state.outside) == ({}, {})


def test_room_of_a_gang_that_runs_is_kept_until_there_is_enough_for_the_next():
    story = promise(cell(), step(0, 600_000, 4, gang=4))
    story.take(reserved("mine", stage(tasks=12)), job("other", stage(tasks=9), queue="b"))
    story.settle()
    first = [each for grant in story.granted if grant.job == "mine" for each in singly(grant)]
    assert len(first) == 4

    for number, task in enumerate(first):
        story.at(10_000 + 1_000 * number).finish(task)
        story.settle()
        assert sum(grant.count for grant in story.granted if grant.job == "mine") == (4 if number < 3 else 8)

    assert not [grant for grant in story.granted if grant.job == "other"]
    assert not taken_back(story)


def singly(grant):
    """A grant, task by task."""
    return [replace(grant, first=grant.first + i, count=1) for i in range(grant.count)]


def test_room_of_a_lease_that_runs_is_kept_though_other_units_of_it_are_about_to_end():
    """Those of the second node have ended; those of the first, which would be chosen, are to within the grace."""
    nodes = [node("n1", cpu=2_000), node("n2", cpu=2_000)]
    story = promise(cell(nodes=nodes, revoke_grace_ms=5_000), step(0, 60_000, 4, gang=4))
    story.take(reserved("mine", stage(tasks=8, duration_ms=6_000)))
    first = story.settle()
    story.take(lasting("other", stage(tasks=4, duration_ms=500_000), queue="b"))
    story.settle()
    first.sort(key=lambda grant: grant.node, reverse=True)
    halves = [single(grant, index) for grant in first for index in range(grant.first, grant.first + grant.count)]
    for each in halves[:3]:
        story.at(story.time + 100 if story.time > 5_000 else 5_000).finish(each)
        story.settle()
    assert [grant for grant in story.granted if grant.job == "other"] == []

    story.finish(halves[3])
    story.settle()
    assert sum(grant.count for grant in story.granted if grant.job == "mine") == 8
    assert taken_back(story) == []
