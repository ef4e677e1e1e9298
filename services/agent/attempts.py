"""Attempts on this machine: started once, watched, stopped, found again after a restart.

A command runs under a shim (shim.py), a process that outlives this one; a simulated task is only timed, but its folder
keeps the same rules: claimed before it begins, its result left behind. What happened is returned to the caller, who
reports it.
"""

import heapq
import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from largesse import failpoints
from schemas import Stage
from services.agent import shim
from services.agent.core import Start
from services.agent.folders import EVENTS, OVER, attempt_folder, attempt_folders, run_name
from services.agent.reports import Name, Result
from services.agent.settings import NodeSettings
from services.agent.shim import CHILD, CLAIM, RESULT, STOP, TASK, read_json, write_json
from services.agent.troubles import failed_start

BASE_ENV = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
"""Variables of the agent that tasks get; all others may be secrets of the agent."""

RESIDENT_MIB_MIN = 64
"""A `resident` limit is never below this: an interpreter takes as much before it does anything."""
ADDRESS_MIB_EXTRA = 256
"""On top of the memory asked for, in an `address_space` limit: programs, libraries and locale tables are mapped too."""
SHIM_START = "import sys; sys.path.append(sys.argv[1]); import shim; shim.main(sys.argv[2])"
"""As a script it would be compiled anew for every task; `-I -S` keeps everything else of this environment out."""
FORCE_MS = 15_000
"""A shim that is not done so long after the grace is killed itself."""
EVENT_BYTES_MAX = 1 << 20


def mono_ms() -> int:
    """Milliseconds of the kernel's monotonic clock: the same in every process until the next boot."""
    return time.monotonic_ns() // 1_000_000


@dataclass(slots=True)
class Local:
    """One attempt on this machine whose end the log does not have. `ticks`: the shim's start time. `ends_ms`: when a
    simulated task ends, `fate` how. `quiet`: the log is not waiting for it. `force_ms`: when patience ends."""

    key: str
    name: Name
    admitted: int
    folder: Path
    phase: Literal["starting", "running", "ended"] = "starting"
    pid: int | None = None
    ticks: int | None = None
    ends_ms: int | None = None
    fate: Result | None = None
    result: Result | None = None
    quiet: bool = False
    stopping: bool = False
    force_ms: int | None = None


@dataclass(slots=True)
class Launched:
    """What became of one start: a shim, a timer, or a result at once. `trouble`: what of this machine failed it."""

    local: Local
    pid: int | None = None
    ticks: int | None = None
    ends_ms: int | None = None
    fate: Result | None = None
    result: Result | None = None
    trouble: str = ""


