"""A recorded log, decided again: the same bytes from every kind of source, and the first difference by its name."""

import asyncio
import json
from copy import deepcopy
from dataclasses import replace

import pytest

from largesse.bus.file.bus import FileBus
from largesse.bus.memory import MemoryBus
from largesse.bus.port import Message, Outgoing
from largesse.core import RULES
from largesse.ids import content_hash
from largesse.log import fencing
from largesse.log.codec import decode, encode, wrap
from largesse.log.decisions import DecisionGap
from largesse.log.export import ExportDamaged, ExportWriter, read_export
from largesse.log.snapshots import dump, load
from largesse.log.writer import claim_message
from schemas import DecisionHash, Header, NodeRegistered, RoundAbandoned
from schemas.edge.read import ConfigPatch, read_cluster, read_workload_line
from schemas.topics import DECISIONS, LOG
from services.admission.core import rounds as core_rounds
from services.replay import documents, kafka_source
from services.replay.source import NoLog, Source, open_source, steps_of, write_export
from services.replay.verify import verify
from services.simulator import engine
from services.simulator.engine import Cell
from services.simulator.run import Options, simulate
from tests.bus_cell import BusCell

CLUSTER = read_cluster(
    {
        "nodes": [{"name": "n", "count": 4, "capacity": {"cpu": "8", "memory": "32Gi"}}],
        "queues": {"name": "root", "children": [{"name": "a"}, {"name": "b", "weight": 2.5}]},
        "policy": {"preset": "largesse"},
    }
)


def workload(count=40):
    """Jobs of two stages, the second a gang, in two queues; more than the cluster can run at once."""
    lines = []
    for i in range(count):
        stages = [
            {"stage": "s", "tasks": 1 + i * 7 % 11, "demand": {"cpu": "2"}, "duration_ms": 300 + i * 131 % 900},
            {"stage": "t", "after": ["s"], "tasks": 3, "gang": True, "demand": {"cpu": "1"}, "duration_ms": 200},
        ]
        line = {"job": f"j{i}", "queue": "ab"[i % 2], "submit_ms": i * 37, "stages": stages}
        lines.append(read_workload_line(line))
    return lines


def simulated(path, **values):
    """The log of a simulation; returns its result."""
    with ExportWriter(path) as writer:
        return simulate(workload(), CLUSTER, Options(values, listener=writer))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    simulated(path)
    return path


# ---------------------------------------------------------------- the same
@pytest.mark.rotating(3)
@pytest.mark.parametrize("shards", [1, 2, 4])
def test_the_log_of_a_simulation_is_decided_the_same(tmp_path, shards):
    result = simulated(tmp_path / "log.gz", altruism_shards=shards)
    verdict = verify(open_source(tmp_path / "log.gz"))

    assert verdict.is_same, verdict.text()
    assert (verdict.records, verdict.rounds_compared) == (result["records"], result["rounds"])
    assert verdict.prefix == result["digest"]


def restart_all(cell):
    """Every core goes on from what a snapshot would hold: no cache is left."""
    cell.altruism = [load(type(state), dump(state)) for state in cell.altruism]
    for name in ("admission", "fairness", "leftover", "estimator", "planner"):
        state = getattr(cell, name)
        setattr(cell, name, load(type(state), dump(state)))


def test_a_restart_of_every_core_before_every_round_changes_no_byte(tmp_path, recorded):
    with ExportWriter(tmp_path / "log.jsonl") as writer:
        simulate(workload(), CLUSTER, Options({}, listener=writer, before_round=restart_all))

    assert (tmp_path / "log.jsonl").read_bytes() == recorded.read_bytes()


