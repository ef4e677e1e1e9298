"""One process at a time appends to a directory. The kernel holds the lock, so a killed process leaves none behind."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from largesse.bus import BusError

LOCK_NAME = "lock"


class DirectoryHeld(BusError):
    """Another process has the directory; `pid` is its process id, None if it could not be read."""

    def __init__(self, directory: Path, pid: int | None) -> None:
        holder = f"process {pid}" if pid is not None else "another process"
        super().__init__(f"{directory} is held by {holder}: one process at a time may write there")
        self.pid = pid


class DirectoryLock:
    """Held from construction to `release`. Raises DirectoryHeld, OSError."""

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(self._file, 32, 0).strip()
            os.close(self._file)
            raise DirectoryHeld(directory, int(text) if text.isdigit() else None) from None
        # The pid is for people. On a full disk it may be missing; the lock holds all the same.
        with suppress(OSError):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Lets the next one in."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
