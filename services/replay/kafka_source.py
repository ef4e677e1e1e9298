"""A log that lies on Kafka: `kafka[s]://HOST:PORT[,HOST:PORT]/CELL`, read as far as it goes when one begins to read.

What the topics hold comes out as one sequence of messages, every decision before the closing that may name it.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from heapq import heappop, heappush

from largesse.archive.manifest import Place
from largesse.beginning import LogTrimmed, trimmed_text
from largesse.bus.kafka.cluster import cluster_of
from largesse.bus.open import BusUrlWrong, open_bus
from largesse.bus.port import Bus, BusError, Fetched, Message
from largesse.log.answers import fits, name_of
from largesse.log.codec import Undecodable, decode, heading, unwrap
from largesse.log.fencing import LogOrder, advance, read_piece
from schemas.policy import SHARDS_MAX
from schemas.topics import DECISIONS, LOG, SHARDED

CELL = "default"
ROUTER = ".router"
"""In the place of a cell, it names the router's log (router_source.py)."""
_CLOSED, _ABANDONED = b'"content":{"type":"RoundClosed"', b'"content":{"type":"RoundAbandoned"'
_PIECE = b',"piece":'
_WAIT_MS = 30_000
_FETCHED_MOST = 500
_LATER_MOST = 100
_LISTED_MOST = 20
_NO_LAST = 1 << 62


class CellUnknown(Exception):
    """There is no log of that cell: says which there are."""


@dataclass(frozen=True, slots=True)
class CellTopics:
    """Where a log lies. `bus`: the URL of the cluster; `topic`: of the router's log another one than of cells."""

    bus: str
    cell: str
    partition: int
    topic: str = LOG


def place_of(url: str) -> CellTopics:
    """The place that `kafka[s]://HOST:PORT/CELL` names; without a cell: `default`. Raises CellUnknown, BusUrlWrong,
    BusError.
    """
    scheme, _, rest = url.partition("://")
    brokers, _, cell = rest.partition("/")
    bus, cell = f"{scheme}://{brokers}", cell.rstrip("/") or CELL
    if "/" in cell:
        raise BusUrlWrong(f"{url!r} is no log: write kafka[s]://HOST:PORT/CELL")
    if cell == ROUTER:
        raise CellUnknown(f"{url} is the router's log, which has no rounds: tail, replay and `cell routes` read it")
    with asyncio.Runner() as runner:
        found = runner.run(_cells(bus))
    if cell not in found:
        there = f"there are {', '.join(sorted(found)[:_LISTED_MOST])}" if found else "there is none"
        raise CellUnknown(f"{bus}: no log of cell {cell!r}; {there}")
    return CellTopics(bus, cell, found[cell])


async def _cells(url: str) -> dict[str, int]:
    """The cells whose logs lie on a cluster, each with its partition."""
    # Only who uses Kafka needs its client installed.
    from largesse.bus.kafka.topics_admin import partitions_now

    cells: dict[str, int] = {}
    bus = open_bus(url, client_id="largesse-replay")
    try:
        for partition in range(await partitions_now(cluster_of(url), LOG)):
            cell = await _cell_in(bus, partition)
            if cell is not None:
                cells.setdefault(cell, partition)
    finally:
        await bus.close()
    return cells


async def _cell_in(bus: Bus, partition: int) -> str | None:
    """The cell whose log lies in a partition: the first record of a log is a claim, and names it."""
    position, end = await bus.bounds(LOG, partition)
    order, is_trimmed = LogOrder(), position > 0
    while position < end:
        fetched = await bus.fetch(LOG, partition, position, wait_ms=_WAIT_MS, most=_FETCHED_MOST)
        for message in fetched:
            if is_trimmed:
                # What begins in the middle may have no claim for long: the last that any writer said has to do.
                with suppress(Undecodable):
                    return decode(unwrap(message.value)[1]).cell
                continue
            accepted = advance(order, message.offset, message.value)
            if accepted is not None:
                return accepted.record.cell
        position = fetched.position
    return None


def log_messages(place: CellTopics) -> Iterator[Message]:
    """The messages of a log that begins with its first record. Raises LogTrimmed, BusUrlWrong, BusError."""
    yield from topic_messages(place, place.topic, whole=True)


