"""The log read from any record on, without a fold: known are places all over it, where a reader can begin.

The gateway notes one now and then as it follows the log, and others as it reads; between places that lie far apart it
takes those of its checkpoints. Memory follows the number of places: one for some hundred records.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from dataclasses import dataclass
from json import dumps

from largesse.bus.port import Bus
from largesse.log.checkpoints import Checkpoints
from largesse.log.fencing import PIECE, Accepted, LogOrder
from largesse.log.reader import LogReader
from schemas import SequencerClaimed
from services.gateway.view.state import State

PLACE_EVERY = 250
"""Records between two places."""

FAR = 16 * PLACE_EVERY
"""Places further apart than this are worth a look at checkpoints in between."""

READ_AT_ONCE = 100
"""Messages that are read before others get a turn."""

LOOKED_AT_ONCE = 1_000
"""Messages that are looked at, as bytes, before others get a turn."""


def named(name: str) -> bytes:
    """How a record that speaks of a job or node has its name: a string of its own, since one name may begin another."""
    return dumps(name, ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class Place:
    """Where the log stood behind a record, and a place at which decisions of later rounds are found in their topics."""

    order: LogOrder
    decisions: dict[str, int]

    @property
    def seq(self) -> int:
        """The record that it lies behind."""
        return self.order.seq


class LogPlaces:
    """Places in the log of one cell. Belongs to one event loop."""

    def __init__(self, bus: Bus, partition: int, checkpoints: Checkpoints[State]) -> None:
        self._bus, self._partition, self._checkpoints = bus, partition, checkpoints
        self._places = [Place(LogOrder(), {})]

    def note(self, order: LogOrder, decisions: Callable[[], dict[str, int]], *, anyway: bool = False) -> None:
        """Who follows the log stands here now. `decisions`: asked only where this becomes a place."""
        if anyway or order.seq - self._places[-1].seq >= PLACE_EVERY:
            self._add(Place(deepcopy(order), decisions()))

    async def before(self, is_before: Callable[[LogOrder], bool]) -> Place:
        """The last place known for which `is_before` holds, which does for all before some record and none behind it.
        Raises BusError.
        """
        at = bisect_left(self._places, True, key=lambda place: not is_before(place.order))
        low = self._places[max(0, at - 1)]
        high = self._places[at].seq if at < len(self._places) else None
        if high is not None and high - low.seq > FAR:
            seqs = [seq for seq in await self._checkpoints.seqs() if low.seq < seq < high]
            while seqs:
                middle = len(seqs) // 2
                found = await self._checkpoints.behind(seqs[middle])
                if found is None:
                    del seqs[middle]
                    continue
                place = self._add(Place(found.order, found.decisions))
                if is_before(place.order):
                    low, seqs = place, seqs[middle + 1 :]
                else:
                    seqs = seqs[:middle]
        return low

    async def records(self, place: Place, last: int, names: tuple[bytes, ...] = ()) -> AsyncIterator[Accepted]:
        """The records behind a place, up to `last` and as far as the log goes. `names`: between two places those may be
        left out that have none of these texts. Raises BusError, Undecodable.
        """
        reader, noted = LogReader(self._bus, self._partition, deepcopy(place.order)), place.seq
        while reader.order.seq < last:
            if names and (beyond := await self._beyond(reader.order, last, names)) is not None:
                reader, noted = LogReader(self._bus, self._partition, deepcopy(beyond.order)), beyond.seq
                continue
            before = reader.offset
            found = await reader.read(most=min(READ_AT_ONCE, self._left(reader)) if names else READ_AT_ONCE)
            if reader.offset == before:
                return
            if not reader.order.seq and len(self._places) > 1 and reader.offset >= self._places[1].order.offset:
                place = self._places[1]  # A recorded log that begins in the middle: nothing stands before it.
                reader, noted = LogReader(self._bus, self._partition, deepcopy(place.order)), place.seq
                continue
            if reader.order.seq - noted >= PLACE_EVERY:
                noted = reader.order.seq
                self._add(Place(deepcopy(reader.order), place.decisions))
            for accepted in found:
                if accepted.record.seq > last:
                    return
                if not isinstance(accepted.record.body, SequencerClaimed):
                    yield accepted

    def _left(self, reader: LogReader) -> int:
        """How many messages lie before the next place, at least 1: there a reader may leave out some."""
        at = bisect_right(self._places, reader.order.seq, key=lambda each: each.seq)
        return READ_AT_ONCE if at == len(self._places) else max(1, self._places[at].order.offset - reader.offset)

    async def _beyond(self, order: LogOrder, last: int, names: tuple[bytes, ...]) -> Place | None:
        """The furthest place up to which no record has one of these texts, where a reader stands at one; None: there is
        none. Looking at bytes takes a twentieth of what reading records does.
        """
        at = bisect_left(self._places, order.seq, key=lambda each: each.seq)
        if at == len(self._places) or self._places[at].seq != order.seq:
            return None
        coming = deque(place for place in self._places[at + 1 :] if place.seq <= last)
        reader, beyond = LogReader(self._bus, self._partition, deepcopy(order)), None
        while coming:
            before = reader.offset
            most = min(LOOKED_AT_ONCE, max(1, coming[-1].order.offset - reader.offset))
            for message in await reader.fetch(most=most):
                while coming and message.offset >= coming[0].order.offset:
                    beyond = coming.popleft()
                # A record in parts may have a name that is cut in two.
                if PIECE in message.value or any(name in message.value for name in names):
                    return beyond
            while coming and reader.offset >= coming[0].order.offset:
                beyond = coming.popleft()
            if reader.offset == before:
                break
        return beyond

    def _add(self, place: Place) -> Place:
        """Keeps a place, unless there is one close before it."""
        at = bisect_left(self._places, place.seq, key=lambda each: each.seq)
        is_there = at < len(self._places) and self._places[at].seq == place.seq
        if not is_there:
            self._places.insert(at, place)
        return place
