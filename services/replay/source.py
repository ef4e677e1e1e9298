"""Where a recorded log comes from: an embedded data folder (also while a process holds it), an exported file, a bundle,
an archive, or Kafka.

Every source gives the same: the records that count, in order, and with each closing the decision records of its round
as far as they were recorded. What is damaged is refused by the format that reads it (JournalDamaged, ExportDamaged,
ArchiveDamaged).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from largesse.archive.manifest import ArchiveDamaged, NoArchive, Place, read_all
from largesse.archive.manifest import Noted as ArchivedSegment
from largesse.archive.reader import read_archive
from largesse.archive.state_file import StateFile
from largesse.archive.store import Store, StoreError, StoreUrlWrong, open_store
from largesse.beginning import LogTrimmed, trimmed_text
from largesse.bus.file.journal import has_journal
from largesse.bus.file.reading import follow_journal, read_behind, read_journal
from largesse.bus.file.trimming import read_trimmed
from largesse.bus.kafka.cluster import is_cluster
from largesse.bus.open import BusUrlWrong
from largesse.bus.port import BusError, Message
from largesse.ids import PREFIX_OF_NOTHING, chain, content_hash, decision_id
from largesse.log.answers import Shelf, fits, name_of
from largesse.log.codec import Undecodable, decode, heading, unwrap
from largesse.log.decisions import FORECASTS, DecisionGap
from largesse.log.export import ExportDamaged, Exported, ExportWriter, is_export, read_export
from largesse.log.fencing import Accepted, LogOrder, advance, read_piece
from schemas import DecisionHash, Header, Record, RoundAbandoned, RoundClosed, RoundOpened, SequencerClaimed
from schemas.policy import SHARDS_MAX
from schemas.topics import DECISIONS, LOG, SHARDED
from services.replay import kafka_source
from services.replay.bundle import is_bundle, read_bundle, start_of
from services.replay.endings import Last, last_in_archive, last_in_export, last_in_folder
from services.replay.kafka_source import CellUnknown
from services.replay.start import Start

Hear = Callable[[str, bytes], None]
"""Is given name and content of every decision document, also of one that came second or too late and is otherwise not
read."""

Behind = Callable[[Place | None, Callable[[], None] | None, Callable[[dict[str, int]], None]], Iterator[Message]]
"""Is given a place, None for the beginning; a function as `follow` is, to go on without end, else None; and what hears
before the end of each round where decisions of later rounds begin."""

ARCHIVE = "archive:"
"""Before the store of an archive, where a log is named."""

_OPENING = b'"content":{"type":"RoundOpened"'


class NoLog(Exception):
    """There is no log where one was asked for: says what was looked for."""


class NotItsLog(Exception):
    """A checkpoint that is not of a log, or of a part that it has no more: says which."""


@dataclass(slots=True)
class Step:
    """One record of the log. `decisions`: what decision topics held then of rounds that are not over, by record id."""

    accepted: Accepted
    decisions: dict[str, bytes] = field(default_factory=dict)

    def decision(self, opening: str, named: DecisionHash) -> bytes | None:
        """The recorded content of an answer that a closing names, or None."""
        return self.decisions.get(decision_id(named.topic, named.shard, named.of, opening))


def deaf(_name: str, _content: bytes) -> None:
    """Hears nothing."""


@dataclass(slots=True)
class Source:
    """A recorded log. `read` gives its steps from its start, as often as it is asked, and tells of every document of
    the decision topics: of those before a record of the log before its step, of those after the last one at the end.
    `follow` gives its records and then without end what is appended; it calls what it is given each time that all has
    been read, which waits. None: this log does not grow. `last`: its last records, as many as asked for or more, read
    from its end (endings.py); None: only a whole reading shows them.
    `start`: what there is where it begins; None: nothing, it begins with the log's first record. `messages`: what lies
    in the topics of its `partition`, where it is that of a bus; `messages_behind`: the same from a place on.
    `behind`: how it is read from the place of a checkpoint on, which raises NotItsLog where that is none of this log;
    None: it cannot be.
    """

    name: str
    read: Callable[[Hear], Iterator[Step]]
    shards_max: Callable[[], int]
    start: Start | None = None
    follow: Callable[[Callable[[], None]], Iterator[Accepted]] | None = None
    last: Callable[[int], Last | None] = lambda _: None
    messages: Callable[[], Iterator[Message]] | None = None
    messages_behind: Behind | None = None
    partition: int = 0
    behind: Callable[[StateFile], Callable[[Hear], Iterator[Step]]] | None = None

    def steps(self, hear: Hear = deaf) -> Iterator[Step]:
        """The log from its start."""
        return self.read(hear)


def open_source(location: Path | str, partition: int = 0) -> Source:
    """The log at `location`: a folder of the embedded bus, an exported file, a bundle, kafka[s]://HOST:PORT/CELL, or
    archive:STORE. Raises NoLog, and of a bundle ExportDamaged.
    """
    if str(location).startswith(ARCHIVE):
        return _in_archive(str(location).removeprefix(ARCHIVE))
    if is_cluster(str(location)):
        return _on_kafka(str(location))
    path = Path(location)
    if path.is_dir():
        if not has_journal(path):
            raise NoLog(f"{path}: there is no journal in this folder")
        return Source(
            str(path),
            lambda hear: steps_of(_whole(path, partition), partition, hear),
            lambda: _most_shards(read_journal(path), partition),
            follow=lambda at_end: records_of(_followed(path, partition, at_end), partition),
            last=lambda messages: last_in_folder(path, partition, messages),
            messages=lambda: read_journal(path),
            messages_behind=lambda since, at_end, _: read_behind(
                path, (LOG, partition), 0 if since is None else since.offset, at_end
            ),
            partition=partition,
            behind=lambda file: lambda hear: steps_behind(read_journal(path), partition, file, str(path), hear),
        )
    if not path.exists():
        raise NoLog(f"{path}: there is no such file or folder")
    if is_bundle(path):
        start, shards = start_of(path)
        return Source(str(path), lambda hear: _exported(path, read_bundle(path), hear), lambda: shards, start)
    if not is_export(path):
        raise NoLog(f"{path}: is neither a data folder, an exported log nor a bundle")
    return Source(
        str(path),
        lambda hear: _exported(path, read_export(path), hear),
        lambda: _exported_shards(path),
        last=lambda records: last_in_export(path, records),
        behind=lambda file: lambda hear: _exported(path, _rest(read_export(path), file, str(path)), hear),
    )


def _whole(path: Path, partition: int) -> Iterator[Message]:
    """A journal whose log begins with its first record. Raises LogTrimmed, and as read_journal does."""
    _check_whole(path, partition)
    yield from read_journal(path)


def _followed(path: Path, partition: int, at_end: Callable[[], None]) -> Iterator[Message]:
    """The same, followed. Raises LogTrimmed, and as follow_journal does."""
    _check_whole(path, partition)
    yield from follow_journal(path, at_end)


def _check_whole(path: Path, partition: int) -> None:
    if first := read_trimmed(path).firsts.get((LOG, partition), 0):
        raise LogTrimmed(trimmed_text(str(path), first))


def write_export(source: Source, path: Path | str) -> int:
    """Writes a source's log, which has to begin with its first record, as an export; returns its number of records.

    Leaves out decision records of rounds that are not closed, and what did not win. Raises DecisionGap, OSError, and
    what reading the source raises; the file is whole only when this returns.
    """
    with ExportWriter(path) as writer:
        for step in source.steps():
            write_step(writer, step)
    return writer.lines


def write_step(writer: Callable[[str, Header | None, bytes], None], step: Step) -> None:
    """Hands one record of a source on as an export has it: with a closing, first what it names. Raises DecisionGap."""
    record = step.accepted.record
    if isinstance(record.body, RoundClosed):
        for topic, content in winning(step, record):
            writer(topic, None, content)
    writer(LOG, step.accepted.header, step.accepted.content)


def winning(step: Step, closing: Record) -> Iterator[tuple[str, bytes]]:
    """What a closing names, then the forecasts of its round, which the log has as facts of their own."""
    for named in closing.body.hashes:
        content = step.decision(closing.cause, named)
        if content is None or content_hash(content) != named.hash:
            raise DecisionGap(f"{decision_id(named.topic, named.shard, named.of, closing.cause)} is not recorded")
        yield named.topic, content
    for topic in FORECASTS:
        content = step.decisions.get(decision_id(topic, 0, 1, closing.cause))
        if content is not None:
            yield topic, content


def records_of(messages: Iterable[Message], partition: int = 0, topic: str = LOG) -> Iterator[Accepted]:
    """The records of the log alone that messages come to. `topic`: of the router's log another one."""
    order = LogOrder()
    for message in messages:
        if message.topic == topic and message.partition == partition:
            accepted = advance(order, message.offset, message.value)
            if accepted is not None and not isinstance(accepted.record.body, SequencerClaimed):
                yield accepted


