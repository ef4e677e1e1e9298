"""The memory bus is as bad as it was asked to be: what a sender hears of an append, and what becomes of it."""

import asyncio

import pytest

from largesse.bus.memory import MemoryBus
from largesse.bus.port import BusError, BusFull, Outgoing, PositionGap


def out(value: str, topic: str = "log") -> Outgoing:
    return Outgoing(topic, 0, value.encode())


async def values(bus, topic="log") -> list[str]:
    first, _ = await bus.bounds(topic, 0)
    return [message.value.decode() for message in await bus.fetch(topic, 0, first)]


async def sends(bus, *batches) -> list[str]:
    """Sends one after another; for each, `ok` or the name of the error."""
    writer = bus.writer()
    heard = []
    for batch in batches:
        try:
            await writer.send([out(value) for value in batch])
            heard.append("ok")
        except BusError as error:
            heard.append(type(error).__name__)
    return heard


@pytest.mark.parametrize(
    ("fault", "heard", "arrived"),
    [
        pytest.param({"kind": "lost"}, "BusError", ["a", "d", "e"], id="lost: nothing arrives"),
        pytest.param({"kind": "full"}, "BusFull", ["a", "d", "e"], id="full: nothing arrives"),
        pytest.param({"kind": "unknown"}, "BusError", ["a", "b", "c", "d", "e"], id="unknown: it arrived"),
        pytest.param({"kind": "torn"}, "BusError", ["a", "b", "d", "e"], id="torn: its first part arrived"),
        pytest.param({"kind": "late"}, "BusError", ["a", "d", "e"], id="late: not yet"),
        pytest.param({"kind": "late", "after": 1}, "BusError", ["a", "d", "b", "c", "e"], id="late: after one other"),
        pytest.param({"kind": "late", "after": 2}, "BusError", ["a", "d", "e", "b", "c"], id="late: after two others"),
    ],
)
def test_a_fault_strikes_one_append(fault, heard, arrived):
    async def story():
        bus = MemoryBus()
        bus.inject(**fault, skip=1)
        assert await sends(bus, "a", "bc", "d", "e") == ["ok", heard, "ok", "ok"]
        assert await values(bus) == arrived

    asyncio.run(story())


def test_what_is_late_arrives_when_told_even_from_a_dropped_writer():
    async def story():
        bus = MemoryBus()
        bus.inject("late")
        bus.inject("late")
        writer, other = bus.writer(), bus.writer()
        for value in "ab":
            with pytest.raises(BusError):
                await writer.send([out(value)])
        await writer.drop()
        await other.send([out("c")])
        waiting = asyncio.create_task(bus.fetch("log", 0, 1, wait_ms=60_000))
        await asyncio.sleep(0)

        assert bus.deliver_late() == 2
        assert [message.offset for message in await waiting] == [1, 2]
        assert await values(bus) == ["c", "a", "b"]
        assert bus.deliver_late() == 0

    asyncio.run(story())


def test_faults_strike_in_the_order_of_arming_and_only_their_topic():
    async def story():
        bus = MemoryBus()
        bus.inject("full", topic="log")
        bus.inject("lost", topic="log")
        writer = bus.writer()

        await writer.send([out("a", "grants")])
        with pytest.raises(BusFull):
            await writer.send([out("b"), out("b", "grants")])
        with pytest.raises(BusError, match="lost"):
            await writer.send([out("c")])
        await writer.send([out("d")])
        assert await values(bus) == ["d"]
        assert await values(bus, "grants") == ["a"]

    asyncio.run(story())


def test_retention_moves_the_start_and_never_beyond_the_end():
    async def story():
        bus = MemoryBus()
        await sends(bus, "abc")
        bus.retire("log", 0, 2)
        assert await values(bus) == ["c"]
        bus.retire("log", 0, 1)
        assert await bus.bounds("log", 0) == (2, 3)
        bus.retire("log", 0, 99)
        assert await bus.bounds("log", 0) == (3, 3)
        assert await sends(bus, "d") == ["ok"]
        assert [message.offset for message in await bus.fetch("log", 0, 3)] == [3]

    asyncio.run(story())


def test_a_reader_that_waits_beyond_a_lost_tail_is_told():
    async def story():
        bus = MemoryBus()
        await sends(bus, "abcd")
        waiting = asyncio.create_task(bus.fetch("log", 0, 4, wait_ms=60_000))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        bus.lose_tail("log", 0, 2)

        with pytest.raises(PositionGap, match="log partition 0: position 4 is beyond the end; offsets 0 to 1 exist"):
            await waiting
        assert await sends(bus, "e") == ["ok"]
        assert await values(bus) == ["a", "b", "e"]

    asyncio.run(story())


def test_a_wait_that_is_over_leaves_nothing_behind():
    async def story():
        bus = MemoryBus()
        cancelled = asyncio.create_task(bus.wait_any({("log", 0): 0, ("grants", 1): 0}, 60_000))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        await bus.fetch("log", 0, 0, wait_ms=1)
        assert bus._wakeups._waiting == {}

    asyncio.run(story())


def test_a_senders_headers_are_its_own():
    async def story():
        bus = MemoryBus()
        said = {"author": "fairness"}
        await bus.writer().send([Outgoing("log", 0, b"1", headers=said)])
        said["author"] = "nobody"
        assert (await bus.fetch("log", 0, 0))[0].headers == {"author": "fairness"}

    asyncio.run(story())
