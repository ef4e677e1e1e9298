"""The router as a process: reads the jobs that name no cell and the logs of all cells, and writes a log of its own.

It leads and stands by as a sequencer does, by the fencing of its log (docs/concepts/log.md). What it sends to cells
follows from records that were read back: after a restart everything that has no answer yet is sent once more, which
changes nothing in a cell that has it already.
"""

import asyncio
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

from largesse import failpoints
from largesse.bus.port import Bus, BusError, BusFull, BusRefused, Outgoing, PositionGap
from largesse.clocks import fresh_token, steady_ms, wall_ms
from largesse.log.candidate import Candidate, Turn
from largesse.log.fencing import LogOrder
from largesse.log.reader import LogReader, wait_for_more
from largesse.log.snapshots import SnapshotKeeper, dump
from largesse.log.writer import Fenced, LogWriter
from largesse.settings import Settings
from largesse.telemetry import CAUGHT_UP, FOLDED, INPUTS, MOVES, ROUTED, ROUTES, SEQ, logger
from schemas import Header, Record, SequencerAlive
from schemas.routes import JobRouted, MoveAnswered, RouterSet
from schemas.topics import ROUTER_JOBS, ROUTER_LOG
from services.router import core
from services.router.cells import Cells
from services.router.core.decide import due
from services.router.core.state import State, phases
from services.router.intake import Intake
from services.router.placing import Placing
from services.router.sending import owed, owed_by

LEASE_MS = 3_000
"""After so long a silence of the log another instance claims it."""
ALIVE_PARTS = 3
KEPT_RECORDS = 5_000
"""Records between two snapshots, at least."""


async def run(bus: Bus, settings: Settings, knobs: RouterSet, *, stop: asyncio.Event) -> None:
    """Runs a router until `stop` is set. Raises PositionGap, BusFull, BusRefused, Undecodable, AssertionError."""
    router = Router(bus, settings, knobs)
    CAUGHT_UP.labels(core.NAME).set(0)
    try:
        while not stop.is_set():
            if await router.step():
                continue
            CAUGHT_UP.labels(core.NAME).set(1)
            await wait_for_more(bus, router.waiting_for(), router.wait_ms(), stop)
    finally:
        CAUGHT_UP.remove(core.NAME)
        await router.close()


