"""The solver beside the planner: what it finds comes in as a record, and its process harms no service."""

import asyncio
import json
import os
import sys
from contextlib import suppress

import pytest

from largesse.bus.memory import MemoryBus
from largesse.log.reader import LogReader, publish_input, wait_for_more
from largesse.settings import Settings
from largesse.shell import Shell
from schemas import NodeRegistered, PlanProposed, Plans, Policy
from services.planner import core, shell
from services.planner.core.promises import Lease
from services.planner.offline import reorganise_cell
from services.planner.offline.dry_run import Cell as Question
from services.planner.offline.dry_run import state_of
from services.planner.shell import Reorganiser, question_of
from services.replay.source import Source, steps_of
from services.replay.verify import verify
from tests.builders import configured, queue, tree
from tests.bus_cell import GUARD_S, BusCell
from tests.stepped_cell import recorded
from tests.unit.test_planner_proposals import promising

PYTHON = sys.executable
HOUR_S = 3_600


def beside(state, *code):
    """A reorganiser of a planner in this state, whose process runs these lines instead of the solver."""
    bus = MemoryBus()
    planner = Shell(core, bus, Settings())
    planner.folded.state = state
    return Reorganiser(planner, bus, Settings(), (PYTHON, "-c", "; ".join(code))), bus


async def inputs(bus):
    end = (await bus.bounds("reservations", 0))[1]
    return [json.loads(each.value) for each in await bus.fetch("reservations", 0, 0)] if end else []


@pytest.mark.slow
def test_the_solver_finds_a_plan_that_the_core_adopts():
    cell = promising("r", "s", reservation_solver_ms=1)
    question = Question(**question_of(cell.story.state, 1_000))
    found = reorganise_cell.better_plans(question)
    widths = {plan["reservation"]: {lease["units"] for lease in plan["leases"]} for plan in found["plans"]}
    assert widths == {"r": {1}, "s": {1}}


def test_the_solver_is_told_the_maxima_of_queues():
    """As the planner would refuse what goes beyond them."""
    cell = promising("r").then(configured(queues=tree(queue("default", max={"cpu": 1_000})), seed=0))
    question = Question(**question_of(cell.story.state, 1_000))
    assert state_of(question, Policy()).ceilings == {"default": {"cpu": 1_000}}


@pytest.mark.slow
def test_the_solver_leaves_a_plan_alone_that_it_cannot_better():
    cell = promising("r", reservation_solver_ms=1)
    first = reorganise_cell.better_plans(Question(**question_of(cell.story.state, 1_000)))
    (plan,) = first["plans"]
    state = cell.story.state
    state.promises["r"].leases = [
        Lease(each["atom"], each["from_ms"] // 60_000, each["to_ms"] // 60_000, each["units"])
        for each in plan["leases"]
    ]
    again = reorganise_cell.better_plans(Question(**question_of(state, 1_000)))
    assert "why" in again


def test_what_begins_before_the_solver_could_answer_stays():
    cell = promising("r", reservation_solver_ms=1)
    question = Question(**question_of(cell.story.state, (HOUR_S - 125) * 1_000))
    assert reorganise_cell.better_plans(question) == {"why": "nothing that is promised can still move"}


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", id="it crashes"),
        pytest.param("raise SystemExit(2)", id="it refuses the question"),
        pytest.param("print('not JSON')", id="it prints nonsense"),
        pytest.param("print('[]')", id="it prints something else"),
    ],
)
def test_a_solver_that_fails_is_an_error_of_its_own_and_sends_nothing(code):
    async def story():
        reorganiser, bus = beside(promising("r", reservation_solver_ms=1).story.state, code)
        with pytest.raises(ValueError):
            await reorganiser.ask()
        assert await inputs(bus) == []

    asyncio.run(story())


def test_a_solver_that_fails_does_not_end_the_planner():
    async def story():
        reorganiser, bus = beside(promising("r", reservation_solver_ms=1).story.state, "raise SystemExit(1)")
        stop, asked = asyncio.Event(), asyncio.Event()
        ask = reorganiser.ask

        async def and_tell():
            try:
                await ask()
            finally:
                asked.set()

        reorganiser.ask = and_tell
        running = asyncio.create_task(reorganiser.run(stop))
        async with asyncio.timeout(GUARD_S):
            await asked.wait()
            stop.set()
            await running
        assert await inputs(bus) == []

    asyncio.run(story())


HANGING = (
    "import os, pathlib, subprocess, sys",
    "started = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])",
    "pathlib.Path({fifo!r}).write_text(f'{{os.getpid()}} {{started.pid}}')",
    "started.wait()",
)
"""Starts a process, says both pids, and never ends."""


def hanging(fifo):
    os.mkfifo(fifo)
    return "; ".join(HANGING).format(fifo=str(fifo))


