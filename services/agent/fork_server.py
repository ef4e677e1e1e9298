"""The process from which an agent's shims are forked: `main(DATA)`, started by forks.py with `-I -S`, one an agent.

An interpreter that has shim.py loaded costs a task a fork, not a start. A request is FOLDER, a zero byte, KEY; the
answer is the pid of the shim, which is a child of the agent, as if that had spawned it; or an error number, negative.
The process has no threads, keeps nothing open but sockets and the pipe of events, and ends when its agent is gone.

A shim whose attempt is over, and of which nothing is left, waits a while for another one: the server passes requests on
to those before it forks. As long as a shim is called `largesse-shim DATA` it has begun nothing, and from the moment on
in which it is called `largesse-shim FOLDER KEY` it guards that attempt. Shims do not end with the server, but take on
nothing more. Only the standard library, and little of it.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import select
import socket
import sys
from contextlib import suppress

from services.agent import container_guard, shim
from services.agent.proc import stat_of

# As in shim.py.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

SOCKET_FD = shim.EVENTS_FD + 1
REQUEST_BYTES_MAX = 8_192
"""Of a folder and a key, neither of which is longer than a path may be."""
SERVER, SHIM = b"largesse-forks", b"largesse-shim"
"""What such processes are called; a process may have 15 bytes."""
PRIVATE, OPEN = "private", "open"
READY = b"ready"
IDLE, TAKEN = b"i", b"t"
"""What a shim says to its server: that it waits for another attempt, and that it guards the one it was given."""
_PR_SET_DUMPABLE, _PR_SET_NAME = 4, 15
_ARG_START, _ARG_END = 45, 46
"""In /proc/PID/stat, counted from the state: between which addresses the command line is."""
_PID_BYTES = 4
_ERR = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Shims:
    """Those that this server has forked and that may take on further attempts, each at the other end of a socket."""

    def __init__(self) -> None:
        self._news = select.epoll()
        self._all: dict[int, tuple[socket.socket, int]] = {}
        self._idle: list[int] = []

    def add(self, end: socket.socket, pid: int) -> None:
        """One that has just been forked."""
        self._all[end.fileno()] = (end, pid)
        self._news.register(end, select.EPOLLIN)

    def give(self, request: bytes) -> int | None:
        """Has one that is idle take the request; its pid, or None where there is none. One that dies meanwhile has
        begun nothing.
        """
        for number, _ in self._news.poll(0):
            self._hear(number)
        while self._idle:
            number = self._idle.pop()
            end, pid = self._all[number]
            with suppress(OSError):
                end.send(request)
                if end.recv(1) == TAKEN:
                    return pid
            self._drop(number)
        return None

    def descriptors(self) -> list[int]:
        """What a shim that is forked does not need."""
        return [self._news.fileno(), *self._all]

    def _hear(self, number: int) -> None:
        word = b""
        with suppress(OSError):
            word = self._all[number][0].recv(1)
        if word == IDLE:
            self._idle.append(number)
        else:
            self._drop(number)

    def _drop(self, number: int) -> None:
        end, _ = self._all.pop(number)
        if number in self._idle:
            self._idle.remove(number)
        end.close()


class Title:
    """The command line of this process as others see it, written over in place: the argument room has been left for
    it. Raises OSError where that is not to be had.
    """

    def __init__(self) -> None:
        words = stat_of(os.getpid())
        self._start, end = int(words[_ARG_START]), int(words[_ARG_END])
        self._room = end - self._start
        self._prctl = ctypes.CDLL(None).prctl
        if self._start == 0 or self._room <= REQUEST_BYTES_MAX:
            raise OSError(errno.ENOTSUP, "a command line cannot be changed")

    def write(self, *words: bytes) -> None:
        """The first word is the process's name as well. At least the last byte stays zero: the kernel looks at it."""
        text = b"\0".join(words)
        assert len(text) < self._room, "longer than a request"
        ctypes.memset(self._start, 0, self._room)
        ctypes.memmove(self._start, text, len(text))
        self._prctl(_PR_SET_NAME, ctypes.c_char_p(words[0]), 0, 0, 0)

    def hide(self) -> None:
        """Only root may look into this process, and into those that are forked from it."""
        self._prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def main(data: str, access: str, idle_s: str) -> None:
    """Serves until the agent has gone. `access`: PRIVATE or OPEN, to others who look. `idle_s`: so long a shim waits
    for another attempt.
    """
    with os.scandir("/proc/self/fd") as entries:
        inherited = [int(entry.name) for entry in entries if int(entry.name) > SOCKET_FD]
    for number in inherited:
        try:
            os.close(number)
        except OSError:
            continue  # Of the listing itself.
    for number in (shim.EVENTS_FD, SOCKET_FD):
        os.set_inheritable(number, False)
    os.chdir("/")
    title = Title()
    title.write(SERVER, os.fsencode(data))
    if access == PRIVATE:
        title.hide()
    requests = socket.socket(fileno=SOCKET_FD)
    forked, forks = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    shims = Shims()
    shim.loaded()
    container_guard.register()
    gc.disable()
    gc.freeze()  # Pages that nobody writes to are shared with all shims.
    try:
        requests.send(READY)
        while request := requests.recv(REQUEST_BYTES_MAX):
            pid = shims.give(request)
            if pid is None:
                pid = _fork(request, Beginning(title, os.fsencode(data), float(idle_s), forked, forks), shims)
            requests.send(b"%d" % pid)
    except (BrokenPipeError, ConnectionResetError):
        return  # The agent has gone.


