"""Where an agent's shims come from: a fork server (fork_server.py), or, where there can be none, an interpreter each.

The server is started with the first task, and again when it has died. What it was just asked for then has either begun,
and is found by its key, or is asked for again: no attempt is given up, and none begins twice. A shim may guard several
attempts, one after the other.
"""

import fcntl
import os
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from largesse.telemetry import logger
from schemas.quantities import QUANTITY_MAX
from services.agent import fork_server, proc, processes, shim
from services.agent.documents import CLAIM
from services.agent.found import Unsound, claim_in, whole_in

START_S = 10.0
ANSWER_S = 10.0
"""A server that is not ready, or has not answered, for so long is given up."""
PAUSE_S = 30.0
"""After a server that could not be started the next one is tried so much later."""
IDLE_S = 5.0
"""So long a shim waits for another attempt."""
TRIES = 2
GONE_S = 1.0
"""What a dead server was forking is waited for so long, after SIGKILL."""
CLEAN_LOOKS = 2
SERVER_START = (
    "import sys; sys.path.append(sys.argv[1]); from services.agent import fork_server; fork_server.main(*sys.argv[2:5])"
)
SHIM_START = (
    "import sys; sys.path.append(sys.argv[1]); from services.agent import container_guard, shim; "
    "container_guard.register(); shim.main(sys.argv[2])"
)
"""As a script it would be compiled again for every task; `-I -S` keeps everything else of this environment out."""
SHIM_PATH = str(Path(shim.__file__).parents[2])
ROOM = " " * (fork_server.REQUEST_BYTES_MAX + 64)
"""An argument of the server that its shims' names are written over."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Who has claimed an attempt: a shim. `ticks`: its start time; pid and ticks mean nothing beyond this boot."""

    boot: str
    pid: int
    ticks: int


class NoServer(Exception):
    """There is no fork server at the moment: says why."""


