"""Decision topics: a core's answer to an opening on its way out, and the winning answers on their way in.

An answer is named by the round that it answers, so whoever comes second says the same again, and the first in the
partition wins. An answer to an opening that the log does not have is never asked for. Parts are taken by (name, i), the
first of each.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from largesse.bus import Bus, Message, Outgoing
from largesse.codec import Undecodable, decode, encode, heading, record_of, unwrap
from largesse.ids import content_hash, decision_id
from largesse.order import Piece, read_piece, split
from largesse.telemetry import logger
from schemas import DecisionHash, Header, Record
from schemas.edge_config import SHARDS_MAX

SHARDED = ("asks",)
"""Topics that several shards of one service write; all others have shard 0 of 1."""

FORECASTS = ("releases", "plans")
"""Topics that may stay silent in a round; what wins there enters the log as a fact of its own."""

FETCHED_MOST = 200

_Place = tuple[str, int]


class DecisionGap(Exception):
    """A decision record that a closing names is missing, or is not the one it names. Says which one, and where."""


class Wanted(NamedTuple):
    """An answer that somebody waits for."""

    topic: str
    shard: int
    of: int


@dataclass(slots=True)
class Decision:
    """A winning decision record, its content's bytes, and the offset of its last message."""

    record: Record
    content: bytes
    offset: int


def wanted_of(topics: Iterable[str], shards: int) -> list[Wanted]:
    """All answers of these topics to a round with so many altruism shards, in shard order."""
    return [
        Wanted(topic, shard, of)
        for topic in topics
        for of in (shards if topic in SHARDED else 1,)
        for shard in range(of)
    ]


def partition_of(topic: str, partition: int, shard: int) -> int:
    """Where a cell's answers lie in a decision topic: sharded topics have a partition for every shard of every cell."""
    return partition * SHARDS_MAX + shard if topic in SHARDED else partition


def answer(opening: Record, wanted: Wanted, body: Any) -> tuple[Record, bytes]:
    """The decision record that answers an opening, and its content."""
    record = record_of(
        body,
        cell=opening.cell,
        seq=opening.seq,
        round_number=opening.round,
        time=opening.time,
        id_=decision_id(*wanted, opening.id),
        cause=opening.id,
    )
    return record, encode(record)


def messages_of(record: Record, content: bytes, wanted: Wanted, partition: int, author: str) -> list[Outgoing]:
    """What to send, not durably: the closing that names it makes it last."""
    place = partition_of(wanted.topic, partition, wanted.shard)
    messages = split(Header(author), content, id_=record.id, seq=record.seq)
    return [Outgoing(wanted.topic, place, message) for message in messages]


@dataclass(slots=True)
class Found:
    """A whole decision that is not decoded yet; `since`: the offset of its first message."""

    seq: int
    content: bytes
    offset: int
    since: int


@dataclass(slots=True)
class _Pieces:
    seq: int
    since: int
    texts: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class Shelf:
    """The whole decisions of one partition, the first of each name, until they are forgotten. `position` comes next."""

    position: int
    found: dict[str, Found] = field(default_factory=dict)
    pieces: dict[str, _Pieces] = field(default_factory=dict)

    def take(self, message: Message, forgotten: int) -> str | None:
        """The id of the decision that this message makes whole, or None. Raises Undecodable."""
        self.position = message.offset + 1
        piece = read_piece(message.value)
        if piece is not None:
            return self._take_piece(piece, message.offset) if self._is_new(piece.seq, piece.id, forgotten) else None
        _, content = unwrap(message.value)
        seq, id_ = heading(content)
        if not self._is_new(seq, id_, forgotten):
            return None
        self.found[id_] = Found(seq, content, message.offset, message.offset)
        return id_

    def _take_piece(self, piece: Piece, offset: int) -> str | None:
        kept = self.pieces.setdefault(piece.id, _Pieces(piece.seq, offset))
        kept.texts.setdefault(piece.header.part, piece.text)
        if len(kept.texts) < piece.header.of:
            return None
        content = "".join(text for _, text in sorted(kept.texts.items())).encode()
        self.found[piece.id] = Found(piece.seq, content, offset, kept.since)
        del self.pieces[piece.id]
        return piece.id

    def _is_new(self, seq: int, id_: str, forgotten: int) -> bool:
        return seq > forgotten and id_ not in self.found

    def forget(self, seq: int) -> None:
        """Drops answers to openings up to `seq`."""
        self.found = {id_: found for id_, found in self.found.items() if found.seq > seq}
        self.pieces = {id_: pieces for id_, pieces in self.pieces.items() if pieces.seq > seq}

    @property
    def needed(self) -> int:
        """The offset from which a reader that starts anew finds everything that is kept here."""
        found = (each.since for each in self.found.values())
        pieces = (each.since for each in self.pieces.values())
        return min((*found, *pieces), default=self.position)


