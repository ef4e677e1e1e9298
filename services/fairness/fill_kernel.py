"""The events of a filling over arrays: what `hdrf._Flow` does, step by step and bit by bit the same.

`arrays.py` makes the arrays and reads the answer out of them. It counts only if word 0 is 0 in the end.
"""

from typing import Any

from services.fairness import water_kernel, wide_kernel
from services.fairness.water_kernel import (
    ABLE,
    ATTACHED,
    BLOCKED,
    CLOCK,
    COUNTED,
    DOWN,
    DUE,
    FAIR,
    FRONT,
    FRONT_ACTIVE,
    FRONT_TAKERS,
    FULL,
    GIVEN,
    GONE,
    GROUP,
    GROUP_AT,
    GROUP_COUNT,
    GROUP_FIRST,
    GROUP_MASK,
    HAS_DUE,
    HEIGHT,
    INNER_COUNT,
    INNER_FIRST,
    IS_LEAF,
    KEY,
    KINDS,
    LAG,
    LAG_SPEED,
    LAGGING,
    LAGS,
    LEAF_COUNT,
    LEAF_DOWN,
    LEAF_FIRST,
    LEAF_UP,
    LEAF_WIDES,
    LEAVES,
    LEVEL,
    LEVEL_MAX,
    LIMITED,
    LINE,
    MARK,
    MASK,
    NODE_UNITS,
    NODES,
    ORDER,
    OWNER,
    PACE,
    PARENT,
    QUEUED,
    QUEUES,
    RANK,
    RISE,
    RISE_SPEED,
    RISES,
    RISING,
    SATISFIED,
    SATISFIED_ALL,
    SHARE,
    SHARE_MAX,
    SPEED,
    STACK,
    STAMP,
    STILL,
    TASKS,
    UNITS,
    UP,
    USED,
    WAITING,
    WAS_GIVEN,
    WAS_LAGGING,
    WAS_STILL,
    WIDTH,
    Flow,
    Table,
    add_vector,
    advance,
    arrive,
    attach,
    clear_vector,
    copy_vector,
    counted,
    front_starts,
    heap_at,
    join,
    leaf_at,
    near,
    never,
    of,
    one,
    pop,
    push,
    put,
    satisfy,
    settle,
    sink,
    sort_leaves,
    start_leaves_over,
    take_vector,
    until_due,
    vector_at,
    zero,
)
from services.fairness.wide_kernel import (
    Wide,
    compiled,
    constant,
    entry,
    load,
    low_word,
    part,
    ratio,
    scaled,
    source_of,
    store,
    times,
    widened,
)

share_units = constant(1_000_000_000)

STEPS_MAX = 1 << 20
"""Events of the top in one filling. So few sums cannot outgrow a wide."""


# ---------------------------------------------------------------- events
@compiled
def happen(flow: Flow) -> None:
    """Everything that is due at the present of the top, from its children up."""
    nodes, stack, depth = flow.nodes, flow.dims[STACK], 0
    flow.lists[stack] = 0
    nodes[0, WAS_LAGGING] = 1 if nodes[0, LAGGING] else 0
    while depth >= 0:
        node = flow.lists[stack + depth]
        heap, clock = (LAGS, LAG) if nodes[node, WAS_LAGGING] else (RISES, LEVEL)
        first = heap_at(flow, node, heap)
        if nodes[node, heap] and of(flow, flow.lists[first], KEY) <= of(flow, node, clock):
            child = flow.lists[first]
            nodes[child, WAS_STILL] = nodes[child, STILL]
            copy_vector(flow, vector_at(flow, child, WAS_GIVEN), vector_at(flow, child, GIVEN))
            advance(flow, child, of(flow, child, DUE))
            nodes[child, WAS_LAGGING] = 1 if nodes[child, LAGGING] else 0
            depth += 1
            flow.lists[stack + depth] = child
            continue
        if not nodes[node, WAS_LAGGING]:
            if nodes[node, FRONT_ACTIVE]:
                satisfy(flow, node)
            join(flow, node)
        settle(flow, node)
        depth -= 1
        if depth >= 0:
            take_in(flow, flow.lists[stack + depth], node)


