"""The agent's side of lease_file.py: says that it lives, and until when the cell gives its work to nobody else.

That it lives is said by a thread of the process, for all its agents: a loop that is busy for long is no death. Until
when is said by the agent itself, which knows what the bus has taken and what the log shows.
"""

import os
import threading
from contextlib import suppress
from pathlib import Path

from services.agent.lease_file import ELSEWHERE, HOLD, KEPT, boot_ms, mono_ms, read, this_process, written

BEAT_MS, BEAT_MS_MIN, BEAT_PARTS = 500, 5, 20
"""The agent says that it lives this often, or this part of the lease, where that is shorter."""
AHEAD_MS_MAX = 24 * 3_600 * 1_000
"""No lease is longer: a moment further ahead is of an earlier boot."""


class Holding:
    """One data folder's. `until_ms`: what was said last."""

    def __init__(self, data: Path, lease_ms: int, *, alone: bool = False, heart: "Heart | None" = None) -> None:
        """`alone`: this process is the whole cell. `heart`: None: the process's. Raises OSError."""
        self._heart = heart or _HEART
        self._cell = this_process() if alone else ELSEWHERE
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(data / HOLD, flags, 0o600)
        found = read(self._file)
        now_ms = boot_ms()
        self.until_ms, self.lease_ms = now_ms, lease_ms
        if found is not None and found[1] >= KEPT:
            self.until_ms = now_ms + lease_ms  # Nobody was there to give it away.
        elif found is not None and found[1] <= now_ms + AHEAD_MS_MAX:
            self.until_ms, self.lease_ms = found[1:3]
        os.pwrite(self._file, self._text(), 0)
        self._heart.add(self)

    def put_off(self, until_ms: int, lease_ms: int) -> None:
        """The cell gives the work to nobody else until then."""
        with self._heart.lock:
            self.until_ms, self.lease_ms = until_ms, lease_ms
            self.write()

    def keep(self) -> None:
        """The cell ends with this agent: tasks wait for the next start of both."""
        self.put_off(KEPT, self.lease_ms)

    def close(self) -> None:
        """Says nothing more."""
        self._heart.drop(self)
        os.close(self._file)

    def write(self) -> None:
        """Says it again, with the time. The caller holds the heart's lock."""
        # A disk that takes nothing at the moment is told in other ways; shims go by what they have.
        with suppress(OSError):
            os.pwrite(self._file, self._text(), 0)

    def _text(self) -> bytes:
        return written(mono_ms(), self.until_ms, self.lease_ms, self._cell)


class Heart:
    """The thread of a process. `lock`: held by whoever writes."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._holdings: list[Holding] = []
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, holding: Holding) -> None:
        """One more agent that lives."""
        with self.lock:
            self._holdings.append(holding)
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="agents-live", daemon=True)
                self._thread.start()

    def drop(self, holding: Holding) -> None:
        """It is not said any more."""
        with self.lock:
            self._holdings.remove(holding)
        self._changed.set()

    def _beat(self) -> None:
        while True:
            self._changed.clear()
            with self.lock:
                if not self._holdings:
                    self._thread = None
                    return
                for holding in self._holdings:
                    holding.write()
                pause_ms = min(min(BEAT_MS, holding.lease_ms // BEAT_PARTS) for holding in self._holdings)
            self._changed.wait(max(BEAT_MS_MIN, pause_ms) / 1_000)


_HEART = Heart()
