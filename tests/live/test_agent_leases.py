"""Agents that die for good, are paused, or are cut off from the bus: no task runs beside its next attempt."""

import asyncio
import random
import signal
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from largesse.bus.memory import MemoryBus
from largesse.log.reader import LogReader, publish_input
from schemas import JobEnded, NodeLost, NodeRegistered, TaskFailed, TaskStarted
from services.agent.documents import CHILD, read_json
from services.agent.found import attempt_folders
from tests.bus_cell import BusCell
from tests.live.agent_cell import GUARD_SECONDS, AgentProcess, end_tasks, eventually, is_alive
from tests.live.cuttable import CuttableBus

LEASE_MS = 2_000
LINES = """
say() { echo "$LARGESSE_TASK_INDEX $LARGESSE_ATTEMPT $1" >> %s; }
say start; i=0; while [ $i -lt %d ]; do sleep 0.05; say $i; i=$((i + 1)); done; say end
"""


class LeasedCell(BusCell):
    """A cell whose sequencer calls nodes lost after LEASE_MS, with agents that are processes below `folder`. `down`
    cuts off sequencer and agents, `ways` one agent."""

    def __init__(self, folder, agents=2, lease_ms=LEASE_MS):
        self.lease_ms = lease_ms
        bus = MemoryBus()
        self.down = CuttableBus(bus)
        super().__init__(bus, nodes=0, way=self.down)
        self.folder = folder
        self.ways = [CuttableBus(self.down) for _ in range(agents)]
        self.agents = []
        for number, way in enumerate(self.ways):
            (folder / f"n{number}").mkdir()
            self.agents.append(AgentProcess(way, folder / f"n{number}", f"n{number}"))
        self.records = []

    async def __aenter__(self):
        await super().__aenter__()
        await publish_input(self.bus.writer(), "config", {"set": {"node_lease_ms": self.lease_ms}}, "operator")
        for agent in self.agents:
            await agent.start()
        self.start(self._listen())
        await self.until(lambda: len(self.bodies(NodeRegistered)) >= len(self.agents))
        return self

    async def __aexit__(self, *error):
        self.down.cut = False
        for agent in self.agents:
            await agent.__aexit__()
        end_tasks(self.folder)
        await super().__aexit__(*error)

    async def _listen(self):
        reader = LogReader(self.bus)
        while not self.stop.is_set():
            self.records += [accepted.record for accepted in await reader.read(50)]

    def bodies(self, kind):
        return [record.body for record in self.records if isinstance(record.body, kind)]

    async def until(self, holds):
        async with asyncio.timeout(GUARD_SECONDS):
            while not (said := holds()):
                self.check()
                await asyncio.sleep(0.01)
        return said

    async def submit_lines(self, tasks: int, ticks: int) -> None:
        stage = {
            "stage": "s",
            "tasks": tasks,
            "demand": {"cpu": "1"},
            "command": ["sh", "-c", LINES % (self.folder / "lines", ticks)],
        }
        await publish_input(self.bus.writer(), "jobs", {"job": "j", "stages": [stage]}, "client")

    async def run_lines(self, tasks: int, ticks: int) -> None:
        """The same, until all tasks write lines."""
        await self.submit_lines(tasks, ticks)
        await self.until(lambda: len({index for index, _, _ in self.lines()}) == tasks)

    def lines(self) -> list[tuple[int, int, str]]:
        """Index, attempt and word of each line, in the order in which tasks have written them."""
        path = self.folder / "lines"
        words = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(int(index), int(attempt), word) for index, attempt, word in words]

    def outcome(self):
        return [end.outcome for body in self.bodies(JobEnded) for end in body.jobs]

    def commands(self, number: int) -> list[int]:
        """The pids of commands that were started by one agent."""
        found = [read_json(folder / CHILD) for folder in attempt_folders(self.agents[number].data)]
        return [child["pid"] for child in found if child]


def check_order(lines):
    """Whatever an attempt writes stands before all that a later one of its task writes."""
    assert lines
    for index in {line[0] for line in lines}:
        attempts = [attempt for at, attempt, _ in lines if at == index]
        assert all(a <= b for a, b in pairwise(attempts)), f"task {index} ran twice at a time: {attempts}"


@asynccontextmanager
async def guarded(folder, agents=2, lease_ms=LEASE_MS):
    async with asyncio.timeout(GUARD_SECONDS), LeasedCell(folder, agents, lease_ms) as cell:
        yield cell


