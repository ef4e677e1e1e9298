"""Admission in stories: what a late fact strikes, when rounds open, and what a forecast counts."""

import pytest

from largesse.core import RULES
from schemas import (
    Device,
    JobEnded,
    Plans,
    Releases,
    RoundAbandoned,
    RoundOpened,
    TimeReached,
)
from schemas.edge.read import ConfigPatch
from services.admission.core import judge as core_judge
from services.admission.core.rounds import accepts_forecast, close, due
from tests.builders import config, job, node, report, stage
from tests.cells import SlowCell, holds_of, indexes, one_node_cell, running_cell


# ---------------------------------------------------------------- facts between opening and closing
def between(*facts, jobs=(), nodes=()):
    """Opens a round, lets facts come, and closes it. Without jobs there is one of two tasks."""
    story = one_node_cell(*nodes, *(jobs or [job("j", stage(tasks=2))]))
    assert story.open()
    for fact in facts:
        fact(story)
    return story, story.close()


STRIKES = [
    pytest.param(lambda story: story.lose(), "node_lost", id="the node is lost"),
    pytest.param(lambda story: story.drain(), "node_draining", id="the node drains"),
    pytest.param(lambda story: story.take(node("n1", epoch="e2")), "node_epoch", id="another agent speaks for it"),
    pytest.param(lambda story: story.take(report("n1", cpu=1_000)), "no_room", id="it has shrunk"),
    pytest.param(lambda story: story.cancel("j"), "job_over", id="the job is cancelled"),
    pytest.param(
        lambda story: story.cancel("j") and story.put(due(story.admission, 0, b"")),
        "job_over",
        id="the job has ended",
    ),
]


@pytest.mark.parametrize(("fact", "reason"), STRIKES)
def test_a_grant_that_facts_have_overtaken_is_struck_with_the_reason(fact, reason):
    story, closing = between(fact)

    assert closing.grants == []
    assert [(struck.reason, struck.grant.count) for struck in closing.struck] == [(reason, 2)]
    assert holds_of(story.admission) == {}


def test_struck_tasks_wait_again_as_the_same_attempt():
    story, closing = between(lambda story: story.lose(), nodes=[node("n2", cpu=2_000)])
    assert [struck.grant.node for struck in closing.struck] == ["n1"]

    assert [(grant.node, grant.first, grant.count, grant.attempt) for grant in story.settle()] == [("n2", 0, 2, 1)]


def test_a_strike_opens_the_next_round_by_itself():
    story, _ = between(lambda story: story.drain())
    assert story.open()


def test_what_still_fits_on_a_node_that_shrank_is_bound():
    jobs = [job("j1"), job("j2"), job("j3")]
    story, closing = between(lambda story: story.take(report("n1", cpu=2_000)), jobs=jobs)

    assert [grant.job for grant in closing.grants] == ["j1", "j2"]
    assert [(struck.grant.job, struck.reason) for struck in closing.struck] == [("j3", "no_room")]
    assert story.admission.nodes["n1"].free["cpu"] == 0


def test_a_device_that_shrank_between_opening_and_closing_strikes_what_fits_it_no_more():
    story = SlowCell()
    story.take(node("g", gpus=(1_000, 1_000)), *[job(name, stage(gpu=450)) for name in "abc"])
    story.open()
    assert [grant.devices[0][0].index for grant in story.answer("grants").grants] == [0, 0, 1]

    sizes = (Device(0, 600), Device(1, 1_000), Device(2, 400))
    story.take(report("g", gpu=2_000, devices=sizes))
    closing = story.close()

    assert [grant.job for grant in closing.grants] == ["a", "c"]
    assert [(struck.grant.job, struck.reason) for struck in closing.struck] == [("b", "no_room")]
    assert story.admission.nodes["g"].devices_free == {"0": 150, "1": 550, "2": 400}
    assert [grant.devices[0][0].index for grant in story.settle()] == [1]


def test_a_gang_is_struck_whole():
    gang = job("g", stage(tasks=2, cpu=3_000, gang=True))
    single_task = job("j", stage(cpu=500))
    story, closing = between(lambda story: story.lose("n1"), nodes=[node("n2")], jobs=[gang, single_task])

    reasons = sorted((struck.grant.job, struck.grant.node, struck.reason) for struck in closing.struck)
    assert [each for each in reasons if each[0] == "g"] == [("g", "n1", "node_lost"), ("g", "n2", "gang")]
    assert all(grant.job == "j" for grant in closing.grants)

    story.take(node("n1", epoch="e2"))
    again = [(grant.node, grant.attempt) for grant in story.settle() if grant.job == "g"]
    assert sorted(again) == [("n1", 1), ("n2", 1)]


def test_facts_of_others_strike_nothing():
    _, closing = between(
        lambda story: story.take(node("n2"), job("k"), report("n2", cpu=1)), lambda story: story.cancel("k")
    )
    assert closing.struck == []
    assert indexes(closing.grants) == [("map", 0), ("map", 1)]


# ---------------------------------------------------------------- rounds
def test_what_is_due_comes_in_order_ends_then_wake_ups_then_the_opening():
    story = running_cell(job("j", stage(retries=1)), job("k"))
    j, k = story.granted
    story.fail(j)
    story.settle()
    story.at(1_000).finish(k)

    seen = []
    while (body := due(story.admission, story.time, b"")) is not None:
        seen.append(type(body))
        story.put(body)
        if isinstance(body, RoundOpened):
            break
    assert seen == [JobEnded, TimeReached, RoundOpened]


