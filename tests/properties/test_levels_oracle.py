"""The levels that the fairness core says at rest, against progressive filling from the definition, in fractions
(hdrf_oracle.py), of a tree that is built here from plain books: whatever was held, asked for and limited before.
"""

from fractions import Fraction
from math import floor

from hypothesis import assume
from hypothesis import strategies as st

from schemas.quantities import SHARE_UNITS
from services.fairness.tree import ONE, TreeNode, leaves, walk
from tests.properties.fairness_books import STEP, Books, covered, walked
from tests.properties.hdrf_oracle import oracle
from tests.properties.test_fairness_queues import CAPACITIES, LIMITS, moves, shapes
from tests.strategies import for_all

NEARLY = 8
"""Billionths that integers may be off."""
FINE, LEAST = 50, 10
"""Where guarantees stand for weights, a queue weighs at least 2^-40 of the heaviest one."""


class Filling:
    """The tree of a cell as it stands in the books: guarantees turned into weights, leaves with maxima clipped."""

    def __init__(self, books):
        self.books = books
        self.kinds = sorted(kind for kind, have in books.capacity.items() if have)
        self.capacity = [books.capacity[kind] for kind in self.kinds]
        self.sets, self.asks = books.demand_by_set, books.demand
        self.pledged = books.claim(books.tree, "", self.asks)
        self.root = self.node(books.tree, "", Fraction(1))
        self.hold_claims()

    def vector(self, amounts):
        return [amounts.get(kind, 0) for kind in self.kinds]

    def asked(self, path):
        return self.books.share(self.books.below_of(self.asks, path))

    def node(self, queue, path, part):
        if queue.children:
            paths = {f"{path}/{child.name}".lstrip("/"): child for child in queue.children}
            asking = {each: child for each, child in paths.items() if self.asked(each)}
            parts = self.parts(queue, path, asking, part)
            children = [self.node(child, each, parts.get(each, Fraction(0))) for each, child in asking.items()]
            for child in children:
                child.weight = self.weight(parts, asking, child.name)
        else:
            vectors = self.sets.get(path, {})
            if len(vectors) < 2:
                return self.leaf(queue, path)
            children = [TreeNode(f"{path}//{','.join(key)}", demand=self.vector(vectors[key])) for key in vectors]
        return TreeNode(path or "/", queue.weight, children, most=self.most(queue))

    def hold_claims(self):
        """Below a queue that asks for more than its maximum, leaves have what guarantees cover before anything is
        divided; less in proportion where that is more than there may be.
        """
        limited = [node for node in reversed(walk(self.root)) if node.children and self.is_beyond(node.name.strip("/"))]
        claims = {leaf.name: self.covered_of(leaf) for node in limited for leaf in leaves(node) if not any(leaf.base)}
        for node, most in [*[(node, node.most) for node in limited], (self.root, self.capacity)]:
            claiming = [leaf for leaf in leaves(node) if leaf.name in claims]
            for kind, limit in enumerate(most):
                total = sum(leaf.demand[kind] * claims[leaf.name] for leaf in claiming)
                if limit is not None and total > limit:
                    claims |= {leaf.name: claims[leaf.name] * limit / total for leaf in claiming if leaf.demand[kind]}
        for leaf in leaves(self.root):
            leaf.claim = claims.get(leaf.name, Fraction(0)) * ONE

    def is_beyond(self, path):
        queue, asks = dict(walked(self.books.tree))[path], self.books.below_of(self.asks, path)
        return any(asks.get(kind, 0) > most for kind, most in self.books.named(queue.max).items())

    def covered_of(self, leaf):
        """The part of what a leaf, or its tasks of one set of kinds, asks for within its maximum."""
        path, _, key = leaf.name.partition("//")
        named = self.books.named(dict(walked(self.books.tree))[path].guaranteed)
        asks = self.asks[path]
        part = min([Fraction(named[kind], asks[kind]) for kind in named if asks.get(kind)], default=Fraction(0))
        all_ = self.vector(self.sets[path][tuple(key.split(","))] if key else asks)
        return min([Fraction(1), *[part * a / within for a, within in zip(all_, leaf.demand, strict=True) if within]])

    def most(self, queue):
        named = self.books.named(queue.max)
        return [named.get(kind) for kind in self.kinds]

    def leaf(self, queue, path):
        """A leaf whose tasks ask for one set of kinds: beyond its maximum it asks for as large a part of all."""
        asks = {kind: self.asks[path].get(kind, 0) for kind in self.kinds}
        if not self.books.is_over(path):
            return TreeNode(path, queue.weight, demand=self.vector(asks))
        base = self.books.base(path)
        left = {kind: max(0, most - base.get(kind, 0)) for kind, most in self.books.named(queue.max).items()}
        rest = covered({kind: amount - base.get(kind, 0) for kind, amount in asks.items()}, left, most=1)
        if rest is None:
            rest = {kind: amount - base.get(kind, 0) for kind, amount in asks.items()}
        demand = [rest[kind] + base.get(kind, 0) for kind in self.kinds]
        return TreeNode(path, queue.weight, demand=demand, base=self.vector(base) if base else ())

    def parts(self, queue, path, asking, part):
        """By child what it would have of one kind, where something below is guaranteed."""
        claims = {each: self.books.claim(child, each, self.asks) for each, child in asking.items()}
        if not any(any(claim.values()) for claim in claims.values()):
            return {}
        least = {each: self.least(claim) for each, claim in claims.items()}
        most = {each: max(least[each], self.reach(each)) for each in asking}
        return divided(part, {each: child.weight for each, child in asking.items()}, least, most)

    def least(self, claim):
        most = max(
            (self.pledged[kind] / Fraction(self.books.capacity[kind]) for kind, n in claim.items() if n), default=0
        )
        share = self.books.share(claim)
        return min(Fraction(1), share / most if most > 1 else share)

    def reach(self, path):
        """The most that a queue can have."""
        vector = self.books.below_of(self.asks, path)
        within = self.books.within(path, vector, "hdrf")
        return min(Fraction(1), *[self.books.share(most) for most in (vector, within) if most is not None])

    def weight(self, parts, asking, path):
        if not parts:
            return asking[path].weight
        heaviest = max(Fraction(asking[each].weight) for each in parts)
        least = Fraction(floor(Fraction(asking[path].weight) * 2**LEAST / heaviest), 2**FINE)
        return max(parts[path], least, Fraction(1, 2**FINE))

    def by_weights(self, leaf):
        """What its weights alone entitle a leaf to, among those that ask."""
        queues, part, path = dict(walked(self.books.tree)), Fraction(1), leaf
        while path:
            above = path.rpartition("/")[0]
            beside = [f"{above}/{child.name}".lstrip("/") for child in queues[above].children]
            part *= Fraction(queues[path].weight) / sum(
                Fraction(queues[each].weight) for each in beside if self.asked(each)
            )
            path = above
        return part

    def levels(self):
        """By leaf and by `leaf//set of kinds`: the dominant share, in billionths."""
        filled = oracle(self.root, self.capacity)
        found = {}
        for node in filled.nodes(self.root):
            path = node.name.partition("//")[0]
            if path in self.sets:
                found[node.name] = filled.share(node) * SHARE_UNITS
        return found


