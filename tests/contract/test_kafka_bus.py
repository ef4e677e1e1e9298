"""What is Kafka's own: several processes, topics that would lose messages, brokers that crash, readers far apart."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaProducer

from largesse.bus.kafka.bus import FOLLOWERS_MAX, KafkaBus
from largesse.bus.kafka.topic_settings import MEMBERSHIP
from largesse.bus.kafka.topics_admin import TopicsAdmin
from largesse.bus.port import BusError, Outgoing, PositionGap
from largesse.process.assignment import assignment_of
from largesse.settings import Settings
from schemas.policy import SHARDS_MAX
from tests.contract.kafka_rig import delete_before, kafka_address, make_topic, new_name, put_right_at_once
from tests.unit.test_assignment import caught_up

LONG_MS = 60_000
GUARD_SECONDS = 300

needs_kafka = pytest.mark.kafka


def tell(story) -> None:
    """Runs a story, with a guard against one that hangs."""

    async def guarded() -> None:
        async with asyncio.timeout(GUARD_SECONDS):
            await story()

    asyncio.run(guarded())


@asynccontextmanager
async def open_bus(address: str, **settings):
    bus = KafkaBus(address, **settings)
    try:
        yield bus
    finally:
        await bus.close()


def out(topic: str, value: str | bytes, partition: int = 0, **rest) -> Outgoing:
    return Outgoing(topic, partition, value.encode() if isinstance(value, str) else value, **rest)


async def read_on(bus, topic: str, offset: int, end: int, most: int = 1_000) -> list[bytes]:
    """Values of everything from `offset` up to offset `end`."""
    found = []
    while offset < end:
        messages = await bus.fetch(topic, 0, offset, wait_ms=LONG_MS, most=most)
        found += [message.value for message in messages]
        offset = messages[-1].offset + 1
    return found


@pytest.fixture
def address() -> str:
    return kafka_address()


# Several processes


@needs_kafka
def test_what_one_process_appends_wakes_a_reader_in_another(address):
    async def story():
        topic = await make_topic(address, new_name(), 1)
        async with open_bus(address) as here, open_bus(address) as there:
            reading = asyncio.create_task(there.fetch(topic, 0, 0, wait_ms=LONG_MS))
            waiting = asyncio.create_task(there.wait_any({(topic, 0): 0}, LONG_MS))
            await here.writer().send([out(topic, "a")])

            assert [message.value for message in await reading] == [b"a"]
            assert await waiting

    tell(story)


@needs_kafka
def test_a_reader_that_knows_of_a_message_gets_it_without_waiting(address):
    async def story():
        topic = await make_topic(address, new_name(), 1)
        async with open_bus(address) as here, open_bus(address) as there:
            assert await there.fetch(topic, 0, 0) == []
            writer = here.writer()
            for number in range(30):
                await writer.send([out(topic, str(number))])

                assert await there.bounds(topic, 0) == (0, number + 1)
                assert [message.value for message in await there.fetch(topic, 0, number)] == [str(number).encode()]

    tell(story)


@needs_kafka
def test_what_somebody_else_wrote_without_value_or_text_can_be_read(address):
    async def story():
        topic = await make_topic(address, new_name(), 1)
        stranger = AIOKafkaProducer(bootstrap_servers=address)
        await stranger.start()
        await stranger.send_and_wait(topic, None, key=b"gone", partition=0)
        await stranger.send_and_wait(topic, b"\xff", partition=0, headers=[("author", b"\xff"), ("none", None)])
        await stranger.stop()
        async with open_bus(address) as bus:
            first, second = await bus.fetch(topic, 0, 0, most=1), await bus.fetch(topic, 0, 1)

        assert (first[0].value, first[0].headers) == (b"", {})
        assert (second[0].value, second[0].headers) == (b"\xff", {"author": "\ufffd", "none": ""})

    tell(story)


# Readers


@needs_kafka
def test_readers_far_apart_each_read_everything_in_order(address):
    async def story():
        topic = await make_topic(address, new_name(), 1)
        body = b"x" * 10_000
        values = [b"%d/" % number + body for number in range(1_200)]
        async with open_bus(address) as bus:
            await bus.writer().send([out(topic, value) for value in values])
            readers = [
                read_on(bus, topic, start, len(values), most=50)
                for start in range(0, 1_200, 1_200 // (FOLLOWERS_MAX + 2))
            ]
            for found in await asyncio.gather(*readers):
                assert found == values[-len(found) :]
                assert len(found) > 100

    tell(story)


@needs_kafka
def test_one_reader_may_jump_about(address):
    async def story():
        topic = await make_topic(address, new_name(), 1)
        async with open_bus(address) as bus:
            await bus.writer().send([out(topic, str(number)) for number in range(1_000)])
            for offset in (999, 0, 500, 998, 3, 999, 1):
                assert (await bus.fetch(topic, 0, offset, most=1))[0].value == str(offset).encode()
            assert await bus.fetch(topic, 0, 1_000) == []

    tell(story)


@needs_kafka
def test_a_reader_that_stands_still_holds_little_in_memory(address):
    async def story():
        topic = await make_topic(address, new_name(), 1)
        async with open_bus(address) as reader, open_bus(address) as other:
            writer = other.writer()
            assert await reader.fetch(topic, 0, 0) == []
            for _ in range(20):
                await writer.send([out(topic, b"y" * 500_000), out(topic, b"z" * 500_000)])
            assert await reader.wait_any({(topic, 0): 0}, LONG_MS)
            held = [follower.held_bytes for followers in reader._followers.values() for follower in followers]

            assert sum(held) < 5_000_000
            found = await read_on(reader, topic, 0, 40)
            assert [value[:1] for value in found] == [b"y", b"z"] * 20

    tell(story)


@needs_kafka
def test_retention_that_overtakes_a_reader_is_a_gap(address):
    async def story():
        topic = await make_topic(address, new_name(), 1)
        async with open_bus(address) as bus:
            await bus.writer().send([out(topic, str(number)) for number in range(10)])
            assert len(await bus.fetch(topic, 0, 0, most=3)) == 3
            await delete_before(address, topic, 0, 8)

            assert await bus.bounds(topic, 0) == (8, 10)
            with pytest.raises(PositionGap, match="position 3 is before the start; offsets 8 to 9 exist"):
                await bus.fetch(topic, 0, 3)
            assert await read_on(bus, topic, 8, 10) == [b"8", b"9"]

    tell(story)


@needs_kafka
def test_a_partition_that_lost_its_tail_stops_the_reader_with_the_name_of_the_gap(address):
    async def story():
        topic = await make_topic(address, new_name(), 1)
        async with open_bus(address) as bus, open_bus(address) as other:
            await other.writer().send([out(topic, str(number)) for number in range(5)])
            assert len(await read_on(bus, topic, 0, 5)) == 5
            waiting = asyncio.create_task(bus.fetch(topic, 0, 5, wait_ms=LONG_MS))
            # Gone and made anew: offsets are given again from zero, as after a broker that came back without its disk.
            async with TopicsAdmin(address) as admin:
                await admin.client.delete_topics([topic])
                while topic in await admin.describe([topic]):
                    pass
            await make_topic(address, topic, 1)
            async with open_bus(address) as another:
                await another.writer().send([out(topic, "new")])

            with pytest.raises(PositionGap, match="position 5 is beyond the end"):
                await waiting

    tell(story)


@needs_kafka
def test_a_topic_that_goes_while_it_is_looked_at_is_none(address, monkeypatch):
    async def story():
        topic = await make_topic(address, new_name(), 1)
        async with TopicsAdmin(address) as admin:
            listed = [each for each in await admin.client.describe_topics() if each["topic"] == topic]
            answers = [[*listed, {**listed[0], "topic": new_name()}], listed]
            monkeypatch.setattr(admin.client, "describe_topics", lambda: asyncio.sleep(0, answers.pop(0)))
            found = await admin.describe([answers[0][1]["topic"], topic])

        assert (list(found), answers) == ([topic], [])

    tell(story)


# Writers


@needs_kafka
def test_a_send_larger_than_any_batch_keeps_its_order(address):
    async def story():
        topic = await make_topic(address, new_name(), 2)
        batch = [out(topic, b"%d/" % number + b"x" * 300_000, number % 2) for number in range(20)]
        async with open_bus(address) as bus:
            offsets = await bus.writer().send(batch)
            found = await read_on(bus, topic, 0, 10)

        assert offsets == [number // 2 for number in range(20)]
        assert [int(value.split(b"/")[0]) for value in found] == list(range(0, 20, 2))

    tell(story)


@needs_kafka
def test_a_writer_that_was_refused_once_sends_nothing_more(address):
    async def story():
        topic = await make_topic(address, new_name(), 1, max_message_bytes="1000")
        async with open_bus(address) as bus:
            writer = bus.writer()
            await writer.send([out(topic, "before")])
            sends = [writer.send([out(topic, value)]) for value in (b"x" * 5_000, b"behind", b"also behind")]
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            with pytest.raises(BusError):
                await writer.send([out(topic, "later")])
            await bus.writer().send([out(topic, "another")])
            _, end = await bus.bounds(topic, 0)

            assert all(isinstance(outcome, BusError) for outcome in outcomes)
            assert await read_on(bus, topic, 0, end) == [b"before", b"another"]

    tell(story)


@needs_kafka
def test_a_text_that_is_none_is_refused_before_anything_is_sent(address):
    async def story():
        topic = await make_topic(address, new_name(), 1)
        async with open_bus(address) as bus:
            writer = bus.writer()
            for wrong in ({"key": "\ud800"}, {"headers": {"author": "\ud800"}}):
                with pytest.raises(TypeError, match="no Unicode"):
                    await writer.send([out(topic, "a"), out(topic, "b", **wrong)])
            assert await writer.send([out(topic, "c")]) == [0]

    tell(story)


# No cluster


def test_a_cluster_that_cannot_be_reached_is_named_when_patience_is_over():
    async def story():
        async with open_bus("127.0.0.1:1", patience_ms=100) as bus:
            for asked in (
                lambda: bus.fetch("jobs", 0, 0),
                lambda: bus.bounds("jobs", 0),
                lambda: bus.wait_any({("jobs", 0): 0}, LONG_MS),
                lambda: bus.writer().send([out("jobs", "{}")]),
            ):
                with pytest.raises(BusError, match=r"kafka://127\.0\.0\.1:1: .*cannot be reached.*tried for 100 ms"):
                    await asked()

    tell(story)


# Who serves which shard


@needs_kafka
def test_a_group_deals_every_shard_to_one_instance_and_again_when_one_leaves(address):
    async def story():
        await put_right_at_once(address, [MEMBERSHIP], cells=1)
        settings = Settings(bus=f"kafka://{address}", cell=new_name("cell"))

        async def until(condition) -> None:
            while not condition():
                changes = [asyncio.ensure_future(each.changed.wait()) for each in (first, second)]
                await asyncio.wait(changes, return_when=asyncio.FIRST_COMPLETED)
                for each in (first, second):
                    each.changed.clear()

        def shares() -> list[int]:
            return sorted(first.shards() + second.shards())

        async with open_bus(address) as here, open_bus(address) as there:
            first = assignment_of(here, settings, "altruism", caught_up)
            second = assignment_of(there, settings, "altruism", caught_up)
            await until(lambda: shares() == list(range(SHARDS_MAX)) and first.shards() and second.shards())
            # The shards that are in use are the first few: each instance has its part of them.
            assert first.is_mine(0) == second.is_mine(1) != first.is_mine(1)

            await first.close()
            await until(lambda: len(second.shards()) == SHARDS_MAX)
            assert second.active(0).is_set()
            await second.close()

    tell(story)
