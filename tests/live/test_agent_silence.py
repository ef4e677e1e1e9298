"""What an agent says again where the bus or the log does not show it, and how often it speaks."""

import pytest

from schemas import (
    NodeRegistered,
    TaskFailed,
    TaskFinished,
)
from tests.live.agent_cell import (
    agent_on,
    eventually,
    outcome_of,
    settings,
)
from tests.live.test_agent_restarts import go, once, started


@pytest.mark.parametrize("kind", ["lost", "unknown", "torn", "late"])
@pytest.mark.parametrize("topic", ["nodes", "tasks"])
def test_what_the_bus_may_have_lost_is_said_again(tell, tmp_path, topic, kind):
    async def story(cell):
        for skip in (0, 1):
            cell.bus.inject(kind, topic=topic, skip=skip)
        await cell.submit("j", {"command": ["true"], "tasks": 5})
        async with agent_on(cell, settings(tmp_path / "data")):
            assert await outcome_of(cell) == "succeeded"
            cell.bus.deliver_late()
            await cell.submit("k", {"command": ["true"]})
            assert await outcome_of(cell, "k") == "succeeded"
        assert len(cell.items(TaskFinished)) == 6
        assert cell.items(TaskFailed) == []

    tell(story)


def test_a_registration_that_nobody_hears_is_repeated(tell, tmp_path, monkeypatch):
    monkeypatch.setattr("services.agent.reporter.REGISTER_MS", 50)

    async def story(cell):
        cell.deaf = True
        async with agent_on(cell, settings(tmp_path / "data")):
            await eventually(lambda: cell.heard.get("nodes", 0) >= 2)
            cell.deaf = False
            await cell.until(lambda: cell.bodies(NodeRegistered))

    tell(story)


def test_a_report_that_the_log_does_not_show_is_repeated(tell, tmp_path, monkeypatch):
    monkeypatch.setattr("services.agent.outbox.Due.__init__.__defaults__", (50,))  # REPEAT_MS

    async def story(cell):
        await cell.submit("j", once(tmp_path, 1))
        async with agent_on(cell, settings(tmp_path / "data")):
            await started(cell, 1)
            cell.deaf = True
            heard = cell.heard["tasks"]
            go(tmp_path, 0)
            await eventually(lambda: cell.heard["tasks"] >= heard + 3)
            cell.deaf = False

            assert await outcome_of(cell) == "succeeded"
        assert len(cell.items(TaskFinished)) == 1

    tell(story)


def test_a_heartbeat_comes_three_times_a_lease_at_least(tell, tmp_path):
    async def story(cell):
        await cell.tell("config", {"set": {"node_lease_ms": 1_000}})
        async with agent_on(cell, settings(tmp_path / "data", heartbeat_ms=3_600_000)):
            await cell.until(lambda: cell.bodies(NodeRegistered))
            await eventually(lambda: sum("report" in document for document in cell.inputs["nodes"]) >= 3)

    tell(story)