def topic_messages(place: CellTopics, topic: str, *, whole: bool = False) -> Iterator[Message]:
    """The messages of one of the cell's topics. `whole`: from its first one on. Raises LogTrimmed, BusUrlWrong,
    BusError.
    """
    with asyncio.Runner() as runner:
        bus = open_bus(place.bus, client_id="largesse-replay")
        try:
            found = _Topic(runner, bus, topic, place.partition)
            if whole:
                found.check_whole()
            yield from found.rest()
        finally:
            runner.run(bus.close())


def first_offset(place: CellTopics) -> int:
    """Where the log begins. Raises BusUrlWrong, BusError."""
    with asyncio.Runner() as runner:
        bus = open_bus(place.bus, client_id="largesse-replay")
        try:
            return runner.run(bus.bounds(LOG, place.partition))[0]
        finally:
            runner.run(bus.close())


def trim(place: CellTopics, needed: dict[tuple[str, int], int]) -> str:
    """Has the brokers delete what lies before these offsets; says what came of it. Raises BusUrlWrong, BusError."""
    from largesse.bus.kafka.trimming import delete_before

    with asyncio.Runner() as runner:
        firsts = runner.run(delete_before(cluster_of(place.bus), needed))
    return f"the log begins at offset {firsts.get((LOG, place.partition), 0)}"


def follow_log(place: CellTopics, at_end: Callable[[], None]) -> Iterator[Message]:
    """The messages of the log, and then without end what comes. `at_end` is called each time that all has been read; it
    waits for a while, and may raise to end this. Raises as log_messages.
    """
    with asyncio.Runner() as runner:
        bus = open_bus(place.bus, client_id="largesse-replay")
        try:
            topic = _Topic(runner, bus, place.topic, place.partition)
            topic.check_whole()
            while True:
                yield from topic.rest()
                at_end()
                topic.look_on()
        finally:
            runner.run(bus.close())


def messages(
    place: CellTopics, *, whole: bool = False, firsts: dict[tuple[str, int], int] | None = None
) -> Iterator[Message]:
    """The messages of the log and, before each that ends a round, those that may answer it; at the end what is left of
    decisions. `whole`: only if the log begins with its first record. `firsts`: where a topic is read from, by its name
    and partition, if not from its start. Raises as log_messages.
    """
    firsts = firsts or {}
    with asyncio.Runner() as runner:
        bus = open_bus(place.bus, client_id="largesse-replay")
        try:
            # The log's end is taken first: what it names was there before it.
            log = _Topic(runner, bus, LOG, place.partition, firsts.get((LOG, place.partition), 0))
            if whole:
                log.check_whole()
            topics = [
                _Topic(runner, bus, topic, number, firsts.get((topic, number), 0))
                for topic in DECISIONS
                for number in _numbers(topic, place)
            ]
            last = log.last_seq()
            for message in log.rest():
                ended = _seq_of_end(message)
                if ended is not None:
                    for topic in topics:
                        yield from topic.up_to(ended, last)
                yield message
            for topic in topics:
                yield from topic.rest()
        finally:
            runner.run(bus.close())


def behind(
    place: CellTopics, since: Place | None, at_end: Callable[[], None] | None, told: Callable[[dict[str, int]], None]
) -> Iterator[Message]:
    """The same from the message on that `since` names, if it does, and with `at_end` without end what comes, as
    `follow_log`. `told` hears before each message that ends a round from where a reader of decisions finds those of
    later rounds: "topic/partition" -> position.
    """
    begins = {} if since is None else since.decisions
    with asyncio.Runner() as runner:
        bus = open_bus(place.bus, client_id="largesse-replay")
        try:
            # The log's end is taken first: what it names was there before it.
            log = _Topic(runner, bus, LOG, place.partition, 0 if since is None else since.offset)
            topics = [
                _Topic(runner, bus, topic, number, begins.get(f"{topic}/{number}", 0))
                for topic in DECISIONS
                for number in _numbers(topic, place)
            ]
            while True:
                for message in log.rest():
                    ended = _seq_of_end(message)
                    if ended is not None:
                        for topic in topics:
                            yield from topic.up_to(ended, _NO_LAST)
                        told({topic.name: topic.needed for topic in topics if topic.needed})
                    yield message
                if at_end is None:
                    return
                at_end()
                log.look_on()  # Before the others: what it names was there before it.
                for topic in topics:
                    topic.look_on()
        finally:
            runner.run(bus.close())


