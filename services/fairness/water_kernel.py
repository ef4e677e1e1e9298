"""One inner node while `fill_kernel` fills its tree: `water.Inner` over arrays, step by step and bit by bit the same.

Nodes are numbered parents before their children, and the leaves of one node lie side by side. `Flow.words` holds what
is wide: of each node `LEVEL` to `DOWN` and seven vectors, of each leaf `LEVEL_MAX` to `LEAF_DOWN` and its speed, of
each group of leaves where it ended, and of each kind what a base unit is of the cell. What the names mean stands in
`water.py`. A heap of children is a stretch of `Flow.lists`; a child is in one of its parent's three at most, so it has
one `KEY`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.fairness.wide_kernel import (
    ONE_BITS,
    Wide,
    compiled,
    constant,
    load,
    part,
    ratio,
    scaled,
    store,
    widened,
)  # fmt: skip

Ints = NDArray[np.int64]
Table = NDArray[np.int64]


class Flow(NamedTuple):
    """One filling: the storage of wides, and a row of whole numbers a node, a leaf and a group."""

    words: Ints
    nodes: Table
    leaves: Table
    groups: Table
    lists: Ints
    dims: Ints


HDRF, NAIVE, FAIR, RANK = range(4)
"""Orders among children; one for all by rank, as children come sorted by it."""

# Flow.dims
WIDTH, KINDS, COUNTED, FULL, NODES, NODE_SIZE, LEAVES, LEAF_AT, LEAF_SIZE, GROUP_AT, HEAPS, QUEUES, STACK = range(13)
STAMP = 13
DIMS = 14

# Flow.nodes
(
    ORDER, PARENT, LEAF_FIRST, LEAF_COUNT, INNER_FIRST, INNER_COUNT, GROUP_FIRST, GROUP_COUNT, IS_LEAF,
    BLOCKED, GONE, STILL, WAS_STILL, ATTACHED, FRONT_ACTIVE, FRONT_TAKERS, LAGGING, WAS_LAGGING, RISING, HAS_DUE,
    QUEUED, LINE, SATISFIED_ALL, NODE_UNITS, RISES, LAGS, WAITING,
) = range(27)  # fmt: skip
NODE_INTS = 27

# Flow.leaves
OWNER, MASK, GROUP, SATISFIED, LIMITED, TASKS, UNITS = range(7)
LEAF_INTS = 7

# Flow.groups
GROUP_MASK, ABLE = range(2)
GROUP_INTS = 2

# Flow.words, of a node. Behind them the vectors, each as wide as the cell.
LEVEL, LAG, CLOCK, HEIGHT, MARK, PACE, DUE, FRONT, KEY, UP, DOWN = range(11)
NODE_WIDES = 11
USED, SPEED, GIVEN, WAS_GIVEN, RISE_SPEED, LAG_SPEED, FRONT_SPEED = range(7)
NODE_VECTORS = 7

# Flow.words, of a leaf. Behind them its speed.
LEVEL_MAX, RISE, SHARE_MAX, SHARE, LEAF_UP, LEAF_DOWN = range(6)
LEAF_WIDES = 6

zero, one, near, never = constant(0), constant(1 << ONE_BITS), constant(1 << 68), constant(-1 << 220)
"""0; `ONE` and `NEAR` as in `tree.py`; far below anything that flows in."""


# ---------------------------------------------------------------- where things are
@compiled
def node_at(flow: Flow, node: int, field: int) -> int:
    found: int = 1 + node * flow.dims[NODE_SIZE] + field
    return found


@compiled
def vector_at(flow: Flow, node: int, vector: int) -> int:
    found: int = 1 + node * flow.dims[NODE_SIZE] + NODE_WIDES + vector * flow.dims[WIDTH]
    return found


@compiled
def leaf_at(flow: Flow, leaf: int, field: int) -> int:
    found: int = flow.dims[LEAF_AT] + leaf * flow.dims[LEAF_SIZE] + field
    return found


@compiled
def of(flow: Flow, node: int, field: int) -> Wide:
    return load(flow.words, node_at(flow, node, field))


@compiled
def put(flow: Flow, node: int, field: int, value: Wide) -> None:
    store(flow.words, node_at(flow, node, field), value)


@compiled
def is_able(flow: Flow, leaf: int) -> bool:
    """Whether leaves that ask for the same kinds can still take."""
    found: bool = flow.groups[flow.leaves[leaf, GROUP], ABLE] > 0
    return found


@compiled
def add_vector(flow: Flow, to: int, other: int) -> None:
    for j in range(flow.dims[WIDTH]):
        store(flow.words, to + j, load(flow.words, to + j) + load(flow.words, other + j))


@compiled
def take_vector(flow: Flow, to: int, other: int) -> None:
    for j in range(flow.dims[WIDTH]):
        store(flow.words, to + j, load(flow.words, to + j) - load(flow.words, other + j))


@compiled
def copy_vector(flow: Flow, to: int, other: int) -> None:
    for j in range(flow.dims[WIDTH]):
        store(flow.words, to + j, load(flow.words, other + j))


@compiled
def clear_vector(flow: Flow, to: int) -> None:
    for j in range(flow.dims[WIDTH]):
        store(flow.words, to + j, zero())


# ---------------------------------------------------------------- heaps of children, by key, then number
@compiled
def heap_at(flow: Flow, node: int, heap: int) -> int:
    found: int = flow.dims[HEAPS] + 3 * flow.nodes[node, INNER_FIRST] + (heap - RISES) * flow.nodes[node, INNER_COUNT]
    return found


@compiled
def is_before(flow: Flow, left: int, right: int) -> bool:
    mine, other = of(flow, left, KEY), of(flow, right, KEY)
    return mine < other or (mine == other and left < right)


@compiled
def sink(flow: Flow, first: int, size: int, child: int) -> None:
    """Put a child in the place of the first one, and down to where it belongs."""
    lists, at = flow.lists, 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and is_before(flow, lists[first + below + 1], lists[first + below]):
            below += 1
        if not is_before(flow, lists[first + below], child):
            break
        lists[first + at] = lists[first + below]
        at = below
    lists[first + at] = child


@compiled
def push(flow: Flow, node: int, heap: int, child: int) -> None:
    lists, first, at = flow.lists, heap_at(flow, node, heap), flow.nodes[node, heap]
    flow.nodes[node, heap] += 1
    while at and is_before(flow, child, lists[first + (at - 1) // 2]):
        lists[first + at] = lists[first + (at - 1) // 2]
        at = (at - 1) // 2
    lists[first + at] = child


@compiled
def pop(flow: Flow, node: int, heap: int) -> int:
    first = heap_at(flow, node, heap)
    found: int = flow.lists[first]
    flow.nodes[node, heap] -= 1
    size = flow.nodes[node, heap]
    if size:
        sink(flow, first, size, flow.lists[first + size])
    return found


# ---------------------------------------------------------------- leaves
@compiled
def comes_later(flow: Flow, left: int, right: int) -> bool:
    mine, other = load(flow.words, leaf_at(flow, left, LEVEL_MAX)), load(flow.words, leaf_at(flow, right, LEVEL_MAX))
    return mine > other or (mine == other and left > right)


@compiled
def sort_leaves(flow: Flow, first: int, size: int) -> None:
    """By `LEVEL_MAX`, then place: the least last. Heap sort."""
    lists, sorted_already = flow.lists, True
    for at in range(1, size):
        sorted_already = sorted_already and comes_later(flow, lists[first + at - 1], lists[first + at])
    if sorted_already:
        return
    for begin in range(2 * size - 1, 0, -1):
        # First every place from the middle up becomes a heap, then the least goes behind it, one after the other.
        end = size if begin >= size else begin
        at = begin - size if begin >= size else 0
        if begin < size:
            lists[first], lists[first + begin] = lists[first + begin], lists[first]
        leaf = lists[first + at]
        while 2 * at + 1 < end:
            below = 2 * at + 1
            if below + 1 < end and comes_later(flow, lists[first + below], lists[first + below + 1]):
                below += 1
            if not comes_later(flow, leaf, lists[first + below]):
                break
            lists[first + at] = lists[first + below]
            at = below
        lists[first + at] = leaf


@compiled
def leave(flow: Flow, node: int, leaf: int) -> bool:
    """Count a satisfied leaf out, unless it was blocked before."""
    if not is_able(flow, leaf):
        return False
    flow.leaves[leaf, SATISFIED] = 1
    flow.nodes[node, FRONT_TAKERS] -= 1
    flow.groups[flow.leaves[leaf, GROUP], ABLE] -= 1
    return True


@compiled
def front_starts(flow: Flow, node: int) -> None:
    """The water has reached the leaves that stand at the front."""
    flow.nodes[node, FRONT_ACTIVE] = 1
    add_vector(flow, vector_at(flow, node, RISE_SPEED), vector_at(flow, node, FRONT_SPEED))


@compiled
def satisfy(flow: Flow, node: int) -> None:
    """Take out the leaves whose limit the water has reached."""
    nodes, first = flow.nodes, flow.dims[QUEUES] + flow.nodes[node, LEAF_FIRST]
    while nodes[node, FRONT_ACTIVE] and nodes[node, QUEUED]:
        leaf = flow.lists[first + nodes[node, QUEUED] - 1]
        if load(flow.words, leaf_at(flow, leaf, LEVEL_MAX)) > of(flow, node, LEVEL):
            break
        nodes[node, QUEUED] -= 1
        if leave(flow, node, leaf):
            take_vector(flow, vector_at(flow, node, RISE_SPEED), leaf_at(flow, leaf, LEAF_WIDES))
            nodes[node, FRONT_ACTIVE] = 1 if nodes[node, FRONT_TAKERS] > 0 else 0


@compiled
def start_leaves_over(flow: Flow, node: int) -> None:
    """Block those that need a full kind, and count the others at the front."""
    nodes, groups, leaves, words = flow.nodes, flow.groups, flow.leaves, flow.words
    first = flow.dims[QUEUES] + nodes[node, LEAF_FIRST]
    front = of(flow, node, FRONT)
    while nodes[node, QUEUED]:
        leaf = flow.lists[first + nodes[node, QUEUED] - 1]
        if load(words, leaf_at(flow, leaf, LEVEL_MAX)) > front + near():
            break
        nodes[node, QUEUED] -= 1
        leave(flow, node, leaf)
    able = 0
    for group in range(nodes[node, GROUP_FIRST], nodes[node, GROUP_FIRST] + nodes[node, GROUP_COUNT]):
        if groups[group, ABLE] > 0 and groups[group, GROUP_MASK] & flow.dims[FULL]:
            store(words, flow.dims[GROUP_AT] + group, front)
            groups[group, ABLE] = 0
        able += groups[group, ABLE]
    front_speed = vector_at(flow, node, FRONT_SPEED)
    clear_vector(flow, front_speed)
    nodes[node, FRONT_TAKERS] = 0
    if able:
        for leaf in range(nodes[node, LEAF_FIRST], nodes[node, LEAF_FIRST] + nodes[node, LEAF_COUNT]):
            if not leaves[leaf, SATISFIED] and is_able(flow, leaf):
                nodes[node, FRONT_TAKERS] += 1
                add_vector(flow, front_speed, leaf_at(flow, leaf, LEAF_WIDES))


# ---------------------------------------------------------------- one node
@compiled
def advance(flow: Flow, node: int, clock: Wide) -> None:
    """Move on a straight line; no event lies between."""
    ahead = clock - of(flow, node, CLOCK)
    if ahead > zero():
        used, speed = vector_at(flow, node, USED), vector_at(flow, node, SPEED)
        for j in range(flow.dims[WIDTH]):
            moved = scaled(flow.words, load(flow.words, speed + j), ahead)
            store(flow.words, used + j, load(flow.words, used + j) + moved)
        arrive(flow, node, clock)


@compiled
def arrive(flow: Flow, node: int, clock: Wide) -> None:
    put(flow, node, CLOCK, clock)
    put(flow, node, LAG if flow.nodes[node, LAGGING] else LEVEL, clock)


@compiled
def attach(flow: Flow, node: int, child: int) -> None:
    """Let a child take part that the water has reached, and note when it has its next event."""
    nodes = flow.nodes
    nodes[child, ATTACHED] = 1
    if nodes[child, STILL]:
        nodes[node, LAGGING] += 1
        add_vector(flow, vector_at(flow, node, LAG_SPEED), vector_at(flow, child, GIVEN))
        mark = of(flow, node, LAG)
    else:
        nodes[node, RISING] += 1
        add_vector(flow, vector_at(flow, node, RISE_SPEED), vector_at(flow, child, GIVEN))
        mark = of(flow, node, LEVEL)
    put(flow, child, MARK, mark)
    if nodes[child, HAS_DUE]:
        put(flow, child, KEY, mark + until_due(flow, child))
        push(flow, node, LAGS if nodes[child, STILL] else RISES, child)


@compiled
def until_due(flow: Flow, child: int) -> Wide:
    """Units of its parent's clock until its next event."""
    return scaled(flow.words, of(flow, child, PACE), of(flow, child, DUE) - of(flow, child, CLOCK))


