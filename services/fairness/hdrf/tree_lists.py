"""A large tree of queues as lists, one for each depth, from which the arrays are built (arrays.py)."""

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from services.fairness.hdrf.breakpoints import Array
from services.fairness.tree import TreeNode

WEIGHTS_MAX = 1 << 14
"""The ratio of the weights of two siblings at most: levels have 64 bits, of which small weights use more."""

ORDERS = ("hdrf", "naive")
"""How arrays can compare the children of a node."""


@dataclass(slots=True)
class Depth:
    """The inner nodes of one depth. `parent`: the place of each one's parent among the nodes above; `slope`: the
    heaviest weight among its siblings over its own; `naive`: whether its parent counts saturated kinds, too. `leaves`:
    the children of these nodes that are leaves, by node and then by the level at which they are satisfied, except below
    nodes that are `stale`: the demand of a leaf there has changed since the last filling.
    """

    parent: Array
    slope: Array
    naive: Array
    leaves: Array
    stale: Array

    def sort_leaves(self, node: Array, most: Array) -> None:
        """Sorts the leaves below stale nodes; `node` and `most` are those of all leaves of the tree."""
        where = np.flatnonzero(self.stale[node[self.leaves]])
        leaves = self.leaves[where]
        self.leaves[where] = leaves[np.lexsort((most[leaves], node[leaves]))]


@dataclass(slots=True)
class TreeLists:
    """A tree as lists. `depths`: of each depth the nodes, as in `Depth`; `inner` and `places`: depth and place of each
    inner node, and of the node above each leaf; `rises`: each leaf's weight over the heaviest of its siblings.
    """

    depths: list[list[tuple[int, float, bool]]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    inner: list[tuple[int, int]] = field(default_factory=list)
    leaves: list[TreeNode] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    rises: list[float] = field(default_factory=list)

    def add_node(self, node: TreeNode, parent: int, depth: int, slope: float, *, naive: bool) -> None:
        """Adds a subtree. Raises OverflowError where arrays cannot hold it."""
        if node.order not in ORDERS or not node.children:
            raise OverflowError("only trees whose nodes compare their children by dominant share")
        if any(most is not None for most in node.most) or any(any(child.base) for child in node.children):
            raise OverflowError("maxima and bases are for the filling by events")
        if depth == len(self.depths):
            self.depths.append([])
        at = len(self.depths[depth])
        self.depths[depth].append((parent, slope, naive))
        self.names.append(node.name)
        self.inner.append((depth, at))
        heaviest = max([child.weight for child in node.children])
        for child in node.children:
            if child.weight * WEIGHTS_MAX < heaviest:
                raise OverflowError("weights too far apart")
            if child.children:
                self.add_node(child, at, depth + 1, _over(heaviest, child.weight), naive=node.order == "naive")
            else:
                self.leaves.append(child)
                self.places.append((depth, at))
                self.rises.append(_over(child.weight, heaviest))


def _over(weight: int | Fraction, other: int | Fraction) -> float:
    """One weight over another, rounded once."""
    return (weight.numerator * other.denominator) / (weight.denominator * other.numerator)
