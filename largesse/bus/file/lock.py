"""One process at a time appends to a directory. The kernel holds the lock, so a killed process leaves none behind.

Not at once, though: a child that it was just about to start shares its lock until it has become another program.
"""

import fcntl
import os
import threading
from contextlib import suppress
from pathlib import Path

from largesse.bus.port import BusError

LOCK_NAME = "lock"

ORPHAN_WAIT_S = 2.0
"""So long a lock may outlive the process that took it."""
_LOOK_S = 0.02


class DirectoryHeld(BusError):
    """Another process has the directory; `pid` is its process id, None if it could not be read."""

    def __init__(self, directory: Path, pid: int | None) -> None:
        holder = f"process {pid}" if pid is not None else "another process"
        super().__init__(f"{directory} is held by {holder}: one process at a time may write there")
        self.pid = pid


class DirectoryLock:
    """Held from construction to `release`. Raises DirectoryHeld, OSError."""

    def __init__(self, directory: Path, name: str = LOCK_NAME) -> None:
        self._file = os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        looks = round(ORPHAN_WAIT_S / _LOOK_S)
        while not self._take():
            holder, looks = self._holder(), looks - 1
            if holder is None or _is_alive(holder) or not looks:
                os.close(self._file)
                raise DirectoryHeld(directory, holder)
            threading.Event().wait(_LOOK_S)
        # The pid is for people. On a full disk it may be missing; the lock holds all the same.
        with suppress(OSError):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, b"%d\n" % os.getpid(), 0)

    def _take(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _holder(self) -> int | None:
        text = os.pread(self._file, 32, 0).strip()
        return int(text) if text.isdigit() else None

    def release(self) -> None:
        """Lets the next one in."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # Another process's.
    return True
