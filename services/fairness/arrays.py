"""A tree of queues as arrays, filled by compiled code: the answer of `hdrf.fill`, bit by bit, in less time.

Compiled code reckons in a fixed number of bits. Where a tree asks for more (weights that differ by very many orders of
magnitude, say), or numba is not installed, this says so by None, and the filling is worked out in plain Python, which
takes longer and comes to the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import chain
from typing import Any

from services.fairness.tree import ONE, RANK_ORDERS, Node, in_rank

LEAVES_MIN = 1_000
"""Trees with fewer leaves do not have code compiled, or loaded, for them: plain Python takes milliseconds there."""

LEAVES_FEW = 8
"""Once it is there, trees with fewer leaves are filled in plain Python: making arrays takes longer."""

NODES_MAX = 1 << 20
"""Leaves, and nodes, of a tree at most: sums over so many cannot outgrow what compiled code reckons in."""

KINDS_MAX = 62

_WORD_BITS = 62
"""Of a number in one word."""

_ORDERS = {"hdrf": 0, "naive": 1, "fair": 2, **dict.fromkeys(RANK_ORDERS, 3)}


@cache
def _code() -> tuple[Any, Any, Any]:
    """numpy, what the arrays are made of, and the code that fills them. Raises ImportError where one is missing."""
    import numpy as np

    from services.fairness import fill_kernel, water_kernel

    return np, water_kernel, fill_kernel.run


@dataclass(slots=True)
class Laid:
    """Nodes, parents before their children, and leaves, those of one node side by side. A leaf under an order by rank
    gets a node of its own around it, and so does a root without children.

    Of a node: its order, parent, weight, the heaviest weight among its siblings, its first leaf, how many it has; of a
    leaf: its node, and what the tree says. `names`: None of a node around a leaf.
    """

    names: list[str | None] = field(default_factory=list)
    nodes: list[tuple[int, int, int, int]] = field(default_factory=list)
    weights: list[int | Fraction] = field(default_factory=list)
    heaviest: list[int | Fraction] = field(default_factory=list)  # Among the children.
    leaves: list[Node] = field(default_factory=list)
    depth: int = 0

    def plant(self, node: Node, parent: int, depth: int) -> None:
        """Lay a subtree."""
        order = node.order if node.children else "hdrf"
        ranked = order in RANK_ORDERS
        children = in_rank(node.children) if ranked else node.children or [node]
        plain = [] if ranked else [child for child in children if not child.children]
        at = len(self.nodes)
        self.depth = max(self.depth, depth)
        self.names.append(node.name if node.children else None)
        self.nodes.append((_ORDERS[order], parent, len(self.leaves), len(plain)))
        self.weights.append(node.weight)
        self.heaviest.append(max([child.weight for child in children]))
        self.leaves += plain
        if len(plain) < len(children):
            for child in children:
                if ranked or child.children:
                    self.plant(child, at, depth + 1)


class Plot:
    """A tree laid out once, to be filled as often as its demands change. Raises OverflowError where a number has too
    many bits, ImportError without numba.

    `names`: of its leaves; `inner`: of its nodes, None of one around a leaf.
    """

    def __init__(self, root: Node, capacity: Sequence[int]) -> None:
        self._np, self._w, self._run = _code()
        laid = Laid()
        laid.plant(root, 0, 0)
        if max(len(laid.nodes), len(laid.leaves)) > NODES_MAX or len(capacity) > KINDS_MAX:
            raise OverflowError("compiled code fills no tree of so many nodes or kinds")
        self.names, self.inner = [leaf.name for leaf in laid.leaves], laid.names
        self._at = {name: at for at, name in enumerate(self.names)}
        self._kinds = len(capacity)
        self._flow = self._laid_out(laid, capacity)
        self._demands, self._more = self._demands_of(laid.leaves)

    def put(self, leaf: str, demand: Sequence[int]) -> None:
        """A leaf asks for something else. Raises OverflowError like the making of a plot."""
        if self._more.size:
            raise OverflowError("only demands of one word are changed")
        self._demands[self._at[leaf]] = demand

    def fill(self) -> "Filled | None":
        """One filling; None where that takes too many bits."""
        w, flow = self._w, self._w.Flow(*[array.copy() for array in self._flow])
        self._run(flow, self._demands, self._more)
        if flow.words[0]:
            return None
        few, many, leaf_at, group_at = (int(flow.dims[at]) for at in (w.NODES, w.LEAVES, w.LEAF_AT, w.GROUP_AT))
        words = flow.words.reshape(-1, 4)
        return Filled(
            self.names,
            self.inner,
            words[leaf_at:group_at].reshape(many, -1, 4)[:, w.SHARE].tobytes(),
            words[1:leaf_at].reshape(few, -1, 4)[:, w.HEIGHT].tobytes(),
            flow.leaves[:, w.UNITS].tolist(),
            flow.nodes[:, w.NODE_UNITS].tolist(),
            (flow.leaves[:, w.SATISFIED] > 0).tolist(),
            (flow.nodes[:, w.SATISFIED_ALL] > 0).tolist(),
            int(flow.dims[w.FULL]),
        )

    def _laid_out(self, laid: Laid, capacity: Sequence[int]) -> Any:
        """All arrays but those of the demands, before a filling."""
        np, w = self._np, self._w
        kinds, many, few = self._kinds, len(laid.leaves), len(laid.nodes)
        rows = np.array(laid.nodes, dtype=np.int64)
        nodes = np.zeros((few, w.NODE_INTS), dtype=np.int64)
        nodes[:, w.ORDER], nodes[:, w.PARENT], nodes[:, w.LEAF_FIRST], nodes[:, w.LEAF_COUNT] = rows.T
        nodes[:, w.INNER_COUNT] = counts = np.bincount(rows[1:, 1], minlength=few)
        nodes[:, w.INNER_FIRST] = np.cumsum(counts) - counts
        nodes[0, w.IS_LEAF] = laid.names[0] is None
        leaves = np.zeros((many, w.LEAF_INTS), dtype=np.int64)
        leaves[:, w.OWNER] = owners = np.repeat(np.arange(few), rows[:, 3])
        leaves[:, w.TASKS] = [-1 if leaf.tasks is None else leaf.tasks for leaf in laid.leaves]
        lists = np.zeros(4 * few + many + laid.depth + 1, dtype=np.int64)
        lists[: few - 1] = np.argsort(rows[1:, 1], kind="stable") + 1
        width = kinds + bool((rows[:, 0] == _ORDERS["fair"]).any())
        node_size, leaf_size = w.NODE_WIDES + w.NODE_VECTORS * width, w.LEAF_WIDES + width
        leaf_at = 1 + few * node_size
        group_at = leaf_at + many * leaf_size
        dims = np.zeros(w.DIMS, dtype=np.int64)
        dims[: w.STAMP] = (
            *(width, kinds, sum([1 << j for j, have in enumerate(capacity) if have > 0]), 0),
            *(few, node_size, many, leaf_at, leaf_size, group_at),
            *(few, 4 * few, 4 * few + many),
        )
        words = np.zeros((group_at + many + kinds, 4), dtype=np.int64)
        units = b"".join([(ONE // have if have > 0 else 0).to_bytes(32, "little") for have in capacity])
        words[group_at + many :] = np.frombuffer(units, dtype=np.int64).reshape(-1, 4)
        in_nodes = words[1:leaf_at].reshape(few, node_size, 4)
        in_leaves = words[leaf_at:group_at].reshape(many, leaf_size, 4)
        heaviest = laid.heaviest
        ups, downs = self._relative(laid.weights[1:], [heaviest[above] for above in rows[1:, 1].tolist()])
        in_nodes[1:, w.UP, 0], in_nodes[1:, w.DOWN, 0] = ups, downs
        above = [heaviest[owner] for owner in owners.tolist()]
        ups, downs = self._relative([leaf.weight for leaf in laid.leaves], above)
        in_leaves[:, w.LEAF_UP, 0], in_leaves[:, w.LEAF_DOWN, 0] = ups, downs
        groups = np.zeros((many, w.GROUP_INTS), dtype=np.int64)
        return w.Flow(words.reshape(-1), nodes, leaves, groups, lists, dims)

    def _relative(self, weights: Sequence[int | Fraction], heaviest: Sequence[int | Fraction]) -> tuple[Any, Any]:
        """Weights over the greatest of their siblings, as numerators and denominators."""
        np = self._np
        if {int}.issuperset(map(type, chain(weights, heaviest))):
            return np.array(weights, dtype=np.int64), np.array(heaviest, dtype=np.int64)
        ups = [each.numerator * most.denominator for each, most in zip(weights, heaviest, strict=True)]
        downs = [each.denominator * most.numerator for each, most in zip(weights, heaviest, strict=True)]
        return np.array(ups, dtype=np.int64), np.array(downs, dtype=np.int64)

    def _demands_of(self, leaves: Sequence[Node]) -> tuple[Any, Any]:
        """Demands in one word each, or in two where one is too few."""
        np, kinds = self._np, self._kinds
        nothing = [0] * kinds
        amounts = list(chain.from_iterable([leaf.demand or nothing for leaf in leaves]))
        try:
            return np.array(amounts, dtype=np.int64).reshape(-1, kinds), np.zeros((0, kinds), dtype=np.int64)
        except OverflowError:
            lowest = (1 << _WORD_BITS) - 1
            low = np.array([amount & lowest for amount in amounts], dtype=np.int64)
            high = np.array([amount >> _WORD_BITS for amount in amounts], dtype=np.int64)
            return low.reshape(-1, kinds), high.reshape(-1, kinds)


@dataclass(slots=True)
class Filled:
    """What every leaf and every node came to: `units`, billionths of the cell and no more than all of it; `satisfied`,
    whether it has all it asked for. Names as in the plot; `full`: the kinds that are used up, a bit each."""

    names: list[str]
    inner: list[str | None]
    _shares: bytes
    _inner_shares: bytes
    units: list[int]
    inner_units: list[int]
    satisfied: list[bool]
    inner_satisfied: list[bool]
    full: int

    def shares(self) -> list[int]:
        """Dominant shares of the leaves, of `ONE`."""
        return _numbers(self._shares)

    def inner_shares(self) -> list[int]:
        """And of the nodes."""
        return _numbers(self._inner_shares)


def plot_of(root: Node, capacity: Sequence[int]) -> Plot | None:
    """A tree laid out; None where filling it is left to plain Python."""
    try:
        return Plot(root, capacity)
    except (ImportError, OverflowError):
        return None


def is_large(root: Node) -> bool:
    """Whether a tree has so many leaves that arrays pay. Goes by what is loaded, which nothing but time tells."""
    least = LEAVES_FEW if _code.cache_info().currsize else LEAVES_MIN
    found, ahead = 0, [root]
    while ahead:
        children = ahead.pop().children
        below = [child for child in children if child.children]
        found += len(children) - len(below)
        if found >= least:
            return True
        ahead += below
    return False


def warm_up() -> None:
    """Have the code compiled, or loaded, before it is needed."""
    plot = plot_of(Node("root", children=[Node("leaf", demand=[1])]), [1])
    if plot is not None:
        plot.fill()


def _numbers(wides: bytes) -> list[int]:
    """Wides that are not below 0."""
    return [int.from_bytes(wides[at : at + 32], "little") for at in range(0, len(wides), 32)]
