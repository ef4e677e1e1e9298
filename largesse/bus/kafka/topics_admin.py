"""Kafka topics as Largesse needs them: made where missing, mended where they would lose or refuse messages.

    python -m largesse.bus.kafka.topics_admin --bootstrap HOST:PORT
        [--cells N] [--grow] [--replicas N] [--flush] [--acls [--prune]] [--check] [--wait SECONDS]

What is right already is left alone, so it may run any number of times. Partitions are added only with --grow, and never
taken away. With --flush, a broker that holds the only copy of a topic writes every message to its disk before it
acknowledges it. With --acls each principal gets its rights (rights.py); what principals have beyond them is taken away
only with --prune. Exit codes: 0 all is right now, 1 it is not (what, and what would mend it, on stdout), 2 wrong usage,
3 the cluster does not answer.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Iterable
from types import TracebackType

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.metadata import MetadataRequest

from largesse.bus.groups import Group, Member
from largesse.bus.kafka.acls import put_rights
from largesse.bus.kafka.client import Client, NoAnswer
from largesse.bus.kafka.cluster import PLAIN, AccessWrong, BusUrlWrong, Cluster, cluster_of
from largesse.bus.kafka.refusals import may_not, why_not_let_in
from largesse.bus.kafka.topic_settings import (
    FLUSH,
    REPLICAS,
    TOPICS,
    Found,
    is_volatile,
    partitions_of,
    settings_lacking,
    settings_of,
)
from largesse.bus.port import BusError
from largesse.telemetry import configure
from schemas.topics import Topic
from schemas.wording import plural

WAIT_S = 10
"""For how long an answer of the cluster is waited for: one that has just been started takes some seconds."""

_SETTLED = ("Stable", "Empty", "Dead")
"""States of a consumer group in which nobody waits for what is dealt out."""

_SET_ON_TOPIC = 1  # Kafka's number for "this value was set on the topic itself".

SHOWN_LOOKS, SHOWN_LOOK_SECONDS = 100, 0.1
"""So often, and so far apart, it is asked whether topics show that were made."""


class TopicsAdmin:
    """A connection for questions about topics, and for changing them. Every call may raise KafkaError."""

    def __init__(self, cluster: Cluster | str) -> None:
        self.cluster = cluster if isinstance(cluster, Cluster) else Cluster(cluster)
        self._client: AIOKafkaAdminClient | None = None

    async def __aenter__(self) -> "TopicsAdmin":
        self._client = AIOKafkaAdminClient(**self.cluster.options(), client_id="largesse-topics")
        try:
            await self._client.start()
        except BaseException:
            await self._client.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        await self.client.close()

    @property
    def client(self) -> AIOKafkaAdminClient:
        """While it is open."""
        assert self._client is not None, "used outside of `async with`"
        return self._client

    async def brokers(self) -> int:
        """How many brokers there are now."""
        return len((await self.client.describe_cluster())["brokers"])

    async def members(self, groups: Iterable[str]) -> dict[str, int]:
        """How many members each consumer group has; 0 where there is no such group."""
        return {name: len(group.members) for name, group in (await self.groups(groups)).items()}

    async def groups(self, names: Iterable[str]) -> dict[str, Group]:
        """Who takes part in each consumer group over the topic of shards; nobody where there is no such group."""
        found = dict.fromkeys(names, Group())
        for name in found:
            try:
                # One by one: of several groups in one answer aiokafka cannot read the second.
                (response,) = await self.client.describe_consumer_groups([name])
            except GroupCoordinatorNotAvailableError:
                continue  # Nobody has ever been in a group of this cluster.
            for code, group, state, _type, _protocol, members in (each[:6] for each in response.groups):
                _check(code, group)
                found[group] = Group(tuple(_member(*each) for each in members), state in _SETTLED)
        return found

    async def describe(self, names: Iterable[str], *, refuse: bool = False) -> dict[str, Found]:
        """Those of these topics that exist, and that this process may see; `refuse`: the others raise BusRefused."""
        # Asked for by name, a missing topic would be made by a broker that makes topics on the fly.
        wanted = dict.fromkeys(names)
        exist = {each["topic"]: each["partitions"] for each in await self.client.describe_topics()}
        there = [name for name in wanted if exist.get(name)]
        if refuse:
            await self._refuse_hidden([name for name in wanted if not exist.get(name)])
        if not there:
            return {}
        answers = await self.client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name) for name in there])
        described = {}
        for code, message, _, name, entries in (each[:5] for answer in answers for each in answer.resources):
            if code == UnknownTopicOrPartitionError.errno and name not in await self._names():
                continue  # It was deleted between the two questions.
            if code == TopicAuthorizationFailedError.errno and not refuse:
                continue
            if code == TopicAuthorizationFailedError.errno:
                raise may_not(self.cluster, "see the settings of", f"topic {name}")
            _check(code, f"settings of {name}: {message}")
            settings = {entry[0]: entry[1] for entry in entries}
            own = {entry[0]: entry[1] for entry in entries if entry[3] == _SET_ON_TOPIC}
            described[name] = Found(len(exist[name]), len(exist[name][0]["replicas"]), settings, own)
        return described

    async def _refuse_hidden(self, names: list[str]) -> None:
        """A topic that this process may not even see looks like one that is missing, unless it is asked for by name.
        Raises BusRefused."""
        if not names:
            return
        answer = await self.client._send_request(MetadataRequest(names, allow_auto_topic_creation=False))
        for each in answer.to_object()["topics"]:
            if each["error_code"] == TopicAuthorizationFailedError.errno:
                raise may_not(self.cluster, "see", f"topic {each['topic']}")

    async def _names(self) -> list[str]:
        return [each["topic"] for each in await self.client.describe_topics()]

    async def make(self, name: str, partitions: int, replicas: int, settings: dict[str, str]) -> None:
        """Makes a topic. Another that is made at the same time is no error."""
        answer = await self.client.create_topics([NewTopic(name, partitions, replicas, topic_configs=settings)])
        for each in answer.topic_errors:
            if for_code(each[1]).__name__ != "TopicAlreadyExistsError":
                _check(each[1], f"topic {name}: {each[2] if len(each) > 2 else ''}")

    async def mend(self, name: str, found: Found, settings: dict[str, str]) -> None:
        """Sets these settings on a topic; those that were made on it before stay."""
        whole = {**found.own, **settings}
        for answer in await self.client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, whole)]):
            for each in answer.resources:
                _check(each[0], f"settings of {name}: {each[1]}")

    async def grow(self, name: str, partitions: int) -> None:
        """Adds partitions up to this number."""
        await self.client.create_partitions({name: NewPartitions(partitions)})


async def partitions_now(cluster: Cluster | str, name: str) -> int:
    """How many partitions a topic has; 0 where it is missing. Raises BusError."""
    admin = TopicsAdmin(cluster)
    try:
        async with admin:
            found = (await admin.describe([name], refuse=True)).get(name)
    except KafkaError as error:
        if (why := await why_not_let_in(admin.cluster)) is not None:
            raise why from error
        raise BusError(f"{admin.cluster.url}: {error}") from error
    return found.partitions if found is not None else 0


def _member(name: str, _client: str, host: str, _metadata: bytes, assignment: bytes) -> Member:
    places = ConsumerProtocolMemberAssignment.decode(assignment).assignment if assignment else ()
    return Member(name, host.removeprefix("/"), tuple(sorted(place for _, each in places for place in each)))


def _check(code: int, about: str) -> None:
    if code:
        raise for_code(code)(about)


async def put_right(
    cluster: Cluster | str,
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
    async with TopicsAdmin(cluster) as admin:
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
        if not check:
            await _until_shown(admin, [topic.name for topic in all_topics if topic.name not in there])
    return lines, right


async def _until_shown(admin: TopicsAdmin, made: list[str]) -> None:
    """Waits for a while until the cluster shows topics that it has made: it answers before its brokers know of them."""
    for _ in range(SHOWN_LOOKS if made else 0):
        if len(await admin.describe(made)) == len(made):
            return
        await asyncio.sleep(SHOWN_LOOK_SECONDS)


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
    lacking = settings_lacking(topic, found)
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
    default = os.environ.get("LARGESSE_BUS", "").removeprefix(PLAIN)
    parser.add_argument(
        "--bootstrap", default=default, help="host:port[,host:port], or kafkas://; that of LARGESSE_BUS"
    )
    parser.add_argument("--cells", type=_positive, default=1, help="how many cells share the cluster (1)")
    parser.add_argument("--replicas", type=_positive, default=0, help="of new topics (3, or the number of brokers)")
    parser.add_argument("--grow", action="store_true", help="add partitions where there are too few")
    parser.add_argument("--flush", action="store_true", help="of topics with one replica, flush every message to disk")
    parser.add_argument("--acls", action="store_true", help="give each service's principal its rights")
    parser.add_argument("--prune", action="store_true", help="with --acls: take away what is not in the table")
    parser.add_argument("--check", action="store_true", help="change nothing, only say what is wrong")
    parser.add_argument(
        "--wait", type=_positive, default=WAIT_S, metavar="SECONDS", help=f"for a cluster that starts ({WAIT_S})"
    )
    options = parser.parse_args(arguments)
    try:
        cluster = cluster_of(options.bootstrap if "://" in options.bootstrap else PLAIN + options.bootstrap)
    except AccessWrong as error:
        parser.error(str(error))
    except BusUrlWrong:
        parser.error("which cluster? --bootstrap HOST:PORT, or LARGESSE_BUS=kafka://HOST:PORT")

    async def work() -> tuple[list[str], bool]:
        how = {
            "cells": options.cells,
            "replicas": options.replicas,
            "grow": options.grow,
            "check": options.check,
            "flush": options.flush,
        }
        client = Client(cluster, "largesse-topics", 1_000 * options.wait)
        right = ("make or change", "topics")
        lines, good = await client.patiently("topics", lambda: put_right(cluster, TOPICS.values(), **how), right)
        if options.acls:
            rights = ("see or set", "rights: a superuser of the cluster may")
            more, fine = await client.patiently("rights", given, rights)
            lines, good = lines + more, good and fine
        return lines, good

    async def given() -> tuple[list[str], bool]:
        async with TopicsAdmin(cluster) as admin:
            return await put_rights(admin.client, prune=options.prune, check=options.check)

    configure()
    try:
        lines, right = asyncio.run(work())
    except BusError as error:
        longer = "; --wait SECONDS waits for longer" if isinstance(error, NoAnswer) else ""
        sys.stderr.write(f"{error}{longer}\n")
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
