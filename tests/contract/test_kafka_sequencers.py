"""Two sequencers of an idle cell on a real Kafka: a standby hears signs of life, and claims where there are none."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from largesse.bus.kafka.bus import KafkaBus
from largesse.log.reader import LogReader
from largesse.settings import Settings
from schemas import Policy, SequencerAlive, SequencerClaimed
from schemas.topics import BEATS, BY_NAME
from services.admission import sequencer
from tests.contract.kafka_rig import kafka_address, new_name, put_right_at_once
from tests.simulation.test_buses_agree import Renamed

LEASE_S = Policy().sequencer_lease_ms / 1_000
GUARD_S = 300

pytestmark = pytest.mark.kafka


@asynccontextmanager
async def running(bus):
    """A sequencer that is ended as by SIGKILL: it says nothing more."""
    task = asyncio.ensure_future(sequencer.run(bus, Settings(bus="kafka://test"), stop=asyncio.Event()))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def claims(bus):
    found, reader = [], LogReader(bus)
    end = (await bus.bounds("cluster.log", 0))[1]
    while reader.offset < end:
        found += await reader.read(1_000)
    assert not [each for each in found if isinstance(each.record.body, SequencerAlive)], "an idle cell writes no record"
    return [each.header.token for each in found if isinstance(each.record.body, SequencerClaimed)]


async def until(holds, bus):
    while not holds(await claims(bus)):  # noqa: ASYNC110
        await asyncio.sleep(0.05)


@asynccontextmanager
async def three_buses():
    """Of one cell, on topics of its own."""
    address, prefix = await asyncio.to_thread(kafka_address), new_name("") + "-"
    topics = {prefix + each.name: replace(each, name=prefix + each.name) for each in BY_NAME.values()}
    await put_right_at_once(address, topics.values(), cells=1)
    buses = [Renamed(KafkaBus(address, topics=topics), prefix) for _ in range(3)]
    try:
        async with asyncio.timeout(GUARD_S):
            yield buses
    finally:
        for bus in buses:
            await bus.close()


def test_a_standby_hears_an_idle_leader_and_follows_it_within_five_seconds_when_it_is_gone():
    async def story():
        loop = asyncio.get_running_loop()
        async with three_buses() as (first, second, looks), running(first) as leader:
            await until(lambda found: len(found) == 1, looks)
            async with running(second):
                said = (await looks.bounds(BEATS, 0))[1]
                await asyncio.sleep(4 * LEASE_S)
                assert len(await claims(looks)) == 1, "nobody claims while the leader gives signs of life"
                assert (await looks.bounds(BEATS, 0))[1] >= said + 8
                leader.cancel()
                gone_s = loop.time()
                await until(lambda found: len(found) == 2, looks)
                assert loop.time() - gone_s < 5

    asyncio.run(story())