def test_tasks_of_an_agent_that_was_killed_for_good_end_before_others_run_them(tmp_path):
    async def story():
        async with guarded(tmp_path) as cell:
            await cell.run_lines(4, 60)
            commands = await eventually(lambda: cell.commands(0))  # A shim names its command a moment later.
            await cell.agents[0].kill()
            await cell.until(lambda: cell.bodies(NodeLost))
            assert commands
            assert not any(is_alive(pid) for pid in commands)
            assert await cell.until(cell.outcome) == ["succeeded"]
            check_order(cell.lines())
            assert {attempt for _, attempt, _ in cell.lines()} == {1, 2}

    asyncio.run(story())


def test_a_bus_that_is_down_for_everybody_loses_nobody(tmp_path):
    async def story():
        async with guarded(tmp_path) as cell:
            await cell.run_lines(4, 40)
            cell.down.cut = True
            await asyncio.sleep(2.5 * LEASE_MS / 1_000)
            waiting = cell.lines()
            assert not [word for _, _, word in waiting if word == "end"]  # They were suspended.
            cell.down.cut = False
            assert await cell.until(cell.outcome) == ["succeeded"]
            assert cell.bodies(NodeLost) == cell.bodies(TaskFailed) == []
            assert {attempt for _, attempt, _ in cell.lines()} == {1}
            assert sorted(index for index, _, word in cell.lines() if word == "end") == [0, 1, 2, 3]

    asyncio.run(story())


def test_an_agent_that_is_back_within_the_lease_finds_its_tasks_running(tmp_path):
    async def story():
        async with guarded(tmp_path, 1, lease_ms=10_000) as cell:  # An interpreter takes a second or two to start.
            await cell.run_lines(2, 60)
            await cell.agents[0].kill()
            await cell.agents[0].start()
            assert await cell.until(cell.outcome) == ["succeeded"]
            assert {attempt for _, attempt, _ in cell.lines()} == {1}
            assert len(cell.bodies(NodeRegistered)) >= 2

    asyncio.run(story())


def test_tasks_of_an_agent_that_is_cut_off_wait_until_it_is_known_who_has_them(tmp_path):
    async def story():
        async with guarded(tmp_path) as cell:
            await cell.run_lines(4, 60)
            commands = await eventually(lambda: cell.commands(0))  # A shim names its command a moment later.
            cell.ways[0].cut = True
            await cell.until(lambda: cell.bodies(NodeLost))
            before = [line for line in cell.lines() if line[1] == 1]
            await cell.until(lambda: [line for line in cell.lines() if line[1] == 2])
            cell.ways[0].cut = False
            assert await cell.until(cell.outcome) == ["succeeded"]
            await eventually(lambda: not any(is_alive(pid) for pid in commands))
            check_order(cell.lines())
            assert len([item for body in cell.bodies(TaskStarted) for item in body.items]) >= 2
            assert before

    asyncio.run(story())


@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.whole), pytest.param(3, marks=pytest.mark.whole)]
)
def test_no_task_runs_twice_at_a_time_whatever_happens_to_agents(tmp_path, seed):
    chance = random.Random(seed)

    async def trouble(cell, number):
        agent, way = cell.agents[number], cell.ways[number]
        seconds = chance.choice([0.2, 0.6, 1.2, 2]) * LEASE_MS / 1_000
        match chance.choice(["kill", "pause", "cut"]):
            case "kill":
                await agent.kill()
                await asyncio.sleep(seconds)
                await agent.start()
            case "pause":
                agent.send(signal.SIGSTOP)
                await asyncio.sleep(seconds)
                agent.send(signal.SIGCONT)
            case "cut":
                way.cut = True
                await asyncio.sleep(seconds)
                way.cut = False
        await asyncio.sleep(chance.random() * LEASE_MS / 1_000)

    async def plague(cell, number):
        for _ in range(4):
            await trouble(cell, number)

    async def story():
        async with guarded(tmp_path, 3) as cell:
            await cell.submit_lines(16, 40)
            await cell.until(cell.lines)
            await asyncio.gather(*(plague(cell, number) for number in range(3)))
            assert await cell.until(cell.outcome) == ["succeeded"]
            check_order(cell.lines())
            assert {index for index, _, word in cell.lines() if word == "end"} == set(range(16))

    asyncio.run(story())
