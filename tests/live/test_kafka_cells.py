"""Many cells by one set of services, one of them flooded: whatever is killed, paused or moved, each log is as a cell of
its own would have written it. Three cells in a run for every day, else ten.
"""

import asyncio
import signal

import orjson
import pytest

from benchmarks.many_cells import START_S, ManyCells, first_start, flood
from tests.kafka_broker import SCRIPT, Broker
from tests.unit.cli_process import largesse

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.xdist_group("kafka cells"),
    pytest.mark.skipif(not SCRIPT.exists(), reason="no script that starts a Kafka broker beside the checkout"),
]

CELLS, CELLS_DAILY = 10, 3
PAUSE_S = 8
JOBS = 3
SETTINGS = {"LARGESSE_LOG_FORMAT": "json", "LARGESSE_SNAPSHOT_ROUNDS": "5"}


@pytest.fixture
def broker(tmp_path):
    own = Broker(tmp_path / "broker", heap="512m")
    own.start()
    yield own
    own.stop()


async def work_in(cells, label):
    """A few jobs in every cell but the first, each of which has to start."""

    async def some(name, cluster):
        for number in range(JOBS):
            await first_start(cluster, f"{label}-{number}")

    await asyncio.gather(*(some(name, cluster) for name, cluster in cells.clusters.items() if name != "c0"))


def at_work(cells, name):
    """Instances that have begun a cell and have not ended it, as their logs say."""
    said = {"cell_begins": 1, "cell_ends": -1}
    found = []
    for each in cells.instances:
        lines = [orjson.loads(line) for line in (cells.folder / f"{each}.log").read_bytes().splitlines() if line]
        if sum(said.get(line.get("event"), 0) for line in lines if line.get("cell") == name) > 0:
            found.append(each)
    return found


async def removed_and_added_again(cells, name):
    """All instances let go of a cell, and take it up again as it was."""

    def command(*words):
        return asyncio.to_thread(largesse, "cell", *words, "--bus", f"kafka://{cells.address}")

    refused = await command("remove", name)
    assert (refused.code, refused.out) == (1, "")
    assert f"cell {name} has" in refused.err
    removed = await command("remove", name, "--force")
    assert removed.code == 0, removed.err
    async with asyncio.timeout(START_S):
        while at_work(cells, name):  # noqa: ASYNC110
            await asyncio.sleep(0.5)
    added = await command("add", name, "--json")
    assert (added.code, added.json["partition"]) == (0, cells.place(name).partition)
    await first_start(cells.clusters[name], f"{name}-again")


async def story(cells, count):
    await cells.set_up(count)
    flooding = asyncio.create_task(flood(cells.clusters["c0"]))
    await work_in(cells, "quiet")

    killed, paused = cells.instances["admission-0"], cells.instances["leftover-1"]
    killed.send(signal.SIGKILL)
    paused.send(signal.SIGSTOP)
    await work_in(cells, "killed")
    await asyncio.sleep(PAUSE_S)
    paused.send(signal.SIGCONT)
    await cells.start("admission", 0)

    # A third instance takes cells over; with it, and without one of the first two, they move.
    await cells.start("fairness", 2)
    await cells.add("late")
    await work_in(cells, "moved")
    gone = cells.instances.pop("fairness-0")
    gone.process.terminate()
    assert await gone.process.wait() == 0
    await work_in(cells, "moved back")

    await removed_and_added_again(cells, "late")

    assert cells.clusters["c0"].placed > 0
    flooding.cancel()
    codes = await cells.close()
    assert set(codes.values()) == {0}, codes


def test_each_log_of_many_cells_is_as_a_cell_of_its_own_would_have_written_it(broker, tmp_path, daily):
    count = CELLS_DAILY if daily else CELLS
    cells = ManyCells(broker.address, tmp_path, SETTINGS)

    async def whole():
        try:
            await story(cells, count)
        finally:
            await cells.close()

    asyncio.run(whole())

    assert len(cells.clusters) == count + 1
    for name in cells.clusters:
        said = largesse("replay", f"kafka://{broker.address}/{name}", "--verify")
        assert said.code == 0, f"{name}: {said.out}{said.err}"
