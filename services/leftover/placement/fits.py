"""Bitmap indexes: which nodes may have room for a task, and which classes of tasks may fit into what is free.

For each resource there is a bit set for each step of the amount: the nodes with at least so much free, or the classes
that need at most so much. An intersection of a few sets answers for all nodes or classes at once. Steps keep three
significant bits of an amount, so what is found may turn out too small; nothing that fits is left out. `ClassNeeds` and
`FreeAmounts` then compare many exact amounts in arrays.
"""

import numpy as np
from numpy.typing import NDArray

_BITS = 3
_STEPS = 1 << _BITS
_SPARSE = 12
"""Sets with at most so many members are read bit by bit, larger ones byte by byte."""

_SPARSE_PART = 8
"""Where fewer than one class in so many may fit, the others are left out before amounts are compared."""

_IN_BYTE = [[bit for bit in range(8) if byte >> bit & 1] for byte in range(256)]


def step(amount: int) -> int:
    """The amount on a scale of eight steps for each doubling, rounded down; never less for a larger amount. 0: none."""
    if amount <= 0:
        return 0  # A node that shrank below what runs on it has less than nothing free.
    above = amount.bit_length() - _BITS - 1
    return amount if above <= 0 else above * _STEPS + (amount >> above)


def members(found: int) -> list[int]:
    """The numbers in a set, ascending."""
    if found.bit_count() <= _SPARSE:
        few: list[int] = []
        while found:
            least = found & -found
            few.append(least.bit_length() - 1)
            found ^= least
        return few
    many: list[int] = []
    for at, byte in enumerate(found.to_bytes((found.bit_length() + 7) >> 3, "little")):
        if byte:
            base = at << 3
            for bit in _IN_BYTE[byte]:
                many.append(base + bit)
    return many


