"""The naive walk over what is free: always one task to the child with the least dominant share / weight, all kinds
counted, from what every leaf holds. It is `dynamic.py` for trees all of whose nodes have the order `naive`.

While tasks are only given, shares only grow and what does not fit will never fit again. So a heap per inner node is
enough, and neither views nor what is full have to be known.
"""

from collections.abc import Sequence
from fractions import Fraction
from heapq import heapify, heappop, heapreplace
from typing import Any

from services.fairness.hdrf.leaves import FINE_BITS, key_of
from services.fairness.tree import TreeNode, walk


def is_naive(root: TreeNode) -> bool:
    """Whether the walk is this one everywhere."""
    return all(node.order == "naive" for node in walk(root) if node.children)


class NaiveNode:
    """One node: a leaf with the `need` of a task and those it waits for, or an inner node with a heap of children that
    may still take: key, name, child."""

    __slots__ = ("heap", "name", "need", "shares", "tasks", "used", "waiting", "weight")

    def __init__(self, name: str, weight: int | Fraction, width: int) -> None:
        self.name = name
        self.weight = weight
        self.need: Sequence[int] = ()
        self.waiting: int | None = 0
        self.tasks = 0  # Given.
        self.used: list[int] = [0] * width
        self.shares: list[int] = [0] * width
        self.heap: list[tuple[int, str, Any]] = []

    @property
    def key(self) -> int:
        """What it is compared by."""
        return key_of(max(self.shares) * self.weight.denominator // self.weight.numerator)


class NaiveWalk:
    """A tree to which tasks are given. Quantities in base units, in the order of `capacity`."""

    def __init__(self, root: TreeNode, capacity: Sequence[int]) -> None:
        self.units = [(1 << FINE_BITS) // have if have > 0 else 0 for have in capacity]
        self.free = list(capacity)
        self.leaves: list[NaiveNode] = []
        self.root = self._add_node(root)

    def give(self, steps: int) -> bool:
        """Gives a number of tasks. False if no leaf can take any more."""
        return all(self._give(self.root) is not None for _ in range(steps))

    def _add_node(self, node: TreeNode) -> NaiveNode:
        entry = NaiveNode(node.name, node.weight, len(self.free))
        if node.children:
            below = [self._add_node(child) for child in node.children]
            for child in below:
                entry.shares = [has + more for has, more in zip(entry.shares, child.shares, strict=True)]
            entry.heap = [(child.key, child.name, child) for child in below if child.heap or child.waiting != 0]
            heapify(entry.heap)
            return entry
        entry.need, entry.waiting = node.demand, node.tasks if any(node.demand) else 0
        entry.used = list(node.held) or entry.used
        entry.shares = [held * unit for held, unit in zip(entry.used, self.units, strict=True)]
        self.free = [left - held for left, held in zip(self.free, entry.used, strict=True)]
        self.leaves.append(entry)
        return entry

    def _give(self, entry: NaiveNode) -> list[int] | None:
        """One task to the least below. Returns what its shares grew by; None if no leaf can take one."""
        if not entry.heap:
            return self._take(entry)
        while entry.heap:
            child = entry.heap[0][2]
            more = self._give(child)
            if more is None:
                heappop(entry.heap)
                continue
            entry.shares = [has + new for has, new in zip(entry.shares, more, strict=True)]
            heapreplace(entry.heap, (child.key, child.name, child))
            return more
        return None

    def _take(self, leaf: NaiveNode) -> list[int] | None:
        if leaf.waiting == 0 or any(need > left for need, left in zip(leaf.need, self.free, strict=False)):
            return None
        self.free = [left - need for left, need in zip(self.free, leaf.need, strict=True)]
        leaf.used = [held + need for held, need in zip(leaf.used, leaf.need, strict=True)]
        more = [need * unit for need, unit in zip(leaf.need, self.units, strict=True)]
        leaf.shares = [has + new for has, new in zip(leaf.shares, more, strict=True)]
        leaf.tasks += 1
        if leaf.waiting is not None:
            leaf.waiting -= 1
        return more
