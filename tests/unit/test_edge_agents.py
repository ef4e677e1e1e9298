"""Agents that know only an MQTT broker: what the log has for them arrives, and what they say is in the log, once."""

import asyncio
import json
import random
from contextlib import AsyncExitStack

import pytest

from largesse.bus.memory import MemoryBus
from largesse.mqtt.topics import down_topic, up_topic
from schemas import NodeForgotten, NodeLost, NodeRegistered, Policy, TaskFailed, TaskFinished, TaskStarted
from services.agent import edge, line
from services.agent.local import mono_ms
from services.agent.shell import TakenOver
from tests.live.agent_cell import GUARD_SECONDS, end_tasks, eventually, outcome_of, settings
from tests.live.edge_cell import bridge_on, edge_agent_on, edge_cell, ended

UP, DOWN = up_topic("default", "n"), down_topic("default", "n")


@pytest.fixture(autouse=True)
def _nothing_stays(tmp_path):
    yield
    end_tasks(tmp_path)


def told(story, bus=None):
    async def guarded():
        async with asyncio.timeout(GUARD_SECONDS), edge_cell(bus) as (cell, broker):
            await story(cell, broker)

    asyncio.run(guarded())


def writes(path, until=None):
    """A command that says which attempt it is, and then waits for a file."""
    waits = f"; while [ ! -e {until} ]; do sleep 0.02; done" if until else ""
    return ["sh", "-c", f'echo "$LARGESSE_JOB $LARGESSE_TASK_INDEX $LARGESSE_ATTEMPT" >> {path}{waits}']


def written(path):
    return sorted(path.read_text().splitlines()) if path.exists() else []


def once(job, tasks):
    return [f"{job} {index} 1" for index in range(tasks)]


async def registered(cell, times=1):
    await cell.until(lambda: len(cell.bodies(NodeRegistered)) >= times)


def test_a_job_runs_on_a_node_behind_a_bridge(tmp_path):
    async def story(cell, broker):
        async with bridge_on(cell, broker), edge_agent_on(broker, settings(tmp_path / "data")):
            await registered(cell)
            await cell.submit("j", {"tasks": 5, "command": writes(tmp_path / "out")})
            assert await outcome_of(cell) == "succeeded"
        assert written(tmp_path / "out") == once("j", 5)
        assert len(cell.items(TaskFinished)) == 5
        assert len(cell.bodies(NodeRegistered)) == 1

    told(story)


