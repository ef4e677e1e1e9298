"""States of a core from all over the log, so that any past moment is a short fold away.

They are its snapshots, kept on: each has a place by the number of its round, and as the log grows those that lie
between others are written over, so that their distance doubles and their number does not grow. Like every snapshot they
only shorten a fold; without them it begins at the log's start.
"""

from bisect import bisect_right
from dataclasses import dataclass

from largesse.bus.port import Bus, Message, Outgoing
from largesse.log.snapshots import S, Snapshot, SnapshotRefused, judge, landmark_of, messages_of, piece_of, unpack
from largesse.telemetry import logger
from schemas.topics import SNAPSHOTS

FETCHED_MOST = 16
"""Messages of the snapshots topic that are read at once: each is up to a MiB."""


def kept_as(service: str) -> str:
    """The name under which a service's checkpoints are kept."""
    return f"{service}.past"


def slot_of(number: int, slots: int) -> int | None:
    """The place of the checkpoint with this number among `slots`, 2 or 4 or 8 and so on; None: it is not kept.

    Up to `slots` every number is kept, then every second one, in the places of the odd ones before it, and so on: the
    distance of neighbours is never more than twice the least that has room.
    """
    if number < slots:
        return number
    stride = 1
    while number >= 2 * slots * stride:
        stride *= 2
    past, rest = divmod(number - slots * stride, 2 * stride)
    return None if rest else slot_of((2 * past + 1) * stride, slots)


def checkpoint_messages(snapshot: Snapshot, cell: str, partition: int, *, distance: int, most: int) -> list[Outgoing]:
    """What to send so that a snapshot is kept on; nothing where a neighbour of it serves. `distance`: rounds between
    two checkpoints while the log is short; `most`: as many are kept, rounded down to a power of two; below 2 none is.
    """
    if most < 2:
        return []
    slot = slot_of(snapshot.order.round // max(distance, 1), 1 << (most.bit_length() - 1))
    if slot is None:
        return []
    return messages_of(snapshot, cell, partition, kept_as=kept_as(snapshot.service), slot=slot)


@dataclass(frozen=True, slots=True)
class _Place:
    """A checkpoint in the snapshots topic: what it holds, and the offset of its first part."""

    seq: int
    time: int
    sum: str
    parts: int
    offset: int


class Checkpoints:
    """The checkpoints of one service, found again. `look` reads what has come since it was called last."""

    def __init__(self, bus: Bus, partition: int, service: str, layout: int) -> None:
        self._bus, self._partition, self._service, self._layout = bus, partition, service, layout
        self._places: dict[str, _Place] = {}
        self._position = 0

    async def before(
        self, kind: type[S], seq: int | None, time_ms: int | None, *, above: int = -1
    ) -> tuple[S, Snapshot] | None:
        """The latest state of type `kind` up to record `seq`, or before `time_ms`; None where there is none behind the
        record `above`. Those that are gone, damaged or of another layout are passed over. Raises BusError.
        """
        await self._look()
        places = sorted(self._places.values(), key=lambda place: place.seq)
        at = bisect_right(places, seq, key=lambda place: place.seq) if seq is not None else len(places)
        for place in reversed(places[:at]):
            # Records behind the checkpoint may have its very time.
            if time_ms is not None and place.time > time_ms:
                continue
            if place.seq <= above:
                return None
            try:
                snapshot = await self._read(place)
                return await judge(self._bus, self._partition, snapshot, self._layout, kind), snapshot
            except SnapshotRefused as refused:
                logger(service=kept_as(self._service)).warning("checkpoint_refused", seq=place.seq, reason=str(refused))
                self._places.pop(place.sum, None)
        return None

    async def seqs(self) -> list[int]:
        """Behind which records there are checkpoints. Raises BusError."""
        await self._look()
        return sorted({place.seq for place in self._places.values()})

    async def behind(self, seq: int) -> Snapshot | None:
        """The checkpoint behind a record, of whatever layout, for those who read the log on from there; None where it
        is gone, damaged or of another log. Raises BusError.
        """
        for place in [place for place in self._places.values() if place.seq == seq]:
            try:
                snapshot = await self._read(place)
            except SnapshotRefused:
                continue
            if await landmark_of(self._bus, self._partition, snapshot.order.offset) == snapshot.landmark:
                return snapshot
        return None

    async def _look(self) -> None:
        first, end = await self._bus.bounds(SNAPSHOTS, self._partition)
        self._position = max(self._position, first)
        while self._position < end:
            fetched = await self._bus.fetch(SNAPSHOTS, self._partition, self._position, most=FETCHED_MOST)
            for message in fetched:
                self._note(message)
            self._position = max(fetched.position, self._position + 1)

    def _note(self, message: Message) -> None:
        found = piece_of(message, kept_as(self._service), 0)
        if found is None or found[0]["part"] != 0 or type(found[0].get("time")) is not int:
            return
        about = found[0]
        place = _Place(about["seq"], about["time"], about["sum"], about["parts"], message.offset)
        self._places[place.sum] = place

    async def _read(self, place: _Place) -> Snapshot:
        """Raises SnapshotRefused where it is gone, whole or in part."""
        pieces: list[str] = []
        position, end = place.offset, (await self._bus.bounds(SNAPSHOTS, self._partition))[1]
        while len(pieces) < place.parts and position < end:
            fetched = await self._bus.fetch(SNAPSHOTS, self._partition, position, most=FETCHED_MOST)
            for message in fetched:
                found = piece_of(message, kept_as(self._service), 0)
                if found is not None and found[0]["sum"] == place.sum and found[0]["part"] == len(pieces):
                    pieces.append(found[1])
            if not pieces:
                break
            position = max(fetched.position, position + 1)
        if len(pieces) < place.parts:
            raise SnapshotRefused("another has taken its place")
        return unpack({"sum": place.sum}, pieces)
