"""The cell's log, read into what nodes have to do, and how far it was read when: from the last snapshot on.

Of several bridges one at a time writes snapshots, and all start from them.
"""

import asyncio
from collections.abc import Callable

from largesse import failpoints
from largesse.beginning import restored
from largesse.bus.port import Bus, BusError, BusRefused, PositionGap, Writer
from largesse.lifecycle import node_work
from largesse.log.fencing import Accepted
from largesse.log.reader import LogReader
from largesse.log.snapshots import SnapshotKeeper, dump
from largesse.settings import Settings
from largesse.telemetry import CAUGHT_UP, FOLDED, SEQ, logger
from schemas import RoundAbandoned, RoundClosed, RoundOpened
from schemas.topics import LOG

SERVICE = "bridge"
READ_WAIT_MS = 1_000
RETRY_MS = 100


class CellLog:
    """Reads for one bridge. `state`: what the log has said so far; `moved` is called whenever that is more. `may_save`:
    says whether it is this bridge that writes snapshots.
    """

    def __init__(
        self, bus: Bus, settings: Settings, moved: Callable[[], None], may_save: Callable[[], bool] = lambda: True
    ) -> None:
        self.state = node_work.start_for_all()
        self.in_round = False
        self.folded_to = 0
        self._bus, self._partition, self._moved = bus, settings.partition, moved
        self._may_save = may_save
        self._reader = LogReader(bus, settings.partition)
        self._snapshots = SnapshotKeeper(bus, settings, SERVICE, 0, node_work.LAYOUT, SERVICE, beginning=restored)
        self._writer: Writer | None = None
        self._log = logger(service=SERVICE)
        self.is_caught_up = False

    @property
    def seq(self) -> int:
        """The last place of the log that was folded."""
        return self._reader.order.seq

    @property
    def time(self) -> int:
        """Log time of the last record, in ms."""
        return self._reader.order.time

    async def end(self) -> int:
        """Where the log ends now. Raises BusError."""
        return (await self._bus.bounds(LOG, self._partition))[1]

    async def follow(self) -> None:
        """Reads for ever; a bus that fails for a while is waited for. Raises PositionGap, Undecodable."""
        CAUGHT_UP.labels(SERVICE).set(0)
        end = None
        while True:
            try:
                if end is None:
                    await self._restore()
                    end = await self.end()
                batch = await self._reader.read(READ_WAIT_MS if self.is_caught_up else 0)
            except (PositionGap, BusRefused):
                raise
            except BusError as error:
                self._log.warning("the log cannot be read at the moment", error=str(error))
                await asyncio.sleep(RETRY_MS / 1_000)
                continue
            failpoints.hit(SERVICE, "before_consume")
            for one in batch:
                self._fold(one)
            self.folded_to = self._reader.offset
            FOLDED.labels(SERVICE).inc(len(batch))
            SEQ.labels(SERVICE).set(self.seq)
            failpoints.hit(SERVICE, "after_consume")
            if not self.is_caught_up and self.folded_to >= end:
                self.is_caught_up = True
                CAUGHT_UP.labels(SERVICE).set(1)
                self._log.info("caught up", offset=self.folded_to, nodes=len(self.state.nodes))
            if self.is_caught_up:
                self._moved()
            else:
                self.state.stirred.clear()
                await asyncio.sleep(0)
            if self._snapshots.is_due(self._reader.order.round, self.seq) and self._may_save():
                await self._save()

    async def drop(self) -> None:
        """Writes nothing more."""
        if self._writer is not None:
            await self._writer.drop()

    async def _restore(self) -> None:
        """Takes up the last snapshot. Raises PositionGap, BusError."""
        found = await self._snapshots.restore(node_work.State)
        if found is not None:
            self.state, snapshot = found
            self._reader = LogReader(self._bus, self._partition, snapshot.order)
            self.in_round = bool(snapshot.order.open)

    async def _save(self) -> None:
        """A snapshot of what is folded; without one in time, the next one will do."""
        self._writer = self._writer or self._bus.writer()
        try:
            await self._snapshots.take(self._writer, dump(self.state), self._reader.order, {}, of=1, durable=False)
        except BusError as error:
            self._log.warning("no snapshot could be written", error=str(error))
            await self.drop()
            self._writer = None

    def _fold(self, one: Accepted) -> None:
        body = one.record.body
        if type(body) is RoundOpened:
            self.in_round = True
        elif type(body) is RoundClosed or type(body) is RoundAbandoned:
            self.in_round = False
        node_work.fold(self.state, one.record)
