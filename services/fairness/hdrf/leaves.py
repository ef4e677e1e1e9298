"""What a live tree keeps of its leaves: the state of each, and per inner node groups of leaves that ask for the same
kinds. For dynamic.py; naive.py and exact.py use its units and keys.

A kind that becomes full, or free again, blocks or unblocks whole groups, without any cost per leaf. Everything is a
share or a level (share / weight) in units of `FINE`; sums of integers, so that taking away undoes exactly what adding
did.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from operator import add, sub
from typing import Any

FINE_BITS = 192
"""Bits of a share in a live tree. More than in a filling: weights are not measured against those of the siblings,
which come and go, so that levels may be small; and a level that is attributed passes through a division at every
inner node."""

_KEY_SHIFT = 96


def key_of(level: int) -> int:
    """What levels are compared by: a level without its last bits, which are rounding errors."""
    return level + (1 << _KEY_SHIFT - 1) >> _KEY_SHIFT


Entry = tuple[int, str, Any]
"""Key, name, child. Names are unique, so children themselves are never compared."""


@dataclass(slots=True, eq=False)
class LeafState:
    """A leaf. It holds `tasks`, in all `used` base units, and waits for `waiting` more of `demand` (None: endless)."""

    name: str
    parent: Any
    weight: int | Fraction
    demand: Sequence[int]
    waiting: int | None
    used: list[int]
    tasks: int = 0
    rank: int = 0
    pure: bool = True  # All it holds has the shape of its demand.
    mask: int = 0  # Kinds it asks for, a bit each. 0: it asks for nothing.
    shares: list[int] = field(default_factory=list)  # Of the cell, kind by kind.
    direction: list[int] = field(default_factory=list)  # Its shares if its level were 1.
    level: int = 0
    key: int = 0
    aside: int | None = None  # The kind of which too little was free for a task of it.

    @property
    def stray(self) -> bool:
        """It asks for less kinds than it holds: which share counts depends on what is full."""
        return self.mask != 0 and any(held and not self.mask >> j & 1 for j, held in enumerate(self.used))


@dataclass(slots=True, eq=False)
class Group:
    """The leaves of one inner node that ask for one set of kinds, without its strays."""

    shares: list[int]
    directions: list[int]
    ready: list[Entry] = field(default_factory=list)
    aside: list[Entry] = field(default_factory=list)

    def add(self, state: LeafState) -> None:
        insort(self.ready if state.aside is None else self.aside, (state.key, state.name, state))
        self.shares = plus(self.shares, state.shares)
        self.directions = plus(self.directions, state.direction)

    def take(self, state: LeafState) -> None:
        """Undo `add`, with the state as it was then."""
        remove(self.ready if state.aside is None else self.aside, state.key, state.name)
        self.shares = minus(self.shares, state.shares)
        self.directions = minus(self.directions, state.direction)

    def set_lack(self, state: LeafState, kind: int | None) -> None:
        """A task of it no longer fits, because too little of `kind` is free; None: it may fit again."""
        remove(self.ready if state.aside is None else self.aside, state.key, state.name)
        state.aside = kind
        insort(self.ready if kind is None else self.aside, (state.key, state.name, state))

    def least(self) -> Entry | None:
        """The leaf with the least level, whether a task of it fits or not."""
        if self.aside and (not self.ready or self.aside[0] < self.ready[0]):
            return self.aside[0]
        return self.ready[0] if self.ready else None


def remove(entries: list[Entry], key: int, name: str) -> None:
    """Take the entry of `name` out of a sorted list."""
    at = bisect_left(entries, (key, name))
    assert entries[at][1] == name, f"{name} is not where its key says"
    del entries[at]


def plus(left: Sequence[int], right: Sequence[int]) -> list[int]:
    return list(map(add, left, right))


def minus(left: Sequence[int], right: Sequence[int]) -> list[int]:
    return list(map(sub, left, right))


@dataclass(slots=True)
class DemandSizes:
    """The task sizes of all demanding leaves, ascending: by the set of kinds that a leaf asks for, then by kind."""

    sizes: dict[int, dict[int, list[int]]] = field(default_factory=dict)

    def add(self, mask: int, demand: Sequence[int]) -> None:
        by_kind = self.sizes.setdefault(mask, {j: [] for j in kinds_of(mask)})
        for j, sizes in by_kind.items():
            insort(sizes, demand[j])

    def take(self, mask: int, demand: Sequence[int]) -> None:
        by_kind = self.sizes[mask]
        for j, sizes in by_kind.items():
            del sizes[bisect_left(sizes, demand[j])]
        if not all(by_kind.values()):
            del self.sizes[mask]

    def full(self, free: Sequence[int]) -> int:
        """The kinds that are full: nothing is left, or too little for any leaf that no other kind blocks.

        With whole tasks the rest of a kind may be too small for any task; if it counted as free, its share would
        count in every comparison. Leaves that are blocked by other kinds do not count here.
        """
        full = sum([1 << j for j, units in enumerate(free) if units <= 0])
        while True:
            least: dict[int, int] = {}
            for mask, by_kind in self.sizes.items():
                if not mask & full:
                    for j, sizes in by_kind.items():
                        least[j] = min(least.get(j, sizes[0]), sizes[0])
            short = sum([1 << j for j, size in least.items() if size > free[j]])
            if not short:
                return full
            full |= short


def kinds_of(mask: int) -> Iterator[int]:
    """The places of the bits of a set."""
    return (j for j in range(mask.bit_length()) if mask >> j & 1)
