"""Kafka through the Bus port against aiokafka without it, on the broker at LARGESSE_TEST_KAFKA, in the same run.

The bare producer and consumer are set up alike: idempotent, all replicas, the same sizes. They take turns, and the
ratio is the median of the turns' ratios (above 1: the port is faster). `--quick` takes fewer records.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from largesse.bus.kafka.bus import KafkaBus
from largesse.bus.kafka.client import BATCH_BYTES_MAX, LONG_POLL_MS
from largesse.bus.kafka.topic_settings import settings_of
from largesse.bus.kafka.topics_admin import TopicsAdmin
from largesse.bus.port import Outgoing
from schemas.topics import BY_NAME, LOG

VALUE_BYTES = 300
TURNS = 5


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    one_by_one: int = 600
    at_once: int = 30_000
    read: int = 150_000
    hops: int = 600


class Bench:
    """One broker, the port and the bare clients on it."""

    def __init__(self, address: str, sizes: Sizes) -> None:
        self._address = address
        self._sizes = sizes
        self._bus = KafkaBus(address)
        # Made on the loop, as the bus makes its own.
        self._producer = AIOKafkaProducer(
            bootstrap_servers=address, enable_idempotence=True, acks="all", max_batch_size=BATCH_BYTES_MAX
        )
        self._topics = 0

    async def run(self) -> None:
        """Everything, one line each."""
        await self._producer.start()
        writer = self._bus.writer()
        await writer.send([Outgoing(await self.topic(), 0, b"warm")])
        for batch, senders in ((1, 1), (100, 1), (1, 100)):
            count = self._sizes.one_by_one if batch * senders == 1 else self._sizes.at_once
            await self.compare(
                f"append, batch {batch:3d}, senders {senders:3d}",
                count,
                partial(self.append, count=count, batch=batch, senders=senders),
                partial(self.append_bare, count=count, batch=batch, senders=senders),
            )
        full = await self.topic()
        await self.append(full, self._sizes.read, 10_000, 1)
        await self.compare(
            "read back", self._sizes.read, lambda _: self.read(full), lambda _: self.read_bare(full), anew=False
        )
        await self.hops()
        await self._producer.stop()
        await self._bus.close()

    async def topic(self) -> str:
        """A new topic like the log."""
        self._topics += 1
        name = f"bench-{os.getpid()}-{self._topics}"
        async with TopicsAdmin(self._address) as admin:
            await admin.make(name, 1, 1, settings_of(BY_NAME[LOG], 1))
        return name

    async def compare(
        self,
        what: str,
        count: int,
        ours: Callable[[str], Awaitable[None]],
        theirs: Callable[[str], Awaitable[None]],
        *,
        anew: bool = True,
    ) -> None:
        """Both in turn, on topics of their own."""
        took: list[list[float]] = [[], []]
        for _ in range(TURNS):
            for side, work in enumerate((ours, theirs)):
                topic = await self.topic() if anew else ""
                begun = time.perf_counter()
                await work(topic)
                took[side].append(time.perf_counter() - begun)
        ratio = statistics.median(bare / port for port, bare in zip(*took, strict=True))
        rates = [count / statistics.median(each) for each in took]
        print(f"{what:32s} port {rates[0]:9.0f}/s  bare {rates[1]:9.0f}/s  ratio {ratio:5.2f}", flush=True)

    async def append(self, topic: str, count: int, batch: int, senders: int) -> None:
        """Through the port, every send awaited by its sender."""
        writer = self._bus.writer()

        async def send() -> None:
            for at in range(0, count // senders, batch):
                await writer.send([Outgoing(topic, 0, value_of(at + number)) for number in range(batch)])

        await asyncio.gather(*(send() for _ in range(senders)))
        await writer.drop()

    async def append_bare(self, topic: str, count: int, batch: int, senders: int) -> None:
        """The same with the client alone."""
        producer = self._producer

        async def send() -> None:
            for at in range(0, count // senders, batch):
                on_their_way = [await producer.send(topic, value_of(at + n), partition=0) for n in range(batch)]
                await asyncio.gather(*on_their_way)

        await asyncio.gather(*(send() for _ in range(senders)))

    async def read(self, topic: str) -> None:
        """From the start to the end through the port, with connecting."""
        bus = KafkaBus(self._address)
        offset = 0
        while offset < self._sizes.read:
            offset += len(await bus.fetch(topic, 0, offset, wait_ms=10_000))
        await bus.close()

    async def read_bare(self, topic: str) -> None:
        """The same with the client alone."""
        consumer, at = await self.consumer(topic)
        offset = 0
        while offset < self._sizes.read:
            offset += len((await consumer.getmany(at, timeout_ms=10_000, max_records=1_000))[at])
        await consumer.stop()

    async def consumer(self, topic: str) -> tuple[AIOKafkaConsumer, TopicPartition]:
        """A bare consumer at the start of a topic."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._address, auto_offset_reset="none", fetch_max_wait_ms=LONG_POLL_MS
        )
        at = TopicPartition(topic, 0)
        await consumer.start()
        consumer.assign([at])
        consumer.seek(at, 0)
        return consumer, at

    async def hops(self) -> None:
        """From a send to who waits for it, one at a time, in turns."""
        ours, theirs = await self.topic(), await self.topic()
        reader, writer = KafkaBus(self._address), self._bus.writer()
        consumer, at = await self.consumer(theirs)
        took: list[list[float]] = [[], []]
        for number in range(self._sizes.hops):
            waiting = asyncio.create_task(reader.fetch(ours, 0, number, wait_ms=10_000))
            await asyncio.sleep(0)
            begun = time.perf_counter()
            await asyncio.gather(writer.send([Outgoing(ours, 0, value_of(number))]), waiting)
            took[0].append(time.perf_counter() - begun)
            bare = asyncio.create_task(consumer.getmany(at, timeout_ms=10_000))
            await asyncio.sleep(0)
            begun = time.perf_counter()
            await asyncio.gather(self._producer.send_and_wait(theirs, value_of(number), partition=0), bare)
            took[1].append(time.perf_counter() - begun)
        await consumer.stop()
        await reader.close()
        columns = []
        for name, each in zip(("port", "bare"), took, strict=True):
            cuts = statistics.quantiles([1_000 * seconds for seconds in each], n=100)
            columns.append(f"{name} p50 {cuts[49]:5.2f} ms p99 {cuts[98]:6.2f} ms")
        ratio = statistics.median(bare / port for port, bare in zip(*took, strict=True))
        print(f"{'one hop':32s} {'  '.join(columns)}  ratio {ratio:5.2f}")


def value_of(number: int) -> bytes:
    """A message of VALUE_BYTES."""
    return (b'{"n":%d,"fill":"' % number).ljust(VALUE_BYTES - 2, b"x") + b'"}'


def main() -> None:
    """Needs LARGESSE_TEST_KAFKA."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer records")
    given, _ = parser.parse_known_args()
    address = os.environ.get("LARGESSE_TEST_KAFKA")
    if not address:
        sys.exit("LARGESSE_TEST_KAFKA names no broker")
    sizes = Sizes(100, 5_000, 20_000, 100) if given.quick else Sizes()

    async def measure() -> None:
        await Bench(address, sizes).run()

    asyncio.run(measure())


if __name__ == "__main__":
    main()