def test_the_count_of_shards_may_change_in_mid_log(tmp_path):
    with ExportWriter(tmp_path / "log") as writer:
        cell = Cell(shards=4, listener=writer)
        cell.take(NodeRegistered("n", "e", {"cpu": 64_000, "memory": 64_000}), "me")
        for number, (_, spec) in enumerate(workload(30)):
            cell.advance(number * 10)
            cell.take(ConfigPatch({"altruism_shards": (1, 2, 4, 2, 1)[number // 6]}, None), "me")
            cell.take(spec, "me")
            cell.settle()
    verdict = verify(open_source(tmp_path / "log"))

    assert verdict.is_same, verdict.text()


def test_a_part_of_a_log_may_be_asked_for(recorded):
    whole = verify(open_source(recorded))
    part = verify(open_source(recorded), until=200)

    assert (part.records, part.is_same) == (200, True)
    assert 0 < part.rounds_compared < whole.rounds_compared


def test_a_data_folder_is_read_while_a_process_holds_it_and_exported_the_same(tmp_path):
    async def story():
        bus = FileBus(tmp_path / "data")
        async with BusCell(bus, nodes=3, shards=2) as cell:
            await cell.submit(12)
            await cell.until_ended(12)
            while_held = verify(open_source(tmp_path / "data"))
        await bus.close()
        return while_held

    while_held = asyncio.run(story())
    source = open_source(tmp_path / "data")
    afterwards = verify(source)
    count = write_export(source, tmp_path / "log.gz")
    exported = verify(open_source(tmp_path / "log.gz"))

    assert while_held.is_same, while_held.text()
    assert afterwards.is_same, afterwards.text()
    assert count > afterwards.records
    assert replace(exported, source="") == replace(afterwards, source="")


# ---------------------------------------------------------------- touched
def items_of(path):
    return [(each.topic, each.header, each.content) for each in read_export(path)]


def rewritten(path, items):
    """An export with other records and all checksums right."""
    with ExportWriter(path) as writer:
        for topic, header, content in items:
            writer(topic, header, content)
    return verify(open_source(path))


def changed(items, kind, change, skip=0):
    """The items with the body of one record changed: of the first of its kind after `skip`, for which it changes."""
    out = list(items)
    for i, (topic, header, content) in enumerate(items):
        record = decode(content)
        if record.type == kind and change(record.body) is not False:
            skip -= 1
            if skip < 0:
                out[i] = (topic, header, encode(record))
                return out, record
    raise AssertionError(f"no {kind} to change")


def more_tasks(body):
    if not body.grants:
        return False
    body.grants[0].count += 1
    return True


def other_node(body):
    if not body.grants:
        return False
    body.grants[0].node = "n-9"
    return True


def other_class(body):
    body.job_class = 1 - body.job_class


@pytest.mark.parametrize(
    ("kind", "change", "topic", "path"),
    [
        pytest.param("JobAdmitted", other_class, "cluster.log", "$.body.job_class", id="a job's class"),
        pytest.param("RoundClosed", more_tasks, "cluster.log", "$.body.grants[0].count", id="a closing's grants"),
        pytest.param("JobEnded", lambda body: body.jobs.pop(), "cluster.log", "$.body.jobs.length", id="an end"),
    ],
)
def test_a_changed_record_is_found_though_its_checksums_are_right(recorded, tmp_path, kind, change, topic, path):
    items = items_of(recorded)
    altered, record = changed(items, kind, change, skip=3)
    verdict = rewritten(tmp_path / "log", altered)

    assert not verdict.is_same
    found = verdict.difference
    assert (found.seq, found.round, found.topic, found.path) == (record.seq, record.round, topic, path)
    assert found.recorded != found.decided


def test_a_changed_answer_is_found_with_its_path(recorded, tmp_path):
    """Both the answer and the hash that the closing names for it, as somebody would who knows how it is done."""
    items, grants = changed(items_of(recorded), "Grants", more_tasks, skip=5)
    for i, (topic, header, content) in enumerate(items):
        record = decode(content)
        if record.type == "RoundClosed" and record.round == grants.round:
            record.body.hashes[-1] = DecisionHash("grants", 0, 1, content_hash(encode(grants)))
            items[i] = (topic, header, encode(record))
    verdict = rewritten(tmp_path / "log", items)

    assert verdict.difference is not None
    assert verdict.difference.round == grants.round
    assert verdict.difference.topic == "grants of shard 0 of 1"
    assert verdict.difference.path == "$.body.grants[0].count"
    assert verdict.text().count("\n") == 4


def test_a_changed_answer_is_found_though_the_closing_is_as_it_was(recorded, tmp_path):
    items, grants = changed(items_of(recorded), "Grants", other_node, skip=5)
    verdict = rewritten(tmp_path / "log", items)

    found = verdict.difference
    assert found is not None
    assert (found.seq, found.round, found.topic) == (grants.seq, grants.round, "grants of shard 0 of 1")
    assert (found.path, found.recorded) == ("$.body.grants[0].node", "n-9")
    assert found.decided.startswith("n-")
    assert grants.id in verdict.text()


@pytest.mark.parametrize("topic", DECISIONS)
def test_a_change_in_any_decision_topic_is_found(recorded, tmp_path, topic):
    """Of a space only: honest answers are alike byte for byte."""
    items = items_of(recorded)
    at = next(i for i, item in enumerate(items) if item[0] == topic)
    items[at] = (topic, None, items[at][2].replace(b'"body":', b'"body": ', 1))
    verdict = rewritten(tmp_path / "log", items)

    assert verdict.difference is not None
    assert (verdict.difference.topic, verdict.difference.path) == (f"{topic} of shard 0 of 1", "hash")


def renamed(content, topic, shard):
    """An answer under the name of another one to the same opening."""
    id_ = decode(content).id
    return content.replace(id_.encode(), f"{topic}/{shard}/{id_.split('/', 2)[2]}".encode(), 1)


def test_an_answer_that_nobody_was_to_give_is_found(recorded, tmp_path):
    items = items_of(recorded)
    at = next(i for i, item in enumerate(items) if item[0] == "asks")
    items.insert(at, ("asks", None, renamed(items[at][2], "asks", "1-2")))
    verdict = rewritten(tmp_path / "log", items)

    assert verdict.difference is not None
    assert verdict.difference.topic == "asks of shard 1 of 2"
    assert "nothing of the kind was to be decided" in verdict.difference.what


def late(items, change):
    """The items with the first grants again at the end, changed."""
    grants = next(item for item in items if item[0] == "grants")
    return [*items, ("grants", None, change(grants[2]))]


def test_an_answer_that_came_too_late_is_compared_for_as_many_rounds_as_are_kept(recorded, tmp_path, monkeypatch):
    items = items_of(recorded)
    rounds = sum(b'"type":"RoundClosed"' in item[2][:40] for item in items)
    changed_late = late(items, lambda content: content.replace(b'"count":1', b'"count":2', 1))
    assert changed_late[-1][2] != late(items, bytes)[-1][2]
    same = rewritten(tmp_path / "same", late(items, bytes))
    found = rewritten(tmp_path / "log", changed_late).difference
    monkeypatch.setattr(documents, "ROUNDS_KEPT", rounds)
    just = rewritten(tmp_path / "log", changed_late)
    monkeypatch.setattr(documents, "ROUNDS_KEPT", rounds - 1)
    beyond = rewritten(tmp_path / "log", changed_late)

    assert same.is_same, same.text()
    assert found is not None
    assert (found.round, found.path, found.recorded) == (1, "hash", content_hash(changed_late[-1][2]))
    assert (just.is_same, beyond.is_same) == (False, True)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("part", [0, 1, 3])
def test_a_change_in_a_part_of_a_large_answer_is_found_though_another_one_was_read(tmp_path, monkeypatch, part):
    """Two instances write the same answer in parts, one beside the other; one part of the second one is changed."""
    monkeypatch.setattr(fencing, "RECORD_BYTES_MAX", 400)
    messages = parts_of(tmp_path / "log")
    same = verify(Source("parts", lambda hear: steps_of(messages, hear=hear), lambda: 1))
    at = [i for i, each in enumerate(messages) if b'"two"' in each.value[:40] and b'"piece":' in each.value][part]
    value = messages[at].value
    messages[at] = replace(messages[at], value=value.replace(b'"text":"', b'"text":" ', 1))
    verdict = verify(Source("parts", lambda hear: steps_of(messages, hear=hear), lambda: 1))

    assert same.is_same, same.text()
    assert verdict.difference is not None
    assert verdict.difference.topic == f"{messages[at].topic} of shard 0 of 1"


@pytest.mark.parametrize("is_changed", [False, True])
def test_an_answer_that_lies_behind_the_end_of_the_log_on_kafka_is_compared(tmp_path, monkeypatch, is_changed):
    messages = parts_of(tmp_path / "log")
    last = next(each for each in reversed(messages) if each.topic == "grants")
    value = last.value.replace(b'"body":', b'"body": ', 1) if is_changed else last.value
    bus = MemoryBus()
    batch = [Outgoing(each.topic, each.partition, each.value) for each in [*messages, replace(last, value=value)]]
    asyncio.run(bus.writer().send(batch))
    monkeypatch.setattr(kafka_source, "open_bus", lambda url, client_id: bus)
    place = kafka_source.CellTopics("kafka://somewhere:9092", "default", 0)
    verdict = verify(Source("kafka", lambda hear: steps_of(kafka_source.messages(place), hear=hear), lambda: 1))

    assert verdict.is_same != is_changed, verdict.text()
    assert verdict.rounds_compared > 0


def parts_of(path):
    """A simulated log as messages of the bus; each decision from two instances, in parts where it is long."""
    simulated(path)
    messages = []

    def put(topic, value):
        messages.append(Message(topic, 0, len(messages), value))

    for item in read_export(path):
        if not messages:
            put(LOG, claim_message("default", 0, item.header.token, fencing.LogOrder(), 0).value)
        if item.topic == LOG:
            put(LOG, wrap(item.header, item.content))
            continue
        record = decode(item.content)
        one, two = (fencing.split(Header(name), item.content, id_=record.id, seq=record.seq) for name in ("one", "two"))
        for pair in zip(one, two, strict=True):
            for value in pair:
                put(item.topic, value)
    return messages


def test_a_changed_answer_is_found_by_its_hash_where_the_answers_are_not_there(recorded, tmp_path):
    items = [item for item in items_of(recorded) if item[0] == LOG]
    same = rewritten(tmp_path / "same", items)
    altered, _ = changed(
        items, "RoundClosed", lambda body: body.hashes.__setitem__(0, replace(body.hashes[0], hash="ab" * 32))
    )
    verdict = rewritten(tmp_path / "log", altered)

    assert same.is_same, same.text()
    assert verdict.difference is not None
    assert (verdict.difference.topic, verdict.difference.path) == ("shares of shard 0 of 1", "hash")
    assert verdict.difference.recorded == "ab" * 32


def test_a_record_that_is_missing_is_found(recorded, tmp_path):
    items = items_of(recorded)
    gone = next(i for i, item in enumerate(items) if item[0] == LOG and b'"TaskFinished"' in item[2])
    verdict = rewritten(tmp_path / "log", items[:gone] + items[gone + 1 :])

    assert verdict.difference is not None
    assert "the envelope" in verdict.difference.what
    assert verdict.difference.path == "seq"


def test_one_changed_digit_is_refused_before_anything_is_decided(recorded, tmp_path):
    raw = recorded.read_bytes()
    at = raw.index(b'"time":37') + 8
    (tmp_path / "log").write_bytes(raw[:at] + b"8" + raw[at + 1 :])

    with pytest.raises(ExportDamaged, match=r"line \d+"):
        verify(open_source(tmp_path / "log"))


# ---------------------------------------------------------------- other rules
def mixed(path, monkeypatch):
    """A log whose rounds 4 to 7 were decided under other rules, one of them abandoned by these."""
    with ExportWriter(path) as writer:
        cell = Cell(listener=writer)
        cell.take(NodeRegistered("n", "e", {"cpu": 64_000, "memory": 64_000}), "me")
        for number, (_, spec) in enumerate(workload(10)):
            cell.advance(number * 10)
            cell.take(spec, "me")
            rules = RULES + (3 <= cell.rounds <= 6)
            monkeypatch.setattr(core_rounds, "RULES", rules)
            monkeypatch.setattr(engine, "RULES", rules)
            cell.settle()
        monkeypatch.undo()


def test_rounds_of_other_rules_are_fed_and_named(tmp_path, monkeypatch):
    mixed(tmp_path / "log", monkeypatch)
    verdict = verify(open_source(tmp_path / "log"))

    assert verdict.is_same, verdict.text()
    assert [(span.rules, span.round_first, span.round_last) for span in verdict.fed] == [(RULES + 1, 4, 7)]
    assert f"rounds 4 to 7 are of rules {RULES + 1}" in verdict.text()


def test_rounds_of_other_rules_are_decided_too_where_that_is_asked_for(tmp_path, monkeypatch):
    mixed(tmp_path / "log", monkeypatch)
    verdict = verify(open_source(tmp_path / "log"), across_rules=True)

    (span,) = verdict.fed
    assert verdict.is_same, verdict.text()
    assert (span.rounds_compared, span.rounds_differing) == (4 - verdict.rounds_abandoned, 0)
    assert "compared, the same under these rules" in verdict.text()
    assert verdict.rounds_compared == verify(open_source(tmp_path / "log")).rounds_compared


def test_what_these_rules_decide_otherwise_is_told_field_by_field_and_the_rest_is_compared_on(tmp_path, monkeypatch):
    mixed(tmp_path / "log", monkeypatch)
    items = items_of(tmp_path / "log")
    for i, (topic, header, content) in enumerate(items):
        record = deepcopy(decode(content))  # Equal bytes give the same record again.
        if record.type == "Shares" and record.round == 6:
            record.body.wake_ms = record.time + 77
            items[i] = (topic, header, encode(record))
            shares = record
        elif record.type == "RoundClosed" and record.round == 6:
            record.body.hashes[0] = DecisionHash("shares", 0, 1, content_hash(encode(shares)))
            items[i] = (topic, header, encode(record))
    # Later openings name the hash of all before them.
    last = next(i for i, item in enumerate(items) if b'"RoundClosed"' in item[2] and decode(item[2]).round == 6)
    fed = rewritten(tmp_path / "other", items[: last + 1])
    verdict = verify(open_source(tmp_path / "other"), across_rules=True)

    assert fed.is_same  # Recorded answers of other rules are taken as they are.
    assert not verdict.is_same
    (span,) = verdict.fed
    assert (span.round_last, span.rounds_differing) == (6, 1)
    assert (span.difference.round, span.difference.topic) == (6, "shares of shard 0 of 1")
    assert (span.difference.path, span.difference.decided) == ("$.wake_ms", "null")
    assert "are decided otherwise under these rules, first" in verdict.text()
    assert verdict.rounds_compared == fed.rounds_compared


def test_where_nothing_is_of_these_rules_the_answer_is_no(tmp_path, monkeypatch):
    mixed(tmp_path / "log", monkeypatch)
    items = items_of(tmp_path / "log")
    cut = next(i for i, item in enumerate(items) if b'"RoundClosed"' in item[2] and decode(item[2]).round == 7)
    for i, (topic, header, content) in enumerate(items):
        if (record := decode(content)).type == "RoundOpened":
            record.body.rules = RULES + 1
            items[i] = (topic, header, encode(record))
    verdict = rewritten(tmp_path / "other", items[: cut + 1])

    assert verdict.difference is None
    assert not verdict.is_same
    assert verdict.rounds_compared == 0


def test_a_round_of_other_rules_without_its_answers_is_a_named_gap(tmp_path, monkeypatch):
    mixed(tmp_path / "log", monkeypatch)
    items = [item for item in items_of(tmp_path / "log") if item[0] == LOG]

    with pytest.raises(DecisionGap, match="names shares of shard 0"):
        rewritten(tmp_path / "bare", items)


def test_an_abandoned_round_is_counted_and_not_compared(tmp_path):
    with ExportWriter(tmp_path / "log") as writer:
        cell = Cell(listener=writer)
        cell.take(NodeRegistered("n", "e", {"cpu": 64_000, "memory": 64_000}), "me")
        cell.put(core_rounds.due(cell.admission, 0, cell.prefix))
        cell.put(RoundAbandoned("operator", "me"))
        cell.settle()
    verdict = verify(open_source(tmp_path / "log"))

    assert (verdict.rounds_abandoned, verdict.rounds_compared) == (1, 1)
    assert verdict.is_same, verdict.text()


def test_a_verdict_is_a_plain_document(recorded):
    document = verify(open_source(recorded)).document()

    assert json.loads(json.dumps(document)) == document
    assert document["same"] is True


@pytest.mark.parametrize("name", ["missing", "empty", "text"])
def test_what_is_no_log_is_refused_by_name(tmp_path, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("hello\n")

    with pytest.raises(NoLog, match=name):
        verify(open_source(tmp_path / name))