class Forks:
    """Starts the shims of one agent. `data`: its folder. `pid`: of the server, if there is one."""

    def __init__(self, data: Path) -> None:
        self.pid: int | None = None
        self._data = data
        self._socket: socket.socket | None = None
        self._ticks: dict[int, int | None] = {}  # Of shims, when they started: a number not reaped yet is no other's.
        self._again_s = 0.0
        self._closed = False

    def spawn(self, folder: Path, key: str, events: int | None) -> tuple[int, int | None]:
        """A shim for the attempt in `folder`, in a session of its own, a child of this process; returns its pid, and
        the time of its start (None: it has ended). Blocks.

        `events`: where it says that it started and ended. Raises OSError.
        """
        with processes.spawning:
            pid = self._forked(folder, key, events)
            if pid is None:
                pid = _spawned([SHIM_START, SHIM_PATH, str(folder), key], events, err=f"{folder}/shim.err")
            if pid not in processes.ours or pid not in self._ticks:
                self._ticks = {known: ticks for known, ticks in self._ticks.items() if known in processes.ours}
                self._ticks[pid] = proc.start_ticks(pid)
            processes.ours.add(pid)
            return pid, self._ticks[pid]

    def close(self) -> None:
        """Ends the server, but nothing that came from it."""
        with processes.spawning:
            self._closed = True
            self._end()

    def _forked(self, folder: Path, key: str, events: int | None) -> int | None:
        """The shim's pid; None: no server could start it. Raises OSError, which is what the server met."""
        request = os.fsencode(folder) + b"\0" + key.encode()
        if self._closed or len(request) > fork_server.REQUEST_BYTES_MAX or time.monotonic() < self._again_s:
            return None
        for _ in range(TRIES):
            try:
                answer = self._ask(request, events)
            except NoServer as fault:
                self._again_s = time.monotonic() + PAUSE_S
                logger(service="agent").warning("tasks start without a fork server for now", reason=str(fault))
                return None
            if answer is None and (answer := self._begun(folder, key)) is None:
                continue
            if answer < 0:
                raise OSError(-answer, os.strerror(-answer))
            return answer
        return None

    def _ask(self, request: bytes, events: int | None) -> int | None:
        """The server's answer; None: it died, and may have done what it was asked. Raises NoServer."""
        if self._socket is None:
            self._start(events)
        assert self._socket is not None
        with suppress(OSError, ValueError):
            self._socket.send(request)
            return int(self._socket.recv(16))
        return None

    def _start(self, events: int | None) -> None:
        """Raises NoServer."""
        processes.take_in_orphans()  # Its shims become children of this process.
        access = fork_server.OPEN if processes.hidden() else fork_server.PRIVATE
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            mine.settimeout(START_S)
            words = [SERVER_START, SHIM_PATH, str(self._data), access, str(IDLE_S), ROOM]
            theirs = fcntl.fcntl(its, fcntl.F_DUPFD_CLOEXEC, fork_server.SOCKET_FD + 1)
            try:
                self.pid = _spawned(words, events, (os.POSIX_SPAWN_DUP2, theirs, fork_server.SOCKET_FD))
            finally:
                os.close(theirs)
            processes.ours.add(self.pid)
            its.close()
            self._socket = mine
            if mine.recv(len(fork_server.READY)) != fork_server.READY:
                raise NoServer("it ended at its start")
            mine.settimeout(ANSWER_S)
        except (OSError, NoServer) as fault:
            its.close()
            self._end()
            mine.close()
            raise NoServer(str(fault)) from None

    def _end(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self.pid is not None:
            processes.end([self.pid])
            os.waitpid(self.pid, 0)
            processes.ours.discard(self.pid)
            self.pid = None

    def _begun(self, folder: Path, key: str) -> int | None:
        """The shim that the server, which has died, has started for this key; None: it has started none. What had not
        taken its name yet has begun nothing, and is ended.
        """
        session = self.pid
        self._end()
        over_s, clean = time.monotonic() + GONE_S, 0
        while True:
            table = processes.seen()
            nameless = [pid for pid, seen in table.items() if seen.lives and self._is_nameless(pid, seen, session)]
            _reap_session(table, session)
            processes.end(nameless)
            # What was forked while one look was taken is seen by the next one.
            clean = 0 if nameless else clean + 1
            if clean == CLEAN_LOOKS or time.monotonic() >= over_s:
                break
            time.sleep(GONE_S / 500)
        named = [pid for pid, process in table.items() if process.lives and processes.is_named(pid, key)]
        # Its child has the name too until it has become the command.
        shims = [pid for pid in named if table[pid].parent not in named]
        if shims or not (folder / CLAIM).exists():
            return shims[0] if shims else None
        return _claimer(folder)

    def _is_nameless(self, pid: int, seen: processes.Seen, session: int | None) -> bool:
        """Whether it guards nothing: about to be forked, or idle."""
        return seen.session == session or (seen.parent == os.getpid() and processes.is_idle(pid, self._data))


def guard_in(folder: int) -> Guard | None:
    """The shim that has claimed an attempt; None: a claim that was to start nothing. Raises Unsound, OSError."""
    claimed = claim_in(folder)
    if claimed is None:
        return None
    pid, ticks = (whole_in(claimed.document, CLAIM, name, 1, QUANTITY_MAX) for name in ("pid", "start"))
    return Guard(claimed.boot, pid, ticks)


def _reap_session(table: processes.Table, session: int | None) -> None:
    for pid, process in table.items():
        if process.session == session and process.parent == os.getpid():
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _claimer(folder: Path) -> int | None:
    """The shim that has begun the attempt, and has ended."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        guard = guard_in(descriptor)
    except Unsound:
        guard = None
    finally:
        os.close(descriptor)
    return guard.pid if guard is not None else None


def _spawned(words: list[str], events: int | None, *more: tuple[object, ...], err: str = os.devnull) -> int:
    """An interpreter that runs the first word, in a session of its own; returns its pid. Raises OSError."""
    library = os.environ.get("LD_LIBRARY_PATH")
    said: tuple[object, ...] = (os.POSIX_SPAWN_OPEN, shim.EVENTS_FD, os.devnull, os.O_WRONLY, 0)
    if events is not None:
        said = (os.POSIX_SPAWN_DUP2, events, shim.EVENTS_FD)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", "-c", *words],
        {} if library is None else {"LD_LIBRARY_PATH": library},
        file_actions=[
            said,
            *more,
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, err, flags, 0o600),
        ],
        setsid=True,
        setsigmask=(),
    )