@compiled
def next_ahead(flow: Flow, node: int) -> tuple[bool, Wide]:
    """Where the next child stands that the water has still to reach, if there is one."""
    nodes, waits = flow.nodes, flow.nodes[node, WAITING] > 0
    height = of(flow, flow.lists[heap_at(flow, node, WAITING)], KEY) if waits else zero()
    if nodes[node, FRONT_ACTIVE] or not nodes[node, FRONT_TAKERS]:
        return waits, height
    front = of(flow, node, FRONT)
    return True, height if waits and height < front else front


@compiled
def next_satisfied(flow: Flow, node: int) -> tuple[bool, Wide]:
    """Level at which the next leaf is satisfied, if one will be; those blocked before are dropped."""
    first = flow.dims[QUEUES] + flow.nodes[node, LEAF_FIRST]
    while flow.nodes[node, QUEUED]:
        leaf = flow.lists[first + flow.nodes[node, QUEUED] - 1]
        if is_able(flow, leaf):
            return True, load(flow.words, leaf_at(flow, leaf, LEVEL_MAX))
        flow.nodes[node, QUEUED] -= 1
    return False, zero()


@compiled
def next_rise(flow: Flow, node: int) -> tuple[bool, Wide]:
    """Level at which a leaf is satisfied, a rising child has an event or a child ahead is reached, if any."""
    found, due = next_ahead(flow, node)
    if flow.nodes[node, RISES]:
        level = of(flow, flow.lists[heap_at(flow, node, RISES)], KEY)
        if not found or level < due:
            found, due = True, level
    if flow.nodes[node, FRONT_ACTIVE]:
        some, level = next_satisfied(flow, node)
        if some and (not found or level < due):
            found, due = True, level
    return found, due


