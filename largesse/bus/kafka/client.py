"""aiokafka as we use it: consumers that only read, producers that only append, both known by one client id.

An unreachable broker is tried again until `patience_ms` is over; then BusError says what was tried. One that lets this
process not in, or refuses what it asks for, is not: BusRefused says why (refusals.py). aiokafka's own
lines are thinned out, so that an outage does not drown everything else.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeVar

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, NodeNotReadyError

from largesse.bus.kafka.cluster import AccessWrong, Cluster
from largesse.bus.kafka.refusals import REFUSALS, may_not, why_not_let_in
from largesse.bus.port import BusError, BusRefused

BATCH_BYTES_MAX = 1_000_000
"""What one append holds at most. Has room for MESSAGE_BYTES_MAX of bus.py, as MESSAGE_BYTES_MIN of topics_admin has for
this."""
REQUEST_BYTES_MAX = 1_048_576
LONG_POLL_MS = 5_000
"""How long a broker keeps an idle reader's question before it says that there is nothing."""
REQUEST_MS = 10_000
"""After this a question that has no answer is asked again, on a new connection."""
BACKOFF_MS = 50
QUESTION_BACKOFF_MS = 10
"""The first question about a topic always fails once, while aiokafka learns where the topic lies."""
SESSION_MS = 6_000
"""A killed member's share is dealt out again after so long (the least that brokers take); who ends in order says so."""
HEARTBEAT_MS = 1_500
MEMBER_LOOK_MS = 5_000
"""How often a member looks whether the topic has got more partitions, which are then dealt out too."""
SAME_LINE_SECONDS = 10
LOOK_SECONDS = 3
"""How often it is looked why a broker lets nobody in, while it is tried."""

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")


class Client:
    """What every connection to one cluster has in common."""

    def __init__(self, cluster: Cluster, client_id: str, patience_ms: int) -> None:
        self.cluster = cluster
        self.client_id = client_id
        self.patience_ms = patience_ms
        thin_out_log()

    async def consumer(self, backoff_ms: int = BACKOFF_MS, *, committed: bool = False) -> AIOKafkaConsumer:
        """A started consumer that is a member of no group. Raises BusError.

        `committed`: it sees a transaction's messages only once that is committed, and nothing behind an open one.
        """

        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(
                **self.cluster.options(),
                client_id=self.client_id,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="none",
                isolation_level="read_committed" if committed else "read_uncommitted",
                fetch_max_wait_ms=LONG_POLL_MS,
                request_timeout_ms=LONG_POLL_MS + REQUEST_MS,
                retry_backoff_ms=backoff_ms,
            )
            try:
                await consumer.start()
            except BaseException:
                await consumer.stop()
                raise
            return consumer

        return await self.patiently("connect", start)

    async def producer(self) -> AIOKafkaProducer:
        """A started idempotent producer. Raises BusError."""

        async def start() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(
                **self.cluster.options(),
                client_id=self.client_id,
                enable_idempotence=True,
                acks="all",
                max_batch_size=BATCH_BYTES_MAX,
                max_request_size=REQUEST_BYTES_MAX,
                request_timeout_ms=REQUEST_MS,
                retry_backoff_ms=BACKOFF_MS,
            )
            try:
                await producer.start()
            except BaseException:
                await producer.stop()
                raise
            return producer

        return await self.patiently("connect", start, ("write to", "any topic"))

    async def member(
        self,
        group: str,
        topic: str,
        on_assigned: Callable[[list[int]], None],
        assignor: type[AbstractPartitionAssignor] = RoundRobinPartitionAssignor,
    ) -> AIOKafkaConsumer:
        """A started member of a consumer group that is dealt partitions and reads nothing. Raises BusError.

        `on_assigned` is called with all partitions that are its own, every time they are dealt out. `assignor`: by
        which the group's leader deals.
        """

        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(
                **self.cluster.options(),
                client_id=self.client_id,
                group_id=group,
                enable_auto_commit=False,
                auto_offset_reset="latest",
                partition_assignment_strategy=(assignor,),
                metadata_max_age_ms=MEMBER_LOOK_MS,
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=HEARTBEAT_MS,
                fetch_max_wait_ms=LONG_POLL_MS,
                request_timeout_ms=LONG_POLL_MS + REQUEST_MS,
                retry_backoff_ms=BACKOFF_MS,
            )
            consumer.subscribe([topic], listener=_Dealt(consumer, on_assigned))
            try:
                await consumer.start()
            except BaseException:
                await consumer.stop()
                raise
            return consumer

        return await self.patiently(f"join {group}", start, ("take part in", f"group {group}"))

    async def patiently(
        self, what: str, ask: Callable[[], Awaitable[_T]], right: tuple[str, str] = ("do", "this")
    ) -> _T:
        """Asks until there is an answer. Raises BusError when patience is over or asking again would not help, and
        BusRefused. `right`: what the answer depends on, to do what with what.
        """
        last: Exception | None = None
        look_s = 0.0
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(self.patience_ms / 1_000):
                while True:
                    try:
                        return await ask()
                    except REFUSALS as error:
                        raise may_not(self.cluster, *right) from error
                    except AccessWrong as error:
                        raise BusRefused(f"{self.cluster.url}: {error}") from None
                    except KafkaError as error:
                        if not error.retriable and not isinstance(error, KafkaTimeoutError):
                            raise BusError(f"{self.cluster.url}: {what}: {said(error)}") from error
                        last = error
                    if isinstance(last, (KafkaConnectionError, NodeNotReadyError)) and clock() >= look_s:
                        if (refused := await why_not_let_in(self.cluster)) is not None:
                            raise refused from last
                        look_s = clock() + LOOK_SECONDS
                    await asyncio.sleep(BACKOFF_MS / 1_000)
        except TimeoutError:
            why = said(last) if last else "no answer"
            tried = f"{self.cluster.url}: {what}: {why}, tried for {self.patience_ms} ms"
            raise NoAnswer(tried) from last


