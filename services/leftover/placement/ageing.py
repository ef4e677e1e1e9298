"""Jobs that wait and hold nothing, by since when: those that have waited too long are served first in their leaf."""

from services.leftover.placement.indexed_heap import IndexedHeap

_NEVER_MS = 1 << 62


class Hungry:
    """Jobs by their number in the order of admission."""

    def __init__(self) -> None:
        self._jobs: IndexedHeap[int] = IndexedHeap()
        self._first_ms = _NEVER_MS  # None of them has waited since before.

    def set(self, order: int, since_ms: int) -> None:
        """The job waits since then and holds nothing."""
        self._jobs.set(order, since_ms)
        if since_ms < self._first_ms:
            self._first_ms = since_ms

    def drop(self, order: int) -> None:
        """The job holds something, or waits no longer."""
        self._jobs.drop(order)

    def take(self, since_ms: int) -> list[int]:
        """Those that have waited since then, or longer; from now on they are none of these."""
        found: list[int] = []
        if since_ms < self._first_ms:
            return found
        while (first_ms := self._jobs.least()) is not None and first_ms <= since_ms:
            found.append(self._jobs.drop_top())
        self._first_ms = _NEVER_MS if first_ms is None else first_ms
        return found
