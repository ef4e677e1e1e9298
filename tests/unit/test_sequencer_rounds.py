"""When the sequencer opens, closes, abandons and takes over rounds, and what becomes of forecasts."""

from dataclasses import replace

from largesse.core import RULES
from schemas import (
    Asks,
    Grants,
    Plans,
    Releases,
    RoundAbandoned,
    RoundClosed,
    RoundOpened,
    SequencerClaimed,
    Shares,
    TimeReached,
)
from tests.builders import grant
from tests.desk import JOB, NODE, desk, kinds


@desk
async def test_a_round_opens_when_something_stirs_and_closes_when_all_have_answered(desk):
    await desk.take("jobs", JOB)
    opening = await desk.opening()
    await desk.scribe.say(opening, "shares", Shares([]))
    await desk.scribe.say(opening, "asks", Asks(0, 1, []))
    await desk.turn()
    assert await desk.bodies(RoundClosed) == []
    await desk.scribe.say(opening, "grants", Grants([]))
    await desk.turn()
    closing = (await desk.records())[-1].record

    assert closing.cause == opening.id
    assert [(named.topic, named.shard, named.of) for named in closing.body.hashes] == [
        ("shares", 0, 1),
        ("asks", 0, 1),
        ("grants", 0, 1),
    ]


@desk
async def test_every_shard_of_the_opening_is_waited_for(desk):
    await desk.take("config", {"set": {"altruism_shards": 3}})
    closing = await desk.answer()

    assert [(named.topic, named.shard, named.of) for named in closing.hashes] == [
        ("shares", 0, 1),
        ("asks", 0, 3),
        ("asks", 1, 3),
        ("asks", 2, 3),
        ("grants", 0, 1),
    ]


@desk
async def test_what_came_meanwhile_waits_for_the_next_round(desk):
    await desk.take("jobs", JOB)
    assert kinds(await desk.take("jobs", JOB)) == ["JobAdmitted"]
    await desk.answer()

    assert kinds(await desk.bodies(RoundOpened | RoundClosed)) == ["RoundOpened", "RoundClosed", "RoundOpened"]


@desk
async def test_a_grant_that_newer_facts_have_overtaken_is_struck(desk):
    await desk.take("nodes", {"register": NODE})
    await desk.answer()
    await desk.take("jobs", {**JOB, "job": "j"})
    await desk.take("nodes", {"drain": {"node": "n1", "draining": True}})
    closing = await desk.answer(grants=Grants([grant("j/s", count=2)]))

    assert [(item.grant.job, item.reason) for item in closing.struck] == [("j", "node_draining")]
    assert closing.grants == []


@desk
async def test_it_wakes_at_the_least_of_what_the_answers_name(desk):
    await desk.take("jobs", JOB)
    await desk.answer(shares=Shares([], wake_ms=1_600), grants=Grants([], wake_ms=1_500))
    assert desk.sequencer.wait_ms() == 500
    assert kinds(each.record.body for each in await desk.turn(499)) == []
    records = [each.record for each in await desk.turn(1)]

    assert kinds(record.body for record in records) == ["TimeReached", "RoundOpened"]
    assert records[0].body == TimeReached(1_500)


@desk
async def test_a_new_sequencer_abandons_a_round_of_other_rules_and_opens_the_next(desk):
    scribe = await desk.scribe.claim("older")
    await scribe.open(rules=RULES + 1)
    await desk.turn()
    await desk.turn(3_000)

    assert (await desk.bodies(RoundAbandoned))[0].reason == "rules"
    assert [body.rules for body in await desk.bodies(RoundOpened)] == [RULES + 1, RULES]


@desk
async def test_an_open_round_is_closed_by_a_successor(desk):
    await desk.take("jobs", JOB)
    desk.start()
    await desk.answer()

    assert len(await desk.bodies(SequencerClaimed)) == 2
    assert len(await desk.bodies(RoundClosed)) == 1


# ---------------------------------------------------------------- forecasts
@desk
async def test_a_forecast_becomes_a_fact_and_the_next_has_to_know_it(desk):
    await desk.take("jobs", JOB)
    opening = await desk.opening()
    await desk.scribe.say(opening, "releases", Releases(after=0, at_ms=5))
    fact = (await desk.turn())[0]
    await desk.answer()
    await desk.take("jobs", JOB)
    for after in (0, fact.record.seq):
        await desk.scribe.say(await desk.opening(), "releases", Releases(after=after, at_ms=6))
    await desk.turn()

    assert (fact.header.topic, fact.header.offset) == ("releases", 0)
    assert fact.record.cause == f"releases/0-1/{opening.id}"
    assert [body.at_ms for body in await desk.bodies(Releases)] == [5]


@desk
async def test_a_plan_opens_a_round(desk):
    await desk.take("jobs", JOB)
    await desk.answer()
    await desk.scribe.say(await desk.opening(), "plans", Plans(after=0))

    assert kinds(each.record.body for each in await desk.turn()) == ["Plans", "RoundOpened"]


@desk
async def test_a_forecast_for_an_opening_that_the_log_does_not_have_is_ignored(desk):
    await desk.take("jobs", JOB)
    opening = await desk.opening()
    await desk.scribe.say(replace(opening, id=opening.id + "0"), "releases", Releases(after=0, at_ms=5))

    assert await desk.turn() == []
