"""Kafka topics as Largesse needs them: made where missing, mended where they would lose or refuse messages.

    python -m largesse.bus.kafka.topics_admin --bootstrap HOST:PORT
        [--cells N] [--grow] [--replicas N] [--flush] [--check] [--wait SECONDS]

What is right already is left alone, so it may run any number of times. Partitions are added only with --grow, and never
taken away. With --flush, a broker that holds the only copy of a topic writes every message to its disk before it
acknowledges it. Exit codes: 0 all is right now, 1 it is not (what, and what would mend it, on stdout), 2 wrong usage,
3 the cluster does not answer.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError, for_code

from largesse.bus.kafka.client import Client
from largesse.bus.port import BusError
from largesse.telemetry import configure
from schemas.edge.config import SHARDS_MAX
from schemas.topics import BY_NAME, SHARDED, SNAPSHOTS, Topic
from schemas.wording import plural

MESSAGE_BYTES_MIN = 1_048_576
"""What a topic must accept in one message: RECORD_BYTES_MAX, its header and a batch around it."""
INPUT_DAYS = 14
INPUT_DAYS_MIN = 7
LETTER_DAYS = 90
SNAPSHOT_SEGMENT_BYTES = 64 << 20
REPLICAS = 3
FLUSH = "flush.messages"
FLUSHED = ("input", "log", "decision")
"""Kinds of topics that have to be on disk together: a closing names decisions, and a record its input."""

MEMBERSHIP = Topic("shards", "aside", (), (), ("all",))
"""Nothing is ever written here: its partitions stand for shards, and who is assigned one serves that shard."""

TOPICS = {**BY_NAME, MEMBERSHIP.name: MEMBERSHIP}

_DAY_MS = 24 * 60 * 60 * 1_000
_SET_ON_TOPIC = 1  # Kafka's number for "this value was set on the topic itself".


@dataclass(frozen=True, slots=True)
class Found:
    """A topic as the cluster has it. `own`: the settings that were made on the topic itself."""

    partitions: int
    replicas: int
    settings: dict[str, str]
    own: dict[str, str]


def partitions_of(name: str, cells: int) -> int:
    """How many partitions a topic has for so many cells."""
    if name == MEMBERSHIP.name:
        return SHARDS_MAX
    return cells * SHARDS_MAX if name in SHARDED else cells


def settings_of(topic: Topic, replicas: int, *, flush: bool = False) -> dict[str, str]:
    """What a new topic is made with. `flush`: one copy is to outlast a power cut."""
    settings = {
        "cleanup.policy": topic.cleanup,
        # A sender's clock, if it is wrong, would age what it sent.
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(MESSAGE_BYTES_MIN),
        "unclean.leader.election.enable": "false",
        "min.insync.replicas": "2" if replicas >= REPLICAS else "1",
        "retention.bytes": "-1",
    }
    if flush and replicas == 1 and topic.kind in FLUSHED:
        settings[FLUSH] = "1"
    if topic.name == SNAPSHOTS:
        # The segment that is written is never compacted: a small one, so that old snapshots go.
        settings["segment.bytes"] = str(SNAPSHOT_SEGMENT_BYTES)
    days = {"input": INPUT_DAYS, "aside": LETTER_DAYS}.get(topic.kind)
    settings["retention.ms"] = "-1" if days is None else str(days * _DAY_MS)
    return settings


def faults(name: str, topic: Topic | None, found: Found | None, partition: int) -> list[str]:
    """What is wrong with a topic for who wants to use this partition. `topic`: None for one that is not ours."""
    if found is None:
        return [f"topic {name} is missing"]
    wrong = []
    if partition >= found.partitions:
        wrong.append(f"topic {name} has {plural(found.partitions, 'partition')}, number {partition} is not among them")
    if topic is not None:
        wrong += [f"topic {name} has {key}={found.settings.get(key)}, {need}" for key, need in _lacking(topic, found)]
    return wrong


def _lacking(topic: Topic, found: Found) -> list[tuple[str, str]]:
    """Settings that have to be another, and how."""

    def number(key: str) -> int:
        return int(found.settings.get(key, "0"))

    lacking = []
    for key, right in (("cleanup.policy", topic.cleanup), ("message.timestamp.type", "LogAppendTime")):
        if found.settings.get(key) != right:
            lacking.append((key, f"needs {right}"))
    if number("max.message.bytes") < MESSAGE_BYTES_MIN:
        lacking.append(("max.message.bytes", f"needs at least {MESSAGE_BYTES_MIN}"))
    if topic.kind in ("log", "decision"):
        lacking += [
            (key, f"needs {right}")
            for key, right in (
                ("retention.ms", "-1"),
                ("retention.bytes", "-1"),
                ("unclean.leader.election.enable", "false"),
            )
            if found.settings.get(key) != right
        ]
        if found.replicas >= REPLICAS and number("min.insync.replicas") < 2:
            lacking.append(("min.insync.replicas", "needs at least 2"))
    if topic.kind == "input":
        if 0 <= number("retention.ms") < INPUT_DAYS_MIN * _DAY_MS:
            lacking.append(("retention.ms", f"needs at least {INPUT_DAYS_MIN * _DAY_MS}"))
        if number("retention.bytes") >= 0:
            lacking.append(("retention.bytes", "needs -1"))
    return lacking


def is_volatile(topic: Topic | None, found: Found | None) -> bool:
    """Whether a power cut of its only broker may lose acknowledged messages of a topic."""
    if topic is None or found is None or topic.kind not in FLUSHED:
        return False
    return found.replicas == 1 and found.settings.get(FLUSH) != "1"


def command(bootstrap: str, name: str, partition: int, found: Found | None) -> str:
    """What to run to mend a topic for who wants to use this partition."""
    if name not in TOPICS:
        return f"kafka-topics.sh --bootstrap-server {bootstrap} --create --topic {name} --partitions {partition + 1}"
    cell = partition // SHARDS_MAX if name in SHARDED else partition
    cells = f" --cells {cell + 1}" if cell and name != MEMBERSHIP.name else ""
    grow = " --grow" if found is not None and partition >= found.partitions else ""
    return f"python -m largesse.bus.kafka.topics_admin --bootstrap {bootstrap}{cells}{grow}"


class TopicsAdmin:
    """A connection for questions about topics, and for changing them. Every call may raise KafkaError."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._client: AIOKafkaAdminClient | None = None

    async def __aenter__(self) -> "TopicsAdmin":
        self._client = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap, client_id="largesse-topics")
        try:
            await self._client.start()
        except BaseException:
            await self._client.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        await self._admin.close()

    @property
    def _admin(self) -> AIOKafkaAdminClient:
        assert self._client is not None, "used outside of `async with`"
        return self._client

    async def brokers(self) -> int:
        """How many brokers there are now."""
        return len((await self._admin.describe_cluster())["brokers"])

    async def describe(self, names: Iterable[str]) -> dict[str, Found]:
        """Those of these topics that exist."""
        # Asked for by name, a missing topic would be made by a broker that makes topics on the fly.
        wanted = dict.fromkeys(names)
        exist = {each["topic"]: each["partitions"] for each in await self._admin.describe_topics()}
        there = [name for name in wanted if exist.get(name)]
        if not there:
            return {}
        answers = await self._admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name) for name in there])
        described = {}
        for code, message, _, name, entries in (each[:5] for answer in answers for each in answer.resources):
            if code == UnknownTopicOrPartitionError.errno and name not in await self._names():
                continue  # It was deleted between the two questions.
            _check(code, f"settings of {name}: {message}")
            settings = {entry[0]: entry[1] for entry in entries}
            own = {entry[0]: entry[1] for entry in entries if entry[3] == _SET_ON_TOPIC}
            described[name] = Found(len(exist[name]), len(exist[name][0]["replicas"]), settings, own)
        return described

    async def _names(self) -> list[str]:
        return [each["topic"] for each in await self._admin.describe_topics()]

    async def make(self, name: str, partitions: int, replicas: int, settings: dict[str, str]) -> None:
        """Makes a topic. Another that is made at the same time is no error."""
        answer = await self._admin.create_topics([NewTopic(name, partitions, replicas, topic_configs=settings)])
        for each in answer.topic_errors:
            if for_code(each[1]).__name__ != "TopicAlreadyExistsError":
                _check(each[1], f"topic {name}: {each[2] if len(each) > 2 else ''}")

    async def mend(self, name: str, found: Found, settings: dict[str, str]) -> None:
        """Sets these settings on a topic; those that were made on it before stay."""
        whole = {**found.own, **settings}
        for answer in await self._admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, whole)]):
            for each in answer.resources:
                _check(each[0], f"settings of {name}: {each[1]}")

    async def grow(self, name: str, partitions: int) -> None:
        """Adds partitions until there are so many."""
        await self._admin.create_partitions({name: NewPartitions(partitions)})