def bit_set(few: list[int]) -> int:
    """The set of these numbers."""
    if len(few) <= _SPARSE:
        found = 0
        for number in few:
            found |= 1 << number
        return found
    marks = bytearray((max(few) >> 3) + 1)
    for number in few:
        marks[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(marks, "little")


class NodeIndex:
    """Bit sets of nodes: by resource position and step, the nodes with at least so much free. A node may be listed with
    more than it has, never with less: after taking room a caller may leave it as it is, after giving room it may not.
    """

    def __init__(self, frees: list[list[int]], width: int) -> None:
        """`frees`: by node, what is free by resource position. `width`: how many resources there are."""
        self.listed = [[step(amount) for amount in free] for free in frees]
        self.at_least: list[list[int]] = []
        for p in range(width):
            exact: dict[int, int] = {}
            for number, listed in enumerate(self.listed):
                exact[listed[p]] = exact.get(listed[p], 0) | 1 << number
            sets = [0] * (max(exact, default=0) + 1)
            above = 0
            for at in range(len(sets) - 1, -1, -1):
                above |= exact.get(at, 0)
                sets[at] = above
            self.at_least.append(sets)

    def move(self, nodes: list[tuple[int, list[int]]]) -> None:
        """Lists nodes with what they have free now, by resource position."""
        for number, free in nodes:
            listed, mark = self.listed[number], 1 << number
            for p, amount in enumerate(free):
                before, now = listed[p], step(amount)
                if now == before:
                    continue
                listed[p] = now
                sets = self.at_least[p]
                while len(sets) <= now:
                    sets.append(0)
                for at in range(before + 1, now + 1) if now > before else range(now + 1, before + 1):
                    sets[at] ^= mark

    def nodes(self, wants: list[tuple[int, int]], among: int) -> int:
        """The nodes in the set `among` that may have room; `wants` as (resource position, step of the amount)."""
        for p, at in wants:
            sets = self.at_least[p]
            if at >= len(sets):
                return 0
            among &= sets[at]
            if not among:
                return 0
        return among


class ClassIndex:
    """Bit sets of classes of tasks: by resource position and step, the classes that need at most so much."""

    def __init__(self, width: int) -> None:
        """`width`: how many resources there are."""
        self.at_most: list[list[int]] = [[0] for _ in range(width)]
        self.all = 0

    def add(self, first: int, wants: list[list[tuple[int, int]]]) -> None:
        """The classes from number `first` on; `wants` by class, as (resource position, step of the amount)."""
        if not wants:
            return
        size = (first + len(wants) + 7) >> 3
        self.all = (1 << (first + len(wants))) - 1
        for p, sets in enumerate(self.at_most):
            exact: dict[int, bytearray] = {}
            for number, want in enumerate(wants, first):
                at = 0
                for position, amount in want:
                    if position == p:
                        at = amount
                marks = exact.get(at)
                if marks is None:
                    marks = exact[at] = bytearray(size)
                marks[number >> 3] |= 1 << (number & 7)
            while len(sets) <= max(exact):
                sets.append(sets[-1])
            below = 0
            for at in range(len(sets)):
                if (found := exact.get(at)) is not None:
                    below |= int.from_bytes(found, "little")
                if below:
                    sets[at] |= below

    def classes(self, free: list[int], among: int) -> int:
        """Of a set of classes those of which one task may fit into this room: all that do are in it."""
        for p, amount in enumerate(free):
            sets, at = self.at_most[p], step(amount)
            among &= sets[at] if at < len(sets) else sets[-1]
            if not among:
                return 0
        return among


def array_of(found: int) -> NDArray[np.int64]:
    """The numbers in a set, ascending."""
    packed = np.frombuffer(found.to_bytes((found.bit_length() + 7) >> 3, "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(packed, bitorder="little"))


class ClassNeeds:
    """What one task of each class needs, by resource position. Amounts are below 2^53 (schemas.quantities)."""

    def __init__(self, width: int) -> None:
        """`width`: how many resources there are."""
        self._needs: NDArray[np.int64] = np.zeros((width, 0), np.int64)

    def add(self, first: int, needs: list[list[tuple[int, int, int]]]) -> None:
        """The classes from number `first` on; `needs` by class, as (resource position, amount, anything)."""
        width, room = self._needs.shape
        if first + len(needs) > room:
            wider = np.zeros((width, 2 * (first + len(needs))), np.int64)
            wider[:, :first] = self._needs[:, :first]
            self._needs = wider
        for number, need in enumerate(needs, first):
            for p, amount, _ in need:
                self._needs[p, number] = amount

    def fitting(self, among: int, free: list[int]) -> int:
        """The classes in the set `among`, which is not empty, of which one task fits into this room, by resource
        position."""
        # A node may have less than nothing free; who needs nothing of that fits all the same.
        rooms = [max(0, amount) for amount in free]
        size = among.bit_length()
        if among.bit_count() * _SPARSE_PART < size:
            found = array_of(among)
            fits = np.ones(len(found), bool)
            for p, amount in enumerate(rooms):
                fits &= self._needs[p, found] <= amount
            marks = np.zeros(size, np.uint8)
            marks[found[fits]] = 1
            return _marked(marks)
        fits = np.ones(size, bool)
        for p, amount in enumerate(rooms):
            fits &= self._needs[p, :size] <= amount
        return _marked(fits) & among


def _marked(marks: NDArray[np.uint8] | NDArray[np.bool_]) -> int:
    """The numbers that are marked."""
    return int.from_bytes(np.packbits(marks, bitorder="little").tobytes(), "little")


class FreeAmounts:
    """What each node has free, by resource position; brought up to date by whoever uses it."""

    def __init__(self, frees: list[list[int]], width: int, open_: list[bool]) -> None:
        """`frees`: by node, what is free by resource position. `width`: how many resources there are. `open_`: by node,
        whether tasks may start there.
        """
        self._free = np.array(frees, np.int64).reshape(len(frees), width).T.copy()
        self._open = np.array(open_, bool)

    def set(self, nodes: list[tuple[int, list[int]]]) -> None:
        """These nodes have so much free now."""
        for number, free in nodes:
            self._free[:, number] = free

    def least(self, needs: list[tuple[int, int, int]]) -> int | None:
        """Of the open nodes with room for `needs`, as (resource position, amount, weight), that with the least sum of
        weight x free, the first of equals; None where none has room. Sums have to stay below 2^63.
        """
        if not len(self._open):
            return None
        weights = [0] * len(self._free)
        for p, _, weight in needs:
            weights[p] = weight
        rank = np.dot(np.array(weights, np.int64), self._free)
        best = int(rank.argmin())  # In half of all cases it has enough of everything, and no other has to be compared.
        if self._open[best]:
            free: list[int] = self._free[:, best].tolist()
            for p, amount, _ in needs:
                if free[p] < amount:
                    break
            else:
                return best
        fits = self._open.copy()
        for p, amount, _ in needs:
            fits &= self._free[p] >= amount
        rank[~fits] = _RANK_MOST
        best = int(rank.argmin())
        return best if fits[best] else None


_RANK_MOST = (1 << 63) - 1
