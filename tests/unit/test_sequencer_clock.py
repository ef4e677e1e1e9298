"""Sequencers on clocks that jump: rounds, wake-ups, leases and takeovers go by the time that passes, not by the wall
clock, and log time goes on whatever the wall clock says.
"""

import pytest
from hypothesis import strategies as st

from largesse.bus.port import Fetched
from largesse.log.reader import LogReader, publish_input
from largesse.settings import Settings
from schemas import Asks, Grants, JobAdmitted, NodeLost, RoundClosed, RoundOpened, SequencerAlive, Shares, TimeReached
from schemas.topics import BEATS, LOG
from services.admission.clock import SLEW
from services.admission.sequencer import Sequencer
from tests.bus_stories import Scribe, story
from tests.strategies import for_all

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
YEAR_MS = 365 * DAY_MS
JUMPS = [sign * span for span in (HOUR_MS, DAY_MS, YEAR_MS) for sign in (1, -1)]
NOW_MS = 1_800_000_000_000
LEASE_MS = 3_000
NODE_LEASE_MS = 10_000
STEP_MS = 250
JOB = {"stages": [{"stage": "s", "tasks": 1, "demand": {"cpu": "1"}, "duration_ms": 1_000}]}
NODE = {"node": "n1", "epoch": "e1", "capacity": {"cpu": "4"}}


class Distant:
    """A bus as a process far away has it: once it was paused, it knows of more log only what `bounds` tells."""

    def __init__(self, bus):
        self._bus = bus
        self._end = None

    def __getattr__(self, name):
        return getattr(self._bus, name)

    async def is_paused(self):
        _, self._end = await self._bus.bounds(LOG, 0)

    async def bounds(self, topic, partition):
        self._end = None
        return await self._bus.bounds(topic, partition)

    async def fetch(self, topic, partition, offset, **more):
        messages = await self._bus.fetch(topic, partition, offset, **more)
        if topic != LOG or self._end is None:
            return messages
        known = [message for message in messages if message.offset < self._end]
        return Fetched(known, known[-1].offset + 1 if known else offset)


class Desks:
    """Sequencers on one log, each on a machine with a wall clock of its own; time passes for all alike."""

    def __init__(self, bus, count=1):
        self.bus = bus
        self.scribe = Scribe(bus)
        self.steady = 0
        self.walls = [NOW_MS] * count
        self.settings = Settings(bus="memory:")
        self.tokens = 0
        self.buses = [Distant(bus) for _ in range(count)]
        self.running = {number: self._made(number, alone=count == 1) for number in range(count)}

    def _made(self, number, alone):
        return Sequencer(
            self.buses[number],
            self.settings,
            clock=lambda: self.walls[number],
            steady=lambda: self.steady,
            draw_token=self._token,
            alone=alone,
            name=f"admission-{number}",
        )

    def starts_again(self, number=0):
        self.running[number] = self._made(number, alone=True)

    def _token(self):
        self.tokens += 1
        return f"token-{self.tokens}"

    async def signs(self):
        """How many signs of life and records there are that say nothing else."""
        return (await self.bus.bounds(BEATS, 0))[1] + len(await self.records(SequencerAlive))

    def jumps(self, by_ms, number=0):
        self.walls[number] += by_ms

    async def passes(self, span_ms, step_ms=STEP_MS):
        """Time passes step by step for everybody who runs."""
        while True:
            for sequencer in list(self.running.values()):
                while await sequencer.step():
                    pass
            if span_ms <= 0:
                return
            step = min(step_ms, span_ms)
            span_ms -= step
            self.steady += step
            self.walls = [wall + step for wall in self.walls]

    async def send(self, topic, document):
        await publish_input(self.bus.writer(), topic, document, "ann")

    async def records(self, *kinds):
        found, reader = [], LogReader(self.bus)
        while more := await reader.read():
            found += more
        return [each.record for each in found if not kinds or isinstance(each.record.body, kinds)]

    async def answers(self, wake_ms=None):
        """All services answer the open round."""
        opening = (await self.records(RoundOpened))[-1]
        for topic, body in (("shares", Shares([])), ("asks", Asks(0, 1, [])), ("grants", Grants([], wake_ms=wake_ms))):
            await self.scribe.say(opening, topic, body)
        await self.passes(0)
        assert (await self.records(RoundClosed))[-1].cause == opening.id
        return opening

    @property
    def leader(self):
        """The number of whoever leads; None: nobody does."""
        leading = [number for number, each in self.running.items() if each.is_leading]
        return leading[-1] if leading else None


def room(count=1):
    def wrap(test):
        async def arranged(bus, given):
            made = Desks(bus, count)
            await made.passes(0 if count == 1 else LEASE_MS)
            assert made.leader == 0
            await test(made, given)

        def run(jump_ms):
            @story
            async def scenario(bus, scribe):
                await arranged(bus, jump_ms)

            scenario()

        run.__name__ = test.__name__
        return pytest.mark.parametrize("jump_ms", JUMPS)(run)

    return wrap


def slowest(span_ms):
    """In so much time log time rises by `span_ms` at least."""
    return span_ms + span_ms // (SLEW - 1) + STEP_MS


@room()
async def test_rounds_open_and_log_time_goes_on_after_a_jump_there_and_back(room, jump_ms):
    for by_ms in (jump_ms, -jump_ms):
        room.jumps(by_ms)
        await room.passes(1_000)
        await room.send("jobs", JOB)
        await room.passes(0)
        await room.answers()
    await room.passes(60_000)
    times = [record.time for record in await room.records() if record.seq]

    assert len(await room.records(JobAdmitted)) == len(await room.records(RoundOpened)) == 2
    assert times == sorted(times)
    assert abs(times[-1] - (NOW_MS + 62_000)) <= 62_000 // SLEW + LEASE_MS