@compiled
def take_in(flow: Flow, node: int, child: int) -> None:
    """Something happened in a child: it goes on otherwise, or no more."""
    nodes = flow.nodes
    heap, clock = (LAGS, LAG) if nodes[node, WAS_LAGGING] else (RISES, LEVEL)
    if nodes[child, WAS_STILL] or nodes[child, STILL] or nodes[child, BLOCKED]:
        pop(flow, node, heap)
        nodes[child, ATTACHED] = 0
        if nodes[child, WAS_STILL]:
            nodes[node, LAGGING] -= 1
            take_vector(flow, vector_at(flow, node, LAG_SPEED), vector_at(flow, child, WAS_GIVEN))
        else:
            nodes[node, RISING] -= 1
            take_vector(flow, vector_at(flow, node, RISE_SPEED), vector_at(flow, child, WAS_GIVEN))
        if not nodes[child, BLOCKED]:
            attach(flow, node, child)
        return
    rise_speed = vector_at(flow, node, RISE_SPEED)
    take_vector(flow, rise_speed, vector_at(flow, child, WAS_GIVEN))
    add_vector(flow, rise_speed, vector_at(flow, child, GIVEN))
    put(flow, child, MARK, of(flow, node, LEVEL))
    if not nodes[child, HAS_DUE]:
        pop(flow, node, heap)
    else:
        put(flow, child, KEY, of(flow, node, clock) + until_due(flow, child))
        sink(flow, heap_at(flow, node, heap), nodes[node, heap], child)


@compiled
def shut(flow: Flow, kinds: int) -> None:
    """These kinds are used up: who needs one is blocked, and they count no more."""
    nodes, dims = flow.nodes, flow.dims
    for node in range(dims[NODES]):
        if node:
            # A child is brought to the present only along with its parent.
            parent = nodes[node, PARENT]
            nodes[node, WAS_STILL] = nodes[node, ATTACHED] & nodes[parent, WAS_STILL] & (1 - nodes[node, GONE])
            if not nodes[node, WAS_STILL]:
                continue
            catch_up(flow, parent, node)
        else:
            nodes[node, WAS_STILL] = 1
        if nodes[node, FRONT_ACTIVE]:
            put(flow, node, FRONT, of(flow, node, LEVEL))
    dims[FULL] |= kinds
    for j in range(dims[KINDS]):
        if kinds >> j & 1:
            store(flow.words, vector_at(flow, 0, USED) + j, never())
    for node in range(dims[NODES] - 1, -1, -1):
        if not nodes[node, GONE]:
            rebuild(flow, node)
    for node in range(1, dims[NODES]):
        if nodes[nodes[node, PARENT], GONE]:
            nodes[node, GONE] = 1


@compiled
def catch_up(flow: Flow, node: int, child: int) -> None:
    """Bring a child to the present, on the straight lines since its last event."""
    now = of(flow, node, LAG if flow.nodes[child, STILL] else LEVEL)
    clock = of(flow, child, CLOCK) + ratio(flow.words, now - of(flow, child, MARK), of(flow, child, PACE))
    if flow.nodes[child, HAS_DUE] and of(flow, child, DUE) < clock:
        clock = of(flow, child, DUE)
    advance(flow, child, clock)
    put(flow, child, MARK, now)


@compiled
def rebuild(flow: Flow, node: int) -> None:
    """Find anew who can take, how high everybody stands and how fast they move; its children come before."""
    nodes, lists = flow.nodes, flow.lists
    inner = nodes[node, INNER_FIRST]
    for at in range(inner, inner + nodes[node, INNER_COUNT]):
        if nodes[lists[at], BLOCKED]:
            nodes[lists[at], GONE] = 1
    if nodes[node, LEAF_COUNT]:
        start_leaves_over(flow, node)
    for field in (FRONT_ACTIVE, RISING, LAGGING, RISES, LAGS, WAITING):
        nodes[node, field] = 0
    for vector in (SPEED, RISE_SPEED, LAG_SPEED):
        clear_vector(flow, vector_at(flow, node, vector))
    if nodes[node, ORDER] == RANK:
        nodes[node, LINE] = 0
    else:
        line_up(flow, node)
    settle(flow, node)


@compiled
def line_up(flow: Flow, node: int) -> None:
    """The water falls to the lowest child: it and its equals take, the others wait ahead."""
    nodes, lists, words = flow.nodes, flow.lists, flow.words
    nodes[node, LINE] = nodes[node, INNER_COUNT]
    found, level = nodes[node, FRONT_TAKERS] > 0, of(flow, node, FRONT)
    if not found:
        level = zero()
    first = nodes[node, INNER_FIRST]
    for at in range(first, first + nodes[node, INNER_COUNT]):
        child = lists[at]
        if nodes[child, GONE]:
            continue
        used, counts, most = vector_at(flow, child, USED), counted(flow, child), zero()
        for j in range(flow.dims[WIDTH]):
            if counts >> j & 1 and load(words, used + j) > most:
                most = load(words, used + j)
        height = part(words, most, of(flow, child, DOWN), of(flow, child, UP))
        put(flow, child, HEIGHT, height)
        if not found or height < level:
            found, level = True, height
    front = of(flow, node, FRONT)
    put(flow, node, LEVEL, level)
    if nodes[node, FRONT_TAKERS] and front <= level + near():
        level = front
        put(flow, node, LEVEL, level)
        front_starts(flow, node)
    for at in range(first, first + nodes[node, INNER_COUNT]):
        child = lists[at]
        if nodes[child, GONE]:
            continue
        if of(flow, child, HEIGHT) <= level + near():
            attach(flow, node, child)
        else:
            nodes[child, ATTACHED] = 0
            put(flow, child, KEY, of(flow, child, HEIGHT))
            push(flow, node, WAITING, child)


