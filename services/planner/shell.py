"""The planner's shell: the loop of every core, and beside it a solver that looks for a better plan of what is promised.

The solver runs in a process of its own, at most so often and so long as the policy says, and only in the instance that
answers; it ends with this one, also where that is killed (lifeline.py). What it finds is sent to the topic
`reservations`; the sequencer makes it a record, and the core adopts it or not. So a solver that crashes, hangs or errs
costs nothing but its process, and a replay never needs it. The occurrences of recurring reservations are requested in
the same way (renewing.py).
"""

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import largesse.shell
from largesse import failpoints
from largesse.bus.port import Bus, BusError, BusRefused, Writer
from largesse.log.reader import publish_input
from largesse.settings import Settings
from largesse.shell import Shell
from largesse.telemetry import logger
from largesse.waiting import is_set_within
from schemas import Vector
from services.planner import core
from services.planner.core.nodes import counted
from services.planner.core.state import State
from services.planner.lifeline import lifeline
from services.planner.renewing import Renewer

COMMAND = (sys.executable, "-m", "services.planner", "reorganise")
LOOK_S = 1.0
"""How often it is looked whether the solver is to be asked."""

GRACE_S = 30.0
"""The process has so long beyond the solver's time limit, to start, and to build and check the problem."""

ERROR_CHARACTERS_MAX = 300

Document = dict[str, object]

_ROOT = Path(__file__).parents[2]


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Runs the planner until `stop` is set. Raises as `largesse.shell.run` does."""
    await drive(Shell(core, bus, settings, stop=stop), bus, settings, stop)


async def drive(shell: Shell[State], bus: Bus, settings: Settings, stop: asyncio.Event) -> None:
    """Steps a shell until `stop`, with the solver and the renewal of series beside it, which end with it."""
    beside = {
        "solver": asyncio.create_task(Reorganiser(shell, bus, settings).run(stop)),
        "series": asyncio.create_task(Renewer(shell, bus, settings).run(stop)),
    }
    for name, task in beside.items():
        task.add_done_callback(partial(_say_failed, shell.name, name))
    try:
        await largesse.shell.drive(shell, bus, settings, stop)
    finally:
        for task in beside.values():
            task.cancel()
        await asyncio.wait(beside.values())


def _say_failed(service: str, name: str, task: asyncio.Task[None]) -> None:
    """At once and not at the end of the service, which goes on without the task."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger(service=service).error(name, failed=repr(error))


class Reorganiser:
    """Asks the solver about the promises of a planner's shell. `command`: the process that is asked, where it is not
    COMMAND."""

    def __init__(self, shell: Shell[State], bus: Bus, settings: Settings, command: tuple[str, ...] = ()) -> None:
        self.proposed = 0
        self._shell = shell
        self._bus = bus
        self._settings = settings
        self._command = command or COMMAND
        self._tried: tuple[int, dict[str, int]] | None = None
        self._next_s = 0.0
        self._said = logger(service=shell.name)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. What goes wrong is logged, and tried again at the next time."""
        loop = asyncio.get_running_loop()
        while not stop.is_set():
            if self.is_due(loop.time()):
                self._next_s = loop.time() + self._shell.state.policy.reservation_solver_ms / 1_000
                try:
                    await self.ask()
                except BusRefused:
                    raise
                except (OSError, BusError, ValueError, TimeoutError) as error:
                    self._said.warning("solver", failed=str(error) or type(error).__name__)
            await is_set_within(stop, LOOK_S)

    def is_due(self, now_s: float) -> bool:
        """Whether this instance answers, nothing waits for an answer, and there are plans that were not tried."""
        state = self._shell.state
        if not state.policy.reservation_solver_ms or now_s < self._next_s:
            return False
        answers = self._shell.active is None or self._shell.active.is_set()
        return answers and bool(state.promises) and not state.waiting and self._tried != _standing(state)

    async def ask(self) -> None:
        """Asks once, and sends what is better. Raises OSError, BusError, ValueError, TimeoutError."""
        state = self._shell.state
        self._tried, after = _standing(state), state.plan_seq
        limit_s = state.policy.reservation_solver_limit_ms / 1_000
        answer = await self._answer(question_of(state, self._shell.log.order.time), limit_s + GRACE_S)
        if "plans" not in answer:
            self._said.info("solver", found=answer["why"])
            return
        writer: Writer = self._bus.writer()
        try:
            proposal = {"propose": {"after": after, "plans": answer["plans"]}}
            await publish_input(writer, "reservations", proposal, core.NAME, self._settings.partition)
        finally:
            await writer.drop()
        self.proposed += 1
        self._said.info("solver", found="better plans")

    async def _answer(self, question: Document, limit_s: float) -> Document:
        pipe = asyncio.subprocess.PIPE
        with lifeline() as (inherited, environment):
            # In a session of its own, so that the solver that it starts ends with it.
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                cwd=_ROOT,
                start_new_session=True,
                pass_fds=(inherited,),
                env=environment,
            )
            out, err = await self._said_by(process, question, limit_s)
        if process.returncode:
            last = err.decode(errors="replace").strip().rpartition("\n")[2][:ERROR_CHARACTERS_MAX]
            raise ValueError(last or f"exit code {process.returncode}")
        answer = json.loads(out)
        if not isinstance(answer, dict) or not ("plans" in answer or "why" in answer):
            raise ValueError("the solver's process said nothing of use")
        return answer

    async def _said_by(
        self, process: asyncio.subprocess.Process, question: Document, limit_s: float
    ) -> tuple[bytes, bytes]:
        """What it writes on stdout and stderr. It has ended by then, or is killed with what it started."""
        try:
            async with asyncio.timeout(limit_s):
                await _give(process, question)
                failpoints.hit(self._shell.name, "before_solve")
                said = await process.communicate()
                failpoints.hit(self._shell.name, "after_solve")
            return said
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


async def _give(process: asyncio.subprocess.Process, question: Document) -> None:
    """The question on its input; one that has ended already says why in other ways."""
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(json.dumps(question).encode())
        await process.stdin.drain()
    process.stdin.close()


def _standing(state: State) -> tuple[int, dict[str, int]]:
    """What the solver would start from, in short."""
    return state.plan_seq, dict(state.capacity)


def question_of(state: State, now_ms: int) -> Document:
    """The cell as `offline/reorganise_cell.py` reads it."""
    counts: dict[str, int] = {}
    capacities: dict[str, Vector] = {}
    for node in state.nodes.values():
        if capacity := counted(node):
            alike = str(sorted(capacity.items()))
            counts[alike] = counts.get(alike, 0) + 1
            capacities[alike] = capacity
    return {
        "now_ms": now_ms,
        "policy": asdict(replace(state.policy, reservation_step_ms=state.step_ms)),
        "nodes": [{"count": count, "capacity": capacities[alike]} for alike, count in counts.items()],
        "promises": [
            {"reservation": name, "user": each.user, "queue": each.queue, "rdl": each.rdl}
            | {"leases": [[a.atom, a.begin * state.step_ms, a.end * state.step_ms, a.gangs] for a in each.leases]}
            | {"works": {atom: work * state.step_ms for atom, work in each.works.items()}, "weight": each.weight}
            for name, each in state.promises.items()
        ],
        "ceilings": state.ceilings,
    }