def _numbers(topic: str, place: CellTopics) -> range:
    """The partitions of a decision topic that are the cell's."""
    if topic in SHARDED:
        return range(place.partition * SHARDS_MAX, (place.partition + 1) * SHARDS_MAX)
    return range(place.partition, place.partition + 1)


def _seq_of_end(message: Message) -> int | None:
    """The seq of a message that ends a round, or may be a part of such a record; else None."""
    whole = message.value.find(_CLOSED) >= 0 or message.value.find(_ABANDONED) >= 0
    if not whole and message.value.find(_PIECE) < 0:
        return None
    return _seq_in_log(message) or None


def _seq_in_log(message: Message) -> int:
    """The seq that a message of the log says; 0 where it says none."""
    try:
        piece = read_piece(message.value)
        return piece.seq if piece is not None else heading(unwrap(message.value)[1])[0]
    except Undecodable:
        return 0


def _seq_of_answer(message: Message) -> int:
    """The seq of the opening that a decision names; 0 where it names none: the document is not used."""
    try:
        piece = read_piece(message.value)
        seq, id_ = (piece.seq, piece.id) if piece is not None else heading(unwrap(message.value)[1])
        fits(name_of(id_), message, seq)
    except Undecodable:
        return 0
    return seq


class _Topic:
    """One partition, from its start, or where one begins in it, to where it ends now."""

    def __init__(self, runner: asyncio.Runner, bus: Bus, topic: str, partition: int, begin: int = 0) -> None:
        self.name = f"{topic}/{partition}"
        self._runner, self._bus, self._topic, self._partition = runner, bus, topic, partition
        self._first, self._end = runner.run(bus.bounds(topic, partition))
        self._at = self._taken = max(self._first, min(begin, self._end))
        self._messages = self._read_on()
        self._later: list[tuple[int, int, Message]] = []

    def check_whole(self) -> None:
        """Raises LogTrimmed where it does not begin with its first message."""
        if self._first:
            raise LogTrimmed(trimmed_text(f"{self._topic} partition {self._partition}", self._first))

    @property
    def needed(self) -> int:
        """The offset from which a reader that starts again finds all that has not been given out."""
        return min((offset for _, offset, _ in self._later), default=self._taken)

    def rest(self) -> Iterator[Message]:
        """All messages that are left."""
        yield from (message for _, _, message in sorted(self._later))
        self._later = []
        while (message := self._next()) is not None:
            yield message

    def look_on(self) -> None:
        """From here on there is also what came since this was opened, or was called last."""
        self._end = self._runner.run(self._bus.bounds(self._topic, self._partition))[1]

    def up_to(self, seq: int, last: int) -> Iterator[Message]:
        """Decisions that answer openings before `seq`. An opening is answered by the time its round ends, or never, so
        behind _LATER_MOST later ones none is looked for: so many may be to openings that the log does not have. Those
        beyond `last`, the log's last seq, are left out.
        """
        while self._later and self._later[0][0] <= seq:
            yield heappop(self._later)[2]
        while len(self._later) < _LATER_MOST and (message := self._next()) is not None:
            answers = _seq_of_answer(message)
            if answers <= seq:
                yield message
            elif answers <= last:
                heappush(self._later, (answers, message.offset, message))

    def last_seq(self) -> int:
        """The greatest seq among the last messages of the log; it may be that of a void one."""
        at = max(self._first, self._end - _FETCHED_MOST)
        return max((_seq_in_log(message) for message in self._read(at)), default=0)

    def _next(self) -> Message | None:
        message = next(self._messages, None)
        if message is None and self._at < self._end:
            self._messages = self._read_on()  # It has ended where the end was then.
            message = next(self._messages, None)
        if message is not None:
            self._taken = message.offset + 1
        return message

    def _read_on(self) -> Iterator[Message]:
        while self._at < self._end:
            found = self._fetch(self._at)
            self._at = found.position
            yield from found

    def _read(self, at: int) -> Iterator[Message]:
        while at < self._end:
            found = self._fetch(at)
            yield from found
            at = found.position

    def _fetch(self, at: int) -> Fetched:
        found = self._runner.run(
            self._bus.fetch(self._topic, self._partition, at, wait_ms=_WAIT_MS, most=_FETCHED_MOST)
        )
        if found.position == at:
            where = f"{self._topic} partition {self._partition}"
            raise BusError(f"{where}: offset {at} exists, but does not come")
        return found
