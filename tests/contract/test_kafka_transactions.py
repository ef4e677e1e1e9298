"""Transactions of other clients on a real Kafka: inputs count once they are committed, all else waits for nobody."""

import asyncio

import pytest

from largesse.bus.kafka.bus import KafkaBus
from largesse.log.inputs import InputReader
from largesse.log.reader import LogReader
from schemas.topics import BY_NAME, INPUTS, LOG
from tests.contract.kafka_rig import make_topic, new_name, transact, transactional
from tests.contract.test_kafka_bus import LONG_MS, address, needs_kafka, open_bus, out, tell

__all__ = ["address"]


def unskipped(topic, offset):
    """No operator has an input skipped."""
    return False


async def topic_as(kind: str, address: str) -> tuple[str, dict]:
    """A new topic that the bus takes for one of this kind, and what to tell the bus of it."""
    name = await make_topic(address, new_name(kind), 1, message_timestamp_type="LogAppendTime", retention_ms="-1")
    return name, {name: BY_NAME[kind]}


@needs_kafka
@pytest.mark.parametrize("kind", INPUTS)
def test_what_was_aborted_never_comes_and_what_was_committed_does(address, kind):
    async def story():
        topic, known = await topic_as(kind, address)
        await transact(address, topic, [b"aborted"], commit=False)
        await transact(address, topic, [b"committed"])
        await transact(address, topic, [b"aborted too"], commit=False)
        async with open_bus(address, topics=known) as bus:
            assert await bus.bounds(topic, 0) == (0, 6)
            found, position = [], 0
            while position < 6:
                fetched = await bus.fetch(topic, 0, position)
                found += [message.value for message in fetched]
                position = fetched.position

            assert found == [b"committed"]
            assert not await bus.wait_any({(topic, 0): position}, 1)

    tell(story)


@needs_kafka
@pytest.mark.parametrize("kind", [LOG, "grants"])
def test_an_open_transaction_of_a_stranger_holds_nothing_back_in_the_log_and_in_decisions(address, kind):
    async def story():
        topic, known = await topic_as(kind, address)
        async with open_bus(address, topics=known) as bus, transactional(address) as stranger:
            await stranger.begin_transaction()
            await stranger.send_and_wait(topic, b"open", partition=0)
            await bus.writer().send([out(topic, "ours")])
            found = await bus.fetch(topic, 0, 0, wait_ms=LONG_MS)
            await stranger.abort_transaction()
            behind = await bus.fetch(topic, 0, found.position)

        assert [message.value for message in found] == [b"open", b"ours"]
        assert behind == []

    tell(story)


@needs_kafka
def test_an_open_transaction_holds_an_input_topic_back_until_it_ends_and_nobody_spins_or_fails(address):
    async def story():
        topic, known = await topic_as("tasks", address)
        async with open_bus(address, topics=known) as bus, transactional(address) as stranger:
            await bus.writer().send([out(topic, "before")])
            await stranger.begin_transaction()
            await stranger.send_and_wait(topic, b"open", partition=0)
            await bus.writer().send([out(topic, "behind")])
            found = await bus.fetch(topic, 0, 0, wait_ms=LONG_MS)
            assert await bus.bounds(topic, 0) == (0, 3), "what exists, so that nobody takes the topic for drained"
            assert [message.value for message in found] == [b"before"]
            assert await bus.fetch(topic, 0, 1) == []
            assert not await bus.wait_any({(topic, 0): 1}, 1)

            waiting = asyncio.create_task(bus.fetch(topic, 0, 1, wait_ms=LONG_MS))
            await stranger.commit_transaction()
            assert [message.value for message in await waiting] == [b"open", b"behind"]

    tell(story)


@needs_kafka
def test_a_sequencer_takes_nodes_for_silent_only_where_no_transaction_hides_their_reports(address):
    async def story():
        names = {}
        for kind in INPUTS:
            topic, known = await topic_as(kind, address)
            names[kind] = (topic, known)
        bus = _Inputs(address, names)
        async with transactional(address) as stranger:
            await stranger.begin_transaction()
            await stranger.send_and_wait(names["tasks"][0], b"{}", partition=0)
            reader = InputReader(bus, 0, {})
            assert await reader.read(10, unskipped) == []
            assert not await reader.is_drained("nodes", "tasks")
            await stranger.abort_transaction()
            while not await reader.is_drained("nodes", "tasks"):
                assert await reader.read(10, unskipped) == []
        await bus.close()

    tell(story)


@needs_kafka
def test_the_log_is_read_to_its_end_over_a_strangers_transactions(address):
    async def story():
        topic, known = await topic_as(LOG, address)
        await transact(address, topic, [b"void"], commit=False)
        await transact(address, topic, [b"void"])
        bus = _Inputs(address, {LOG: (topic, known)})
        reader = LogReader(bus)
        while reader.offset < 4:
            assert await reader.read() == []
        await bus.close()

        assert reader.order.void == 2

    tell(story)


class _Inputs(KafkaBus):
    """A bus on which topics have other names."""

    def __init__(self, address: str, names: dict) -> None:
        super().__init__(address, topics={name: topic for _, known in names.values() for name, topic in known.items()})
        self._names = {kind: name for kind, (name, _) in names.items()}

    async def fetch(self, topic, partition, offset, **how):
        return await super().fetch(self._names.get(topic, topic), partition, offset, **how)

    async def bounds(self, topic, partition):
        return await super().bounds(self._names.get(topic, topic), partition)
