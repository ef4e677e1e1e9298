"""One attempt's guardian: a process of its own that outlives the agent, started by forks.py as `main(FOLDER)`.

Claims the attempt (once only), runs its command in a session of its own, keeps what it prints, holds it to its
time and memory, ends everything it started, and leaves exit code and run time in RESULT. SIGTERM means stop; STOP says
why and how long to wait before force. Only the standard library, and little of it: a start costs about 10 ms.

Only the kernel knows a child's orphans, so the shim takes them in (PR_SET_CHILD_SUBREAPER), and the command dies
with the shim (PR_SET_PDEATHSIG). Where ctypes is missing the session's processes are still found.

A task can usually write in the folder in which the shim works: see documents.py.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import time
from contextlib import suppress

from services.agent.becoming import (
    NOT_EXECUTABLE,
    NOT_ITS_FAULT,
    NOT_JOINED,
    PDEATHSIG,
    SIGNAL_BASE,
    WORK,
    become,
    places_of,
    prctl,
)
from services.agent.documents import CHILD, RESULT, STOP, TASK, claim, read_json, write_json
from services.agent.lease_file import END, RUN, Hold
from services.agent.meter import Meter
from services.agent.proc import boot_id, family, session_of, start_ticks
from services.agent.streams import CHUNK_BYTES, Output
from services.agent.suspending import Suspension

# typing and pathlib would be a quarter of all that a start costs.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from services.agent.becoming import Document

STREAMS = ("stdout", "stderr")

MEMORY_LOOK_MS, MEMORY_LOOK_NEAR_MS = 1_000, 100  # In general, and of what may soon hold more than it may.
KILL_WAIT_MS = 10_000  # After SIGKILL; what is stuck in the kernel for longer is left behind.
GRACE_MS_MAX = 24 * 3_600 * 1_000  # A longer one is not believed.
DRAIN_MS = 1_000  # For output that is still in a pipe when everything has ended.
RESULT_TRIES = 60  # A second apart: a full disk may be emptied.
EVENTS_FD = 3  # Where the agent that started the shim listens to it: a pipe of theirs alone.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)  # May pass.

SHIM_UMASK = 0o077
BRIEF_MS = 10
"""What ends so soon is said to have begun when it is said to have ended."""
FAULT_BYTES = 65_536

_HEARD = (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)
"""Handled and not ignored, so that a command has their defaults without setting them."""

_hears: list[bool] = []  # Whether this process has set up its signals, at its first attempt.
_born: dict[int, int | None] = {}  # When this process started, once it was asked.

_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36


# ---------------------------------------------------------------- the attempt
class CannotStart(Exception):
    """The command could not be executed: why, and the exit code that a shell would have given it."""

    def __init__(self, why: str, exit_code: int) -> None:
        super().__init__(why)
        self.exit_code = exit_code


class Guardian:
    """Runs one attempt in the present folder, from its claim to its result."""

    def __init__(self, task: Document) -> None:
        self.task = task
        self.takes_in = self.left = False
        self.umask = os.umask(SHIM_UMASK)  # For its own files; the command gets the old one back.
        self.wake, self._alarm = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.outputs: list[Output] = []
        self.secrets: dict[str, str] = {}
        self.child = 0
        self.status: int | None = None
        self.forked_ns = self.begun_ns = 0
        self.told = False  # That the command has begun.
        self.ended_ns = 0
        self.reason: str | None = None
        self.detail = ""
        self.kill_ns: int | None = None
        self.suspended_ns = 0
        self.meter = Meter(task)
        self.suspension = Suspension(self.meter)
        self.hold = _opened_hold(task.get("hold"))
        signal.set_wakeup_fd(self._alarm, warn_on_full_buffer=False)
        if not _hears:
            _hears.append(True)
            for number in _HEARD:
                signal.signal(number, lambda *_: None)

    def close(self) -> None:
        """Gives back what it has open: this process may guard another attempt."""
        for output in self.outputs:
            output.close()
        signal.set_wakeup_fd(-1)
        for number in (self.wake, self._alarm):
            os.close(number)
        if self.hold is not None:
            self.hold.close()
        os.umask(self.umask)

    def run(self) -> None:
        """The whole life of the attempt, once it is claimed."""
        self.takes_in = prctl(_PR_SET_CHILD_SUBREAPER)
        try:
            self._start()
        except CannotStart as error:
            said = {"detail": str(error), "exit_code": error.exit_code}
            self._finish({"state": "failed", "reason": "cannot_start", "run_ms": 0, **said})
            return
        except OSError as error:
            # What the machine lacks is not the job's fault.
            detail = f"the node could not start it: {error.strerror or error}"
            self._finish({"state": "failed", "reason": "lost", "detail": detail, "run_ms": 0})
            return
        self._watch()
        self._end_everything()
        self._drain()
        self._finish(self._result())

    def _start(self) -> None:
        if self.hold is not None and self.hold.look() != RUN:
            raise OSError(0, "its agent may not have the node any more")
        if self.task.get("secrets"):
            self.secrets = _secrets_of(self.task["secrets"])
            self.task["env"] = self.task["env"] | self.secrets
        opened: list[int] = []
        try:
            problem = self._forked(opened)
        finally:
            for number in opened:
                os.close(number)
        if problem:
            _, status = os.waitpid(self.child, 0)
            if problem.startswith(NOT_ITS_FAULT):
                raise OSError(0, problem.removeprefix(NOT_ITS_FAULT).decode(errors="replace"))
            raise CannotStart(problem.decode(errors="replace"), os.waitstatus_to_exitcode(status))
        self.begun_ns = self.forked_ns  # Not now: on a busy machine the command may be over when this is read.

    def _output_pipes(self, opened: list[int]) -> list[int]:
        """A pipe for each stream of output, which is read from here on; their other ends."""
        pipes = []
        for stream in STREAMS:
            mine, theirs = os.pipe2(os.O_CLOEXEC)
            pipes.append(theirs)
            opened.append(theirs)
            self.outputs.append(Output(mine, stream, self.task["output_bytes"]))
            os.set_blocking(mine, False)
        return pipes

    def _forked(self, opened: list[int]) -> bytes:
        """Why the child that is forked cannot become the command; empty: it has. `opened`: what is to be closed then.
        Raises OSError."""
        pipes = self._output_pipes(opened)
        groups = _opened_groups(self.task.get("groups"), opened)
        fault, said = os.pipe2(os.O_CLOEXEC)
        opened.append(fault)
        os.mkdir(WORK, 0o700)
        if self.task["user"] is not None:
            uid, gid = self.task["user"]["uid"], self.task["user"]["gid"]
            os.chown(WORK, uid, gid)
            for pipe in pipes:
                os.fchown(pipe, uid, gid)  # Or it could not open /dev/stdout, which is the pipe itself.
        guardian, places = os.getpid(), places_of(self.task)
        _limit_descriptors(self.task.get("descriptors"))
        os.umask(self.umask)
        try:
            self.forked_ns = time.monotonic_ns()
            self.child = os.fork()
            if self.child == 0:
                become(self.task, places, pipes, groups, said, guardian)
        finally:
            os.close(said)
            os.umask(SHIM_UMASK)
        return os.read(fault, FAULT_BYTES)

    def _watch(self) -> None:
        """Until the command has ended: pumps its output, keeps its time, looks at its memory, hears a stop."""
        timeout_ms = self.task["timeout_ms"]
        deadline_ns = None if timeout_ms is None else self.begun_ns + timeout_ms * 1_000_000
        look_ns = self.begun_ns + MEMORY_LOOK_MS * 1_000_000
        while True:
            moments = [look_ns, None if self.suspension.active else deadline_ns, self.kill_ns, self._heed_ns()]
            if not self.told:
                moments.append(self.begun_ns + BRIEF_MS * 1_000_000)
            signals = self._wait([moment for moment in moments if moment is not None])
            self._reap()
            if self.status is not None:
                return
            if not self.told and time.monotonic_ns() >= self.begun_ns + BRIEF_MS * 1_000_000:
                self.told = True
                with suppress(OSError):
                    write_json(CHILD, {"pid": self.child, "start": start_ticks(self.child)})
                self._tell("started")
            if signal.SIGTERM in signals:
                self._stop(*self._asked())
            spent_ns = self._heed()
            now_ns = time.monotonic_ns()
            if deadline_ns is not None:
                deadline_ns += spent_ns
            if deadline_ns is not None and now_ns >= deadline_ns and not self.suspension.active:
                deadline_ns = None
                self._stop("timeout", self.task["grace_ms"], f"ran longer than {timeout_ms} ms")
            if now_ns >= look_ns:
                self._check_memory()
                look_ns = now_ns + (MEMORY_LOOK_NEAR_MS if self.meter.is_near() else MEMORY_LOOK_MS) * 1_000_000
            if self.kill_ns is not None and now_ns >= self.kill_ns:
                self.kill_ns = now_ns + 1_000_000_000  # Again: something may have been forked meanwhile.
                self._signal(signal.SIGKILL)

    def _heed_ns(self) -> int | None:
        return None if self.hold is None else time.monotonic_ns() + self.hold.wait_ms() * 1_000_000

    def _heed(self) -> int:
        """Suspends or ends the command where its agent may not have the node any more, and lets it go on where it has.
        Returns for how long it was suspended that goes on now, in nanoseconds.
        """
        hold, suspension = self.hold, self.suspension
        if hold is None:
            return 0
        wanted = hold.look()
        if wanted == END:
            if self.reason is None or suspension.active:
                self._stop("lost", hold.grace_ms(), "its agent was silent for longer than its node may be")
            elif self.kill_ns is not None:
                self.kill_ns = min(self.kill_ns, time.monotonic_ns() + hold.grace_ms() * 1_000_000)
        elif wanted == RUN and suspension.active:
            # The agent says first what is to end, and then that the rest may go on.
            if signal.SIGTERM in self._wait([0]):
                self._stop(*self._asked())
            elif self.reason is None:
                suspension.end(self.child)
                return time.monotonic_ns() - self.suspended_ns
        elif wanted != RUN and not suspension.active:
            suspension.begin(self.child)
            self.suspended_ns = time.monotonic_ns()
            if self.reason is not None:
                self._stop(self.reason, 0)  # It has no time left to end by itself.
        return 0

    def _asked(self) -> tuple[str, int]:
        """Why it is to stop, and the grace in milliseconds: as STOP says, if that can be believed."""
        with suppress(OSError):
            stop = read_json(STOP) or {}
            reason, grace_ms = stop.get("reason"), stop.get("grace_ms")
            if isinstance(reason, str) and type(grace_ms) is int and 0 <= grace_ms <= GRACE_MS_MAX:
                return reason, grace_ms
        return "killed", self.task["grace_ms"]

    def _wait(self, moments: list[int]) -> bytes:
        """Sleeps until output, a signal or the first of the moments comes; returns the numbers of the signals."""
        seconds = max(0, min(moments) - time.monotonic_ns()) / 1e9 if moments else None
        pipes = {output.pipe: output for output in self.outputs if output.open}
        ready, _, _ = select.select([self.wake, *pipes], [], [], seconds)
        for pipe in ready:
            if pipe != self.wake:
                pipes[pipe].pump()
        return os.read(self.wake, CHUNK_BYTES) if self.wake in ready else b""

    def _reap(self) -> bool:
        """Takes in whatever has ended; False where no process is left."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.meter.add(used)
            if pid == self.child:
                self.status, self.ended_ns = status, time.monotonic_ns()

    def _stop(self, reason: str, grace_ms: int, detail: str = "") -> None:
        """SIGTERM now, SIGKILL after the grace. The first reason stands; a later stop can only shorten the grace."""
        if self.suspension.active:
            grace_ms = 0  # It may run elsewhere by now.
        if self.reason is None:
            self.reason, self.detail = reason, detail
            if grace_ms > 0:
                self._signal(signal.SIGTERM)
                self._signal(signal.SIGCONT)  # What is stopped would not hear it.
        kill_ns = time.monotonic_ns() + grace_ms * 1_000_000
        self.kill_ns = kill_ns if self.kill_ns is None else min(self.kill_ns, kill_ns)

    def _check_memory(self) -> None:
        """Notes what its processes hold together, and ends the attempt at once if that is more than it may."""
        used_mib = self.meter.look(self.child)
        if used_mib is not None and self.reason is None:
            self._stop("memory", 0)

    def _signal(self, number: int) -> None:
        if number == signal.SIGKILL:
            self.meter.kill()
        for pid in family(self.child):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _end_everything(self) -> None:
        """What the command left running ends with it: its room is about to be given to others."""
        over_ns = time.monotonic_ns() + KILL_WAIT_MS * 1_000_000
        pause_ns = 1_000_000
        # Where orphans come to it, nothing is left once no child is.
        while self._has_left() and time.monotonic_ns() < over_ns:
            self._signal(signal.SIGKILL)
            self._wait([time.monotonic_ns() + pause_ns])
            pause_ns = min(2 * pause_ns, 100_000_000)

    def _has_left(self) -> bool:
        self.left = self._reap() or (not self.takes_in and session_of(self.child) != [])
        return self.left

    def _drain(self) -> None:
        over_ns = time.monotonic_ns() + DRAIN_MS * 1_000_000
        while any(output.open for output in self.outputs) and time.monotonic_ns() < over_ns:
            self._wait([over_ns])
        for output in self.outputs:
            output.close()

    def _result(self) -> Document:
        assert self.status is not None
        run_us = (self.ended_ns - self.begun_ns) // 1_000
        exit_code = os.waitstatus_to_exitcode(self.status)
        detail = f"ended with status {exit_code}"
        if exit_code < 0:
            detail = f"ended by {_signal_name(-exit_code)}"
            exit_code = SIGNAL_BASE - exit_code
        reason = self.reason
        if reason is None and exit_code != 0:
            killed = self.meter.killed_for_memory(exit_code)
            reason = "exit_code" if killed is None else "memory"
            detail = killed or detail
            if self.meter.full_of_processes():
                detail += f"; it was refused more than its {self.task['pids']} processes and threads"
        # What was ended for its memory has no exit code: the signal was not the command's.
        said, usage = None if reason == "memory" else exit_code, self.meter.usage(run_us)
        if self.reason == "memory":  # By the peak that is reported: it went on to grow until it was killed.
            limit_mib = self.meter.limit_mib
            self.detail = f"used {usage['peak_mib']} MiB of memory, more than the {limit_mib} MiB it may"
        result: Document = {"run_ms": run_us // 1_000, **usage, "exit_code": said}
        if reason is None:
            return {"state": "succeeded", **result}
        return {"state": "failed", "reason": reason, "detail": self.detail or detail, **result}

    def _finish(self, result: Document) -> None:
        for left in reversed(range(RESULT_TRIES)):
            try:
                write_json(RESULT, result, durable=True)
                break
            except OSError as error:
                if left == 0 or error.errno not in FULL:
                    raise
                time.sleep(1)
        self._leave_groups()
        self._tell(*(["started"] if self.begun_ns and not self.told else []), "ended")

    def _leave_groups(self) -> None:
        """Removes its control groups: its agent may not be there any more to do that."""
        for group in (self.task.get("groups") or {}).get("join", ()):
            with suppress(OSError):
                os.rmdir(os.path.dirname(group))

    def _tell(self, *what: str) -> None:
        """Words to the agent that started this, if it is still there; another one will look at the files."""
        with suppress(OSError):
            os.write(EVENTS_FD, "".join(f"{word} {self.task['key']}\n" for word in what).encode())


def _limit_descriptors(most: int | None) -> None:
    """Of this process and its children: the agent has raised its own, and `select` in a program breaks above 1,024."""
    if most is not None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _opened_groups(groups: Document | None, opened: list[int]) -> list[int]:
    """The files by which a process joins the attempt's control groups, added to `opened` as well. Raises OSError."""
    found = []
    for group in (groups or {}).get("join", ()):
        try:
            found.append(os.open(group, os.O_WRONLY | os.O_CLOEXEC))
        except OSError as error:
            raise OSError(error.errno, f"{NOT_JOINED}: {error.strerror}") from None
        opened.append(found[-1])
    return found


def _secrets_of(asked: Document) -> dict[str, str]:
    """The variables with secrets of the node. Raises CannotStart."""
    from services.agent.task_secrets import NoSecret, secret_values

    try:
        return secret_values(asked["folder"], asked["queue"], asked["names"])
    except NoSecret as fault:
        raise CannotStart(str(fault), NOT_EXECUTABLE) from None


def _opened_hold(path: str | None) -> Hold | None:
    """None: started by hand, without an agent. Raises OSError."""
    return None if path is None else Hold(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def loaded() -> None:
    """Has in memory what every attempt needs, before others are forked."""
    prctl(PDEATHSIG, 0)
    start_ticks(os.getpid())
    boot_id()


def main(folder: str) -> None:
    """Guards the attempt in `folder`; returns at once if it is claimed already."""
    with os.scandir("/proc/self/fd") as entries:
        inherited = [int(entry.name) for entry in entries if int(entry.name) > EVENTS_FD]
    for number in inherited:
        with suppress(OSError):
            os.close(number)  # Inherited from the agent's parent: not for tasks.
    try:
        os.set_inheritable(EVENTS_FD, False)
    except OSError:  # Started by hand, or by a test: there is no reader.
        assert os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC) == EVENTS_FD  # The lowest that is free.
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.close(nothing)
    guard(folder)


guardians: dict[str, type[Guardian]] = {}
"""Of attempts that are no processes, by the word that their tasks have for what they are (container_guard.py)."""


def _guardian_of(task: Document) -> Guardian:
    return next((kind for word, kind in guardians.items() if word in task), Guardian)(task)


def guard(folder: str) -> bool:
    """In a process that has nothing open but the three streams, the pipe of events, and what the caller knows of.
    Returns whether it may guard another attempt: nothing of this one is left."""
    os.chdir(folder)
    task = read_json(TASK)
    assert task is not None, f"{folder}: no {TASK}"
    if task["private"]:
        # Only root may look into it, take over its pipe, or trace it.
        prctl(_PR_SET_DUMPABLE, 0)
    guardian = _guardian_of(task)
    try:
        pid = os.getpid()
        if pid not in _born:
            _born[pid] = start_ticks(pid)
        if not claim("", {"pid": pid, "start": _born[pid], "boot": boot_id()}):
            return False
        guardian.run()
        return guardian.takes_in and not guardian.left
    finally:
        guardian.close()