class Router:
    """One instance. `run` drives it; tests step it with clocks and tokens of their own."""

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        knobs: RouterSet,
        *,
        wall: Callable[[], int] = wall_ms,
        steady: Callable[[], int] = steady_ms,
        draw_token: Callable[[], str] = fresh_token,
    ) -> None:
        self.state: State = core.start()
        self.cells = Cells(bus, settings, steady)
        self._bus, self._settings, self._knobs = bus, settings, knobs
        self._wall, self._steady = wall, steady
        self._said = logger(service=core.NAME)
        own = replace(settings, cell=core.CELL, partition=0)
        self._snapshots = SnapshotKeeper(bus, own, core.NAME, 0, core.LAYOUT, core.NAME, topic=ROUTER_LOG)
        self._kept_seq = 0
        self._reader: LogReader | None = None
        self._candidate = Candidate(bus, steady(), cell=core.CELL, partition=0, draw_token=draw_token, topic=ROUTER_LOG)
        self._log: LogWriter | None = None
        self._intake = Intake(bus)
        self._placing = Placing()
        self._appended_ms = steady()

    @property
    def is_leading(self) -> bool:
        """Whether this instance writes the log now, as far as it knows."""
        return self._log is not None

    async def step(self) -> bool:
        """One turn, without waiting for anything to come. False: nothing to do until there is more, or it is time."""
        try:
            if self._log is not None:
                return await self._lead(self._log)
            return await self._stand_by()
        except (PositionGap, BusFull, BusRefused):
            raise
        except (Fenced, BusError) as why:
            was_leading = self.is_leading
            await self._give_up(str(why))
            return was_leading

    def waiting_for(self) -> dict[tuple[str, int], int]:
        """What to hand to `wait_any` between two steps."""
        positions = self.cells.positions | (dict(self._reader.position) if self._reader is not None else {})
        return positions | self._intake.position if self._log is not None else positions

    def wait_ms(self) -> int:
        """How long to wait between two steps at most."""
        now = self._steady()
        if self._log is None:
            return max(1, min(self._settings.wait_ms, self._candidate.claims_ms(LEASE_MS) - now))
        due_ms = min(self._appended_ms + LEASE_MS // ALIVE_PARTS, self._placing.next_ms(self.state, now))
        return max(1, min(self._settings.wait_ms, due_ms - now))

    async def close(self) -> None:
        """Closes the producer."""
        await self._candidate.close()

    # ---------------------------------------------------------------- standing by
    async def _stand_by(self) -> bool:
        reader = self._reader
        if reader is None:
            reader = await self._restore()
        if await self._read(reader):
            return True
        await self.cells.follow(self.state)  # So that it has read them when its turn comes.
        if self.cells.has_read:
            return True

        async def is_silent() -> bool:
            return not await self._read(reader)

        turn = await self._candidate.turn(
            reader.order,
            self._steady(),
            silence_ms=LEASE_MS,
            lease_ms=LEASE_MS,
            log_ms=self._wall(),
            is_silent=is_silent,
        )
        if turn is Turn.LEADS:
            await self._begin_to_lead(reader)
        return turn is not Turn.WAITS

    async def _restore(self) -> LogReader:
        found = await self._snapshots.restore(State)
        order = LogOrder()
        if found is not None:
            self.state, order = found[0], found[1].order
        self._kept_seq = order.seq
        self._reader = LogReader(self._bus, 0, order, ROUTER_LOG)
        return self._reader

    async def _read(self, reader: LogReader) -> bool:
        before = reader.offset
        for accepted in await reader.read():
            self._candidate.heard_ms = self._steady()
            self._fold(accepted.record)
        SEQ.labels(core.NAME).set(reader.order.seq)
        return reader.offset > before

    def _fold(self, record: Record) -> None:
        core.fold(self.state, record)
        FOLDED.labels(core.NAME).inc()

    async def _begin_to_lead(self, reader: LogReader) -> None:
        producer, token = self._candidate.producer, self._candidate.token
        assert producer is not None
        self._log = LogWriter(self._bus, producer, reader, cell=core.CELL, partition=0, token=token, name=core.NAME)
        self._appended_ms = self._steady()
        self._intake.begin(reader.order)
        self._placing.begin(self.state)
        self.cells.look_at_all(self.state)
        self._said.info("leading", seq=reader.order.seq, jobs=len(self.state.jobs))
        await self.cells.read_list()
        # What an instance before this one has sent, or has not, is unknown.
        await self._send([message for name in self.state.jobs for message in owed(self.state, name, self.cells)])

    async def _give_up(self, why: str) -> None:
        self._said.warning("standing_by", was_leading=self.is_leading, reason=why)
        self._log = self._reader = None
        self.state = core.start()
        await self._candidate.give_up(self._steady(), LEASE_MS)

    # ---------------------------------------------------------------- leading
    async def _lead(self, log: LogWriter) -> bool:
        await log.check()
        if self.state.knobs != self._knobs:
            self._put(log, self._knobs)
        read = await self._take_inputs(log)
        await self.cells.follow(self.state)
        read = self.cells.has_read or read
        if (heard := self.cells.heard()) != self.state.heard:
            self._put(log, heard)
        while facts := self.cells.facts(self.state):
            for fact in facts:
                self._put(log, fact)
        while (ending := due(self.state)) is not None:
            self._put(log, ending)
        time_ms = max(self._wall(), log.running.time)
        for body in self._placing.bodies(self.state, self.cells, self._steady(), time_ms):
            self._put(log, body, time_ms)
        if log.is_empty and self._steady() - self._appended_ms >= LEASE_MS // ALIVE_PARTS:
            self._put(log, SequencerAlive([]))
        if log.is_empty:
            return read
        await self._flush(log)
        return True

    def _put(self, log: LogWriter, body: object, time_ms: int | None = None, source: Header | None = None) -> None:
        """Adds one record to the batch and folds it, so that whatever follows is judged after it."""
        record = log.put(body, time=self._wall() if time_ms is None else time_ms, source=source)
        self._fold(record)
        self._placing.note(self.state, record.body)

    async def _take_inputs(self, log: LogWriter) -> bool:
        items = await self._intake.read(self._settings.inputs_most)
        for item in items:
            body = self._intake.become(self.state, item)
            self._put(log, body, source=Header("", item.topic, item.partition, item.offset))
            INPUTS.labels(ROUTER_JOBS, type(body).__name__).inc()
        return bool(items)

    async def _flush(self, log: LogWriter) -> None:
        accepted = await log.flush(LEASE_MS)
        self._appended_ms = self._steady()
        SEQ.labels(core.NAME).set(log.reader.order.seq)
        messages = []
        for each in accepted:
            _count(each.record.body)
            messages += owed_by(self.state, each.record.body, self.cells)
        for phase, number in phases(self.state).items():
            ROUTES.labels(phase).set(number)
        failpoints.hit(core.NAME, "before_send")
        await self._send(messages)
        failpoints.hit(core.NAME, "after_send")
        await self._keep(log)

    async def _keep(self, log: LogWriter) -> None:
        """A snapshot from time to time: the state, as the log has it up to here."""
        order = log.reader.order
        is_due = self._snapshots.is_due(self._settings.snapshot_rounds, order.seq)
        if order.seq - self._kept_seq >= KEPT_RECORDS and is_due and self._candidate.producer is not None:
            self._kept_seq = order.seq
            await self._snapshots.take(
                self._candidate.producer, dump(self.state), deepcopy(order), {}, of=1, durable=False
            )

    async def _send(self, messages: list[Outgoing]) -> None:
        if messages:
            assert self._candidate.producer is not None
            await self._candidate.producer.send(messages, durable=True)


def _count(body: object) -> None:
    if isinstance(body, JobRouted):
        ROUTED.labels(body.cell, body.why).inc()
    elif isinstance(body, MoveAnswered):
        MOVES.labels("moved" if body.is_free else "stays").inc()
