"""The log read from any record on, without a fold: known are places all over it, where a reader can begin.

The gateway notes one now and then as it follows the log, and others as it reads; between places that lie far apart it
takes those of its past states. Memory follows the number of places: one for some hundred records.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from dataclasses import dataclass
from json import dumps

from largesse.bus.port import Bus
from largesse.log.codec import decode, unwrap
from largesse.log.fencing import PIECE, Accepted, LogOrder
from largesse.log.past_states import PastStates
from largesse.log.reader import LogReader
from largesse.log.record_lines import named_in
from schemas import Record, SequencerClaimed
from schemas.topics import LOG
from services.gateway.name_filters import NameFilter
from services.gateway.view.state import State

PLACE_EVERY = 250
"""Records between two places."""

FAR = 16 * PLACE_EVERY
"""Places further apart than this are worth a look at past states in between."""

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

    def __init__(self, bus: Bus, partition: int, past_states: PastStates[State]) -> None:
        self._bus, self._partition, self._past_states = bus, partition, past_states
        self._places = [Place(LogOrder(), {})]
        self._names: dict[int, NameFilter] = {}  # By the end of a stretch between two places.
        self._tail, self._tail_begins, self._learnt = NameFilter(), 0, 0

    def learn(self, record: Record) -> None:
        """The next record, told by who follows the log, before it is noted that they stand behind it."""
        if record.seq != self._learnt + 1:
            self._tail_begins = record.seq - 1
        for name in named_in(record):
            self._tail.add(name)
        self._learnt = record.seq

    def note(self, order: LogOrder, decisions: Callable[[], dict[str, int]], *, anyway: bool = False) -> None:
        """Who follows the log stands here now. `decisions`: asked only where this becomes a place. `anyway`: they begin
        here."""
        if anyway or order.seq - self._places[-1].seq >= PLACE_EVERY:
            before, place = self._places[-1].seq, self._add(Place(deepcopy(order), decisions()))
            if self._tail_begins <= before and self._learnt == place.seq:
                self._names[place.seq] = self._tail
            self._tail, self._tail_begins, self._learnt = NameFilter(), place.seq, place.seq

    def _lacks(self, end: int, names: tuple[str, ...]) -> bool:
        """Whether it is known that the stretch up to a place speaks of none of these jobs and nodes."""
        found = self._names.get(end)
        return found is not None and not any(map(found.may_have, names))

    def _ends_before(self, seq: int, last: int, names: tuple[str, ...]) -> bool:
        """Whether it is known that nothing behind a record speaks of these, up to the last one that is asked for."""
        if seq < self._tail_begins or last > self._learnt:
            return False
        return not any(map(self._tail.may_have, names))

    async def before(self, is_before: Callable[[LogOrder], bool]) -> Place:
        """The last place known for which `is_before` holds, which does for all before some record and none behind it.
        Raises BusError.
        """
        await self._drop_trimmed()
        at = bisect_left(self._places, True, key=lambda place: not is_before(place.order))
        low = self._places[max(0, at - 1)]
        high = self._places[at].seq if at < len(self._places) else None
        if high is not None and high - low.seq > FAR:
            seqs = [seq for seq in await self._past_states.seqs() if low.seq < seq < high]
            while seqs:
                middle = len(seqs) // 2
                found = await self._past_states.behind(seqs[middle])
                if found is None:
                    del seqs[middle]
                    continue
                place = self._add(Place(found.order, found.decisions))
                if is_before(place.order):
                    low, seqs = place, seqs[middle + 1 :]
                else:
                    seqs = seqs[:middle]
        return low

    async def _drop_trimmed(self) -> None:
        """Where the log's beginning was trimmed, the first place is the first known behind that: a page begins there.
        Raises BusError.
        """
        first = (await self._bus.bounds(LOG, self._partition))[0]
        if self._places[0].order.offset >= first:
            return
        self._places = [place for place in self._places if place.order.offset >= first] or self._places[-1:]
        seqs = [seq for seq in await self._past_states.seqs() if seq < self._places[0].seq]
        while seqs:
            middle = len(seqs) // 2
            found = await self._past_states.behind(seqs[middle])
            if found is not None:
                self._places.insert(0, Place(found.order, found.decisions))
            seqs = seqs[middle + 1 :] if found is None else seqs[:middle]

    async def records(self, place: Place, last: int, names: tuple[str, ...] = ()) -> AsyncIterator[Accepted]:
        """The records behind a place, up to `last` and as far as the log goes. `names`: between two places those may be
        left out that speak of none of these jobs and nodes. Raises BusError, Undecodable.
        """
        reader, noted = LogReader(self._bus, self._partition, deepcopy(place.order)), place.seq
        while reader.order.seq < last:
            if names and (beyond := await self._beyond(reader.order, last, names)) is not None:
                reader, noted = LogReader(self._bus, self._partition, deepcopy(beyond.order)), beyond.seq
                continue
            if names and self._ends_before(reader.order.seq, last, names):
                return
            if names and (end := self._plain_stretch(reader.order, last)) is not None:
                for accepted in await self._speaking(reader, end, names):
                    yield accepted
                reader, noted = LogReader(self._bus, self._partition, deepcopy(end.order)), end.seq
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

    def _plain_stretch(self, order: LogOrder, last: int) -> Place | None:
        """The next place, where a reader stands at one, and every message up to there is a record that counts; None:
        there are claims, void messages or records in parts between them, or it lies behind `last`.
        """
        at = bisect_left(self._places, order.seq, key=lambda each: each.seq)
        if at + 1 >= len(self._places) or self._places[at].order != order or self._places[at + 1].seq > last:
            return None
        end = self._places[at + 1]
        return end if end.order.offset - order.offset == end.seq - order.seq else None

    async def _speaking(self, reader: LogReader, end: Place, names: tuple[str, ...]) -> list[Accepted]:
        """The records of a plain stretch that have one of these names. Only those are decoded, since that takes twenty
        times what looking at their bytes does.
        """
        texts, found = tuple(map(named, names)), list[Accepted]()
        while reader.offset < end.order.offset:
            before = reader.offset
            for message in await reader.fetch(most=min(LOOKED_AT_ONCE, end.order.offset - reader.offset)):
                if message.offset < end.order.offset and any(text in message.value for text in texts):
                    header, content = unwrap(message.value)
                    found.append(Accepted(decode(content), header, content, message.offset))
            if reader.offset == before:
                break
        return found

    def _left(self, reader: LogReader) -> int:
        """How many messages lie before the next place, at least 1: there a reader may leave out some."""
        at = bisect_right(self._places, reader.order.seq, key=lambda each: each.seq)
        return READ_AT_ONCE if at == len(self._places) else max(1, self._places[at].order.offset - reader.offset)

    async def _beyond(self, order: LogOrder, last: int, names: tuple[str, ...]) -> Place | None:
        """A place up to which no record speaks of these, where a reader stands at one; None: there is none. Where that
        is not known, looking at bytes takes a twentieth of what reading records does.
        """
        at = bisect_left(self._places, order.seq, key=lambda each: each.seq)
        if at == len(self._places) or self._places[at].seq != order.seq:
            return None
        coming = deque(place for place in self._places[at + 1 :] if place.seq <= last)
        beyond: Place | None = None
        while coming and self._lacks(coming[0].seq, names):
            beyond = coming.popleft()
        if beyond is not None:
            return beyond
        reader, texts = LogReader(self._bus, self._partition, deepcopy(order)), tuple(map(named, names))
        while coming:
            before = reader.offset
            most = min(LOOKED_AT_ONCE, max(1, coming[-1].order.offset - reader.offset))
            for message in await reader.fetch(most=most):
                while coming and message.offset >= coming[0].order.offset:
                    beyond = coming.popleft()
                # A record in parts may have a name that is cut in two.
                if PIECE in message.value or any(text in message.value for text in texts):
                    return beyond
            while coming and reader.offset >= coming[0].order.offset:
                beyond = coming.popleft()
            if reader.offset == before or (beyond is not None and coming and self._lacks(coming[0].seq, names)):
                break
        return beyond

    def _add(self, place: Place) -> Place:
        """Keeps a place, unless there is one close before it."""
        at = bisect_left(self._places, place.seq, key=lambda each: each.seq)
        is_there = at < len(self._places) and self._places[at].seq == place.seq
        if not is_there:
            if at < len(self._places) and (names := self._names.get(self._places[at].seq)) is not None:
                self._names[place.seq] = names  # Both parts speak of no more than the whole.
            self._places.insert(at, place)
        return place
