"""A bridge that starts does not fold the whole log: it goes on from what a bridge before it knew."""

import asyncio
from dataclasses import replace

import pytest

from largesse.bus.port import BusError
from largesse.log.snapshots import dump
from largesse.settings import Settings
from largesse.telemetry import FOLDED, SNAPSHOTS
from schemas import NodeRegistered
from services.bridge import shell as bridge
from services.bridge.asking import Asking
from services.bridge.cell_log import CellLog
from tests.live.agent_cell import GUARD_SECONDS, end_tasks, eventually, outcome_of, settings
from tests.live.edge_cell import edge_agent_on, edge_cell

OFTEN = replace(Settings(), snapshot_rounds=1)


@pytest.fixture(autouse=True)
def _nothing_stays(tmp_path):
    yield
    end_tasks(tmp_path)


def told(story):
    async def guarded():
        async with asyncio.timeout(GUARD_SECONDS), edge_cell() as (cell, broker):
            await story(cell, broker)

    asyncio.run(guarded())


def counted(outcome):
    return SNAPSHOTS.labels("bridge", outcome)._value.get()


def folded():
    return FOLDED.labels("bridge")._value.get()


async def read_to_end(cell, *, anew=False):
    """A bridge's reading of the log, to its end. `anew`: from its beginning, whatever snapshots there are."""
    log = CellLog(cell.bus, OFTEN, lambda: None, lambda: False)

    async def nothing(kind):
        return None

    if anew:
        log._snapshots.restore = nothing
    reading = asyncio.ensure_future(log.follow())
    await eventually(lambda: log.is_caught_up)
    reading.cancel()
    await asyncio.wait((reading,))
    log.state.stirred.clear()
    return log


async def life(cell, broker, name, story):
    stop = asyncio.Event()
    running = asyncio.create_task(bridge.run(cell.bus, OFTEN, broker, stop, Asking("default", name)))
    try:
        await story()
    finally:
        stop.set()
        await running


def test_the_next_bridge_goes_on_from_a_snapshot_and_knows_the_same(tmp_path):
    async def story(cell, broker):
        async def runs(job):
            await cell.submit(job, {"tasks": 4, "command": ["true"]})
            assert await outcome_of(cell, job) == "succeeded"

        async def first():
            await cell.until(lambda: cell.bodies(NodeRegistered))
            await runs("j")
            await runs("k")
            await eventually(lambda: counted("taken") > taken)

        taken, restored = counted("taken"), counted("restored")
        async with edge_agent_on(broker, settings(tmp_path / "data")):
            await life(cell, broker, "b1", first)
            before = folded()
            await life(cell, broker, "b2", lambda: runs("l"))
            assert counted("restored") == restored + 1
            assert 0 < folded() - before < len(cell.records)
        assert len(cell.bodies(NodeRegistered)) == 1
        from_snapshot = await read_to_end(cell)
        assert counted("restored") == restored + 2
        from_log = await read_to_end(cell, anew=True)
        assert dump(from_snapshot.state) == dump(from_log.state)
        assert (from_snapshot.seq, from_snapshot.in_round) == (from_log.seq, from_log.in_round)

    told(story)


def test_one_of_several_bridges_writes_them(tmp_path):
    async def story(cell, broker):
        names = ("b1", "b2", "b3")
        stop = asyncio.Event()
        asked = [Asking("default", name) for name in names]
        running = [asyncio.create_task(bridge.run(cell.bus, OFTEN, broker, stop, each)) for each in asked]
        try:
            await eventually(lambda: all(each.session for each in asked))
            async with edge_agent_on(broker, settings(tmp_path / "data")):
                await cell.until(lambda: cell.bodies(NodeRegistered))
                taken, rounds = counted("taken"), cell.cell.admission.round
                for number in range(3):
                    await cell.submit(f"j{number}", {"command": ["true"]})
                    assert await outcome_of(cell, f"j{number}") == "succeeded"
                assert counted("taken") > taken
                assert counted("taken") - taken <= cell.cell.admission.round - rounds + 1
        finally:
            stop.set()
            await asyncio.gather(*running)

    told(story)


def test_a_snapshot_that_cannot_be_written_ends_nothing(tmp_path, monkeypatch):
    async def story(cell, broker):
        async def fails(*args, **more):
            raise BusError("no room")

        monkeypatch.setattr("largesse.log.snapshots.SnapshotKeeper.take", fails)

        async def first():
            await cell.until(lambda: cell.bodies(NodeRegistered))
            await cell.submit("j", {"command": ["true"]})
            assert await outcome_of(cell) == "succeeded"

        async with edge_agent_on(broker, settings(tmp_path / "data")):
            await life(cell, broker, "b1", first)

    told(story)
