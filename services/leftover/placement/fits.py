"""Bitmap indexes: which nodes may have room for a task, and which classes of tasks may fit into what is free.

For each resource there is a bit set for each step of the amount: the nodes with at least so much free, or the classes
that need at most so much. An intersection of a few sets answers for all nodes or classes at once. Steps keep three
significant bits of an amount for nodes, which move from step to step all the time, and five for classes, which do not.
So what is found may turn out too small; nothing that fits is left out. `FreeAmounts` compares what all nodes have free.
"""

from typing import Final

import numpy as np
from mypy_extensions import i64

from services.leftover.placement.fragments import Fragments
from services.leftover.placement.node_choice import SCARCE_BITS, SUM_MAX, WHOLE, NodeChoice
from services.leftover.placement.task_class import NodeRoom, TaskClass

_BITS: Final = 3
_STEPS: Final = 1 << _BITS
_FINE_BITS: Final = 5
_FINE_STEPS: Final = 1 << _FINE_BITS
_SPARSE: Final = 12
"""Sets with at most this many members are read bit by bit, larger ones byte by byte."""

_IN_BYTE = [[bit for bit in range(8) if byte >> bit & 1] for byte in range(256)]


def step(amount: int) -> int:
    """The amount on a scale of eight steps for each doubling, rounded down; never less for a larger amount. 0: none."""
    if amount <= 0:
        return 0  # A node that shrank below what runs on it has less than nothing free.
    above = amount.bit_length() - _BITS - 1
    return amount if above <= 0 else above * _STEPS + (amount >> above)


def top_of_step(amount: int) -> int:
    """The largest amount of the same step."""
    above = amount.bit_length() - _BITS - 1
    return amount if amount <= 0 or above <= 0 else amount | (1 << above) - 1


def fine_step(amount: int) -> int:
    """The same on a scale of 32 steps for each doubling: each step of the other scale is some of these."""
    if amount <= 0:
        return 0
    above = amount.bit_length() - _FINE_BITS - 1
    return amount if above <= 0 else above * _FINE_STEPS + (amount >> above)


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
        self._amounts: list[list[int]] = []  # By class and resource position, what it needs.
        self._floors: list[dict[int, int]] = [{} for _ in range(width)]  # By step, the least that any class needs.

    def add(self, first: int, needs: list[list[tuple[int, int, int]]]) -> None:
        """The classes from number `first` on; `needs` by class, as (resource position, amount, anything)."""
        if not needs:
            return
        size = (first + len(needs) + 7) >> 3
        self.all = (1 << (first + len(needs))) - 1
        for need in needs:
            amounts = [0] * len(self.at_most)
            for position, amount, _ in need:
                amounts[position] = amount
                floors, at = self._floors[position], fine_step(amount)
                floors[at] = min(floors.get(at, amount), amount)
            self._amounts.append(amounts)
        for p, sets in enumerate(self.at_most):
            exact: dict[int, bytearray] = {}
            for number, need in enumerate(needs, first):
                at = 0
                for position, amount, _ in need:
                    if position == p:
                        at = fine_step(amount)
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
            sets, at = self.at_most[p], fine_step(amount)
            among &= sets[at] if at < len(sets) else sets[-1]
            if not among:
                return 0
        return among

    def least(self, among: int) -> dict[int, int]:
        """By resource position, the least that a class of a set asks for, which is not empty. Positions that are
        missing: nothing. Cost: the steps' logarithm for each resource, and the classes in the lowest step.
        """
        found: dict[int, int] = {}
        for p, sets in enumerate(self.at_most):
            if sets[0] & among:
                continue
            low, high = 1, len(sets) - 1  # The set of the last step has all classes.
            while low < high:
                middle = (low + high) >> 1
                if sets[middle] & among:
                    high = middle
                else:
                    low = middle + 1
            found[p] = self._least_in(p, self._floors[p][low], sets[low] & among)
        return found

    def _least_in(self, p: int, floor: int, among: int) -> int:
        """The least amount of some classes in one step; none is below the `floor`."""
        least = 1 << 62
        for _ in range(_SPARSE):
            first = among & -among
            least = min(least, self._amounts[first.bit_length() - 1][p])
            among ^= first
            if least == floor or not among:
                return least
        return min(least, min([self._amounts[number][p] for number in members(among)]))


def rank_of_room(needs: list[tuple[int, int, int]], free: list[int]) -> int | None:
    """The rank of a node with so much free, for a class whose ranks fit into 64 bits; None where it has no room."""
    rank: i64 = 0
    for p, amount, weight in needs:
        have: i64 = free[p]
        if have < amount:
            return None
        rank += weight * have
    return rank


