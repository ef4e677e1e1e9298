"""Instances beside each other: who has the log still to fold takes no shard from who can answer, and rounds go on
whoever is paused, or behind.
"""

import asyncio

import pytest

from largesse.bus.memory import MemoryBus
from largesse.bus.port import BusError, Fetched
from largesse.log.decisions import partition_of
from largesse.process.shards import run_assigned
from largesse.settings import Settings
from largesse.shell import CAUGHT_UP_WITHIN
from schemas import TimeReached
from schemas.policy import SHARDS_MAX
from schemas.topics import LOG
from tests.bus_stories import Scribe
from tests.toy import Toy

GUARD_S = 240
LONG = 100_000
SETTINGS = Settings(bus="kafka://of-a-test:1", wait_ms=20, standby_wait_ms=20)
PATIENT = Settings(bus="kafka://of-a-test:1", wait_ms=20, standby_wait_ms=GUARD_S * 1_000)


class GroupBus(MemoryBus):
    """A bus in memory that deals out shards in turn, from the newest member on: the worst there could be."""

    def __init__(self):
        super().__init__()
        self.members = {}
        self.thrown_out = {}
        self.dealt = asyncio.Condition()

    async def join(self, group, on_assigned):
        self.members[on_assigned] = []
        self.thrown_out[on_assigned] = asyncio.Event()
        try:
            await self._deal()
            await self.thrown_out[on_assigned].wait()
            raise BusError("thrown out")
        finally:
            del self.members[on_assigned]
            await self._deal()

    async def _deal(self):
        newest_first = list(reversed(self.members))
        for number, on_assigned in enumerate(newest_first):
            self.members[on_assigned] = list(range(number, SHARDS_MAX, len(newest_first)))
            on_assigned(self.members[on_assigned])
        async with self.dealt:
            self.dealt.notify_all()

    def throws_the_newest_out(self):
        self.thrown_out[list(self.members)[-1]].set()

    async def has_members(self, count):
        async with self.dealt:
            await self.dealt.wait_for(lambda: len(self.members) == count)


class View:
    """The bus as one instance has it. While it is paused it gets no more of the log. `read`: how far it has read."""

    def __init__(self, bus):
        self.bus = bus
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.read = 0
        self.asked = 0
        self.joined_at = []

    def __getattr__(self, name):
        return getattr(self.bus, name)

    async def join(self, group, on_assigned):
        _, end = await self.bus.bounds(LOG, 0)
        self.joined_at.append((self.read, end))
        await self.bus.join(group, on_assigned)

    async def bounds(self, topic, partition):
        self.asked += topic == LOG
        return await self.bus.bounds(topic, partition)

    async def fetch(self, topic, partition, offset, **more):
        if topic != LOG:
            return await self.bus.fetch(topic, partition, offset, **more)
        await self.goes_on.wait()
        fetched: Fetched = await self.bus.fetch(topic, partition, offset, **more)
        self.read = max(self.read, fetched.position)
        return fetched


class Service:
    """Instances of one service, and somebody who writes the log that they follow."""

    def __init__(self, topic, settings=SETTINGS):
        self.topic, self.settings = topic, settings
        self.bus = GroupBus()
        self.scribe = Scribe(self.bus)
        self.rounds = 0
        self._running = {}

    def starts(self):
        view = View(self.bus)
        stop = asyncio.Event()
        core = Toy(self.topic, reads=(self.topic,))
        self._running[view] = stop, asyncio.create_task(run_assigned(core, view, self.settings, stop=stop))
        return view

    async def ends(self, view):
        view.goes_on.set()
        stop, task = self._running.pop(view)
        stop.set()
        await task

    async def all_end(self):
        for view in list(self._running):
            await self.ends(view)

    async def goes_through(self, rounds, shards=1):
        """Rounds that open, are answered for every shard, and close. Raises TimeoutError where one stands still."""
        for _ in range(rounds):
            ends = {shard: (await self._end(shard))[1] for shard in range(shards)}
            opening = await self.scribe.open(shards=shards)
            for shard, end in ends.items():
                assert await self.bus.wait_any({self._place(shard): end}, GUARD_S * 1_000), f"round {opening.id}"
            await self.scribe.close(opening, hashes=[])
            self.rounds += 1

    async def answers(self, shard=0):
        first, end = await self._end(shard)
        return end - first

    async def _end(self, shard):
        return await self.bus.bounds(*self._place(shard))

    def _place(self, shard):
        return self.topic, partition_of(self.topic, 0, shard)


