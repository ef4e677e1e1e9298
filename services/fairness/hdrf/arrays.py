"""A large tree of queues in arrays, laid out once and filled as often as its demands change (`paths.py`).

Which trees are large depends on the tree alone, so that every instance fills a tree in the same way: small ones, and
those that arrays cannot hold, are filled by events (`static.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schemas.quantities import SHARE_UNITS
from services.fairness.hdrf import paths, turns
from services.fairness.hdrf.kept_paths import KeptPaths
from services.fairness.hdrf.laid import Depth, Laid
from services.fairness.hdrf.paths import LEVEL, NEARLY, USE, Rows
from services.fairness.hdrf.turns import Array, Turns
from services.fairness.tree import ONE_BITS, TreeNode

LEAVES_MIN = 128
"""Trees with fewer leaves are filled by events: arrays gain nothing there, and with few leaves cost several times as
much."""

NODES_MAX = 1 << 17
"""Leaves, and inner nodes, of a tree at most: sums of speeds over so many fit into 64 bits."""

KINDS_MAX = 62
"""A set of kinds is a whole number of 64 bits."""

ENDLESS = 1 << 62
"""The level at which a leaf without a limit has all it asks for."""

TASKS_MAX = 1e200
"""A leaf that asks for more tasks than that asks for so many."""

_ROUNDED, _ROUNDED_ONCE = 2.0**-35, 2.0**-50
"""What rounding may have taken from a share: one that was filled, and one that is asked for. It is put back."""

_SHARE_BITS = 60

BLUR = 2.0**-34
"""What cutting a demand down to a maximum may have taken from a share. It is put back, where that was done."""


class ArrayTree:
    """A tree laid out once, to be filled as often as its demands change. Raises OverflowError where arrays cannot hold
    it.

    `names`: of its leaves; `inner`: of its nodes; `places`: of each node, in an array of those of all depths one after
    the other. Of each leaf: `depth` and `node`, where it lies; `rise`, its share per unit of level; `speed`, its usage
    by kind, as `turns.split` has it; `mask`, the kinds that it asks for, a bit each; `most`, the level at which it has
    all of it; `share`, its dominant share then; `blurred`, what is put back of its share. `blurs`: something may be put
    back of those of nodes.
    """

    def __init__(self, root: TreeNode, capacity: Sequence[int], *, blurs: bool = False) -> None:
        laid = Laid()
        laid.add_node(root, 0, 0, 1.0, naive=False)
        many, kinds = len(laid.leaves), len(capacity)
        if max(many, len(laid.inner)) > NODES_MAX or kinds > KINDS_MAX or max(capacity, default=0) <= 0:
            raise OverflowError("too many nodes or kinds, or no capacity")
        self.names, self.inner = [leaf.name for leaf in laid.leaves], laid.names
        before = np.cumsum([0, *map(len, laid.depths)])
        depth, place = np.array(laid.inner, dtype=np.int64).T
        self.places = before[depth] + place
        self.capacity = capacity
        self.depth, self.node = np.array(laid.places, dtype=np.int64).T.copy()
        self.depths = []
        for at, nodes in enumerate(laid.depths):
            parent, slope, naive = zip(*nodes, strict=True)
            leaves = np.flatnonzero(self.depth == at)
            leaves = leaves[np.argsort(self.node[leaves], kind="stable")]
            stale = np.ones(len(nodes), dtype=bool)
            self.depths.append(Depth(np.array(parent), np.array(slope), np.array(naive), leaves, stale))
        self.kept = KeptPaths()
        self.rise = np.array(laid.rises)
        self.speed = np.zeros((2 * kinds, many), dtype=np.int64)
        self.mask, self.most = (np.zeros(many, dtype=np.int64) for _ in range(2))
        self.share, self.blurred = np.zeros(many), np.zeros(many)
        self.blurs = blurs
        self._at = {name: at for at, name in enumerate(self.names)}
        self._have = np.array(capacity, dtype=np.float64)[:, None]
        self._bits = (1 << np.arange(kinds, dtype=np.int64))[:, None]
        self._tasks = np.array([np.inf if leaf.tasks is None else leaf.tasks for leaf in laid.leaves], dtype=np.float64)
        self._lay([leaf.demand for leaf in laid.leaves], np.arange(many))

    def put(self, leaf: str, demand: Sequence[int]) -> None:
        """A leaf asks for something else. Raises OverflowError where that is too much for a double."""
        self._lay([demand], np.array([self._at[leaf]]))

    def blur(self, leaf: str, is_cut: bool) -> None:
        """Whether a leaf's demand was cut down."""
        self.blurred[self._at[leaf]] = BLUR if is_cut else 0.0

    def _lay(self, demands: Sequence[Sequence[int]], at: Array) -> None:
        """What leaves ask for, in the measures of paths."""
        none = [0] * len(self.capacity)
        asked = np.array([demand or none for demand in demands], dtype=np.float64).T
        shares = np.where(self._have > 0, asked / np.maximum(self._have, 1.0), 0.0)
        dominant = shares.max(axis=0)
        rise, tasks = self.rise[at], self._tasks[at]
        self.speed[:, at] = turns.split(shares * (rise / np.where(dominant > 0, dominant, 1.0)))
        self.mask[at] = np.where(tasks > 0, np.where(asked > 0, self._bits, 0).sum(axis=0), 0)
        is_limited = (dominant > 0) & (tasks < np.inf)
        share = np.where(is_limited, dominant * np.minimum(tasks, TASKS_MAX), paths.FAR)
        level = np.rint(np.minimum(share, paths.FAR) / rise * LEVEL)
        self.most[at] = np.where(is_limited, level, float(ENDLESS)).astype(np.int64)
        self.share[at] = np.where(is_limited, np.minimum(share, 1.0), 0.0)
        for depth in np.unique(self.depth[at]).tolist():
            self.depths[depth].stale[self.node[at[self.depth[at] == depth]]] = True

    def fill(self) -> "Filled":
        """One filling."""
        filling = Filling(self)
        while filling.go_on():
            pass
        return filling.filled()


