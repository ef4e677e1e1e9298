"""Which shards an instance runs follows from what is its own and what is in use."""

import asyncio

import pytest

from largesse.bus.port import Bus
from largesse.folding import CoreStopped
from largesse.log.decisions import partition_of
from largesse.process.shards import run_assigned, shared
from largesse.settings import Settings
from schemas import JobCancelled
from tests.bus_stories import Scribe, story
from tests.toy import Toy

SETTINGS = Settings(bus="memory:", wait_ms=10)
LONG_MS = 60_000


@pytest.mark.parametrize(
    ("own", "of", "run"),
    [
        pytest.param([0, 1, 2, 3], 2, [0, 1], id="those in use"),
        pytest.param([3, 1], 4, [1, 3], id="in order"),
        pytest.param([5, 7], 2, [1], id="one as a standby where none of its own is in use"),
        pytest.param([5, 7], 1, [0], id="the only one as a standby"),
        pytest.param([], 2, [0], id="one as a standby where nothing is its own"),
    ],
)
def test_an_instance_runs_its_own_shards_that_are_in_use_or_one_as_a_standby(own, of, run):
    assert shared(own, of) == run


async def asks_of(bus: Bus, shard: int, count: int) -> None:
    """Waits until a shard has answered so often."""
    place = ("asks", partition_of("asks", 0, shard))
    assert await bus.wait_any({place: count - 1}, LONG_MS)


@story
async def test_an_instance_alone_runs_every_shard_as_soon_as_it_is_in_use(bus, scribe: Scribe):
    stop = asyncio.Event()
    instance = asyncio.create_task(run_assigned(Toy("asks"), bus, SETTINGS, stop=stop))
    opening = await scribe.open(shards=1)
    await asks_of(bus, 0, 1)
    await scribe.close(opening, hashes=[])
    await scribe.open(shards=3)
    for shard, count in ((0, 2), (1, 1), (2, 1)):
        await asks_of(bus, shard, count)
    stop.set()
    await instance

    assert await bus.bounds("asks", partition_of("asks", 0, 3)) == (0, 0)


@story
async def test_a_service_without_shards_answers_whatever_shard_the_environment_names(bus, scribe: Scribe):
    stop = asyncio.Event()
    settings = Settings(bus="memory:", wait_ms=10, shard=3)
    instance = asyncio.create_task(run_assigned(Toy("shares"), bus, settings, stop=stop))
    await scribe.open()
    assert await bus.wait_any({("shares", 0): 0}, LONG_MS)
    stop.set()
    await instance


@story
async def test_an_error_in_one_shard_ends_the_instance(bus, scribe: Scribe):
    instance = asyncio.create_task(run_assigned(Toy("asks"), bus, SETTINGS, stop=asyncio.Event()))
    await scribe.write(JobCancelled("poison", "ann"))

    with pytest.raises(CoreStopped, match="folding"):
        await instance