def divided(whole, weights, least, most):
    """The same for each unit of weight, within bounds; more than the whole only where the bounds add up to more."""

    def at(rate):
        return {each: min(most[each], max(least[each], rate * Fraction(weights[each]))) for each in weights}

    rates = sorted(
        {bound[each] / Fraction(weights[each]) for bound in (least, most) for each in weights} | {Fraction(0)}
    )
    if sum(least.values()) >= whole:
        return least
    below = Fraction(0)
    for rate in rates:
        if sum(at(rate).values()) >= whole:
            low, high = sum(at(below).values()), sum(at(rate).values())
            return at(below + (rate - below) * (whole - low) / (high - low)) if high > low else at(rate)
        below = rate
    return most


def said(books):
    """What the core says, in the same form."""
    levels = {}
    for unit, level in books.state.levels.units.items():
        levels |= {unit: level.target} | {f"{unit}//{key}": part for key, part in level.kinds.items()}
    return levels


plain = ("", "", "hdrf")
drawn = st.one_of(shapes(policies=plain), shapes(LIMITS[1:], LIMITS[2:], policies=plain))
"""Maxima and guarantees, few or many. Where a queue with a maximum has some below it with guarantees, these come first
within it.
"""


@for_all(drawn, moves, st.sampled_from(CAPACITIES))
def test_levels_at_rest_are_those_of_progressive_filling(shape, moves, capacity):
    books = Books(shape)
    books.set_capacity(capacity)
    for what, *given in moves:
        getattr(books, "decide" if what == "look" else what)(*given)
    books.decide()
    books.decide()
    assume(
        not books.state.levels.dues()
    )  # Grants are drawn here: whom they pass over is taken to find no room (placeable.py).

    filling, levels = Filling(books), said(books)
    expected = filling.levels()
    for name in expected.keys() | levels.keys():
        leaf, _, key = name.partition("//")
        if key and name not in levels and leaf in levels:  # Not said where all get what they ask for.
            assert expected[name] == books.share(filling.sets[leaf][tuple(key.split(","))]) * SHARE_UNITS, name
        elif levels.get(name, 0) > expected.get(name, 0) + NEARLY:  # What it holds may be more than its kinds in step.
            assert not key, name
            assert books.is_over(leaf), name
            assert levels[name] <= max(holding(books, leaf), filling.by_weights(leaf)) * SHARE_UNITS + STEP, name
        else:
            assert expected.get(name, 0) - levels.get(name, 0) <= NEARLY, name


def holding(books, leaf):
    """The share of what a leaf holds, and of the largest task that waits there."""
    used = books.sums(lambda live: len(live.held)).get(leaf, {})
    waiting = [live.demand for live in books.jobs if live.leaf == leaf and live.waits]
    return books.share(used) + max(map(books.share, waiting), default=0)
