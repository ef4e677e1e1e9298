"""Snapshots: what comes back, what is refused by name, and what serves instead."""

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from largesse.bus.file.bus import FileBus
from largesse.bus.port import Outgoing, PositionGap
from largesse.log import snapshots
from largesse.log.fencing import LogOrder
from largesse.log.snapshots import (
    Snapshot,
    SnapshotKeeper,
    SnapshotRefused,
    dump,
    landmark_of,
    load,
    messages_of,
    newest,
)
from largesse.settings import Settings
from schemas import JobCancelled
from schemas.topics import LOG, SNAPSHOTS
from tests.builders import job, node, stage
from tests.bus_stories import Scribe, answers_in, story
from tests.cells import SlowCell
from tests.toy import State


def busy_cell():
    """A cell in the middle of things: running, failed, waiting and gang tasks, a queue tree, a lost node."""
    cell = SlowCell(2)
    cell.take(node("n1", 4_000), node("n2", 2_000), node("n3", 2_000, gpus=(1_000, 500)))
    cell.take(job("a", stage("map", 9), stage("reduce", after=["map"])), job("b", stage("gang", 3, gang=True)))
    cell.take(job("g", stage("train", 2, gpu=500)))
    granted = cell.settle()
    cell.start(*granted[:2])
    cell.at(1_000).fail(granted[0])
    cell.lose("n2")
    cell.settle()
    return cell


def test_every_core_comes_back_as_it_was():
    cell = busy_cell()

    for name, state in cell.states.items():
        again = load(type(state), dump(state))
        assert dump(again) == dump(state), name
        assert type(again) is type(state)


def test_caches_are_left_out():
    state = State(jobs=["a"], decided=5)

    assert dump(state) == b'{"jobs":["a"],"closed":[],"fed":[]}'
    assert load(State, dump(state)).decided == 0


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b'{"jobs":["a"],"closed":[],"fed":3}', "cannot be read", id="another type"),
        pytest.param(b'{"jobs":["a"],"closed":[]', "cannot be read", id="cut off"),
        pytest.param(b'{"jobs":["a"],"closed":[]}', "does not come back as it was", id="a field is missing"),
        pytest.param(b'{"jobs":[],"closed":[],"fed":[],"more":1}', "does not come back as it was", id="one too many"),
    ],
)
def test_a_state_that_would_not_come_back_as_it_was_is_refused(data, why):
    with pytest.raises(SnapshotRefused, match=why):
        load(State, data)


# ---------------------------------------------------------------- on a bus
async def taken(bus, scribe, number, layout=1, service="toy", shard=0, jobs=("a",)):
    """A snapshot of a toy's state directly after a record that is written for it."""
    await scribe.write(JobCancelled(f"job-{number}"))
    order = LogOrder(offset=(await bus.bounds(LOG, 0))[1], seq=number, round=number)
    landmark = await landmark_of(bus, 0, order.offset)
    snapshot = Snapshot(service, shard, 1, layout, number, order, landmark, {"shares/0": 7}, dump(State(list(jobs))))
    await bus.writer().send(messages_of(snapshot, "default", 0), durable=False)
    return snapshot


async def restored(bus, service="toy", shard=0, layout=1):
    found = await newest(bus, 0, service, shard, layout, State)
    return None if found is None else found[1].number


async def damage(bus, change):
    """Another message in the place of the topic's last."""
    values = await answers_in(bus, SNAPSHOTS)
    bus.lose_tail(SNAPSHOTS, 0, len(values) - 1)
    await bus.writer().send([Outgoing(SNAPSHOTS, 0, change(values[-1]))])


@story
async def test_the_newest_of_a_service_and_shard_is_restored(bus, scribe):
    for number, (service, shard) in enumerate([("toy", 0), ("toy", 1), ("toy", 0), ("other", 0), ("toy", 1)]):
        await taken(bus, scribe, number, service=service, shard=shard)

    assert await restored(bus) == 2
    assert await restored(bus, shard=1) == 4
    assert await restored(bus, service="other") == 3
    assert await restored(bus, service="another") is None


