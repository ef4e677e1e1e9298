"""A large tree of queues in arrays, built once and filled as often as its demands change (`paths.py`).

Whether a tree is filled here or event by event (`static.py`: small trees, and those that arrays cannot represent)
depends on the tree alone, so that every instance fills a tree in the same way.
"""

from collections.abc import Sequence

import numpy as np

from services.fairness.hdrf import breakpoints, paths
from services.fairness.hdrf.array_fill import ArrayFill
from services.fairness.hdrf.breakpoints import Array, Breakpoints
from services.fairness.hdrf.kept_paths import KeptPaths
from services.fairness.hdrf.paths import LEVEL, NEARLY, USE, Segments
from services.fairness.hdrf.tree_lists import Depth, TreeLists
from services.fairness.tree import TreeNode

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
"""A leaf that asks for more tasks than this counts as asking for this many."""

_ROUNDED, _ROUNDED_ONCE = 2.0**-35, 2.0**-50
"""What rounding may have taken from a share that was filled, and from one that is asked for. It is added back."""

CLIP_ERROR = 2.0**-34
"""What clipping a demand to a maximum may have taken from a share by rounding. It is added back where that was done."""


class ArrayTree:
    """A tree in arrays, to be filled as often as its demands change. Raises OverflowError where arrays cannot represent
    it.

    `names`: of the leaves; `inner`: of the inner nodes; `places`: the index of each inner node in the concatenation of
    the arrays of all depths.

    For each leaf: `depth` and `node`, the depth of its parent and the parent's index there; `rise`, dominant share per
    unit of level; `speed`, usage by kind per unit of level, as `breakpoints.split` encodes it; `mask`, the set of kinds
    asked for; `most`, the level at which it is satisfied; `share`, its dominant share then; `clip_error`, what is added
    to its share for the rounding of a demand that was clipped to a maximum. `clips`: whether any demand may be clipped.
    """

    def __init__(self, root: TreeNode, capacity: Sequence[int], *, clips: bool = False) -> None:
        tree_lists = TreeLists()
        tree_lists.add_node(root, 0, 0, 1.0, naive=False)
        many, kinds = len(tree_lists.leaves), len(capacity)
        if max(many, len(tree_lists.inner)) > NODES_MAX or kinds > KINDS_MAX or max(capacity, default=0) <= 0:
            raise OverflowError("too many nodes or kinds, or no capacity")
        self.names, self.inner = [leaf.name for leaf in tree_lists.leaves], tree_lists.names
        before = np.cumsum([0, *map(len, tree_lists.depths)])
        depth, place = np.array(tree_lists.inner, dtype=np.int64).T
        self.places = before[depth] + place
        self.capacity = capacity
        self.depth, self.node = np.array(tree_lists.places, dtype=np.int64).T.copy()
        self.depths = []
        for at, nodes in enumerate(tree_lists.depths):
            parent, slope, naive = zip(*nodes, strict=True)
            leaves = np.flatnonzero(self.depth == at)
            leaves = leaves[np.argsort(self.node[leaves], kind="stable")]
            stale = np.ones(len(nodes), dtype=bool)
            self.depths.append(Depth(np.array(parent), np.array(slope), np.array(naive), leaves, stale))
        self.kept = KeptPaths()
        self.rise = np.array(tree_lists.rises)
        self.speed = np.zeros((2 * kinds, many), dtype=np.int64)
        self.mask, self.most = (np.zeros(many, dtype=np.int64) for _ in range(2))
        self.share, self.clip_error = np.zeros(many), np.zeros(many)
        self.clips = clips
        self._at = {name: at for at, name in enumerate(self.names)}
        self._have = np.array(capacity, dtype=np.float64)[:, None]
        self._bits = (1 << np.arange(kinds, dtype=np.int64))[:, None]
        self._tasks = np.array(
            [np.inf if leaf.tasks is None else leaf.tasks for leaf in tree_lists.leaves], dtype=np.float64
        )
        self._set_demands([leaf.demand for leaf in tree_lists.leaves], np.arange(many))

    def set_demand(self, leaf: str, demand: Sequence[int]) -> None:
        """Sets the demand of a leaf. Raises OverflowError where that is too much for a double."""
        self._set_demands([demand], np.array([self._at[leaf]]))

    def set_clipped(self, leaf: str, is_cut: bool) -> None:
        """Whether a leaf's demand was clipped to a maximum."""
        self.clip_error[self._at[leaf]] = CLIP_ERROR if is_cut else 0.0

    def _set_demands(self, demands: Sequence[Sequence[int]], at: Array) -> None:
        """Converts the demands of some leaves (`at`: their indexes) to the units of `paths`."""
        none = [0] * len(self.capacity)
        asked = np.array([demand or none for demand in demands], dtype=np.float64).T
        shares = np.where(self._have > 0, asked / np.maximum(self._have, 1.0), 0.0)
        dominant = shares.max(axis=0)
        rise, tasks = self.rise[at], self._tasks[at]
        self.speed[:, at] = breakpoints.split(shares * (rise / np.where(dominant > 0, dominant, 1.0)))
        self.mask[at] = np.where(tasks > 0, np.where(asked > 0, self._bits, 0).sum(axis=0), 0)
        is_limited = (dominant > 0) & (tasks < np.inf)
        share = np.where(is_limited, dominant * np.minimum(tasks, TASKS_MAX), paths.FAR)
        level = np.rint(np.minimum(share, paths.FAR) / rise * LEVEL)
        self.most[at] = np.where(is_limited, level, float(ENDLESS)).astype(np.int64)
        self.share[at] = np.where(is_limited, np.minimum(share, 1.0), 0.0)
        for depth in np.unique(self.depth[at]).tolist():
            self.depths[depth].stale[self.node[at[self.depth[at] == depth]]] = True

    def fill(self) -> ArrayFill:
        """Fills the tree from empty."""
        filling = Filling(self)
        while filling.go_on():
            pass
        return filling.filled()

    def inner_satisfied(self, satisfied: Array) -> list[bool]:
        """For each inner node whether all leaves below it are satisfied; `satisfied`: for each leaf."""
        waits = [np.zeros(len(depth.parent), dtype=bool) for depth in self.depths]
        for at in range(len(waits) - 1, -1, -1):
            depth = self.depths[at]
            leaves = depth.leaves[~satisfied[depth.leaves]]
            waits[at][self.node[leaves]] = True
            if at:
                waits[at - 1][depth.parent[waits[at]]] = True
        found: list[bool] = (~np.concatenate(waits)[self.places]).tolist()
        return found


