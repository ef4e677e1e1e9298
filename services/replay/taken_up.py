"""A log that is read from a checkpoint on: the states of all cores there, and what is left of the records before."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from largesse.archive.state_file import StateFile, StateFileDamaged, get, seqs_in
from largesse.archive.store import Store, StoreError, StoreUrlWrong, open_store
from largesse.beginning import PAST
from largesse.log.snapshots import SnapshotRefused, load
from services.replay import past
from services.replay.refold import Refold
from services.replay.source import Source
from services.replay.start import Start, StartRefused


def start_of(file: StateFile, *, told: bool = True) -> Start:
    """What a log begins with behind a checkpoint; `told`: with what records said before. Raises StartRefused."""
    order = file.order
    place = file.cell, order.seq, order.round, order.time
    start = Start(*place, file.rules, bytes.fromhex(order.prefix), file.shards, file.version, dict(file.states))
    if not told:
        return start
    layout, data = file.states.get((PAST, 0), (0, b""))
    if layout != past.LAYOUT:
        raise StartRefused(f"the checkpoint behind record {order.seq:,} does not have what records said before it")
    try:
        said = load(past.State, data)
    except SnapshotRefused as refused:
        raise StartRefused(f"the checkpoint behind record {order.seq:,}: {refused}") from None
    start.before, start.heard_ms, start.over = past.records_of(said), past.heard_ms(said), said.over
    return start


def is_of_this_version(file: StateFile, *, told: bool = True) -> bool:
    """Whether this version reads all states of a checkpoint that a fold goes on from."""
    needed = [(each.core.NAME, each.core.LAYOUT) for each in Refold(1).all()]
    if told:
        needed.append((PAST, past.LAYOUT))
    return all(file.states.get((name, 0), (0, b""))[0] == layout for name, layout in needed)


def files_in(store: Store) -> Iterator[StateFile]:
    """The checkpoints of a store, the newest first; damaged ones are passed over. Raises StoreError."""
    for seq in reversed(seqs_in(store)):
        try:
            yield get(store, seq)[0]
        except StateFileDamaged:
            continue


def taken_up(source: Source, file: StateFile, *, told: bool = True) -> Source:
    """A log from a checkpoint on, whose states this version reads. Reading it raises NotItsLog. Raises StartRefused."""
    assert source.behind is not None
    read, shards = source.behind(file), max(1, file.shards)
    return replace(source, read=read, start=start_of(file, told=told), shards_max=lambda: shards)


def newest_before(url: str, seq: int | None, time: int | None) -> StateFile | None:
    """The newest checkpoint in a store up to a record and a log time, whose states this version reads; None where there
    is none at hand.
    """
    with suppress(StoreUrlWrong, StoreError):
        for file in files_in(open_store(url)):
            is_behind = (seq is not None and file.order.seq > seq) or (time is not None and file.order.time > time)
            if not is_behind and is_of_this_version(file):
                return file
    return None
