"""Writing the log under a claim: a batch, one durable send, and the read-back before anything outside may happen.

What is batched counts as written for the next record's seq and prefix. Any doubt (an append that failed or may have, a
void record of its own, another's claim) raises Fenced: the caller drops the writer and folds again.
"""

import asyncio
from collections import deque
from copy import deepcopy
from dataclasses import dataclass, replace

from largesse import failpoints
from largesse.bus.port import Bus, BusError, BusFull, BusRefused, Message, Outgoing, PositionGap, Writer
from largesse.ids import log_id, opening_id
from largesse.log.codec import encode, record_of, wrap
from largesse.log.fencing import Accepted, LogOrder, advance, note, split
from largesse.log.reader import LogReader, follow
from schemas import Header, Record, RoundOpened, SequencerClaimed
from schemas.topics import LOG


class Fenced(Exception):
    """Why this writer may not go on. What it had batched may or may not be in the log."""


def claim_message(cell: str, partition: int, token: str, order: LogOrder, time: int, topic: str = LOG) -> Outgoing:
    """A claim of the log: no seq, and a fresh token."""
    record = record_of(
        SequencerClaimed(token, beats=True),
        cell=cell,
        seq=0,
        round_number=order.round,
        time=time,
        id_=f"{cell}/claim/{token}",
        cause="",
    )
    return Outgoing(topic, partition, wrap(Header(token), encode(record)))


@dataclass(slots=True)
class _Sent:
    """A record on its way, and its message; None for one in parts, which is recognised by what it comes to."""

    accepted: Accepted
    message: bytes | None


class LogWriter:
    """Appends to a log whose latest claim is its own. `reader` stands at (or behind) that claim.

    `running`: where the log will stand when all that was put is accepted.
    """

    def __init__(
        self, bus: Bus, writer: Writer, reader: LogReader, *, cell: str, partition: int, token: str, name: str
    ) -> None:
        assert reader.order.token == token, "another writer's claim is the latest"
        self.running = deepcopy(reader.order)
        self.reader = reader
        self._bus = bus
        self._writer = writer
        self._cell = cell
        self._partition = partition
        self._token = token
        self._name = name
        self._batch: list[Outgoing] = []
        self._sent: deque[_Sent] = deque()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was put since the last flush."""
        return not self._batch

    def put(self, body: object, *, time: int, source: Header | None = None, cause: str = "") -> Record:
        """Adds one record to the batch, at log time `time` or the last record's, if that is later."""
        order = self.running
        seq = order.seq + 1
        round_number = order.round
        id_ = log_id(self._cell, seq)
        if isinstance(body, RoundOpened):
            round_number += 1
            id_ = opening_id(self._cell, seq, round_number, body.prefix)
        record = record_of(
            body,
            cell=self._cell,
            seq=seq,
            round_number=round_number,
            time=max(time, order.time),
            id_=id_,
            cause=cause,
        )
        header = Header(self._token) if source is None else replace(source, token=self._token)
        content = encode(record)
        messages = split(header, content, id_=id_, seq=seq)
        note(order, record, header, content)
        self._batch += [Outgoing(self.reader.topic, self._partition, message) for message in messages]
        self._sent.append(_Sent(Accepted(record, header, content, -1), messages[0] if len(messages) == 1 else None))
        return record

    async def flush(self, wait_ms: int) -> list[Accepted]:
        """Sends the batch durably and reads it back: the same bytes in the same order, within `wait_ms`.

        Raises Fenced; BusFull; BusRefused; PositionGap where the log does not go on from where it was read.
        """
        batch, self._batch = self._batch, []
        if not batch:
            return []
        failpoints.hit(self._name, "before_append")
        try:
            offsets = await self._writer.send(batch, durable=True)
        except (BusFull, BusRefused):
            raise
        except BusError as error:
            raise Fenced(f"the append failed, or may have: {error}") from error
        failpoints.hit(self._name, "after_append")
        accepted: list[Accepted] = []
        failpoints.hit(self._name, "before_read_back")
        try:
            async with asyncio.timeout(wait_ms / 1_000):
                while self._sent:
                    accepted += await self.check(wait_ms)
                    if self._sent and self.reader.offset > offsets[-1]:
                        raise Fenced(f"its record {self._sent[0].accepted.record.id} is void")
        except TimeoutError:
            raise Fenced(f"its records could not be read back within {wait_ms} ms") from None
        failpoints.hit(self._name, "after_read_back")
        return accepted

    async def check(self, wait_ms: int = 0) -> list[Accepted]:
        """Reads on in the log: own records come back, in order. Raises Fenced: a claim, or another writer's record, is
        there."""
        order = self.reader.order
        try:
            messages = await self.reader.fetch(wait_ms)
        except (PositionGap, BusFull, BusRefused):
            raise
        except BusError as error:
            raise Fenced(f"the log cannot be read: {error}") from error
        back = (self._take(order, message) for message in messages)
        return [accepted for accepted in back if accepted is not None]

    def _take(self, order: LogOrder, message: Message) -> Accepted | None:
        if self._sent and message.value == self._sent[0].message:
            # It carries this token and the next seq, and no claim came between: it counts, as `advance` would find.
            mine = self._sent.popleft().accepted
            mine.offset = message.offset
            follow(order, mine)
            return mine
        accepted = advance(order, message.offset, message.value)
        if accepted is None:
            return None
        if isinstance(accepted.record.body, SequencerClaimed):
            raise Fenced(f"{accepted.record.id} is a newer claim")
        if not self._sent or accepted.content != self._sent[0].accepted.content:
            raise Fenced(f"{accepted.record.id} is in the log, but it is not what was sent")
        self._sent.popleft()
        return accepted
