"""The Bus port on Kafka. A cell's partition number is the partition's number in every topic.

Readers have positions of their own and no group; a position that does not exist is a PositionGap, never a jump. A fetch
that waits for nothing may miss what another process appended within the last hop, but never what this bus has heard of:
its own acknowledgements, and what `bounds` returned. Input topics are read with isolation level read_committed: what a
client sends in a transaction counts once that is committed, and is held back, with all that lies behind it, until then
(infra/DECISIONS.md, 21). A topic that is missing, or would lose or refuse messages, is refused
with the command that mends it. A broker that restarts is waited for; only what stays away for `patience_ms` is a
BusError.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from largesse.bus.groups import Group
from largesse.bus.kafka.client import LONG_POLL_MS, QUESTION_BACKOFF_MS, Client, said
from largesse.bus.kafka.cluster import Cluster
from largesse.bus.kafka.dealing import assignor_of
from largesse.bus.kafka.reader import Follower
from largesse.bus.kafka.refusals import REFUSALS, may_not
from largesse.bus.kafka.topic_settings import MEMBERSHIP, TOPICS, Found, command, faults, is_volatile
from largesse.bus.kafka.topics_admin import TopicsAdmin
from largesse.bus.kafka.writer import ABANDON_MS, KafkaWriter
from largesse.bus.local import Wakeups, position_gap
from largesse.bus.port import BusError, BusRefused, Fetched, PositionGap
from schemas.topics import LOG, Topic

__all__ = ["KafkaBus", "KafkaWriter"]

PATIENCE_MS = 30_000
"""Longer than a broker takes to come back after a crash, about 10 s."""
FOLLOWERS_MAX = 8
"""Readers of one partition that may be far apart from each other before one of them is read for again."""

LOOK_MS = 20
"""How often a reader that waits for a known offset looks whether the offset was passed without a message."""

_Place = tuple[str, int]
_log = structlog.get_logger(__name__)
_warned: dict[str, bool] = {}
"""Clusters of which it was said once that they lose what they have acknowledged when the power is cut."""


class KafkaBus:
    """A cluster, or the brokers (`host:port[,host:port]`) of one without TLS. Connects when it is first used; belongs
    to one event loop.

    `topics`: what is known about topics by name; one that is not in there has to exist, no more.
    """

    def __init__(
        self,
        cluster: Cluster | str,
        *,
        client_id: str = "largesse",
        patience_ms: int = PATIENCE_MS,
        topics: Mapping[str, Topic] = TOPICS,
    ) -> None:
        cluster = cluster if isinstance(cluster, Cluster) else Cluster(cluster)
        self._cluster = cluster
        self._client = Client(cluster, client_id, patience_ms)
        self._topics = topics
        self._found: dict[str, Found] = {}
        self._admitted: dict[_Place, bool] = {}
        self._looking = asyncio.Lock()
        self._asking: dict[bool, AIOKafkaConsumer] = {}
        self._connecting = asyncio.Lock()
        self._followers: dict[_Place, list[Follower]] = {}
        self._ends: dict[_Place, int] = {}
        self._writers: dict[KafkaWriter, bool] = {}
        self._endings: dict[asyncio.Future[None], bool] = {}
        self._wakeups = Wakeups()
        self._closed = False

    def writer(self) -> KafkaWriter:
        """A new producer."""
        self._refuse_if_closed()
        writer = KafkaWriter(self._client, self._admit, self._note_acknowledged, self._dropped)
        self._writers[writer] = True
        return writer

    async def fetch(self, topic: str, partition: int, offset: int, *, wait_ms: int = 0, most: int = 1_000) -> Fetched:
        """See the port. Raises PositionGap, BusError. Cancelling it loses nothing."""
        loop = asyncio.get_running_loop()
        place, began = (topic, partition), loop.time()
        while True:
            follower = await self._follower(place, offset)
            if most <= 0:
                return Fetched((), offset)
            # In this order: a message that comes in between is not passed over.
            passed = await follower.position()
            messages = follower.read(offset, most)
            if messages:
                # A reader with a long way to catch up must not keep other tasks from the loop.
                await asyncio.sleep(0)
                return Fetched(messages, messages[-1].offset + 1)
            waited_ms = (loop.time() - began) * 1_000
            if passed > offset:
                return Fetched((), passed)
            known = self._ends.get(place, 0) > offset
            left_ms = (max(self._client.patience_ms, wait_ms) if known else wait_ms) - waited_ms
            if left_ms <= 0:
                if known:
                    raise BusError(f"{topic} partition {partition}: offset {offset} exists, but does not come")
                await asyncio.sleep(0)
                return Fetched((), offset)
            # Nothing wakes a reader when its follower passes an offset that no message has.
            await self._wakeups.wait([place], min(left_ms, LOOK_MS if known else left_ms) / 1_000)

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """See the port: what the broker says now."""
        await self._admit(topic, partition)
        place, known = (topic, partition), self._ends.get((topic, partition), 0)
        at = TopicPartition(topic, partition)
        asking = await self._asking_consumer(committed=False)
        seeing = await self._asking_consumer(committed=self._is_committed(topic))

        async def ask() -> tuple[int, int, int]:
            # What readers may see of an input topic ends at the last stable offset, before an open transaction.
            first, end = await asyncio.gather(asking.beginning_offsets([at]), asking.end_offsets([at]))
            seen = end if seeing is asking else await seeing.end_offsets([at])
            return first[at], end[at], seen[at]

        about = f"offsets of {topic} partition {partition}"
        first, end, readable = await self._client.patiently(about, ask, ("read", f"topic {topic}"))
        self._refuse_if_closed()
        if readable < known:
            # What is known was acknowledged before the question: the partition has lost its tail.
            _log.warning("partition_lost_its_tail", topic=topic, partition=partition, end=readable, known=known)
            self._ends[place] = readable
        self._note_end(place, readable)
        for follower in self._followers.get(place, ()):
            follower.forget_before(first)
        return first, end

    async def wait_any(self, positions: dict[tuple[str, int], int], wait_ms: int) -> bool:
        """True as soon as a fetch at one of the positions would not wait, be it that it would raise PositionGap."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1_000
        self._refuse_if_closed()
        while True:
            try:
                # Existing followers are asked without waiting, so no wakeup is missed below.
                followers = [await self._follower(place, offset) for place, offset in positions.items()]
            except PositionGap:
                return True
            for (place, offset), follower in zip(positions.items(), followers, strict=True):
                if not follower.covers(offset) or follower.has(offset) or self._ends.get(place, 0) > offset:
                    return True
            left = deadline - loop.time()
            if left <= 0:
                await asyncio.sleep(0)
                return False
            await self._wakeups.wait(positions, left)

    async def join(self, group: str, on_assigned: Callable[[list[int]], None]) -> None:
        """Takes part in a consumer group over the topic of shards, until it is cancelled. Raises BusError.

        `on_assigned` is called with all shards that are this bus's own, every time they are dealt out.
        """
        await self._admit(MEMBERSHIP.name, 0)
        await self._take_part(group, await self._client.member(group, MEMBERSHIP.name, on_assigned))

    async def join_cells(self, group: str, copies: int, on_dealt: Callable[[list[int]], None]) -> None:
        """As `join`, over the partitions of the log: each is dealt to `copies` members."""
        await self._admit(LOG, 0)
        await self._take_part(group, await self._client.member(group, LOG, on_dealt, assignor_of(copies)))

    async def told(self, groups: Iterable[str]) -> dict[str, Group]:
        """Who takes part in consumer groups over the topic of shards. Raises BusError."""
        names = list(groups)

        async def ask() -> dict[str, Group]:
            async with TopicsAdmin(self._cluster) as admin:
                return await admin.groups(names)

        return await self._client.patiently("groups", ask, ("see", "the groups of services"))

    async def _take_part(self, group: str, member: AIOKafkaConsumer) -> None:
        try:
            while True:
                # Nothing is ever read: it is how aiokafka tells of what went wrong.
                await member.getmany(timeout_ms=LONG_POLL_MS)
                self._refuse_if_closed()
        except REFUSALS as error:
            raise may_not(self._cluster, "take part in", f"group {group}") from error
        except KafkaError as error:
            raise BusError(f"{self._cluster.url}: {group}: {said(error)}") from error
        finally:
            await member.stop()

    async def close(self) -> None:
        """Ends every wait, drops every writer and closes every connection."""
        if self._closed:
            return
        self._closed = True
        self._wakeups.wake_all()
        for writer in list(self._writers):
            writer.give_up("the bus is closed")
        followers = [follower for each in self._followers.values() for follower in each]
        self._followers.clear()
        ends: list[asyncio.Future[None]] = [asyncio.ensure_future(follower.stop()) for follower in followers]
        ends += [asyncio.ensure_future(asking.stop()) for asking in self._asking.values()]
        ends += self._endings
        if ends:
            await asyncio.wait(ends, timeout=3 * ABANDON_MS / 1_000)

    async def _follower(self, place: _Place, offset: int) -> Follower:
        """Who reads this partition at this offset. Raises PositionGap where there is nothing to read."""
        self._refuse_if_closed()
        found = self._covering(place, offset)
        if found is not None:
            return found
        first, end = await self.bounds(*place)
        if not first <= offset <= end:
            raise position_gap(*place, offset, first, end)
        # Meanwhile another reader may have made one.
        found = self._covering(place, offset)
        if found is not None:
            return found
        committed = self._is_committed(place[0])
        found = Follower(
            self._cluster,
            *place,
            offset,
            lambda: self._client.consumer(committed=committed),
            lambda: self._wakeups.wake(*place),
        )
        followers = self._followers.setdefault(place, [])
        for follower in followers[FOLLOWERS_MAX - 1 :]:
            self._end(follower.stop())
        self._followers[place] = [found, *followers[: FOLLOWERS_MAX - 1]]
        return found

    def _covering(self, place: _Place, offset: int) -> Follower | None:
        """A follower that covers the offset, from now on the first in its list: the last one is given up first. Raises
        BusRefused where one has been refused."""
        followers = self._followers.get(place, [])
        ended = [follower for follower in followers if follower.error is not None]
        for follower in ended:
            _log.warning("follower_ended", topic=place[0], partition=place[1], reason=str(follower.error))
            followers.remove(follower)
        for follower in ended:
            if isinstance(follower.error, BusRefused):
                raise follower.error
        for number, follower in enumerate(followers):
            if follower.covers(offset):
                followers.insert(0, followers.pop(number))
                return follower
        return None

    async def _admit(self, topic: str, partition: int) -> None:
        """Raises BusError with the command that mends it where the partition may not be used as it is."""
        self._refuse_if_closed()
        if (topic, partition) in self._admitted:
            return
        async with self._looking:
            if not self._found:
                self._found = await self._look([topic, *self._topics])
            for look_again in (True, False):
                found = self._found.get(topic)
                wrong = faults(topic, self._topics.get(topic), found, partition)
                if not wrong:
                    break
                if not look_again:
                    mend = command(self._cluster.shown, topic, partition, found)
                    raise BusError(f"{self._cluster.url}: {'; '.join(wrong)}. Run: {mend}")
                self._found.pop(topic, None)
                self._found |= await self._look([topic], refuse=True)
        self._admitted[topic, partition] = True
        if self._cluster.brokers not in _warned and is_volatile(self._topics.get(topic), self._found.get(topic)):
            _warned[self._cluster.brokers] = True
            mend = f"{command(self._cluster.shown, topic, partition, self._found.get(topic))} --flush"
            _log.warning("one_replica_not_flushed", topic=topic, risk="a power cut loses acknowledged jobs", mend=mend)

    async def _look(self, names: list[str], *, refuse: bool = False) -> dict[str, Found]:
        async def ask() -> dict[str, Found]:
            async with TopicsAdmin(self._cluster) as admin:
                return await admin.describe(names, refuse=refuse)

        return await self._client.patiently("describe topics", ask)

    async def _asking_consumer(self, *, committed: bool) -> AIOKafkaConsumer:
        """A consumer that reads nothing, so that no long poll is in the way of a question."""
        async with self._connecting:
            if committed not in self._asking:
                self._asking[committed] = await self._client.consumer(QUESTION_BACKOFF_MS, committed=committed)
        self._refuse_if_closed()
        return self._asking[committed]

    def _is_committed(self, name: str) -> bool:
        """Whether only committed messages of a topic are read. In the log the token decides what counts, and of
        decisions the name: there, an open transaction of a stranger must not hold back the cell's own messages.
        """
        topic = self._topics.get(name)
        return topic is not None and topic.kind == "input"

    def _note_acknowledged(self, place: _Place, end: int) -> None:
        # Behind a transaction that is still open, what was acknowledged cannot be read yet.
        if not self._is_committed(place[0]):
            self._note_end(place, end)

    def _note_end(self, place: _Place, end: int) -> None:
        if end > self._ends.get(place, 0):
            self._ends[place] = end
            self._wakeups.wake(*place)

    def _dropped(self, writer: KafkaWriter, rest: Awaitable[None]) -> None:
        self._writers.pop(writer, None)
        self._end(rest)

    def _end(self, rest: Awaitable[None]) -> None:
        ending = asyncio.ensure_future(rest)
        self._endings[ending] = True
        ending.add_done_callback(lambda ended: self._endings.pop(ended, None))

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise BusError("the bus is closed")