@room()
async def test_a_wake_up_comes_within_its_time_after_a_jump(room, jump_ms):
    await room.send("jobs", JOB)
    await room.passes(0)
    await room.answers(wake_ms=NOW_MS + 60_000)
    room.jumps(jump_ms)
    await room.passes(60_000 - 60_000 // SLEW - STEP_MS)
    assert await room.records(TimeReached) == []
    await room.passes(slowest(60_000) - 57_000 + STEP_MS)

    assert [record.body for record in await room.records(TimeReached)] == [TimeReached(NOW_MS + 60_000)]


@room()
async def test_a_wake_up_made_while_the_wall_clock_was_ahead_comes_within_its_time_when_it_is_back(room, jump_ms):
    """Also where the log was begun with a wrong clock: its next process goes on from the last record."""
    room.jumps(jump_ms)
    room.starts_again()
    await room.send("jobs", JOB)
    await room.passes(0)
    last_ms = (await room.answers()).time
    await room.send("jobs", JOB)
    await room.passes(0)
    await room.answers(wake_ms=last_ms + 30_000)
    room.jumps(-jump_ms)
    room.starts_again()
    await room.passes(slowest(30_000))

    assert len(await room.records(TimeReached)) == 1
    assert len(await room.records(RoundOpened)) == 3


@room(count=2)
async def test_a_sequencer_says_that_it_is_alive_and_sleeps_no_longer_after_a_jump(room, jump_ms):
    room.jumps(jump_ms)
    before = await room.signs()
    await room.passes(LEASE_MS)

    assert await room.signs() >= before + 2
    assert 1 <= room.running[0].wait_ms() <= LEASE_MS // 3


@room()
async def test_a_node_that_reports_is_kept_and_a_silent_one_is_lost_within_its_lease_after_a_jump(room, jump_ms):
    await room.send("nodes", {"register": NODE})
    await room.send("nodes", {"register": {**NODE, "node": "n2"}})
    await room.passes(0)
    await room.answers()
    await room.passes(5_000)
    room.jumps(jump_ms)
    await room.send("nodes", {"report": NODE})
    await room.passes(NODE_LEASE_MS - 5_000 - STEP_MS)
    assert await room.records(NodeLost) == []
    await room.passes(STEP_MS)

    assert [record.body.node for record in await room.records(NodeLost)] == ["n2"]


@room(count=2)
async def test_a_standby_takes_over_within_the_lease_after_its_clock_has_jumped(room, jump_ms):
    await room.send("jobs", JOB)
    await room.passes(1_000)
    opened = (await room.records(RoundOpened))[-1].time
    room.jumps(jump_ms, number=1)
    del room.running[0]
    died = room.steady
    await room.passes(LEASE_MS + STEP_MS)
    assert room.leader == 1
    await room.answers()
    await room.send("jobs", JOB)
    await room.passes(STEP_MS)
    newest = (await room.records(RoundOpened))[-1].time

    assert room.steady - died <= LEASE_MS + 2 * STEP_MS
    assert abs(newest - opened - (room.steady - died + 1_000)) <= 2 * STEP_MS + LEASE_MS // SLEW


@room(count=2)
async def test_a_standby_leaves_a_living_leader_alone_whatever_either_clock_does(room, jump_ms):
    room.jumps(jump_ms, number=0)
    room.jumps(-jump_ms, number=1)
    await room.passes(3 * LEASE_MS)
    room.jumps(-jump_ms, number=0)
    room.jumps(jump_ms, number=1)
    await room.passes(3 * LEASE_MS)

    assert room.leader == 0
    assert room.tokens == 1


@story
async def test_a_standby_that_was_paused_does_not_take_its_own_pause_for_a_silence_of_the_log(bus, scribe):
    room = Desks(bus, 2)
    await room.passes(LEASE_MS)
    paused = room.running.pop(1)
    await room.buses[1].is_paused()
    await room.passes(60_000)
    room.running[1] = paused
    await room.passes(2 * LEASE_MS)

    assert room.leader == 0
    assert room.tokens == 1


@story
async def test_a_cell_that_was_down_for_a_week_starts_with_the_right_time(bus, scribe):
    room = Desks(bus)
    await room.passes(2_000)
    week_ms = 7 * DAY_MS
    room.jumps(week_ms)
    room.starts_again()
    await room.passes(60_000)

    assert (await room.records(SequencerAlive))[-1].time == NOW_MS + 2_000 + week_ms + 60_000


@for_all(st.lists(st.tuples(st.sampled_from([250, 1_000, 2_750]), st.sampled_from([0, 0, *JUMPS])), max_size=12))
def test_whatever_the_wall_clock_does_a_live_node_stays_and_the_sequencer_gives_signs_of_life(steps):
    @story
    async def scenario(bus, scribe):
        room = Desks(bus)
        await room.send("nodes", {"register": NODE})
        await room.passes(0)
        await room.answers()
        for span_ms, jump_ms in steps:
            room.jumps(jump_ms)
            before = await room.signs()
            await room.passes(span_ms)
            await room.send("nodes", {"report": NODE})
            await room.passes(0)
            assert await room.signs() - before >= span_ms // LEASE_MS - 1
        await room.send("config", {"set": {"seed": 1}})
        await room.passes(0)
        times = [record.time for record in await room.records() if record.seq]

        assert await room.records(NodeLost) == []
        assert times == sorted(times)
        assert abs(times[-1] - NOW_MS - room.steady) <= room.steady // SLEW + 1_001

    scenario()