@compiled
def join(flow: Flow, node: int) -> None:
    """Let those take part that the water has reached."""
    nodes, level = flow.nodes, of(flow, node, LEVEL)
    while nodes[node, WAITING] and of(flow, flow.lists[heap_at(flow, node, WAITING)], KEY) <= level:
        attach(flow, node, pop(flow, node, WAITING))
    if not nodes[node, FRONT_ACTIVE] and nodes[node, FRONT_TAKERS] and of(flow, node, FRONT) <= level:
        front_starts(flow, node)


@compiled
def settle(flow: Flow, node: int) -> None:
    """Work out who takes now, how fast, and when the next event comes. Blocked if nobody can take."""
    nodes = flow.nodes
    while not nodes[node, LAGGING] and nodes[node, LINE] < nodes[node, INNER_COUNT]:
        child = flow.lists[nodes[node, INNER_FIRST] + nodes[node, LINE]]
        nodes[node, LINE] += 1
        if not nodes[child, GONE]:
            attach(flow, node, child)
    if not (nodes[node, LAGGING] or nodes[node, RISING] or nodes[node, FRONT_ACTIVE]):
        found, ahead = next_ahead(flow, node)
        if found:
            put(flow, node, LEVEL, ahead)
            join(flow, node)
    if nodes[node, LAGGING]:
        put(flow, node, CLOCK, of(flow, node, LAG))
        copy_vector(flow, vector_at(flow, node, SPEED), vector_at(flow, node, LAG_SPEED))
        found, due = nodes[node, LAGS] > 0, zero()
        if found:
            due = of(flow, flow.lists[heap_at(flow, node, LAGS)], KEY)
    elif nodes[node, RISING] or nodes[node, FRONT_ACTIVE]:
        put(flow, node, CLOCK, of(flow, node, LEVEL))
        copy_vector(flow, vector_at(flow, node, SPEED), vector_at(flow, node, RISE_SPEED))
        found, due = next_rise(flow, node)
    else:
        nodes[node, BLOCKED] = 1
        return
    nodes[node, HAS_DUE] = 1 if found else 0
    put(flow, node, DUE, due)
    if node:
        find_pace(flow, node)