async def started(fifo):
    """Handles of the processes, once they run: readable when they have ended."""
    text = b""
    reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)  # A thread that waits for a writer could not be given up.
    try:
        while not text:
            await asyncio.sleep(0.01)
            with suppress(BlockingIOError):
                text = os.read(reading, 4_096)  # So little is written all at once.
    finally:
        os.close(reading)
    return [os.pidfd_open(int(pid)) for pid in text.split()]


async def ended(handles):
    loop = asyncio.get_running_loop()
    for handle in handles:
        gone = asyncio.Event()
        loop.add_reader(handle, gone.set)
        await gone.wait()
        loop.remove_reader(handle)
        os.close(handle)


def test_a_solver_that_hangs_is_ended_with_what_it_started(tmp_path):
    async def story():
        code = hanging(tmp_path / "fifo")
        reorganiser, _ = beside(promising("r", reservation_solver_ms=1).story.state, code)
        asking = asyncio.create_task(reorganiser.ask())
        async with asyncio.timeout(GUARD_S):
            handles = await started(tmp_path / "fifo")
            asking.cancel()
            await asyncio.wait((asking,))
            await ended(handles)

    asyncio.run(story())


@pytest.mark.slow
def test_live_requests_are_answered_while_a_solver_hangs_and_it_ends_with_the_service(tmp_path, monkeypatch):
    monkeypatch.setattr(shell, "COMMAND", (PYTHON, "-c", hanging(tmp_path / "fifo")))

    async def story():
        bus = MemoryBus()
        async with asyncio.timeout(2 * GUARD_S):
            async with BusCell(bus) as cell:
                log = Log(cell)
                await log.set_knobs(reservation_solver_ms=1)
                await log.ask("r")
                await log.until(lambda body: isinstance(body, Plans) and body.profiles)
                handles = await started(tmp_path / "fifo")
                await log.ask("s")
                await log.until(lambda body: isinstance(body, Plans) and body.profiles)
            await ended(handles)

    asyncio.run(story())


def test_it_is_asked_again_only_once_something_has_changed():
    cell = promising("r", reservation_solver_ms=1)

    async def story():
        reorganiser, bus = beside(cell.story.state, 'print(\'{"why": "no better"}\')')
        assert reorganiser.is_due(1.0)
        await reorganiser.ask()
        assert not reorganiser.is_due(2.0)
        assert await inputs(bus) == []

    asyncio.run(story())
    off = promising("r").story.state
    assert not beside(off)[0].is_due(1.0)


def test_a_standby_leaves_the_solver_to_the_active_instance():
    state = promising("r", reservation_solver_ms=1).story.state
    reorganiser, _ = beside(state)
    reorganiser._shell.active = asyncio.Event()
    assert not reorganiser.is_due(1.0)
    reorganiser._shell.active.set()
    assert reorganiser.is_due(1.0)


class Log:
    """What a cell's log says, and inputs for the cell."""

    def __init__(self, cell):
        self._cell, self._reader, self._writer = cell, LogReader(cell.bus), cell.bus.writer()
        self._left, self._now_s = [], None

    async def until(self, wanted):
        """The next body that is wanted."""
        while True:
            while self._left:
                record = self._left.pop(0).record
                self._now_s = record.time // 1_000
                if wanted(record.body):
                    return record.body
            self._left = list(await self._reader.read(100))
            if not self._left:
                await wait_for_more(self._cell.bus, self._reader.position, 1_000, self._cell.stop)
            self._cell.check()

    async def set_knobs(self, **knobs):
        await publish_input(self._writer, "config", {"set": knobs}, "operator")
        await self.until(lambda body: isinstance(body, NodeRegistered))

    async def ask(self, name):
        """A request with room to spare, an hour ahead."""
        atom = {"op": "atom", "b": {"cpu": "1"}, "g": 1, "h": 4, "l": 120, "w": 1_200}
        window = {"op": "window", "s": self._now_s + HOUR_S, "e": self._now_s + 2 * HOUR_S, "of": atom}
        request = {"reservation": name, "user": "ann", "rdl": window}
        await publish_input(self._writer, "reservations", {"request": request}, "ann")


@pytest.mark.slow
def test_live_a_solvers_plan_is_adopted_and_the_log_replays_without_it():
    """The real solver, in its process, beside a whole cell on one bus."""
    pytest.importorskip("highspy")

    async def story():
        bus = MemoryBus()
        async with asyncio.timeout(2 * GUARD_S), BusCell(bus, nodes=2) as cell:
            log = Log(cell)
            await log.set_knobs(reservation_solver_ms=1, reservation_solver_limit_ms=60_000, reservation_agent="gree")
            await log.ask("r")
            await log.ask("s")
            await log.until(lambda body: isinstance(body, Plans) and any(each.adopted for each in body.proposals))
        return await recorded(bus, 1)

    recording = asyncio.run(story())
    assert recording.bodies(PlanProposed)
    moved = [answer for body in recording.bodies(Plans) for answer in body.answers if answer.reason == "moved"]
    assert moved
    verdict = verify(Source("the log", lambda hear: steps_of(recording.messages(), hear=hear), lambda: 1))
    assert verdict.is_same, verdict.text()
