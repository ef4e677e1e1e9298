"""Reading a cell's log and writing to its input topics: what shells, agents and the gateway have in common.

Only records that count come out (order.py). A position that does not exist raises PositionGap, which names the gap.
"""

import asyncio
from contextlib import suppress
from typing import Any

import orjson

from largesse.bus import Bus, Outgoing, Writer
from largesse.order import Accepted, LogOrder, advance, note
from schemas import SequencerClaimed
from schemas.topics import INPUTS, LOG

MESSAGES_MAX = 500
"""Messages that one read takes at most."""


class LogReader:
    """Follows one partition of the log. `order` says where it stands; pass a restored one to go on from there."""

    def __init__(self, bus: Bus, partition: int = 0, order: LogOrder | None = None) -> None:
        self.order = order if order is not None else LogOrder()
        self._bus = bus
        self._partition = partition

    @property
    def position(self) -> dict[tuple[str, int], int]:
        """What to hand to `wait_any`: the log's partition, and the offset that comes next."""
        return {(LOG, self._partition): self.order.offset}

    async def read(self, wait_ms: int = 0, most: int = MESSAGES_MAX) -> list[Accepted]:
        """The next records that count, in order, claims included.

        Empty where nothing came within `wait_ms`, and where all that came was void or parts. Raises PositionGap,
        BusError, Undecodable.
        """
        messages = await self._bus.fetch(LOG, self._partition, self.order.offset, wait_ms=wait_ms, most=most)
        found = (advance(self.order, message.offset, message.value) for message in messages)
        return [accepted for accepted in found if accepted is not None]


def follow(order: LogOrder, accepted: Accepted) -> None:
    """Moves `order` on by a record that another order has accepted: for a reader that folds later than it reads."""
    order.offset = accepted.offset + 1
    if isinstance(accepted.record.body, SequencerClaimed):
        order.token, order.pieces, order.pieces_of = accepted.header.token, [], ""
    else:
        note(order, accepted.record, accepted.header, accepted.content)


async def publish_input(writer: Writer, topic: str, document: Any, author: str, partition: int = 0) -> int:
    """Appends one message to an input topic, durably, and returns its offset.

    `document`: bytes as they are, or anything that JSON can say. Raises BusError: the message may or may not have
    arrived, and may be sent again.
    """
    assert topic in INPUTS, f"{topic} is no input topic"
    value = document if isinstance(document, bytes) else orjson.dumps(document)
    return (await writer.send([Outgoing(topic, partition, value, headers={"author": author})]))[0]


async def wait_for_more(
    bus: Bus, positions: dict[tuple[str, int], int], wait_ms: int, stop: asyncio.Event | None = None
) -> bool:
    """Waits until one of the partitions has something at its position; False after `wait_ms`, or once `stop` is set."""
    if stop is None:
        return await bus.wait_any(positions, wait_ms)
    if stop.is_set():
        return False
    more = asyncio.ensure_future(bus.wait_any(positions, wait_ms))
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((more, stopped), return_when=asyncio.FIRST_COMPLETED)
        return more.done() and more.result()
    finally:
        for task in (more, stopped):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
