"""Static H-DRF (Bhattacharya et al., SoCC 2013, section 3.1): what every queue is entitled to, computed event by event.

Progressive filling (water-filling) of a weighted tree: from the root always towards the demanding child with the least
dominant share / weight, until every leaf has all it asks for or needs a kind that is full (saturated). Between two
events everything grows linearly, so only the events are computed: a kind becomes full; a leaf is satisfied; the filling
reaches a child whose share was ahead; another kind becomes dominant in an inner node. Kinds that are full count in no
inner node's share (Algorithm 1 of the paper counts them, and so ties differently). If no child that takes asks for a
node's dominant kind, the node's share does not grow until another kind overtakes: the node is *stalled*, and until then
only it is filled, or several such nodes in proportion to their weights (the paper leaves ties open).

`fill(root, capacity)` is pure. A leaf is served in fractions of its tasks; `whole_tasks.py` gives whole ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import mul, sub

from services.fairness.hdrf.arrays import array_tree_of
from services.fairness.hdrf.leaf_fill import LeafFill
from services.fairness.hdrf.node_fill import Flow, InnerFill
from services.fairness.tree import NEAR, ONE, ONE_BITS, RANK_ORDERS, TreeNode, in_rank, share_units, walk


@dataclass(slots=True)
class Reached:
    """The allocation of a node. `share` of `ONE` is its dominant share, not divided by its weight."""

    share: int
    satisfied: bool  # It has all it asked for; otherwise a full kind holds it back.

    @property
    def share_units(self) -> int:
        """Billionths of the cell, rounded down."""
        return share_units(self.share)


@dataclass(slots=True)
class Fill:
    """The static allocation: every leaf and every inner node by name; `full[j]` tells whether kind j is used up."""

    leaves: dict[str, Reached]
    nodes: dict[str, Reached]
    full: list[bool]


def fill(root: TreeNode, capacity: Sequence[int]) -> Fill:
    """Fluid static H-DRF of an empty cell, in the units of `capacity`; what nodes hold already is ignored.

    Small trees are filled by events, in integers; large ones, if they have no maxima, in arrays (`arrays.py`), to 2^-30
    of the cell.
    """
    tree = array_tree_of(root, capacity)
    if tree is None:
        return fill_by_events(root, capacity)
    found = tree.fill()
    leaves = map(Reached, found.shares(), found.satisfied.tolist())
    nodes = map(Reached, found.inner_shares(), tree.inner_satisfied(found.satisfied))
    return Fill(
        dict(zip(found.names, leaves, strict=True)),
        dict(zip(found.inner, nodes, strict=True)),
        [found.full >> j & 1 == 1 for j in range(len(capacity))],
    )


def fill_by_events(root: TreeNode, capacity: Sequence[int]) -> Fill:
    """`fill` for a tree of any size and order, with maxima, exact to 2^-60 of the cell: in integers, where differences
    below that are ties.
    """
    layout = _Layout(root, capacity, {})
    flow = Flow(layout.inners, capacity, layout.width)
    flow.run()
    return _result(flow, layout.based, root, capacity)


def pour(
    root: TreeNode, capacity: Sequence[int], tasks: Mapping[str, int], full: int, spare: Sequence[int]
) -> dict[str, int]:
    """Continues a filling in which leaves hold `tasks`, until only `spare` base units are left of a kind that is not in
    `full`, the kinds to leave out from the start, a bit each. Returns the whole tasks that each leaf then holds.
    """
    layout = _Layout(root, capacity, tasks)
    flow = Flow(layout.inners, capacity, layout.width)
    for j in flow.kinds:
        # Where less is left from the start, it goes on until a leaf asks for that kind.
        flow.top.used[j] = min(flow.top.used[j] + (spare[j] << ONE_BITS) // capacity[j], ONE - 2 * NEAR)
    flow.run_until_full([j for j in flow.kinds if full >> j & 1])
    return _whole_tasks(flow, tasks)


class _Layout:
    """The working copy of a tree: `inners`, its inner nodes, parents before their children. `width`: of their vectors;
    one more place than kinds counts tasks for the order `fair`. `based`: by leaf with a base and more, the inner node
    around both.
    """

    def __init__(self, root: TreeNode, capacity: Sequence[int], tasks: Mapping[str, int]) -> None:
        self.tasks = tasks  # What leaves hold at first.
        self.units = [ONE // have if have > 0 else 0 for have in capacity]
        self.bits = [1 << j for j in range(len(capacity))]
        self.width = len(capacity) + any(node.order == "fair" for node in walk(root))
        self.inners: list[InnerFill] = []
        self.based: dict[str, InnerFill] = {}
        self.add_node(root)

    def add_node(self, node: TreeNode) -> InnerFill:
        """A subtree. A leaf gets an inner node around it."""
        order = node.order if node.children else "hdrf"
        inner = InnerFill(node.name if node.children else None, order, len(self.inners), self.width)
        self.inners.append(inner)
        inner.most = [(j, most * self.units[j]) for j, most in enumerate(node.most) if most is not None]
        children = in_rank(node.children) if order in RANK_ORDERS else node.children or [node]
        heaviest = max([child.weight for child in children])
        for child in children:
            up = child.weight.numerator * heaviest.denominator
            down = child.weight.denominator * heaviest.numerator
            parts = _parts_of(child)
            if not (parts or child.children or order in RANK_ORDERS):
                inner.leaves.append(self.add_leaf(order, child, up, down))
                continue
            # Under a rank order a leaf is filled at its own pace, like an inner node.
            below = self.add_node(TreeNode("", children=parts, order="fifo") if parts else child)
            if parts:
                below.name, self.based[child.name] = None, below
            below.weight_up, below.weight_down = up, down
            inner.inner.append(below)
        return inner

    def add_leaf(self, order: str, node: TreeNode, up: int, down: int) -> LeafFill:
        """A leaf whose weight among its siblings is `up / down`."""
        held = self.tasks.get(node.name, 0) if self.tasks else 0
        claim = 0 if held else node.claim
        asks = (node.tasks is None or node.tasks > held) and claim < ONE
        shares = list(map(mul, node.demand, self.units)) if node.demand else [0]
        dominant = max(shares)
        mask = sum(compress(self.bits, node.demand)) if asks else 0
        leaf = LeafFill(node.name, mask, max(node.tasks or 0, held) * dominant)
        if not dominant:
            return leaf  # It asks for nothing, or for what the cell has not got.
        if self.width > len(shares):
            shares.append(ONE)
        each = ONE if order == "fair" else dominant
        weight = (up << ONE_BITS) // down
        leaf.speed = [share * weight // each for share in shares]
        leaf.rise = dominant * weight // each
        leaf.each = each * down // up
        if node.tasks is not None:
            leaf.level_max = leaf.each * node.tasks
        if held:
            leaf.held = [share * held for share in shares]
            leaf.level_min = leaf.each * held
        elif claim:
            leaf.held = [share * claim >> ONE_BITS for share in shares]
            leaf.level_min = leaf.each * claim >> ONE_BITS
        return leaf


def _parts_of(leaf: TreeNode) -> list[TreeNode]:
    """A leaf with a base and more as two, the base first; otherwise none."""
    rest = list(map(sub, leaf.demand, leaf.base))
    if leaf.children or not any(leaf.base) or not any(rest):
        return []
    return [TreeNode("", demand=leaf.base), TreeNode(leaf.name, demand=rest, rank=1)]


def _whole_tasks(flow: Flow, held: Mapping[str, int]) -> dict[str, int]:
    """The whole tasks that each leaf holds when a kind has become full; `held`: those it held at first."""
    found = dict(held)
    for inner in flow.inners:
        for leaf in inner.leaves:
            if leaf.each:
                level = leaf.level_max
                if not leaf.satisfied:
                    level = max(leaf.level_min, inner.ends.get(leaf.mask, inner.front))
                found[leaf.name] = max(held.get(leaf.name, 0), ((level or 0) + NEAR) // leaf.each)
    return found


def _result(flow: Flow, based: Mapping[str, InnerFill], root: TreeNode, capacity: Sequence[int]) -> Fill:
    found = Fill({}, {}, [flow.full >> j & 1 == 1 for j in range(len(capacity))])
    for inner in flow.inners:
        for leaf in inner.leaves:
            if leaf.satisfied:
                found.leaves[leaf.name] = Reached(leaf.share_max, True)
            else:
                level = max(leaf.level_min, inner.ends[leaf.mask])
                found.leaves[leaf.name] = Reached(level * leaf.rise >> ONE_BITS, False)
        if inner.name is not None:
            found.nodes[inner.name] = Reached(max([inner.used[j] for j in flow.kinds], default=0), True)
    found.leaves.pop("", None)  # The bases.
    for name, inner in based.items():
        found.leaves[name].share = max([inner.used[j] for j in flow.kinds], default=0)
    if root.children and any(flow.full >> j & 1 for j in flow.kinds):
        found.nodes[root.name].share = ONE
    _hold_back(root, found)
    return found


def _hold_back(node: TreeNode, found: Fill) -> bool:
    """Mark the inner nodes with a leaf below that is not satisfied. Returns whether all are satisfied."""
    if not node.children:
        return found.leaves[node.name].satisfied
    below = [_hold_back(child, found) for child in node.children]
    found.nodes[node.name].satisfied = all(below)
    return all(below)