def steps_of(
    messages: Iterable[Message],
    partition: int = 0,
    hear: Hear = deaf,
    order: LogOrder | None = None,
    forgotten: int = 0,
) -> Iterator[Step]:
    """The steps that messages of several topics come to, each topic in its order, decisions before their closing.
    `order`: where a log stands that begins behind its first record; rounds up to `forgotten` are over there.
    """
    order = order if order is not None else LogOrder()
    documents = _Documents(hear)
    shelves: dict[tuple[str, int], Shelf] = {}
    opened = forgotten
    for message in messages:
        if message.topic == LOG and message.partition == partition:
            accepted = advance(order, message.offset, message.value)
            if accepted is None or isinstance(accepted.record.body, SequencerClaimed):
                continue
            record = accepted.record
            if isinstance(record.body, RoundOpened):
                opened = record.seq
            over = isinstance(record.body, RoundClosed | RoundAbandoned)
            yield Step(accepted, _held(shelves) if over else {})
            if over:
                forgotten = opened
                for shelf in shelves.values():
                    shelf.forget(forgotten)
        elif _is_decision(message, partition):
            shelf = shelves.setdefault((message.topic, message.partition), Shelf(0))
            # What is no answer to anybody is not part of the recorded decisions.
            with suppress(Undecodable):
                shelf.take(message, forgotten)
            with suppress(Undecodable):
                documents.take(message)


