"""Logs from which checkpoints are made, and that are trimmed behind them: a folder of the embedded bus, also while a
process holds it, or a cell's topics on Kafka.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from largesse.archive.manifest import ArchiveDamaged, NoArchive, read_all
from largesse.archive.manifest import Noted as ArchivedSegment
from largesse.archive.reader import check_archive, read_archive
from largesse.archive.state_file import StateFile, StateFileDamaged, get, seqs_in
from largesse.archive.store import Store
from largesse.bus.file.compacted import messages_in
from largesse.bus.file.lock import DirectoryHeld, DirectoryLock
from largesse.bus.file.packing import LOCK_NAME
from largesse.bus.file.reading import read_journal
from largesse.bus.file.trim import trim
from largesse.bus.file.trimming import ask, read_trimmed
from largesse.bus.kafka.cluster import is_cluster
from largesse.bus.port import Message
from largesse.ids import chain
from largesse.log.codec import Undecodable, heading, unwrap
from largesse.log.fencing import Accepted, advance
from largesse.log.snapshots import Snapshot, whole_ones
from schemas import Checkpoint
from schemas.topics import LOG, SNAPSHOTS
from services.replay import kafka_source

Needed = dict[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class CheckpointLog:
    """A log. `first`: the offset with which it begins. `messages`: what its topics hold, as often as it is asked for,
    from `first` on at the latest. `trim`: lets go of what lies before these offsets, as far as that can be done; says
    what came of it, in words.
    """

    name: str
    partition: int
    first: Callable[[], int]
    messages: Callable[[], Iterator[Message]]
    snapshots: Callable[[], list[Snapshot]]
    trim: Callable[[Needed], str]


def in_folder(path: Path) -> CheckpointLog:
    """The log of a folder of the embedded bus."""
    return CheckpointLog(
        str(path),
        0,
        lambda: read_trimmed(path).firsts.get((LOG, 0), 0),
        lambda: read_journal(path),
        lambda: whole_ones(messages_in(path, SNAPSHOTS, 0)),
        lambda needed: _trim_folder(path, needed),
    )


def open_log(location: str) -> CheckpointLog:
    """The log of a folder, or of kafka[s]://HOST:PORT/CELL. Raises CellUnknown, BusUrlWrong, BusError."""
    if not is_cluster(location):
        return in_folder(Path(location))
    place = kafka_source.place_of(location)
    return CheckpointLog(
        location,
        place.partition,
        lambda: kafka_source.first_offset(place),
        lambda: kafka_source.messages(place),
        lambda: whole_ones(kafka_source.topic_messages(place, SNAPSHOTS)),
        lambda needed: kafka_source.trim(place, needed),
    )


def _trim_folder(path: Path, needed: Needed) -> str:
    before = read_trimmed(path).firsts.get((LOG, 0), 0)
    try:
        lock = DirectoryLock(path)
    except DirectoryHeld as held:
        ask(path, needed)
        return f"asked for: process {held.pid}, which holds the folder, does it when a file of its journal is full"
    try:
        packing = DirectoryLock(path, LOCK_NAME)
        try:
            trimmed = trim(path, needed)
        finally:
            packing.release()
    finally:
        lock.release()
    first = trimmed.firsts.get((LOG, 0), 0)
    if first == before:
        return f"nothing to let go of: the log begins at offset {first} as before (whole packed files go)"
    return f"the log begins at offset {first}, with line {trimmed.line + 1} of its journal"


@dataclass(frozen=True, slots=True)
class Noted:
    """A checkpoint that the log has noted, with the file of its states."""

    file: StateFile
    digest: str
    record: Checkpoint


class StoreOfAnother(Exception):
    """A store that has the checkpoints of another log: says of whose."""


def states_in(store: Store) -> tuple[dict[int, tuple[StateFile, str]], list[str]]:
    """The files of states in a store, by the record behind which they are, with the hash of their bytes; and what is
    wrong with the others. Raises StoreError."""
    files, wrong = dict[int, tuple[StateFile, str]](), list[str]()
    for seq in seqs_in(store):
        try:
            files[seq] = get(store, seq)
        except StateFileDamaged as error:
            wrong.append(str(error))
    return files, wrong


