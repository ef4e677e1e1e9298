"""A cell on a real Kafka whose log was trimmed behind a checkpoint goes on as before, also after a kill half-way."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from largesse.archive import state_file
from largesse.archive.store import FolderStore
from largesse.beginning import LogTrimmed, restored
from largesse.bus.kafka.bus import KafkaBus
from largesse.failpoints import VARIABLE
from largesse.log.reader import publish_input
from largesse.log.snapshots import dump
from largesse.settings import Settings
from schemas.topics import LOG
from services.fairness import core as fairness
from services.replay.checkpoint_logs import noted, open_log
from services.replay.checkpointing import agree, told
from tests.conftest import ROOT
from tests.kafka_broker import SCRIPT, Broker
from tests.simulation.cell_story import NODES, story
from tests.stepped_cell import SteppedCell, shells_on, tell

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not SCRIPT.exists(), reason=f"no broker: {SCRIPT} is missing")]
OVER_MS = 12_000
GUARD_S = 300


@pytest.fixture
def broker(tmp_path):
    made = Broker(tmp_path / "kafka")
    made.start()
    yield made
    made.stop()


def process(*words, failpoint=""):
    env = {**os.environ, VARIABLE: failpoint}
    return subprocess.run([sys.executable, *words], cwd=ROOT, env=env, timeout=GUARD_S, check=False)


async def played(address, store):
    """Plays a story, with two checkpoints noted on the way; returns what the services knew in the end."""
    bus = KafkaBus(address)
    cell = SteppedCell(bus, Settings(snapshot_rounds=5), 1, NODES)
    for part, over_ms in enumerate((OVER_MS // 2, OVER_MS)):
        inputs = [each for each in story(1) if (each[0] < OVER_MS // 2) == (part == 0) and each[0] < over_ms]
        await tell(cell, inputs, over_ms)
        log = await asyncio.to_thread(open_log, f"kafka://{address}/default")
        made = await asyncio.to_thread(lambda log=log: agree(log.messages(), 0, log.snapshots(), newest_in(store)))
        document = told(made.file, state_file.put(store, made.file))
        await publish_input(bus.writer(), "config", document, "ann")
        async with asyncio.timeout(GUARD_S):
            await cell.settle()
            while len(await asyncio.to_thread(noted, store, log)) <= part:  # A broker shows it in its own time.
                await cell.settle()
    states = {shell.name: dump(shell.state) for shell in cell.shells}
    for shell in cell.shells:
        await shell.close()
    await cell.sequencer.close()
    await bus.close()
    return states


def newest_in(store):
    seqs = state_file.seqs_in(store)
    return state_file.get(store, seqs[-1])[0] if seqs else None


async def restarted(address, archive=""):
    bus, settings = KafkaBus(address), Settings(snapshot_rounds=5, archive=archive)
    shells = shells_on(bus, settings, 1)
    try:
        for shell in shells:
            await shell.restore()
            while await shell.step():
                pass
        return {shell.name: dump(shell.state) for shell in shells}
    finally:
        for shell in shells:
            await shell.close()
        await bus.close()


async def from_checkpoint(address, archive):
    """What fairness would go on from without a snapshot, and where the log begins."""
    bus = KafkaBus(address)
    try:
        found = await restored(bus, 0, archive, fairness.NAME, 0, fairness.LAYOUT, fairness.State)
        return found, (await bus.bounds(LOG, 0))[0]
    finally:
        await bus.close()


def test_a_log_on_kafka_is_trimmed_behind_the_older_of_two_checkpoints(broker, tmp_path):
    address, store = broker.address, FolderStore(tmp_path / "archive")
    made = process("-m", "largesse.bus.kafka.topics_admin", "--bootstrap", address, "--wait", "60")
    assert made.returncode == 0
    ends = asyncio.run(played(address, store))
    log = open_log(f"kafka://{address}/default")
    older, newer = (each.file for each in noted(store, log))
    assert log.first() == 0

    code = (
        "from services.replay.checkpoint_logs import open_log; "
        f"open_log('kafka://{address}/default').trim({older.needed(0)!r})"
    )
    for point in ("before_trim:1", "before_trim:2"):
        assert process("-c", code, failpoint=f"trimming:{point}").returncode == -signal.SIGKILL
        assert asyncio.run(restarted(address)) == ends
    assert process("-c", code).returncode == 0

    assert log.first() == older.order.offset - 1
    assert asyncio.run(restarted(address)) == ends
    found, first = asyncio.run(from_checkpoint(address, store.url))
    assert first == older.order.offset - 1
    assert found[1].order == newer.order
    assert dump(found[0]) == newer.states["fairness", 0][1]
    with pytest.raises(LogTrimmed, match="set LARGESSE_ARCHIVE to the store"):
        asyncio.run(from_checkpoint(address, ""))
    assert [each.file.order.seq for each in noted(store, log)] == [older.order.seq, newer.order.seq]
    with pytest.raises(Exception, match="no service has written a snapshot behind"):
        agree(log.messages(), 0, log.snapshots(), newer)
    assert agree(log.messages(), 0, log.snapshots(), older).file.states == newer.states
