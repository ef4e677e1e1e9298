"""The loop around every core: what it answers, what it waits for, how it ends."""

import asyncio

import pytest

from largesse.core import RULES
from largesse.folding import CoreStopped
from largesse.log.codec import unwrap
from largesse.log.decisions import DecisionGap
from largesse.log.wanted import Wanted
from largesse.settings import Settings
from largesse.shell import Shell, run
from largesse.telemetry import exposition
from schemas import Asks, DecisionHash, JobCancelled, Releases, Shares
from schemas.shares import Level
from tests.bus_stories import answers_in, settle, story
from tests.toy import Toy

SETTINGS = Settings(bus="memory:", snapshot_rounds=2, gap_wait_ms=0, wait_ms=50)


def shell_of(core, bus, **more):
    return Shell(core, bus, SETTINGS, **more)


def exported_seq(service):
    (line,) = [
        line for line in exposition()[1].splitlines() if b'largesse_log_seq{service="%s"}' % service.encode() in line
    ]
    return float(line.split()[-1])


async def catch_up(shell):
    while await shell.step():
        pass


async def follow(shell):
    while True:
        if not await shell.step():
            await asyncio.sleep(0)


@story
async def test_a_round_is_answered_from_the_prefix_before_it(bus, scribe):
    shell = shell_of(Toy(), bus)
    await scribe.write(JobCancelled("a"))
    await scribe.open()
    await scribe.write(JobCancelled("b"))
    await catch_up(shell)

    assert b'"levels":[{"queue":"a","target":0,' in (await answers_in(bus, "shares"))[0]
    assert shell.state.jobs == ["a", "b"]


@story
async def test_a_round_that_is_over_is_never_answered_again(bus, scribe):
    first = await scribe.open()
    await scribe.close(first)
    second = await scribe.open()
    await scribe.abandon()
    await scribe.open()
    core = Toy()
    await catch_up(shell_of(core, bus))

    said = await answers_in(bus, "shares")
    assert core.asked == 1
    assert len(said) == 1
    assert first.id.encode() not in said[0]
    assert second.id.encode() not in said[0]


@story
async def test_the_last_seq_folded_is_exported_also_while_no_round_ends(bus, scribe):
    shell = shell_of(Toy(), bus, name="told")
    await scribe.write(JobCancelled("a"))
    last = await scribe.write(JobCancelled("b"))
    await catch_up(shell)
    assert exported_seq("told") == last.seq

    await scribe.claim("another")
    await catch_up(shell)
    assert exported_seq("told") == last.seq


@story
async def test_an_opening_of_other_rules_is_not_answered(bus, scribe):
    await scribe.open(rules=RULES + 1)
    await catch_up(shell_of(Toy(), bus))

    assert await answers_in(bus, "shares") == []


@story
async def test_a_shard_answers_only_rounds_that_have_it(bus, scribe):
    third = shell_of(Toy("asks"), bus, shard=2)
    opening = await scribe.open(shards=2)
    await catch_up(third)
    await scribe.close(opening)
    await scribe.open(shards=3)
    await catch_up(third)

    assert await answers_in(bus, "asks", partition=0) == []
    assert len(await answers_in(bus, "asks", partition=2)) == 1


@story
async def test_upstream_may_come_late(bus, scribe):
    shell = shell_of(Toy("asks", upstream=("shares",)), bus)
    opening = await scribe.open()
    waiting = asyncio.ensure_future(catch_up(shell))
    await settle()
    await scribe.say(opening, "shares", Shares([]))
    await waiting

    assert len(await answers_in(bus, "asks")) == 1


@story
async def test_upstream_of_all_shards_is_waited_for(bus, scribe):
    shell = shell_of(Toy("grants", upstream=("shares", "asks")), bus)
    opening = await scribe.open(shards=3)
    await scribe.write(JobCancelled("a"))
    waiting = asyncio.ensure_future(catch_up(shell))
    await scribe.say(opening, "shares", Shares([]))
    for shard in (2, 0):
        await scribe.say(opening, "asks", Asks(shard, 3, []), shard)
    await settle()
    assert await answers_in(bus, "grants") == []
    await scribe.say(opening, "asks", Asks(1, 3, []), 1)
    await waiting

    assert len(await answers_in(bus, "grants")) == 1


@pytest.mark.parametrize("end", ["close", "abandon"])
def test_a_wait_ends_when_the_log_shows_the_round_over(end):
    @story
    async def test(bus, scribe):
        core = Toy("asks", upstream=("shares",))
        shell = shell_of(core, bus)
        opening = await scribe.open()
        waiting = asyncio.ensure_future(catch_up(shell))
        await settle()
        await (scribe.close(opening) if end == "close" else scribe.abandon())
        await waiting

        assert core.asked == 0

    test()


