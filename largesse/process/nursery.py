"""The process from which those of single cells are forked: `run_forked`.

Three kinds: the first process, which has everything imported and only forks; the keeper, which decides what is to run
(cells.py) and answers over HTTP; and one for each cell. So a cell that is slow, broken or flooded takes from others
what any process takes from others on its machine, and no more. They all end with the first, also where that is killed.
"""

import ctypes
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

from largesse.known_cells import Cell
from largesse.telemetry import stopwatch

MESSAGE_BYTES_MAX = 1_024
END_SECONDS = 9
"""Children that have not ended so long after they were asked to are killed."""
_PR_SET_PDEATHSIG = 1
_ENDED = "ended"

Keep = Callable[[socket.socket], int]
"""What the keeper does with its end of the socket; returns the exit code."""
Serve = Callable[[Cell, socket.socket], int]
"""What the process of a cell does; the socket leads to the keeper. Returns the exit code."""


def run_forked(keep: Keep, serve: Serve) -> int:
    """Forks the keeper and, as it says, cells. Returns the keeper's exit code once all have ended.

    The keeper's words: `{"start": KEY, "cell": NAME, "partition": N}`, `{"stop": KEY}`, `{"kill": KEY}`. It is told
    `{"started": KEY}`, with the other end of the cell's socket, and `{"ended": KEY, "code": N}`.
    """
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    wakes, wake = os.pipe()
    os.set_blocking(wakes, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)

    def in_child(work: Callable[[], int]) -> int:
        """Forks a child that does this and nothing else; its pid."""
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        if pid := os.fork():
            return pid
        code = 1
        try:
            _end_with(parent)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            near.close()
            os.close(wakes)
            os.close(wake)
            code = work()
        finally:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    keeper = in_child(lambda: keep(far))
    nursery = _Nursery(near, far, wakes, keeper, lambda work: in_child(work), serve)
    return nursery.run()


def _end_with(parent: int) -> None:
    """Has the kernel kill this process once its parent is gone."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


class _Nursery:
    """The first process."""

    def __init__(
        self,
        near: socket.socket,
        far: socket.socket,
        wakes: int,
        keeper: int,
        fork: Callable[[Callable[[], int]], int],
        serve: Serve,
    ) -> None:
        self._near, self._wakes, self._keeper = near, wakes, keeper
        self._fork, self._serve = fork, serve
        self._cells: dict[int, int] = {}  # By pid, the keeper's key.
        self._far = far

    def run(self) -> int:
        code: int | None = None
        # Until here a fork that fails leaves the keeper an end to read from.
        self._far.close()
        try:
            while code is None:
                ready, _, _ = select.select([self._near.fileno(), self._wakes], [], [])
                if self._wakes in ready:
                    self._wake()
                    code = self._reap()
                if code is None and self._near.fileno() in ready:
                    self._obey()
        finally:
            self._end_all()
        return code

    def _wake(self) -> None:
        numbers = os.read(self._wakes, MESSAGE_BYTES_MAX)
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            # The keeper ends its cells first.
            os.kill(self._keeper, signal.SIGTERM)

    def _obey(self) -> None:
        with suppress(OSError):
            message = self._near.recv(MESSAGE_BYTES_MAX)
            if not message:
                return
            said = json.loads(message)
            if "start" in said:
                self._begin(said["start"], Cell(said["cell"], said["partition"]))
                return
            number, key = (signal.SIGTERM, said["stop"]) if "stop" in said else (signal.SIGKILL, said["kill"])
            for pid, each in self._cells.items():
                if each == key:
                    os.kill(pid, number)

    def _begin(self, key: int, cell: Cell) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:

            def work() -> int:
                ours.close()
                return self._serve(cell, theirs)

            try:
                pid = self._fork(work)
            except OSError as error:
                self._tell({_ENDED: key, "code": error.errno or 1})
                return
            self._cells[pid] = key
            with suppress(OSError):
                socket.send_fds(self._near, [json.dumps({"started": key}).encode()], [ours.fileno()])

    def _tell(self, said: dict[str, object]) -> None:
        with suppress(OSError):
            self._near.send(json.dumps(said).encode())

    def _reap(self) -> int | None:
        """Tells the keeper who has ended; the keeper's own exit code where it was that."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return None
            if not pid:
                return None
            code = os.waitstatus_to_exitcode(status)
            if pid == self._keeper:
                return code if code >= 0 else 1
            key = self._cells.pop(pid, None)
            if key is not None:
                self._tell({_ENDED: key, "code": code})

    def _end_all(self) -> None:
        """The keeper has ended: whoever is left is ended too."""
        waited = stopwatch()
        for pid in self._cells:
            os.kill(pid, signal.SIGTERM)
        while self._cells:
            if waited() > END_SECONDS:
                for pid in self._cells:
                    os.kill(pid, signal.SIGKILL)
            select.select([self._wakes], [], [], 0.1)
            with suppress(BlockingIOError):
                os.read(self._wakes, MESSAGE_BYTES_MAX)
            self._reap()
