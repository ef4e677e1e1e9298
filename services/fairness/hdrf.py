"""Static H-DRF (Bhattacharya et al., SoCC 2013, section 3.1): what every queue is entitled to, by events, not slivers.

Water-fill a weighted tree: from the root always towards the demanding child with the least dominant share / weight,
until every leaf has all it asks for or needs a kind that is full. Between two events everything moves on straight
lines, so only the events are computed: a kind is full; a leaf is satisfied; a child that was ahead is caught up with;
another kind becomes dominant in an inner node. Kinds that are full count in no inner node's share (Algorithm 1 of the
paper counts them, and so ties differently). A node whose dominant kind none of its takers asks for does not rise until
another kind overtakes: so long it alone is filled, or several such nodes in proportion to their weights (the paper
leaves ties to chance).

`fill(root, capacity)` is pure. A leaf is served in fractions of its tasks; `whole.py` gives whole ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop

from services.fairness.tree import NEAR, ONE, ONE_BITS, RANK_ORDERS, Node, in_rank, share_units, walk
from services.fairness.water import Inner, Leaf, first_due


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


def fill(root: Node, capacity: Sequence[int]) -> Fill:
    """Fluid static H-DRF of an empty cell, in the units of `capacity`; what nodes hold already is ignored.

    The answer is within 2^-60 of the cell and the same everywhere: all in integers, and what lies that close is a tie.
    """
    flow = _Flow(root, capacity)
    while not flow.top.blocked:
        flow.step()
    return flow.result(root)


class _Flow:
    """One filling of one tree: the events in their order."""

    def __init__(self, root: Node, capacity: Sequence[int]) -> None:
        self.capacity = capacity
        self.kinds = [j for j, have in enumerate(capacity) if have > 0]
        self.full = sum([1 << j for j, have in enumerate(capacity) if have <= 0])  # Of nothing, everything is used up.
        fair = any(node.order == "fair" for node in walk(root))
        self.width = len(capacity) + fair  # One more place counts tasks for the order `fair`; it is never full.
        self.inners: list[Inner] = []
        self.top = self.plant(Node("", children=[root]))
        self.rebuild(self.top)

    def plant(self, node: Node) -> Inner:
        """The working copy of a subtree, empty."""
        inner = Inner(node.name, node.order, len(self.inners), self.width)
        self.inners.append(inner)
        ranked = node.order in RANK_ORDERS
        heaviest = max([child.weight for child in node.children])
        for child in in_rank(node.children) if ranked else node.children:
            up = child.weight.numerator * heaviest.denominator
            down = child.weight.denominator * heaviest.numerator
            if child.children or ranked:  # Under a rank order a leaf goes its own pace, like an inner node.
                below = self.plant(child if child.children else Node("", children=[child]))
                below.weight_up, below.weight_down = up, down
                inner.inner.append(below)
            else:
                inner.leaves.append(self.plant_leaf(node.order, child, up, down))
        inner.open_leaves()
        return inner

    def plant_leaf(self, order: str, node: Node, up: int, down: int) -> Leaf:
        """A leaf whose weight among its siblings is `up / down`."""
        shares = [
            (need << ONE_BITS) // have if have > 0 else 0 for need, have in zip(node.demand, self.capacity, strict=True)
        ]
        dominant = max(shares)
        leaf = Leaf(node.name)
        if node.tasks == 0 or not any(node.demand):
            leaf.satisfied = True
            return leaf
        for j, need in enumerate(node.demand):
            if need:
                leaf.mask |= 1 << j
        if leaf.mask & self.full:
            return leaf  # It asks for what the cell has not got.
        height = dominant  # What a task adds to its share / weight, before the weight.
        if self.width > len(shares):
            shares.append(ONE)
            height = ONE if order == "fair" else dominant
        weight = (up << ONE_BITS) // down
        leaf.speed = [share * weight // height for share in shares]
        leaf.rise = dominant * weight // height
        if node.tasks is not None:
            leaf.level_max = node.tasks * height * down // up
            leaf.share_max = node.tasks * dominant
        return leaf

    def step(self) -> None:
        """Move on to the next event."""
        top = self.top
        if top.due is None or self.overflows(top.due - top.clock):
            self.flow_until_full()
        else:
            self.happen(top)
            full = [j for j in self.kinds if top.used[j] >= ONE - NEAR and not self.full >> j & 1]
            if full:
                self.shut(full)

    def overflows(self, ahead: int) -> bool:
        """Whether a kind is full before `ahead` has passed. Where both come at once, the event comes first."""
        used, speed = self.top.used, self.top.speed
        return any(used[j] + (speed[j] * ahead >> ONE_BITS) > ONE + NEAR for j in self.kinds)

    def flow_until_full(self) -> None:
        """Move on to where the next kind is used up."""
        top = self.top
        ahead = {j: (ONE - top.used[j] << ONE_BITS) // top.speed[j] for j in self.kinds if top.speed[j] > 0}
        first = min(ahead.values())
        top.advance(top.clock + first)
        self.shut([j for j in ahead if ahead[j] == first or top.used[j] >= ONE - NEAR])

    def happen(self, inner: Inner) -> None:
        """Everything that is due in a node now, from its children up."""
        lagging = inner.lagging
        assert inner.due is not None, "only what is due happens"
        inner.advance(inner.due)
        heap, now = (inner.lags, inner.lag) if lagging else (inner.rises, inner.level)
        while (due := first_due(heap)) is not None and due <= now:
            child = heappop(heap)[3]
            inner.detach(child)
            self.happen(child)
            if not child.blocked:
                inner.attach(child)
        if not lagging:
            inner.satisfy()
            inner.join()
        inner.settle()

    def shut(self, kinds: Sequence[int]) -> None:
        """These kinds are used up: who needs one is blocked, and they count no more."""
        self.catch_up(self.top)
        for j in kinds:
            self.full |= 1 << j
        self.rebuild(self.top)

    def catch_up(self, inner: Inner) -> None:
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

    def rebuild(self, inner: Inner) -> None:
        """Find anew who can take, how high everybody stands and how fast they move, from the leaves up."""
        counted = self.counted(inner.order)
        for child in inner.inner:
            child.counted = counted
            if not child.blocked:
                self.rebuild(child)
        inner.inner = [child for child in inner.inner if not child.blocked]
        inner.start_over(self.full)
        if inner.order in RANK_ORDERS:
            inner.line = inner.inner[::-1]
        else:
            self.line_up(inner)
        inner.settle()

    def counted(self, order: str) -> Sequence[int]:
        """The kinds that a node's children are compared by. None under a rank order."""
        if order == "hdrf":
            return [j for j in self.kinds if not self.full >> j & 1]
        if order == "naive":
            return self.kinds
        return [len(self.capacity)] if order == "fair" else []

    def line_up(self, inner: Inner) -> None:
        """The water falls to the lowest child; it and its equals take, the others wait ahead."""
        for child in inner.inner:
            child.measure()
        heights = [child.height for child in inner.inner]
        if inner.front_alive:
            heights.append(inner.front)
        inner.level = min(heights, default=0)
        if inner.front_alive and inner.front <= inner.level + NEAR:
            inner.level = inner.front
            inner.front_starts()
        elif inner.front_alive:
            inner.waiting.append((inner.front, -1, None))
        for child in inner.inner:
            if child.height <= inner.level + NEAR:
                inner.attach(child)
            else:
                inner.waiting.append((child.height, child.number, child))
        heapify(inner.waiting)

    def result(self, root: Node) -> Fill:
        found = Fill({}, {}, [self.full >> j & 1 == 1 for j in range(len(self.capacity))])
        for inner in self.inners:
            for leaf in inner.leaves:
                share = leaf.share_max if leaf.satisfied else inner.ends[leaf.mask] * leaf.rise >> ONE_BITS
                found.leaves[leaf.name] = Reached(share, leaf.satisfied)
            if inner.name:
                found.nodes[inner.name] = Reached(max([inner.used[j] for j in self.kinds], default=0), True)
        _hold_back(root, found)
        return found


def _hold_back(node: Node, found: Fill) -> bool:
    """Mark the inner nodes with a leaf below that is not satisfied."""
    if not node.children:
        return found.leaves[node.name].satisfied
    below = [_hold_back(child, found) for child in node.children]
    satisfied = all(below)
    found.nodes[node.name].satisfied = satisfied
    return satisfied
