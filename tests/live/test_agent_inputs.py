"""Tasks that need results of earlier stages, under a real agent whose peers do not answer."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from schemas import TaskFailed, TaskStarted
from services.agent import inputs
from services.agent.peers import Silent
from services.agent.shell import run
from tests.live.agent_cell import eventually, first_end, outcome_of, scripted_cell, settings
from tests.result_folders import tree

STAGES = (
    {"stage": "make", "command": ["sh", "-c", "echo made > f"], "labels": {"zone": "m"}},
    {"stage": "use", "command": ["sh", "-c", 'cat "$LARGESSE_INPUTS/make/0/f"'], "after": ["make"],
     "inputs": ["make"], "labels": {"zone": "n"}},
)  # fmt: skip


class Peers:
    """Answers for nobody. `asked`: for whose results."""

    def __init__(self):
        self.asked = []

    def __call__(self, node, wanted):
        self.asked.append((node, wanted.stage, wanted.index))
        raise Silent("it is cut off")


@asynccontextmanager
async def an_agent(cell, node, peer):
    stop = asyncio.Event()
    running = asyncio.create_task(run(cell.bus, node, stop, peer))
    try:
        yield running
    finally:
        stop.set()
        with suppress(Exception):
            await running


@pytest.fixture
def tell(tmp_path):
    """Runs a story of a cell, and agents for nodes n and m, the first of which asks `peers`."""

    async def whole(story):
        peers = Peers()
        nodes = [settings(tmp_path / name, name=name, labels={"zone": name}) for name in ("n", "m")]
        async with (
            scripted_cell() as cell,
            an_agent(cell, nodes[0], peers) as one,
            an_agent(cell, nodes[1], peers) as other,
        ):
            await first_end(story(cell, peers), one, other, cell.serving)

    return lambda story: asyncio.run(whole(story))


def test_a_task_whose_results_are_awaited_has_not_started_and_is_cancelled_at_once(tell, tmp_path):
    async def story(cell, peers):
        await cell.submit("j", *STAGES)
        await eventually(lambda: peers.asked)
        assert [item.stage for item in cell.items(TaskStarted)] == ["make"]
        await cell.tell("jobs", {"cancel": "j"})
        assert await outcome_of(cell) == "cancelled"
        await cell.until(lambda: cell.items(TaskFailed))
        assert [(item.stage, item.reason) for item in cell.items(TaskFailed)] == [("use", "killed")]
        await cell.submit("next", {"stage": "s", "command": ["true"], "labels": {"zone": "n"}})
        assert await outcome_of(cell, "next") == "succeeded"

    tell(story)
    assert not [path for path in tree(tmp_path / "n") if path.endswith("use/0.1")]


def test_what_cannot_be_fetched_is_lost_and_closes_no_node(tell, monkeypatch):
    monkeypatch.setattr(inputs, "PATIENCE_MS", 0)

    async def story(cell, peers):
        await cell.submit("j", *STAGES)
        assert await outcome_of(cell) == "failed"
        failures = cell.items(TaskFailed)
        assert {(item.stage, item.reason) for item in failures} == {("use", "lost")}
        assert len(failures) == 10
        assert {item.detail for item in failures} == {
            "results of make/0 cannot be fetched from node m: it is cut off"
        }  # fmt: skip
        await cell.submit("next", {"stage": "s", "command": ["true"], "labels": {"zone": "n"}})
        assert await outcome_of(cell, "next") == "succeeded"

    tell(story)


def test_an_error_of_the_disk_is_the_machines_and_closes_it(tell, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(inputs, "open_inputs", full)

    async def story(cell, peers):
        await cell.submit("j", *STAGES)
        await cell.until(lambda: cell.items(TaskFailed))
        assert cell.items(TaskFailed)[0].reason == "lost"
        reports = await cell.until(
            lambda: [each for each in cell.inputs["nodes"] if each.get("report", {}).get("unschedulable")]
        )
        assert reports[0]["report"]["unschedulable"] == "it could not start a task: No space left on device"

    tell(story)