class DecisionReader:
    """Follows the decision topics of one cell. `positions`: where a restored reader goes on, as `positions()` told."""

    def __init__(self, bus: Bus, partition: int = 0, positions: dict[str, int] | None = None) -> None:
        self._bus = bus
        self._partition = partition
        self._read: dict[_Place, Shelf] = {}
        self._forgotten = 0
        self._log = logger(cell_partition=partition)
        for place, position in (positions or {}).items():
            topic, _, number = place.rpartition("/")
            self._read[topic, int(number)] = Shelf(position)

    async def gather(self, opening: str, wanted: Iterable[Wanted]) -> list[Decision] | None:
        """The winning answers to an opening (its id) in the order of `wanted`, or None while one is not there yet.

        Reads all that is there, also behind one that is missing, and waits for nothing. Raises PositionGap, BusError.
        """
        all_found = [await self._find(opening, want) for want in wanted]
        there = [found for found in all_found if found is not None]
        if len(there) < len(all_found):
            return None
        return [Decision(decode(found.content), found.content, found.offset) for found in there]

    async def winners(self, closing: Record, hashes: Iterable[DecisionHash], wait_ms: int) -> list[Decision]:
        """The records that a closing names, in the order of `hashes`, each checked. Waits for one at most `wait_ms`.

        Raises DecisionGap: a decision that a closing names was durable before it, so waiting longer would not help.
        """
        return [await self._winner(closing, named, wait_ms) for named in hashes]

    async def _winner(self, closing: Record, named: DecisionHash, wait_ms: int) -> Decision:
        want = Wanted(named.topic, named.shard, named.of)
        found = await self._find(closing.cause, want)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1_000):
                while found is None:
                    await self._bus.wait_any(self.waiting_for([want]), wait_ms)
                    found = await self._find(closing.cause, want)
        where = f"{decision_id(*want, closing.cause)}, which the closing {closing.id} names with hash {named.hash}"
        if found is None:
            raise DecisionGap(f"missing: {where}; {named.topic} was read up to {self.waiting_for([want])}")
        if content_hash(found.content) != named.hash:
            raise DecisionGap(f"another one: {where}; the first in {named.topic} has {content_hash(found.content)}")
        return Decision(decode(found.content), found.content, found.offset)

    async def arrivals(self, topic: str) -> list[Decision]:
        """Decisions of a topic with one shard that came since the last call, each the first of its name."""
        place = (topic, partition_of(topic, self._partition, 0))
        decisions = []
        for id_ in await self._fetch(place):
            found = self._read[place].found[id_]
            decisions.append(Decision(decode(found.content), found.content, found.offset))
        return decisions

    def waiting_for(self, wanted: Iterable[Wanted], opening: str = "") -> dict[_Place, int]:
        """What to hand to `wait_any`: the partitions of these answers and the offsets that come next. Of answers to an
        opening (its id) only those that are not there yet: nobody reads on where one is, whatever lies behind it.
        """
        positions = {}
        for want in wanted:
            place = (want.topic, partition_of(want.topic, self._partition, want.shard))
            read = self._partition_at(place)
            if decision_id(*want, opening) not in read.found:
                positions[place] = read.position
        return positions

    def forget(self, seq: int) -> None:
        """Answers to openings up to `seq` will not be asked for again."""
        self._forgotten = max(seq, self._forgotten)
        for partition in self._read.values():
            partition.forget(self._forgotten)

    def positions(self) -> dict[str, int]:
        """ "topic/partition" -> where a new reader has to start to find what is still needed."""
        return {f"{topic}/{number}": read.needed for (topic, number), read in sorted(self._read.items())}

    async def _find(self, opening: str, want: Wanted) -> Found | None:
        id_ = decision_id(*want, opening)
        place = (want.topic, partition_of(want.topic, self._partition, want.shard))
        read = self._partition_at(place)
        while id_ not in read.found:
            before = read.position
            await self._fetch(place)
            if read.position == before:
                return None
        return read.found[id_]

    async def _fetch(self, place: _Place) -> list[str]:
        read = self._partition_at(place)
        whole = []
        fetched = await self._bus.fetch(*place, read.position, most=FETCHED_MOST)
        for message in fetched:
            try:
                id_ = read.take(message, self._forgotten)
            except Undecodable as error:
                # It answers nothing, whoever wrote it; stopping every service of the cell would answer no more.
                self._log.warning("decision_unreadable", topic=place[0], offset=message.offset, reason=str(error))
                continue
            if id_ is not None:
                whole.append(id_)
        read.position = fetched.position
        return whole

    def _partition_at(self, place: _Place) -> Shelf:
        return self._read.setdefault(place, Shelf(0))
