"""Static H-DRF once more, from the definition, in fractions: slow, without heaps, everything worked out anew at every
event.

Shares nothing with `services.fairness` but the tree's node. At each event it asks who takes at this very instant, how
fast, and what of all that can happen happens first.

A maximum is a saturated kind for those below it alone: once a node holds all that it may of a kind, its leaves that
need that kind are blocked, and the kind counts in no share by which nodes below it are compared. In the comparison of
the node itself with its siblings it counts like any other.

A leaf with a base takes that first, unless a kind of it is shut, then the rest of what it asks for. A leaf with a claim
has that part of what it asks for from the start.
"""

from dataclasses import dataclass, field
from fractions import Fraction

from services.fairness.tree import ONE, TreeNode


@dataclass
class Motion:
    """How a node moves per unit of its own clock: what it takes, how fast its share / weight rises, who below takes."""

    speed: list[Fraction]
    rise: Fraction
    parts: list[tuple[TreeNode, Fraction]]  # Child, and its clock per unit of this clock.


@dataclass
class Oracle:
    root: TreeNode
    capacity: list[int]
    counts_full: bool = False  # Naive: what is full counts in inner shares, as Algorithm 1 is printed.
    tasks: dict[str, Fraction] = field(default_factory=dict)
    based: dict[str, Fraction] = field(default_factory=dict)  # The part of its base that a leaf has got.
    full: set[int] = field(default_factory=set)
    motions: dict[str, Motion] = field(default_factory=dict)

    def __post_init__(self):
        self.kinds = [j for j, have in enumerate(self.capacity) if have]
        self.tasks = {leaf.name: Fraction(leaf.claim, ONE) for leaf in self.leaves(self.root)}
        self.based = {leaf.name: Fraction(not any(leaf.base)) for leaf in self.leaves(self.root)}
        self.parent = {child.name: node for node in self.nodes(self.root) for child in node.children}

    def nodes(self, node):
        return [node, *(below for child in node.children for below in self.nodes(child))]

    def at_most(self, node):
        """The kinds of which a node holds all that it may."""
        usage = self.usage(node)
        return {
            j
            for j, most in enumerate(node.most)
            if most is not None and self.capacity[j] and usage[j] >= Fraction(most, self.capacity[j])
        }

    def shares(self, vector):
        vector = vector or [0] * len(self.capacity)
        return [Fraction(need, have) if have else Fraction(0) for need, have in zip(vector, self.capacity, strict=True)]

    def rest(self, leaf):
        """What a leaf asks for beside its base."""
        return [need - base for need, base in zip(leaf.demand, leaf.base or [0] * len(leaf.demand), strict=True)]

    def on_base(self, leaf):
        """Whether what a leaf takes next is its base."""
        if self.based[leaf.name] == 1:
            return False
        return not any(need and (j in self.shut(leaf) or not self.capacity[j]) for j, need in enumerate(leaf.base))

    def next_of(self, leaf):
        """What a leaf takes next, as one task."""
        return leaf.base if self.on_base(leaf) else self.rest(leaf)

    def shut(self, node):
        """The kinds that nobody below the parent of a node can get any more."""
        found, above = set(self.full), self.parent.get(node.name)
        while above is not None:
            found |= self.at_most(above)
            above = self.parent.get(above.name)
        return found

    def leaves(self, node):
        return [leaf for child in node.children for leaf in self.leaves(child)] if node.children else [node]

    def usage(self, node):
        if node.children:
            return [sum(column) for column in zip(*(self.usage(child) for child in node.children), strict=True)]
        base, rest = self.shares(node.base), self.shares(self.rest(node))
        return [
            of_base * self.based[node.name] + of_rest * self.tasks[node.name]
            for of_base, of_rest in zip(base, rest, strict=True)
        ]

    def can_take(self, node):
        if node.children:
            return any(self.can_take(child) for child in node.children)
        if self.on_base(node):
            return True
        asks = [j for j, need in enumerate(self.rest(node)) if need]
        shut = self.shut(node)
        if not asks or any(j in shut or not self.capacity[j] for j in asks):
            return False
        return node.tasks is None or self.tasks[node.name] < node.tasks

    def counted(self, node):
        if (node.children or any(node.base)) and not self.counts_full:
            shut = self.shut(node)
            return [j for j in self.kinds if j not in shut]
        return self.kinds

    def height(self, node):
        usage = self.usage(node)
        return max((usage[j] for j in self.counted(node)), default=Fraction(0)) / node.weight

    def move(self, node):
        """The motion of a node that can take."""
        if not node.children:
            each = self.shares(self.next_of(node))
            speed = [share / max(each) * node.weight for share in each]
            usage, counted = self.usage(node), self.counted(node)
            top = max(usage[j] for j in counted)
            rise = max(speed[j] for j in counted if usage[j] == top) / node.weight if any(node.base) else Fraction(1)
            motion = Motion(speed, rise, [])
        else:
            takers = [child for child in node.children if self.can_take(child)]
            least = min(self.height(child) for child in takers)
            lowest = [child for child in takers if self.height(child) == least]
            moves = {child.name: self.move(child) for child in lowest}
            still = [child for child in lowest if moves[child.name].rise == 0]
            parts = [
                (child, 1 / (moves[child.name].rise or max(moves[child.name].speed) / child.weight))
                for child in still or lowest
            ]
            speed = [
                sum(moves[child.name].speed[j] * clock for child, clock in parts) for j in range(len(self.capacity))
            ]
            usage = self.usage(node)
            counted = self.counted(node)
            top = max(usage[j] for j in counted)
            rise = max(speed[j] for j in counted if usage[j] == top) / node.weight
            motion = Motion(speed, rise, parts)
        self.motions[node.name] = motion
        return motion

    def times(self, node, clock):
        """Root clock until each thing that can happen below `node`, which moves `clock` per unit of the root's."""
        motion = self.motions[node.name]
        if not node.children:
            each = max(self.shares(self.next_of(node)))
            if self.on_base(node):
                yield (1 - self.based[node.name]) * each / max(motion.speed) / clock
            elif node.tasks is not None:
                yield (node.tasks - self.tasks[node.name]) * each / max(motion.speed) / clock
            if not any(node.base):
                return
        usage, counted = self.usage(node), self.counted(node)
        top = max(usage[j] for j in counted)
        for j in counted:
            if motion.speed[j] > motion.rise * node.weight and usage[j] < top:
                yield (top - usage[j]) / (motion.speed[j] - motion.rise * node.weight) / clock
        moving = {child.name for child, _ in motion.parts}
        least = min((self.height(child) for child in node.children if child.name in moving), default=None)
        if any(self.motions[name].rise for name in moving):
            for child in node.children:
                if child.name not in moving and self.can_take(child) and self.height(child) > least:
                    yield (self.height(child) - least) / clock
        for j, most in enumerate(node.most):
            if most is not None and motion.speed[j] and usage[j] < Fraction(most, self.capacity[j]):
                yield (Fraction(most, self.capacity[j]) - usage[j]) / motion.speed[j] / clock
        for child, child_clock in motion.parts:
            yield from self.times(child, clock * child_clock)

    def advance(self, node, clock, time):
        motion = self.motions[node.name]
        if not node.children:
            parts = self.based if self.on_base(node) else self.tasks
            parts[node.name] += max(motion.speed) * clock * time / max(self.shares(self.next_of(node)))
        for child, child_clock in motion.parts:
            self.advance(child, clock * child_clock, time)

    def run(self):
        while self.can_take(self.root):
            motion = self.move(self.root)
            usage = self.usage(self.root)
            times = list(self.times(self.root, Fraction(1)))
            times += [(1 - usage[j]) / motion.speed[j] for j in self.kinds if motion.speed[j]]
            self.advance(self.root, Fraction(1), min(times))
            usage = self.usage(self.root)
            self.full |= {j for j in self.kinds if usage[j] == 1}
        return self

    def share(self, node):
        return max((self.usage(node)[j] for j in self.kinds), default=Fraction(0))


def oracle(root, capacity, **options):
    """The static allocation, exact. Shares by `.share(node)`."""
    return Oracle(root, list(capacity), **options).run()
