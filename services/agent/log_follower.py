"""The cell's log, read into what an agent knows: from the last checkpoint on, to the end and further."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from largesse import failpoints
from largesse.beginning import NODES, LogTrimmed, restored
from largesse.bus.port import Bus, BusError, BusRefused, PositionGap
from largesse.lifecycle import node_work as core
from largesse.lifecycle.handed import Handed
from largesse.lifecycle.node_work import Action, NodeWork, Start
from largesse.log.fencing import Accepted, LogOrder
from largesse.log.reader import LogReader
from largesse.telemetry import logger
from schemas import JobEnded, NodeReported, RoundAbandoned, RoundClosed, RoundOpened
from schemas.topics import LOG
from services.agent import checkpoint
from services.agent.local import mono_ms
from services.agent.reporter import RETRY_MS
from services.agent.settings import NodeSettings

READ_WAIT_MS = 1_000


class LogFollower:
    """Reads the log for one agent (feed.py). `ended`: called with each job that ends, and the seq of its admission."""

    def __init__(self, bus: Bus, node: NodeSettings, epoch: str, ended: Callable[[str, int], None]) -> None:
        self.state = core.start(node.name, epoch)
        self.in_round = False
        self._bus, self._node, self._ended = bus, node, ended
        self._log = logger(service="agent", node=node.name)
        self._reader = LogReader(bus, node.partition)
        self._folded = 0  # Records since the last checkpoint.
        self._folded_to = 0  # Where in the log the records that were folded end.
        self._lost_at: int | None = None  # Where the log ended when this node was found lost.
        self._followed_ms = mono_ms()  # All that the log held then was read.

    @property
    def time(self) -> int:
        """See Feed."""
        return self._reader.order.time

    @property
    def work(self) -> NodeWork:
        """See Feed."""
        return self.state.nodes[self._node.name]

    @property
    def node_lease_ms(self) -> int:
        """See Feed."""
        return self.state.node_lease_ms

    def take(self, *, may_start: bool = True) -> list[Action]:
        """See Feed."""
        return core.take(self.state, self._node.name, may_start=may_start)

    def handed_to(self, start: Start) -> list[Handed]:
        """See Feed."""
        return core.handed_to(self.state, start)

    def address_of(self, node: str) -> str | None:
        """See Feed."""
        return self.state.addresses.get(node)

    def live_runs(self) -> Iterable[tuple[str, int]]:
        """See Feed."""
        return ((name, job.run) for name, job in self.state.jobs.items())

    def has(self, said: NodeReported) -> bool:
        """See Feed."""
        return core.has(self.state, said)

    def renew(self, epoch: str) -> None:
        """See Feed."""
        core.renew(self.work, epoch)

    async def catch_up(self) -> None:
        """See Feed."""
        end = await self._where_to_begin()
        begun = self._reader.offset
        while self._reader.offset < end:
            self._fold(await self._read(0))
            self.take()
        core.look_again(self.work)
        held = len(self.work.held)
        self._log.info("caught up", from_offset=begun, offset=end, epoch=self.work.epoch, attempts=held)

    async def read(self) -> None:
        """See Feed."""
        batch = await self._read(READ_WAIT_MS)
        failpoints.hit("agent", "before_consume")
        self._fold(batch)
        failpoints.hit("agent", "after_consume")

    def fell_behind(self) -> bool:
        """See Feed."""
        return mono_ms() - self._followed_ms > max(2 * READ_WAIT_MS, self.state.node_lease_ms // 2)

    async def kept_up(self) -> None:
        """See Feed."""
        while True:
            if not self.fell_behind():
                return
            await asyncio.sleep(RETRY_MS / 1_000)

    async def read_on(self, act: Callable[[list[Action]], Awaitable[None]]) -> None:
        """See Feed."""
        begun_ms = mono_ms()
        try:
            end = (await self._bus.bounds(LOG, self._node.partition))[1]
        except BusError as error:
            await self._wait_for_bus(error)
            return
        while self._reader.offset < end:
            self._fold(await self._read(0))
            await act(self.take(may_start=False))
        self._followed_ms = begun_ms

    async def knows_of_the_loss(self) -> bool:
        """See Feed."""
        if self._lost_at is None:
            try:
                self._lost_at = (await self._bus.bounds(LOG, self._node.partition))[1]
            except BusError:
                return False  # Whoever reads the log waits for the bus, and wakes this up.
        return self._folded_to >= self._lost_at

    def forget_loss(self) -> None:
        """See Feed."""
        self._lost_at = None

    async def save(self) -> None:
        """See Feed: a checkpoint."""
        if self._folded < checkpoint.RECORDS_BETWEEN:
            return
        self._folded = 0
        try:
            await checkpoint.save(
                self._bus, self._node.partition, self._node.data, self._node.name, self.state, self._reader.order
            )
        except (BusError, OSError) as error:
            self._log.warning("no checkpoint could be written", error=str(error))

    async def _where_to_begin(self) -> int:
        """Takes up the last checkpoint, if it is one of this log; returns where the log ends now."""
        node = self._node
        while True:
            try:
                found = await checkpoint.restore(self._bus, node.partition, node.data, node.name, self.work.epoch)
                if found is None:
                    found = await self._from_checkpoint()
                end = (await self._bus.bounds(LOG, node.partition))[1]
            except LogTrimmed:
                raise
            except BusError as error:
                await self._wait_for_bus(error)
                continue
            if found is not None:
                self.state, order = found
                self._reader = LogReader(self._bus, node.partition, order)
            return end

    async def _from_checkpoint(self) -> tuple[core.State, LogOrder] | None:
        """What the cell's newest checkpoint has of this node, where the log's beginning was trimmed; None: it was not.
        Raises LogTrimmed, BusError.
        """
        node, kind = self._node, core.State
        taken = await restored(self._bus, node.partition, node.archive, NODES, 0, core.LAYOUT, kind)
        if taken is None:
            return None
        return core.for_one(taken[0], node.name, self.work.epoch), taken[1].order

    def _fold(self, batch: list[Accepted]) -> None:
        for one in batch:
            body = one.record.body
            if type(body) is RoundOpened:
                self.in_round = True
            elif type(body) is RoundClosed or type(body) is RoundAbandoned:
                self.in_round = False
            elif type(body) is JobEnded:
                for end in body.jobs:
                    if (job := self.state.jobs.get(end.job)) is not None:
                        self._ended(end.job, job.run)
            core.fold(self.state, one.record)
        self._folded += len(batch)
        self._folded_to = self._reader.offset

    async def _read(self, wait_ms: int) -> list[Accepted]:
        begun_ms = mono_ms()
        try:
            batch = await self._reader.read(wait_ms)
        except (PositionGap, BusRefused):
            raise
        except BusError as error:
            await self._wait_for_bus(error)
            return []
        if not self.fell_behind():
            self._followed_ms = begun_ms
        return batch

    async def _wait_for_bus(self, error: BusError) -> None:
        if isinstance(error, BusRefused):
            raise error
        self._log.warning("the log cannot be read at the moment", error=str(error))
        await asyncio.sleep(RETRY_MS / 1_000)