class FreeAmounts:
    """What each node has free, by resource position, in one array; brought up to date by whoever uses it."""

    def __init__(self, frees: list[list[int]], width: int, open_: list[bool]) -> None:
        """`frees`: by node, what is free by resource position, as it changes. `width`: how many resources there are.
        `open_`: by node, whether tasks may start there.
        """
        self._frees = frees
        self._free = np.array(frees, np.int64).reshape(len(frees), width).T.copy()
        self._opens = np.array(open_, bool)
        self._fits = self._opens.copy()  # Whose memory is used again and again.
        self._rooms: list[list[int]] = []  # By node, what its devices have free, as it changes,
        self._devices = np.zeros((0, len(frees)), np.int64)  # and by position of the device.
        self._scarce: list[int] = []
        self._foreign: dict[int, np.ndarray] = {}
        self._turns = np.zeros(len(frees), np.int64)  # By node, how often it was set.

    def add_devices(self, rooms: list[list[int]], scarce: list[int]) -> None:
        """`rooms`: by node, what its devices have free, as it changes. `scarce`: by node, the scarce kinds that it has,
        as a bit set.
        """
        self._rooms, self._scarce = rooms, scarce
        self._devices = np.full((max([len(room) for room in rooms], default=0), len(rooms)), _NO_DEVICE, np.int64)
        for number, room in enumerate(rooms):
            self._devices[: len(room), number] = room

    def set(self, numbers: list[int]) -> None:
        """These nodes have something else free now."""
        frees = self._frees
        if self._rooms:
            self._turns[numbers] += 1
            for number in numbers:
                room = self._rooms[number]
                if room:
                    self._devices[: len(room), number] = room
        if len(numbers) > _SET_AT_ONCE:
            self._free[:, numbers] = np.array([frees[number] for number in numbers], np.int64).T
        else:
            for number in numbers:
                self._free[:, number] = frees[number]

    def least(self, needs: list[tuple[int, int, int]], barred: list[int]) -> int | None:
        """Of the open nodes with room for `needs`, as (resource position, amount, weight), that with the least sum of
        weight x free, the first of equals; None where none has room. Sums have to stay below 2^63. Nodes that are
        `barred` are left out.
        """
        free, fits = self._free, self._fitting(needs, barred)
        fitting = fits.nonzero()[0]  # In a full cell they are few: only these are ranked.
        if not len(fitting):
            return None
        rank = np.zeros(len(fitting), np.int64)
        for p, _, weight in needs:
            rank += free[p][fitting] * weight
        return int(fitting[rank.argmin()])

    def least_packed(
        self, task: TaskClass, choice: NodeChoice, barred: list[int], fragments: Fragments | None, nodes: list[NodeRoom]
    ) -> int | None:
        """The same for a class by its `choice` (node_choice.py), with a demand of whole GPUs, a part of one, or none;
        nodes that are `barred` are left out. What counts first narrows the choice first.
        """
        free, needs = self._free, task.needs
        fitting = self._fitting(needs, barred).nonzero()[0]
        left = None
        if choice.gpu and len(fitting):
            whole, part = divmod(choice.gpu, WHOLE)
            devices = self._devices[:, fitting]
            if part:
                left = np.where(devices >= part, devices - part, _FULL).min(axis=0)
                able = left < _FULL
                fitting, left = fitting[able], left[able]
            else:
                fitting = fitting[(devices >= WHOLE).sum(axis=0) >= whole]
        if not len(fitting):
            return None
        foreign = self._foreign_kinds(choice.kinds)[fitting]
        nearest = foreign == foreign.min()
        fitting = fitting[nearest]
        if left is not None:
            left = left[nearest]
        if fragments is not None and len(fitting) > 1:
            growth = fragments.of_all(task, nodes, fitting, self._turns)
            nearest = growth == growth.min()
            fitting = fitting[nearest]
            if left is not None:
                left = left[nearest]
        if left is not None:
            fitting = fitting[left == left.min()]
        scarce = np.zeros(len(fitting), np.int64)
        for p, most in choice.amounts:
            scarce += (np.maximum(free[p][fitting], 0) << SCARCE_BITS) // most
        scarce = np.minimum(scarce, SUM_MAX)
        fitting = fitting[scarce == scarce.min()]
        if choice.last >= 0:
            return int(fitting[np.maximum(free[choice.last][fitting], 0).argmin()])
        aligned = np.zeros(len(fitting), np.int64)
        for p, _, weight in needs:
            aligned += free[p][fitting] * weight
        return int(fitting[aligned.argmin()])

    def _fitting(self, needs: list[tuple[int, int, int]], barred: list[int]) -> np.ndarray:
        """By node, whether it is open, has room and is not barred; to be read before the next call."""
        fits = self._opens
        for p, amount, _ in needs:
            fits = np.logical_and(fits, self._free[p] >= amount, self._fits)
        if barred:
            fits = fits.copy()
            fits[barred] = False
        return fits

    def _foreign_kinds(self, kinds: int) -> np.ndarray:
        """By node, how many scarce kinds it has beside these."""
        foreign = self._foreign.get(kinds)
        if foreign is None:
            counts = [(scarce & ~kinds).bit_count() for scarce in self._scarce]
            foreign = self._foreign[kinds] = np.array(counts, np.int64)
        return foreign


_NO_DEVICE: Final = -(1 << 40)
_FULL: Final = 1 << 40

_SET_AT_ONCE: Final = 8
"""More nodes than this are set together."""