class Filling:
    """One filling of a tree: phase after phase, each until another kind is used up.

    `full`: the kinds that are, a bit each; `open` and `others`: those that are not, and those that have become so. Of
    the nodes of each depth: `front`, where the leaves stand that can take, and `used`; `taking`: those leaves. Of each
    leaf: `level`, where it was blocked, and whether it is `satisfied`. `has_begun`: a phase is over.
    """

    def __init__(self, tree: ArrayTree) -> None:
        self.tree = tree
        self.full = sum([1 << j for j, have in enumerate(tree.capacity) if have <= 0])
        kinds = len(tree.capacity)
        self.open = [j for j, have in enumerate(tree.capacity) if have > 0]
        self.others: list[int] = []
        self.front = [np.zeros(len(depth.parent), dtype=np.int64) for depth in tree.depths]
        self.used = [np.zeros((kinds, len(depth.parent)), dtype=np.int64) for depth in tree.depths]
        self.taking = []
        for depth in tree.depths:
            depth.sort_leaves(tree.node, tree.most)
            self.taking.append(depth.leaves[tree.mask[depth.leaves] > 0])
        self.level = np.zeros(len(tree.names), dtype=np.int64)
        self.satisfied = tree.mask == 0
        self.has_begun = False

    def go_on(self) -> bool:
        """One phase. False if no leaf could take any more."""
        rows = self.composed() if self.has_begun else self.first_paths()
        self.has_begun = True
        if not rows[0].many[0]:
            return False
        self.settle(rows)
        for j in list(self.open):
            if self.used[0][j, 0] >= int(USE) - NEARLY:
                self.full |= 1 << j
                self.open.remove(j)
                self.others.append(j)
        return True

    def composed(self) -> list[Rows]:
        """The paths of all nodes from here on."""
        tree = self.tree
        found: list[Rows] = []
        children: Turns | None = None
        compared, others = (np.array(kinds, dtype=np.int64) for kinds in (self.open, self.others))
        for at in range(len(tree.depths) - 1, -1, -1):
            depth = tree.depths[at]
            self.block(at)
            found_turns = turns.merge(self.turns_of_leaves(at, self.taking[at]), children)
            if found_turns is None:
                rows = paths.no_rows(len(depth.parent), len(tree.capacity))
            else:
                comparison = (
                    paths.Compared(compared, others, depth.naive if depth.naive.any() else None) if at else None
                )
                rows = paths.compose(found_turns, len(depth.parent), self.used[at], depth.slope, comparison)
            found.append(rows)
            children = paths.turns_of(rows, depth.parent) if at else None
        return found[::-1]

    def first_paths(self) -> list[Rows]:
        """The same at the start, where those of the last filling are kept that are still the same."""
        compared, others = np.array(self.open, dtype=np.int64), np.zeros(0, dtype=np.int64)
        for at in range(len(self.taking)):
            self.block(at)
        kinds = len(self.tree.capacity)
        return self.tree.kept.update(self.tree.depths, paths.Compared(compared, others, None), kinds, self.first_turns)

    def block(self, at: int) -> None:
        """Leaves that need a full kind are blocked, and those at their end are satisfied: neither takes any more."""
        tree, taking = self.tree, self.taking[at]
        if not len(taking):
            return
        ahead = self.front[at][tree.node[taking]]
        done = tree.most[taking] <= ahead + 1
        self.satisfied[taking[done]] = True
        blocked = ~done & (tree.mask[taking] & self.full > 0)
        self.level[taking[blocked]] = ahead[blocked]
        self.taking[at] = taking[~done & ~blocked]

    def first_turns(self, at: int, stale: Array) -> Turns | None:
        """Those of the leaves below marked nodes, at the start."""
        taking = self.taking[at]
        return self.turns_of_leaves(at, taking[stale[self.tree.node[taking]]])

    def turns_of_leaves(self, at: int, taking: Array) -> Turns | None:
        """Leaves start at the front and end with all they ask for."""
        tree, front = self.tree, self.front[at]
        if not len(taking):
            return None
        node = tree.node[taking]
        starts = turns.starts_of(node)
        ends = taking[tree.most[taking] < ENDLESS]
        together = np.add.reduceat(tree.speed.take(taking, axis=1), starts, axis=1)
        speed = np.concatenate((together, -tree.speed.take(ends, axis=1)), axis=1)
        opens = node[starts]
        level = np.concatenate((front[opens], tree.most[ends]))
        return Turns(
            np.concatenate((opens, tree.node[ends])),
            level,
            np.zeros(len(level), dtype=np.int64),
            speed,
            None,
        )

    def settle(self, rows: list[Rows]) -> None:
        """The phase ends where a kind is used up at the top."""
        row, part = paths.full_at(rows[0], self.open)
        node, lines, parts = np.array([0]), np.array([row]), np.array([part])
        for at, each in enumerate(rows):
            level, since, used = paths.point(each, lines, parts)
            self.used[at][:, node] = used
            self.front[at][node] = np.maximum(self.front[at][node], level)
            if at + 1 < len(rows):
                height, lag = np.full(len(each.many), -1, dtype=np.int64), np.zeros(len(each.many), dtype=np.int64)
                height[node], lag[node] = level, since
                parent = self.tree.depths[at + 1].parent
                node, lines, parts = paths.stand_at(rows[at + 1], height[parent], lag[parent])

    def filled(self) -> "Filled":
        """The answer, once no leaf can take any more."""
        tree = self.tree
        asked = tree.share + np.where(tree.share > 0, _ROUNDED_ONCE, 0.0)
        shares = np.where(self.satisfied, asked, self.level / LEVEL * tree.rise + _ROUNDED) + tree.blurred
        put_back = _ROUNDED + (BLUR if tree.blurs else 0.0)
        uses = np.concatenate([used.max(axis=0) for used in self.used]) / USE + put_back
        below = [np.zeros(len(depth.parent), dtype=bool) for depth in tree.depths]
        for at in range(len(below) - 1, -1, -1):
            depth = tree.depths[at]
            wants = depth.leaves[~self.satisfied[depth.leaves]]
            below[at][tree.node[wants]] = True
            if at:
                below[at - 1][depth.parent[below[at]]] = True
        return Filled(
            tree.names,
            tree.inner,
            np.minimum(shares, 1.0),
            np.minimum(uses[tree.places], 1.0),
            self.satisfied.tolist(),
            (~np.concatenate(below)[tree.places]).tolist(),
            self.full,
        )


