"""Reading the log record by record, and looking ahead of what was taken."""

import asyncio

import pytest

from largesse.bus.port import PositionGap
from largesse.log import reader
from largesse.log.fencing import LogOrder
from largesse.log.reader import LogReader, Lookahead, publish_input, wait_for_more
from schemas import JobCancelled
from schemas.topics import LOG
from tests.bus_stories import story


@story
async def test_records_come_in_order_with_their_claims(bus, scribe):
    await scribe.write(JobCancelled("a"), JobCancelled("b"))
    found = await LogReader(bus).read()

    assert [(each.record.type, each.record.seq) for each in found] == [
        ("SequencerClaimed", 0),
        ("JobCancelled", 1),
        ("JobCancelled", 2),
    ]


@story
async def test_a_position_that_does_not_exist_is_a_named_gap(bus, scribe):
    await scribe.write(JobCancelled("a"))

    with pytest.raises(PositionGap, match=r"cluster.log partition 0: position 9 is beyond the end"):
        await LogReader(bus, order=LogOrder(offset=9)).read()


@story
async def test_taking_moves_the_order_one_record_at_a_time(bus, scribe):
    await scribe.write(JobCancelled("a"), JobCancelled("b"))
    ahead = Lookahead(bus)
    seqs = []
    while await ahead.take():
        seqs.append(ahead.order.seq)
    whole = LogReader(bus)
    await whole.read()

    assert seqs == [0, 1, 2]
    assert ahead.order == whole.order


async def types_taken(ahead):
    types = []
    while (accepted := await ahead.take()) is not None:
        types.append(accepted.record.type)
    return types


@story
async def test_looking_ahead_takes_nothing(bus, scribe):
    opening = await scribe.open()
    await scribe.write(JobCancelled("a"))
    ahead = Lookahead(bus)
    assert not await ahead.is_over(opening.round)
    await scribe.close(opening)
    assert await ahead.is_over(opening.round)

    assert ahead.order.seq == 0
    assert await types_taken(ahead) == ["SequencerClaimed", "RoundOpened", "JobCancelled", "RoundClosed"]


@story
async def test_how_far_it_keeps_what_it_has_seen_has_a_limit(bus, scribe):
    await scribe.claim()
    ahead = Lookahead(bus)
    opening = await scribe.open()
    before, reader.AHEAD_MAX = reader.AHEAD_MAX, 5
    try:
        for number in range(20):
            await scribe.write(JobCancelled(f"j{number}"))
            assert not await ahead.is_over(opening.round)
        kept = len(ahead._kept)
        await scribe.close(opening)
        assert await ahead.is_over(opening.round)
        taken = []
        while (accepted := await ahead.take()) is not None:
            taken.append(accepted.record.seq)
    finally:
        reader.AHEAD_MAX = before

    assert kept <= 6
    assert taken == [0, *range(1, 23)]
    assert not await bus.wait_any(ahead.position, 0)


@story
async def test_an_input_carries_its_author(bus, scribe):
    offset = await publish_input(bus.writer(), "jobs", {"cancel": "j"}, "ann")
    message = (await bus.fetch("jobs", 0, offset))[0]

    assert (message.value, message.headers) == (b'{"cancel":"j"}', {"author": "ann"})


@story
async def test_a_wait_ends_with_an_event(bus, scribe):
    stop = asyncio.Event()
    waiting = asyncio.ensure_future(wait_for_more(bus, {(LOG, 0): 0}, 60_000, stop))
    await asyncio.sleep(0)
    stop.set()

    assert await waiting is False
    assert await wait_for_more(bus, {(LOG, 0): 0}, 60_000, stop) is False


@story
async def test_a_wait_ends_with_a_message(bus, scribe):
    waiting = asyncio.ensure_future(wait_for_more(bus, {(LOG, 0): 0}, 60_000, asyncio.Event()))
    await scribe.claim()

    assert await waiting is True
