"""The loop that runs any core on any bus: fold the log, answer the open round, keep snapshots. Written once.

Nothing after an opening is folded before it is answered; upstream answers may come late, and meanwhile the log, read
ahead, says whether the round is over. No round waits for forecasts and plans: of these the answer to the newest opening
counts, also once its round is over. An error ends the service at that record: recovery is the repair.
"""

import asyncio
from collections.abc import Sequence
from typing import Generic

from largesse import failpoints
from largesse.beginning import restored
from largesse.bus.port import Bus, BusError, BusRefused, Writer
from largesse.core import RULES, Core, OpenRound, S
from largesse.folding import CoreStopped, Folded
from largesse.log.decisions import FORECASTS, DecisionReader, messages_of
from largesse.log.fencing import Accepted
from largesse.log.past_keeper import PastKeeper
from largesse.log.reader import Lookahead, wait_for_more
from largesse.log.snapshots import SnapshotKeeper, dump
from largesse.log.wanted import Wanted, answer, wanted_of
from largesse.settings import Settings
from largesse.telemetry import ANSWERED, CAUGHT_UP, DECIDE_SECONDS, FOLDED, SEQ, VOID, logger, stopwatch
from schemas import Record, RoundAbandoned, RoundClosed, RoundOpened
from schemas.rounds import DecisionBody
from schemas.topics import LOG, SHARDED

CAUGHT_UP_WITHIN = 1_000
"""An instance at most this many messages behind the log has caught up: folding them takes a small part of a second."""


async def run(
    core: Core[S],
    bus: Bus,
    settings: Settings,
    *,
    shard: int = 0,
    of: int = 1,
    stop: asyncio.Event,
    name: str = "",
    active: asyncio.Event | None = None,
) -> None:
    """Runs a core until `stop` is set. `active`: while it is not set, this is a hot standby, which answers only where
    nobody else has.

    Raises CoreStopped, DecisionGap, BusError, and what the log cannot be read for.
    """
    shell = Shell(core, bus, settings, shard=shard, of=of, stop=stop, name=name, active=active)
    await drive(shell, bus, settings, stop)


async def drive(shell: "Shell[S]", bus: Bus, settings: Settings, stop: asyncio.Event) -> None:
    """Restores a shell and steps it until `stop` is set. Raises as `run` does."""
    caught_up = CAUGHT_UP.labels(shell.name)
    caught_up.set(0)
    try:
        await shell.restore()
        end = (await bus.bounds(LOG, settings.partition))[1]
        while not stop.is_set():
            stepped = await shell.step()
            # Under load there is always another record, and behind the last one there may be void ones.
            if not stepped or shell.log.offset >= end:
                caught_up.set(1)
            if not stepped:
                await wait_for_more(bus, shell.log.position, settings.wait_ms, stop)
    finally:
        CAUGHT_UP.remove(shell.name)
        await shell.close()


