"""Suspends every process of one attempt, and lets it go on. For its shim.

By the freezer of its control group, where it has one that can; elsewhere by SIGSTOP, until a look at all its processes
finds none that runs. Only the standard library, and little of it.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from services.agent.meter import Meter
from services.agent.proc import family, stat_of

ROUNDS_MAX = 100
"""Something may fork meanwhile."""
_STOPPED = (b"T", b"t", b"Z", b"X")


class Suspension:
    """Of one attempt. `active`: it is suspended."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.active = False
        self._stopped: list[int] = []

    def begin(self, child: int) -> None:
        """Suspends the session that `child` opened, and all descendants of this process."""
        self.active = True
        if self._meter.freeze(on=True):
            return
        for _ in range(ROUNDS_MAX):
            running = [pid for pid in family(child) if pid not in self._stopped and _runs(pid)]
            if not running:
                return
            for pid in running:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGSTOP)
                self._stopped.append(pid)

    def end(self, child: int) -> None:
        """Lets go on what was suspended, and nothing that was stopped before."""
        self.active = False
        self._meter.freeze(on=False)
        stopped, self._stopped = self._stopped, []
        for pid in family(child):
            if pid in stopped:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGCONT)


def _runs(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return stat_of(pid)[0] not in _STOPPED
    return False
