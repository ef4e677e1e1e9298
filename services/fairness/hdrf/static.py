"""Static H-DRF (Bhattacharya et al., SoCC 2013, section 3.1): what every queue is entitled to, by events, not slivers.

Water-fill a weighted tree: from the root always towards the demanding child with the least dominant share / weight,
until every leaf has all it asks for or needs a kind that is full. Between two events everything moves on straight
lines, so only the events are computed: a kind is full; a leaf is satisfied; a child that was ahead is caught up with;
another kind becomes dominant in an inner node. Kinds that are full count in no inner node's share (Algorithm 1 of the
paper counts them, and so ties differently). A node whose dominant kind none of its takers asks for does not rise until
another kind overtakes: so long it alone is filled, or several such nodes in proportion to their weights (the paper
leaves ties to chance).

`fill(root, capacity)` is pure. A leaf is served in fractions of its tasks; `whole_tasks.py` gives whole ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heapreplace
from itertools import compress
from operator import add, mul, sub

from services.fairness.hdrf.arrays import plot_of
from services.fairness.hdrf.node_fill import InnerFill, LeafFill
from services.fairness.tree import NEAR, ONE, ONE_BITS, RANK_ORDERS, TreeNode, in_rank, share_units, walk


@dataclass(slots=True)
class Reached:
    """How far a node got. `share` of `ONE` is its dominant share, not divided by its weight."""

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

    Small trees are filled by events, in integers; large ones in arrays (`arrays.py`), to 2^-30 of the cell.
    """
    plot = plot_of(root, capacity)
    if plot is None:
        return fill_by_events(root, capacity)
    found = plot.fill()
    leaves = map(Reached, found.shares(), found.satisfied)
    nodes = map(Reached, found.inner_shares(), found.inner_satisfied)
    return Fill(
        dict(zip(found.names, leaves, strict=True)),
        dict(zip(found.inner, nodes, strict=True)),
        [found.full >> j & 1 == 1 for j in range(len(capacity))],
    )


def fill_by_events(root: TreeNode, capacity: Sequence[int]) -> Fill:
    """`fill` of a tree of any size and order, within 2^-60 of the cell: all in integers, and what lies that close is a
    tie.
    """
    flow = _Flow(root, capacity, {})
    while not flow.top.blocked:
        flow.step()
    return flow.result(root)


