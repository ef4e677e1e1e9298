"""What one attempt prints, as its shim keeps it: head and tail of a stream, and when what was printed.

    stdout, stderr            the first half of what is kept
    stdout.OFFSET             the last of what came after it, in segments named by the offset at which they start
    stdout+times              lines `MS OFFSET`: from this byte on it was printed at MS (Unix milliseconds) or later

Imported by every shim: only the standard library, and little of it.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

CHUNK_BYTES = 65_536
TIMES = "+times"
"""Behind a stream's name: its index of times."""
SPACE_MS = 1_000
"""Times are noted so far apart, at first."""
SPACE_PARTS = 3_600
"""Later so far apart: this part of the time since the first. A week of output so has 22,000 times, half a MiB."""


def space_ms(first_ms: int, at_ms: int) -> int:
    """How long after `at_ms` the next time is noted at the earliest, where the first was noted at `first_ms`."""
    return max(SPACE_MS, (at_ms - first_ms) // SPACE_PARTS)


class Output:
    """One stream, in segments named by the offset at which they start: the head, and the last of what came after it."""

    def __init__(self, pipe: int, stream: str, bytes_max: int) -> None:
        self.pipe, self.open = pipe, True
        self._stream, self._head, self._segment = stream, bytes_max // 2, bytes_max // 4
        self._at = 0
        self._tails: list[str] = []
        self._room = self._head
        self._file: int | None = None  # Of what prints nothing there is no file.
        self._times = -1
        self._first_ms = self._next_ms = 0

    def pump(self) -> None:
        """Takes what the pipe has; closes at its end."""
        try:
            chunk = os.read(self.pipe, CHUNK_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self.close()
            return
        file = self._file
        if file is None:
            self._file = file = _open_output(self._stream)
        self._note(time.time_ns() // 1_000_000)
        while chunk:
            if self._room == 0:
                file = self._turn()
            part, chunk = chunk[: self._room], chunk[self._room :]
            # A full disk, or a file that could not be made, costs output, not the attempt.
            with suppress(OSError):
                os.write(file, part)
            self._at += len(part)
            self._room -= len(part)

    def _note(self, now_ms: int) -> None:
        """Notes the time of what comes next, if the last one was noted long enough ago. A clock that is set back notes
        nothing until it has caught up."""
        if now_ms < self._next_ms:
            return
        if self._times < 0:
            self._times, self._first_ms = _open_output(self._stream + TIMES), now_ms
        self._next_ms = now_ms + space_ms(self._first_ms, now_ms)
        with suppress(OSError):
            os.write(self._times, b"%d %d\n" % (now_ms, self._at))

    def _turn(self) -> int:
        self._close_file()
        name = f"{self._stream}.{self._at}"
        self._file = file = _open_output(name)
        self._tails.append(name)
        self._room = self._segment
        if len(self._tails) > 2:
            with suppress(OSError):
                os.unlink(self._tails.pop(0))
        return file

    def close(self) -> None:
        """No more is taken."""
        if self.open:
            os.close(self.pipe)
            self._close_file()
            if self._times >= 0:
                os.close(self._times)
            self.open = False

    def _close_file(self) -> None:
        if self._file is not None and self._file >= 0:
            os.close(self._file)


def _open_output(name: str) -> int:
    """A file for output; -1 where none can be made."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(name, flags, 0o600)
    except OSError:
        return -1