async def partitions_now(bootstrap: str, name: str) -> int:
    """How many partitions a topic has; 0 where it is missing. Raises BusError."""
    try:
        async with TopicsAdmin(bootstrap) as admin:
            found = (await admin.describe([name])).get(name)
    except KafkaError as error:
        raise BusError(f"kafka://{bootstrap}: {error}") from error
    return found.partitions if found is not None else 0


def _check(code: int, about: str) -> None:
    if code:
        raise for_code(code)(about)


async def put_right(
    bootstrap: str,
    topics: Iterable[Topic],
    *,
    cells: int,
    replicas: int = 0,
    grow: bool = False,
    check: bool = False,
    flush: bool = False,
) -> tuple[list[str], bool]:
    """Makes and mends topics, or with `check` only looks. Lines about what was (or is to be) done, and whether all is
    right now. `replicas` 0: three, or as many as there are brokers. Raises KafkaError.
    """
    lines, right = [], True
    async with TopicsAdmin(bootstrap) as admin:
        copies = replicas or min(REPLICAS, await admin.brokers())
        all_topics = list(topics)
        there = await admin.describe(topic.name for topic in all_topics)
        for topic in all_topics:
            done, good = await _put_one_right(
                admin,
                topic,
                there.get(topic.name),
                partitions_of(topic.name, cells),
                copies,
                grow=grow,
                check=check,
                flush=flush,
            )
            lines += [f"{topic.name}: {line}" for line in done]
            right = right and good
    return lines, right


