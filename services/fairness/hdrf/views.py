"""A live tree for a given set of full kinds: which nodes are blocked, and what is attributed to every inner node. For
dynamic.py alone.

Dynamic H-DRF (section 3.4 of the paper) attributes to an inner node not what its children hold but what they would if
all that can take were rescaled to the least of them, M: `vector = sum of the blocked, unscaled + M x sum of the
others' directions`. Both sums are kept, so that a change costs its path to the root. Which kinds are full determines
which nodes are blocked and which kinds count. As that changes back and forth, the view of each such set is kept, and
brought up to date when the set recurs.
"""

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import merge
from itertools import islice

from services.fairness.hdrf.leaves import FINE_BITS, Entry, Group, LeafState, key_of, minus, plus, remove
from services.fairness.tree import RANK_ORDERS


@dataclass(slots=True, eq=False)
class Branch:
    """An inner node."""

    name: str
    weight: int | Fraction
    order: str
    rank: int
    parent: "Branch | None"
    idle: list[int]  # What its leaves hold that ask for nothing.
    groups: dict[int, Group] = field(default_factory=dict)
    inner: dict[str, "Branch"] = field(default_factory=dict)
    strays: dict[str, LeafState] = field(default_factory=dict)
    tasks: int = 0  # Held below it.


@dataclass(slots=True)
class Attributed:
    """A child in one view: the `vector` attributed to it, and `direction`, which that would be at a level of 1."""

    vector: list[int]
    direction: list[int]
    level: int
    key: int
    blocked: bool


@dataclass(slots=True, eq=False)
class Below:
    """The inner children (and strays) of one inner node in one view."""

    fixed: list[int]  # Vectors of those that are not rescaled.
    directions: list[int]  # Of those that are.
    order: list[Entry] = field(default_factory=list)  # Children that can take.
    children: dict[str, Attributed] = field(default_factory=dict)


class View:
    """The tree while the kinds in `full` are used up. `rescales`: as dynamic H-DRF does; otherwise what is held
    counts."""

    def __init__(self, kinds: Sequence[int], width: int, full: int, rescales: bool, fair: bool) -> None:
        self.kinds = kinds
        self.width = width
        self.full = full
        self.rescales = rescales
        self.fair = fair  # Some node compares tasks, and they change even where nothing attributed does.
        self.open = [j for j in kinds if not full >> j & 1]
        self.below: dict[str, Below] = {}
        self.dirty: dict[str, Branch] = {}  # Nodes whose leaves changed while another view was in use.

    def build(self, branch: Branch) -> Attributed:
        """Computes a whole subtree. Returns what is attributed to it."""
        nothing = [0] * self.width
        below = self.below[branch.name] = Below(nothing, nothing)
        for child in branch.inner.values():
            self._put(branch, below, child, self.build(child))
        for stray in branch.strays.values():
            self._put(branch, below, stray, self._attribute_stray(branch, stray))
        return self._attribute(branch)

    def refresh(self, branch: Branch) -> None:
        """Recomputes what is attributed to a node whose leaves changed, and to its ancestors as far as that changes
        them."""
        below = self.below[branch.name]
        for name in [name for name in below.children if name not in branch.inner]:
            self._drop(branch, below, name)
        for stray in branch.strays.values():
            self._put(branch, below, stray, self._attribute_stray(branch, stray))
        while branch.parent is not None:
            attributed = self._attribute(branch)
            branch, child = branch.parent, branch
            below = self.below[branch.name]
            if below.children[child.name] == attributed and not self.fair:
                return
            self._drop(branch, below, child.name)
            self._put(branch, below, child, attributed)

    def catch_up(self, nodes: int | None = None) -> None:
        """Applies what changed while another view was in use: all of it, or for at most `nodes` nodes."""
        for name in list(islice(self.dirty, nodes)):
            self.refresh(self.dirty.pop(name))

    def candidates(self, branch: Branch) -> Iterator[Entry]:
        """The children that are not blocked, the least first. Leaves without a task that fits are left out."""
        lists = [group.ready for mask, group in branch.groups.items() if not mask & self.full and group.ready]
        if self.below[branch.name].order:
            lists.append(self.below[branch.name].order)
        return iter(lists[0]) if len(lists) == 1 else merge(*lists)

    def attributed(self, branch: Branch) -> Attributed:
        """What is attributed to an inner node now."""
        return self.below[branch.parent.name].children[branch.name] if branch.parent else self._attribute(branch)

    def _attribute(self, branch: Branch) -> Attributed:
        below = self.below[branch.name]
        vector = plus(below.fixed, branch.idle)
        directions = below.directions
        rescales = self.rescales and branch.order == "hdrf"
        least: Entry | None = below.order[0] if below.order else None
        for mask, group in branch.groups.items():
            blocked = mask & self.full
            if blocked or not rescales:
                vector = plus(vector, group.shares)
            else:
                directions = plus(directions, group.directions)
            if not blocked:
                entry = group.least()
                if least is None or (entry is not None and entry < least):
                    least = entry
        if rescales and least is not None:
            inner = below.children.get(least[1])
            level = inner.level if inner else least[2].level
            vector = [fixed + (level * moving >> FINE_BITS) for fixed, moving in zip(vector, directions, strict=True)]
        return self._measure(branch, vector, branch.tasks, least is None)

    def _attribute_stray(self, branch: Branch, stray: LeafState) -> Attributed:
        return self._measure_in(branch, stray, stray.shares, stray.tasks, bool(stray.mask & self.full))

    def _measure(self, branch: Branch, vector: list[int], tasks: int, blocked: bool) -> Attributed:
        if branch.parent is None:
            return Attributed(vector, [], 0, 0, blocked)
        return self._measure_in(branch.parent, branch, vector, tasks, blocked)

    def _measure_in(
        self, parent: Branch, child: Branch | LeafState, vector: list[int], tasks: int, blocked: bool
    ) -> Attributed:
        """A child as its parent compares it."""
        compared = self.open if parent.order == "hdrf" else self.kinds
        share = max([vector[j] for j in compared], default=0)
        up, down = child.weight.numerator, child.weight.denominator
        if parent.order in RANK_ORDERS:
            return Attributed(vector, [], 0, child.rank, blocked)
        if parent.order != "hdrf" or not self.rescales or blocked or not share:
            level = ((tasks << FINE_BITS) if parent.order == "fair" else share) * down // up
            return Attributed(vector, [0] * self.width, level, key_of(level), blocked)
        level = share * down // up
        direction = [(each * up << FINE_BITS) // (share * down) for each in vector]
        return Attributed(vector, direction, level, key_of(level), blocked)

    def _put(self, branch: Branch, below: Below, child: Branch | LeafState, attributed: Attributed) -> None:
        below.children[child.name] = attributed
        if attributed.blocked or not (self.rescales and branch.order == "hdrf"):
            below.fixed = plus(below.fixed, attributed.vector)
        else:
            below.directions = plus(below.directions, attributed.direction)
        if not attributed.blocked:
            insort(below.order, (attributed.key, child.name, child))

    def _drop(self, branch: Branch, below: Below, name: str) -> None:
        attributed = below.children.pop(name)
        if attributed.blocked or not (self.rescales and branch.order == "hdrf"):
            below.fixed = minus(below.fixed, attributed.vector)
        else:
            below.directions = minus(below.directions, attributed.direction)
        if not attributed.blocked:
            remove(below.order, attributed.key, name)
