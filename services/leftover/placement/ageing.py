"""Ageing: which jobs hold nothing and have waited longer than a given time. They are served first in their leaf, so
that no job waits for ever behind others of its queue that keep coming.
"""

from typing import Final

from services.leftover.placement.indexed_heap import IndexedHeap

_NEVER_MS: Final = 1 << 62


class AgeingJobs:
    """Jobs, by their number in the order of admission, with the time since which they have waited. Most jobs begin to
    wait after all others did: these are kept in a dictionary in order of time, which takes a third of the memory of a
    heap. The rest are in a heap.
    """

    def __init__(self) -> None:
        self._in_order: dict[int, int] = {}
        self._others: IndexedHeap[int] = IndexedHeap()
        self._latest_ms = -_NEVER_MS  # The latest time in that dictionary.
        self._gone = 0  # How many were removed from it since it was last rebuilt.
        self.first_ms = _NEVER_MS  # No job of either has waited since before this time.

    def set(self, admitted: int, since_ms: int) -> None:
        """The job holds nothing and has waited since this time."""
        if self._in_order.get(admitted) == since_ms:
            return
        self.drop(admitted)
        if since_ms >= self._latest_ms:
            self._in_order[admitted] = self._latest_ms = since_ms
        else:
            self._others.set(admitted, since_ms)
        if since_ms < self.first_ms:
            self.first_ms = since_ms

    def drop(self, admitted: int) -> None:
        """The job holds something, or waits for nothing any more."""
        if self._in_order.pop(admitted, None) is None:
            self._others.drop(admitted)
            return
        self._gone += 1
        if self._gone > len(self._in_order) + 64:  # Iterating from the front also passes the slots of removed entries.
            self._in_order = self._in_order.copy()
            self._gone = 0

    def take(self, since_ms: int) -> list[int]:
        """Removes and returns the jobs that have waited since this time or longer, the longest first."""
        if since_ms < self.first_ms:
            return []
        found: list[tuple[int, int]] = []
        first_ms: int | None = None
        for admitted, waits_ms in self._in_order.items():
            if waits_ms > since_ms:
                first_ms = waits_ms
                break
            found.append((waits_ms, admitted))
        for _, admitted in found:
            self.drop(admitted)
        others = self._others
        while (least_ms := others.least()) is not None and least_ms <= since_ms:
            found.append((least_ms, others.drop_top()))
        if first_ms is None or (least_ms is not None and least_ms < first_ms):
            first_ms = least_ms
        self.first_ms = _NEVER_MS if first_ms is None else first_ms
        return [admitted for _, admitted in sorted(found)]
