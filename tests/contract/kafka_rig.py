"""A real Kafka for tests: the broker at LARGESSE_TEST_KAFKA, else a container of the public image, else a skip.

Topics get names that no other run has, so a broker may be shared and kept.
"""

import asyncio
import atexit
import itertools
import os
import subprocess
import uuid
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from largesse.bus.kafka.bus import KafkaBus
from largesse.bus.kafka.topics_admin import TopicsAdmin, put_right
from schemas.topics import Topic
from tests.contract.rig import Rig
from tests.ports import free_port

TRANSACTION_MS = 600_000
MARKER_SECONDS = 240
"""A guard: what was decided shows within milliseconds, or a second on a machine that others use too."""
IMAGE = "apache/kafka:4.1.0"

_run = uuid.uuid4().hex[:8]
_numbers = itertools.count()


def new_name(what: str = "topic") -> str:
    """A topic name that nobody has."""
    return f"test-{_run}-{os.getpid()}-{next(_numbers)}-{what}"


@cache
def kafka_address() -> str:
    """host:port of a broker that tests may fill with topics. Skips where there is none."""
    address = os.environ.get("LARGESSE_TEST_KAFKA")
    if address:
        return address
    if not _has_image():
        pytest.skip(f"no Kafka: set LARGESSE_TEST_KAFKA=host:port, or have {IMAGE} in a Docker engine")
    return _start_container()


def _has_image() -> bool:
    """Whether a container can be started at once: a test run is no time to fetch half a gigabyte."""
    try:
        asked = subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def _start_container() -> str:
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    from testcontainers.core.container import DockerContainer

    port = free_port()
    said = {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@127.0.0.1:9093",
        "KAFKA_LISTENERS": f"PLAINTEXT://:{port},CONTROLLER://127.0.0.1:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    }
    container = DockerContainer(IMAGE).with_bind_ports(port, port)
    for key, value in said.items():
        container = container.with_env(key, value)
    container.start()
    atexit.register(container.stop)
    address = f"127.0.0.1:{port}"
    asyncio.run(_until_it_answers(address))
    return address


async def _until_it_answers(address: str) -> None:
    bus = KafkaBus(address, patience_ms=60_000)
    try:
        await bus._look([])
    finally:
        await bus.close()


async def make_topic(address: str, name: str, partitions: int, **settings: str) -> str:
    """Makes a topic of one replica, and waits until it shows; `settings` with underscores for points."""
    async with TopicsAdmin(address) as admin, asyncio.timeout(MARKER_SECONDS):
        await admin.make(name, partitions, 1, {key.replace("_", "."): value for key, value in settings.items()})
        while name not in await admin.describe([name]):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return name


async def put_right_at_once(address: str, topics: Collection[Topic], **how: Any) -> None:
    """Puts topics right and waits until the broker shows it: a change may be decided and answered before it shows."""
    _, right = await put_right(address, topics, **how)
    assert right, "topics could not be put right"
    async with asyncio.timeout(MARKER_SECONDS):
        while not (await put_right(address, topics, **{**how, "check": True}))[1]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def delete_before(address: str, topic: str, partition: int, offset: int) -> None:
    """What retention does, at once."""
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        await admin.delete_records({TopicPartition(topic, partition): RecordsToDelete(offset)})
    finally:
        await admin.close()


async def transact(address: str, topic: str, values: list[bytes], *, partition: int = 0, commit: bool = True) -> None:
    """Appends messages in one transaction, as another client may, and commits or aborts it. Returns once the marker
    stands in the partition: the coordinator answers before it writes it.
    """
    async with transactional(address) as producer:
        await producer.begin_transaction()
        offsets = [(await producer.send_and_wait(topic, value, partition=partition)).offset for value in values]
        await (producer.commit_transaction() if commit else producer.abort_transaction())
    await until_it_ends(address, topic, partition, offsets[-1] + 2)


async def until_it_ends(address: str, topic: str, partition: int, offset: int) -> None:
    """Waits until the last stable offset of a partition has come to `offset`."""
    place = TopicPartition(topic, partition)
    consumer = AIOKafkaConsumer(bootstrap_servers=address, isolation_level="read_committed")
    await consumer.start()
    try:
        consumer.assign([place])
        async with asyncio.timeout(MARKER_SECONDS):
            while (await consumer.end_offsets([place]))[place] < offset:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    finally:
        await consumer.stop()


@asynccontextmanager
async def transactional(address: str) -> AsyncIterator[AIOKafkaProducer]:
    """A stranger's producer with transactions. One that is open when it stops stays open until it times out."""
    producer = AIOKafkaProducer(
        bootstrap_servers=address, transactional_id=new_name("stranger"), transaction_timeout_ms=TRANSACTION_MS
    )
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def kafka_rig(folder: Path) -> AsyncIterator[Rig]:
    address = await asyncio.to_thread(kafka_address)
    bus = KafkaBus(address)

    async def topic(partitions: int) -> str:
        return await make_topic(address, new_name(), partitions)

    async def retire(topic: str, partition: int, before: int) -> None:
        await delete_before(address, topic, partition, before)

    async def transaction(topic: str, partition: int, values: list[bytes]) -> None:
        await transact(address, topic, values, partition=partition)

    yield Rig(bus, topic, retire, transaction)
    await bus.close()