@dataclass(slots=True)
class Attempts:
    """All of one node. `leaving`: shims that have said their last word and are still to be reaped."""

    settings: NodeSettings
    boot: str = field(default_factory=shim.boot_id)
    by_key: dict[str, Local] = field(default_factory=dict)
    timers: list[tuple[int, str]] = field(default_factory=list)
    leaving: list[int] = field(default_factory=list)
    unread: bytes = b""

    # ---------------------------------------------------------------- starting
    def prepare(self, starts: Iterable[Start]) -> list[tuple[Local, Start]]:
        """Room in the table for attempts that are about to be launched."""
        prepared = []
        for start in starts:
            held = start.held
            name = Name(held.job, held.stage, held.index, held.attempt)
            run = run_name(held.run, held.epoch)
            folder = attempt_folder(self.settings.data, held.job, run, held.stage, held.index, held.attempt)
            local = self.by_key[start.key] = Local(start.key, name, held.run, folder)
            prepared.append((local, start))
        return prepared

    def launch(self, prepared: list[tuple[Local, Start]]) -> list[Launched]:
        """Starts them. Blocks, and touches no table: made for another thread. What cannot start says why."""
        launched = []
        for local, start in prepared:
            failpoints.hit("agent", "before_task_start")
            try:
                launched.append(self._launch(local, start))
            except FileExistsError:
                result = Result("lost", detail="it has been started before, and nothing is known of its end")
                launched.append(Launched(local, result=result))
            except OSError as error:
                # Nothing of the job's own is looked at before its shim runs, so it does not count against its retries.
                result = Result("lost", detail=f"the agent could not start it: {error.strerror or error}")
                launched.append(Launched(local, result=result, trouble=failed_start(error)))
            failpoints.hit("agent", "after_task_start")
        return launched

    def launched(self, outcomes: list[Launched]) -> list[Local]:
        """Enters what `launch` did; returns the attempts that began or ended by it."""
        changed = []
        for outcome in outcomes:
            local = outcome.local
            local.pid, local.ticks = outcome.pid, outcome.ticks
            if outcome.result is not None:
                # What was started before has a folder with a story of its own.
                changed += self._end(local, outcome.result, durable=outcome.result.reason == "lost")
            elif outcome.ends_ms is not None:
                assert outcome.fate is not None
                self._time(local, outcome.ends_ms, outcome.fate)
                changed.append(local)
            elif local.phase == "ended" and local.pid is not None:
                self.leaving.append(local.pid)  # It was quicker than we.
            elif local.stopping:
                _ask_to_stop(local)
        return changed

    def _launch(self, local: Local, start: Start) -> Launched:
        stage, folder = start.stage, local.folder
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        ids = {"key": local.key, "job": local.name.job, "stage": local.name.stage, "index": local.name.index}
        task = {**ids, "attempt": local.name.attempt, "admitted": local.admitted}
        if stage.command:
            write_json(folder / TASK, {**task, **self._task(start)})
            pid = _spawn(folder)
            return Launched(local, pid, shim.start_ticks(pid))
        fate = _fate(stage, local.name.index)
        write_json(folder / TASK, {**task, "run_ms": fate.run_ms, "reason": fate.reason})
        begun_ms = mono_ms()
        claimed = shim.claim(folder, {"boot": self.boot, "mono_ms": begun_ms, "wall_ms": time.time_ns() // 1_000_000})
        assert claimed, f"{folder}: claimed by another"
        return Launched(local, ends_ms=begun_ms + fate.run_ms, fate=fate)

    def _task(self, start: Start) -> dict[str, Any]:
        stage, settings = start.stage, self.settings
        memory_mib = stage.demand.get("memory")
        limit = settings.memory_limit if memory_mib is not None else "none"
        return {
            "command": stage.command,
            "env": environment(start, settings),
            "cwd": stage.cwd,
            "timeout_ms": stage.timeout_ms,
            "grace_ms": settings.stop_grace_ms,
            "resident_mib": max(memory_mib or 0, RESIDENT_MIB_MIN) if limit == "resident" else None,
            "address_mib": (memory_mib or 0) + ADDRESS_MIB_EXTRA if limit == "address_space" else None,
            "output_bytes": settings.output_bytes,
            "events": str(settings.data / EVENTS),
        }

    # ---------------------------------------------------------------- finding again
    def scan(self) -> None:
        """Finds what an earlier agent left: runs on, has ended, or is lost. Blocks. Raises OSError."""
        for folder in attempt_folders(self.settings.data):
            if (folder.parents[1] / OVER).exists():
                continue  # Its job has ended, and nothing of it was left when that was written.
            task = read_json(folder / TASK)
            if task is None:
                continue  # The agent died before anything could start here.
            name = Name(task["job"], task["stage"], task["index"], task["attempt"])
            local = Local(task["key"], name, task["admitted"], folder)
            self.by_key[local.key] = local
            self._find(local, task)

    def _find(self, local: Local, task: dict[str, Any]) -> None:
        if not (local.folder / CLAIM).exists():
            # A shim that was spawned and has not claimed yet may not begin any more: nobody was told of it.
            shim.claim(local.folder, {})
        claim = read_json(local.folder / CLAIM) or {}
        if (result := read_json(local.folder / RESULT)) is not None:
            local.phase, local.result = "ended", result_of(result)
        elif "mono_ms" in claim:
            fate = Result(task["reason"], run_ms=task["run_ms"], detail=_timed_out(task["reason"], task["run_ms"]))
            self._time(local, self._begun_ms(claim) + fate.run_ms, fate)
        elif claim.get("boot") == self.boot and shim.start_ticks(claim["pid"]) == claim["start"]:
            local.phase, local.pid, local.ticks = "running", claim["pid"], claim["start"]
            local.stopping = (local.folder / STOP).exists()
        else:
            self._conclude(local)

    def _begun_ms(self, claim: dict[str, Any]) -> int:
        """When a simulated task began, on this boot's monotonic clock."""
        if claim["boot"] == self.boot:
            return int(claim["mono_ms"])
        return mono_ms() - max(0, time.time_ns() // 1_000_000 - int(claim["wall_ms"]))

    # ---------------------------------------------------------------- watching
    def hear(self, events: int) -> list[Local]:
        """Reads what shims said on the pipe; returns the attempts that began or ended."""
        with suppress(BlockingIOError):
            self.unread += os.read(events, EVENT_BYTES_MAX)
        *lines, self.unread = self.unread.split(b"\n")
        changed = []
        for line in lines:
            what, _, key = line.decode(errors="replace").partition(" ")
            local = self.by_key.get(key)
            if local is None or local.phase == "ended":
                continue
            if what == "ended":
                changed += self._conclude(local)
            elif what == "started" and local.phase == "starting":
                local.phase = "running"
                changed.append(local)
        return changed

    def look(self, now_ms: int) -> list[Local]:
        """Asks the kernel about every shim, for what the pipe did not say; returns the attempts that began or ended."""
        self.leaving = [pid for pid in self.leaving if not _reaped(pid)]
        changed = []
        for local in [local for local in self.by_key.values() if local.pid is not None and local.phase != "ended"]:
            assert local.pid is not None
            if shim.start_ticks(local.pid) != local.ticks or local.ticks is None:
                changed += self._conclude(local)
            elif local.force_ms is not None and now_ms >= local.force_ms:
                _kill([local.pid], signal.SIGKILL)
            elif local.phase == "starting" and (local.folder / CHILD).exists():
                local.phase = "running"
                changed.append(local)
        return changed

    def ring(self, now_ms: int) -> list[Local]:
        """Simulated tasks whose time is over."""
        changed = []
        while self.timers and self.timers[0][0] <= now_ms:
            _, key = heapq.heappop(self.timers)
            local = self.by_key.get(key)
            if local is not None and local.phase == "running" and local.ends_ms is not None:
                assert local.fate is not None
                changed += self._end(local, local.fate)
        return changed

    def ring_ms(self) -> int | None:
        """When the next simulated task ends."""
        return self.timers[0][0] if self.timers else None

    @property
    def alive(self) -> int:
        """How many have not ended."""
        return sum(local.phase != "ended" for local in self.by_key.values())

    def forget(self, key: str) -> None:
        """The log has its end, and it has ended here."""
        self.by_key.pop(key, None)

    # ---------------------------------------------------------------- stopping
    def stop(self, local: Local, reason: str, grace_ms: int) -> list[Local]:
        """Asks an attempt to end within the grace; returns it if that was all it took."""
        if local.phase == "ended" or local.stopping:
            return []
        local.stopping = True
        if local.ends_ms is not None:
            assert local.fate is not None
            ran_ms = max(0, local.fate.run_ms - (local.ends_ms - mono_ms()))
            return self._end(local, Result(reason, run_ms=ran_ms, detail=f"stopped: {reason}"))  # type: ignore[arg-type]
        # On a full disk the shim hears less, and stops all the same.
        with suppress(OSError):
            write_json(local.folder / STOP, {"reason": reason, "grace_ms": grace_ms})
        local.force_ms = mono_ms() + grace_ms + FORCE_MS
        _ask_to_stop(local)
        return []

    # ---------------------------------------------------------------- ending
    def _conclude(self, local: Local) -> list[Local]:
        """The shim has ended: what it left behind says how; if it left nothing, the attempt is lost."""
        result = read_json(local.folder / RESULT)
        if result is not None:
            return self._end(local, result_of(result), durable=True)
        self._sweep(local)
        stop = read_json(local.folder / STOP)
        if stop is not None:
            return self._end(local, Result(stop["reason"], detail=f"stopped: {stop['reason']}"))
        return self._end(local, Result("lost", detail="its guardian is gone and left no result"))

    def _sweep(self, local: Local) -> None:
        """Ends what a killed shim could not end."""
        child = read_json(local.folder / CHILD)
        claim = read_json(local.folder / CLAIM) or {}
        if child is not None and claim.get("boot") == self.boot:
            # The number cannot have been given away while its session lives; a later process of it is not ours.
            if shim.start_ticks(child["pid"]) in (None, child["start"]):
                _kill(shim.session_of(child["pid"]), signal.SIGKILL)

    def _time(self, local: Local, ends_ms: int, fate: Result) -> None:
        local.phase, local.ends_ms, local.fate = "running", ends_ms, fate
        heapq.heappush(self.timers, (ends_ms, local.key))

    def _end(self, local: Local, result: Result, *, durable: bool = False) -> list[Local]:
        """`durable`: the result lies in the folder already. Otherwise it is written there."""
        if local.phase == "ended":
            return []
        local.phase, local.result = "ended", result
        if local.pid is not None and not _reaped(local.pid):
            self.leaving.append(local.pid)
        if not durable:
            with suppress(OSError):
                write_json(local.folder / RESULT, _document(result))
        return [local]


def environment(start: Start, settings: NodeSettings) -> dict[str, str]:
    """What a task finds in its environment: a little of the agent's, what its stage says, its name, its GPUs."""
    held = start.held
    names = [*BASE_ENV, *settings.pass_env, *(name for name in os.environ if name.startswith("LC_"))]
    env = {name: os.environ[name] for name in names if name in os.environ}
    if held.devices:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(str(share.index) for share in held.devices)
    env.update(start.stage.env)
    env["LARGESSE_JOB"], env["LARGESSE_STAGE"] = held.job, held.stage
    env["LARGESSE_TASK_INDEX"], env["LARGESSE_ATTEMPT"] = str(held.index), str(held.attempt)
    env["LARGESSE_NODE"] = settings.name
    return env


def result_of(document: dict[str, Any]) -> Result:
    """A result as a shim, or an agent for a simulated task, has left it."""
    peak_mib = document.get("peak_mib", 0)
    return Result(
        reason=document["reason"] if document["state"] == "failed" else None,
        run_ms=document["run_ms"],
        exit_code=document.get("exit_code"),
        detail=document.get("detail", ""),
        peak={"memory": peak_mib} if peak_mib else {},
    )


def _document(result: Result) -> dict[str, Any]:
    state = "succeeded" if result.reason is None else "failed"
    return {"state": state, "reason": result.reason, "run_ms": result.run_ms, "detail": result.detail}


def _fate(stage: Stage, index: int) -> Result:
    """How a simulated task will end: by its duration, or by the stage's time-out."""
    run_ms = stage.durations_ms[index] if len(stage.durations_ms) > 1 else stage.durations_ms[0]
    if stage.timeout_ms is not None and run_ms > stage.timeout_ms:
        return Result("timeout", run_ms=stage.timeout_ms, detail=_timed_out("timeout", stage.timeout_ms))
    return Result(None, run_ms=run_ms)


def _timed_out(reason: str | None, timeout_ms: int) -> str:
    return "" if reason is None else f"ran longer than {timeout_ms} ms"


def _spawn(folder: Path) -> int:
    """A shim for the attempt, in a session of its own. About a millisecond. Raises OSError."""
    command = [sys.executable, "-I", "-S", "-c", SHIM_START, str(Path(shim.__file__).parent), str(folder)]
    library = os.environ.get("LD_LIBRARY_PATH")
    err = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        sys.executable,
        command,
        {} if library is None else {"LD_LIBRARY_PATH": library},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, str(folder / "shim.err"), err, 0o600),
        ],
        setsid=True,
        setsigmask=(),
    )


def _ask_to_stop(local: Local) -> None:
    if local.pid is not None and local.ticks is not None and shim.start_ticks(local.pid) == local.ticks:
        _kill([local.pid], signal.SIGTERM)


def _reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True  # Another agent's child: whoever adopted it has reaped it, or will.


def _kill(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