class NoAnswer(BusError):
    """Patience is over: the cluster may only need more time."""


def said(error: BaseException) -> str:
    """What an error of aiokafka is about, in one line."""
    text = str(error)
    name = type(error).__name__
    if isinstance(error, KafkaConnectionError):
        return f"cannot be reached ({text})"
    return text if name in text else f"{name}: {text}"


async def abandon(producer: AIOKafkaProducer, within_ms: int) -> None:
    """Ends a producer without sending what it still has: `stop` would go on until all of it is sent."""
    # aiokafka has no public way: the task that sends has to end, and nothing may flush after it.
    producer._closed = True
    with suppress(TimeoutError, KafkaError):
        async with asyncio.timeout(within_ms / 1_000):
            await producer._sender.close()
    with suppress(TimeoutError, KafkaError):
        async with asyncio.timeout(within_ms / 1_000):
            await producer.client.close()


class _Dealt(ConsumerRebalanceListener):  # type: ignore[misc]
    """Hands on what a group deals out, and keeps its member from reading."""

    def __init__(self, consumer: AIOKafkaConsumer, on_assigned: Callable[[list[int]], None]) -> None:
        self._consumer = consumer
        self._on_assigned = on_assigned

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Nothing: the next assignment follows at once, and until then this instance goes on answering."""

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """All that is its own from now on."""
        self._consumer.pause(*assigned)
        self._on_assigned(sorted(each.partition for each in assigned))


class _Thinned(logging.Handler):
    """Passes aiokafka's warnings on as lines of ours, the same one not more than once in SAME_LINE_SECONDS."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said_at: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        template = f"{record.name} {record.msg}"
        before = self._said_at.get(template)
        # A line from the future is of a wall clock that was set back since.
        if before is not None and abs(record.created - before) < SAME_LINE_SECONDS:
            return
        self._said_at[template] = record.created
        _log.warning("kafka_client", logger=record.name, said=record.getMessage())


def thin_out_log() -> None:
    """Takes aiokafka's own log over, once a process, unless the program has set it up otherwise."""
    theirs = logging.getLogger("aiokafka")
    if not theirs.handlers:
        theirs.addHandler(_Thinned())
        theirs.propagate = False
