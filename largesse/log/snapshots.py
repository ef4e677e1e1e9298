"""Any state of any core as checksummed bytes, and back. A snapshot only shortens the fold: it is never the truth.

One that is damaged, of another layout, that does not come back as it was, or that the log does not remember is refused
by name; the one before it, or the whole fold, serves. State is plain data: slotted dataclasses, fields annotated
`Cache` left out. Two slots a service and shard take turns, so compaction always leaves a whole one.
"""

import asyncio
import zlib
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Protocol, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from largesse import failpoints
from largesse.bus.port import Bus, Message, Outgoing, Writer
from largesse.log.compiled_types import readable
from largesse.log.fencing import LogOrder
from largesse.settings import Settings
from largesse.telemetry import SNAPSHOTS as TAKEN
from largesse.telemetry import logger
from schemas.topics import LOG, SNAPSHOTS

S = TypeVar("S")  # A state, or whatever else is kept like one.

_adapters: dict[type, TypeAdapter[Any]] = {}

PART_BYTES_MAX = 600 * 1024
"""Compressed bytes in one message: as base64 they stay below RECORD_BYTES_MAX."""

STEP_BACK = 16
"""Messages that the search for the newest snapshot looks at in one go."""

SLOTS = 2

CHEAP_BYTES = 1 << 20
"""A state of up to this many bytes is written whenever its rounds are over, and packed where it stands."""
RECORD_BYTES = 512
"""What a record of the log counts for, about, where a snapshot is weighed against what the log wrote since the last."""

REFUSED_MAX = 8
"""After this many refused snapshots the log is folded from its beginning."""


class SnapshotRefused(Exception):
    """Why a snapshot may not be restored."""


@dataclass(slots=True)
class Snapshot:
    """A core's state directly after a folded closing (or abandoned round).

    `order`: where the log was then. `landmark`: hash of the log's message before `order.offset`. `decisions`: where the
    decision topics were, as DecisionReader tells it. `of`: shards at that time. `number`: how many there were before.
    `state`: the state's JSON.
    """

    service: str
    shard: int
    of: int
    layout: int
    number: int
    order: LogOrder
    landmark: str
    decisions: dict[str, int]
    state: bytes


def dump(state: S) -> bytes:
    """A state's JSON. Equal states give equal bytes; caches are left out."""
    return _adapter(type(state)).dump_json(state)


def load(kind: type[S], data: bytes) -> S:
    """The state of type `kind` that `dump` wrote. Raises SnapshotRefused where it does not come back as it was."""
    try:
        state = _adapter(kind).validate_json(data)
    except ValidationError as error:
        raise SnapshotRefused(f"its state cannot be read: {error.errors()[0]}") from error
    if dump(state) != data:
        raise SnapshotRefused("its state does not come back as it was")
    return state


class Beginning(Protocol):
    """Finds a state where a log begins that was trimmed: of bus, partition, archive, service, shard, layout, kind."""

    async def __call__(
        self, bus: Bus, partition: int, archive: str, service: str, shard: int, layout: int, kind: type[S]
    ) -> tuple[S, Snapshot] | None: ...


