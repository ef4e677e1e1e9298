"""States of a core from all over the log, so that any past moment is a short fold away.

Each has a place by a number that rises with the log, and as that grows those that lie between others are written over,
so that their distance doubles and their number does not grow (past_keeper.py). Most hold a state without what
stands in an earlier one, their base, word for word. Like snapshots they only shorten a fold; without them it begins at
the log's start.
"""

from bisect import bisect_right
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain, compress
from typing import Generic

import orjson

from largesse.bus.port import Bus, Message
from largesse.log.snapshots import S, Snapshot, SnapshotRefused, judge, landmark_of, piece_of, unpack
from largesse.telemetry import logger
from schemas.topics import LOG, SNAPSHOTS

FETCHED_MOST = 16
"""Messages of the snapshots topic that are read at once: each is up to a MiB."""


def kept_as(service: str) -> str:
    """The name under which a service's past states are kept."""
    return f"{service}.past"


def slot_of(number: int, slots: int) -> int | None:
    """The place of the past state with this number among `slots`, 2 or 4 or 8 and so on; None: it is not kept.

    Up to `slots` every number is kept, then every second one, in the places of the odd ones before it, and so on: the
    distance of neighbours is never more than twice the least that has room.
    """
    if number < slots:
        return number
    distance = distance_of(number, slots)
    past, rest = divmod(number - slots * distance // 2, distance)
    return None if rest else slot_of((2 * past + 1) * distance // 2, slots)


def distance_of(number: int, slots: int) -> int:
    """Which numbers are kept around this one: each, or every second one, or fourth, and so on."""
    return 1 if number < slots else 2 << (number // slots).bit_length() - 1


Settled = dict[str, dict[str, object]]
"""By field of a state: entries that stay as they are from when they are made until they go."""

_GONE = object()


@dataclass(frozen=True, slots=True)
class Base:
    """What was settled in the state behind record `seq`, which a whole past state has."""

    seq: int
    settled: Settled


def base_of(state: object, names: Sequence[str], seq: int) -> Base:
    """What is settled in a state now; `names`: in which fields."""
    return Base(seq, {name: dict(getattr(state, name)) for name in names})


def cut(state: S, base: Base) -> tuple[bytes, S] | None:
    """A state without what its base has, and how the two are joined; None where no such line can say it."""
    kept, new = dict[str, list[list[int]]](), dict[str, dict[str, object]]()
    for name, then in base.settled.items():
        now: dict[str, object] = getattr(state, name)
        is_kept = [now.get(key, _GONE) is value for key, value in then.items()]
        kept[name] = _spans(is_kept)
        new[name] = {key: value for key, value in now.items() if then.get(key, _GONE) is not value}
        if list(now) != [*compress(then, is_kept), *new[name]]:
            return None
    short = copy(state)
    for name, entries in new.items():
        setattr(short, name, entries)
    return orjson.dumps({"base": base.seq, "kept": kept}), short


def _spans(held: list[bool]) -> list[list[int]]:
    """Where a list is true: [first, behind the last] of each run."""
    spans: list[list[int]] = []
    for at, holds in enumerate(held):
        if holds and spans and spans[-1][1] == at:
            spans[-1][1] = at + 1
        elif holds:
            spans.append([at, at + 1])
    return spans


def join(state: object, base: Base, kept: dict[str, list[list[int]]]) -> None:
    """Puts back what `cut` took out."""
    for name, spans in kept.items():
        before = list(base.settled[name].items())
        whole = dict(chain.from_iterable(before[first:end] for first, end in spans))
        setattr(state, name, whole | getattr(state, name))


@dataclass(frozen=True, slots=True)
class _Place:
    """A past state in the snapshots topic: what it holds, and the offset of its first part. `built_upon`: it has a
    base.
    """

    seq: int
    time: int
    sum: str
    parts: int
    offset: int
    built_upon: bool


class PastStates(Generic[S]):
    """The past states of one service, found again. `settled`: fields of its state, as `cut` takes them."""

    def __init__(
        self, bus: Bus, partition: int, service: str, layout: int, kind: type[S], settled: Sequence[str] = ()
    ) -> None:
        self._bus, self._partition, self.service, self.layout = bus, partition, service, layout
        self._kind, self.settled = kind, settled
        self._places: dict[str, _Place] = {}
        self._position = 0
        self._base: Base | None = None

    async def before(self, seq: int | None, time_ms: int | None, *, above: int = -1) -> tuple[S, Snapshot] | None:
        """The latest state up to record `seq`, or before `time_ms`; None where there is none behind the record `above`.
        Those that are gone, damaged or of another layout are passed over. Raises BusError.
        """
        await self._look()
        places = sorted(self._places.values(), key=lambda place: place.seq)
        at = bisect_right(places, seq, key=lambda place: place.seq) if seq is not None else len(places)
        for place in reversed(places[:at]):
            # Records behind the past state may have its very time.
            if time_ms is not None and place.time > time_ms:
                continue
            if place.seq <= above:
                return None
            try:
                snapshot = await self._read(place)
                return await self._state_of(snapshot), snapshot
            except SnapshotRefused as refused:
                logger(service=kept_as(self.service)).warning("past_state_refused", seq=place.seq, reason=str(refused))
                self._places.pop(place.sum, None)
        return None

    async def seqs(self) -> list[int]:
        """Behind which records there are past states. Raises BusError."""
        await self._look()
        return sorted({place.seq for place in self._places.values()})

    async def behind(self, seq: int) -> Snapshot | None:
        """The past state behind a record, of whatever layout, for those who read the log on from there; None where it
        is gone, damaged or of another log. Raises BusError.
        """
        for place in [place for place in self._places.values() if place.seq == seq]:
            try:
                snapshot = await self._read(place)
            except SnapshotRefused:
                continue
            if snapshot.order.offset <= (await self._bus.bounds(LOG, self._partition))[0]:
                continue  # The log was trimmed behind it.
            if await landmark_of(self._bus, self._partition, snapshot.order.offset) == snapshot.landmark:
                return snapshot
        return None

    async def newest_base(self) -> Base | None:
        """What the last whole past state has of what is settled; None where there is none. Raises BusError."""
        await self._look()
        for place in sorted(self._places.values(), key=lambda place: place.seq, reverse=True):
            if not place.built_upon:
                try:
                    return await self._base_at(place.seq)
                except SnapshotRefused:
                    continue
        return None

    async def _state_of(self, snapshot: Snapshot) -> S:
        """Raises SnapshotRefused, BusError."""
        how, _, short = snapshot.state.partition(b"\n")
        if not short:
            return await judge(self._bus, self._partition, snapshot, self.layout, self._kind)
        shortened = replace(snapshot, state=short)
        state = await judge(self._bus, self._partition, shortened, self.layout, self._kind)
        try:
            line = orjson.loads(how)
            join(state, await self._base_at(line["base"]), line["kept"])
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise SnapshotRefused(f"how it is joined with its base cannot be read: {error}") from error
        return state

    async def _base_at(self, seq: int) -> Base:
        """Raises SnapshotRefused, BusError."""
        if self._base is not None and self._base.seq == seq:
            return self._base
        reason = "its base is gone"
        for place in [place for place in self._places.values() if place.seq == seq and not place.built_upon]:
            try:
                state = await self._state_of(await self._read(place))
            except SnapshotRefused as refused:
                reason = f"its base: {refused}"
                continue
            self._base = base_of(state, self.settled, seq)
            return self._base
        raise SnapshotRefused(reason)

    async def _look(self) -> None:
        first, end = await self._bus.bounds(SNAPSHOTS, self._partition)
        self._position = max(self._position, first)
        while self._position < end:
            fetched = await self._bus.fetch(SNAPSHOTS, self._partition, self._position, most=FETCHED_MOST)
            for message in fetched:
                self._note(message)
            self._position = max(fetched.position, self._position + 1)

    def _note(self, message: Message) -> None:
        found = piece_of(message, kept_as(self.service), 0)
        if found is None or found[0]["part"] != 0 or type(found[0].get("time")) is not int:
            return
        about = found[0]
        place = _Place(about["seq"], about["time"], about["sum"], about["parts"], message.offset, "base" in about)
        self._places[place.sum] = place

    async def _read(self, place: _Place) -> Snapshot:
        """Raises SnapshotRefused where it is gone, whole or in part."""
        pieces: list[str] = []
        position, end = place.offset, (await self._bus.bounds(SNAPSHOTS, self._partition))[1]
        while len(pieces) < place.parts and position < end:
            fetched = await self._bus.fetch(SNAPSHOTS, self._partition, position, most=FETCHED_MOST)
            for message in fetched:
                found = piece_of(message, kept_as(self.service), 0)
                if found is not None and found[0]["sum"] == place.sum and found[0]["part"] == len(pieces):
                    pieces.append(found[1])
            if not pieces:
                break
            position = max(fetched.position, position + 1)
        if len(pieces) < place.parts:
            raise SnapshotRefused("another has taken its place")
        return unpack({"sum": place.sum}, pieces)
