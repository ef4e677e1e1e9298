"""A checkpoint's states and the rest of the log come to what the whole log comes to, for every core and wherever it is;
and a fold that differs is named, and kept nowhere.
"""

import asyncio
from dataclasses import asdict, replace
from functools import cache

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from largesse.archive import state_file
from largesse.archive.state_file import StateFileDamaged, pack, unpack
from largesse.archive.store import FolderStore
from largesse.bus.memory import MemoryBus
from largesse.log.reader import LogReader, publish_input
from largesse.log.snapshots import whole_ones
from largesse.settings import Settings
from schemas import RoundClosed
from schemas.edge.read import read_input
from schemas.topics import DECISIONS, LOG, SHARDED, SNAPSHOTS
from services.replay import checkpointing
from services.replay.checkpointing import Fold, FoldsDiffer, NothingToKeep, agree, stations, told
from tests.simulation.cell_story import NODES, OVER_MS, SHARDS_HOSTED, story
from tests.stepped_cell import SteppedCell, play, tell
from tests.strategies import for_all

LATER = ((8_000, 4), (14_000, 2))
SERVICES = {"admission", "altruism", "bridge", "estimator", "fairness", "gateway", "leftover", "past", "planner"}


async def _everything(bus, topic, partition):
    end = (await bus.bounds(topic, partition))[1]
    return list(await bus.fetch(topic, partition, 0, most=end or 1))


async def _played():
    bus = MemoryBus()
    cell = SteppedCell(bus, Settings(snapshot_rounds=10), SHARDS_HOSTED, NODES)
    await play(cell, story(1, LATER), OVER_MS)
    places = [(topic, at) for topic in DECISIONS for at in range(SHARDS_HOSTED if topic in SHARDED else 1)]
    messages = [each for place in [*places, (LOG, 0)] for each in await _everything(bus, *place)]
    return messages, whole_ones(await _everything(bus, SNAPSHOTS, 0))


@cache
def recorded():
    """What a cell with one shard, then four, then two has written: messages of its log and decisions, and snapshots."""
    return asyncio.run(_played())


def seqs():
    return sorted({each.order.seq for each in recorded()[1]})


def made(last, start=None):
    """The checkpoint behind the snapshot of this seq."""
    messages, snapshots = recorded()
    return agree(messages, 0, [each for each in snapshots if each.order.seq <= last], start).file


def folded_to(last, start=None):
    """The slow way: everything folded, one record after another."""
    fold = Fold.begun(start)
    for station in stations(recorded()[0], 0, start):
        fold.take(station)
        if station.accepted.record.seq == last:
            return fold.states()
    raise AssertionError(f"the log has no seq {last}")


def test_every_core_has_its_state_in_a_checkpoint_and_what_the_services_wrote_is_among_them():
    file = made(seqs()[-1])
    ours = {key: data for key, (_, data) in file.states.items()}

    assert {service for service, _ in ours} == SERVICES
    assert sorted(shard for service, shard in ours if service == "altruism") == [0, 1, 2, 3, 4]
    theirs = [each for each in recorded()[1] if each.order.seq == file.order.seq]
    assert theirs
    assert {(each.service, each.shard): each.state for each in theirs}.items() <= ours.items()


@settings(max_examples=5)
@for_all(st.data())
def test_a_checkpoint_and_the_records_behind_it_come_to_what_the_whole_log_does(data):
    first, last = sorted(data.draw(st.lists(st.sampled_from(seqs()), min_size=2, max_size=2, unique=True)))
    start = made(first)
    start = unpack(pack(start), "here")

    assert start.states == folded_to(first)
    assert folded_to(last, start) == folded_to(last)
    again, whole = made(last, start), made(last)
    assert again == whole
    assert pack(again) == pack(whole)


def test_a_state_that_a_service_wrote_otherwise_is_named_and_nothing_is_kept():
    messages, snapshots = recorded()
    last = max((each for each in snapshots if each.service == "fairness"), key=lambda each: each.order.seq)
    wrong = replace(last, state=last.state.replace(b'"cpu":', b'"cpv":', 1))
    assert wrong.state != last.state

    with pytest.raises(FoldsDiffer, match=f"fairness wrote another state behind seq {last.order.seq} than the log"):
        agree(messages, 0, [wrong])


def test_a_snapshot_of_another_log_is_named():
    messages, snapshots = recorded()
    order = replace(snapshots[0].order, prefix="5f" * 32)

    with pytest.raises(FoldsDiffer, match="is of a log with another prefix"):
        agree(messages, 0, [replace(snapshots[0], order=order)])


