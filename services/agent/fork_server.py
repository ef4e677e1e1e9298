"""The process from which an agent's shims are forked: `main(DATA)`, started by forks.py with `-I -S`, one an agent.

An interpreter that has shim.py loaded costs a task a fork, not a start. A request is FOLDER, a zero byte, KEY; the
answer is the pid of the shim, which is a child of the agent, as if that had spawned it; or an error number, negative.
The process has no threads, keeps nothing open but its socket and the pipe of events, and ends when its agent is gone.
Shims do not end with it. Only the standard library, and little of it.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import socket
import sys

from services.agent import shim
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
_PR_SET_DUMPABLE, _PR_SET_NAME = 4, 15
_ARG_START, _ARG_END = 45, 46
"""In /proc/PID/stat, counted from the state: between which addresses the command line is."""
_PID_BYTES = 4
_ERR = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


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


def main(data: str, access: str) -> None:
    """Serves until the agent has gone. `access`: PRIVATE or OPEN, to others who look."""
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
    shim.loaded()
    gc.disable()
    gc.freeze()  # Pages that nobody writes to are shared with all shims.
    try:
        requests.send(READY)
        while request := requests.recv(REQUEST_BYTES_MAX):
            requests.send(b"%d" % _fork(request, title, forked, forks))
    except (BrokenPipeError, ConnectionResetError):
        return  # The agent has gone.


def _fork(request: bytes, title: Title, forked: int, forks: int) -> int:
    """A shim for that request, which is a grandchild: once its parent has ended its parent is the agent, or, where that
    has gone, whoever takes in orphans. Returns its pid, or an error number, negative. Raises BlockingIOError.
    """
    try:
        between = os.fork()
    except OSError as error:
        return -(error.errno or errno.EIO)
    if between == 0:
        _begin(request, title, (SOCKET_FD, forked), forks)
    os.waitpid(between, 0)
    # If it was killed it has said nothing. Then this process ends, and the agent finds out what has begun.
    return int.from_bytes(os.read(forked, _PID_BYTES), "little", signed=True)


def _begin(request: bytes, title: Title, unused: tuple[int, ...], forks: int) -> NoReturn:
    """In the process between, and in the shim."""
    try:
        try:
            pid = os.fork()
        except OSError as error:
            pid = -(error.errno or errno.EIO)
        if pid == 0:
            _become_shim(request, title, (*unused, forks))
        os.write(forks, pid.to_bytes(_PID_BYTES, "little", signed=True))
    finally:
        os._exit(0)


def _become_shim(request: bytes, title: Title, unused: tuple[int, ...]) -> NoReturn:
    """As a process that was spawned for it: a name, session and error file of its own, nothing else open."""
    status = 1
    try:
        folder, key = request.split(b"\0")
        # In this order: what is in the session of the server has begun nothing, and all else can be found by its key.
        title.write(SHIM, folder, key)
        os.setsid()
        for number in unused:
            os.close(number)
        err = os.open(folder + b"/shim.err", _ERR, 0o600)
        os.dup2(err, 2)
        os.close(err)
        gc.enable()
        shim.guard(os.fsdecode(folder))
        status = 0
    except BaseException:
        sys.__excepthook__(*sys.exc_info())
    finally:
        os._exit(status)