@story
async def test_state_order_and_decision_positions_come_back(bus, scribe):
    snapshot = await taken(bus, scribe, 3, jobs=("a", "b"))
    found = await newest(bus, 0, "toy", 0, 1, State)

    assert found is not None
    assert found[0] == State(["a", "b"])
    assert found[1] == snapshot


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(lambda value: value.replace(b'"sum":"', b'"sum":"0'), "checksum", id="its checksum"),
        pytest.param(lambda value: value[:-12] + b'AAAA"}', "damaged", id="its bytes"),
        pytest.param(lambda value: value[:-40], "", id="cut off"),
    ],
)
def test_a_damaged_one_is_refused_and_the_one_before_serves(change, why):
    @story
    async def test(bus, scribe):
        for number in range(2):
            await taken(bus, scribe, number)
        await damage(bus, change)
        with capture_logs() as lines:
            assert await restored(bus) == 0

        refusals = [line for line in lines if line["event"] in ("snapshot_refused", "snapshot_unreadable")]
        assert len(refusals) == 1
        assert why in refusals[0].get("reason", "")

    test()


@story
async def test_one_of_another_layout_is_refused_and_one_of_this_layout_serves(bus, scribe):
    await taken(bus, scribe, 0, layout=1)
    await taken(bus, scribe, 1, layout=2)

    assert await restored(bus, layout=1) == 0
    assert await restored(bus, layout=2) == 1
    assert await restored(bus, layout=3) is None


@story
async def test_one_that_the_log_does_not_remember_is_refused(bus, scribe):
    """A broker came back without its tail, and the log went on differently."""
    await taken(bus, scribe, 0)
    await taken(bus, scribe, 1)
    end = (await bus.bounds(LOG, 0))[1]
    bus.lose_tail(LOG, 0, end - 1)
    await scribe.claim("another")
    with capture_logs() as lines:
        assert await restored(bus) == 0

    assert "the log has another message" in next(line["reason"] for line in lines if "reason" in line)


@story
async def test_one_beyond_the_end_of_the_log_stops_the_reader_by_name(bus, scribe):
    await taken(bus, scribe, 0)
    bus.lose_tail(LOG, 0, 0)

    with pytest.raises(PositionGap, match=r"cluster\.log partition 0: position 1 is beyond the end"):
        await restored(bus)


@story
async def test_a_large_one_travels_in_parts(bus, scribe):
    before, snapshots.PART_BYTES_MAX = snapshots.PART_BYTES_MAX, 40
    try:
        await taken(bus, scribe, 0)
        await taken(bus, scribe, 1, jobs=[f"job-{i * i * 7919 % 1000}" for i in range(40)])
    finally:
        snapshots.PART_BYTES_MAX = before

    assert len(await answers_in(bus, SNAPSHOTS)) > 8
    assert await restored(bus) == 1


@story
async def test_parts_of_one_that_was_never_finished_do_not_count(bus, scribe):
    before, snapshots.PART_BYTES_MAX = snapshots.PART_BYTES_MAX, 40
    try:
        await taken(bus, scribe, 0)
        await taken(bus, scribe, 1)
    finally:
        snapshots.PART_BYTES_MAX = before
    bus.lose_tail(SNAPSHOTS, 0, (await bus.bounds(SNAPSHOTS, 0))[1] - 1)

    assert await restored(bus) == 0


@story
async def test_after_so_many_refused_ones_the_whole_fold_serves(bus, scribe):
    await taken(bus, scribe, 0, layout=1)
    for number in range(snapshots.REFUSED_MAX):
        await taken(bus, scribe, number + 1, layout=2)

    assert await restored(bus, layout=1) is None


def test_the_newest_is_found_beyond_wide_gaps_of_compaction_and_refused_once(tmp_path):
    class Counting(FileBus):
        fetches = 0

        async def fetch(self, topic, *place, **how):
            self.fetches += topic == SNAPSHOTS
            return await super().fetch(topic, *place, **how)

    async def scenario():
        bus = Counting(tmp_path)
        scribe = Scribe(bus)
        await scribe.claim()
        await taken(bus, scribe, 0, service="seldom")
        await taken(bus, scribe, 1, service="seldom", layout=9)
        for number in range(2, 700):
            await bus.writer().send([Outgoing(SNAPSHOTS, 0, b"{}", f"busy/{number % 2}")], durable=False)
        with capture_logs() as lines:
            assert await restored(bus, service="seldom") == 0
        await bus.close()
        assert [line["event"] for line in lines].count("snapshot_refused") == 1
        assert bus.fetches < 20

    asyncio.run(scenario())