class SnapshotKeeper:
    """One instance's snapshots: restores the newest, says when the next is due, takes it. `topic`: the log that they
    are states of; `beginning`: asked where none serves, for a log whose beginning was trimmed (largesse/beginning.py).
    """

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        service: str,
        shard: int,
        layout: int,
        name: str,
        *,
        topic: str = LOG,
        beginning: "Beginning | None" = None,
    ) -> None:
        self._bus = bus
        self._topic, self._beginning = topic, beginning
        self._settings = settings
        self._service = service
        self._shard = shard
        self._layout = layout
        self._name = name
        self._number = self._round = self._seq = self._bytes = 0

    async def restore(self, kind: type[S]) -> tuple[S, Snapshot] | None:
        """The newest snapshot that may be restored, and its state of type `kind`; of a log that was trimmed behind it,
        what the newest checkpoint has. Raises PositionGap, BusError.
        """
        partition, layout = self._settings.partition, self._layout
        found = await newest(self._bus, partition, self._service, self._shard, layout, kind, topic=self._topic)
        self._number = self._round = self._seq = self._bytes = 0
        if found is None and self._beginning is not None:
            archive = self._settings.archive
            found = await self._beginning(self._bus, partition, archive, self._service, self._shard, layout, kind)
        if found is not None:
            snapshot = found[1]
            self._number, self._bytes = snapshot.number + 1, len(snapshot.state)
            self._round, self._seq = snapshot.order.round, snapshot.order.seq
        return found

    def is_due(self, round_number: int, seq: int) -> bool:
        """Whether one may be taken directly after this round's end, at the log's `seq`: once its rounds have gone by,
        and the log wrote as much since the last one as a large state is, so that snapshots cost what changed.
        """
        if round_number - self._round < self._settings.snapshot_rounds:
            return False
        return (seq - self._seq) * RECORD_BYTES >= self._bytes - CHEAP_BYTES

    async def take(
        self, writer: Writer, state: bytes, order: LogOrder, decisions: dict[str, int], *, of: int, durable: bool
    ) -> Snapshot:
        """Writes a snapshot of a state as `dump` gave it directly after the record before `order.offset`."""
        partition = self._settings.partition
        landmark = await landmark_of(self._bus, partition, order.offset, self._topic)
        snapshot = Snapshot(
            self._service, self._shard, of, self._layout, self._number, order, landmark, decisions, state
        )
        failpoints.hit(self._name, "before_snapshot")
        pack = partial(messages_of, snapshot, self._settings.cell, partition)
        # Packing a large one takes a tenth of a second and more, in which others want this loop.
        messages = pack() if len(state) <= CHEAP_BYTES else await asyncio.to_thread(pack)
        await writer.send(messages, durable=durable)
        failpoints.hit(self._name, "after_snapshot")
        self._number, self._bytes = self._number + 1, len(state)
        self._round, self._seq = order.round, order.seq
        TAKEN.labels(self._service, "taken").inc()
        log = logger(service=self._name)
        log.info("snapshot", seq=order.seq, round=order.round, state_bytes=len(state))
        return snapshot


async def landmark_of(bus: Bus, partition: int, offset: int, topic: str = LOG) -> str:
    """Hash of the log's message at the offset before `offset`, empty where there is none. Raises PositionGap."""
    messages = await bus.fetch(topic, partition, offset - 1, most=1)
    return sha256(messages[0].value).hexdigest() if messages and messages[0].offset == offset - 1 else ""


def messages_of(
    snapshot: Snapshot,
    cell: str,
    partition: int,
    *,
    kept_as: str = "",
    slot: int | None = None,
    base: int | None = None,
) -> list[Outgoing]:
    """What to send. Keys name service, shard, slot and part. `kept_as`: in place of the service; `slot`: else by the
    number. `base`: the record behind which the past state lies that this one is built upon (past_states.py).
    """
    service = kept_as or snapshot.service
    head = orjson.dumps({**asdict(snapshot), "state": None})
    document = head + b"\n" + snapshot.state
    packed, total = zlib.compress(document, 1), sha256(document).hexdigest()
    pieces = [packed[at : at + PART_BYTES_MAX] for at in range(0, len(packed), PART_BYTES_MAX)]
    slot = snapshot.number % SLOTS if slot is None else slot
    messages = []
    for part, piece in enumerate(pieces):
        about: dict[str, object] = {
            "service": service,
            "shard": snapshot.shard,
            "seq": snapshot.order.seq,
            "time": snapshot.order.time,
            "part": part,
            "parts": len(pieces),
            "sum": total,
        }
        if base is not None:
            about["base"] = base
        value = orjson.dumps({"snapshot": about, "data": b64encode(piece).decode()})
        key = f"{cell}/{service}/{snapshot.shard}/{slot}/{part}"
        messages.append(Outgoing(SNAPSHOTS, partition, value, key))
    return messages


async def newest(
    bus: Bus, partition: int, service: str, shard: int, layout: int, kind: type[S], *, topic: str = LOG
) -> tuple[S, Snapshot] | None:
    """The newest snapshot that may be restored and its state, or None. Refused ones are named in the log.

    Raises PositionGap where the log does not reach up to a snapshot.
    """
    log = logger(service=service, shard=shard)
    gathered: dict[str, dict[int, str]] = {}
    refusals = 0
    async for message in _backwards(bus, partition):
        found = piece_of(message, service, shard)
        if found is None:
            continue
        about, data = found
        pieces = gathered.setdefault(f"{about['seq']}/{about['sum']}", {})
        pieces.setdefault(about["part"], data)
        if len(pieces) < about["parts"]:
            continue
        try:
            snapshot = unpack(about, [pieces[part] for part in sorted(pieces)])
            state = await judge(bus, partition, snapshot, layout, kind, topic)
        except SnapshotRefused as refused:
            log.warning("snapshot_refused", seq=about["seq"], offset=message.offset, reason=str(refused))
            TAKEN.labels(service, "refused").inc()
            refusals += 1
            if refusals == REFUSED_MAX:
                return None
            continue
        log.info("snapshot_restored", seq=snapshot.order.seq, round=snapshot.order.round)
        TAKEN.labels(service, "restored").inc()
        return state, snapshot
    return None


