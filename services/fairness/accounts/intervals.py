"""Children of one queue, each with the interval of its parent's rate in which it need not be visited.

A rate is a guarantee per weight, as a fraction of two integers. Lower and upper ends are kept in two heaps, so that the
children whose interval a new rate leaves are found without visiting the others.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

_BITS: Final = 64


class QuietBand(NamedTuple):
    """How far sums may move before their queue has to be looked at: dominant shares, in billionths, of what it holds
    and asks for, and one task of each of its leaves that wait. Each from `least` to before `end` (None: without end).
    """

    held_least: int
    held_end: int
    asked_least: int
    asked_end: int | None
    slack_least: int
    slack_end: int | None


class Intervals:
    """Names with a span each. A rate `part / whole` lies within if no name has to be looked at."""

    __slots__ = ("_high", "_highs", "_low", "_lows")

    def __init__(self) -> None:
        self._low: dict[str, int] = {}
        self._high: dict[str, int] = {}
        self._lows: list[tuple[int, str]] = []  # Negative: the highest comes first.
        self._highs: list[tuple[int, str]] = []

    def update(self, spans: Sequence[tuple[str, int, int, int]], gone: Sequence[str] = ()) -> None:
        """Takes new spans, as `set` has them, and forgets the names that are `gone`."""
        for name in gone:
            self.drop(name)
        for name, weight, low, high in spans:
            self.set(name, weight, low, high)

    def set(self, name: str, weight: int, low: int, high: int) -> None:
        """`name` need not be looked at while `low <= rate * weight <= high`. Rounded so that it is rather once more."""
        low_key, high_key = -(-low << _BITS) // weight, (high + 1 << _BITS) // weight
        if self._low.get(name) != low_key:
            self._low[name] = low_key
            heappush(self._lows, (-low_key, name))
            if len(self._lows) > 2 * len(self._low) + 64:  # More that was left behind than names.
                self._lows = [(-key, name) for name, key in self._low.items()]
                heapify(self._lows)
        if self._high.get(name) != high_key:
            self._high[name] = high_key
            heappush(self._highs, (high_key, name))
            if len(self._highs) > 2 * len(self._high) + 64:
                self._highs = [(key, name) for name, key in self._high.items()]
                heapify(self._highs)

    def drop(self, name: str) -> None:
        """Forgets a name, if it is there."""
        self._low.pop(name, None)
        self._high.pop(name, None)

    def take_outside(self, part: int, whole: int) -> list[str]:
        """The names that have to be looked at when the rate is `part / whole`. They are forgotten."""
        found = []
        while self._find_lowest() is not None and part << _BITS < -self._lows[0][0] * whole:
            found.append(heappop(self._lows)[1])
            self.drop(found[-1])
        while self._find_highest() is not None and part << _BITS >= self._highs[0][0] * whole:
            found.append(heappop(self._highs)[1])
            self.drop(found[-1])
        return found

    def around(self, whole: int, most: int) -> tuple[int, int]:
        """The least and the greatest `part`, up to `most`, with which `part / whole` stays inside every interval."""
        low, high = self._find_lowest(), self._find_highest()
        least = 0 if low is None else -(-low * whole >> _BITS)
        return least, most if high is None else min(most, high * whole - 1 >> _BITS)

    def _find_lowest(self) -> int | None:
        """The highest of all lower ends."""
        heap = self._lows
        while heap and self._low.get(heap[0][1]) != -heap[0][0]:
            heappop(heap)
        return -heap[0][0] if heap else None

    def _find_highest(self) -> int | None:
        """The lowest of all upper ends."""
        heap = self._highs
        while heap and self._high.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None