def test_a_thousand_rounds_with_a_snapshot_each_leave_two_of_them_and_the_newest_is_restored(tmp_path):
    async def scenario():
        bus = FileBus(tmp_path)
        scribe = Scribe(bus)
        await scribe.claim()
        keeper = SnapshotKeeper(bus, Settings(snapshot_rounds=1), "toy", 0, 1, "toy")
        record = await scribe.write(JobCancelled("j"))
        order, sizes, writer = LogOrder(offset=2, seq=record.seq), [], bus.writer()
        for number in range(1, 1_001):
            order = replace(order, round=number)
            await keeper.take(writer, dump(State(["a"] * 500)), order, {}, of=1, durable=number % 100 == 0)
            if number % 100 == 0:
                kept = [path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()]
                sizes.append((sum(kept), len(kept)))
        again = SnapshotKeeper(bus, Settings(), "toy", 0, 1, "toy")
        found = await again.restore(State)
        await bus.close()
        assert found is not None
        assert found[1].order.round == 1_000
        return sizes

    sizes = asyncio.run(scenario())
    assert {many for _, many in sizes} == {6}  # The journal, its head, its mark, its lock, and two slots.
    assert sizes[-1][0] - sizes[0][0] < 50


def test_two_slots_take_turns_so_that_compaction_keeps_a_whole_one():
    first = Snapshot("toy", 0, 1, 1, 4, LogOrder(), "", {}, b"{}")
    keys = [messages_of(replace(first, number=number), "cell", 0)[0].key for number in (4, 5, 6)]

    assert keys == ["cell/toy/0/0/0", "cell/toy/0/1/0", "cell/toy/0/0/0"]


@story
async def test_the_next_one_is_due_after_so_many_rounds(bus, scribe):
    await taken(bus, scribe, 10)
    keeper = SnapshotKeeper(bus, Settings(snapshot_rounds=5), "toy", 0, 1, "toy")
    fresh = keeper.is_due(5, 1), keeper.is_due(4, 1)
    await keeper.restore(State)

    assert fresh == (True, False)
    assert (keeper.is_due(14, 11), keeper.is_due(15, 11)) == (False, True)


@story
async def test_the_next_one_of_a_large_state_is_due_when_the_log_wrote_as_much(bus, scribe):
    """Or a cell that remembers a million names would write them all, again and again, beside a handful of rounds."""
    await scribe.claim()
    keeper = SnapshotKeeper(bus, Settings(snapshot_rounds=5), "toy", 0, 1, "toy")
    state = dump(State(["x" * 1_000] * 5_000))
    order = LogOrder(offset=(await bus.bounds(LOG, 0))[1], seq=100, round=10)
    await keeper.take(bus.writer(), state, order, {}, of=1, durable=True)
    records = (len(state) - snapshots.CHEAP_BYTES) // snapshots.RECORD_BYTES + 1

    assert not keeper.is_due(1_000, 100 + records - 1)
    assert keeper.is_due(1_000, 100 + records)
    assert not keeper.is_due(14, 100 + records)

    again = SnapshotKeeper(bus, Settings(snapshot_rounds=5), "toy", 0, 1, "toy")
    assert await again.restore(State) is not None
    assert not again.is_due(1_000, 100 + records - 1)
    assert again.is_due(1_000, 100 + records)


@story
async def test_a_large_state_is_packed_beside_the_loop_and_comes_back(bus, scribe):
    await scribe.claim()
    turns = 0

    async def count():
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.ensure_future(count())
    keeper = SnapshotKeeper(bus, Settings(), "toy", 0, 1, "toy")
    state = State([f"{number * 7919:x}" for number in range(300_000)])
    data = dump(state)
    await asyncio.sleep(0)
    before = turns
    await keeper.take(bus.writer(), data, LogOrder(offset=(await bus.bounds(LOG, 0))[1]), {}, of=1, durable=True)
    counting.cancel()

    assert len(data) > snapshots.CHEAP_BYTES
    assert turns - before > 10
    found = await newest(bus, 0, "toy", 0, 1, State)
    assert found is not None
    assert found[0] == state
