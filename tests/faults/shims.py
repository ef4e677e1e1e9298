"""Stand-ins for shims, which outlive their agents: they keep to the rules of shim.py, and the world watches them.

Claim, stop and result are the real documents in the real folder; how long a task may run without word from its agent is
decided by the real `Hold`. The command of a stage says what its task does: `["run", MS, CODE, ...]`, a code an attempt
(the last one for all further ones). A world that is told of every begin, pause and end sees two that run at once.
"""

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from largesse.lifecycle.node_work import Start
from services.agent.documents import RESULT, STOP, TASK, Spoilt, claim, open_folder, read_json, write_json
from services.agent.executors.port import LOOK_MS, Known, Told, of_kind
from services.agent.executors.process import PROCESS
from services.agent.found import Task, Unsound, result_in, stop_in
from services.agent.lease_file import END, RUN, Hold
from services.agent.local import Handle, Local, forestall, leave, mono_ms, tampered, without_result
from services.agent.settings import NodeSettings
from tests.faults.loop import PROCESS as HERE
from tests.faults.loop import Process, VirtualLoop
from tests.faults.machines import Machine

BEGIN_MS = (20, 80, 1_200)
"""A shim has begun within one of these after it was spawned."""
RUN_WORD = "run"
_EVENTS = itertools.count(-2, -1)


@dataclass(slots=True)
class Runs:
    """What runs on all machines. `tell`: is called with each begin, pause, going on and end. `wrong`: with what must
    not be. `met`: how often what was met."""

    tell: Callable[[str], None]
    wrong: Callable[[str, str], None]
    met: Counter[str]
    running: dict[tuple[str, int, str, int], str] = field(default_factory=dict)
    begun: dict[str, str] = field(default_factory=dict)
    ended: dict[tuple[str, str, int, int], int | None] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)

    def begin(self, shim: "Shim") -> None:
        """Its command begins."""
        key = f"{shim.local.admitted}:{shim.local.key}"
        if key in self.begun:
            self.wrong("an attempt begins twice", f"{shim} on {shim.machine.name}, and {self.begun[key]}")
        self.begun[key] = shim.machine.name
        name = shim.local.name
        self.ended.setdefault((name.job, name.stage, name.index, name.attempt), None)
        self.go_on(shim, "begins")

    def go_on(self, shim: "Shim", word: str = "goes on") -> None:
        """It runs from here on."""
        self.tell(f"{shim} {word}")
        other = self.running.get(shim.task)
        if other is not None:
            self.wrong("two attempts of a task run at a time", f"{shim} {word} while {other} runs")
        self.running[shim.task] = str(shim)

    def pause(self, shim: "Shim", word: str = "is suspended") -> None:
        """It does not run any more."""
        if self.running.get(shim.task) == str(shim):
            del self.running[shim.task]
            self.tell(f"{shim} {word}")

    def end(self, shim: "Shim", code: int | None) -> None:
        """It has ended: with a code, or from outside."""
        self.pause(shim, f"ends with {code}" if code is not None else "is ended")
        name = shim.local.name
        self.ended[name.job, name.stage, name.index, name.attempt] = code


