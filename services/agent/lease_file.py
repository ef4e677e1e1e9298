"""For how long the tasks of a node may run without further word: said by its agent (keeping.py), heeded by its shims.

DATA/hold has five numbers. Three are milliseconds: when the agent was last alive, by the monotonic clock; until when
the cell gives its work to nobody else, by the clock that also counts time asleep; the lease on which that rests. A shim
suspends its task a tenth of the lease before that moment, and goes on when it is put off. It ends the task, a fifth
before, if the agent has been silent for a third of the lease as well: it is dead, or paused.

The other two are the pid and the start of the process that is the whole cell, agents and all; zeros where the cell is
elsewhere. A cell that is only paused gives the work to nobody, so its tasks are suspended and go on with it.

Imported by every shim: only the standard library, and little of it.
"""

from __future__ import annotations

import os
import time

from services.agent.proc import start_ticks

HOLD = "hold"
KEPT = 10**14
"""As the moment: the cell has ended with its agent, in order, so nobody gives the work to anybody."""
RUN, SUSPEND, END = "run", "suspend", "end"
LOOK_MS = 1_000
"""A shim looks at least so often."""
SUSPEND_PARTS, END_PARTS, SILENT_PARTS, NEAR_PARTS = 10, 5, 3, 50
_WIDTH, _NUMBERS = 16, 5
ELSEWHERE = (0, 0)
"""As the process of the cell: another one, or several."""


def mono_ms() -> int:
    """The monotonic clock: it stands while the machine sleeps."""
    return time.monotonic_ns() // 1_000_000


def boot_ms() -> int:
    """Time since the machine was started, asleep or not."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def written(beat_ms: int, until_ms: int, lease_ms: int, cell: tuple[int, int] = ELSEWHERE) -> bytes:
    """The file's content. Twice the same: who reads while it is being written knows that by the difference."""
    text = b"".join(b"%0*d\n" % (_WIDTH - 1, number) for number in (beat_ms, until_ms, lease_ms, *cell))
    return text + text


def read(file: int) -> tuple[int, int, int, tuple[int, int]] | None:
    """What `written` was given; None where it cannot be read, or is being written."""
    try:
        text = os.pread(file, 2 * _NUMBERS * _WIDTH + 1, 0)
        half = len(text) // 2
        beat_ms, until_ms, lease_ms, pid, start = map(int, text[:half].split())
    except (OSError, ValueError):
        return None
    return (beat_ms, until_ms, lease_ms, (pid, start)) if text[:half] == text[half:] and lease_ms > 0 else None


def this_process() -> tuple[int, int]:
    """Names the process that asks, for good."""
    return os.getpid(), start_ticks(os.getpid()) or 0


class Hold:
    """What one shim knows of its agent. `file`: the descriptor of HOLD."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._beat_ms, self._until_ms, self._lease_ms, self._cell = 0, 0, 1, ELSEWHERE
        self._looked_ms = self._awake_ms = mono_ms()

    def close(self) -> None:
        """Looks no more."""
        os.close(self._file)

    def look(self) -> str:
        """RUN, SUSPEND or END."""
        if (found := read(self._file)) is not None:
            self._beat_ms, self._until_ms, self._lease_ms, self._cell = found
        now_ms, lease_ms = mono_ms(), self._lease_ms
        if now_ms - self._looked_ms > LOOK_MS + lease_ms // SILENT_PARTS:
            self._awake_ms = now_ms  # Paused with everything else: the agent gets the time to say that it is back.
        self._looked_ms = now_ms
        left_ms = self._until_ms - boot_ms()
        silent_ms = now_ms - max(self._beat_ms, self._awake_ms)
        if self._until_ms >= KEPT:
            return RUN
        if left_ms <= lease_ms // END_PARTS and silent_ms >= lease_ms // SILENT_PARTS:
            return SUSPEND if self._cell_is_paused() else END
        return SUSPEND if left_ms <= lease_ms // SUSPEND_PARTS else RUN

    def _cell_is_paused(self) -> bool:
        pid, start = self._cell
        return pid > 0 and start_ticks(pid) == start

    def wait_ms(self) -> int:
        """When to look again."""
        left_ms = self._until_ms - boot_ms() - self._lease_ms // END_PARTS
        near_ms = max(5, self._lease_ms // NEAR_PARTS)
        return min(LOOK_MS, max(near_ms, left_ms))

    def grace_ms(self) -> int:
        """How long a task whose agent is silent has to end by itself."""
        return max(0, self._until_ms - boot_ms() - self._lease_ms // SUSPEND_PARTS)
