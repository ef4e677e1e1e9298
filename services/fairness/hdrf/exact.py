"""Dynamic H-DRF in exact fractions: nothing is rounded, and everything is recomputed each time. For the offline
solver on small trees, and as a reference in tests; no core runs it.

`Exact.stand` attributes a vector to every node as section 3.4 of the paper has it; `order` and `next_leaves` walk the
tree by it; `refill` hands out what is free by progressive filling. `dynamic.py` does the same in whole tasks, one at a
time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from services.fairness.hdrf.leaves import DemandSizes
from services.fairness.tree import RANK_ORDERS, TreeNode, leaves


@dataclass(slots=True)
class Standing:
    """A node among its siblings. `vector` is attributed to it, in shares of the cell; `share` is the dominant one."""

    vector: list[Fraction]
    share: Fraction
    level: Fraction  # What its parent compares: share / weight, tasks / weight, or the rank.
    blocked: bool


@dataclass(slots=True)
class Motion:
    """The derivatives of a node's state by its own clock."""

    speed: list[Fraction]  # What it takes, in shares of the cell; behind them, in tasks.
    drift: list[Fraction]  # How its attributed vector changes.
    rise: Fraction  # Of its level.
    parts: list[tuple[TreeNode, Fraction]]  # Children that take, and their clock per unit of this one.


