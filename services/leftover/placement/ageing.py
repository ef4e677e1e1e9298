"""Jobs that wait and hold nothing, by waiting time: those that have waited too long are served first in their leaf."""

from services.leftover.placement.indexed_heap import IndexedHeap

_NEVER_MS = 1 << 62


class AgeingJobs:
    """Jobs by their number in the order of admission. Most begin to wait after all the others: those stand in a
    dictionary in this order, which takes a third of the memory of a heap.
    """

    def __init__(self) -> None:
        self._in_order: dict[int, int] = {}
        self._others: IndexedHeap[int] = IndexedHeap()
        self._latest_ms = -_NEVER_MS  # Since when the last of those in order waits.
        self._gone = 0  # So many of those have been taken out since the dictionary was last packed.
        self._first_ms = _NEVER_MS  # None of them has waited since before.

    def set(self, admitted: int, since_ms: int) -> None:
        """The job waits since then and holds nothing."""
        if self._in_order.get(admitted) == since_ms:
            return
        self.drop(admitted)
        if since_ms >= self._latest_ms:
            self._in_order[admitted] = self._latest_ms = since_ms
        else:
            self._others.set(admitted, since_ms)
        if since_ms < self._first_ms:
            self._first_ms = since_ms

    def drop(self, admitted: int) -> None:
        """The job holds something, or waits no longer."""
        if self._in_order.pop(admitted, None) is None:
            self._others.drop(admitted)
            return
        self._gone += 1
        if self._gone > len(self._in_order) + 64:  # A walk from the front passes by those that are gone.
            self._in_order = dict(list(self._in_order.items()))
            self._gone = 0

    def take(self, since_ms: int) -> list[int]:
        """Those that have waited since then, or longer; from now on they are none of these."""
        if since_ms < self._first_ms:
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
        self._first_ms = _NEVER_MS if first_ms is None else first_ms
        return [admitted for _, admitted in sorted(found)]
