"""A log is replayed and exported whatever others wrote between its records and answers, on every kind of bus."""

import asyncio
from dataclasses import replace

import pytest

from largesse.bus.memory import MemoryBus
from largesse.bus.port import Message, Outgoing
from largesse.log.codec import wrap
from schemas import Header
from schemas.topics import DECISIONS, LOG
from services.replay import kafka_source
from services.replay.source import Source, _most_shards, steps_of, write_export
from services.replay.verify import verify
from tests.simulation.test_replay import parts_of

NAMED = b'{"type":"Shares","version":1,"cell":"default","seq":%d,"round":9,"time":0,"id":"%b","cause":"x","body":{}}'
GARBAGE = [
    b"hello",
    b'{"header":{"token":"z"},"content":{"type":"RoundClosed","seq":"x"}}',
    b'{"header":{"token":"z"},"content":{"type":"RoundAbandoned"',
    b'{"header":{"token":"z"},"content":{"type":"RoundOpened","body":{"shards":1000000000}}}',
    b'{"header":[],"piece":{"seq":[],"id":5,"text":null}}',
    wrap(Header("z"), NAMED % (999_999_999_999, b"shares/0-1/default/999999999999/r9/00")),
    wrap(Header("z"), NAMED % (10**17, b"shares/0-1/default/7/r9/00")),
]


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    """A recorded log with answers, and garbage before each of its messages for a while, then now and then."""
    mixed = []
    for at, message in enumerate(parts_of(tmp_path_factory.mktemp("log") / "log")):
        if at < 200 or at % 50 == 0:
            mixed += [Message(topic, 0, 0, GARBAGE[at % len(GARBAGE)]) for topic in (LOG, "shares", message.topic)]
        mixed.append(message)
    ends: dict[str, int] = {}
    numbered = []
    for message in mixed:
        numbered.append(replace(message, offset=ends.setdefault(message.topic, 0)))
        ends[message.topic] += 1
    return numbered


def test_a_log_with_garbage_in_it_is_decided_the_same(messages):
    verdict = verify(Source("all", lambda hear: steps_of(messages, hear=hear), lambda: _most_shards(messages, 0)))

    assert verdict.is_same, verdict.text()
    assert verdict.rounds_compared > 0


def test_a_void_opening_of_endless_shards_makes_no_more_states_than_there_may_be(messages):
    assert _most_shards(messages, 0) <= 64


def test_a_log_with_garbage_in_it_is_exported(messages, tmp_path):
    source = Source("all", lambda hear: steps_of(messages, hear=hear), lambda: 1)

    assert write_export(source, tmp_path / "export.jsonl") > 0


def test_a_log_on_kafka_with_garbage_in_it_is_found_by_its_cell_and_decided_the_same(messages, monkeypatch):
    bus = MemoryBus()
    asyncio.run(bus.writer().send([Outgoing(each.topic, each.partition, each.value) for each in messages]))
    for topic in (LOG, *DECISIONS):
        bus.skip(topic, 0)
    monkeypatch.setattr(kafka_source, "open_bus", lambda url, client_id: bus)
    place = kafka_source.CellTopics("kafka://somewhere:9092", "default", 0)
    assert asyncio.run(kafka_source._cell_in(bus, 0)) == "default"
    verdict = verify(Source("kafka", lambda hear: steps_of(kafka_source.messages(place), hear=hear), lambda: 1))

    assert verdict.is_same, verdict.text()
    assert verdict.rounds_compared > 0