@dataclass(slots=True)
class Filled:
    """What every leaf and every node came to: its dominant share, no more than all of the cell; `satisfied`, whether it
    has all it asked for. Names as in the tree; `full`: the kinds that are used up, a bit each.
    """

    names: list[str]
    inner: list[str]
    _shares: Array
    _inner_shares: Array
    satisfied: list[bool]
    inner_satisfied: list[bool]
    full: int

    def units(self) -> list[int]:
        """Shares of the leaves in billionths, rounded down."""
        return _whole(self._shares, SHARE_UNITS)

    def inner_units(self) -> list[int]:
        """And of the nodes."""
        return _whole(self._inner_shares, SHARE_UNITS)

    def shares(self) -> list[int]:
        """Shares of the leaves, of `ONE`."""
        return [share << ONE_BITS - _SHARE_BITS for share in _whole(self._shares, 1 << _SHARE_BITS)]

    def inner_shares(self) -> list[int]:
        """And of the nodes."""
        return [share << ONE_BITS - _SHARE_BITS for share in _whole(self._inner_shares, 1 << _SHARE_BITS)]


def _whole(shares: Array, one: int) -> list[int]:
    found: list[int] = np.floor(shares * one).astype(np.int64).tolist()
    return found


def array_tree_of(root: TreeNode, capacity: Sequence[int], *, blurs: bool = False) -> ArrayTree | None:
    """A tree laid out; None where it is to be filled by events. `blurs`: as a `ArrayTree` has it."""
    if not is_large(root):
        return None
    try:
        return ArrayTree(root, capacity, blurs=blurs)
    except OverflowError:
        return None


def is_large(root: TreeNode) -> bool:
    """Whether a tree has so many leaves that arrays pay."""
    found, ahead = 0, [root]
    while ahead:
        children = ahead.pop().children
        below = [child for child in children if child.children]
        found += len(children) - len(below)
        if found >= LEAVES_MIN:
            return True
        ahead += below
    return False
