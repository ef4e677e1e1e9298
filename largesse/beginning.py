"""Where a log begins that was trimmed: whoever has no state behind its beginning takes one from a checkpoint.

LARGESSE_ARCHIVE names the store with the files of states (largesse/archive/state_file.py). One that is damaged, of
another log, of another layout, or from before the beginning is passed over by name, and the one before it serves.
"""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from largesse.bus.port import Bus, PositionGap
from largesse.log.snapshots import Snapshot, SnapshotRefused, landmark_of, load
from largesse.telemetry import logger
from schemas.topics import LOG

if TYPE_CHECKING:
    from largesse.archive.state_file import StateFile

S = TypeVar("S")

VARIABLE = "LARGESSE_ARCHIVE"
SHARDED_SERVICE = "altruism"
NODES = "bridge"
"""Whose state of nodes and their work is kept: a bridge's, from which every agent takes its own."""
PAST = "past"
"""What is left to say of the records before (services/replay/past.py), beside the states of cores."""

TRIED = 2
"""Behind the older of two checkpoints logs are trimmed: one of these two has to do."""


class LogTrimmed(PositionGap):
    """The log begins behind its first record, and there is no state from which to go on: says what is needed."""


def trimmed_text(name: str, first: int) -> str:
    """What to say to those who can only read a log from its first record."""
    return f"{name}: this log begins at offset {first}; what was before it has been trimmed, and only an archive has it"


async def first_offset(bus: Bus, partition: int, topic: str = LOG) -> int:
    """Where a log begins; 0 where nothing of it was trimmed. Raises BusError."""
    return (await bus.bounds(topic, partition))[0]


async def restored(
    bus: Bus, partition: int, archive: str, service: str, shard: int, layout: int, kind: type[S]
) -> tuple[S, Snapshot] | None:
    """What the newest checkpoint has of a service, whose log was trimmed; None where it begins with its first record.
    Raises LogTrimmed where there is none, BusError.
    """
    first = await first_offset(bus, partition)
    if not first:
        return None
    where = f"{LOG} partition {partition} begins at offset {first}: what was before it has been trimmed"
    name = f"{service}, shard {shard}," if shard else service
    if not archive:
        raise LogTrimmed(
            f"{where}, and {name} has no state behind it: set {VARIABLE} to the store with this cell's checkpoints"
        )
    why = "it has no checkpoint"
    for file, refusal in await asyncio.to_thread(_files, archive):
        try:
            if file is None:
                raise SnapshotRefused(refusal)
            return await _taken(bus, partition, first, file, service, shard, layout, kind)
        except SnapshotRefused as refused:
            why = str(refused)
            logger(service=service, shard=shard).warning("checkpoint_refused", archive=archive, reason=why)
    raise LogTrimmed(f"{where}, and {VARIABLE}={archive} has nothing for {name} to go on from: {why}")


def _files(archive: str) -> "list[tuple[StateFile | None, str]]":
    """The two newest files of states, the newest first; what is wrong with one in its place. Raises LogTrimmed."""
    # Only who has to go on from one needs its client of stores.
    from largesse.archive.state_file import StateFileDamaged, get, seqs_in
    from largesse.archive.store import StoreError, StoreUrlWrong, open_store

    found: list[tuple[StateFile | None, str]] = []
    try:
        store = open_store(archive)
        seqs = seqs_in(store)
    except (StoreUrlWrong, StoreError) as error:
        raise LogTrimmed(f"{VARIABLE}={archive}: {error}") from None
    for seq in reversed(seqs[-TRIED:]):
        try:
            found.append((get(store, seq)[0], ""))
        except (StoreError, StateFileDamaged) as error:
            found.append((None, str(error)))
    return found


async def _taken(
    bus: Bus, partition: int, first: int, file: "StateFile", service: str, shard: int, layout: int, kind: type[S]
) -> tuple[S, Snapshot]:
    """The state of a service in a file of this log. Raises SnapshotRefused, BusError."""
    where = f"the checkpoint behind seq {file.order.seq}"
    if file.order.offset <= first:
        raise SnapshotRefused(f"{where} is from before the log's beginning")
    try:
        landmark = await landmark_of(bus, partition, file.order.offset)
    except PositionGap:
        landmark = ""
    if landmark != file.landmark:
        raise SnapshotRefused(f"{where} is of another log: another message is before offset {file.order.offset}")
    kept = min(shard, file.shards) if service == SHARDED_SERVICE else shard
    there, data = file.states.get((service, kept), (0, b""))
    if there != layout:
        raise SnapshotRefused(f"{where} has layout {there or 'none'} of {service}, this version has {layout}")
    state = load(kind, data)
    if kept != shard:
        state.shard = shard  # type: ignore[attr-defined]
    order = replace(file.order, positions=dict(file.order.positions), pieces=list(file.order.pieces))
    of = max(1, file.shards) if service == SHARDED_SERVICE else 1
    return state, Snapshot(service, shard, of, layout, 0, order, landmark, dict(file.decisions), data)