def pour(
    root: TreeNode, capacity: Sequence[int], tasks: Mapping[str, int], full: int, spare: Sequence[int]
) -> dict[str, int]:
    """Go on from where leaves hold `tasks`, until only `spare` base units of a kind are left that is not `full`.

    Returns the whole tasks that each leaf then holds. `full`: the kinds to leave out from the start, a bit each.
    """
    flow = _Flow(root, capacity, tasks)
    for j in flow.kinds:
        # Where less is left from the start, it goes on until a leaf asks for that kind.
        flow.top.used[j] = min(flow.top.used[j] + (spare[j] << ONE_BITS) // capacity[j], ONE - 2 * NEAR)
    flow.shut([j for j in flow.kinds if full >> j & 1])
    shut = flow.full
    while not flow.top.blocked and flow.full == shut:
        flow.step()
    return flow.whole_tasks()


class _Flow:
    """One filling of one tree: the events in their order."""

    def __init__(self, root: TreeNode, capacity: Sequence[int], tasks: Mapping[str, int]) -> None:
        self.capacity = capacity
        self.tasks = tasks  # What leaves hold at first.
        self.kinds = [j for j, have in enumerate(capacity) if have > 0]
        self.units = [ONE // have if have > 0 else 0 for have in capacity]
        self.bits = [1 << j for j in range(len(capacity))]
        self.full = 0  # A bit for each kind that is used up.
        fair = any(node.order == "fair" for node in walk(root))
        self.width = len(capacity) + fair  # One more place counts tasks for the order `fair`.
        self.inners: list[InnerFill] = []
        self.top = self.add_node(root)
        if fair:
            self.top.used[-1] = _NEVER_FULL
        self.shut([j for j, have in enumerate(capacity) if have <= 0])  # Of nothing, everything is used up.

    def add_node(self, node: TreeNode) -> InnerFill:
        """The working copy of a subtree. A leaf gets an inner node around it."""
        order = node.order if node.children else "hdrf"
        inner = InnerFill(node.name if node.children else None, order, len(self.inners), self.width)
        self.inners.append(inner)
        children = in_rank(node.children) if order in RANK_ORDERS else node.children or [node]
        heaviest = max([child.weight for child in children])
        for child in children:
            up = child.weight.numerator * heaviest.denominator
            down = child.weight.denominator * heaviest.numerator
            if child.children or order in RANK_ORDERS:
                below = self.add_node(child)  # Under a rank order a leaf goes its own pace, like an inner node.
                below.weight_up, below.weight_down = up, down
                inner.inner.append(below)
                inner.used = list(map(add, inner.used, below.used))
            else:
                inner.leaves.append(self.add_leaf(order, child, up, down))
        inner.open_leaves()
        return inner

    def add_leaf(self, order: str, node: TreeNode, up: int, down: int) -> LeafFill:
        """A leaf whose weight among its siblings is `up / down`."""
        held = self.tasks.get(node.name, 0) if self.tasks else 0
        asks = node.tasks is None or node.tasks > held
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
        return leaf

    def step(self) -> None:
        """Move on to the next event. Where a kind is full at that very moment, the event comes first."""
        top = self.top
        if top.due is None:
            self.flow_until_full()
            return
        ahead = top.due - top.clock
        used = list(map(add, top.used, [speed * ahead >> ONE_BITS for speed in top.speed]))
        most = max(used)
        if most > ONE + NEAR:
            self.flow_until_full()
            return
        top.arrive(top.due, used)
        self.happen(top)
        if most >= ONE - NEAR:
            self.shut([j for j in self.kinds if used[j] >= ONE - NEAR])

    def flow_until_full(self) -> None:
        """Move on to where the next kind is used up."""
        top = self.top
        ahead = {j: (ONE - top.used[j] << ONE_BITS) // top.speed[j] for j in self.kinds if top.speed[j] > 0}
        first = min(ahead.values())
        top.advance(top.clock + first)
        self.shut([j for j in self.kinds if ahead.get(j) == first or top.used[j] >= ONE - NEAR])

    def happen(self, inner: InnerFill) -> None:
        """Everything that is due at the present of a node, from its children up."""
        lagging = inner.lagging
        heap = inner.lags if lagging else inner.rises
        now = inner.lag if lagging else inner.level
        while heap and heap[0][0] <= now:
            child = heap[0][1]
            still, given = child.still, child.given
            clock = child.due
            assert clock is not None, "only what is due happens"
            child.advance(clock)
            self.happen(child)
            if still or child.still or child.blocked:
                heappop(heap)
                inner.detach(child, still, given)
                if not child.blocked:
                    inner.attach(child)
                continue
            inner.rise_speed = list(map(add, map(sub, inner.rise_speed, given), child.given))
            child.mark = inner.level
            if child.due is None:
                heappop(heap)
            else:
                heapreplace(heap, (now + (child.pace * (child.due - child.clock) >> ONE_BITS), child))
        if not lagging:
            if inner.front_active or inner.starts:
                inner.satisfy()
            inner.join()
        inner.settle()

    def shut(self, kinds: Sequence[int]) -> None:
        """These kinds are used up: who needs one is blocked, and they count no more."""
        self.catch_up(self.top)
        for j in kinds:
            self.full |= 1 << j
            self.top.used[j] = _NEVER_FULL
        self.rebuild(self.top)

    def catch_up(self, inner: InnerFill) -> None:
        """Bring everything below to the present, on the straight lines since its last event."""
        if inner.front_active:
            inner.front = inner.level
        for child in inner.inner:
            if child.attached:
                now = inner.lag if child.still else inner.level
                clock = child.clock + ((now - child.mark << ONE_BITS) // child.pace)
                child.advance(clock if child.due is None else min(clock, child.due))
                child.mark = now
                self.catch_up(child)

    def rebuild(self, inner: InnerFill) -> None:
        """Recompute, from the leaves up, which nodes can take more, their shares, and how fast the shares grow."""
        counted = self.counted(inner.order)
        for child in inner.inner:
            child.counted = counted
            self.rebuild(child)
        inner.inner = [child for child in inner.inner if not child.blocked]
        inner.start_over(self.full)
        if inner.order in RANK_ORDERS:
            inner.line = inner.inner[::-1]
        else:
            inner.line_up()
        inner.settle()

    def counted(self, order: str) -> Sequence[int]:
        """The kinds that a node's children are compared by. None under a rank order."""
        if order == "hdrf":
            return [j for j in self.kinds if not self.full >> j & 1]
        if order == "naive":
            return self.kinds
        return [len(self.capacity)] if order == "fair" else []

    def whole_tasks(self) -> dict[str, int]:
        """The whole tasks in what each leaf holds, at the moment at which a kind became full."""
        found = dict(self.tasks)
        for inner in self.inners:
            for leaf in inner.leaves:
                if leaf.each:
                    level = (
                        leaf.level_max
                        if leaf.satisfied
                        else max(leaf.level_min, inner.ends.get(leaf.mask, inner.front))
                    )
                    found[leaf.name] = max(self.tasks.get(leaf.name, 0), ((level or 0) + NEAR) // leaf.each)
        return found

    def result(self, root: TreeNode) -> Fill:
        found = Fill({}, {}, [self.full >> j & 1 == 1 for j in range(len(self.capacity))])
        for inner in self.inners:
            for leaf in inner.leaves:
                if leaf.satisfied:
                    found.leaves[leaf.name] = Reached(leaf.share_max, True)
                else:
                    level = max(leaf.level_min, inner.ends[leaf.mask])
                    found.leaves[leaf.name] = Reached(level * leaf.rise >> ONE_BITS, False)
            if inner.name is not None:
                found.nodes[inner.name] = Reached(max([inner.used[j] for j in self.kinds], default=0), True)
        if root.children and any(self.full >> j & 1 for j in self.kinds):
            found.nodes[root.name].share = ONE
        _hold_back(root, found)
        return found


_NEVER_FULL = -1 << 4 * ONE_BITS
"""What the top seems to hold of a kind that is not to fill up (again): far below anything that flows in."""


def _hold_back(node: TreeNode, found: Fill) -> bool:
    """Mark the inner nodes with a leaf below that is not satisfied. Returns whether all are satisfied."""
    if not node.children:
        return found.leaves[node.name].satisfied
    below = [_hold_back(child, found) for child in node.children]
    found.nodes[node.name].satisfied = all(below)
    return all(below)
