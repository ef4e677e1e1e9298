"""The Bus port in memory, for tests: exact where nothing was asked for, and as bad as a real bus where a test asks.

Faults are armed one by one with `inject`. That the sender sees BusError says nothing about what has arrived.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from largesse.bus.local import LocalBus
from largesse.bus.passing import KEPT, PASSING
from largesse.bus.port import BusError, BusFull, Message, Outgoing, check_sizes
from largesse.injected import take_due
from schemas.topics import BY_NAME

FaultKind = Literal["lost", "late", "unknown", "torn", "full"]
"""What becomes of an append whose sender sees an error: nothing arrives (`lost`, and `full` with BusFull); it arrives
after other things (`late`); it arrives at once (`unknown`); all but its last message arrive at once (`torn`)."""


@dataclass(slots=True)
class _Fault:
    kind: FaultKind
    topic: str | None
    skip: int
    after: int | None


@dataclass(slots=True)
class _Late:
    batch: list[Outgoing]
    after: int | None


@dataclass(slots=True)
class _Partition:
    first: int = 0
    end: int = 0
    messages: list[Message] = field(default_factory=list)
    newest: dict[str, int] = field(default_factory=dict)

    def index(self, offset: int) -> int:
        """Of the first message at or after `offset`."""
        dense = offset - self.first
        if len(self.messages) == self.end - self.first:
            return dense
        return bisect_left(self.messages, offset, key=_offset_of)


class MemoryBus(LocalBus):
    """Everything in lists. Belongs to one event loop. `compacts`: of compacted topics it keeps the last message of a
    key alone, for those who stay long.
    """

    def __init__(self, *, compacts: bool = False) -> None:
        super().__init__()
        self._compacts = compacts
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._faults: list[_Fault] = []
        self._late: deque[_Late] = deque()

    def writer(self) -> "MemoryWriter":
        """A new producer."""
        self._refuse_if_closed()
        return MemoryWriter(self)

    async def close(self) -> None:
        """Ends every wait. What was held back as late never arrives."""
        self._closed = True
        self._late.clear()
        self._wakeups.wake_all()

    def inject(self, kind: FaultKind, *, topic: str | None = None, skip: int = 0, after: int | None = None) -> None:
        """Arms one fault for the append after the next `skip` ones (to `topic`, if given).

        `after`, for `late`: how many later appends it lets pass before it arrives; None: until `deliver_late`.
        """
        self._faults.append(_Fault(kind, topic, skip, after))

    def deliver_late(self) -> int:
        """Lets everything held back arrive now, in the order of sending; returns how many messages that were."""
        count = 0
        while self._late:
            count += len(self._append(self._late.popleft().batch))
        return count

    def retire(self, topic: str, partition: int, before: int) -> None:
        """Retention: offsets below `before` are gone."""
        kept = self._partition(topic, partition)
        first = max(kept.first, min(before, kept.end))
        del kept.messages[: kept.index(first)]
        kept.first = first
        self._wakeups.wake(topic, partition)

    def lose_tail(self, topic: str, partition: int, end: int) -> None:
        """A broker came back without its tail: offsets from `end` on are gone and will be given again."""
        kept = self._partition(topic, partition)
        del kept.messages[kept.index(max(end, kept.first)) :]
        kept.end = min(kept.end, max(end, kept.first))
        self._wakeups.wake(topic, partition)

    def skip(self, topic: str, partition: int, count: int = 1) -> None:
        """Gives `count` offsets away without a message, as the marker at the end of a transaction does."""
        self._partition(topic, partition).end += count
        self._wakeups.wake(topic, partition)

    def _bounds(self, topic: str, partition: int) -> tuple[int, int]:
        found = self._partitions.get((topic, partition))
        return (found.first, found.end) if found else (0, 0)

    def _read(self, topic: str, partition: int, offset: int, most: int) -> list[Message]:
        found = self._partitions[topic, partition]
        at = found.index(offset)
        return found.messages[at : at + most]

    def _send(self, batch: list[Outgoing]) -> list[int]:
        fault = self._due_fault(batch)
        if fault is None:
            offsets = self._append(batch)
            self._let_late_in()
            return offsets
        match fault.kind:
            case "full":
                raise BusFull("no room (injected): nothing arrived")
            case "late":
                self._late.append(_Late(batch, fault.after))
            case "unknown":
                self._append(batch)
            case "torn":
                self._append(batch[:-1])
            case "lost":
                pass
        raise BusError(f"append failed (injected: {fault.kind})")

    def _due_fault(self, batch: list[Outgoing]) -> _Fault | None:
        topics = [outgoing.topic for outgoing in batch]
        return take_due(self._faults, lambda fault: fault.topic is None or fault.topic in topics)

    def _let_late_in(self) -> None:
        waiting, self._late = self._late, deque()
        for late in waiting:
            if late.after is not None:
                late.after -= 1
            if late.after is not None and late.after <= 0:
                self._append(late.batch)
            else:
                self._late.append(late)

    def _append(self, batch: list[Outgoing]) -> list[int]:
        offsets = []
        for outgoing in batch:
            partition = self._partition(outgoing.topic, outgoing.partition)
            offset = partition.end
            message = Message(outgoing.topic, outgoing.partition, offset, outgoing.value, dict(outgoing.headers))
            if self._compacts and outgoing.key and BY_NAME[outgoing.topic].cleanup == "compact":
                before = partition.newest.get(outgoing.key)
                if before is not None:
                    del partition.messages[partition.index(before)]
                partition.newest[outgoing.key] = offset
            partition.messages.append(message)
            partition.end = offset + 1
            if outgoing.topic in PASSING and len(partition.messages) > KEPT:
                partition.first = partition.messages.pop(0).offset + 1
            offsets.append(offset)
            self._wakeups.wake(outgoing.topic, outgoing.partition)
        return offsets

    def _partition(self, topic: str, partition: int) -> _Partition:
        return self._partitions.setdefault((topic, partition), _Partition())


def _offset_of(message: Message) -> int:
    return message.offset


class MemoryWriter:
    """A producer of a MemoryBus. Durable or not is all the same: memory lasts as long as the bus."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self._dropped = False

    async def send(self, batch: list[Outgoing], *, durable: bool = True) -> list[int]:
        """See the port. Raises BusError once dropped or closed, and where a fault is due; MessageTooLarge."""
        if self._dropped:
            raise BusError("this writer was dropped")
        check_sizes(batch)
        self._bus._refuse_if_closed()
        offsets = self._bus._send(list(batch)) if batch else []
        await asyncio.sleep(0)
        return offsets

    async def drop(self) -> None:
        """Nothing more is sent. What is late still arrives, as it would from a broker."""
        self._dropped = True