class Shell(Generic[S]):
    """One instance of one service. `run` drives it; tests step it. `past`: keeps past states of it."""

    def __init__(
        self,
        core: Core[S],
        bus: Bus,
        settings: Settings,
        *,
        shard: int = 0,
        of: int = 1,
        stop: asyncio.Event | None = None,
        name: str = "",
        active: asyncio.Event | None = None,
        past: PastKeeper[S] | None = None,
    ) -> None:
        self.core = core
        self._past = past
        self.shard, self.of = shard, of
        self.name = name or (f"{core.NAME}-{shard}" if core.TOPIC in SHARDED else core.NAME)
        self.folded = Folded(core, bus, settings, shard=shard, of=of, name=self.name)
        self._bus = bus
        self._settings = settings
        self._stop = stop or asyncio.Event()
        self.active = active
        self.left_to_others = 0
        """Closed rounds that it decided as a standby, and that another instance answered."""
        self._is_left = False
        self._owed_s: float | None = None  # Since when a standby has had something to say that nobody else has said.
        self._writer: Writer | None = None
        self._snapshots = SnapshotKeeper(bus, settings, core.NAME, shard, core.LAYOUT, self.name, beginning=restored)
        self._line: dict[str, object] = {}
        self._seq, self._records, self._void = SEQ.labels(self.name), FOLDED.labels(self.name), VOID.labels(self.name)
        self._said = logger(service=self.name)

    @property
    def state(self) -> S:
        """The core's state."""
        return self.folded.state

    @property
    def log(self) -> Lookahead:
        """Where it stands in the log."""
        return self.folded.log

    @property
    def decisions(self) -> DecisionReader:
        """Where it stands in the decision topics."""
        return self.folded.decisions

    async def restore(self) -> None:
        """Takes the newest snapshot that may be restored; without one the fold starts at the log's start."""
        found = await self._snapshots.restore(type(self.state))
        if found is not None:
            self.folded.go_on(*found)
            self.of = found[1].of
            if self._past is not None:
                await self._past.resume(self.state, self.log.order.seq)

    async def has_caught_up(self) -> bool:
        """Whether it has folded the log but for CAUGHT_UP_WITHIN messages. False where the bus does not say."""
        try:
            _, end = await self._bus.bounds(LOG, self._settings.partition)
        except BusRefused:
            raise
        except BusError:
            return False
        return end - self.log.offset <= CAUGHT_UP_WITHIN

    async def close(self) -> None:
        """Gives the producer up."""
        if self._writer is not None:
            await self._writer.drop()

    async def step(self) -> bool:
        """Folds the next record and, if it opens a round, answers it. False where the log has none now."""
        failpoints.hit(self.name, "before_consume")
        before = self.folded.folds
        accepted = await self.folded.take()
        if accepted is None:
            return False
        self._records.inc(self.folded.folds - before)
        record = accepted.record
        # Not the record's: a claim has none, and leaves the log where it stood.
        self._seq.set(self.log.order.seq)
        failpoints.hit(self.name, "after_consume")
        if isinstance(record.body, RoundOpened):
            self.of = record.body.shards if self.core.TOPIC in SHARDED else 1
            await self._answer(record)
        elif isinstance(record.body, RoundClosed | RoundAbandoned):
            await self._end_round(accepted)
        return True

    async def _end_round(self, accepted: Accepted) -> None:
        record = accepted.record
        if self._is_left and isinstance(record.body, RoundClosed):
            self.left_to_others += 1
        self._is_left = False
        self._void.set(self.log.void)
        if self._line:
            self._said.info("round", round=record.round, seq=record.seq, end=record.type, **self._line)
            self._line = {}
        if self._snapshots.is_due(record.round, record.seq):
            state, positions = dump(self.state), self.decisions.positions()
            writer = self._producer()
            await self._snapshots.take(writer, state, self.log.order, positions, of=self.of, durable=False)
        if self._past is not None and self._past.is_due(record.seq):
            await self._past.keep(self._producer(), self.state, self.log.order, self.decisions.positions())

    # ---------------------------------------------------------------- answering
    async def _answer(self, opening: Record) -> None:
        """Answers the round, if it is this instance's to answer and is still open."""
        body: RoundOpened = opening.body
        if body.rules != RULES or self.shard >= self.of or not self.core.TOPIC:
            return
        waited = stopwatch()
        upstream = await self._gather(opening)
        if upstream is None:
            return
        self._line["wait_ms"] = int(waited() * 1_000)
        took = stopwatch()
        failpoints.hit(self.name, "before_decide")
        try:
            bodies = self.core.decide(self.state, OpenRound(opening, upstream))
        except Exception as error:
            raise CoreStopped(self.name, "deciding", opening) from error
        failpoints.hit(self.name, "after_decide")
        DECIDE_SECONDS.labels(self.name).observe(took())
        self._line["decide_ms"] = int(took() * 1_000)
        self._is_left = await self._is_left_to_others(opening, has_answer=bool(bodies))
        if self._is_left:
            return
        await self._publish(opening, bodies)
        ANSWERED.labels(self.name).inc()

    async def _gather(self, opening: Record) -> dict[str, list[Record]] | None:
        """Upstream answers to the opening, or None once nobody waits for this one's, or on `stop`."""
        wanted = wanted_of(self.core.UPSTREAM, opening.body.shards)
        while not self._stop.is_set():
            if await self._is_past(opening):
                return None
            found = await self.decisions.gather(opening.id, wanted)
            if found is not None:
                upstream: dict[str, list[Record]] = {}
                for want, decision in zip(wanted, found, strict=True):
                    upstream.setdefault(want.topic, []).append(decision.record)
                return upstream
            positions = {**self.log.position, **self.decisions.waiting_for(wanted, opening.id)}
            await wait_for_more(self._bus, positions, self._settings.wait_ms, self._stop)
        return None

    async def _is_past(self, opening: Record) -> bool:
        """Whether the log, read ahead, shows that nobody waits for an answer: the round is over, so that after a
        restart only the open one is answered. A forecast is a fact whenever it comes; it goes by the newest opening.
        """
        if self.core.TOPIC in FORECASTS:
            return await self.log.is_followed(opening.round)
        return await self.log.is_over(opening.round)

    async def _is_left_to_others(self, opening: Record, *, has_answer: bool) -> bool:
        """Whether another instance has answered. A standby waits for that; then it answers itself: whoever is active
        may be paused, or may still be folding. Both answers are the same, and the first counts. What it has to forecast
        waits from the first opening on at which it had, however soon others follow.
        """
        if self.active is None:
            return False
        loop = asyncio.get_running_loop()
        owed_s, self._owed_s = self._owed_s, None
        if not has_answer:
            return not self.active.is_set()
        begun_s = loop.time() if owed_s is None else owed_s
        deadline = begun_s + self._settings.standby_wait_ms / 1_000
        own = [Wanted(self.core.TOPIC, self.shard, self.of)]
        while not self.active.is_set():
            if await self.decisions.gather(opening.id, own) is not None:
                return True
            left_ms = int((deadline - loop.time()) * 1_000)
            if left_ms <= 0:
                self._line["stood_in"] = True
                return False
            if self._stop.is_set() or await self._is_past(opening):
                self._owed_s = begun_s if self.core.TOPIC in FORECASTS else None
                return True
            positions = {**self.log.position, **self.decisions.waiting_for(own, opening.id)}
            await wait_for_more(self._bus, positions, left_ms, self._stop, self.active)
        return False

    async def _publish(self, opening: Record, bodies: Sequence[DecisionBody]) -> None:
        wanted = Wanted(self.core.TOPIC, self.shard, self.of)
        silent = self.core.TOPIC in FORECASTS and not bodies
        assert len(bodies) == 1 or silent, f"{self.name}: {len(bodies)} answers to {opening.id}"
        size = 0
        failpoints.hit(self.name, "before_publish")
        for body in bodies:
            assert body.wake_ms is None or body.wake_ms > opening.time, f"{self.name}: it wakes before {opening.id}"
            record, content = answer(opening, wanted, body)
            size += len(content)
            messages = messages_of(record, content, wanted, self._settings.partition, self.name)
            await self._producer().send(messages, durable=False)
        failpoints.hit(self.name, "after_publish")
        self._line["answer_bytes"] = size

    def _producer(self) -> Writer:
        if self._writer is None:
            self._writer = self._bus.writer()
        return self._writer
