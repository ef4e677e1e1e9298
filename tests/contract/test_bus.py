"""What every bus does, whatever it is made of. One suite, run once for each adapter in RIGS.

An adapter joins with one async context manager that yields a Rig, and one entry in RIGS. Every story gets a bus of its
own and asks its rig for topics, so a broker that several tests share serves as well.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from largesse.bus.file.bus import FileBus
from largesse.bus.memory import MemoryBus
from largesse.bus.passing import KEPT
from largesse.bus.port import Bus, BusError, Message, Outgoing, PositionGap
from schemas.topics import BEATS
from tests.contract.kafka_rig import kafka_rig
from tests.contract.rig import Rig
from tests.faults.broker import Broker, Rates

LONG_MS = 60_000
"""A wait that a test never sits out."""
GUARD_SECONDS = 300
"""Ends a story that hangs."""


@asynccontextmanager
async def memory_rig(folder: Path) -> AsyncIterator[Rig]:
    bus = MemoryBus()

    async def retire(topic: str, partition: int, before: int) -> None:
        bus.retire(topic, partition, before)

    async def transaction(topic: str, partition: int, values: list[bytes]) -> None:
        await bus.writer().send([Outgoing(topic, partition, value) for value in values])
        bus.skip(topic, partition)

    yield Rig(bus, retire=retire, transaction=transaction)
    await bus.close()


@asynccontextmanager
async def file_rig(folder: Path) -> AsyncIterator[Rig]:
    bus = FileBus(folder)
    yield Rig(bus)
    await bus.close()


@asynccontextmanager
async def cramped_file_rig(folder: Path) -> AsyncIterator[Rig]:
    """Segments of a few lines, and memory for hardly anything: nearly all is read back from disk."""
    bus = FileBus(folder, segment_bytes=2_000, cache_bytes=0)
    yield Rig(bus)
    await bus.close()


@asynccontextmanager
async def simulated_rig(folder: Path) -> AsyncIterator[Rig]:
    """The bus of simulated faults, where none is drawn."""
    bus = Broker(random.Random(0), Rates()).bus()
    yield Rig(bus)
    await bus.close()


RIGS: list[object] = [
    pytest.param(memory_rig, id="memory"),
    pytest.param(simulated_rig, id="simulated"),
    pytest.param(file_rig, id="file"),
    pytest.param(cramped_file_rig, id="file, cramped"),
    pytest.param(kafka_rig, id="kafka", marks=pytest.mark.kafka),
]

Story = Callable[[Rig], Awaitable[None]]
Tell = Callable[[Story], None]


@pytest.fixture(params=RIGS, scope="module")
def tell(request, tmp_path_factory) -> Tell:
    """Runs a story against a fresh bus of each kind."""
    rig: Callable[[Path], AbstractAsyncContextManager[Rig]] = request.param

    async def run(story: Story) -> None:
        async with asyncio.timeout(GUARD_SECONDS), rig(tmp_path_factory.mktemp("bus")) as open_rig:
            await story(open_rig)

    return lambda story: asyncio.run(run(story))


def out(topic: str, value: bytes | str, partition: int = 0, **rest) -> Outgoing:
    return Outgoing(topic, partition, value.encode() if isinstance(value, str) else value, **rest)


async def everything(bus: Bus, topic: str, partition: int = 0) -> list[Message]:
    """All that lies in a partition, however few each fetch brings."""
    first, end = await bus.bounds(topic, partition)
    found: list[Message] = []
    while first + len(found) < end:
        found += await bus.fetch(topic, partition, first + len(found), wait_ms=LONG_MS)
    return found


async def values(bus: Bus, topic: str, partition: int = 0) -> list[bytes]:
    return [message.value for message in await everything(bus, topic, partition)]


async def until_waiting(task: asyncio.Task) -> None:
    """Lets a task run until it waits for the bus, or is done. Being early is no error: then it simply has not begun."""
    for _ in range(20):
        await asyncio.sleep(0)


# Appending and reading


def test_offsets_are_dense_from_zero_in_every_partition(tell):
    async def story(rig):
        topic = await rig.topic(2)
        writer = rig.bus.writer()

        assert await writer.send([out(topic, "a"), out(topic, "b", 1), out(topic, "c")]) == [0, 0, 1]
        assert await writer.send([out(topic, "d", 1), out(topic, "e")]) == [1, 2]
        assert [message.offset for message in await everything(rig.bus, topic)] == [0, 1, 2]
        assert await rig.bus.bounds(topic, 0) == (0, 3)
        assert await rig.bus.bounds(topic, 1) == (0, 2)

    tell(story)


def test_a_message_comes_back_with_its_place_bytes_and_headers(tell):
    async def story(rig):
        topic = await rig.topic(3)
        sent = Outgoing(topic, 2, b'{"job":"j1"}', key="j1", headers={"author": "fairness", "n": "1"})
        await rig.bus.writer().send([sent])

        expected = Message(topic, 2, 0, b'{"job":"j1"}', {"author": "fairness", "n": "1"})
        assert await rig.bus.fetch(topic, 2, 0) == [expected]

    tell(story)


bodies = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=50).map(str.encode),
    st.sampled_from(
        [b"", b"{}", b" {}", b"null", b'"\\ud800"', b"[1]\n", b'{"a":\r1}', b'{"a":1}}],"sum":"', b"NaN", b"1e999"]
    ),
    st.integers(0, 1_100).map(lambda depth: b"[" * depth + b"]" * depth),
)
headers = st.dictionaries(st.text(min_size=1, max_size=9), st.text(max_size=9), max_size=3)


@settings(max_examples=25)
@for_all(st.lists(st.tuples(bodies, st.text(max_size=9), headers), min_size=1, max_size=8))
def test_any_bytes_and_any_headers_come_back_as_they_were(tell, sent):
    async def story(rig):
        topic = await rig.topic(1)
        await rig.bus.writer().send([Outgoing(topic, 0, value, key, said) for value, key, said in sent])

        found = await everything(rig.bus, topic)
        assert [(message.value, message.headers) for message in found] == [(value, said) for value, _, said in sent]

    tell(story)


def test_a_large_message_passes(tell):
    async def story(rig):
        topic = await rig.topic(1)
        body = b'{"x":"' + b"y" * 921_000 + b'"}'
        await rig.bus.writer().send([out(topic, body), out(topic, b"\x00" * 600_000)])

        assert await values(rig.bus, topic) == [body, b"\x00" * 600_000]

    tell(story)


def test_an_empty_batch_is_nothing(tell):
    async def story(rig):
        assert await rig.bus.writer().send([]) == []

    tell(story)


def test_many_topics_and_partitions_do_not_mix(tell):
    async def story(rig):
        topics = [await rig.topic(3) for _ in range(10)]
        writer = rig.bus.writer()
        for turn in range(5):
            await writer.send([out(t, f"{t}/{p}/{turn}", p) for t in topics for p in range(3)], durable=turn == 4)

        for topic in topics:
            for partition in range(3):
                expected = [f"{topic}/{partition}/{turn}".encode() for turn in range(5)]
                assert await values(rig.bus, topic, partition) == expected

    tell(story)


def test_a_topic_whose_name_begins_as_another_is_another(tell):
    async def story(rig):
        topic = await rig.topic(12)
        writer = rig.bus.writer()
        await writer.send([out(topic, "one", 1), out(topic, "eleven", 11)])

        assert await values(rig.bus, topic, 1) == [b"one"]
        assert await values(rig.bus, topic, 11) == [b"eleven"]

    tell(story)


# Fetching


def test_a_fetch_brings_no_more_than_asked(tell):
    async def story(rig):
        topic = await rig.topic(1)
        await rig.bus.writer().send([out(topic, str(number)) for number in range(10)])

        found = await rig.bus.fetch(topic, 0, 3, most=4)
        assert 1 <= len(found) <= 4
        assert [message.offset for message in found] == list(range(3, 3 + len(found)))

    tell(story)


def test_a_fetch_at_the_end_brings_nothing_when_its_time_is_over(tell):
    async def story(rig):
        topic = await rig.topic(1)
        await rig.bus.writer().send([out(topic, "a")])

        assert await rig.bus.fetch(topic, 0, 1) == []
        assert await rig.bus.fetch(topic, 0, 1, wait_ms=1) == []

    tell(story)


def test_a_topic_never_written_is_empty(tell):
    async def story(rig):
        topic = await rig.topic(1)

        assert await rig.bus.bounds(topic, 0) == (0, 0)
        assert await rig.bus.fetch(topic, 0, 0) == []

    tell(story)


def test_a_waiting_fetch_is_woken_by_the_append(tell):
    async def story(rig):
        topic = await rig.topic(1)
        fetching = asyncio.create_task(rig.bus.fetch(topic, 0, 0, wait_ms=LONG_MS))
        await until_waiting(fetching)
        await rig.bus.writer().send([out(topic, "a")])

        assert [message.value for message in await fetching] == [b"a"]

    tell(story)


def test_every_waiting_reader_is_woken(tell):
    async def story(rig):
        topic = await rig.topic(1)
        readers = [asyncio.create_task(rig.bus.fetch(topic, 0, 0, wait_ms=LONG_MS)) for _ in range(5)]
        await until_waiting(readers[-1])
        await rig.bus.writer().send([out(topic, "a")])

        assert [[message.value for message in found] for found in await asyncio.gather(*readers)] == [[b"a"]] * 5

    tell(story)


def test_an_append_elsewhere_does_not_end_a_wait(tell):
    async def story(rig):
        topic, other = await rig.topic(2), await rig.topic(1)
        fetching = asyncio.create_task(rig.bus.fetch(topic, 0, 0, wait_ms=LONG_MS))
        await until_waiting(fetching)
        writer = rig.bus.writer()
        await writer.send([out(topic, "other partition", 1), out(other, "other topic")])
        assert not fetching.done()
        await writer.send([out(topic, "this one")])

        assert [message.value for message in await fetching] == [b"this one"]

    tell(story)


def test_a_cancelled_fetch_takes_nothing_away(tell):
    async def story(rig):
        topic = await rig.topic(1)
        given_up = asyncio.create_task(rig.bus.fetch(topic, 0, 0, wait_ms=LONG_MS))
        patient = asyncio.create_task(rig.bus.fetch(topic, 0, 0, wait_ms=LONG_MS))
        await until_waiting(patient)
        given_up.cancel()
        await asyncio.wait([given_up])
        await rig.bus.writer().send([out(topic, "a")])

        assert [message.value for message in await patient] == [b"a"]
        assert await values(rig.bus, topic) == [b"a"]

    tell(story)


# Waiting for several


def test_wait_any_ends_with_the_first_append_to_one_of_them(tell):
    async def story(rig):
        first, second = await rig.topic(1), await rig.topic(2)
        waiting = asyncio.create_task(rig.bus.wait_any({(first, 0): 0, (second, 1): 0}, LONG_MS))
        await until_waiting(waiting)
        await rig.bus.writer().send([out(second, "a", 1)])

        assert await waiting

    tell(story)


def test_wait_any_does_not_wait_for_what_is_there(tell):
    async def story(rig):
        topic, other = await rig.topic(1), await rig.topic(1)
        await rig.bus.writer().send([out(topic, "a"), out(topic, "b")])

        assert await rig.bus.wait_any({(other, 0): 0, (topic, 0): 1}, LONG_MS)

    tell(story)


def test_wait_any_gives_up_when_its_time_is_over(tell):
    async def story(rig):
        topic = await rig.topic(1)
        await rig.bus.writer().send([out(topic, "a")])

        assert not await rig.bus.wait_any({(topic, 0): 1}, 1)
        assert not await rig.bus.wait_any({(topic, 0): 1}, 0)
        assert not await rig.bus.wait_any({}, 1)

    tell(story)


# Gaps


def test_a_position_beyond_the_end_is_named(tell):
    async def story(rig):
        topic = await rig.topic(4)
        await rig.bus.writer().send([out(topic, "a", 3), out(topic, "b", 3)])

        with pytest.raises(PositionGap) as gap:
            await rig.bus.fetch(topic, 3, 517, wait_ms=LONG_MS)
        for named in (topic, "partition 3", "517", "0 to 1"):
            assert named in str(gap.value)

    tell(story)


def test_a_position_beyond_the_end_of_an_empty_partition_is_a_gap(tell):
    async def story(rig):
        topic = await rig.topic(1)

        with pytest.raises(PositionGap):
            await rig.bus.fetch(topic, 0, 1)

    tell(story)


def test_a_position_below_zero_is_before_the_start(tell):
    async def story(rig):
        topic = await rig.topic(1)
        await rig.bus.writer().send([out(topic, "a")])

        with pytest.raises(PositionGap):
            await rig.bus.fetch(topic, 0, -1)

    tell(story)


def test_a_position_that_retention_has_passed_is_named(tell):
    async def story(rig):
        if rig.retire is None:
            pytest.skip("this bus keeps everything")
        topic = await rig.topic(1)
        await rig.bus.writer().send([out(topic, str(number)) for number in range(5)])
        await rig.retire(topic, 0, 3)

        assert await rig.bus.bounds(topic, 0) == (3, 5)
        assert await values(rig.bus, topic) == [b"3", b"4"]
        with pytest.raises(PositionGap) as gap:
            await rig.bus.fetch(topic, 0, 2)
        for named in (topic, "partition 0", "2", "3 to 4"):
            assert named in str(gap.value)

    tell(story)


def test_a_gap_ends_a_wait_for_any_so_that_the_fetch_can_name_it(tell):
    async def story(rig):
        topic = await rig.topic(1)

        assert await rig.bus.wait_any({(topic, 0): 9}, LONG_MS)

    tell(story)


# Closing


def test_a_closed_bus_refuses_everything(tell):
    async def story(rig):
        topic = await rig.topic(1)
        writer = rig.bus.writer()
        await writer.send([out(topic, "a")])
        await rig.bus.close()
        await rig.bus.close()

        for refused in (
            lambda: writer.send([out(topic, "b")]),
            lambda: rig.bus.fetch(topic, 0, 0),
            lambda: rig.bus.bounds(topic, 0),
            lambda: rig.bus.wait_any({(topic, 0): 0}, 0),
        ):
            with pytest.raises(BusError):
                await refused()

    tell(story)


def test_closing_ends_every_wait(tell):
    async def story(rig):
        topic = await rig.topic(1)
        fetching = asyncio.create_task(rig.bus.fetch(topic, 0, 0, wait_ms=LONG_MS))
        waiting = asyncio.create_task(rig.bus.wait_any({(topic, 0): 0}, LONG_MS))
        await until_waiting(waiting)
        await rig.bus.close()

        for outcome in await asyncio.gather(fetching, waiting, return_exceptions=True):
            assert isinstance(outcome, BusError)

    tell(story)


# Topics that nobody keeps


def beats(tell):
    """Runs a story on the beats of a bus that makes topics as they are written to."""

    def run(story):
        async def on_beats(rig):
            if rig.topic is not Rig(rig.bus).topic:
                pytest.skip("a broker keeps them for its retention: tests/contract/test_kafka_topics.py")
            await story(rig)

        tell(on_beats)

    return run


def test_signs_of_life_are_read_in_order_with_their_headers_like_anything_else(tell):
    async def story(rig):
        writer, other = rig.bus.writer(), await rig.topic(1)
        sent = [out(BEATS, "a", headers={"author": "agent:n"}), out(other, "kept"), out(BEATS, "b"), out(BEATS, "c", 1)]

        assert await writer.send(sent) == [0, 0, 1, 0]
        assert await writer.send([out(BEATS, "d")], durable=False) == [2]
        assert await values(rig.bus, BEATS) == [b"a", b"b", b"d"]
        assert await values(rig.bus, BEATS, 1) == [b"c"]
        assert await values(rig.bus, other) == [b"kept"]
        assert (await rig.bus.fetch(BEATS, 0, 0, most=1))[0] == Message(BEATS, 0, 0, b"a", {"author": "agent:n"})
        assert (await rig.bus.fetch(BEATS, 0, 1, most=1)).position == 2

    beats(tell)(story)


def test_a_sign_of_life_wakes_who_waits_for_it(tell):
    async def story(rig):
        waiting = asyncio.create_task(rig.bus.wait_any({(BEATS, 0): 0}, LONG_MS))
        await until_waiting(waiting)
        await rig.bus.writer().send([out(BEATS, "a")])

        assert await waiting

    beats(tell)(story)


def test_of_signs_of_life_the_last_are_left_and_who_stands_before_them_is_told(tell):
    async def story(rig):
        await rig.bus.writer().send([out(BEATS, str(number)) for number in range(KEPT + 3)])

        assert await rig.bus.bounds(BEATS, 0) == (3, KEPT + 3)
        assert (await rig.bus.fetch(BEATS, 0, 3))[0].value == b"3"
        with pytest.raises(PositionGap, match=f"{BEATS} partition 0: position 2 is before the start"):
            await rig.bus.fetch(BEATS, 0, 2)
        assert await rig.bus.wait_any({(BEATS, 0): 2}, LONG_MS)

    beats(tell)(story)
