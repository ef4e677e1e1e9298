"""The sequencer: puts every outside fact into the log's one order. The only service that looks at the clock.

A standby folds the log until no other process writes to it, claims it, reads its own claim back, and leads from then
on: it judges inputs one by one against a running fold, appends the resulting records and what is due in one durable
send, and reads them back before anything outside may act on them. In case of doubt (Fenced) it discards the running
state and becomes a standby again.
"""

import asyncio
from collections.abc import Callable
from copy import deepcopy

from largesse import failpoints
from largesse.beginning import restored
from largesse.bus.port import Bus, BusError, BusFull, BusRefused, PositionGap
from largesse.clocks import fresh_token, steady_ms, wall_ms
from largesse.folding import FOLDING, CoreStopped
from largesse.ids import content_hash
from largesse.log.beats import Hearing
from largesse.log.candidate import Candidate, Turn
from largesse.log.fencing import Accepted, LogOrder, advance
from largesse.log.reader import LogReader, wait_for_more
from largesse.log.snapshots import SnapshotKeeper, dump
from largesse.log.wanted import wanted_of
from largesse.log.writer import Fenced, LogWriter
from largesse.settings import Settings
from largesse.telemetry import CAUGHT_UP, FOLDED, INPUTS, SEQ, logger
from schemas import (
    DecisionHash,
    Header,
    InputSkipped,
    NodeLost,
    NodeReported,
    Record,
    RoundAbandoned,
    RoundClosed,
    RoundOpened,
    SequencerAlive,
)
from schemas.edge.beats import SequencerBeat
from services.admission import core
from services.admission.beats import Speaking
from services.admission.clock import AGREES_MS, LogClock
from services.admission.core.closings import Closings
from services.admission.core.judge import lose
from services.admission.core.rounds import accepts_forecast, cause_of_due, close, due, next_due_ms
from services.admission.core.state import State
from services.admission.intake import become, is_skipped, wishes_ahead
from services.admission.leading import DECIDED, Leading, Pending
from services.admission.letters import Letters

SKIPPED_MAX = 1_000
"""Inputs that change nothing after which a record says how far they were read."""

ALIVE_PARTS = 3
"""Who leads says so this many times a lease, where no record does; so soon it is told that an input changed nothing."""

LOOK_PARTS = 6
"""A standby looks this many times a lease whether anybody leads, and who leads, whether nodes live."""

OPENINGS_KEPT = 1_000
"""A forecast for an opening older than the last so many is ignored."""


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event, name: str = core.NAME) -> None:
    """Runs a sequencer until `stop` is set. Raises CoreStopped, InputStopped, PositionGap, BusFull, Undecodable."""
    await drive(Sequencer(bus, settings, name=name, paced=settings.is_alone), bus, stop)


async def drive(sequencer: "Sequencer", bus: Bus, stop: asyncio.Event) -> None:
    """Steps a sequencer until `stop` is set, and closes it. Raises as `run` does."""
    name = sequencer.name
    CAUGHT_UP.labels(name).set(0)
    try:
        while not stop.is_set():
            stepped = await sequencer.step()
            if not stepped or sequencer.is_leading:
                CAUGHT_UP.labels(name).set(1)
            if not stepped:
                await wait_for_more(bus, sequencer.waiting_for(), sequencer.wait_ms(), stop)
    finally:
        CAUGHT_UP.remove(name)
        await sequencer.close()