class Beginning:
    """What a shim is forked with. `forked`, `forks`: the pipe by which the server learns its pid."""

    def __init__(self, title: Title, data: bytes, idle_s: float, forked: int, forks: int) -> None:
        self.title, self.data, self.idle_s, self.forked, self.forks = title, data, idle_s, forked, forks


def _fork(request: bytes, beginning: Beginning, shims: Shims) -> int:
    """A shim for that request, which is a grandchild: once its parent has ended its parent is the agent, or, where that
    has gone, whoever takes in orphans. Returns its pid, or an error number, negative. Raises BlockingIOError.
    """
    try:
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        between = os.fork()
    except OSError as error:
        return -(error.errno or errno.EIO)
    if between == 0:
        _begin(request, beginning, its, [mine.fileno(), *shims.descriptors()])
    its.close()
    os.waitpid(between, 0)
    # If it was killed it has said nothing. Then this process ends, and the agent finds out what has begun.
    pid = int.from_bytes(os.read(beginning.forked, _PID_BYTES), "little", signed=True)
    if pid > 0:
        shims.add(mine, pid)
    return pid


def _begin(request: bytes, beginning: Beginning, its: socket.socket, unused: list[int]) -> NoReturn:
    """In the process between, and in the shim."""
    try:
        try:
            pid = os.fork()
        except OSError as error:
            pid = -(error.errno or errno.EIO)
        if pid == 0:
            _become_shim(request, beginning, its, unused)
        os.write(beginning.forks, pid.to_bytes(_PID_BYTES, "little", signed=True))
    finally:
        os._exit(0)


def _become_shim(request: bytes, beginning: Beginning, its: socket.socket, unused: list[int]) -> NoReturn:
    """As a process that was spawned for it: a name and session of its own, nothing else open but the socket on which
    it is given further attempts.
    """
    status, folder = 1, b""
    try:
        folder, key = request.split(b"\0")
        # In this order: what is in the session of the server has begun nothing, and all else can be found by its key.
        beginning.title.write(SHIM, folder, key)
        os.setsid()
        for number in (SOCKET_FD, beginning.forked, beginning.forks, *unused):
            os.close(number)
        its.settimeout(beginning.idle_s)
        gc.enable()
        while shim.guard(os.fsdecode(folder)) and (request := _next(its, beginning)):
            folder, _ = request.split(b"\0")
        status = 0
    except BaseException:
        _leave_word(folder)
    finally:
        os._exit(status)


def _next(its: socket.socket, beginning: Beginning) -> bytes:
    """Another attempt for this shim, whose name says so already; empty: there is none."""
    os.chdir("/")
    beginning.title.write(SHIM, beginning.data)
    try:
        its.send(IDLE)
        request = its.recv(REQUEST_BYTES_MAX)
    except OSError:
        return b""
    if request:
        beginning.title.write(SHIM, *request.split(b"\0"))
        with suppress(OSError):  # The server has died: its agent finds this shim by its name.
            its.send(TAKEN)
    return request


def _leave_word(folder: bytes) -> None:
    """What went wrong, in the attempt's folder."""
    with suppress(OSError):
        err = os.open(folder + b"/shim.err", _ERR, 0o600)
        os.dup2(err, 2)
        os.close(err)
    sys.__excepthook__(*sys.exc_info())
