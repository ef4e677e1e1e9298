"""What is promised of every resource, step by step, as run-length profiles: one entry for each change, none for a step.

The cost of every operation follows the changes inside its span. A profile is always in its shortest form, so equal
content is equal data: what was added and subtracted again leaves no trace.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]

AMOUNT_MAX = 10**16
"""The largest capacity or amount: products with levels and lengths stay inside 64 bits."""


class Profile:
    """Amounts by resource over steps 0, 1, ...: constant from one change to the next, the last for ever."""

    __slots__ = ("_amounts", "_starts")

    def __init__(self, resources: int) -> None:
        self._starts = [0]
        self._amounts = [[0] for _ in range(resources)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Profile) and (self._starts, self._amounts) == (other._starts, other._amounts)

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, begin: int, end: int, amounts: Sequence[int], times: int = 1) -> None:
        """Adds `times` the amounts in steps `[begin, end)`; a negative `times` subtracts."""
        if begin >= end or not times or not any(amounts):
            return
        first, last = self._cut(begin), self._cut(end)
        for row, amount in zip(self._amounts, amounts, strict=True):
            if change := amount * times:
                for i in range(first, last):
                    row[i] += change
        self._join(last)
        self._join(first)

    def at(self, step: int) -> list[int]:
        """The amounts at a step."""
        i = bisect_right(self._starts, step) - 1
        return [row[i] for row in self._amounts]

    def span(self, begin: int, end: int) -> tuple[Whole, Whole]:
        """Edges of the runs inside `[begin, end)`, begin and end included (runs + 1), and amounts (resources, runs)."""
        first = bisect_right(self._starts, begin) - 1
        last = bisect_left(self._starts, end)
        edges = np.empty(last - first + 1, np.int64)
        edges[0], edges[-1] = begin, end
        edges[1:-1] = self._starts[first + 1 : last]
        return edges, np.array([row[first:last] for row in self._amounts], np.int64)

    def runs(self, begin: int, end: int) -> Iterator[tuple[int, int, list[int]]]:
        """The runs inside `[begin, end)`: first step, last step + 1, amounts."""
        first = bisect_right(self._starts, begin) - 1
        last = bisect_left(self._starts, end)
        for i in range(first, last):
            stop = self._starts[i + 1] if i + 1 < len(self._starts) else end
            yield max(begin, self._starts[i]), min(end, stop), [row[i] for row in self._amounts]

    def changes(self, begin: int, end: int, most: int) -> list[int]:
        """The first steps after `begin`, before `end`, at which something changes: at most `most`."""
        first = bisect_right(self._starts, begin)
        return self._starts[first : min(bisect_left(self._starts, end), first + most)]

    def most(self, begin: int, end: int) -> list[int]:
        """The largest amount of every resource in `[begin, end)`, which is not empty."""
        first = bisect_right(self._starts, begin) - 1
        last = bisect_left(self._starts, end)
        return [max(row[first:last]) for row in self._amounts]

    def _cut(self, step: int) -> int:
        """The index of the run that begins at a step; one is begun there if need be."""
        i = bisect_left(self._starts, step)
        if i == len(self._starts) or self._starts[i] != step:
            self._starts.insert(i, step)
            for row in self._amounts:
                row.insert(i, row[i - 1])
        return i

    def _join(self, i: int) -> None:
        """One run of two that are alike."""
        if 0 < i < len(self._starts) and all(row[i] == row[i - 1] for row in self._amounts):
            del self._starts[i]
            for row in self._amounts:
                del row[i]