def newest(store: Store, log: CheckpointLog) -> StateFile | None:
    """The newest file of states from which a fold of the log can go on; None: there is none that is of use. Raises
    StoreOfAnother, StoreError, and what reading the log does.
    """
    first = log.first()
    for seq in reversed(seqs_in(store)):
        try:
            file, _ = get(store, seq)
        except StateFileDamaged:
            continue
        if file.order.offset <= first:
            return None
        if not _is_of(file, log):
            last = f"the last behind record {seq:,} of cell {file.cell}"
            raise StoreOfAnother(
                f"{store.url} has checkpoints of another log than {log.name}, {last}: each log has a store of its own"
            )
        return file
    return None


def _is_of(file: StateFile, log: CheckpointLog) -> bool:
    """Whether a log has the message before the place that a file is of."""
    before = file.order.offset - 1
    for message in log.messages():
        if message.topic == LOG and message.partition == log.partition and message.offset >= before:
            return message.offset == before and sha256(message.value).hexdigest() == file.landmark
    return False


def noted(store: Store, log: CheckpointLog) -> list[Noted]:
    """The checkpoints that store and log agree about, in order. What is damaged, or of another log, is none.
    Raises StoreError, and what reading the log does.
    """
    files, _ = states_in(store)
    first = log.first()
    start = min((file for file, _ in files.values() if file.order.offset > first), key=_offset, default=None)
    found = []
    for accepted in _checkpoints(log.messages(), log.partition, start) if start is not None else ():
        record: Checkpoint = accepted.record.body
        file, digest = files.get(record.closing, (start, ""))
        if digest == record.file and file is not None and file.order.prefix == record.prefix and _agrees(file, record):
            found.append(Noted(file, digest, record))
    return found


def why_not_archived(store: Store, log: CheckpointLog, behind: StateFile) -> str:
    """Why the archive in a store does not stand for the records of a log up to a checkpoint, and what helps; empty
    where it does. Every segment with one of those that the log still has is read and verified. Raises StoreError, and
    what reading the log does.
    """
    missing = "run `largesse archive run` before, or let go of it for good with --unarchived"
    seq, first = behind.order.seq, _first_seq(log)
    try:
        manifests = read_all(store)
    except NoArchive as error:
        return f"{error}: {missing}"
    except ArchiveDamaged as error:
        return f"{error}: {_AGAIN}"
    last = manifests[-1].manifest
    if last.cell != behind.cell or last.end.seq < seq:
        has = f"{store.url} has cell {last.cell} up to record {last.end.seq:,}"
        return f"{has}, and {seq:,} are needed of {behind.cell}: {missing}"
    needed = [each for each in manifests if each.manifest.start.seq < seq and each.manifest.end.seq >= first]
    if wrong := check_archive(store, needed, lambda _: None):
        return f"{wrong[0]}: {_AGAIN}"
    return "" if _prefix_at(store, needed[-1], seq) == behind.order.prefix else f"{store.url} is of another log"


_AGAIN = "the log still has these records, so put the file back from a copy, or archive the log into another store"


def _first_seq(log: CheckpointLog) -> int:
    """What the first message of a log says that has one."""
    for message in log.messages():
        if message.topic == LOG and message.partition == log.partition:
            with suppress(Undecodable):
                if seq := heading(unwrap(message.value)[1])[0]:
                    return seq
    return 0


def last_seq(log: CheckpointLog) -> int:
    """The greatest seq that a message of a log says. Raises what reading it does."""
    last = 0
    for message in log.messages():
        if message.topic == LOG and message.partition == log.partition:
            with suppress(Undecodable):
                last = max(last, heading(unwrap(message.value)[1])[0])
    return last


def _prefix_at(store: Store, noted: ArchivedSegment, seq: int) -> str:
    """The hash chain up to a record of a segment."""
    prefix = bytes.fromhex(noted.manifest.start.prefix)
    for item in read_archive(store, [noted]):
        if item.topic == LOG:
            prefix = chain(prefix, item.content)
            if heading(item.content)[0] == seq:
                return prefix.hex()
    return ""


def _offset(file: StateFile) -> int:
    return file.order.offset


def _agrees(file: StateFile, record: Checkpoint) -> bool:
    return file.sums() == [(each.service, each.shard, each.layout, each.sha256) for each in record.states]


def _checkpoints(messages: Iterable[Message], partition: int, start: StateFile | None) -> Iterator[Accepted]:
    """The records that note checkpoints, behind a place of the log."""
    assert start is not None
    order = deepcopy(start.order)
    for message in messages:
        if message.topic == LOG and message.partition == partition and message.offset >= order.offset:
            accepted = advance(order, message.offset, message.value)
            if accepted is not None and isinstance(accepted.record.body, Checkpoint):
                yield accepted