async def _put_one_right(
    admin: TopicsAdmin,
    topic: Topic,
    found: Found | None,
    partitions: int,
    replicas: int,
    *,
    grow: bool,
    check: bool,
    flush: bool,
) -> tuple[list[str], bool]:
    name = topic.name
    if found is None:
        if check:
            return ["missing"], False
        await admin.make(name, partitions, replicas, settings_of(topic, replicas, flush=flush))
        return [f"made, {plural(partitions, 'partition')}, {plural(replicas, 'replica')}"], True
    lines, right = [], True
    lacking = _lacking(topic, found)
    if flush and is_volatile(topic, found):
        lacking.append((FLUSH, "needs 1"))
    if lacking:
        wanted = settings_of(topic, found.replicas, flush=flush)
        lines += [f"{key} {found.settings.get(key)} -> {wanted[key]}" for key, _ in lacking]
        if check:
            right = False
        else:
            await admin.mend(name, found, {key: wanted[key] for key, _ in lacking})
    if found.partitions < partitions:
        if grow and not check:
            await admin.grow(name, partitions)
            lines.append(f"{found.partitions} -> {plural(partitions, 'partition')}")
        else:
            lines.append(f"has {plural(found.partitions, 'partition')}, needs {partitions}: --grow adds them")
            right = False
    return lines or ["right"], right


def main(arguments: list[str] | None = None) -> int:
    """The command. Returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m largesse.bus.kafka.topics_admin", description=__doc__.partition("\n")[0]
    )
    default = os.environ.get("LARGESSE_BUS", "").removeprefix("kafka://")
    parser.add_argument("--bootstrap", default=default, help="host:port[,host:port]; by default that of LARGESSE_BUS")
    parser.add_argument("--cells", type=_positive, default=1, help="how many cells share the cluster (1)")
    parser.add_argument("--replicas", type=_positive, default=0, help="of new topics (3, or the number of brokers)")
    parser.add_argument("--grow", action="store_true", help="add partitions where there are too few")
    parser.add_argument("--flush", action="store_true", help="of topics with one replica, flush every message to disk")
    parser.add_argument("--check", action="store_true", help="change nothing, only say what is wrong")
    parser.add_argument("--wait", type=_positive, default=1, metavar="SECONDS", help="for a cluster that starts (1)")
    told = parser.parse_args(arguments)
    if ":" not in told.bootstrap or "/" in told.bootstrap:
        parser.error("which cluster? --bootstrap HOST:PORT, or LARGESSE_BUS=kafka://HOST:PORT")

    async def work() -> tuple[list[str], bool]:
        how = {
            "cells": told.cells,
            "replicas": told.replicas,
            "grow": told.grow,
            "check": told.check,
            "flush": told.flush,
        }
        client = Client(told.bootstrap, "largesse-topics", 1_000 * told.wait)
        return await client.patiently("topics", lambda: put_right(told.bootstrap, TOPICS.values(), **how))

    configure()
    try:
        lines, right = asyncio.run(work())
    except BusError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0 if right else 1


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