@compiled
def flow_until_full(flow: Flow) -> int:
    """Move on to where the next kind is used up. Returns the kinds that are then; trouble if none ever will be."""
    words, used, speed = flow.words, vector_at(flow, 0, USED), vector_at(flow, 0, SPEED)
    found, first, kinds = False, zero(), 0
    for j in range(flow.dims[KINDS]):
        if flow.dims[COUNTED] >> j & 1 and load(words, speed + j) > zero():
            ahead = ratio(words, one() - load(words, used + j), load(words, speed + j))
            if not found or ahead < first:
                found, first, kinds = True, ahead, 0
            if ahead == first:
                kinds |= 1 << j
    if not found:
        words[0] = 1
        return 0
    advance(flow, 0, of(flow, 0, CLOCK) + first)
    return kinds | used_up(flow, used)


@compiled
def used_up(flow: Flow, used: int) -> int:
    kinds = 0
    for j in range(flow.dims[KINDS]):
        if flow.dims[COUNTED] >> j & 1 and load(flow.words, used + j) >= one() - near():
            kinds |= 1 << j
    return kinds


@compiled
def step(flow: Flow) -> int:
    """Move on to the next event. Where a kind is full at that very moment, the event comes first.

    Returns the kinds that are full then.
    """
    words, used, speed = flow.words, vector_at(flow, 0, USED), vector_at(flow, 0, SPEED)
    then = vector_at(flow, 0, GIVEN)  # The top gives nothing.
    if not flow.nodes[0, HAS_DUE]:
        return flow_until_full(flow)
    due, most = of(flow, 0, DUE), never()
    ahead = due - of(flow, 0, CLOCK)
    for j in range(flow.dims[WIDTH]):
        store(words, then + j, load(words, used + j) + scaled(words, load(words, speed + j), ahead))
        if load(words, then + j) > most:
            most = load(words, then + j)
    if most > one() + near():
        return flow_until_full(flow)
    copy_vector(flow, used, then)
    arrive(flow, 0, due)
    happen(flow)
    return used_up(flow, then)


# ---------------------------------------------------------------- from demands to shares
@compiled
def plant(flow: Flow, demands: Table, more: Table) -> None:
    """Work out how every leaf moves, and take stock of those that ask for something.

    A demand is `demands` and 2^62 times `more`, which may be empty. Behind the groups in `words` stands what one base
    unit of each kind is of the cell.
    """
    dims, leaves, words = flow.dims, flow.leaves, flow.words
    units, kinds = dims[GROUP_AT] + flow.groups.shape[0], dims[KINDS]
    for leaf in range(dims[LEAVES]):
        speed, tasks = leaf_at(flow, leaf, LEAF_WIDES), leaves[leaf, TASKS]
        dominant, mask = zero(), 0
        for j in range(kinds):
            amount = widened(demands[leaf, j])
            if more.shape[0]:
                amount = amount + times(words, widened(more[leaf, j]), widened(1 << 62))
            share = times(words, amount, load(words, units + j))
            store(words, speed + j, share)
            if amount > zero():
                mask |= 1 << j
            if share > dominant:
                dominant = share
        if kinds < dims[WIDTH]:
            store(words, speed + kinds, one())
        leaves[leaf, MASK] = mask if tasks else 0
        leaves[leaf, SATISFIED] = 1 if leaves[leaf, MASK] == 0 else 0
        store(words, leaf_at(flow, leaf, SHARE_MAX), times(words, widened(tasks if tasks > 0 else 0), dominant))
        if dominant > zero():
            plant_leaf(flow, leaf, dominant)
    for node in range(dims[NODES]):
        open_leaves(flow, node)


