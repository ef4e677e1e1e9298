"""The contract of writers: order, durability, and what is left of one that was dropped or cancelled."""

import asyncio
import itertools

import pytest

from largesse.bus.port import BusError
from tests.contract.test_bus import LONG_MS, out, tell, values

__all__ = ["tell"]  # The fixture.


def test_two_writers_share_a_partition_and_each_keeps_its_order(tell):
    async def story(rig):
        topic = await rig.topic(1)

        async def write(name: str) -> list[int]:
            writer = rig.bus.writer()
            return [(await writer.send([out(topic, f"{name}{number}")]))[0] for number in range(20)]

        offsets_a, offsets_b = await asyncio.gather(write("a"), write("b"))

        found = await values(rig.bus, topic)
        assert sorted(offsets_a + offsets_b) == list(range(40))
        assert [found[offset] for offset in offsets_a] == [f"a{number}".encode() for number in range(20)]
        assert [found[offset] for offset in offsets_b] == [f"b{number}".encode() for number in range(20)]
        assert offsets_a == sorted(offsets_a)
        assert offsets_b == sorted(offsets_b)

    tell(story)


def test_sends_that_overlap_arrive_in_the_order_in_which_they_began(tell):
    async def story(rig):
        topic = await rig.topic(1)
        writer = rig.bus.writer()
        sends = [writer.send([out(topic, f"{n}a"), out(topic, f"{n}b")], durable=n % 3 == 0) for n in range(30)]
        offsets = await asyncio.gather(*sends)

        assert list(itertools.chain(*offsets)) == list(range(60))
        assert await values(rig.bus, topic) == [f"{n}{half}".encode() for n in range(30) for half in "ab"]

    tell(story)


def test_what_a_durable_send_has_returned_can_be_read(tell):
    async def story(rig):
        topic = await rig.topic(1)
        writer = rig.bus.writer()
        for number in range(10):
            (offset,) = await writer.send([out(topic, str(number))])

            assert offset == number
            assert await rig.bus.bounds(topic, 0) == (0, number + 1)
            assert [message.value for message in await rig.bus.fetch(topic, 0, offset)] == [str(number).encode()]

    tell(story)


def test_after_a_durable_send_everything_sent_before_can_be_read(tell):
    async def story(rig):
        topic, other = await rig.topic(1), await rig.topic(1)
        writer = rig.bus.writer()
        for number in range(10):
            await writer.send([out(topic, str(number))], durable=False)
        await writer.send([out(other, "closing")])

        assert await values(rig.bus, topic) == [str(number).encode() for number in range(10)]

    tell(story)


def test_a_dropped_writer_sends_nothing_more_and_others_do(tell):
    async def story(rig):
        topic = await rig.topic(1)
        dropped, other = rig.bus.writer(), rig.bus.writer()
        await dropped.send([out(topic, "before")])
        await dropped.drop()
        await dropped.drop()

        with pytest.raises(BusError):
            await dropped.send([out(topic, "after")])
        await other.send([out(topic, "other")])
        assert await values(rig.bus, topic) == [b"before", b"other"]

    tell(story)


def test_dropping_a_writer_in_mid_send_leaves_each_message_there_once_or_not_at_all(tell):
    async def story(rig):
        topic = await rig.topic(1)
        dropped, other = rig.bus.writer(), rig.bus.writer()
        sends = [asyncio.create_task(dropped.send([out(topic, str(number))])) for number in range(5)]
        await asyncio.sleep(0)
        await dropped.drop()
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        await other.send([out(topic, "other")])

        found = await values(rig.bus, topic)
        assert b"other" in found
        assert len(set(found)) == len(found)
        for number, outcome in enumerate(outcomes):
            if isinstance(outcome, BaseException):
                assert isinstance(outcome, BusError)
            else:
                assert [found[offset] for offset in outcome] == [str(number).encode()]

    tell(story)


def test_a_cancelled_sender_leaves_a_bus_that_serves_everybody_else(tell):
    async def story(rig):
        topic = await rig.topic(1)
        given_up = asyncio.create_task(rig.bus.writer().send([out(topic, "given up")]))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        await rig.bus.writer().send([out(topic, "kept")])

        found = await values(rig.bus, topic)
        assert found.count(b"kept") == 1
        assert found.count(b"given up") <= 1

    tell(story)


def test_readers_that_follow_writers_meet_every_message_once_and_in_order(tell):
    async def story(rig):
        topic = await rig.topic(2)
        each = 25

        async def write(name: str) -> None:
            writer = rig.bus.writer()
            for number in range(each):
                batch = [out(topic, f"{name}/{number}", partition) for partition in (0, 1)]
                await writer.send(batch, durable=number % 3 == 0 or number == each - 1)

        async def follow() -> dict[int, list[bytes]]:
            met: dict[int, list[bytes]] = {0: [], 1: []}
            while any(len(found) < 3 * each for found in met.values()):
                await rig.bus.wait_any({(topic, partition): len(found) for partition, found in met.items()}, LONG_MS)
                for partition, found in met.items():
                    messages = await rig.bus.fetch(topic, partition, len(found), most=7)
                    assert [m.offset for m in messages] == list(range(len(found), len(found) + len(messages)))
                    found += [message.value for message in messages]
            return met

        first, second, *_ = await asyncio.gather(follow(), follow(), write("a"), write("b"), write("c"))
        assert first == second
        for found in first.values():
            for name in "abc":
                own = [value for value in found if value.startswith(name.encode())]
                assert own == [f"{name}/{number}".encode() for number in range(each)]

    tell(story)