async def _backwards(bus: Bus, partition: int) -> AsyncIterator[Message]:
    """Every message of the snapshots topic, the last one first. Where compaction left gaps, the steps grow."""
    first, end = await bus.bounds(SNAPSHOTS, partition)
    step = STEP_BACK
    while end > first:
        start = max(first, end - step)
        messages: list[Message] = []
        at = start
        while at < end:
            more = await bus.fetch(SNAPSHOTS, partition, at, most=end - at)
            # What lies beyond a gap at the end of this step has been seen.
            messages += [message for message in more if message.offset < end]
            at = max(more.position, at + 1)
        for message in reversed(messages):
            yield message
        end = start
        step = STEP_BACK if messages else 2 * step


def piece_of(message: Message, service: str, shard: int) -> tuple[dict[str, Any], str] | None:
    """What a message says of itself and its data; None where it is about another service or cannot be read."""
    if not message.value.startswith(b'{"snapshot":{"service":"%b","shard":%d,' % (service.encode(), shard)):
        return None
    try:
        document = orjson.loads(message.value)
        about: dict[str, object] = document["snapshot"]
        whole = all(type(about[name]) is int for name in ("seq", "part", "parts")) and type(about["sum"]) is str
        return (about, document["data"]) if whole and type(document["data"]) is str else None
    except (orjson.JSONDecodeError, KeyError, TypeError):
        logger(service=service, shard=shard).warning("snapshot_unreadable", offset=message.offset)
        return None


def whole_ones(messages: Iterable[Message]) -> list[Snapshot]:
    """What services wrote as snapshots, of all that messages of the topic come to. What is damaged is left out, and so
    are states that the gateway keeps of the past.
    """
    gathered: dict[tuple[str, int, str], tuple[dict[str, object], dict[int, str]]] = {}
    for message in messages:
        try:
            document = orjson.loads(message.value)
            about, data = document["snapshot"], document["data"]
            key = about["service"], about["shard"], about["sum"]
            gathered.setdefault(key, (about, {}))[1][about["part"]] = data
        except (orjson.JSONDecodeError, KeyError, TypeError):
            continue
    found = []
    for (service, _, _), (about, pieces) in gathered.items():
        with suppress(SnapshotRefused):
            if len(pieces) == about["parts"]:
                snapshot = unpack(about, [pieces[part] for part in sorted(pieces)])
                found += [snapshot] if snapshot.service == service else []
    return found


def unpack(about: dict[str, object], pieces: list[str]) -> Snapshot:
    """The snapshot that came in these pieces. Raises SnapshotRefused where they are damaged."""
    try:
        document = zlib.decompress(b"".join(b64decode(piece, validate=True) for piece in pieces))
    except (ValueError, zlib.error) as error:
        raise SnapshotRefused(f"it is damaged: {error}") from error
    if sha256(document).hexdigest() != about["sum"]:
        raise SnapshotRefused("it is damaged: its bytes do not give its checksum")
    head, _, state = document.partition(b"\n")
    try:
        validated = _adapter(Snapshot).validate_python({**orjson.loads(head), "state": state})
    except (orjson.JSONDecodeError, TypeError, ValidationError) as error:
        raise SnapshotRefused(f"its head cannot be read: {error}") from error
    snapshot: Snapshot = validated
    return snapshot


async def judge(bus: Bus, partition: int, snapshot: Snapshot, layout: int, kind: type[S], topic: str = LOG) -> S:
    """The state of a snapshot. Raises SnapshotRefused where it is of another layout or another log."""
    if snapshot.layout != layout:
        raise SnapshotRefused(f"it has layout {snapshot.layout}, this core has {layout}")
    first = (await bus.bounds(topic, partition))[0]
    if first and snapshot.order.offset <= first:
        raise SnapshotRefused(f"the log begins behind it, at offset {first}")
    if await landmark_of(bus, partition, snapshot.order.offset, topic) != snapshot.landmark:
        raise SnapshotRefused(f"the log has another message before offset {snapshot.order.offset}")
    return load(kind, snapshot.state)


def _adapter(kind: type[S]) -> TypeAdapter[S]:
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(readable(kind))
    return _adapters[kind]