@story
async def test_upstream_that_is_ahead_of_the_log_waits_for_it(bus, scribe):
    """The answer to a round that the reader has not come to yet is kept until it does."""
    shell = shell_of(Toy("asks", upstream=("shares",)), bus)
    first = await scribe.open()
    await scribe.say(first, "shares", Shares([]))
    await scribe.close(first)
    second = await scribe.open()
    await scribe.say(second, "shares", Shares([Level("ahead", 1)]))
    await catch_up(shell)

    assert [second.id.encode() in said for said in await answers_in(bus, "asks")] == [True]


@story
async def test_winners_are_fed_in_the_order_of_reads_before_the_closing(bus, scribe):
    core = Toy("grants", upstream=("shares", "asks"), reads=("shares", "asks", "grants"))
    shell = shell_of(core, bus)
    opening = await scribe.open(shards=2)
    said = [await scribe.say(opening, "asks", Asks(shard, 2, []), shard) for shard in (1, 0)]
    said.append(await scribe.say(opening, "shares", Shares([])))
    await catch_up(shell)
    own = (await shell.decisions.gather(opening.id, [said[-1][0]._replace(topic="grants")]))[0]
    said.append((said[-1][0]._replace(topic="grants"), own.content))
    await scribe.close(opening, said[2], said[1], said[0], said[3])
    await catch_up(shell)

    assert [fed.split("/default")[0] for fed in shell.state.fed] == [
        "shares/0-1",
        "asks/0-2",
        "asks/1-2",
        "grants/0-1",
    ]


@story
async def test_of_its_own_topic_a_shard_reads_its_own_shard(bus, scribe):
    core = Toy("asks", upstream=("shares",), reads=("shares", "asks"))
    shell = shell_of(core, bus, shard=1)
    opening = await scribe.open(shards=2)
    said = [await scribe.say(opening, "shares", Shares([]))]
    said += [await scribe.say(opening, "asks", Asks(shard, 2, []), shard) for shard in (0, 1)]
    await scribe.close(opening, *said)
    await catch_up(shell)

    assert [fed.split("/default")[0] for fed in shell.state.fed] == ["shares/0-1", "asks/1-2"]


@story
async def test_a_decision_that_a_closing_names_and_nobody_has_is_a_named_gap(bus, scribe):
    opening = await scribe.open()
    await scribe.close(opening, hashes=[DecisionHash("shares", 0, 1, "ab" * 32)])

    with pytest.raises(DecisionGap, match=f"missing: shares/0-1/{opening.id}.*{'ab' * 32}"):
        await catch_up(shell_of(Toy(reads=("shares",)), bus))


@story
async def test_a_decision_that_is_not_the_one_that_the_closing_names_is_a_named_gap(bus, scribe):
    opening = await scribe.open()
    await scribe.say(opening, "shares", Shares([]))
    await scribe.close(opening, hashes=[DecisionHash("shares", 0, 1, "ab" * 32)])

    with pytest.raises(DecisionGap, match="another one: shares/0-1"):
        await catch_up(shell_of(Toy(reads=("shares",)), bus))


# ---------------------------------------------------------------- standbys
@story
async def test_a_standby_decides_and_publishes_when_it_is_made_active(bus, scribe):
    active = asyncio.Event()
    core = Toy()
    shell = shell_of(core, bus, active=active)
    await scribe.open()
    waiting = asyncio.ensure_future(catch_up(shell))
    await settle()
    assert (core.asked, await answers_in(bus, "shares")) == (1, [])
    active.set()
    await waiting

    assert len(await answers_in(bus, "shares")) == 1


@story
async def test_a_standby_lets_go_of_a_round_that_another_answered(bus, scribe):
    shell = shell_of(Toy(), bus, active=asyncio.Event())
    opening = await scribe.open()
    waiting = asyncio.ensure_future(catch_up(shell))
    await settle()
    await scribe.close(opening)
    await waiting
    await catch_up(shell)

    assert await answers_in(bus, "shares") == []
    assert shell.state.closed == [1]


# ---------------------------------------------------------------- forecasts, for which no round waits
@story
async def test_a_forecast_answers_the_newest_opening_also_once_its_round_is_over(bus, scribe):
    await scribe.close(await scribe.open())
    newest = await scribe.open()
    await scribe.close(newest)
    core = Toy("releases")
    shell = shell_of(core, bus)
    await catch_up(shell)

    (said,) = await answers_in(bus, "releases")
    assert newest.id.encode() in said
    assert core.asked == 1
    await catch_up(shell)
    assert core.asked == 1, "once"