class Sequencer:
    """One instance. `run` drives it; tests step it with clocks and tokens of their own.

    `clock`, `steady`: the wall clock and the steady one (clock.py), by default this machine's; `clock` alone is both.
    `alone`: the bus admits one process, so a starter claims at once. `paced`: answers come before starts (pacing.py).
    """

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        *,
        clock: Callable[[], int] | None = None,
        steady: Callable[[], int] | None = None,
        draw_token: Callable[[], str] = fresh_token,
        alone: bool | None = None,
        name: str = core.NAME,
        paced: bool = False,
    ) -> None:
        self.name, self._paced = name, paced
        self.state: State = core.start()
        self._bus = bus
        self._settings = settings
        self._clock = LogClock(clock or wall_ms, steady or clock or steady_ms)
        self._alone = settings.is_alone if alone is None else alone
        self._said, self._folded = logger(service=name), FOLDED.labels(name)
        self._reader: LogReader | None = None
        self._leading: Leading | None = None
        self._now_ms = self._clock.steady_ms
        self._candidate = Candidate(
            bus, self._now_ms, cell=settings.cell, partition=settings.partition, draw_token=draw_token
        )
        self._away_ms = 0
        self._is_caught_up = False
        self._openings: dict[str, bool] = {}
        self._closings = Closings()
        self._beats = Hearing(bus, settings.partition)
        self._speaking = Speaking(bus, settings.partition)
        self._letters = Letters(bus, settings.partition)
        self._decisions: dict[str, int] = {}
        self._snapshots = SnapshotKeeper(bus, settings, core.NAME, 0, core.LAYOUT, name, beginning=restored)

    @property
    def is_leading(self) -> bool:
        """Whether this instance writes the log now, as far as it knows."""
        return self._leading is not None

    async def step(self) -> bool:
        """One turn, without waiting for anything to come. False: nothing to do until there is more, or it is time."""
        self._read_clock()
        try:
            if self._leading is not None:
                return await self._lead(self._leading)
            return await self._stand_by()
        except (PositionGap, BusFull, BusRefused):
            # Standing by mends none of them: a bus that is full takes no claim any more.
            raise
        except (Fenced, BusError) as why:
            was_leading = self.is_leading
            await self._give_up(str(why))
            return was_leading

    def _read_clock(self) -> None:
        """Once in a turn: everything in it happens at one moment."""
        clock, before_ms = self._clock, self._clock.steady_ms
        clock.tick()
        self._now_ms, self._away_ms = clock.steady_ms, clock.steady_ms - before_ms
        if clock.jumped_ms:
            ahead_ms = clock.log_ms - clock.wall_ms
            self._said.warning("wall_clock_jumped", by_ms=clock.jumped_ms, log_time_ahead_ms=ahead_ms)
        if clock.leapt_ms > AGREES_MS:
            self._said.warning("log_time_put_forward", by_ms=clock.leapt_ms)

    def waiting_for(self) -> dict[tuple[str, int], int]:
        """What to hand to `wait_any` between two steps."""
        positions = dict(self._reader.position) if self._reader is not None else {}
        lead = self._leading
        if lead is not None:
            positions |= lead.inputs.waiting_for
            for topic, reader in lead.forecasts.items():
                positions |= reader.waiting_for(wanted_of([topic], 1))
            if self.state.open is not None:
                wanted = wanted_of(DECIDED, self.state.open.body.shards)
                positions |= lead.decisions.waiting_for(wanted, self.state.open.id)
        return positions

    def wait_ms(self) -> int:
        """How long to wait between two steps at most."""
        now_ms = self._clock.now_ms()
        if (lead := self._leading) is None:
            # Signs of life are looked for from time to time: however many nodes give them, nobody is woken by one.
            look_ms = min(self._settings.wait_ms, self._lease_ms // LOOK_PARTS)
            return max(1, min(look_ms, self._candidate.claims_ms(self._silence_ms) - now_ms))
        due_ms = next_due_ms(self.state)
        moments = [
            now_ms + min(self._settings.wait_ms, self.state.policy.node_lease_ms // LOOK_PARTS),
            lead.spoke_ms + self._speaks_every_ms,
            lead.says_by_ms(self._lease_ms // ALIVE_PARTS, has_jobs=bool(self.state.jobs)),
            None if due_ms is None else max(self._clock.steady_ms + due_ms - self._clock.log_ms, lead.pace.opens_ms()),
            lead.leases.next_ms(self.state.policy.node_lease_ms),
        ]
        return max(1, min(moment for moment in moments if moment is not None) - now_ms)

    async def close(self) -> None:
        """Closes the producers."""
        await self._speaking.close()
        await self._candidate.close()

    @property
    def _lease_ms(self) -> int:
        return self.state.policy.sequencer_lease_ms

    @property
    def _silence_ms(self) -> int:
        """For how long nothing may be heard of a leader before the log is claimed."""
        return 0 if self._alone else self._lease_ms

    # ---------------------------------------------------------------- standing by
    async def _stand_by(self) -> bool:
        """Folds what the log has; claims it after a silence; leads once its own claim is the latest."""
        reader = self._reader or await self._restore()
        if self._away_ms > self._settings.wait_ms + self._lease_ms:
            # What it reads now may have been written long ago.
            self._clock.discard_heard()
            self._is_caught_up = False
        heard = await self._hear_leader(reader)
        if await self._read(reader) or heard:
            return True
        self._is_caught_up = True

        async def is_silent() -> bool:
            return not await self._read(reader) and (self._alone or await self._beats.is_drained())

        turn = await self._candidate.turn(
            reader.order,
            self._now_ms,
            silence_ms=self._silence_ms,
            lease_ms=self._lease_ms,
            log_ms=self._clock.log_ms,
            is_silent=is_silent,
        )
        if turn is Turn.LEADS:
            await self._begin_to_lead(reader)
        return turn is not Turn.WAITS

    async def _read(self, reader: LogReader) -> bool:
        """Folds the records that have arrived; False if there are none."""
        before = reader.offset
        for message in await reader.fetch():
            accepted = advance(reader.order, message.offset, message.value)
            if accepted is None:
                continue
            self._candidate.heard_ms = self._now_ms
            if self._is_caught_up and accepted.record.seq:
                self._clock.hear(accepted.record.time)
            self._learn(accepted, reader.order)
        if reader.offset == before:
            return False
        SEQ.labels(self.name).set(reader.order.seq)
        await self._letters.trim()
        return True

    async def _hear_leader(self, reader: LogReader) -> bool:
        """Whether anybody said on `beats` that they live. Who holds the latest claim need write nothing to be believed;
        of whom none is heard, here or in the log, the claim is over: a sign of life that is lost costs one too many.
        """
        beats = await self._beats.read(with_nodes=False)
        if beats is None:
            self._candidate.heard_ms = self._now_ms
            return True
        for beat in beats:
            if isinstance(beat, SequencerBeat) and beat.token == reader.order.token:
                self._candidate.heard_ms = self._now_ms
                # It may be as late as it was not looked for.
                is_late = 0 <= self._clock.log_ms - beat.time <= self._lease_ms // LOOK_PARTS
                if self._is_caught_up and beat.seq == reader.order.seq and not is_late:
                    self._clock.hear(beat.time)
        return bool(beats)

    async def _restore(self) -> LogReader:
        found = await self._snapshots.restore(State)
        order = LogOrder()
        if found is not None:
            self.state, snapshot = found
            order, self._decisions = snapshot.order, snapshot.decisions
            self._closings.note(order.seq, order.prefix)
        self._reader = LogReader(self._bus, self._settings.partition, order)
        return self._reader

    def _learn(self, accepted: Accepted, order: LogOrder) -> None:
        self._fold(accepted.record)
        self._letters.note(accepted)
        if isinstance(accepted.record.body, RoundClosed | RoundAbandoned):
            self._closings.note(order.seq, order.prefix)

    def _fold(self, record: Record) -> None:
        learn = core.FOLDS.get(type(record.body))
        if learn is None:
            return
        try:
            learn(self.state, record)
        except Exception as error:
            raise CoreStopped(self.name, FOLDING, record) from error
        self._folded.inc()
        if isinstance(record.body, RoundOpened):
            self._openings[record.id] = True
            if len(self._openings) > OPENINGS_KEPT:
                del self._openings[next(iter(self._openings))]

    async def _begin_to_lead(self, reader: LogReader) -> None:
        settings, producer = self._settings, self._candidate.producer
        assert producer is not None
        log = LogWriter(
            self._bus,
            producer,
            reader,
            cell=settings.cell,
            partition=settings.partition,
            token=self._candidate.token,
            name=self.name,
        )
        await self._beats.begin()
        self._clock.lead(reader.order.time)
        self._leading = Leading(self._bus, log, settings.partition, self._decisions, self._now_ms, self._paced)
        self._watch_all(self._leading)
        await self._letters.forget_written()
        await self._letters.write(producer)
        order, taken = reader.order, self._leading.taken
        self._said.info("leading", seq=order.seq, round=order.round, void=order.void, inputs_taken=taken)
        await self._skip_ahead(self._leading)

    async def _skip_ahead(self, lead: Leading) -> None:
        """What operators want skipped becomes facts before any input is read: one that is in the way is behind it."""
        for item in await wishes_ahead(self._bus, self._settings.partition, lead.taken["config"] + 1):
            body = await become(self._bus, self.state, self._closings, lead.taken, item, self._clock.log_ms)
            if isinstance(body, InputSkipped):
                self._put(lead, body)  # Without its place: the position in `config` stays.
        if not lead.log.is_empty:
            await self._flush(lead)

    async def _give_up(self, why: str) -> None:
        """Drops the producer, discards the running state, and stands by for at least a lease."""
        self._said.warning("standing_by", was_leading=self.is_leading, reason=why)
        lease_ms = self._lease_ms
        self._leading = None
        self._reader = None
        self._is_caught_up = False
        self.state = core.start()
        self._openings, self._decisions = {}, {}
        self._closings.clear()
        self._letters.clear()
        await self._speaking.close()
        await self._candidate.give_up(self._now_ms, lease_ms)

    # ---------------------------------------------------------------- leading
    async def _lead(self, lead: Leading) -> bool:
        await lead.log.check()
        self._notice_absence(lead)
        heard = await self._hear_nodes(lead)
        read = await self._take_inputs(lead) or heard
        await self._close_round(lead)
        await self._take_forecasts(lead)
        await self._lose_silent(lead)
        self._put_due(lead)
        await self._speak(lead)
        if lead.log.is_empty:
            return read
        await self._flush(lead)
        return True

    async def _flush(self, lead: Leading) -> None:
        accepted = await lead.log.flush(self._lease_ms)
        lead.appended_ms = lead.spoke_ms = self._now_ms
        await self._act_on(lead, accepted)

    def _put(self, lead: Leading, body: object, source: Header | None = None, cause: str = "") -> None:
        """Adds one record to the batch and folds it, so that the next input is judged after it."""
        record = lead.log.put(body, time=self._clock.log_ms, source=source, cause=cause)
        self._fold(record)
        lead.time_round(body, self._clock.now_ms())
        ends = isinstance(body, RoundClosed | RoundAbandoned)
        if ends:
            self._closings.note(record.seq, lead.log.running.prefix)
        if ends and lead.pending is None and self._snapshots.is_due(record.round, record.seq):
            lead.pending = Pending(record.seq, deepcopy(lead.log.running), dump(self.state))

    async def _take_inputs(self, lead: Leading) -> bool:
        failpoints.hit(self.name, "before_consume")
        items = await lead.inputs.read(self._settings.inputs_most, lambda topic, at: is_skipped(self.state, topic, at))
        heard_ms = self._clock.now_ms()  # Not when the turn began: some may have been sent since.
        for item in items:
            time_ms = max(self._clock.log_ms, lead.log.running.time)
            body = await become(self._bus, self.state, self._closings, lead.taken, item, time_ms)
            lead.taken[item.topic] = item.offset
            if body is None:
                lead.skipped += 1
                if lead.asked_ms is None and not isinstance(item.body, NodeReported):
                    lead.asked_ms = self._now_ms
            else:
                self._put(lead, body, Header("", item.topic, item.partition, item.offset))
            if isinstance(body, NodeLost):
                lead.leases.forget(body.node)
            lead.leases.hear(item.body, self.state.nodes, heard_ms)
            INPUTS.labels(item.topic, "none" if body is None else type(body).__name__).inc()
        lead.pace.hear(items, heard_ms)
        failpoints.hit(self.name, "after_consume")
        return bool(items)

    async def _close_round(self, lead: Leading) -> None:
        opening = self.state.open
        if opening is None:
            return
        wanted = wanted_of(DECIDED, opening.body.shards)
        found = await lead.decisions.gather(opening.id, wanted)
        if found is None:
            return
        hashes = [DecisionHash(*want, content_hash(each.content)) for want, each in zip(wanted, found, strict=True)]
        shares, *asks, grants = (each.record for each in found)
        failpoints.hit(self.name, "before_close")
        try:
            body = close(self.state, shares, asks, grants, hashes)
        except Exception as error:
            raise CoreStopped(self.name, "closing a round with", grants) from error
        lead.decisions.forget(opening.seq)
        await lead.decisions.sift(lead.log.reader.order.seq, lead.log.reader.offset)
        lead.round_ms = max(self._clock.log_ms, lead.log.running.time) - opening.time
        # Log time tells milliseconds, and is all there is of a round that another instance opened.
        lead.round_s = lead.since_opening_s() if lead.since_opening_s is not None else lead.round_ms / 1_000
        self._put(lead, body, cause=opening.id)
        failpoints.hit(self.name, "after_close")

    async def _take_forecasts(self, lead: Leading) -> None:
        """Forecasts and plans that came, in the order of their topics: facts from here on, where they are not stale."""
        for topic, reader in lead.forecasts.items():
            for found in await reader.arrivals(topic):
                record = found.record
                known = record.cause in self._openings
                if known:
                    reader.forget(record.seq)
                else:
                    # Its seq says nothing: forgetting up to that would drop every forecast to come.
                    reader.drop(topic, record.id)
                if known and accepts_forecast(self.state, record.body):
                    self._put(lead, record.body, Header("", topic, self._settings.partition, found.offset), record.id)

    def _put_due(self, lead: Leading) -> None:
        running = lead.log.running
        while True:
            at_ms = max(self._clock.log_ms, running.time)
            body = due(self.state, at_ms, bytes.fromhex(running.prefix))
            if body is None or lead.pace.holds_back(body, self._now_ms):
                return
            self._put(lead, body, cause=cause_of_due(self.state))

    # ---------------------------------------------------------------- signs of life
    @property
    def _speaks_every_ms(self) -> int:
        # Where nobody else can lead, only who shows the cell wants to know.
        return self._lease_ms if self._alone else self._lease_ms // ALIVE_PARTS

    async def _speak(self, lead: Leading) -> None:
        """Says that it lives: where nothing calls for a record on `beats`, or by a record where that fails."""
        now_ms, part_ms = self._now_ms, self._lease_ms // ALIVE_PARTS
        is_due = now_ms >= lead.says_by_ms(part_ms, has_jobs=bool(self.state.jobs))
        alive = lead.skipped >= SKIPPED_MAX or (is_due and (lead.log.is_empty or lead.asked_ms is not None))
        if not alive and lead.log.is_empty and now_ms - lead.spoke_ms >= self._speaks_every_ms:
            lead.spoke_ms = now_ms
            order = lead.log.running
            beat = SequencerBeat(order.token, max(self._clock.log_ms, order.time), order.seq)
            alive = not await self._speaking.say(beat, part_ms)
        if alive:
            self._put(lead, SequencerAlive(lead.inputs.moved(lead.log.running.positions)))
            lead.skipped, lead.asked_ms = 0, None

    # ---------------------------------------------------------------- node leases
    def _watch_all(self, lead: Leading) -> None:
        """Not from when the turn began: what was said since, before `beats` was read from, is not heard."""
        now_ms = self._clock.now_ms()
        lead.leases.renew_all((name for name, node in self.state.nodes.items() if not node.lost), now_ms)

    async def _hear_nodes(self, lead: Leading) -> bool:
        beats = await self._beats.read()
        if beats is None:
            self._watch_all(lead)
            return True
        heard_ms = self._clock.now_ms()
        for beat in beats:
            lead.leases.hear(beat, self.state.nodes, heard_ms)
        return bool(beats)

    def _notice_absence(self, lead: Leading) -> None:
        """A sequencer that was suspended itself (paused, asleep) cannot tell whether a node was silent."""
        lease_ms = self.state.policy.node_lease_ms
        if lead.leases.put_off(self._away_ms - min(self._settings.wait_ms, lease_ms), lease_ms):
            self._watch_all(lead)

    async def _lose_silent(self, lead: Leading) -> None:
        silent = lead.leases.silent(self._now_ms, self.state.policy.node_lease_ms)
        if not silent or not await self._beats.is_drained() or not await lead.inputs.is_drained("nodes", "tasks"):
            return
        for name in silent:
            lead.leases.forget(name)
            body: NodeLost | None = lose(self.state, name)
            if body is not None:
                self._put(lead, body)

    # ---------------------------------------------------------------- after the read-back
    async def _act_on(self, lead: Leading, accepted: list[Accepted]) -> None:
        producer = self._candidate.producer
        assert producer is not None
        for each in accepted:
            self._letters.note(each)
            lead.count_round(each.record, self._said)
        await self._letters.write(producer)
        SEQ.labels(self.name).set(accepted[-1].record.seq)
        pending = lead.pending
        if pending is not None:
            closing = next(each for each in accepted if each.record.seq == pending.seq)
            lead.pending = None
            pending.order.offset = closing.offset + 1
            # Durable, so that the dead letters before it are too: a restore need not look for them.
            positions = lead.decisions.positions()
            await self._snapshots.take(producer, pending.state, pending.order, positions, of=1, durable=True)
