"""Topics on Kafka: which would lose messages, and the command that makes and mends them."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from largesse.bus.kafka import topics_admin
from largesse.bus.kafka.client import NoAnswer
from largesse.bus.kafka.topic_settings import TOPICS, Found, command, faults, settings_of
from largesse.bus.kafka.topics_admin import TopicsAdmin, put_right
from largesse.bus.port import BusError
from schemas.topics import LOG, SNAPSHOTS, Topic
from tests.conftest import ROOT
from tests.contract.kafka_rig import make_topic, new_name, put_right_at_once
from tests.contract.test_kafka_bus import GUARD_SECONDS, LONG_MS, address, needs_kafka, open_bus, out, tell

__all__ = ["address"]  # The fixture.


def found_as(topic: Topic, replicas: int = 1, **other: str) -> Found:
    """A topic as it is made, with other settings (underscores for points)."""
    settings = settings_of(topic, replicas) | {key.replace("_", "."): value for key, value in other.items()}
    return Found(1, replicas, settings, settings)


@pytest.mark.parametrize("topic", TOPICS.values(), ids=TOPICS)
@pytest.mark.parametrize("replicas", [1, 3])
def test_a_topic_as_it_is_made_is_right(topic, replicas):
    assert faults(topic.name, topic, found_as(topic, replicas), 0) == []


@pytest.mark.parametrize(
    ("name", "replicas", "settings", "named"),
    [
        pytest.param(LOG, 1, {"retention_ms": "604800000"}, "retention.ms=604800000, needs -1", id="a log that ages"),
        pytest.param(LOG, 1, {"retention_bytes": "1000"}, "retention.bytes=1000, needs -1", id="a log with a limit"),
        pytest.param("grants", 1, {"retention_ms": "1"}, "retention.ms=1, needs -1", id="decisions that age"),
        pytest.param(
            LOG, 1, {"cleanup_policy": "compact"}, "cleanup.policy=compact, needs delete", id="a log compacted"
        ),
        pytest.param(
            SNAPSHOTS, 1, {"cleanup_policy": "delete"}, "cleanup.policy=delete, needs compact", id="snapshots that age"
        ),
        pytest.param(
            LOG,
            1,
            {"unclean_leader_election_enable": "true"},
            "unclean.leader.election.enable=true, needs false",
            id="a log that an outdated broker may cut",
        ),
        pytest.param(
            "asks", 3, {"min_insync_replicas": "1"}, "min.insync.replicas=1, needs at least 2", id="one copy is enough"
        ),
        pytest.param(
            "jobs", 1, {"max_message_bytes": "1000"}, "max.message.bytes=1000, needs at least 1048576", id="small"
        ),
        pytest.param(
            "jobs",
            1,
            {"message_timestamp_type": "CreateTime"},
            "message.timestamp.type=CreateTime, needs LogAppendTime",
            id="inputs that age by their sender's clock",
        ),
        pytest.param("tasks", 1, {"retention_ms": "1000"}, "retention.ms=1000, needs at least 604800000", id="inputs"),
    ],
)
def test_a_topic_that_would_lose_messages_is_named_with_what_it_needs(name, replicas, settings, named):
    topic = TOPICS[name]

    assert faults(name, topic, found_as(topic, replicas, **settings), 0) == [f"topic {name} has {named}"]


@pytest.mark.parametrize(
    ("name", "partition", "partitions", "run"),
    [
        pytest.param("jobs", 0, 0, "python -m largesse.bus.kafka.topics_admin --bootstrap h:1", id="missing"),
        pytest.param("jobs", 2, 0, "python -m largesse.bus.kafka.topics_admin --bootstrap h:1 --cells 3", id="cells"),
        pytest.param(
            "jobs", 1, 1, "python -m largesse.bus.kafka.topics_admin --bootstrap h:1 --cells 2 --grow", id="grow"
        ),
        pytest.param(
            "asks", 70, 64, "python -m largesse.bus.kafka.topics_admin --bootstrap h:1 --cells 2 --grow", id="shards"
        ),
        pytest.param(
            "x", 2, 0, "kafka-topics.sh --bootstrap-server h:1 --create --topic x --partitions 3", id="no topic of ours"
        ),
    ],
)
def test_the_command_that_mends_is_exact(name, partition, partitions, run):
    found = Found(partitions, 1, {}, {}) if partitions else None

    assert command("h:1", name, partition, found) == run


def own_topics(*names: str) -> dict[str, Topic]:
    """Topics that are treated like these, under names that nobody has."""
    return {name: replace(TOPICS[like], name=name) for like in names for name in [new_name(like)]}


@needs_kafka
def test_a_missing_topic_is_refused_and_not_made_on_the_fly(address):
    async def story():
        topic = new_name()
        async with open_bus(address) as bus:
            for asked in (
                lambda: bus.fetch(topic, 0, 0),
                lambda: bus.wait_any({(topic, 0): 0}, LONG_MS),
                lambda: bus.writer().send([out(topic, "a")]),
            ):
                with pytest.raises(BusError, match=f"topic {topic} is missing. Run: kafka-topics.sh .*{topic}"):
                    await asked()
            async with TopicsAdmin(address) as admin:
                assert await admin.describe([topic]) == {}

            await make_topic(address, topic, 1)
            assert await bus.bounds(topic, 0) == (0, 0)

    tell(story)


@needs_kafka
def test_topics_are_made_mended_and_grown_only_when_told(address):
    async def story():
        topics = own_topics(LOG, SNAPSHOTS, "jobs")
        log, snapshots, jobs = topics.values()
        await make_topic(address, log.name, 1, retention_ms="1000", segment_ms="90000")

        async def put(**how):
            return await put_right(address, topics.values(), **how)

        lines, right = await put(cells=1, check=True)
        assert not right
        assert f"{log.name}: retention.ms 1000 -> -1" in lines
        assert f"{jobs.name}: missing" in lines
        async with open_bus(address, topics=topics) as bus:
            with pytest.raises(BusError, match=r"retention\.ms=1000, needs -1"):
                await bus.bounds(log.name, 0)

            await put_right_at_once(address, topics.values(), cells=1)
            assert await put(cells=1) == ([f"{name}: right" for name in topics], True)
            assert await bus.bounds(log.name, 0) == (0, 0)
            async with TopicsAdmin(address) as admin:
                described = await admin.describe(topics)
                assert described[log.name].own["segment.ms"] == "90000"
                assert described[snapshots.name].settings["cleanup.policy"] == "compact"

            lines, right = await put(cells=2)
            assert not right
            assert f"{jobs.name}: has 1 partition, needs 2: --grow adds them" in lines
            with pytest.raises(BusError, match="has 1 partition, number 1 is not among them"):
                await bus.bounds(jobs.name, 1)
            await put_right_at_once(address, topics.values(), cells=2, grow=True)
            assert await bus.bounds(jobs.name, 1) == (0, 0)
            assert await bus.writer().send([out(jobs.name, "a", 1)]) == [0]
            assert (await put(cells=1))[1]

    tell(story)


@needs_kafka
@pytest.mark.xdist_group("kafka cells")  # It works on the topics that cells use.
def test_the_command_makes_every_topic_once_and_says_so(address):
    def run(*more: str) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, "-m", "largesse.bus.kafka.topics_admin", *more]
        return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=GUARD_SECONDS, check=False)

    patience = ("--wait", str(GUARD_SECONDS))
    assert run("--bootstrap", address, *patience).returncode == 0
    again = run("--bootstrap", address, *patience)

    assert again.returncode == 0
    assert sorted(again.stdout.split("\n")[:-1]) == sorted(f"{name}: right" for name in TOPICS)


def test_the_command_says_how_it_is_used_and_that_nobody_answers():
    def run(*more: str) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, "-m", "largesse.bus.kafka.topics_admin", *more]
        environment = {name: value for name, value in os.environ.items() if name != "LARGESSE_BUS"}
        return subprocess.run(
            arguments, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=GUARD_SECONDS, check=False
        )

    assert run().returncode == 2
    assert run("--bootstrap", "127.0.0.1:1", "--cells", "0").returncode == 2
    unreachable = run("--bootstrap", "127.0.0.1:1")
    assert unreachable.returncode == 3
    assert unreachable.stderr.splitlines()[-1].startswith("kafka://127.0.0.1:1: topics: cannot be reached")
    assert "--wait SECONDS waits for longer" in unreachable.stderr


@pytest.mark.parametrize(("kind", "advised"), [(NoAnswer, True), (BusError, False)])
def test_to_wait_is_advised_only_where_no_answer_came(monkeypatch, capsys, kind, advised):
    async def fails(*given, **how):
        raise kind("jobs: has 1 partition")

    monkeypatch.setattr(topics_admin, "put_right", fails)

    assert topics_admin.main(["--bootstrap", "127.0.0.1:1"]) == 3
    assert ("--wait" in capsys.readouterr().err) == advised