def test_results_of_one_stage_reach_the_next_over_what_the_node_is_told(tmp_path):
    async def story(cell, broker):
        async with bridge_on(cell, broker), edge_agent_on(broker, settings(tmp_path / "data")):
            await registered(cell)
            leaves = ["sh", "-c", "echo $LARGESSE_TASK_INDEX > $LARGESSE_RESULTS/left"]
            reads = ["sh", "-c", f"cat $LARGESSE_INPUTS/s/*/left > {tmp_path}/read"]
            last = {"stage": "t", "after": ["s"], "inputs": ["s"], "command": reads}
            await cell.submit("j", {"tasks": 3, "command": leaves}, last)
            assert await outcome_of(cell) == "succeeded"
        assert (tmp_path / "read").read_text().split() == ["0", "1", "2"]

    told(story)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_broker_does_to_messages_each_task_runs_once(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(line, "AGAIN_MS", 50)
    monkeypatch.setattr(line, "AGAIN_MS_MAX", 100)
    dice = random.Random(seed)

    async def story(cell, broker):
        for _ in range(25):
            kind = dice.choice(["lost", "lost", "repeated", "late", "cut", "unknown"])
            after = dice.randint(1, 6) if kind == "late" else None
            broker.inject(kind, topic=dice.choice([UP, DOWN]), skip=dice.randint(0, 40), after=after)
        async with bridge_on(cell, broker), edge_agent_on(broker, settings(tmp_path / "data")):
            await registered(cell)
            for number in range(4):
                await cell.submit(f"j{number}", {"tasks": 6, "command": writes(tmp_path / "out")})
                assert await outcome_of(cell, f"j{number}") == "succeeded"
        assert written(tmp_path / "out") == sorted(line for number in range(4) for line in once(f"j{number}", 6))
        assert len(cell.items(TaskFinished)) == 24
        assert cell.bodies(TaskFailed) == []

    told(story)


def test_a_grant_that_comes_late_starts_nothing_before_the_node_knows_what_came_after_it(tmp_path, monkeypatch):
    late_ms = 0
    for module in (edge, line):
        monkeypatch.setattr(module, "mono_ms", lambda: mono_ms() + late_ms)
    monkeypatch.setattr(line, "ANSWER_MS", 200)
    take, taken = edge.EdgeFeed.take, []
    monkeypatch.setattr(
        edge.EdgeFeed, "take", lambda feed, **asked: taken.append(list(feed.work.held)) or take(feed, **asked)
    )

    async def story(cell, broker):
        nonlocal late_ms
        async with edge_agent_on(broker, settings(tmp_path / "data")):
            async with bridge_on(cell, broker) as first:
                await registered(cell)
                for _ in range(50):
                    broker.inject("late", topic=DOWN)
                await cell.submit("j", {"command": writes(tmp_path / "out")})
                await eventually(lambda: any(b'"job":"j"' in held.payload for held in broker._late))
                await ended(first)
            broker._faults.clear()
            await cell.lose("n")
            late_ms += Policy().node_lease_ms
            assert broker.deliver_late()
            await eventually(lambda: taken.count(["j/s/0/1"]) >= 3)
            assert list(tmp_path.glob("data/jobs/*")) == []
            async with bridge_on(cell, broker, "b2"):
                assert await outcome_of(cell) == "succeeded"
        assert written(tmp_path / "out") == ["j 0 2"]

    told(story)


class Held(MemoryBus):
    """Once `hold` is set, an append to `tasks` comes about and nothing is said of it any more."""

    def __init__(self):
        super().__init__()
        self.hold, self.held = False, asyncio.Event()

    def writer(self):
        return HeldWriter(self, super().writer())


class HeldWriter:
    def __init__(self, bus, writer):
        self._bus, self._writer, self.drop = bus, writer, writer.drop

    async def send(self, batch, *, durable=True):
        offsets = await self._writer.send(batch, durable=durable)
        if self._bus.hold and any(each.topic == "tasks" for each in batch):
            self._bus.hold = False
            self._bus.held.set()
            await asyncio.Event().wait()
        return offsets


def test_a_bridge_that_dies_between_append_and_answer_doubles_nothing(tmp_path):
    async def story(cell, broker):
        bus = cell.bus
        async with edge_agent_on(broker, settings(tmp_path / "data")):
            async with bridge_on(cell, broker) as first:
                await registered(cell)
                bus.hold = True
                await cell.submit("j", {"tasks": 3, "command": writes(tmp_path / "out")})
                await bus.held.wait()
                await ended(first)
            async with bridge_on(cell, broker, "b2"):
                assert await outcome_of(cell) == "succeeded"
        assert written(tmp_path / "out") == once("j", 3)
        assert len(cell.items(TaskFinished)) == 3
        assert len(cell.bodies(NodeRegistered)) == 1

    told(story, Held())


def test_tasks_run_on_while_bridge_and_broker_are_away_and_their_ends_are_told_later(tmp_path):
    async def story(cell, broker):
        async with edge_agent_on(broker, settings(tmp_path / "data")):
            async with bridge_on(cell, broker) as first:
                await registered(cell)
                await cell.submit("j", {"tasks": 2, "command": writes(tmp_path / "out", tmp_path / "go")})
                await cell.until(lambda: len(cell.items(TaskStarted)) == 2)
                await ended(first)
            broker.stop()
            (tmp_path / "go").touch()
            await eventually(lambda: len(list(tmp_path.glob("data/jobs/**/result.json"))) == 2)
            broker.start()
            async with bridge_on(cell, broker, "b2"):
                assert await outcome_of(cell) == "succeeded"
        assert written(tmp_path / "out") == once("j", 2)
        assert cell.bodies(NodeLost) == []

    told(story)


def test_an_agent_that_is_started_again_takes_its_tasks_over(tmp_path):
    async def story(cell, broker):
        async with bridge_on(cell, broker):
            async with edge_agent_on(broker, settings(tmp_path / "data")):
                await registered(cell)
                await cell.submit("j", {"tasks": 2, "command": writes(tmp_path / "out", tmp_path / "go")})
                await cell.until(lambda: len(cell.items(TaskStarted)) == 2)
            async with edge_agent_on(broker, settings(tmp_path / "data")):
                await registered(cell, 2)
                (tmp_path / "go").touch()
                assert await outcome_of(cell) == "succeeded"
        assert written(tmp_path / "out") == once("j", 2)
        assert [len(body.attempts) for body in cell.bodies(NodeRegistered)] == [0, 1]  # One range of two.

    told(story)


def test_of_two_agents_of_one_name_the_newer_one_has_the_node(tmp_path):
    async def story(cell, broker):
        async with bridge_on(cell, broker), AsyncExitStack() as agents:
            older = await agents.enter_async_context(edge_agent_on(broker, settings(tmp_path / "older")))
            await registered(cell)
            await cell.submit("j", {"command": writes(tmp_path / "out", tmp_path / "go"), "retries": 0})
            await cell.until(lambda: cell.items(TaskStarted))
            await agents.enter_async_context(edge_agent_on(broker, settings(tmp_path / "newer")))
            with pytest.raises(TakenOver, match="registered by another agent"):
                await older
            await cell.submit("k", {"command": writes(tmp_path / "out")})
            assert await outcome_of(cell, "k") == "succeeded"
        epochs = [body.epoch for body in cell.bodies(NodeRegistered)]
        assert len(epochs) == len(set(epochs)) == 2

    told(story)


def test_a_node_that_was_lost_stops_what_it_has_and_comes_back_under_another_epoch(tmp_path):
    async def story(cell, broker):
        async with bridge_on(cell, broker), edge_agent_on(broker, settings(tmp_path / "data")):
            await registered(cell)
            await cell.submit("j", {"command": writes(tmp_path / "out", tmp_path / "go")})
            await cell.until(lambda: cell.items(TaskStarted))
            await cell.lose("n")
            await registered(cell, 2)
            (tmp_path / "go").touch()
            assert await outcome_of(cell) == "succeeded"
        first, second = [body.epoch for body in cell.bodies(NodeRegistered)][:2]
        assert first != second
        assert written(tmp_path / "out") == ["j 0 1", "j 0 2"]

    told(story)


def test_the_broker_keeps_nothing_for_a_node_that_was_forgotten_and_it_may_come_back(tmp_path):
    async def story(cell, broker):
        async with bridge_on(cell, broker):
            async with edge_agent_on(broker, settings(tmp_path / "data")):
                await registered(cell)
            await cell.lose("n")
            await eventually(lambda: b'"standing":"lost"' in broker.retained[DOWN])
            await cell.put(NodeForgotten("n"))
            await eventually(lambda: DOWN not in broker.retained)
            async with edge_agent_on(broker, settings(tmp_path / "data")):
                await registered(cell, 2)
                await cell.submit("j", {"command": writes(tmp_path / "out")})
                assert await outcome_of(cell) == "succeeded"
        assert written(tmp_path / "out") == ["j 0 1"]

    told(story)


def test_two_bridges_share_the_nodes_and_one_takes_over_what_the_other_leaves(tmp_path):
    async def story(cell, broker):
        async with AsyncExitStack() as agents, bridge_on(cell, broker, "b2"):
            async with bridge_on(cell, broker, "b1") as first:
                for number in range(4):
                    node = settings(tmp_path / f"data{number}", name=f"n{number}")
                    await agents.enter_async_context(edge_agent_on(broker, node))
                await registered(cell, 4)
                await cell.submit("j", {"tasks": 8, "demand": {"cpu": "1"}, "command": writes(tmp_path / "out")})
                assert await outcome_of(cell, "j") == "succeeded"
                await ended(first)
            await cell.submit("k", {"tasks": 8, "demand": {"cpu": "1"}, "command": writes(tmp_path / "out")})
            assert await outcome_of(cell, "k") == "succeeded"
        assert written(tmp_path / "out") == once("j", 8) + once("k", 8)
        assert cell.bodies(NodeLost) == []

    told(story)


def test_what_the_broker_kept_from_before_starts_nothing(tmp_path):
    async def story(cell, broker):
        async with bridge_on(cell, broker), edge_agent_on(broker, settings(tmp_path / "data")):
            await registered(cell)
            kept = []
            async with broker.session("eavesdropper") as ear:
                await ear.subscribe(DOWN)
                await cell.submit("j", {"command": writes(tmp_path / "out")})
                assert await outcome_of(cell) == "succeeded"
                kept = [arrived.payload for arrived in await ear.next()]
                for payload in kept:
                    await ear.publish(DOWN, payload, retain=True)
            await cell.submit("k", {"command": writes(tmp_path / "out")})
            assert await outcome_of(cell, "k") == "succeeded"
        async with bridge_on(cell, broker, "b2"):
            async with broker.session("forger") as forger:
                for payload in kept:
                    await forger.publish(DOWN, payload, retain=True)
            async with edge_agent_on(broker, settings(tmp_path / "data")):
                await registered(cell, 2)
                await cell.submit("l", {"command": writes(tmp_path / "out")})
                assert await outcome_of(cell, "l") == "succeeded"
        assert written(tmp_path / "out") == ["j 0 1", "k 0 1", "l 0 1"]

    told(story)


def test_what_the_broker_kept_of_an_earlier_cell_with_a_longer_log_keeps_no_agent_waiting(tmp_path):
    async def story(cell, broker):
        async with broker.session("of a cell before") as before, bridge_on(cell, broker):
            async with edge_agent_on(broker, settings(tmp_path / "data")):
                await registered(cell)
                await before.subscribe(DOWN)
                (kept, *_) = await before.next()
            older = json.loads(kept.payload) | {"seq": 1_000_000}
            await before.publish(DOWN, json.dumps(older).encode(), retain=True)
            async with edge_agent_on(broker, settings(tmp_path / "data")):
                await registered(cell, 2)
                await cell.submit("j", {"command": writes(tmp_path / "out")})
                assert await outcome_of(cell) == "succeeded"
        assert written(tmp_path / "out") == ["j 0 1"]

    told(story)