@story
async def test_a_standby_forecasts_where_nobody_else_does_though_the_round_is_over(bus, scribe):
    shell = shell_of(Toy("releases"), bus, active=asyncio.Event())
    opening = await scribe.open()
    await scribe.close(opening)
    await catch_up(shell)

    (said,) = await answers_in(bus, "releases")
    assert opening.id.encode() in said


@story
async def test_a_standby_forecasts_although_rounds_follow_each_other_sooner_than_it_waits(bus, scribe):
    shell = shell_of(Toy("releases"), bus, active=asyncio.Event())
    loop = asyncio.get_running_loop()
    begun_s, rounds = loop.time(), 0
    following = asyncio.ensure_future(follow(shell))
    while not await answers_in(bus, "releases"):
        await scribe.close(await scribe.open())
        await settle()
        rounds += 1
    following.cancel()

    assert loop.time() - begun_s >= SETTINGS.standby_wait_ms / 1_000
    assert rounds > 1


@story
async def test_a_standby_leaves_a_forecast_to_who_has_said_it(bus, scribe):
    shell = shell_of(Toy("releases"), bus, active=asyncio.Event())
    opening = await scribe.open()
    await scribe.close(opening)
    await scribe.say(opening, "releases", Releases(0, 0))
    await catch_up(shell)

    assert len(await answers_in(bus, "releases")) == 1


# ---------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("job", "what"),
    [
        pytest.param("poison", "toy stopped at seq 2, folding JobCancelled default/2", id="folding"),
        pytest.param("stumble", "toy stopped at seq 3, deciding RoundOpened default/3/r1/", id="deciding"),
    ],
)
def test_a_core_that_raises_stops_the_service_at_that_record_every_time(job, what):
    @story
    async def test(bus, scribe):
        await scribe.write(JobCancelled("a"), JobCancelled(job))
        await scribe.open()
        for _ in range(2):
            shell = shell_of(Toy(), bus)
            await shell.restore()
            with pytest.raises(CoreStopped, match=what):
                await catch_up(shell)

    test()


@story
async def test_a_core_that_must_speak_and_is_silent_stops_the_service(bus, scribe):
    await scribe.write(JobCancelled("silence"))
    await scribe.open()

    with pytest.raises(AssertionError, match="toy: 0 answers"):
        await catch_up(shell_of(Toy(), bus))


@story
async def test_a_forecaster_may_be_silent(bus, scribe):
    await scribe.write(JobCancelled("silence"))
    await scribe.open()
    await catch_up(shell_of(Toy("releases"), bus))

    assert await answers_in(bus, "releases") == []


# ---------------------------------------------------------------- running and restarting
@story
async def test_it_runs_until_it_is_stopped(bus, scribe):
    stop = asyncio.Event()
    service = asyncio.ensure_future(run(Toy(), bus, SETTINGS, stop=stop))
    opening = await scribe.open()
    assert await bus.wait_any({("shares", 0): 0}, 60_000)
    await scribe.close(opening)
    stop.set()
    await asyncio.wait_for(service, 240)

    assert len(await answers_in(bus, "shares")) == 1


async def some_rounds(scribe, count, core_answers):
    for number in range(count):
        await scribe.write(JobCancelled(f"job-{number}"))
        opening = await scribe.open()
        await core_answers()
        said = (await answers_in(scribe.bus, "shares"))[-1]
        await scribe.close(opening, (Wanted("shares", 0, 1), unwrap(said)[1]))


@story
async def test_a_restart_goes_on_from_the_snapshot_with_the_same_state(bus, scribe):
    shell = shell_of(Toy(reads=("shares",)), bus)
    await some_rounds(scribe, 5, lambda: catch_up(shell))
    await catch_up(shell)
    again = shell_of(Toy(reads=("shares",)), bus)
    await again.restore()
    taken_at = again.log.order.round
    await catch_up(again)

    assert taken_at == 4
    assert again.state == shell.state
    assert again.log.order == shell.log.order


@story
async def test_facts_between_opening_and_closing_are_read_ahead_but_folded_after_the_answer(bus, scribe):
    shell = shell_of(Toy("asks", upstream=("shares",)), bus)
    opening = await scribe.open()
    await scribe.write(*[JobCancelled(f"j{i}") for i in range(30)])
    waiting = asyncio.ensure_future(catch_up(shell))
    await settle()
    await scribe.say(opening, "shares", Shares([]))
    await waiting

    assert len(shell.state.jobs) == 30
    assert b'"jobs":[]' in (await answers_in(bus, "asks"))[0]
