"""A cell on a real Kafka among strangers who write to every topic, also in transactions: the good jobs run."""

import asyncio
from random import Random

import pytest

from largesse.bus.kafka.bus import KafkaBus
from largesse.bus.kafka.topics_admin import put_right
from largesse.bus.port import Outgoing
from schemas.topics import BY_NAME, DECISIONS, INPUTS, LOG, Topic
from tests.bus_cell import BusCell
from tests.contract.kafka_rig import kafka_address, new_name, transactional
from tests.hostile import hostile_input, spoiled
from tests.simulation.test_buses_agree import Renamed

JOBS, TURNS, AT_ONCE = 4, 6, 12
GUARD_S = 240


def value_for(topic, random, seen):
    """A message for a topic: for inputs what the schemas describe, with slips; else one that was there, spoiled."""
    if topic in INPUTS:
        return hostile_input(topic, random).value
    value = spoiled(random.choice(seen) if seen else b"{}", random)
    # A token of each one's own: behind a forged claim, garbage with that claim's token would be the valid writer's.
    return value.replace(b'"token":"', b'"token":"z%d-' % random.getrandbits(64)) if topic == LOG else value


async def intrude(bus, producer, prefix, random):
    """One transaction over every topic, committed or not, and messages outside of any."""
    topics = [*INPUTS, LOG, *DECISIONS, "deadletter", "snapshots"]
    values = []
    for topic in topics:
        first, _ = await bus.bounds(topic, 0)
        seen = [message.value for message in await bus.fetch(topic, 0, first, most=50)]
        values += [(topic, value_for(topic, random, seen)) for _ in range(AT_ONCE)]
    await producer.begin_transaction()
    key = b"stranger"
    for topic, value in values[::2]:
        await producer.send(prefix + topic, value, key=key, partition=0)
    await (producer.commit_transaction() if random.random() < 0.5 else producer.abort_transaction())
    await bus.writer().send([Outgoing(topic, 0, value, "stranger") for topic, value in values[1::2]])


@pytest.mark.kafka
def test_the_good_jobs_of_a_cell_on_kafka_run_whatever_strangers_write():
    async def story():
        address = await asyncio.to_thread(kafka_address)
        prefix = new_name("") + "-"
        topics = {
            prefix + each.name: Topic(prefix + each.name, each.kind, (), (), (), each.cleanup)
            for each in BY_NAME.values()
        }
        await put_right(address, topics.values(), cells=2)
        bus = Renamed(KafkaBus(address, topics=topics), prefix)
        random = Random(11)
        try:
            async with asyncio.timeout(GUARD_S), BusCell(bus, snapshot_rounds=2) as cell:
                async with transactional(address) as producer:
                    for turn in range(TURNS):
                        await intrude(bus, producer, prefix, random)
                        if turn < JOBS:
                            await cell.submit(1, job=f"good-{turn}")
                await until_succeeded(cell, [f"good-{turn}" for turn in range(JOBS)])
        finally:
            await bus.close()

    asyncio.run(story())


async def until_succeeded(cell, names):
    """Until these jobs have ended, whatever else does. Raises what a service raised."""
    ended = 0
    while any(name not in cell.ended for name in names):
        ended += 1
        await cell.until_ended(ended)
    assert {cell.ended[name] for name in names} == {"succeeded"}
