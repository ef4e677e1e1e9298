"""The Bus port: topics of ordered partitions that are appended to and read from any offset. Nothing else is asked of a
bus.

Offsets rise, but they need not be dense: the marker at the end of a Kafka transaction, the messages of an aborted one
and what compaction removed leave offsets without a message. So a reader goes on from the position that a fetch
returned, never from the offset of the last message plus one.

Of a topic of the kind `beat` (schemas/topics.py) the last messages are there, and a position before them is a
PositionGap; a local bus forgets them all when it is closed. So its readers begin at its end, and again after a gap.

Adapters: memory (tests), file (embedded), Kafka. One contract suite runs over all of them (tests/contract/test_bus.py).
Positions live in the log, so there are no consumer groups' offsets, and no transactions.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

MESSAGE_BYTES_MAX = 960 * 1024
"""Largest message that any bus takes: value, key and headers, as `size_of` counts them. Kafka's batch of one message
(kafka_client.BATCH_BYTES_MAX) leaves room for it; other buses keep to the same limit, so that what works embedded works
on Kafka. Above INPUT_BYTES_MAX and RECORD_BYTES_MAX, with room for what stands around them."""

CHARACTER_BYTES_MAX = 4
HEADER_BYTES = 16


class BusError(Exception):
    """An append or a read that did not, or may not have, come about. The writer must be dropped, but for
    MessageTooLarge."""


class MessageTooLarge(BusError):
    """A message above MESSAGE_BYTES_MAX: names topic, size and limit. Nothing of its batch was sent. The writer is as
    good as before, for this sender and for all others."""


class PositionGap(BusError):
    """A position before a partition's start or beyond its end: names topic, partition, position and what exists."""


class BusFull(BusError):
    """No room to write. Nothing acknowledged is lost; this bus writes nothing more, not even with room again: whoever
    writes ends, and goes on when it is started, and the bus opened, again.
    """


class BusRefused(BusError):
    """The bus does not let this process in, or not do this: names who lacks what, and what mends it. Waiting does not,
    so a service ends with it.
    """


@dataclass(frozen=True, slots=True)
class Message:
    """What lies at one offset. `headers` carry what a producer says of itself (`author`)."""

    topic: str
    partition: int
    offset: int
    value: bytes
    headers: dict[str, str] = field(default_factory=dict)


class Fetched(list[Message]):
    """The messages that a fetch brought, in order. `position`: where the next fetch goes on. It lies behind the last
    message, and behind offsets after it of which the bus knows that no message has them.
    """

    __slots__ = ("position",)

    def __init__(self, messages: Iterable[Message], position: int) -> None:
        super().__init__(messages)
        self.position = position


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to append. `key` groups messages for compaction where the topic is compacted. `early`: readers may see
    it before it is on disk, where whatever they make of it lies behind it in one journal.
    """

    topic: str
    partition: int
    value: bytes
    key: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    early: bool = False


def size_of(message: Outgoing) -> int:
    """Bytes of a message as MESSAGE_BYTES_MAX counts them. A character of key and headers counts as the longest that
    there is, so that no text has to be encoded to know its size."""
    characters = len(message.key) + sum(len(name) + len(text) for name, text in message.headers.items())
    return len(message.value) + CHARACTER_BYTES_MAX * characters + HEADER_BYTES * len(message.headers)


def check_sizes(batch: list[Outgoing]) -> None:
    """Raises MessageTooLarge for the first message that no bus takes."""
    for message in batch:
        size = size_of(message)
        if size > MESSAGE_BYTES_MAX:
            raise MessageTooLarge(
                f"{message.topic}: a message of {size} bytes; a bus takes {MESSAGE_BYTES_MAX} at most"
            )


class Writer(Protocol):
    """An idempotent producer. Appends of one writer to one partition keep their order."""

    async def send(self, batch: list[Outgoing], *, durable: bool = True) -> list[int]:
        """Appends all or, for one partition, a prefix; returns the offsets in batch order. Raises BusError where it
        does not know, and MessageTooLarge before anything is sent.

        `durable`: returns, and shows the messages to readers, only when they are on disk (or acknowledged by all
        replicas). Otherwise they may be shown at once and become durable before, or with, the next durable send.
        """

    async def drop(self) -> None:
        """Gives the producer up. What was not acknowledged may or may not arrive later; nothing more is sent."""


class Bus(Protocol):
    """Reads and writers. Every call may raise BusError."""

    def writer(self) -> Writer:
        """A new producer."""

    async def fetch(self, topic: str, partition: int, offset: int, *, wait_ms: int = 0, most: int = 1_000) -> Fetched:
        """Up to `most` messages at or after position `offset`, in order. Waits up to `wait_ms` for the first, unless it
        moves on over offsets that no message has.

        Below an end that `bounds` returned, it brings a message or moves the position on (an input topic on Kafka may
        hold back what belongs to an open transaction). Raises PositionGap.
        """

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset that exists and the one after the last, whether or not a message has them."""

    async def wait_any(self, positions: dict[tuple[str, int], int], wait_ms: int) -> bool:
        """Waits until a fetch at any of the positions would bring messages or move on; False after `wait_ms`."""

    async def close(self) -> None:
        """Lets go of files, sockets and tasks."""