def test_ends_name_the_record_that_led_to_them():
    story = running_cell(job("j"))
    story.finish(story.granted[0])
    cause = story.records[-1].id
    story.settle()

    assert [record.cause for record in story.records if record.type == "JobEnded"] == [cause]


def test_nothing_opens_a_round_when_nothing_happened():
    story = running_cell(job("j"))

    assert story.round() is None
    assert story.next_ms() is None
    story.start(story.granted[0])
    assert story.round() is None


def test_rounds_keep_their_distance():
    story = one_node_cell(config(round_gap_ms=300), job("j1"))
    story.settle()
    opened_ms = story.time
    story.at(10).take(job("j2"))

    assert story.round() is None
    assert story.next_ms() == opened_ms + 300
    assert len(story.at(300).settle()) == 1


def test_a_wake_up_comes_at_its_time_even_within_the_gap():
    story = running_cell(job("j", stage(retries=1)), job("k"))
    story.take(config(round_gap_ms=5_000))
    story.settle()
    story.at(5_000).fail(story.granted[0])
    story.settle()
    assert story.next_ms() == 6_000

    assert story.at(6_000).settle() == []
    assert story.bodies(TimeReached) == [TimeReached(6_000)]
    assert story.next_ms() == 10_000
    assert [grant.attempt for grant in story.at(10_000).settle()] == [2]


def test_an_open_round_holds_all_but_the_ends_of_jobs():
    story = running_cell(job("j"), job("k"))
    story.take(job("l"))
    story.open()
    story.finish(story.granted[0])

    assert isinstance(due(story.admission, 0, b""), JobEnded)
    story.put(due(story.admission, 0, b""))
    assert due(story.admission, 10_000_000, b"") is None
    assert story.next_ms() is None


def test_an_open_round_of_other_rules_is_abandoned_and_asked_again():
    story = one_node_cell(job("j"))
    story.put(RoundOpened(RULES + 1, "00", 1))

    assert due(story.admission, 0, b"") == RoundAbandoned("rules", "sequencer")
    story.put(due(story.admission, 0, b""))
    assert indexes(story.settle()) == [("map", 0)]


def test_an_abandoned_round_grants_nothing_and_leaves_everything_to_the_next():
    story = one_node_cell(job("j"))
    story.open()
    assert story.answer("grants").grants
    story.abandon()

    assert holds_of(story.admission) == {}
    assert [grant.attempt for grant in story.settle()] == [1]


def test_an_operator_gives_up_the_open_round_and_no_other():
    story = one_node_cell(job("j"))
    story.open()
    number = story.admission.open.round

    refused = core_judge.judge(story.admission, ConfigPatch({}, None, "ops", abandon_round=number + 1), "ops", 0)
    assert (refused.field, refused.reason) == ("abandon_round", f"round {number + 1} is not open; round {number} is")
    assert core_judge.judge(
        story.admission, ConfigPatch({}, None, "ops", abandon_round=number), "ops", 0
    ) == RoundAbandoned("operator", "ops")


def test_an_abandoned_round_leaves_wake_ups_in_force():
    story = running_cell(job("j", stage(retries=1)))
    story.fail(story.granted[0])
    story.settle()
    story.take(job("k"))
    story.open()
    story.abandon()
    assert story.admission.wake_ms == 1_000


def test_a_wake_up_at_or_before_its_opening_is_a_bug():
    story = one_node_cell(job("j"))
    story.at(50).open()
    story.answer("asks").wake_ms = 50
    shares, asks, grants = (story.answers[topic] for topic in ("shares", "asks", "grants"))

    with pytest.raises(AssertionError, match="not after the opening"):
        close(story.admission, shares[0], asks, grants[0], [])


def test_the_least_wake_up_of_all_answers_counts():
    story = one_node_cell(job("j"), shards=1)
    story.open()
    story.answer("shares").wake_ms, story.answer("asks").wake_ms, story.answer("grants").wake_ms = 70, 60, 90
    assert story.close().wake_ms == 60


# ---------------------------------------------------------------- forecasts
def test_a_forecast_made_without_the_last_one_in_view_is_stale():
    story = one_node_cell()
    published = story.put(Releases(after=0, at_ms=0))

    assert not accepts_forecast(story.admission, Releases(after=0, at_ms=0))
    assert accepts_forecast(story.admission, Releases(after=published.seq, at_ms=0))
    assert accepts_forecast(story.admission, Plans(after=0))


def test_plans_open_a_round_and_releases_do_not():
    story = one_node_cell()
    story.settle()
    story.put(Releases(after=3, at_ms=0))
    assert story.round() is None
    story.put(Plans(after=0))
    assert story.round() is not None


def test_a_forecasts_wake_up_lasts_until_the_next_of_its_kind():
    story = one_node_cell()
    story.settle()
    story.put(Releases(after=0, at_ms=0, wake_ms=500))
    story.put(Plans(after=0, wake_ms=300))
    story.settle()
    assert story.next_ms() == 300

    story.at(300).settle()
    assert story.next_ms() == 500
    story.put(Releases(after=9, at_ms=0))
    assert story.next_ms() is None