def steps_behind(
    messages: Iterable[Message], partition: int, file: StateFile, name: str, hear: Hear = deaf
) -> Iterator[Step]:
    """The steps behind the place of a checkpoint, of messages that begin before it. Raises NotItsLog."""
    order = deepcopy(file.order)
    return steps_of(_messages_behind(messages, partition, file, name), partition, hear, order, order.seq)


def _messages_behind(messages: Iterable[Message], partition: int, file: StateFile, name: str) -> Iterator[Message]:
    """Without those of the log before a place, and those of decisions that nobody behind it reads."""
    place, is_its = file.order.offset, False
    for message in messages:
        if message.topic != LOG:
            if message.offset >= file.decisions.get(f"{message.topic}/{message.partition}", 0):
                yield message
        elif message.partition == partition and message.offset >= place - 1:
            if is_its:
                yield message
            elif message.offset != place - 1 or sha256(message.value).hexdigest() != file.landmark:
                break
            else:
                is_its = True
    if not is_its:
        raise NotItsLog(f"the checkpoint behind record {file.order.seq:,} is of another log than {name}")


def _rest(
    items: Iterable[Exported], file: StateFile, name: str, prefix: bytes = PREFIX_OF_NOTHING
) -> Iterator[Exported]:
    """Of the records of a log, those behind a checkpoint. `prefix`: the chain before them. Raises NotItsLog."""
    seq, is_its = 0, file.order.seq == 0
    for item in items:
        if is_its:
            yield item
        elif item.topic == LOG:
            prefix = chain(prefix, item.content)
            with suppress(Undecodable):
                seq = heading(item.content)[0]
            if seq >= file.order.seq:
                if seq > file.order.seq or prefix.hex() != file.order.prefix:
                    break
                is_its = True
    if not is_its:
        raise NotItsLog(f"the checkpoint behind record {file.order.seq:,} is of another log than {name}")


class _Documents:
    """All decision documents as they were written, each put together from what one instance wrote of it."""

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self._parts: dict[tuple[str, int, str, str], dict[int, str]] = {}

    def take(self, message: Message) -> None:
        """Raises Undecodable where it names no round. What does, but is no answer, is passed on: a replay finds it."""
        piece = read_piece(message.value)
        if piece is None:
            content = unwrap(message.value)[1]
            seq, id_ = heading(content)
            fits(name_of(id_), message, seq)
            self._hear(id_, content)
            return
        fits(name_of(piece.id), message, piece.seq)
        key = (message.topic, message.partition, piece.id, piece.header.token)
        parts = self._parts.setdefault(key, {})
        if piece.header.part in parts:
            parts.clear()  # It starts over.
        parts[piece.header.part] = piece.text
        if len(parts) == piece.header.of:
            del self._parts[key]
            self._hear(piece.id, "".join(text for _, text in sorted(parts.items())).encode())