@dataclass(slots=True)
class Exact:
    """A tree of queues. `Node.held` is the usage of a leaf and `Node.tasks` what it waits for besides (None:
    endless).

    A leaf without a `demand` waits for something that is never short: only what it holds matters. With `whole` a kind
    is full as `Wants.full` says, otherwise when nothing of it is left.
    """

    root: TreeNode
    capacity: Sequence[int]
    whole: bool = False
    held: dict[str, list[Fraction]] = field(default_factory=dict)
    tasks: dict[str, Fraction] = field(default_factory=dict)
    waiting: dict[str, Fraction | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for leaf in leaves(self.root):
            self.held[leaf.name] = [Fraction(units) for units in leaf.held or [0] * len(self.capacity)]
            each = [units / need for units, need in zip(self.held[leaf.name], leaf.demand, strict=False) if need]
            self.tasks[leaf.name] = min(each, default=Fraction(0))
            self.waiting[leaf.name] = None if leaf.tasks is None else Fraction(leaf.tasks)

    # ------------------------------------------------------------------ what happens
    def hold(self, leaf: TreeNode, tasks: Fraction) -> None:
        """Adds to the number of tasks of its demand that a leaf holds."""
        self.tasks[leaf.name] += tasks
        self.held[leaf.name] = [
            units + tasks * need for units, need in zip(self.held[leaf.name], leaf.demand, strict=True)
        ]

    def put(self, leaf: TreeNode, tasks: Fraction, waiting: Fraction | None) -> None:
        """Sets how many tasks of its demand a leaf holds, and how many it waits for."""
        self.hold(leaf, tasks - self.tasks[leaf.name])
        self.waiting[leaf.name] = waiting

    def refill(self) -> None:
        """Let all that is free flow to the least share, until no leaf can take any."""
        while True:
            full = self.full()
            found = self.stand()
            if found[self.root.name].blocked:
                return
            motions: dict[str, Motion] = {}
            motion = self._move(self.root, None, full, found, motions)
            room = self._shares(self.free())
            times = [left / speed for left, speed in zip(room, motion.speed, strict=False) if speed > 0]
            times += self._times(self.root, None, full, found, motions, Fraction(1))
            self._flow(self.root, min(times), motions)

    # ------------------------------------------------------------------ the share of every node
    def full(self) -> int:
        """The kinds that are used up, a bit each."""
        if not all(leaf.demand for leaf in leaves(self.root)):
            return 0
        free = [Fraction(units) for units in self.capacity]
        demand_sizes = DemandSizes()
        for leaf in leaves(self.root):
            free = [left - used for left, used in zip(free, self.held[leaf.name], strict=True)]
            if self.mask(leaf):
                demand_sizes.add(self.mask(leaf), leaf.demand)
        if self.whole:
            return demand_sizes.full([left.numerator // left.denominator for left in free])
        return sum([1 << j for j, left in enumerate(free) if left <= 0])

    def mask(self, leaf: TreeNode) -> int:
        """The kinds that a waiting leaf asks for, a bit each; 0 if it waits for nothing."""
        return sum([1 << j for j, need in enumerate(leaf.demand) if need]) if self.waiting[leaf.name] != 0 else 0

    def stand(self) -> dict[str, Standing]:
        """Where every node stands now, by name."""
        found: dict[str, Standing] = {}
        self._standing_of(self.root, None, self.full(), found)
        return found

    def order(self) -> list[str]:
        """All leaves in a walk of the tree: at each node who can take first, then by level, then by name."""
        return [leaf.name for leaf in self._walk(self.root, self.stand())]

    def next_leaves(self) -> list[str]:
        """Who may get the next task: down to the children with the least that can use what is free, all of a
        tie."""
        return sorted(self._least(self.root, self.stand(), self.free()))

    def free(self) -> list[Fraction]:
        """Base units of each kind that are free."""
        return [
            have - sum(column)
            for have, column in zip(self.capacity, zip(*self.held.values(), strict=True), strict=True)
        ]

    def _standing_of(self, node: TreeNode, parent: TreeNode | None, full: int, found: dict[str, Standing]) -> Standing:
        below = [self._standing_of(child, node, full, found) for child in node.children]
        if not node.children:
            vector = self._shares(self.held[node.name])
            blocked = bool(node.demand) and (not self.mask(node) or bool(self.mask(node) & full))
        else:
            blocked = all(child.blocked for child in below)
            least = min([child.level for child in below if not child.blocked], default=Fraction(0))
            scaled = [self._rescaled(child, least) if node.order == "hdrf" else child.vector for child in below]
            vector = [sum(column, Fraction(0)) for column in zip(*scaled, strict=True)]
        share = max([vector[j] for j in self._compared(parent, full)], default=Fraction(0))
        found[node.name] = Standing(vector, share, self._level(node, parent, share), blocked)
        return found[node.name]

    def _rescaled(self, child: Standing, least: Fraction) -> list[Fraction]:
        if child.blocked:
            return child.vector
        # Of who holds nothing, or only full kinds, nothing is left: then the least level is 0.
        factor = least / child.level if least else Fraction(0)
        return [each * factor for each in child.vector]

    def _level(self, node: TreeNode, parent: TreeNode | None, share: Fraction) -> Fraction:
        if parent is not None and parent.order in RANK_ORDERS:
            return Fraction(node.rank)
        if parent is not None and parent.order == "fair":
            return sum([self.tasks[leaf.name] for leaf in leaves(node)], Fraction(0)) / node.weight
        return share / node.weight

    def _compared(self, parent: TreeNode | None, full: int) -> list[int]:
        """The kinds by which a node's children are compared."""
        kinds = [j for j, have in enumerate(self.capacity) if have > 0]
        return kinds if parent is not None and parent.order == "naive" else [j for j in kinds if not full >> j & 1]

    def _shares(self, units: Sequence[int | Fraction]) -> list[Fraction]:
        return [
            Fraction(each) / have if have > 0 else Fraction(0) for each, have in zip(units, self.capacity, strict=True)
        ]

    def _walk(self, node: TreeNode, found: dict[str, Standing]) -> Iterator[TreeNode]:
        if not node.children:
            yield node
        for child in sorted(
            node.children, key=lambda child: (found[child.name].blocked, found[child.name].level, child.name)
        ):
            yield from self._walk(child, found)

    def _least(self, node: TreeNode, found: dict[str, Standing], free: Sequence[Fraction]) -> list[str]:
        if not node.children:
            fits = not self.whole or all(need <= left for need, left in zip(node.demand, free, strict=False))
            return [] if found[node.name].blocked or not fits else [node.name]
        able = [(found[child.name].level, self._least(child, found, free)) for child in node.children]
        least = min([level for level, names in able if names], default=Fraction(0))
        return [name for level, names in able if level == least for name in names]

    # ------------------------------------------------------------------ how fast every share grows
    def _move(
        self, node: TreeNode, parent: TreeNode | None, full: int, found: dict[str, Standing], motions: dict[str, Motion]
    ) -> Motion:
        """How a node moves that can take."""
        if not node.children:
            each = self._shares(node.demand)
            motion = Motion([*each, Fraction(1)], each, Fraction(0), [])
        else:
            motion = self._move_inner(node, full, found, motions)
        motion.rise = self._rise(node, parent, full, found, motion)
        motions[node.name] = motion
        return motion

    def _move_inner(self, node: TreeNode, full: int, found: dict[str, Standing], motions: dict[str, Motion]) -> Motion:
        able = [child for child in node.children if not found[child.name].blocked]
        least = min([(found[child.name].level, child.name) for child in able])
        if node.order in RANK_ORDERS:
            lowest = [child for child in able if child.name == least[1]]
        else:
            lowest = [child for child in able if found[child.name].level == least[0]]
        moves = {child.name: self._move(child, node, full, found, motions) for child in lowest}
        still = [child for child in lowest if not moves[child.name].rise]
        parts = []
        for child in still or lowest:
            pace = moves[child.name].rise or max(moves[child.name].speed[:-1]) / child.weight
            parts.append((child, 1 / pace))
        speed = self._sum([(moves[child.name].speed, clock) for child, clock in parts], len(self.capacity) + 1)
        drifts = [(moves[child.name].drift, clock) for child, clock in parts]
        if node.order == "hdrf" and not still:
            # As the least rises, so does what all others that can take are rescaled to.
            drifts += [(found[child.name].vector, 1 / found[child.name].level) for child in able if child not in lowest]
        return Motion(speed, self._sum(drifts, len(self.capacity)), Fraction(0), parts)

    def _sum(self, terms: list[tuple[list[Fraction], Fraction]], width: int) -> list[Fraction]:
        return [sum([vector[j] * factor for vector, factor in terms], Fraction(0)) for j in range(width)]

    def _rise(
        self, node: TreeNode, parent: TreeNode | None, full: int, found: dict[str, Standing], motion: Motion
    ) -> Fraction:
        if parent is None or parent.order in RANK_ORDERS:
            return Fraction(0)
        if parent.order == "fair":
            return motion.speed[-1] / node.weight
        standing = found[node.name]
        compared = self._compared(parent, full)
        return max([motion.drift[j] for j in compared if standing.vector[j] == standing.share]) / node.weight

    def _times(
        self,
        node: TreeNode,
        parent: TreeNode | None,
        full: int,
        found: dict[str, Standing],
        motions: dict[str, Motion],
        clock: Fraction,
    ) -> list[Fraction]:
        """When things happen at a node that takes and below it, in the root's time; `clock` is its own per unit of
        that."""
        motion, standing, times = motions[node.name], found[node.name], []
        waiting = self.waiting.get(node.name)
        if waiting is not None:
            times.append(waiting / clock)
        if parent is not None and parent.order in ("hdrf", "naive"):
            top = motion.rise * node.weight
            for j in self._compared(parent, full):
                if motion.drift[j] > top and standing.vector[j] < standing.share:
                    times.append((standing.share - standing.vector[j]) / (motion.drift[j] - top) / clock)
        if any(motions[child.name].rise for child, _ in motion.parts):
            levels = [found[child.name].level for child in node.children if not found[child.name].blocked]
            times += [(level - min(levels)) / clock for level in levels if level > min(levels)]
        for child, child_clock in motion.parts:
            times += self._times(child, node, full, found, motions, clock * child_clock)
        return times

    def _flow(self, node: TreeNode, clock: Fraction, motions: dict[str, Motion]) -> None:
        if not node.children:
            self.hold(node, clock)
            waiting = self.waiting[node.name]
            if waiting is not None:
                self.waiting[node.name] = waiting - clock
        for child, child_clock in motions[node.name].parts:
            self._flow(child, clock * child_clock, motions)
