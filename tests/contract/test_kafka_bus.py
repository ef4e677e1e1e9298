"""What is Kafka's own: several processes, topics that would lose messages, brokers that crash, readers far apart."""

import asyncio
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiokafka import AIOKafkaProducer

from largesse.assignment import assignment_of
from largesse.bus import BusError, Outgoing, PositionGap
from largesse.kafka_bus import FOLLOWERS_MAX, KafkaBus
from largesse.settings import Settings
from largesse.topics_admin import MEMBERSHIP, TOPICS, Found, TopicsAdmin, command, faults, put_right, settings_of
from schemas.edge_config import SHARDS_MAX
from schemas.topics import LOG, SNAPSHOTS, Topic
from tests.conftest import ROOT
from tests.contract.kafka_rig import delete_before, kafka_address, make_topic, new_name, put_right_at_once
from tests.kafka_broker import SCRIPT, Broker
from tests.unit.test_assignment import caught_up

LONG_MS = 60_000
GUARD_SECONDS = 120

needs_kafka = pytest.mark.kafka


def tell(story) -> None:
    """Runs a story, with a guard against one that hangs."""

    async def told() -> None:
        async with asyncio.timeout(GUARD_SECONDS):
            await story()

    asyncio.run(told())


@asynccontextmanager
async def open_bus(address: str, **settings):
    bus = KafkaBus(address, **settings)
    try:
        yield bus
    finally:
        await bus.close()


def out(topic: str, value: str | bytes, partition: int = 0, **rest) -> Outgoing:
    return Outgoing(topic, partition, value.encode() if isinstance(value, str) else value, **rest)


async def read_on(bus, topic: str, offset: int, end: int, most: int = 1_000) -> list[bytes]:
    """Values of everything from `offset` up to offset `end`."""
    found = []
    while offset < end:
        messages = await bus.fetch(topic, 0, offset, wait_ms=LONG_MS, most=most)
        found += [message.value for message in messages]
        offset = messages[-1].offset + 1
    return found


@pytest.fixture
def address() -> str:
    return kafka_address()


# Several processes


@needs_kafka
def test_what_one_process_appends_wakes_a_reader_in_another(address):
    async def story():
        topic = await make_topic(address, new_name(), 1)
        async with open_bus(address) as here, open_bus(address) as there:
            reading = asyncio.create_task(there.fetch(topic, 0, 0, wait_ms=LONG_MS))
            waiting = asyncio.create_task(there.wait_any({(topic, 0): 0}, LONG_MS))
            await here.writer().send([out(topic, "a")])

            assert [message.value for message in await reading] == [b"a"]
            assert await waiting

    tell(story)


@needs_kafka
def test_a_reader_that_knows_of_a_message_gets_it_without_waiting(address):
    async def story():
        topic = await make_topic(address, new_name(), 1)
        async with open_bus(address) as here, open_bus(address) as there:
            assert await there.fetch(topic, 0, 0) == []
            writer = here.writer()
            for number in range(30):
                await writer.send([out(topic, str(number))])

                assert await there.bounds(topic, 0) == (0, number + 1)
                assert [message.value for message in await there.fetch(topic, 0, number)] == [str(number).encode()]

    tell(story)


@needs_kafka
def test_what_somebody_else_wrote_without_value_or_text_can_be_read(address):
    async def story():
        topic = await make_topic(address, new_name(), 1)
        stranger = AIOKafkaProducer(bootstrap_servers=address)
        await stranger.start()
        await stranger.send_and_wait(topic, None, key=b"gone", partition=0)
        await stranger.send_and_wait(topic, b"\xff", partition=0, headers=[("author", b"\xff"), ("none", None)])
        await stranger.stop()
        async with open_bus(address) as bus:
            first, second = await bus.fetch(topic, 0, 0, most=1), await bus.fetch(topic, 0, 1)

        assert (first[0].value, first[0].headers) == (b"", {})
        assert (second[0].value, second[0].headers) == (b"\xff", {"author": "\ufffd", "none": ""})

    tell(story)


# Readers


