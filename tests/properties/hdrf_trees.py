"""Trees of queues for the tests of fairness: builders that name only what matters, and strategies that draw trees.

A drawn tree has small numbers, so that ties, exact fits and kinds that fill up together are common.
"""

from dataclasses import replace
from fractions import Fraction

from hypothesis import strategies as st

from services.fairness.tree import ONE, TreeNode, leaves, walk

NEARLY = Fraction(1, 2**50)
"""Of the cell: far more than the filling may round, far less than any amount drawn."""


def leaf(name, *demand, tasks=None, weight=1, held=(), rank=0):
    """A leaf that asks for `tasks` (None: endless) of `demand`."""
    return TreeNode(name, weight, demand=demand, tasks=tasks, held=held, rank=rank)


def inner(name, *children, weight=1, order="hdrf", rank=0):
    return TreeNode(name, weight, children=list(children), order=order, rank=rank)


def shares(reached):
    """Shares of a filling, by name, as fractions that were rounded away from the simple ones nearby."""
    return {name: Fraction(node.share, ONE).limit_denominator(10**6) for name, node in reached.items()}


def each(node, capacity):
    """The dominant share of one task."""
    return max(
        (Fraction(need, have) for need, have in zip(node.demand, capacity, strict=True) if have), default=Fraction(0)
    )


def guarantees(root):
    """What each node is entitled to: of its parent's part, its weight among the siblings that demand something."""
    found = {root.name: Fraction(1)}
    for node in _parents(root):
        demanding = [child for child in node.children if demands(child)]
        for child in node.children:
            part = Fraction(child.weight) / sum(other.weight for other in demanding) if child in demanding else 0
            found[child.name] = found[node.name] * part
    return found


def demands(node):
    return any(leaf.tasks != 0 and any(leaf.demand) for leaf in leaves(node))


def _parents(root):
    if root.children:
        yield root
        for child in root.children:
            yield from _parents(child)


weights = st.sampled_from([1, 1, 1, 2, 3, Fraction(1, 2)])
limits = st.sampled_from([None, None, None, 0, 1, 2, 3, 5, 8])


@st.composite
def trees(draw, kinds, depth=3, amounts=(0, 0, 1, 1, 2, 3), tasks=limits):
    """An inner node with some leaves below; `amounts` are what a task may ask of a kind."""
    demand = st.tuples(*[st.sampled_from(amounts)] * kinds)
    count = iter(range(10_000))

    def node(levels):
        name = f"n{next(count)}"
        if levels == 0 or draw(st.integers(0, 2)) == 0:
            return TreeNode(name, draw(weights), demand=draw(demand), tasks=draw(tasks))
        return TreeNode(name, draw(weights), children=[node(levels - 1) for _ in range(draw(st.integers(1, 3)))])

    return inner("root", *[node(depth - 1) for _ in range(draw(st.integers(1, 4)))])


@st.composite
def with_maxima(draw, cells):
    """A cell some of whose inner nodes may not have all of some kinds."""
    root, capacity = draw(cells)
    most = st.tuples(*[st.sampled_from([None, None, 0, 1, 2, 3, 5, 8])] * len(capacity))

    def limited(node):
        if not node.children:
            return node
        return replace(node, children=[limited(child) for child in node.children], most=draw(most))

    return limited(root), capacity


@st.composite
def with_bases(draw, cells):
    """A cell in which leaves ask for many tasks at once, and some hold a part of that to begin with."""
    root, capacity = draw(cells)

    def based(node):
        if node.children:
            return replace(node, children=[based(child) for child in node.children])
        demand = [draw(st.integers(1, 12)) * need for need in node.demand]
        base = [draw(st.integers(0, need)) if have else 0 for need, have in zip(demand, capacity, strict=True)]
        return replace(node, demand=demand, tasks=1, base=base if draw(st.booleans()) else ())

    return based(root), capacity


@st.composite
def with_claims(draw, cells):
    """A cell in which leaves ask for many tasks at once, and have some eighths of that from the start, as far as there
    is so much and no maximum is in the way.
    """
    root, capacity = draw(cells)

    def fits(node, limits):
        below = [leaf for leaf in leaves(node) if leaf.claim]
        return all(
            limit is None or sum(leaf.demand[j] * leaf.claim for leaf in below) <= limit * ONE
            for j, limit in enumerate(limits)
        )

    for node in leaves(root):
        node.demand, node.tasks = [draw(st.integers(1, 12)) * need for need in node.demand], 1
        node.claim = draw(st.sampled_from([0, 0, 1, 2, 5, 8])) * ONE // 8
        if not (fits(root, capacity) and all(fits(inner, inner.most) for inner in walk(root))):
            node.claim = 0
    return root, capacity


@st.composite
def cells(draw, /, depth=3, kinds=(1, 2, 3), capacities=(0, 5, 10, 12, 12, 20, 30), **options):
    """A tree and the capacity of its cell."""
    width = draw(st.sampled_from(kinds))
    root = draw(trees(width, depth, **options))
    return root, draw(st.tuples(*[st.sampled_from(capacities)] * width))


def flat_cells(**options):
    """Leaves side by side."""
    return cells(depth=1, **options)


def settled_cells(scale=1, tasks=(None, None, None, 2, 5, 10)):
    """Cells in which static and dynamic H-DRF come to rest at the same point: flat ones, those with a single kind, and
    those in which every task asks for every kind, so that all are blocked at once.
    """
    capacities = tuple(scale * units for units in (6, 10, 12, 20, 31))
    limit = st.sampled_from([None if each is None else scale * each for each in tasks])
    return st.one_of(
        cells(depth=1, amounts=(0, 1, 1, 2, 3), capacities=capacities, tasks=limit),
        cells(kinds=(1,), amounts=(1, 1, 2), capacities=capacities, tasks=limit),
        cells(amounts=(1, 2, 3), capacities=capacities, tasks=limit),
    )
