"""A core's state as one reader folds the log into it: each record, and with a closing the decisions that won.

What runs a core (shell.py) goes on from here to answer; what only looks at a past moment does not.
"""

from typing import Generic

from largesse.bus.port import Bus
from largesse.core import Core, S
from largesse.log.decisions import DecisionReader
from largesse.log.fencing import Accepted
from largesse.log.reader import Lookahead
from largesse.log.snapshots import Snapshot
from largesse.rounds import folds
from largesse.settings import Settings
from schemas import Record, RoundAbandoned, RoundClosed, RoundOpened

FOLDING = "folding"


class CoreStopped(Exception):
    """A core raised: names the service and the record at which it stopped. The record is not skipped. `what`: doing
    what with it.
    """

    def __init__(self, service: str, what: str, record: Record) -> None:
        super().__init__(f"{service} stopped at seq {record.seq}, {what} {record.type} {record.id}")
        self.what = what
        self.record = record


class Folded(Generic[S]):
    """A state and how far it has read. `folds`: how many records the core has learnt from."""

    def __init__(self, core: Core[S], bus: Bus, settings: Settings, *, shard: int, of: int, name: str) -> None:
        self.state = core.start(shard, of)
        self.log = Lookahead(bus, settings.partition)
        self.decisions = DecisionReader(bus, settings.partition)
        self.folds = 0
        self._core, self._shard, self._name = core, shard, name
        self._bus, self._settings = bus, settings
        self._opened: int | None = None

    def go_on(self, state: S, snapshot: Snapshot) -> None:
        """Takes up a state and the places up to which it has read."""
        self.state = state
        self.log = Lookahead(self._bus, self._settings.partition, snapshot.order)
        self.decisions = DecisionReader(self._bus, self._settings.partition, snapshot.decisions)
        self._opened = None

    async def take(self) -> Accepted | None:
        """Folds the next record and returns it; None where the log has none now. Raises CoreStopped, DecisionGap,
        BusError, and what the log cannot be read for.
        """
        accepted = await self.log.take()
        if accepted is None:
            return None
        record = accepted.record
        if isinstance(record.body, RoundClosed):
            await self._feed_winners(record)
        self._fold(record)
        if isinstance(record.body, RoundOpened):
            self._opened = record.seq
        elif isinstance(record.body, RoundClosed | RoundAbandoned):
            opened, self._opened = self._opened, None
            if opened is not None:
                self.decisions.forget(opened)
            await self.decisions.sift(self.log.order.seq, self.log.offset)
        return accepted

    def _fold(self, record: Record) -> None:
        learn = self._core.FOLDS.get(type(record.body))
        if learn is None:
            return
        try:
            learn(self.state, record)
        except Exception as error:
            raise CoreStopped(self._name, FOLDING, record) from error
        self.folds += 1

    async def _feed_winners(self, closing: Record) -> None:
        """Gives the core the winning records that it reads, in the order of READS; of its own topic its own shard."""
        named = [
            each
            for topic in self._core.READS
            for each in closing.body.hashes
            if each.topic == topic and folds(self._core.TOPIC, self._shard, topic, each.shard)
        ]
        for winner in await self.decisions.winners(closing, named, self._settings.gap_wait_ms):
            self._fold(winner.record)
