"""Guards one attempt that runs in a container: what a shim does for a process (shim.py), asked of the engine.

    shim          claims the attempt, makes the container, keeps time, hears stops, heeds the lease, leaves the result
      attendant   its child: starts the container, takes in what it prints, ends as it has ended

The container's processes are the engine's, not the shim's. So the attendant ends the container where its shim has died
(PR_SET_PDEATHSIG), the shim where its attendant has, and the agent where both have (executors/container.py). A
container has the attempt's name, which the engine gives once: none begins twice, not even under two shims.

Imported by every shim: only the standard library, and little of it.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress
from datetime import datetime

from services.agent.becoming import NOT_EXECUTABLE, NOT_FOUND, NOT_ITS_FAULT, PDEATHSIG, WORK, prctl
from services.agent.container_meter import ContainerMeter
from services.agent.engine_socket import CONFLICT, EngineRefused, EngineSilent, Line
from services.agent.shim import FAULT_BYTES, KILL_WAIT_MS, STREAMS, CannotStart, Guardian, guardians
from services.agent.streams import CHUNK_BYTES

# As in shim.py.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from services.agent.becoming import Document

FRAME_BYTES = 8
"""Before each piece of output: which stream it is of, and how long it is."""
ORDER_S = 10.0
"""The engine has so long for a signal."""
PAUSE_NS = 200_000_000
LOST_SIGHT = 255
"""The exit code of an attendant that cannot say how its container has ended; a container may have it, too."""
SERVER_ERROR = 500
FIRST_SAYS = (b"[FATAL tini", b"ERROR (catatonit")
"""How the first process of a container begins to say that it cannot execute what it was told to."""


class Orphaned(Exception):
    """The shim of this attendant is gone."""


class Pausing:
    """Suspends a container, and lets it go on, as suspending.py does processes. `active`: it is suspended."""

    def __init__(self, guardian: ContainerGuardian) -> None:
        self._guardian = guardian
        self.active = False

    def begin(self, child: int) -> None:
        """Suspends all that runs in it."""
        self.active = True
        self._guardian.order("pause")

    def end(self, child: int) -> None:
        """Lets it go on."""
        self.active = False
        self._guardian.order("unpause")


class ContainerGuardian(Guardian):
    """Runs one attempt in a container. `task`: with what it is made of (executors/container.py)."""

    def __init__(self, task: Document) -> None:
        super().__init__(task)
        said = task["container"]
        self._name: str = said["name"]
        self._create: Document = said["create"]
        self._line = Line(said["engine"])
        self._made = False
        self.meter = self._counts = ContainerMeter(task)
        self.suspension = Pausing(self)  # type: ignore[assignment]

    def order(self, what: str) -> bool:
        """Asks the engine for something that may be asked for too late; whether it has answered."""
        try:
            self._line.ask("POST", f"/containers/{self._name}/{what}", wait_s=ORDER_S)
        except EngineRefused:
            return True
        except EngineSilent:
            return False
        return True

    # ---------------------------------------------------------------- starting
    def _start(self) -> None:
        super()._start()
        self.begun_ns = time.monotonic_ns()
        self._counts.find(self._state().get("Pid") or 0)

    def _forked(self, opened: list[int]) -> bytes:
        """Why the container cannot be started; empty: it has been. See the base class."""
        self._make_work()
        self._make_container()
        pipes = self._output_pipes(opened)
        fault, said = os.pipe2(os.O_CLOEXEC)
        opened.append(fault)
        guardian = os.getpid()
        try:
            self.forked_ns = self._counts.since_ns = time.monotonic_ns()
            self.child = os.fork()
            if self.child == 0:
                attend(self._line, self._name, pipes, said, guardian)
        finally:
            os.close(said)
        return os.read(fault, FAULT_BYTES)

    def _make_work(self) -> None:
        os.mkdir(WORK, 0o700)  # noqa: PTH102 - as shim.py does
        user = self.task["user"]
        if user is not None:
            os.chown(WORK, user["uid"], user["gid"])
        else:
            # As whom an image runs is its own to say; the folder above is the agent's alone.
            os.chmod(WORK, 0o777)  # noqa: PTH101, S103

    def _make_container(self) -> None:
        """Raises CannotStart, OSError."""
        env = [*self._create["Env"], *(f"{name}={value}" for name, value in self.secrets.items())]
        try:
            self._line.ask("POST", f"/containers/create?name={self._name}", {**self._create, "Env": env})
        except EngineRefused as why:
            if why.status == CONFLICT:
                raise OSError(0, "the engine has a container of this attempt already") from None
            if why.status >= SERVER_ERROR:
                raise OSError(0, f"the container engine: {why}") from None
            raise CannotStart(f"its container cannot be made: {why}", NOT_EXECUTABLE) from None
        self._made = True

    # ---------------------------------------------------------------- ending
    def _signal(self, number: int) -> None:
        """SIGTERM goes to the container's first process, SIGKILL ends all of them."""
        if number not in (signal.SIGTERM, signal.SIGKILL):
            return
        heard = self.order(f"kill?signal={signal.Signals(number).name}")
        if number == signal.SIGKILL and not heard:
            self._counts.kill()

    def _end_everything(self) -> None:
        """The kernel ends with a container's first process what runs beside it; that one may outlive its attendant."""
        over_ns = time.monotonic_ns() + KILL_WAIT_MS * 1_000_000
        while self._has_left() and time.monotonic_ns() < over_ns:
            self._signal(signal.SIGKILL)
            self._wait([time.monotonic_ns() + PAUSE_NS])

    def _has_left(self) -> bool:
        self._reap()
        self.left = bool(self._state().get("Running"))
        return self.left

    def _state(self) -> Document:
        """What the engine says of the container; empty: it has none, or says nothing."""
        try:
            found = self._line.ask("GET", f"/containers/{self._name}/json", wait_s=ORDER_S)
        except EngineRefused:
            return {}
        except EngineSilent:
            return {"Running": self._counts.lives()}
        state: Document = found["State"]
        return state

    def _result(self) -> Document:
        assert self.status is not None
        state = self._state()
        if (why := self._not_executed(state.get("ExitCode"))) is not None:
            said = {"detail": why, "exit_code": state["ExitCode"]}
            return {"state": "failed", "reason": "cannot_start", "run_ms": 0, **said}
        self._counts.out_of_memory = bool(state.get("OOMKilled"))
        code = os.waitstatus_to_exitcode(self.status)
        if "ExitCode" in state:
            if code != state["ExitCode"] and self.reason is None:
                self.reason, self.detail = "lost", "what attended its container was ended"
            self.status = (state["ExitCode"] & 0xFF) << 8
            self.begun_ns = self.ended_ns - max(0, _between_ns(state))
        elif code < 0 or code == LOST_SIGHT:
            self.reason, self.detail = self.reason or "lost", self.detail or "the engine lost sight of its container"
        return super()._result()

    def _not_executed(self, code: int | None) -> str | None:
        """Why the container's first process, which is the engine's, could not execute the command; None: it could."""
        if code not in (NOT_EXECUTABLE, NOT_FOUND) or self.reason is not None:
            return None
        with suppress(OSError):
            file = os.open(STREAMS[1], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                text = os.read(file, FAULT_BYTES)
            finally:
                os.close(file)
            if text.startswith(FIRST_SAYS):
                return text.partition(b"\n")[0].decode(errors="replace")
        return None

    def _finish(self, result: Document) -> None:
        try:
            super()._finish(result)
        finally:  # Also where the attempt's folder is gone.
            if self._made:
                with suppress(EngineRefused, EngineSilent):
                    self._line.ask("DELETE", f"/containers/{self._name}?force=1&v=1")
            self._counts.remove()


def register() -> None:
    """Has shims of this process guard containers, too."""
    guardians["container"] = ContainerGuardian


def _between_ns(state: Document) -> int:
    """How long a container ran, as the engine has it."""
    with suppress(KeyError, ValueError):
        began, ended = (datetime.fromisoformat(state[name][:26].rstrip("Z") + "+00:00") for name in _MOMENTS)
        return int((ended - began).total_seconds() * 1e9)
    return 0


_MOMENTS = ("StartedAt", "FinishedAt")


# ---------------------------------------------------------------- the attendant
def attend(line: Line, name: str, pipes: list[int], said: int, guardian: int) -> NoReturn:
    """In the forked child: starts the container, or says why not to `said`; passes on what it prints, and ends with its
    exit code. Ends the container where its shim is gone.
    """
    code = LOST_SIGHT
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, _orphaned)
        prctl(PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != guardian:
            raise Orphaned
        try:
            stream, first = line.opened(f"/containers/{name}/attach?stream=1&stdout=1&stderr=1")
            line.ask("POST", f"/containers/{name}/start")
        except (EngineRefused, EngineSilent) as why:
            code = _say_why(said, why)
            os._exit(code)
        os.close(said)
        _pass_on(stream, first, pipes)
        for pipe in pipes:
            os.close(pipe)
        code = line.ask("POST", f"/containers/{name}/wait", wait_s=None)["StatusCode"] & 0xFF
    except (Orphaned, BrokenPipeError):
        _end(line, name)
    except (EngineRefused, EngineSilent, OSError):
        code = LOST_SIGHT
    finally:
        os._exit(code)


def _orphaned(*_: object) -> None:
    raise Orphaned


def _say_why(said: int, why: EngineRefused | EngineSilent) -> int:
    """Writes why a container cannot start; returns the exit code that a shell would have."""
    text = f"its container cannot start: {why}"
    if isinstance(why, EngineSilent) or (why.status >= SERVER_ERROR and not _is_of_job(str(why))):
        text = NOT_ITS_FAULT.decode() + text
    os.write(said, text.encode(errors="replace"))
    return NOT_FOUND if "not found" in text or "no such file" in text else NOT_EXECUTABLE


def _is_of_job(text: str) -> bool:
    """Whether an engine that fails says that it cannot execute what the job asks for."""
    words = ("executable file not found", "no such file or directory", "permission denied", "unable to find user")
    return any(word in text.lower() for word in (*words, "not a directory", "exec format error", "working directory"))


def _pass_on(stream: socket.socket, unread: bytes, pipes: list[int]) -> None:
    """What the container prints, until it prints no more. Raises OSError."""
    with stream:
        while True:
            while len(unread) >= FRAME_BYTES:
                which, size = unread[0], int.from_bytes(unread[4:FRAME_BYTES], "big")
                if len(unread) < FRAME_BYTES + size:
                    break
                _write(pipes[1 if which == 2 else 0], unread[FRAME_BYTES : FRAME_BYTES + size])
                unread = unread[FRAME_BYTES + size :]
            part = stream.recv(CHUNK_BYTES)
            if not part:
                return
            unread += part


def _write(pipe: int, text: bytes) -> None:
    while text:
        text = text[os.write(pipe, text) :]


def _end(line: Line, name: str) -> None:
    for method, what in (("POST", "/kill?signal=SIGKILL"), ("DELETE", "?force=1&v=1")):
        with suppress(EngineRefused, EngineSilent):
            line.ask(method, f"/containers/{name}{what}", wait_s=ORDER_S)