@compiled
def plant_leaf(flow: Flow, leaf: int, dominant: Wide) -> None:
    words, tasks = flow.words, flow.leaves[leaf, TASKS]
    up, down = load(words, leaf_at(flow, leaf, LEAF_UP)), load(words, leaf_at(flow, leaf, LEAF_DOWN))
    each = one() if flow.nodes[flow.leaves[leaf, OWNER], ORDER] == FAIR else dominant
    weight, speed = ratio(words, up, down), leaf_at(flow, leaf, LEAF_WIDES)
    for j in range(flow.dims[WIDTH]):
        store(words, speed + j, part(words, load(words, speed + j), weight, each))
    store(words, leaf_at(flow, leaf, RISE), part(words, dominant, weight, each))
    if tasks >= 0:
        flow.leaves[leaf, LIMITED] = 1
        store(words, leaf_at(flow, leaf, LEVEL_MAX), times(words, part(words, each, down, up), widened(tasks)))


@compiled
def open_leaves(flow: Flow, node: int) -> None:
    """The groups of leaves of one node that ask for the same kinds, and its leaves by where they are satisfied."""
    nodes, leaves, groups, lists, dims = flow.nodes, flow.leaves, flow.groups, flow.lists, flow.dims
    first, last = nodes[node, LEAF_FIRST], nodes[node, LEAF_FIRST] + nodes[node, LEAF_COUNT]
    nodes[node, GROUP_FIRST] = first  # There are no more groups than leaves.
    for leaf in range(last - 1, first - 1, -1):
        if leaves[leaf, SATISFIED]:
            continue
        group, end = first, first + nodes[node, GROUP_COUNT]
        while group < end and groups[group, GROUP_MASK] != leaves[leaf, MASK]:
            group += 1
        if group == end:
            nodes[node, GROUP_COUNT] += 1
            groups[group, GROUP_MASK] = leaves[leaf, MASK]
        groups[group, ABLE] += 1
        leaves[leaf, GROUP] = group
        if leaves[leaf, LIMITED]:
            lists[dims[QUEUES] + first + nodes[node, QUEUED]] = leaf
            nodes[node, QUEUED] += 1
    sort_leaves(flow, dims[QUEUES] + first, nodes[node, QUEUED])


@compiled
def in_units(flow: Flow, share: Wide) -> int:
    """`tree.share_units`, and no more than the whole cell."""
    whole = share if share < one() else one()
    units: int = low_word(scaled(flow.words, whole + near(), share_units()))
    return units


@compiled
def reach(flow: Flow) -> None:
    """What every leaf and node has come to, and whether it has all it asked for."""
    dims, leaves, nodes, words = flow.dims, flow.leaves, flow.nodes, flow.words
    for node in range(dims[NODES]):
        nodes[node, SATISFIED_ALL] = 1
        top = zero()
        for j in range(dims[KINDS]):
            share = load(words, vector_at(flow, node, USED) + j)
            if dims[COUNTED] >> j & 1 and share > top:
                top = share
        put(flow, node, HEIGHT, top)
        nodes[node, NODE_UNITS] = in_units(flow, top)
    if dims[COUNTED] & dims[FULL] and not nodes[0, IS_LEAF]:
        put(flow, 0, HEIGHT, one())
        nodes[0, NODE_UNITS] = in_units(flow, one())
    for leaf in range(dims[LEAVES]):
        share = load(words, leaf_at(flow, leaf, SHARE_MAX))
        if not leaves[leaf, SATISFIED]:
            level = load(words, dims[GROUP_AT] + leaves[leaf, GROUP])
            share = scaled(words, level, load(words, leaf_at(flow, leaf, RISE)))
            nodes[leaves[leaf, OWNER], SATISFIED_ALL] = 0
        store(words, leaf_at(flow, leaf, SHARE), share)
        leaves[leaf, UNITS] = in_units(flow, share)
    for node in range(dims[NODES] - 1, 0, -1):
        if not nodes[node, SATISFIED_ALL]:
            nodes[nodes[node, PARENT], SATISFIED_ALL] = 0


def _run(stamp: int) -> Any:
    def run(flow: Flow, demands: Table, more: Table) -> None:
        """The whole filling."""
        dims, words = flow.dims, flow.words
        dims[STAMP] = stamp
        plant(flow, demands, more)
        if dims[KINDS] < dims[WIDTH]:
            store(words, vector_at(flow, 0, USED) + dims[KINDS], never())
        kinds, steps = ((1 << dims[KINDS]) - 1) & ~dims[COUNTED], 0  # Of nothing, everything is used up.
        while not words[0]:
            if kinds or not steps:
                shut(flow, kinds)
            if flow.nodes[0, BLOCKED]:
                break
            kinds = step(flow)
            steps += 1
            if steps > STEPS_MAX:
                words[0] = 1
        reach(flow)

    return entry(run)


run = _run(source_of(wide_kernel, water_kernel))