class Filling:
    """Progressive filling of a tree from empty, in phases; a phase ends when another kind is saturated (used up).

    `full`: the saturated kinds, a bit each; `open` and `others`: the kinds that are not, and those that were saturated
    during this filling. For the inner nodes of each depth: `front`, the level of their unsatisfied, unblocked leaves,
    and `used`; `taking`: those leaves. For each leaf: `level`, at which it was blocked, and whether it is `satisfied`.
    `has_begun`: a phase is over.
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
        """One phase. False if every leaf is satisfied or blocked."""
        segments = self.composed() if self.has_begun else self.first_paths()
        self.has_begun = True
        if not segments[0].many[0]:
            return False
        self.settle(segments)
        for j in list(self.open):
            if self.used[0][j, 0] >= int(USE) - NEARLY:
                self.full |= 1 << j
                self.open.remove(j)
                self.others.append(j)
        return True

    def composed(self) -> list[Segments]:
        """The paths of all nodes from their present state on."""
        tree = self.tree
        found: list[Segments] = []
        children: Breakpoints | None = None
        compared, others = (np.array(kinds, dtype=np.int64) for kinds in (self.open, self.others))
        for at in range(len(tree.depths) - 1, -1, -1):
            depth = tree.depths[at]
            self.block(at)
            found_breakpoints = breakpoints.merge(self.breakpoints_of_leaves(at, self.taking[at]), children)
            if found_breakpoints is None:
                segments = paths.no_segments(len(depth.parent), len(tree.capacity))
            else:
                comparison = (
                    paths.Compared(compared, others, depth.naive if depth.naive.any() else None) if at else None
                )
                segments = paths.compose(found_breakpoints, len(depth.parent), self.used[at], depth.slope, comparison)
            found.append(segments)
            children = paths.breakpoints_of(segments, depth.parent) if at else None
        return found[::-1]

    def first_paths(self) -> list[Segments]:
        """The same from empty; paths that have not changed since the last filling are reused."""
        compared, others = np.array(self.open, dtype=np.int64), np.zeros(0, dtype=np.int64)
        for at in range(len(self.taking)):
            self.block(at)
        kinds = len(self.tree.capacity)
        return self.tree.kept.update(
            self.tree.depths, paths.Compared(compared, others, None), kinds, self.first_breakpoints
        )

    def block(self, at: int) -> None:
        """Leaves that need a saturated kind are blocked, those at their limit satisfied: neither takes any more."""
        tree, taking = self.tree, self.taking[at]
        if not len(taking):
            return
        ahead = self.front[at][tree.node[taking]]
        done = tree.most[taking] <= ahead + 1
        self.satisfied[taking[done]] = True
        blocked = ~done & (tree.mask[taking] & self.full > 0)
        self.level[taking[blocked]] = ahead[blocked]
        self.taking[at] = taking[~done & ~blocked]

    def first_breakpoints(self, at: int, stale: Array) -> Breakpoints | None:
        """Breakpoints of the leaves below stale nodes, from empty."""
        taking = self.taking[at]
        return self.breakpoints_of_leaves(at, taking[stale[self.tree.node[taking]]])

    def breakpoints_of_leaves(self, at: int, taking: Array) -> Breakpoints | None:
        """Leaves start to take at the front and stop at the level at which they are satisfied."""
        tree, front = self.tree, self.front[at]
        if not len(taking):
            return None
        node = tree.node[taking]
        starts = breakpoints.starts_of(node)
        ends = taking[tree.most[taking] < ENDLESS]
        together = np.add.reduceat(tree.speed.take(taking, axis=1), starts, axis=1)
        speed = np.concatenate((together, -tree.speed.take(ends, axis=1)), axis=1)
        opens = node[starts]
        level = np.concatenate((front[opens], tree.most[ends]))
        return Breakpoints(
            np.concatenate((opens, tree.node[ends])),
            level,
            np.zeros(len(level), dtype=np.int64),
            speed,
            None,
        )

    def settle(self, segments: list[Segments]) -> None:
        """Ends the phase where a kind is saturated at the root, and moves every node to its state there."""
        segment, part = paths.full_at(segments[0], self.open)
        node, lines, parts = np.array([0]), np.array([segment]), np.array([part])
        for at, each in enumerate(segments):
            level, since, used = paths.point(each, lines, parts)
            self.used[at][:, node] = used
            self.front[at][node] = np.maximum(self.front[at][node], level)
            if at + 1 < len(segments):
                height, lag = np.full(len(each.many), -1, dtype=np.int64), np.zeros(len(each.many), dtype=np.int64)
                height[node], lag[node] = level, since
                parent = self.tree.depths[at + 1].parent
                node, lines, parts = paths.stand_at(segments[at + 1], height[parent], lag[parent])

    def filled(self) -> ArrayFill:
        """The result, once every leaf is satisfied or blocked."""
        tree = self.tree
        asked = tree.share + np.where(tree.share > 0, _ROUNDED_ONCE, 0.0)
        shares = np.where(self.satisfied, asked, self.level / LEVEL * tree.rise + _ROUNDED) + tree.clip_error
        put_back = _ROUNDED + (CLIP_ERROR if tree.clips else 0.0)
        uses = np.concatenate([used.max(axis=0) for used in self.used]) / USE + put_back
        return ArrayFill(
            tree.names,
            tree.inner,
            np.minimum(shares, 1.0),
            np.minimum(uses[tree.places], 1.0),
            self.satisfied,
            self.full,
        )


def array_tree_of(root: TreeNode, capacity: Sequence[int], *, clips: bool = False) -> ArrayTree | None:
    """The tree in arrays; None where it is to be filled event by event. `clips`: as in `ArrayTree`."""
    if not is_large(root):
        return None
    try:
        return ArrayTree(root, capacity, clips=clips)
    except OverflowError:
        return None


def is_large(root: TreeNode) -> bool:
    """Whether a tree has enough leaves for arrays to pay."""
    found, ahead = 0, [root]
    while ahead:
        children = ahead.pop().children
        below = [child for child in children if child.children]
        found += len(children) - len(below)
        if found >= LEAVES_MIN:
            return True
        ahead += below
    return False
