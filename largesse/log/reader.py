"""Reading a log, a cell's or the router's, and writing to input topics: what shells, agents and the gateway share.

Only records that count come out (fencing.py). A position that does not exist raises PositionGap, which names the gap.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from typing import Literal
from weakref import WeakKeyDictionary

import orjson

from largesse.bus.local import LocalBus
from largesse.bus.port import Bus, Message, Outgoing, Writer
from largesse.log.fencing import Accepted, LogOrder, advance, note
from schemas import RoundAbandoned, RoundClosed, RoundOpened, SequencerClaimed
from schemas.topics import INPUTS, LOG

MESSAGES_MAX = 500
"""Messages that one read takes at most."""

AHEAD_MAX = 10_000
"""Records that are kept at most when a reader looks ahead of what it has taken."""


class LogReader:
    """Follows one partition of the log. `order` says where it stands; pass a restored one to go on from there. `topic`:
    the cells' logs, or the router's.

    `offset`: the position in the partition. It may lie beyond `order.offset`, the one after the last message, where
    offsets follow that no message has.
    """

    def __init__(self, bus: Bus, partition: int = 0, order: LogOrder | None = None, topic: str = LOG) -> None:
        self.order = order if order is not None else LogOrder()
        self.offset = self.order.offset
        self.topic = topic
        self._bus = bus
        self._partition = partition

    @property
    def position(self) -> dict[tuple[str, int], int]:
        """What to hand to `wait_any`: the log's partition, and the offset that comes next."""
        return {(self.topic, self._partition): self.offset}

    async def fetch(self, wait_ms: int = 0, most: int = MESSAGES_MAX) -> list[Message]:
        """The next messages as they are; `order` is the caller's to move on. Raises PositionGap, BusError."""
        fetched = await self._bus.fetch(self.topic, self._partition, self.offset, wait_ms=wait_ms, most=most)
        self.offset = fetched.position
        return fetched

    async def read(self, wait_ms: int = 0, most: int = MESSAGES_MAX) -> list[Accepted]:
        """The next records that count, in order, claims included.

        Empty where nothing came within `wait_ms`, and where all that came was void or parts. Raises PositionGap,
        BusError, Undecodable.
        """
        messages = await self.fetch(wait_ms, most)
        found = (advance(self.order, message.offset, message.value) for message in messages)
        return [accepted for accepted in found if accepted is not None]


class Lookahead:
    """Takes the log's records one by one, and can look further without taking: whether a round is over, say.

    `order` stands behind the last record taken.
    """

    def __init__(self, bus: Bus, partition: int = 0, order: LogOrder | None = None) -> None:
        self.order = order if order is not None else LogOrder()
        self._bus = bus
        self._partition = partition
        self._reader = LogReader(bus, partition, deepcopy(self.order))
        self._scout: LogReader | None = None
        self._kept: deque[Accepted] = deque()
        self._over = self._opened = 0

    @property
    def position(self) -> dict[tuple[str, int], int]:
        """What to hand to `wait_any`: what has not been read yet."""
        furthest = self._reader
        if self._scout is not None and self._scout.offset > furthest.offset:
            furthest = self._scout
        return furthest.position

    @property
    def offset(self) -> int:
        """The position in the partition behind the last record taken, if nothing that counts lies between."""
        return self.order.offset if self._kept else self._reader.offset

    @property
    def void(self) -> int:
        """Messages so far that did not count."""
        return self._reader.order.void

    async def peek(self) -> Accepted | None:
        """The next record, which is still to be taken, or None where there is none yet. Raises as LogReader does."""
        while not self._kept:
            if not await self._look(self._reader):
                return None
        return self._kept[0]

    async def take(self) -> Accepted | None:
        """The next record, or None where there is none yet. Raises as LogReader does."""
        accepted = await self.peek()
        if accepted is not None:
            self._kept.popleft()
            follow(self.order, accepted)
        return accepted

    async def is_over(self, round_number: int) -> bool:
        """Whether the log, read as far as it goes, closes or abandons the round. Waits for nothing."""
        return await self._shows(lambda: self._over >= round_number)

    async def is_followed(self, round_number: int) -> bool:
        """Whether the log, read as far as it goes, opens a later round. Waits for nothing."""
        return await self._shows(lambda: self._opened > round_number)

    async def _shows(self, wanted: Callable[[], bool]) -> bool:
        if self._scout is not None and self._scout.offset <= self._reader.offset:
            self._scout = None
        while not wanted():
            if self._scout is None and len(self._kept) >= AHEAD_MAX:
                # From here on the records are looked at and read again later: memory has a limit, the log has not.
                self._scout = LogReader(self._bus, self._partition, deepcopy(self._reader.order))
            if not await self._look(self._scout or self._reader):
                return False
        return True

    async def _look(self, reader: LogReader) -> bool:
        before = reader.offset
        found = await reader.read()
        if reader is self._reader:
            self._kept.extend(found)
        for accepted in found:
            if isinstance(accepted.record.body, RoundClosed | RoundAbandoned):
                self._over = max(self._over, accepted.record.round)
            elif isinstance(accepted.record.body, RoundOpened):
                self._opened = max(self._opened, accepted.record.round)
        return reader.offset > before


def follow(order: LogOrder, accepted: Accepted) -> None:
    """Moves `order` on by a record that another order has accepted: for a reader that folds later than it reads."""
    order.offset = accepted.offset + 1
    if isinstance(accepted.record.body, SequencerClaimed):
        order.token, order.pieces, order.pieces_of = accepted.header.token, [], ""
    else:
        note(order, accepted.record, accepted.header, accepted.content)


async def publish_input(writer: Writer, topic: str, document: object, author: str, partition: int = 0) -> int:
    """Appends one message to an input topic, durably, and returns its offset.

    `document`: bytes as they are, or anything that JSON can say. Raises BusError: the message may or may not have
    arrived, and may be sent again.
    """
    assert topic in INPUTS, f"{topic} is no input topic"
    value = document if isinstance(document, bytes) else orjson.dumps(document)
    # Only a sequencer reads it, and what becomes of it is a record that is written after it.
    return (await writer.send([Outgoing(topic, partition, value, headers={"author": author}, early=True)]))[0]


_SET_FIRST: WeakKeyDictionary[asyncio.Event, asyncio.Task[Literal[True]]] = WeakKeyDictionary()
"""By event that somebody has waited for: a task that ends when it is set, for whoever waits next."""


async def wait_for_more(bus: Bus, positions: dict[tuple[str, int], int], wait_ms: int, *events: asyncio.Event) -> bool:
    """Waits until a partition has something at its position; False after `wait_ms`, or once an event is set."""
    if any(event.is_set() for event in events):
        return False
    if isinstance(bus, LocalBus):  # Without a task for each wait: a round has two dozen of them.
        return await bus.wait_any(positions, wait_ms, [_set_first(event) for event in events])
    more = asyncio.ensure_future(bus.wait_any(positions, wait_ms))
    try:
        await asyncio.wait((more, *map(_set_first, events)), return_when=asyncio.FIRST_COMPLETED)
        return more.done() and more.result()
    finally:
        if not more.done():
            more.cancel()
            with suppress(asyncio.CancelledError):
                await more


def _set_first(event: asyncio.Event) -> "asyncio.Task[Literal[True]]":
    waiting = _SET_FIRST.get(event)
    if waiting is None or waiting.done():
        waiting = _SET_FIRST[event] = asyncio.ensure_future(event.wait())
    return waiting
