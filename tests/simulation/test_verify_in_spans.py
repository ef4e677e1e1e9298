"""A log verified between its checkpoints comes to what one pass comes to, and a difference in any span is named."""

import asyncio
import json
import shutil
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from largesse.archive import state_file
from largesse.archive.state_file import pack, unpack
from largesse.archive.store import FolderStore
from largesse.bus.file.bus import FileBus
from largesse.bus.file.trim import trim
from largesse.bus.port import Outgoing
from largesse.ids import decision_id
from largesse.log.codec import encode
from largesse.log.export import ExportWriter
from largesse.log.fencing import split
from schemas import Header, Releases, RoundClosed
from schemas.topics import LOG
from services.replay.source import open_source, winning
from services.replay.spans import begins, chosen, put_together, verify_span
from services.replay.verify import verify
from tests.simulation.checkpointed import kept_behind
from tests.simulation.test_what_if_from_checkpoint import recorded as checkpointed
from tests.strategies import for_all
from tests.unit.cli_here import largesse


def recorded():
    return checkpointed(10)


@cache
def serial(until=None):
    return verify(recorded().live, until)


def in_spans(source, files, until=None, told=lambda done: None):
    start, behind = begins(source, files)
    parts = (verify_span(source, *ends, until, 1, False) for ends in pairwise([start, *behind, None]))
    return put_together(source.name, parts, told)


@settings(max_examples=3)
@for_all(st.data())
def test_a_good_log_comes_to_the_same_verdict(data):
    cell = recorded()
    chosen_ones = data.draw(st.sets(st.integers(0, len(cell.files) - 1), min_size=1))
    files = [unpack(pack(cell.files[at]), "here") for at in sorted(chosen_ones)]
    until = data.draw(st.sampled_from([None, files[-1].order.seq + 30]))
    assert in_spans(cell.live, files, until) == (serial(until), "")
    assert serial(until).is_same


def changed(path, seq, change):
    """The same log with one record said otherwise, as an export."""
    with ExportWriter(path) as writer:
        for step in recorded().log.steps():
            accepted = step.accepted
            if isinstance(accepted.record.body, RoundClosed):
                for topic, content in winning(step, accepted.record):
                    writer(topic, None, content)
            content = encode(change(accepted.record)) if accepted.record.seq == seq else accepted.content
            writer(LOG, accepted.header, content)
    return open_source(path)


def later(record):
    return replace(record, body=replace(record.body, wake_ms=(record.body.wake_ms or record.time) + 1))


@pytest.mark.parametrize("at", [0, 2, 4])
def test_a_difference_in_any_span_is_named_with_its_seq(tmp_path, at):
    cell = recorded()
    seqs = [0, *(file.order.seq for file in cell.files), cell.records[-1].seq]
    inside = [each for each in cell.records if seqs[at] < each.seq < seqs[at + 1]]
    seq = [each.seq for each in inside if isinstance(each.body, RoundClosed)][len(inside) // 100]
    source = changed(tmp_path / "log", seq, later)

    verdict, failed = in_spans(source, cell.files)
    assert (verdict.difference.seq, verdict.difference.path, failed) == (seq, "$.body.wake_ms", "")
    assert verdict == verify(source)


def test_a_forecast_behind_a_checkpoint_is_held_against_what_was_said_before_it(tmp_path):
    cell = recorded()
    pairs = [pair for pair in pairwise(cell.records) if isinstance(pair[0].body, RoundClosed)]
    seq = next(record.seq for _, record in pairs if isinstance(record.body, Releases))
    source = changed(
        tmp_path / "log", seq, lambda record: replace(record, body=Releases(record.body.after, record.body.at_ms + 1))
    )

    verdict, failed = in_spans(source, kept_behind(cell.folder, [seq - 1]))
    assert (verdict.difference, failed) == (verify(source).difference, "")
    assert (verdict.difference.seq, verdict.difference.topic) == (seq, "releases")


def test_a_state_that_a_checkpoint_has_otherwise_is_named_where_the_span_before_it_ends():
    cell = recorded()
    file = unpack(pack(cell.files[1]), "here")
    layout, data = file.states["planner", 0]
    file.states["planner", 0] = layout, data.replace(b"0", b"1", 1)
    verdict, failed = in_spans(cell.live, [cell.files[0], file, cell.files[2]])

    assert (verdict.difference.seq, verdict.difference.topic, failed) == (file.order.seq, "planner", "")
    assert f"the checkpoint behind record {file.order.seq:,} has another state of planner" in verdict.text()


def test_a_decision_that_came_long_after_its_round_is_compared_with_what_was_decided_before(tmp_path):
    cell = recorded()
    shutil.copytree(cell.folder, tmp_path / "bus")
    closing = [each for each in cell.records if isinstance(each.body, RoundClosed) and each.body.grants][2]
    asyncio.run(_answer_otherwise(tmp_path / "bus", closing))
    source = open_source(tmp_path / "bus")

    verdict, failed = in_spans(source, cell.files)
    assert verdict.difference == verify(source).difference
    assert (verdict.difference.topic, failed) == ("shares of shard 0 of 1", "")


async def _answer_otherwise(folder, closing):
    bus = FileBus(folder)
    step = next(each for each in recorded().live.steps() if each.accepted.record.seq == closing.seq)
    (named,) = [each for each in closing.body.hashes if each.topic == "shares"]
    content = step.decision(closing.cause, named).replace(b'"time":', b'"time":1', 1)
    id_, seq = decision_id("shares", 0, 1, closing.cause), int(closing.cause.split("/")[1])
    await bus.writer().send([Outgoing("shares", 0, each) for each in split(Header("x"), content, id_=id_, seq=seq)])
    await bus.close()


def test_what_was_trimmed_is_said_not_to_be_seen(tmp_path):
    cell = checkpointed()
    shutil.copytree(cell.folder, tmp_path / "bus")
    trim(tmp_path / "bus", cell.files[2].needed(0))
    source = open_source(tmp_path / "bus")
    start, behind = begins(source, cell.files)
    assert start in cell.files[:3]  # Whole files go: the log may still have an earlier place.
    assert behind == cell.files[cell.files.index(start) + 1 :]

    store = FolderStore(tmp_path / "archive")
    for file in cell.files:
        state_file.put(store, file)
    said = largesse("replay", tmp_path / "bus", "--verify", "--jobs", "1", "--json", LARGESSE_ARCHIVE=store.url)
    document = json.loads(said.out)
    assert (said.code, document["same"], document["unseen"]) == (0, True, start.order.seq)
    assert document["seq"] == cell.records[-1].seq


def test_spans_are_about_equally_long():
    cell = recorded()
    assert chosen(cell.files, 0, 10) == cell.files
    assert [file.order.seq for file in chosen(cell.files, 0, 2)] == [cell.files[1].order.seq, cell.files[3].order.seq]
