"""Offsets that no message has: whatever leaves them, a reader goes on from the position that a fetch returned.

One suite for every bus that can have them. Kafka's come from real transactions; the memory bus makes them on demand.
"""

import asyncio

import pytest

from largesse.bus.memory import MemoryBus
from largesse.log.inputs import InputReader
from largesse.log.reader import LogReader, Lookahead, publish_input
from schemas.topics import LOG
from tests.contract.kafka_rig import kafka_rig
from tests.contract.test_bus import GUARD_SECONDS, LONG_MS, memory_rig, out

RIGS = [pytest.param(memory_rig, id="memory"), pytest.param(kafka_rig, id="kafka", marks=pytest.mark.kafka)]


@pytest.fixture(params=RIGS)
def tell(request, tmp_path):
    """Runs a story against a fresh bus of each kind."""

    async def run(story) -> None:
        async with asyncio.timeout(GUARD_SECONDS), request.param(tmp_path) as open_rig:
            await story(open_rig)

    return lambda story: asyncio.run(run(story))


def unskipped(topic, offset):
    """No operator has an input skipped."""
    return False


async def read_to_end(bus, topic, position=0):
    """Values up to the end that the bus tells now, read as every reader does."""
    end, found = (await bus.bounds(topic, 0))[1], []
    while position < end:
        fetched = await bus.fetch(topic, 0, position, most=2)
        assert fetched or fetched.position > position, "a fetch below the end brings a message or moves on"
        found += [message.value for message in fetched]
        position = fetched.position
    return found, position


def test_a_reader_comes_to_the_end_although_the_last_offset_never_comes(tell):
    async def story(rig):
        topic = await rig.topic(1)
        await rig.transaction(topic, 0, [b"a", b"b"])

        assert await rig.bus.bounds(topic, 0) == (0, 3)
        assert await read_to_end(rig.bus, topic) == ([b"a", b"b"], 3)

    tell(story)


def test_a_reader_passes_offsets_between_two_messages(tell):
    async def story(rig):
        topic = await rig.topic(1)
        await rig.bus.writer().send([out(topic, "a")])
        await rig.transaction(topic, 0, [b"b"])
        await rig.bus.writer().send([out(topic, "c")])
        await rig.transaction(topic, 0, [b"d"])

        assert await read_to_end(rig.bus, topic) == ([b"a", b"b", b"c", b"d"], 6)
        assert await read_to_end(rig.bus, topic, 2) == ([b"c", b"d"], 6)

    tell(story)


def test_a_position_inside_a_hole_is_no_gap_and_brings_what_comes_behind_it(tell):
    async def story(rig):
        topic = await rig.topic(1)
        await rig.transaction(topic, 0, [b"a"])
        found = await rig.bus.fetch(topic, 0, 1, wait_ms=LONG_MS)
        assert (found, found.position) == ([], 2), "it moves on instead of waiting"
        await rig.bus.writer().send([out(topic, "b")])

        found = await rig.bus.fetch(topic, 0, found.position, wait_ms=LONG_MS)
        assert [(message.offset, message.value) for message in found] == [(2, b"b")]
        assert found.position == 3

    tell(story)


def test_a_wait_at_a_hole_ends_once_and_then_waits(tell):
    async def story(rig):
        topic = await rig.topic(1)
        await rig.transaction(topic, 0, [b"a"])
        assert await rig.bus.bounds(topic, 0) == (0, 2)

        assert await rig.bus.wait_any({(topic, 0): 1}, LONG_MS)
        position = (await rig.bus.fetch(topic, 0, 1)).position
        assert not await rig.bus.wait_any({(topic, 0): position}, 1)

    tell(story)


def test_a_waiting_reader_is_woken_by_what_comes_behind_a_hole(tell):
    async def story(rig):
        topic = await rig.topic(1)
        await rig.transaction(topic, 0, [b"a"])
        position = (await read_to_end(rig.bus, topic))[1]
        waiting = asyncio.create_task(rig.bus.fetch(topic, 0, position, wait_ms=LONG_MS))
        await rig.transaction(topic, 0, [b"b"])

        assert [message.value for message in await waiting] == [b"b"]

    tell(story)


def test_retention_up_to_a_hole_leaves_a_reader_that_passed_it_where_it_is(tell):
    async def story(rig):
        topic = await rig.topic(1)
        await rig.transaction(topic, 0, [b"a"])
        position = (await read_to_end(rig.bus, topic))[1]
        await rig.retire(topic, 0, 2)

        assert await rig.bus.fetch(topic, 0, position) == []

    tell(story)


# ---------------------------------------------------------------- readers on the memory bus
def test_the_log_is_read_to_its_end_over_holes():
    async def story():
        bus = MemoryBus()
        await bus.writer().send([out(LOG, "void")])
        bus.skip(LOG, 0, 2)
        reader, ahead = LogReader(bus), Lookahead(bus)
        for _ in range(2):
            await reader.read()
            await ahead.take()

        for each in (reader, ahead):
            assert each.offset == 3
            assert not await bus.wait_any(each.position, 0)
        assert reader.order.offset == 1, "a snapshot's landmark is the last message"

    asyncio.run(story())


def test_inputs_are_drained_when_the_last_offset_is_a_hole_and_the_position_says_so():
    async def story():
        bus = MemoryBus()
        await publish_input(bus.writer(), "nodes", {}, "agent")
        bus.skip("nodes", 0)
        bus.skip("tasks", 0)
        reader = InputReader(bus, 0, {})
        assert [len(await reader.read(10, unskipped)) for _ in range(2)] == [1, 0]

        assert await reader.is_drained("nodes", "tasks")
        assert not await bus.wait_any(reader.waiting_for, 0)
        assert {each.topic: each.offset for each in reader.moved({})} == {"nodes": 1, "tasks": 0}
        assert await InputReader(bus, 0, {"nodes/0": 0}).read(10, unskipped) == [], (
            "a position saved before the hole goes on"
        )

    asyncio.run(story())