@needs_kafka
def test_readers_far_apart_each_read_everything_in_order(address):
    async def story():
        topic = await make_topic(address, new_name(), 1)
        body = b"x" * 10_000
        values = [b"%d/" % number + body for number in range(1_200)]
        async with open_bus(address) as bus:
            await bus.writer().send([out(topic, value) for value in values])
            readers = [
                read_on(bus, topic, start, len(values), most=50)
                for start in range(0, 1_200, 1_200 // (FOLLOWERS_MAX + 2))
            ]
            for found in await asyncio.gather(*readers):
                assert found == values[-len(found) :]
                assert len(found) > 100

    tell(story)


@needs_kafka
def test_one_reader_may_jump_about(address):
    async def story():
        topic = await make_topic(address, new_name(), 1)
        async with open_bus(address) as bus:
            await bus.writer().send([out(topic, str(number)) for number in range(1_000)])
            for offset in (999, 0, 500, 998, 3, 999, 1):
                assert (await bus.fetch(topic, 0, offset, most=1))[0].value == str(offset).encode()
            assert await bus.fetch(topic, 0, 1_000) == []

    tell(story)


@needs_kafka
def test_a_reader_that_stands_still_holds_little_in_memory(address):
    async def story():
        topic = await make_topic(address, new_name(), 1)
        async with open_bus(address) as reader, open_bus(address) as other:
            writer = other.writer()
            assert await reader.fetch(topic, 0, 0) == []
            for _ in range(20):
                await writer.send([out(topic, b"y" * 500_000), out(topic, b"z" * 500_000)])
            assert await reader.wait_any({(topic, 0): 0}, LONG_MS)
            held = [follower.held_bytes for followers in reader._followers.values() for follower in followers]

            assert sum(held) < 5_000_000
            found = await read_on(reader, topic, 0, 40)
            assert [value[:1] for value in found] == [b"y", b"z"] * 20

    tell(story)


@needs_kafka
def test_retention_that_overtakes_a_reader_is_a_gap(address):
    async def story():
        topic = await make_topic(address, new_name(), 1)
        async with open_bus(address) as bus:
            await bus.writer().send([out(topic, str(number)) for number in range(10)])
            assert len(await bus.fetch(topic, 0, 0, most=3)) == 3
            await delete_before(address, topic, 0, 8)

            assert await bus.bounds(topic, 0) == (8, 10)
            with pytest.raises(PositionGap, match="position 3 is before the start; offsets 8 to 9 exist"):
                await bus.fetch(topic, 0, 3)
            assert await read_on(bus, topic, 8, 10) == [b"8", b"9"]

    tell(story)


@needs_kafka
def test_a_partition_that_lost_its_tail_stops_the_reader_with_the_name_of_the_gap(address):
    async def story():
        topic = await make_topic(address, new_name(), 1)
        async with open_bus(address) as bus, open_bus(address) as other:
            await other.writer().send([out(topic, str(number)) for number in range(5)])
            assert len(await read_on(bus, topic, 0, 5)) == 5
            waiting = asyncio.create_task(bus.fetch(topic, 0, 5, wait_ms=LONG_MS))
            # Gone and made anew: offsets are given again from zero, as after a broker that came back without its disk.
            async with TopicsAdmin(address) as admin:
                await admin._admin.delete_topics([topic])
                while topic in await admin.describe([topic]):
                    pass
                await admin.make(topic, 1, 1, {})
            async with open_bus(address) as another:
                await another.writer().send([out(topic, "new")])

            with pytest.raises(PositionGap, match="position 5 is beyond the end"):
                await waiting

    tell(story)


@needs_kafka
def test_a_topic_that_goes_while_it_is_looked_at_is_none(address, monkeypatch):
    async def story():
        topic = await make_topic(address, new_name(), 1)
        async with TopicsAdmin(address) as admin:
            listed = [each for each in await admin._admin.describe_topics() if each["topic"] == topic]
            told = [[*listed, {**listed[0], "topic": new_name()}], listed]
            monkeypatch.setattr(admin._admin, "describe_topics", lambda: asyncio.sleep(0, told.pop(0)))
            found = await admin.describe([told[0][1]["topic"], topic])

        assert (list(found), told) == ([topic], [])

    tell(story)


# Writers


@needs_kafka
def test_a_send_larger_than_any_batch_keeps_its_order(address):
    async def story():
        topic = await make_topic(address, new_name(), 2)
        batch = [out(topic, b"%d/" % number + b"x" * 300_000, number % 2) for number in range(20)]
        async with open_bus(address) as bus:
            offsets = await bus.writer().send(batch)
            found = await read_on(bus, topic, 0, 10)

        assert offsets == [number // 2 for number in range(20)]
        assert [int(value.split(b"/")[0]) for value in found] == list(range(0, 20, 2))

    tell(story)


@needs_kafka
def test_a_writer_that_was_refused_once_sends_nothing_more(address):
    async def story():
        topic = await make_topic(address, new_name(), 1, max_message_bytes="1000")
        async with open_bus(address) as bus:
            writer = bus.writer()
            await writer.send([out(topic, "before")])
            sends = [writer.send([out(topic, value)]) for value in (b"x" * 5_000, b"behind", b"also behind")]
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            with pytest.raises(BusError):
                await writer.send([out(topic, "later")])
            await bus.writer().send([out(topic, "another")])
            _, end = await bus.bounds(topic, 0)

            assert all(isinstance(outcome, BusError) for outcome in outcomes)
            assert await read_on(bus, topic, 0, end) == [b"before", b"another"]

    tell(story)


@needs_kafka
def test_a_text_that_is_none_is_refused_before_anything_is_sent(address):
    async def story():
        topic = await make_topic(address, new_name(), 1)
        async with open_bus(address) as bus:
            writer = bus.writer()
            for wrong in ({"key": "\ud800"}, {"headers": {"author": "\ud800"}}):
                with pytest.raises(TypeError, match="no Unicode"):
                    await writer.send([out(topic, "a"), out(topic, "b", **wrong)])
            assert await writer.send([out(topic, "c")]) == [0]

    tell(story)


# No cluster


def test_a_cluster_that_cannot_be_reached_is_named_when_patience_is_over():
    async def story():
        async with open_bus("127.0.0.1:1", patience_ms=100) as bus:
            for asked in (
                lambda: bus.fetch("jobs", 0, 0),
                lambda: bus.bounds("jobs", 0),
                lambda: bus.wait_any({("jobs", 0): 0}, LONG_MS),
                lambda: bus.writer().send([out("jobs", "{}")]),
            ):
                with pytest.raises(BusError, match=r"kafka://127\.0\.0\.1:1: .*cannot be reached.*tried for 100 ms"):
                    await asked()

    tell(story)


# Topics


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
        pytest.param("jobs", 0, 0, "python -m largesse.topics_admin --bootstrap h:1", id="missing"),
        pytest.param("jobs", 2, 0, "python -m largesse.topics_admin --bootstrap h:1 --cells 3", id="cells"),
        pytest.param("jobs", 1, 1, "python -m largesse.topics_admin --bootstrap h:1 --cells 2 --grow", id="grow"),
        pytest.param("asks", 70, 64, "python -m largesse.topics_admin --bootstrap h:1 --cells 2 --grow", id="shards"),
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
        arguments = [sys.executable, "-m", "largesse.topics_admin", *more]
        return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    patience = ("--wait", str(GUARD_SECONDS))
    assert run("--bootstrap", address, *patience).returncode == 0
    again = run("--bootstrap", address, *patience)

    assert again.returncode == 0
    assert sorted(again.stdout.split("\n")[:-1]) == sorted(f"{name}: right" for name in TOPICS)


def test_the_command_says_how_it_is_used_and_that_nobody_answers():
    def run(*more: str) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, "-m", "largesse.topics_admin", *more]
        environment = {name: value for name, value in os.environ.items() if name != "LARGESSE_BUS"}
        return subprocess.run(
            arguments, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    assert run().returncode == 2
    assert run("--bootstrap", "127.0.0.1:1", "--cells", "0").returncode == 2
    unreachable = run("--bootstrap", "127.0.0.1:1")
    assert unreachable.returncode == 3
    assert unreachable.stderr.splitlines()[-1].startswith("kafka://127.0.0.1:1: topics: cannot be reached")


# A broker of one's own


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    if not SCRIPT.exists():
        pytest.skip(f"no broker to kill: {SCRIPT} is missing")
    if "LARGESSE_TEST_KAFKA" not in os.environ:
        pytest.skip("no broker to kill: LARGESSE_TEST_KAFKA is not set, so no broker is wanted here")
    quick_compaction = ("log.cleaner.backoff.ms=50", "log.cleaner.min.cleanable.ratio=0.001")
    own = Broker(tmp_path_factory.mktemp("broker"), *quick_compaction, heap="256m")
    try:
        own.start()
        yield own
    finally:
        own.kill()


@needs_kafka
@pytest.mark.slow
def test_a_killed_broker_loses_and_doubles_nothing_that_was_acknowledged(broker):
    acknowledged: dict[int, bytes] = {}
    progress = asyncio.Condition()

    async def write(bus, topic: str, name: str, over: asyncio.Event) -> None:
        writer, number = bus.writer(), 0
        while not over.is_set():
            values = [f"{name}/{number + more}".encode() for more in range(3)]
            for offset, value in zip(await writer.send([out(topic, value) for value in values]), values, strict=True):
                assert offset not in acknowledged
                acknowledged[offset] = value
            number += 3
            async with progress:
                progress.notify_all()

    async def follow(bus, topic: str, met: list[bytes], written: asyncio.Event) -> None:
        while not written.is_set() or len(met) < len(acknowledged):
            if await bus.wait_any({(topic, 0): len(met)}, 100):
                met += [message.value for message in await bus.fetch(topic, 0, len(met))]

    async def until(count: int) -> None:
        async with progress:
            await progress.wait_for(lambda: len(acknowledged) >= count)

    async def story():
        topic = await make_topic(broker.address, new_name(), 1)
        over, written = asyncio.Event(), asyncio.Event()
        met: list[bytes] = []
        async with open_bus(broker.address) as writing, open_bus(broker.address) as reading:
            tasks = [asyncio.create_task(write(writing, topic, name, over)) for name in "abc"]
            following = asyncio.create_task(follow(reading, topic, met, written))
            await until(300)
            for _ in range(2):
                broker.kill()
                await asyncio.to_thread(broker.start)
                await until(len(acknowledged) + 300)
            over.set()
            await asyncio.gather(*tasks)
            written.set()
            await following
            first, end = await reading.bounds(topic, 0)

        assert (first, end) == (0, len(acknowledged))
        assert met == [acknowledged[offset] for offset in range(end)]
        for name in "abc":
            own = [int(value.split(b"/")[1]) for value in met if value.startswith(name.encode())]
            assert own == list(range(len(own)))

    tell(story)


@needs_kafka
@pytest.mark.slow
def test_a_send_whose_broker_stays_away_is_unknown_and_ends_the_writer(broker):
    async def story():
        topic = await make_topic(broker.address, new_name(), 1)
        async with open_bus(broker.address, patience_ms=1_500) as bus, open_bus(broker.address) as reading:
            writer = bus.writer()
            await writer.send([out(topic, "before")])
            assert await read_on(reading, topic, 0, 1) == [b"before"]
            waiting = asyncio.create_task(reading.fetch(topic, 0, 1, wait_ms=LONG_MS))
            broker.kill()
            with pytest.raises(BusError):
                await writer.send([out(topic, "unknown")])
            with pytest.raises(BusError):
                await writer.send([out(topic, "never")])
            await asyncio.to_thread(broker.start)
            await bus.writer().send([out(topic, "after")])

            # Who was waiting goes on, as if nothing had been.
            assert [message.value for message in await waiting] in ([b"after"], [b"unknown"], [b"unknown", b"after"])
            _, end = await reading.bounds(topic, 0)
            assert await read_on(reading, topic, 0, end) in ([b"before", b"after"], [b"before", b"unknown", b"after"])

    tell(story)


@needs_kafka
@pytest.mark.slow
def test_a_reader_passes_over_what_compaction_took(broker):
    async def story():
        name = await make_topic(broker.address, new_name(), 1, cleanup_policy="compact", segment_ms="100")
        async with open_bus(broker.address) as bus, open_bus(broker.address) as anew:
            writer = bus.writer()
            for number in range(60):
                await writer.send([out(name, f"{number}", key=f"slot-{number % 2}")])
            while True:
                # Segments end only when something is appended after their time.
                (last,) = await writer.send([out(name, "tick", key="tick")])
                async with open_bus(broker.address) as looking:
                    found = await looking.fetch(name, 0, 0, wait_ms=LONG_MS)
                if found[0].offset >= 58:
                    break
            values = await read_on(anew, name, 0, last + 1)
            assert values[:2] == [b"58", b"59"]
            assert await read_on(anew, name, 7, last + 1) == values
            assert await anew.fetch(name, 0, last + 1) == []

    tell(story)


# Who serves which shard


@needs_kafka
def test_a_group_deals_every_shard_to_one_instance_and_again_when_one_leaves(address):
    async def story():
        await put_right_at_once(address, [MEMBERSHIP], cells=1)
        settings = Settings(bus=f"kafka://{address}", cell=new_name("cell"))

        async def until(condition) -> None:
            while not condition():
                changes = [asyncio.ensure_future(each.changed.wait()) for each in (first, second)]
                await asyncio.wait(changes, return_when=asyncio.FIRST_COMPLETED)
                for each in (first, second):
                    each.changed.clear()

        def shares() -> list[int]:
            return sorted(first.shards() + second.shards())

        async with open_bus(address) as here, open_bus(address) as there:
            first = assignment_of(here, settings, "altruism", caught_up)
            second = assignment_of(there, settings, "altruism", caught_up)
            await until(lambda: shares() == list(range(SHARDS_MAX)) and first.shards() and second.shards())
            # The shards that are in use are the first few: each instance has its part of them.
            assert first.is_mine(0) == second.is_mine(1) != first.is_mine(1)

            await first.close()
            await until(lambda: len(second.shards()) == SHARDS_MAX)
            assert second.active(0).is_set()
            await second.close()

    tell(story)
