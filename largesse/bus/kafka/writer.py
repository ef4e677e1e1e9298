"""Appending to Kafka: one idempotent producer a writer, acknowledged by all replicas, and no transactions.

What is sent while an append is on its way goes into the next one, a batch for each partition. A partition's next batch
leaves only when the one before is acknowledged, so what arrives of a failed send is a prefix. The first failure, or an
acknowledgement that stays away, ends the writer: whether its last messages arrived is unknown, and it sends no more.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from largesse.bus.kafka.client import Client, abandon, said
from largesse.bus.kafka.refusals import REFUSALS, may_not, why_not_let_in
from largesse.bus.port import BusError, BusRefused, Outgoing, check_sizes

APPEND_MESSAGES_MAX = 10_000
"""Messages of one append; more wait for the next."""
ABANDON_MS = 1_000

_Place = tuple[str, int]
_Headers = list[tuple[str, bytes]]


@dataclass(slots=True)
class _Send:
    batch: list[Outgoing]
    texts: list[tuple[bytes | None, _Headers]]
    done: asyncio.Future[list[int]]
    offsets: list[int] = field(default_factory=list)
    missing: int = 0


@dataclass(slots=True)
class _Item:
    """One message of a send: the `index`-th of its batch."""

    send: _Send
    index: int


class KafkaWriter:
    """A producer of a KafkaBus. Every send is acknowledged by all replicas, durable or not: only then it has offsets.

    `admit` is asked about each partition before anything is sent there, and raises BusError; `note` is given the offset
    after what was acknowledged; `dropped` is called once, with what is left to do.
    """

    def __init__(
        self,
        client: Client,
        admit: Callable[[str, int], Awaitable[None]],
        note: Callable[[_Place, int], None],
        dropped: Callable[["KafkaWriter", Awaitable[None]], None],
    ) -> None:
        self._client = client
        self._admit = admit
        self._note = note
        self._on_drop = dropped
        self._queue: deque[_Send] = deque()
        self._sent: list[_Send] = []
        self._more = asyncio.Event()
        self._producer: AIOKafkaProducer | None = None
        self._task: asyncio.Task[None] | None = None
        self._refusal: BusError | None = None

    async def send(self, batch: list[Outgoing], *, durable: bool = True) -> list[int]:
        """See the port. Raises BusError; MessageTooLarge, which leaves the writer as it was; TypeError for texts that
        are no Unicode. Cancelling it takes nothing back."""
        if self._refusal is not None:
            raise type(self._refusal)(str(self._refusal))
        check_sizes(batch)
        if not batch:
            return []
        send = _Send(list(batch), [_texts_of(each) for each in batch], asyncio.get_running_loop().create_future())
        send.offsets, send.missing = [-1] * len(batch), len(batch)
        # A sender that was cancelled never looks.
        send.done.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._queue.append(send)
        self._more.set()
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await asyncio.shield(send.done)

    async def drop(self) -> None:
        """See the port. Returns at once; connections close in the background."""
        self.give_up("this writer was dropped")

    def give_up(self, why: str, *, refused: bool = False) -> None:
        """Fails what is not acknowledged, and all that comes later, with BusError(why), or BusRefused."""
        if self._refusal is not None:
            return
        self._refusal = BusRefused(why) if refused else BusError(why)
        for send in (*self._sent, *self._queue):
            if not send.done.done():
                unknown = f"{why}; what was on its way may or may not arrive"
                send.done.set_exception(BusRefused(why) if refused else BusError(unknown))
        self._queue.clear()
        self._on_drop(self, self._end())

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._producer is not None:
            await abandon(self._producer, ABANDON_MS)

    async def _work(self) -> None:
        try:
            self._producer = await self._client.producer()
            while True:
                await self._more.wait()
                self._more.clear()
                while self._queue:
                    await self._append(self._producer)
        except BusRefused as error:
            self.give_up(str(error), refused=True)
        except BusError as error:
            self.give_up(str(error))
        except (KafkaError, TimeoutError, AssertionError, ValueError) as error:
            self.give_up(f"{self._client.cluster.url}: append: {said(error)}")

    async def _append(self, producer: AIOKafkaProducer) -> None:
        """Sends what waits, and answers each sender when all of its messages are acknowledged. Raises as aiokafka."""
        waiting: dict[_Place, deque[_Item]] = {}
        count = 0
        while self._queue and count < APPEND_MESSAGES_MAX:
            send = self._queue.popleft()
            self._sent.append(send)
            count += len(send.batch)
            for index, each in enumerate(send.batch):
                waiting.setdefault((each.topic, each.partition), deque()).append(_Item(send, index))
        for place in waiting:
            await self._admit(*place)
        while waiting:
            packed = [(place, *_pack(producer, items)) for place, items in waiting.items()]
            await self._send_all(producer, packed)
            waiting = {place: items for place, items in waiting.items() if items}
        self._sent.clear()

    async def _send_all(self, producer: AIOKafkaProducer, packed: list[tuple[_Place, object, list[_Item]]]) -> None:
        async def send(place: _Place, batch: object, items: list[_Item]) -> None:
            topic, partition = place
            try:
                done = await (await producer.send_batch(batch, topic, partition=partition))
            except REFUSALS as error:
                raise may_not(self._client.cluster, "write to", f"topic {topic}") from error
            if done.offset < 0:
                raise BusError(f"{topic} partition {partition}: appended, but the broker does not tell where")
            self._note(place, done.offset + len(items))
            for number, item in enumerate(items):
                item.send.offsets[item.index] = done.offset + number
                item.send.missing -= 1
                if not item.send.missing and not item.send.done.done():
                    item.send.done.set_result(item.send.offsets)

        sends = [asyncio.ensure_future(send(*each)) for each in packed]
        try:
            async with asyncio.timeout(self._client.patience_ms / 1_000):
                # All are waited for: what another partition acknowledges is acknowledged all the same.
                outcomes = await asyncio.gather(*sends, return_exceptions=True)
        except TimeoutError:
            if (why := await why_not_let_in(self._client.cluster)) is not None:
                raise why from None
            raise BusError(f"append: no acknowledgement within {self._client.patience_ms} ms") from None
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome


def _pack(producer: AIOKafkaProducer, items: deque[_Item]) -> tuple[object, list[_Item]]:
    """A batch of as many of these messages as fit, and which they are. Takes them away from `items`."""
    batch = producer.create_batch()
    packed = []
    while items:
        item = items[0]
        each = item.send.batch[item.index]
        key, headers = item.send.texts[item.index]
        taken = batch.append(timestamp=None, key=key, value=each.value, headers=headers)
        if taken is None:
            break
        packed.append(items.popleft())
    batch.close()
    assert packed, "a message within MESSAGE_BYTES_MAX does not fit into a batch of its own"
    return batch, packed


def _texts_of(each: Outgoing) -> tuple[bytes | None, _Headers]:
    """Key and headers as they are sent. Without a key no two messages are the same to compaction."""
    try:
        headers = [(name.encode().decode(), value.encode()) for name, value in each.headers.items()]
        return each.key.encode() or None, headers
    except UnicodeEncodeError as error:
        raise TypeError(f"{each.topic}: its key or a header is no Unicode text: {error}") from error