def _is_decision(message: Message, partition: int) -> bool:
    if message.topic not in DECISIONS:
        return False
    place = message.partition // SHARDS_MAX if message.topic in SHARDED else message.partition
    return place == partition


def _held(shelves: dict[tuple[str, int], Shelf]) -> dict[str, bytes]:
    return {id_: found.content for shelf in shelves.values() for id_, found in shelf.found.items()}


# ---------------------------------------------------------------- an embedded data folder, or Kafka
def _on_kafka(url: str) -> Source:
    try:
        place = kafka_source.place_of(url)
    except (CellUnknown, BusUrlWrong, BusError) as error:
        raise NoLog(str(error)) from error
    partition = place.partition
    return Source(
        url,
        lambda hear: steps_of(kafka_source.messages(place, whole=True), partition, hear),
        lambda: _most_shards(kafka_source.topic_messages(place, LOG), partition),
        follow=lambda at_end: records_of(kafka_source.follow_log(place, at_end), partition),
        messages=lambda: kafka_source.messages(place),
        messages_behind=lambda since, at_end, told: kafka_source.behind(place, since, at_end, told),
        partition=partition,
        behind=lambda file: (
            lambda hear: steps_behind(
                kafka_source.messages(place, firsts=file.needed(partition)), partition, file, url, hear
            )
        ),
    )


def _most_shards(messages: Iterable[Message], partition: int) -> int:
    """Void openings count too, up to SHARDS_MAX: a state too many costs memory, and nothing else."""
    most = 1
    for message in messages:
        if message.topic == LOG and message.partition == partition and _OPENING in message.value:
            with suppress(Undecodable):
                most = max(most, decode(unwrap(message.value)[1]).body.shards)
    return min(most, SHARDS_MAX)


# ---------------------------------------------------------------- an archive
def _in_archive(url: str) -> Source:
    try:
        store = open_store(url)
        manifests = read_all(store)
    except (StoreUrlWrong, StoreError, NoArchive, ArchiveDamaged) as error:
        raise NoLog(str(error)) from None
    return Source(
        f"{ARCHIVE}{store.url}",
        lambda hear: _exported(store.url, read_archive(store, manifests), hear),
        lambda: max(each.manifest.shards for each in manifests),
        last=lambda records: last_in_archive(store, manifests, records),
        behind=lambda file: lambda hear: _archived_behind(store, manifests, file, hear),
    )


def _archived_behind(store: Store, manifests: list[ArchivedSegment], file: StateFile, hear: Hear) -> Iterator[Step]:
    """What an archive has behind a checkpoint; segments before it are not read. Raises NotItsLog."""
    name, seq = f"{ARCHIVE}{store.url}", file.order.seq
    rest = [each for each in manifests if each.manifest.end.seq >= seq]
    prefix = bytes.fromhex(rest[0].manifest.start.prefix) if rest else PREFIX_OF_NOTHING
    return _exported(store.url, _rest(read_archive(store, rest), file, name, prefix), hear)


# ---------------------------------------------------------------- an exported file
def _exported(path: Path | str, items: Iterator[Exported], hear: Hear) -> Iterator[Step]:
    """The steps of an exported file. Raises ExportDamaged."""
    decisions: dict[str, bytes] = {}
    for item in items:
        try:
            if item.topic != LOG:
                name = heading(item.content)[1]
                decisions[name] = item.content
                hear(name, item.content)
                continue
            record = decode(item.content)
        except Undecodable as error:
            raise ExportDamaged(path, item.line, f"it holds no record: {error}") from error
        yield Step(Accepted(record, item.header, item.content, item.line), decisions)
        if isinstance(record.body, RoundClosed | RoundAbandoned):
            decisions = {}


def _exported_shards(path: Path) -> int:
    openings = (item for item in read_export(path) if item.content.startswith(b'{"type":"RoundOpened"'))
    return max((decode(item.content).body.shards for item in openings), default=1)
