"""Which states of a core are kept of the past, and what is written of each.

The log is divided into stretches of RECORDS_BETWEEN records, and there is a past state in each, up to as many as are
wanted; then in every second one, and so on: any moment lies behind a past state by twice the least distance at which
they have room, or by what writing one costs, if that is more. Each sixteenth is whole when it is written, the others
have a base.
"""

import asyncio
from functools import partial
from typing import Generic

from largesse.bus.port import Bus, Writer
from largesse.log.fencing import LogOrder
from largesse.log.past_states import Base, PastStates, base_of, cut, distance_of, kept_as, slot_of
from largesse.log.snapshots import CHEAP_BYTES, S, Snapshot, dump, landmark_of, messages_of
from largesse.settings import Settings

RECORDS_BETWEEN = 1_000
"""Records between two past states while the log is short: they are folded in a part of a second."""

BYTES_BY_RECORD = 2 * 1024
"""A record is folded for each of these that the last one had beyond its base, before the next one is written: that
costs a part of the fold.
"""

WHOLE_EVERY = 16
"""Past states from one that is whole to the next. A power of two: whatever is built upon one is written over first."""


class PastKeeper(Generic[S]):
    """Keeps past states of one instance. `kept`: finds them again. `begins`: the record behind which its log begins."""

    def __init__(self, bus: Bus, settings: Settings, kept: PastStates[S], *, begins: int = 0) -> None:
        self._bus, self._settings, self._kept, self._begins = bus, settings, kept, begins
        most = settings.checkpoints
        self._slots = 1 << (most.bit_length() - 1) if most >= 2 else 0
        self._number = self._seq = self._bytes = 0
        self._group = (0, 0)
        self._base: Base | None = None

    async def resume(self, state: S, seq: int) -> None:
        """Goes on with a state that was restored behind record `seq`. Raises BusError."""
        self._number, self._seq = self._number_of(seq), seq
        if not self._slots:
            return
        self._base = await self._kept.newest_base()
        if self._base is not None:
            self._group = self._group_of(self._number_of(self._base.seq))
            for name, then in self._base.settled.items():
                now = getattr(state, name)
                # What is equal is the same from now on, so that it is found without a comparison.
                then.update({key: now[key] for key, value in then.items() if key in now and now[key] == value})

    def is_due(self, seq: int) -> bool:
        """Whether one may be kept directly after the end of a round, at the log's `seq`."""
        return (
            bool(self._slots)
            and self._number_of(seq) > self._number
            and (seq - self._seq) * BYTES_BY_RECORD >= self._bytes
        )

    async def keep(self, writer: Writer, state: S, order: LogOrder, decisions: dict[str, int]) -> None:
        """Keeps a state as it is directly after the record before `order.offset`, if its place is one that is kept.
        Raises BusError.
        """
        number = _roundest(self._number, self._number_of(order.seq))
        slot = slot_of(number, self._slots)
        self._number = self._number_of(order.seq)
        if slot is None:
            return
        base, data = self._cut(state, number, order.seq)
        landmark = await landmark_of(self._bus, self._settings.partition, order.offset)
        snapshot = Snapshot(self._kept.service, 0, 1, self._kept.layout, number, order, landmark, decisions, data)
        pack = partial(
            messages_of,
            snapshot,
            self._settings.cell,
            self._settings.partition,
            kept_as=kept_as(self._kept.service),
            slot=slot,
            base=base,
        )
        messages = pack() if len(data) <= CHEAP_BYTES else await asyncio.to_thread(pack)
        await writer.send(messages, durable=False)
        self._seq = order.seq

    def _cut(self, state: S, number: int, seq: int) -> tuple[int | None, bytes]:
        """The record behind which the base lies, None without one; and what is to be written."""
        group = self._group_of(number)
        if number % (WHOLE_EVERY * group[0]) == 0:
            self._base, self._group = base_of(state, self._kept.settled, seq), group
        elif self._base is not None and self._group == group:
            found = cut(state, self._base)
            if found is not None:
                data = found[0] + b"\n" + dump(found[1])
                self._bytes = len(data)
                return self._base.seq, data
        return None, dump(state)

    def _group_of(self, number: int) -> tuple[int, int]:
        """Those with the same group are built upon the same one: the distance of neighbours now, and which it is."""
        distance = distance_of(number, self._slots)
        return distance, number // (WHOLE_EVERY * distance)

    def _number_of(self, seq: int) -> int:
        return max(0, seq - self._begins) // RECORDS_BETWEEN


def _roundest(low: int, high: int) -> int:
    """Of the numbers above `low` up to `high` the one that most powers of two divide: it is the last to be written
    over.
    """
    while (rounder := high & (high - 1)) > low:
        high = rounder
    return high
