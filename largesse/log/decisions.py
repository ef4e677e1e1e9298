"""Decision topics: a core's answer to an opening on its way out, and the winning answers on their way in.

An answer is named by the round that it answers, so a second answer repeats the first, and the first in the
partition wins. An answer to an opening that the log does not have is never asked for. What is no answer at all
(answers.py) is counted, said once a topic, and passed over.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from largesse.bus.port import Bus, Outgoing, PositionGap
from largesse.ids import content_hash, decision_id
from largesse.log.answers import Found, Shelf
from largesse.log.codec import Undecodable
from largesse.log.fencing import split
from largesse.log.wanted import Wanted
from largesse.telemetry import VOID_DECISIONS, logger
from schemas import DecisionHash, Header, Record
from schemas.policy import SHARDS_MAX
from schemas.topics import LOG, SHARDED

FORECASTS = ("releases", "plans")
"""Topics that may stay silent in a round; what wins there enters the log as a fact of its own."""

FETCHED_MOST = 200

_Place = tuple[str, int]


class DecisionGap(Exception):
    """A decision record that a closing names is missing, or is not the one it names. Says which one, and where."""


@dataclass(slots=True)
class Decision:
    """A winning decision record, its content's bytes, and the offset of its last message."""

    record: Record
    content: bytes
    offset: int


def partition_of(topic: str, partition: int, shard: int) -> int:
    """Where a cell's answers lie in a decision topic: sharded topics have a partition for every shard of every cell."""
    return partition * SHARDS_MAX + shard if topic in SHARDED else partition


def messages_of(record: Record, content: bytes, wanted: Wanted, partition: int, author: str) -> list[Outgoing]:
    """What to send, not durably: the closing that names it makes it last."""
    place = partition_of(wanted.topic, partition, wanted.shard)
    messages = split(Header(author), content, id_=record.id, seq=record.seq)
    return [Outgoing(wanted.topic, place, message) for message in messages]


class DecisionReader:
    """Follows the decision topics of one cell. `positions`: where a restored reader goes on, as `positions()`
    returned."""

    def __init__(self, bus: Bus, partition: int = 0, positions: dict[str, int] | None = None) -> None:
        self._bus = bus
        self._partition = partition
        self._read: dict[_Place, Shelf] = {}
        self._forgotten = 0
        self._said: dict[str, bool] = {}
        self._sifting: tuple[int, list[tuple[_Place, str]]] | None = None
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
        return [Decision(found.record, found.content, found.offset) for found in there]

    async def winners(self, closing: Record, hashes: Iterable[DecisionHash], wait_ms: int) -> list[Decision]:
        """The records that a closing names, in the order of `hashes`, each checked. Waits for one at most `wait_ms`.

        Raises DecisionGap: a decision that a closing names was durable before it, so waiting longer would not help.
        """
        return [await self._winner(closing, named, wait_ms) for named in hashes]

    async def _winner(self, closing: Record, named: DecisionHash, wait_ms: int) -> Decision:
        want = Wanted(named.topic, named.shard, named.of)
        found = await self._find(closing.cause, want)
        if found is None:
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
        return Decision(found.record, found.content, found.offset)

    async def arrivals(self, topic: str) -> list[Decision]:
        """Decisions of a topic with one shard that came since the last call, each the first of its name."""
        place = (topic, partition_of(topic, self._partition, 0))
        decisions = []
        for id_ in await self._fetch(place):
            found = self._read[place].found[id_]
            decisions.append(Decision(found.record, found.content, found.offset))
        return decisions

    def waiting_for(self, wanted: Iterable[Wanted], opening: str = "") -> dict[_Place, int]:
        """What to hand to `wait_any`: the partitions of these answers and the offsets that come next. Of answers to an
        opening (its id) only those that are not there yet: a partition whose answer is there is not read further.
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

    def drop(self, topic: str, id_: str) -> None:
        """Drops one answer of a topic with one shard, and nothing else of its seq: it is to no opening of the log."""
        self._partition_at((topic, partition_of(topic, self._partition, 0))).drop(id_)

    async def sift(self, seq: int, offset: int) -> None:
        """Drops what answers openings that the log does not have, and never had. Called now and then with the last seq
        that the caller has read in the log, and its position there. Raises BusError.
        """
        if self._sifting is None:
            kept = [(place, id_) for place, read in self._read.items() for id_ in read.beyond(seq)]
            if kept:
                # An opening is durable before anybody answers it: those of all these lie before the log's end now.
                self._sifting = (await self._bus.bounds(LOG, self._partition))[1], kept
        elif offset >= self._sifting[0]:
            strange = {id_: place for place, read in self._read.items() for id_ in read.beyond(seq)}
            for place, id_ in self._sifting[1]:
                if strange.get(id_) == place:
                    self._read[place].drop(id_)
            self._sifting = None

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
        try:
            fetched = await self._bus.fetch(*place, read.position, most=FETCHED_MOST)
        except PositionGap:
            if read.position:
                raise
            # Nobody has read here yet: what was trimmed were answers to rounds that are long over.
            read.position = (await self._bus.bounds(*place))[0]
            fetched = await self._bus.fetch(*place, read.position, most=FETCHED_MOST)
        for message in fetched:
            try:
                id_ = read.take(message, self._forgotten)
            except Undecodable as error:
                # It answers nothing, and stopping every service of the cell would answer no more.
                self._count_void(place[0], message.offset, error)
                continue
            if id_ is not None:
                whole.append(id_)
        read.position = fetched.position
        return whole

    def _count_void(self, topic: str, offset: int, error: Undecodable) -> None:
        VOID_DECISIONS.labels(topic).inc()
        if topic not in self._said:
            self._said[topic] = True
            self._log.warning("decision_void", topic=topic, offset=offset, reason=str(error), more="only counted")

    def _partition_at(self, place: _Place) -> Shelf:
        return self._read.setdefault(place, Shelf(0))