def guarded(story):
    """Runs a coroutine as a test, with a limit of time: a standstill fails."""

    def run(topic):
        async def whole():
            async with asyncio.timeout(GUARD_S):
                service = Service(topic, settings)
                try:
                    await story(service)
                finally:
                    await service.all_end()

        asyncio.run(whole())

    settings = getattr(story, "settings", SETTINGS)
    run.__name__ = story.__name__
    return pytest.mark.parametrize("topic", ["shares", "asks"])(run)


def patient(story):
    story.settings = PATIENT
    return story


@pytest.mark.whole
@pytest.mark.slow
@guarded
@patient
async def test_an_instance_without_a_snapshot_takes_a_shard_only_when_it_has_folded_a_long_log(service):
    first = service.starts()
    await service.bus.has_members(1)
    for _ in range(LONG // 1_000):
        await service.scribe.write(*[TimeReached(1)] * 1_000)
    await service.goes_through(3)
    second = service.starts()
    while not second.joined_at:
        await service.goes_through(1)
    await service.bus.has_members(2)
    await service.goes_through(20)
    ((read, end),) = second.joined_at

    assert first.joined_at == [(0, 0)]
    assert LONG < end <= read + CAUGHT_UP_WITHIN + 100
    assert service.rounds > 24


@guarded
async def test_rounds_go_on_while_the_instance_to_which_a_shard_was_dealt_is_paused(service):
    service.starts()
    second = service.starts()
    await service.bus.has_members(2)
    await service.goes_through(3)
    second.goes_on.clear()
    await service.goes_through(5, shards=1)
    second.goes_on.set()
    await service.goes_through(5)


@pytest.mark.slow
@guarded
async def test_an_instance_that_was_thrown_out_joins_again_only_when_it_has_caught_up(service):
    service.starts()
    await service.bus.has_members(1)
    second = service.starts()
    await service.bus.has_members(2)
    second.goes_on.clear()
    await service.scribe.write(*[TimeReached(1)] * (CAUGHT_UP_WITHIN + 100))
    service.bus.throws_the_newest_out()
    await service.bus.has_members(1)
    asked = second.asked
    while second.asked < asked + 3:
        await service.goes_through(1)
    assert len(second.joined_at) == 1
    second.goes_on.set()
    while len(second.joined_at) == 1:
        await service.goes_through(1)

    read, end = second.joined_at[1]
    assert CAUGHT_UP_WITHIN < end <= read + CAUGHT_UP_WITHIN + 100


def test_a_shard_that_is_dealt_away_is_answered_until_its_new_owner_can():
    async def story():
        service = Service("asks")
        first = service.starts()
        await service.bus.has_members(1)
        await service.goes_through(2, shards=4)
        second = service.starts()
        await service.bus.has_members(2)
        second.goes_on.clear()  # It is dealt two shards, and has not folded the log for them.
        await service.goes_through(5, shards=4)
        second.goes_on.set()
        await service.goes_through(5, shards=4)
        await service.ends(first)
        await service.bus.has_members(1)
        await service.goes_through(5, shards=4)
        await service.all_end()

    asyncio.run(asyncio.wait_for(story(), GUARD_S))


def test_an_instance_with_no_shard_in_use_stands_by_for_one_that_is():
    async def story():
        service = Service("asks")
        service.starts()
        await service.bus.has_members(1)
        second = service.starts()  # From now on the newest has shard 0.
        await service.bus.has_members(2)
        await service.goes_through(3)
        second.goes_on.clear()
        await service.goes_through(3)
        await service.all_end()

    asyncio.run(asyncio.wait_for(story(), GUARD_S))
