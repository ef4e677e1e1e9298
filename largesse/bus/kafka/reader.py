"""Reads one Kafka partition ahead of its readers, so that polling costs nothing while there is nothing new.

A follower has a consumer of its own: a shared one would let a slow reader hold up the others, and make a new partition
wait for the old ones' long poll. What it has read stays for a while, for readers that come a little later.

Its position is the consumer's: markers of transactions, aborted messages and what compaction removed are offsets that
never come as a message, and the consumer passes them without saying so.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from aiokafka.structs import ConsumerRecord

from largesse.bus.kafka.client import said
from largesse.bus.kafka.cluster import Cluster
from largesse.bus.kafka.refusals import REFUSALS, may_not
from largesse.bus.port import BusError, Message

AHEAD_BYTES_MAX = 2 << 20
"""A follower waits while it holds more than this that has not been read."""
BEHIND_BYTES_MAX = 1 << 20
"""Messages that one reader has read, and that are kept for others."""
TAKEN_MOST = 500
IDLE_MS = 60_000
_MESSAGE_BYTES = 400
"""What a message in memory costs beside its value, about."""


class Follower:
    """Messages of one partition from `offset` on. `wake` is called whenever there is something new to see.

    `error`: why it has ended: the offsets do not exist any more, or the cluster refuses. Belongs to one event loop.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partition: int,
        offset: int,
        connect: Callable[[], Awaitable[AIOKafkaConsumer]],
        wake: Callable[[], None],
    ) -> None:
        self.error: BusError | None = None
        self._cluster = cluster
        self._place = TopicPartition(topic, partition)
        self._first = offset
        self._next = offset
        self._passed = offset
        self._ahead_bytes = self._behind_bytes = 0
        self._messages: list[Message] = []
        self._room = asyncio.Event()
        self._room.set()
        self._wake = wake
        self._consumer: AIOKafkaConsumer | None = None
        self._task = asyncio.create_task(self._run(connect))

    @property
    def held_bytes(self) -> int:
        """What it keeps in memory, about."""
        return self._ahead_bytes + self._behind_bytes

    def covers(self, offset: int) -> bool:
        """Whether a reader at `offset` gets from here everything that there is, now or later."""
        return self.error is None and self._first <= offset <= self._next

    def has(self, offset: int) -> bool:
        """Whether there is a message at `offset` or after it."""
        return bool(self._messages) and self._messages[-1].offset >= offset

    async def position(self) -> int:
        """The offset up to which everything has come that there is, be it messages or nothing. Waits for nothing."""
        if self._consumer is not None:
            # A message that the consumer hands out is taken in the same turn of the loop: none is passed over here.
            self._next = max(self._next, await self._consumer.position(self._place))
        return self._next

    def read(self, offset: int, most: int) -> list[Message]:
        """Up to `most` messages from `offset` on, as far as they have come."""
        start = bisect_left(self._messages, offset, key=_offset_of)
        found = self._messages[start : start + most]
        if found and found[-1].offset >= self._passed:
            self._pass(found[-1].offset + 1)
        return found

    def forget_before(self, offset: int) -> None:
        """Retention: what lies before `offset` is not shown any more."""
        if self._first < offset <= self._next:
            self._drop_first(bisect_left(self._messages, offset, key=_offset_of))
            self._first = offset

    async def stop(self) -> None:
        """Ends it and closes its connections."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self, connect: Callable[[], Awaitable[AIOKafkaConsumer]]) -> None:
        try:
            consumer = await connect()
            try:
                await self._follow(consumer)
            finally:
                self._consumer = None
                await consumer.stop()
        except BusError as error:
            self.error = error
        except OffsetOutOfRangeError as error:
            self.error = BusError(f"{_name(self._place)}: offset {self._next} is gone")
            self.error.__cause__ = error
        except REFUSALS as error:
            self.error = may_not(self._cluster, "read", f"topic {self._place.topic}")
            self.error.__cause__ = error
        except KafkaError as error:
            self.error = BusError(f"{_name(self._place)} at offset {self._next}: {said(error)}")
            self.error.__cause__ = error
        finally:
            self._wake()

    async def _follow(self, consumer: AIOKafkaConsumer) -> None:
        consumer.assign([self._place])
        consumer.seek(self._place, self._next)
        self._consumer = consumer
        while True:
            await self._room.wait()
            found = await consumer.getmany(self._place, timeout_ms=IDLE_MS, max_records=TAKEN_MOST)
            for records in found.values():
                self._take(records)
            self._wake()
            # Reading from what was fetched before does not wait by itself.
            await asyncio.sleep(0)

    def _take(self, records: list[ConsumerRecord]) -> None:
        messages = [message_of(record) for record in records]
        self._messages += messages
        self._ahead_bytes += _bytes_of(messages)
        self._next = records[-1].offset + 1
        if self._ahead_bytes > AHEAD_BYTES_MAX:
            self._room.clear()

    def _pass(self, offset: int) -> None:
        """A reader has read up to `offset`."""
        start = bisect_left(self._messages, self._passed, key=_offset_of)
        end = bisect_left(self._messages, offset, key=_offset_of)
        size = _bytes_of(self._messages[start:end])
        self._passed = offset
        self._ahead_bytes -= size
        self._behind_bytes += size
        count = 0
        over = self._behind_bytes - BEHIND_BYTES_MAX
        while over > 0:
            over -= _MESSAGE_BYTES + len(self._messages[count].value)
            count += 1
        self._drop_first(count)
        if self._ahead_bytes <= AHEAD_BYTES_MAX:
            self._room.set()

    def _drop_first(self, count: int) -> None:
        if not count:
            return
        for message in self._messages[:count]:
            size = _MESSAGE_BYTES + len(message.value)
            if message.offset < self._passed:
                self._behind_bytes -= size
            else:
                self._ahead_bytes -= size
        self._first = self._messages[count - 1].offset + 1
        del self._messages[:count]
        if self._ahead_bytes <= AHEAD_BYTES_MAX:
            self._room.set()


def message_of(record: ConsumerRecord) -> Message:
    """A record as the port has it. A foreign message without a value, or whose key is no text, stays readable."""
    headers = {}
    if record.headers:
        headers = {key: (value or b"").decode(errors="replace") for key, value in record.headers}
    return Message(record.topic, record.partition, record.offset, record.value or b"", headers)


def _bytes_of(messages: list[Message]) -> int:
    """What these cost in memory, about."""
    return _MESSAGE_BYTES * len(messages) + sum(len(message.value) for message in messages)


def _offset_of(message: Message) -> int:
    return message.offset


def _name(place: TopicPartition) -> str:
    return f"{place.topic} partition {place.partition}"