def test_a_fold_that_goes_another_way_than_the_first_is_named(monkeypatch):
    """Of two states that were the same, one comes to something else: as a core would that keeps more than it writes."""
    messages, snapshots = recorded()
    written = [each for each in snapshots if each.service == "estimator"]
    least, most = min(written, key=lambda each: each.order.seq), max(written, key=lambda each: each.order.seq)
    before = checkpointing._Second.begin

    def meddling(second, fold, snapshot, order):
        before(second, fold, snapshot, order)
        if snapshot is least:
            nodes = second.kept["planner", 0].hosted.state.nodes
            nodes["nobody"] = next(iter(nodes.values()))

    monkeypatch.setattr(checkpointing._Second, "begin", meddling)
    with pytest.raises(FoldsDiffer, match=r"planner: two folds differ behind seq \d+; one began behind \d+"):
        agree(messages, 0, [least, most])


def test_without_a_snapshot_there_is_nothing_to_agree_with():
    messages, snapshots = recorded()
    start = made(seqs()[-1])

    with pytest.raises(NothingToKeep, match="no service has written a snapshot yet"):
        agree(messages, 0, [])
    with pytest.raises(NothingToKeep, match=f"behind seq {start.order.seq} yet"):
        agree(messages, 0, snapshots, start)


def test_what_is_told_of_it_is_what_the_sequencer_takes():
    file = made(seqs()[-1])
    patch = read_input("config", told(file, "9e" * 32), "ann")

    assert patch.checkpoint.closing == file.order.seq
    assert [(each.service, each.shard, each.layout, each.sha256) for each in patch.checkpoint.states] == file.sums()
    assert {each.topic for each in patch.checkpoint.positions} >= {"jobs", "nodes", "tasks"}


# ---------------------------------------------------------------- the file
def test_a_file_that_is_damaged_at_any_place_is_refused_by_name(tmp_path):
    data = pack(made(seqs()[0]))
    for at in range(0, len(data), max(1, len(data) // 40)):
        with pytest.raises(StateFileDamaged, match="checkpoints/here"):
            unpack(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :], "checkpoints/here")
        with pytest.raises(StateFileDamaged, match="checkpoints/here"):
            unpack(data[:at], "checkpoints/here")


def test_a_file_is_written_once_and_one_of_another_log_is_refused(tmp_path):
    store, file = FolderStore(tmp_path / "archive"), made(seqs()[0])
    digest = state_file.put(store, file)

    assert state_file.put(store, file) == digest
    assert state_file.get(store, file.order.seq) == (file, digest)
    assert state_file.seqs_in(store) == [file.order.seq]
    other = replace(file, order=replace(file.order, prefix="5f" * 32))
    with pytest.raises(StateFileDamaged, match="it is there, with other states or of another log"):
        state_file.put(store, other)
    moved = state_file.name_of(7)
    store.put(moved, store.get(file.name))
    with pytest.raises(StateFileDamaged, match=f"{moved}: it holds the states behind seq {file.order.seq}"):
        state_file.get(store, 7)


# ---------------------------------------------------------------- decisions
OF_THE_CHAIN = {"prefix", "hashes"}
"""Fields that hold hashes of the records before."""


async def _decided(*, are_right):
    """What happens in a cell that is told of checkpoints: if they are right its log has them, else that they were
    refused.
    """
    bus = MemoryBus()
    cell, inputs, begun_ms = SteppedCell(bus, Settings(snapshot_rounds=10), 2, NODES), story(2), 0
    for over_ms in (4_000, 9_000, 14_000, OVER_MS):
        await tell(cell, [each for each in inputs if begun_ms <= each[0] < over_ms], over_ms)
        begun_ms = over_ms
        reader, document = LogReader(bus), {}
        while more := await reader.read(most=1):
            if isinstance(more[0].record.body, RoundClosed):
                prefix = reader.order.prefix if are_right else "5f" * 32
                at = {"closing": more[0].record.seq, "prefix": prefix, "positions": []}
                state = {"service": "admission", "shard": 0, "layout": 1, "sha256": "0a" * 32}
                document = {"checkpoint": {**at, "states": [state], "file": "9e" * 32}}
        await publish_input(cell.bus.writer(), "config", document, "ann")
        await cell.settle()
    await play(cell, [], OVER_MS)
    records = [each.record for each in await _accepted(bus)]
    told = [record for record in records if record.type == "Checkpoint" or _is_of_one(record)]
    rest = [record for record in records if record not in told]
    said = [(record.type, record.seq, record.round, record.time, _said(record.body)) for record in rest]
    return [record.type for record in told], said


def _is_of_one(record):
    return record.type == "InputRefused" and record.body.field.startswith("checkpoint.")


async def _accepted(bus):
    reader, found = LogReader(bus), []
    while more := await reader.read():
        found += more
    return found


def _said(body):
    return {name: value for name, value in asdict(body).items() if name not in OF_THE_CHAIN}


def test_a_log_decides_the_same_whether_a_record_of_it_notes_a_checkpoint_or_refuses_one():
    noted, refused = (asyncio.run(_decided(are_right=are_right)) for are_right in (True, False))

    assert (noted[0], refused[0]) == (["Checkpoint"] * 4, ["InputRefused"] * 4)
    assert len(noted[1]) > 300
    assert noted[1] == refused[1]