class Shim:
    """One of them, on one boot of one machine."""

    def __init__(self, machine: Machine, runs: Runs, local: Local, command: list[str], hold: str | None) -> None:
        self.machine, self.local, self._runs, self._hold_path = machine, local, runs, hold
        self._command = command
        self._folder = str(local.folder)
        self._stopped = asyncio.Event()
        self._suspended = False
        self.alive = True
        self.task = (local.name.job, local.admitted, local.name.stage, local.name.index)
        self.said: Callable[[str], None] = lambda text: None

    def __str__(self) -> str:
        return f"{self.local.key} ({self.machine.name})"

    def terminate(self) -> None:
        """SIGTERM."""
        self._stopped.set()

    def die(self) -> None:
        """SIGKILL to it and to all that it started, or the end of the machine."""
        self.alive = False
        self._runs.end(self, None)
        self.machine.shims.pop(self._folder, None)

    async def run(self) -> None:
        """From its start on."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await asyncio.sleep(loop.dice.randrange(loop.dice.choice(BEGIN_MS)) / 1_000)
        if not self.alive:
            return
        if not claim(self._folder, {"boot": self.machine.boot, "pid": 1}):
            self.alive = False
            self.machine.shims.pop(self._folder, None)
            return
        hold = Hold(os.open(self._hold_path, os.O_RDONLY)) if self._hold_path is not None else None
        try:
            if hold is not None and hold.look() != RUN:
                self._runs.met["lease: not begun"] += 1
                self._leave({"state": "failed", "reason": "lost", "run_ms": 0})
                return
            self._runs.begin(self)
            self._tell("started")
            await self._watch(hold)
        finally:
            if hold is not None:
                hold.close()

    async def _watch(self, hold: Hold | None) -> None:
        begun_ms, left_ms, kill_ms, reason = mono_ms(), int(self._command[1]), None, ""
        before_ms = begun_ms
        while True:
            now_ms = mono_ms()
            if not self._suspended:
                left_ms -= now_ms - before_ms
            before_ms = now_ms
            if not self.alive:
                return
            if left_ms <= 0 or (kill_ms is not None and now_ms >= kill_ms):
                break
            if self._stopped.is_set():
                self._stopped.clear()
                said, grace_ms = self._asked()
                reason, grace_ms = reason or said, 0 if self._suspended else grace_ms
                kill_ms = now_ms + grace_ms if kill_ms is None else min(kill_ms, now_ms + grace_ms)
                continue
            wanted = RUN if hold is None else hold.look()
            if wanted != RUN and not self._suspended:
                self._runs.met[f"lease: {wanted}"] += 1
            if wanted == END and (not reason or self._suspended):
                reason = reason or "lost"
                kill_ms = now_ms + (0 if self._suspended or hold is None else hold.grace_ms())
            elif wanted == RUN and self._suspended and not reason:
                self._suspended = False
                self._runs.met["lease: goes on"] += 1
                self._runs.go_on(self)
            elif wanted != RUN and not self._suspended:
                self._suspended = True
                self._runs.pause(self)
                kill_ms = now_ms if reason else kill_ms
            moments = [LOOK_MS if hold is None else hold.wait_ms()]
            moments += [] if self._suspended else [left_ms]
            moments += [] if kill_ms is None else [max(0, kill_ms - now_ms)]
            await self._sleep(min(moments))
        self._end(reason, kill_ms is not None and mono_ms() >= kill_ms, mono_ms() - begun_ms)

    async def _sleep(self, ms: int) -> None:
        waiting = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait((waiting,), timeout=ms / 1_000)
        waiting.cancel()

    def _asked(self) -> tuple[str, int]:
        stop = read_json(f"{self._folder}/{STOP}") or {}
        return stop.get("reason", "killed"), stop.get("grace_ms", 0)

    def _end(self, reason: str, was_killed: bool, run_ms: int) -> None:
        codes = self._command[2:] or ["0"]
        code = int(codes[min(self.local.name.attempt, len(codes)) - 1])
        self._runs.end(self, None if was_killed or reason else code)
        result: dict[str, object] = {"state": "succeeded", "reason": None, "run_ms": max(0, run_ms), "exit_code": code}
        if reason or code:
            result |= {"state": "failed", "reason": reason or "exit_code", "detail": f"ended with status {code}"}
        self._leave(result)

    def _leave(self, result: dict[str, object]) -> None:
        write_json(f"{self._folder}/{RESULT}", result)
        self.alive = False
        self.machine.shims.pop(self._folder, None)
        self._tell("ended")

    def _tell(self, word: str) -> None:
        self.said(f"{word} {self.local.key}")


class Guarded(Handle):
    """An attempt under a stand-in for a shim."""

    __slots__ = ("shim",)

    def __init__(self, shim: Shim) -> None:
        self.shim = shim


class ShimExecutor:
    """What the agent knows of its shims: the methods of executors/process.py, without a kernel to ask."""

    def __init__(self, settings: NodeSettings, hold: str | None, runs: Runs, guardians: Process) -> None:
        self._settings, self._hold, self._runs, self._guardians = settings, hold, runs, guardians
        self._process = HERE.get()
        self._machine = self._process.machine
        self._heard: list[str] = []
        self._events: int | None = None
        self._look_ms = 0

    def open(self) -> None:
        """Nothing to make ready."""

    def adopt(self, local: Local, folder: int, task: Task) -> Told:
        claim("", {}, dir_fd=folder)
        shim = self._machine.shims.get(str(local.folder))
        if isinstance(shim, Shim) and shim.alive and shim.local.admitted == local.admitted:
            shim.said = self._hear
            local.handle = Guarded(shim)
            self._runs.met["adoption: runs on"] += 1
            return Told(local)
        result = result_in(folder)
        self._runs.met["adoption: has ended" if result is not None else "adoption: is lost"] += 1
        return Told(local, result or without_result(stop_in(folder)), durable=result is not None)

    def settle(self, known: Known) -> None:
        running = {str(local.folder) for local in known.values() if local.phase != "ended"}
        for folder, shim in list(self._machine.shims.items()):
            if folder not in running and isinstance(shim, Shim) and folder.startswith(f"{self._settings.data}/"):
                shim.die()

    def start(self, local: Local, start: Start, folder: int, about: dict[str, object]) -> Handle:
        write_json(TASK, {**about, "command": list(start.stage.command)}, dir_fd=folder)
        shim = Shim(self._machine, self._runs, local, list(start.stage.command), self._hold)
        shim.said = self._hear
        self._machine.shims[str(local.folder)] = shim
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.start(self._guardians, shim.run())
        return Guarded(shim)

    def watch(self, local: Local, handle: Handle) -> list[Told]:
        assert isinstance(handle, Guarded)
        if local.phase != "ended":
            local.handle = handle
        if local.stopping:
            handle.shim.terminate()
        return []

    def open_events(self) -> int:
        self._events = next(_EVENTS)
        return self._events

    def hear(self, known: Known) -> list[Told]:
        told = []
        heard, self._heard = self._heard, []
        for line in heard:
            what, _, key = line.partition(" ")
            local = known.get(key)
            if local is None or local.phase == "ended" or local.executor != PROCESS:
                continue
            if what == "ended":
                told += self._conclude(local)
            elif local.phase == "starting":
                local.unsaid = True
                told.append(Told(local))
        return told

    def look(self, known: Known, now_ms: int) -> list[Told]:
        self._look_ms = now_ms + LOOK_MS
        told = []
        for local in of_kind(known.values(), PROCESS):
            if isinstance(local.handle, Guarded) and not local.handle.shim.alive:
                told += self._conclude(local)
        return told

    def look_ms(self) -> int | None:
        return self._look_ms

    def stop(self, local: Local, grace_ms: int) -> list[Told]:
        leave(self._settings.data, local, STOP, {"reason": local.stopping, "grace_ms": grace_ms})
        if local.phase == "starting":
            forestall(self._settings.data, local)
        if isinstance(local.handle, Guarded):
            local.handle.shim.terminate()
        return []

    def release(self, local: Local) -> None:
        """Nothing is kept for it."""

    def close(self) -> None:
        """It hears nothing more."""

    def labels(self) -> dict[str, str]:
        return {}

    def limits_text(self) -> str:
        return ""

    def _hear(self, line: str) -> None:
        if self._process.is_dead or self._events is None:
            return
        self._heard.append(line)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.notify(self._process, self._events)

    def _conclude(self, local: Local) -> list[Told]:
        try:
            folder = open_folder(self._settings.data, *local.parts(self._settings.data))
            try:
                result = result_in(folder)
                outcome = result or without_result(local.stopping or stop_in(folder))
            finally:
                os.close(folder)
        except (Unsound, Spoilt, FileNotFoundError) as fault:
            result, outcome = None, tampered(fault)
        return [Told(local, outcome, durable=result is not None)]