@compiled
def counted(flow: Flow, node: int) -> int:
    """The kinds that a node is compared by among its siblings, a bit each."""
    order, dims = flow.nodes[flow.nodes[node, PARENT], ORDER], flow.dims
    if order == HDRF:
        return int(dims[COUNTED] & ~dims[FULL])
    if order == NAIVE:
        return int(dims[COUNTED])
    return 1 << dims[KINDS] if order == FAIR else 0


@compiled
def find_pace(flow: Flow, node: int) -> None:
    """How fast it rises among its siblings, or that it stands still; and when another kind overtakes."""
    nodes, words, counts, width = flow.nodes, flow.words, counted(flow, node), flow.dims[WIDTH]
    used, speed, given = vector_at(flow, node, USED), vector_at(flow, node, SPEED), vector_at(flow, node, GIVEN)
    top = rise = most = zero()
    for j in range(width):
        if counts >> j & 1 and load(words, used + j) > top:
            top = load(words, used + j)
        if load(words, speed + j) > most:
            most = load(words, speed + j)
    close = top - near()
    for j in range(width):
        if counts >> j & 1 and load(words, used + j) >= close and load(words, speed + j) > rise:
            rise = load(words, speed + j)
    for j in range(width):
        if counts >> j & 1 and load(words, speed + j) > rise and load(words, used + j) < close:
            behind, closing = top - load(words, used + j), load(words, speed + j) - rise
            # Before what is due, it overtakes if it is that far at the last moment before. Mostly it is not.
            until = of(flow, node, DUE) - of(flow, node, CLOCK) - widened(1)
            if not nodes[node, HAS_DUE] or scaled(words, until, closing) >= behind:
                nodes[node, HAS_DUE] = 1
                put(flow, node, DUE, of(flow, node, CLOCK) - ratio(words, zero() - behind, closing))
    still = rise == zero()
    nodes[node, STILL] = 1 if still else 0
    pace = part(words, most if still else rise, of(flow, node, DOWN), of(flow, node, UP))
    if pace == zero():
        pace = widened(1)
    put(flow, node, PACE, pace)
    for j in range(width):
        store(words, given + j, ratio(words, load(words, speed + j), pace))
