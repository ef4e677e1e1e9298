"""Static H-DRF of a large tree in arrays: every node's path, composed from the leaves up, one depth at a time.

Between two moments at which a kind of resource is saturated (used up), the subtree of a node moves along one path,
however fast its siblings move: a piecewise linear function from the node's *height* (its dominant share / weight) to
its usage. At a given *level* of a node (the height that its unblocked children have reached) all of them have that
height, so a node's path is the sum of its children's. At the root it tells where the next kind is saturated, and from
there down the state of every node at that moment.

A path consists of linear *segments*. On a segment that *stalls* the node takes resources while its height stays the
same: its dominant kind is held by children that take no more. Siblings that stall at one height are filled together,
and all have the same *lag* at any time: usage of the kind of which they take most, over their weight. So the segments
of a path are sorted by height, then by lag.

Levels and lags are integers in units of 2^-41, usage in units of 2^-52 of the cell, so that equal heights are equal to
the last bit although usage is rounded. Speeds are pairs of integers in units of 2^-20 and of 2^-64: their sums are
exact. Everything else is additions, multiplications, divisions and roundings of single IEEE 754 doubles, one operation
an array at a time, so the results are the same on every machine. Shares
are within 2^-30 of those that `hdrf.fill_by_events` works out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from services.fairness.hdrf.breakpoints import Array, Breakpoints, running, split, starts_of

LEVEL = float(1 << 41)
USE = float(1 << 52)
SLOW = 2.0**-16
"""The speed, per unit of level, of any node that takes; less than that is rounding."""

DRAG_MAX = float(1 << 48)
"""The greatest lag of one segment: the sum over all segments fits into 64 bits."""

STEEP = float(1 << 24)
"""A node whose height grows by less than this part of what it takes counts as stalled."""

NEARLY = 1 << 12
"""Usage that is less than the whole cell by no more than this counts as the whole cell."""

LONG, HIGH = 1 << 62, float(1 << 61)
"""A lag and a height that are never reached."""

FAR = 2.0
"""Paths without an end are cut off where they use this many times the cell."""


@dataclass(slots=True)
class Segments:
    """The paths of all nodes of one depth. By node: `first` and `many`, its segments; none if it cannot take.

    By segment: its `node`; the `height` and `lag` of the node among its siblings at the start, and what the segment
    adds to them, `rise` and `drag`; whether it `stalls`; the `level` of the node's children and the lag `since` which
    some of them stall, and what it adds to these, `length` and `span`; usage at the start, `used`, and what it adds,
    `more`.
    """

    node: Array
    first: Array
    many: Array
    height: Array
    lag: Array
    rise: Array
    drag: Array
    stalls: Array
    level: Array
    since: Array
    length: Array
    span: Array
    used: Array
    more: Array


def no_segments(nodes: int, kinds: int) -> Segments:
    """The paths of nodes that can take nothing."""
    none, wide = np.zeros(0, dtype=np.int64), np.zeros((kinds, 0), dtype=np.int64)
    first, many = np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
    return Segments(none, first, many, none, none, none, none, none > 0, none, none, none, none, wide, wide)


@dataclass(slots=True)
class Compared:
    """The kinds by which parents compare their children: `some` for all children, and for those that are `marked` the
    `others` as well.
    """

    some: Array
    others: Array
    marked: Array | None

    def seen(self, uses: Array, node: Array) -> Array:
        """The usage of these kinds; -1 for a kind that does not count."""
        found = uses[self.some]
        if self.marked is None:
            return found
        return np.concatenate((found, np.where(self.marked[node], uses[self.others], -1)))


def compose(breakpoints: Breakpoints, nodes: int, used: Array, slope: Array, compared: Compared | None) -> Segments:
    """The paths of `nodes` nodes. `used`: what each uses at the start; `slope`: 1 / weight; `compared`: None for the
    root, which has no siblings.
    """
    node = breakpoints.node
    starts = starts_of(node)
    many = np.diff(np.append(starts, len(node)))
    speed = running(breakpoints.speed, starts, many)
    last = np.append(starts[1:], len(node)) - 1
    length = np.zeros(len(node), dtype=np.int64)
    length[:-1] = breakpoints.level[1:] - breakpoints.level[:-1]
    fastest = speed[:, last].max(axis=0)
    length[last] = np.where(fastest > SLOW, np.ceil(FAR / np.maximum(fastest, SLOW) * LEVEL), 0)
    span = np.zeros(len(node), dtype=np.int64)
    flow = speed * (length * (USE / LEVEL))
    if breakpoints.drift is not None:
        drift = running(breakpoints.drift, starts, many)
        span[:-1] = np.where(length[:-1] == 0, breakpoints.lag[1:] - breakpoints.lag[:-1], 0)
        span[last] = 0
        span = np.maximum(span, 0)
        flow += drift * (span * (USE / LEVEL))
    most = flow.max(axis=0)
    # No filling reaches a point where a node uses more than `FAR` of a kind: segments end there, and those that
    # follow are left out.
    long = np.flatnonzero(most > FAR * USE)
    if len(long):
        part = FAR * USE / most[long]
        flow[:, long] *= part
        most[long] = FAR * USE
        length[long], span[long] = (np.rint(part * whole[long]).astype(np.int64) for whole in (length, span))
    before = np.cumsum(most) - most
    before -= np.repeat(before[starts], many)
    more = np.rint(np.maximum(flow, 0.0, out=flow), out=flow).astype(np.int64)
    begin = np.cumsum(more, axis=1) - more
    begin -= np.repeat(begin[:, starts] - used[:, node[starts]], many, axis=1)
    keep = np.flatnonzero((np.rint(most) > 0) & (before < FAR * len(flow) * USE))
    columns = [
        each.take(keep, axis=-1) for each in (node, breakpoints.level, breakpoints.lag, length, span, begin, more)
    ]
    if compared is not None:
        columns = _cut(columns, compared)
    return _segments(columns, nodes, slope, compared)


def _cut(columns: list[Array], compared: Compared) -> list[Array]:
    """Splits segments where another kind becomes the dominant one of a node."""
    node, used, more = columns[0], columns[5], columns[6]
    at = np.arange(len(node))
    for _ in range(len(used)):
        start, end = compared.seen(used, node), compared.seen(used + more, node)
        top = start.max(axis=0)
        # Of the kinds that are dominant at the start, the fastest; it is overtaken if it is not dominant at the end.
        leads = np.where(start == top, end, -1)
        behind = np.flatnonzero(end.max(axis=0) > leads.max(axis=0) + 4)
        if not len(behind):
            break
        start, end = start[:, behind], end[:, behind]
        gap = (top[behind] - start).astype(np.float64)
        gain = (end - start - (leads[:, behind].max(axis=0) - top[behind])).astype(np.float64)
        part = np.where(gain > 0, gap / np.where(gain > 0, gain, 1.0), 2.0).min(axis=0)
        fits = part < 1.0
        segments, part = at[behind[fits]], part[fits]
        columns = _split_segments(columns, segments, part)
        at = segments + 1 + np.arange(len(segments))
        node, used, more = columns[0][at], columns[5][:, at], columns[6][:, at]
    return columns


def _split_segments(columns: list[Array], at: Array, part: Array) -> list[Array]:
    """Splits each of these segments in two."""
    node, level, lag, length, span, used, more = [each.take(at, axis=-1) for each in columns]
    ahead, later = np.rint(part * length).astype(np.int64), np.rint(part * span).astype(np.int64)
    taken = np.rint(part * more).astype(np.int64)
    copies = np.ones(len(columns[0]), dtype=np.int64)
    copies[at] = 2
    lines, front = np.repeat(np.arange(len(copies)), copies), at + np.arange(len(at))
    columns = [each.take(lines, axis=-1) for each in columns]
    for column, first in ((3, ahead), (4, later), (6, taken)):
        columns[column][..., front] = first
    second = [node, level + ahead, lag + later, length - ahead, span - later, used + taken, more - taken]
    for column, new in zip(columns, second, strict=True):
        column[..., front + 1] = new
    return columns


def _segments(columns: list[Array], nodes: int, slope: Array, compared: Compared | None) -> Segments:
    node, level, since, length, span, used, more = columns
    many = np.bincount(node, minlength=nodes)
    first = np.cumsum(many) - many
    if compared is None:
        none = np.zeros(len(node), dtype=np.int64)
        return Segments(node, first, many, none, none, none, none, none > 0, level, since, length, span, used, more)
    weigh = slope[node] * (LEVEL / USE)
    tops = [compared.seen(each, node).max(axis=0) for each in (used, used + more)]
    height, end = (np.rint(np.minimum(top * weigh, HIGH)).astype(np.int64) for top in tops)
    rise = np.maximum(end - height, 0)
    most = more.max(axis=0)
    drag = np.maximum(np.rint(np.minimum(most * weigh, DRAG_MAX)).astype(np.int64), 1)
    stalls = rise * STEEP < drag
    lag = np.zeros(len(node), dtype=np.int64)
    if stalls.any():
        drag = np.where(stalls, drag, 0)
        sums = np.cumsum(drag) - drag
        begins = stalls.copy()
        begins[1:] &= ~stalls[:-1] | (node[1:] != node[:-1])
        lag = np.where(stalls, sums - np.maximum.accumulate(np.where(begins, sums, 0)), 0)
    else:
        drag = np.zeros_like(lag)
    return Segments(node, first, many, height, lag, rise, drag, stalls, level, since, length, span, used, more)


def breakpoints_of(segments: Segments, parent: Array) -> Breakpoints | None:
    """The paths of children as breakpoints of their parents."""
    if not len(segments.node):
        return None
    more = segments.more * (1 / USE)
    speed = split(more * np.where(segments.stalls, 0.0, LEVEL / np.maximum(segments.rise, 1)))
    opens, many = segments.first[segments.many > 0], len(segments.node)
    last = opens + segments.many[segments.many > 0] - 1
    changes = np.empty((len(speed), many + len(last)), dtype=np.int64)
    np.subtract(speed[:, 1:], speed[:, :-1], out=changes[:, 1:many])
    changes[:, opens] = speed[:, opens]
    changes[:, many:] = -speed[:, last]
    node = np.concatenate((segments.node, segments.node[last]))
    level = np.concatenate((segments.height, segments.height[last] + segments.rise[last]))
    lag = np.zeros(len(node), dtype=np.int64)
    drift: Array | None = None
    if segments.stalls.any():
        at = np.flatnonzero(segments.stalls)
        pull = split(more[:, at] * (LEVEL / segments.drag[at]))
        node = np.concatenate((node, segments.node[at], segments.node[at]))
        level = np.concatenate((level, segments.height[at], segments.height[at]))
        lag = np.concatenate((lag, segments.lag[at], segments.lag[at] + segments.drag[at]))
        drift = np.concatenate((np.zeros_like(changes), pull, -pull), axis=1)
        changes = np.concatenate((changes, np.zeros((len(changes), 2 * len(at)), dtype=np.int64)), axis=1)
    return Breakpoints(parent[node], level, lag, changes, drift)


def point(segments: Segments, segment: Array, part: Array) -> tuple[Array, Array, Array]:
    """Level and lag of the children, and usage, at the fraction `part` of a segment."""
    level = segments.level[segment] + np.rint(part * segments.length[segment]).astype(np.int64)
    stalled = segments.since[segment] + np.rint(part * segments.span[segment]).astype(np.int64)
    # Where the level rises, no child stalls any more at the level at which the segment started.
    since = np.where(segments.span[segment] > 0, stalled, np.where(level == segments.level[segment], LONG, 0))
    return level, since, segments.used[:, segment] + np.rint(part * segments.more[:, segment]).astype(np.int64)


def stand_at(segments: Segments, height: Array, lag: Array) -> tuple[Array, Array, Array]:
    """The positions of nodes on their paths, given the level and lag of each one's parent: the nodes that have moved,
    the segment of each, and the fraction of it.
    """
    tall = height[segments.node]
    passed = segments.height < tall
    if segments.stalls.any():
        passed |= (segments.height == tall) & segments.stalls & (segments.lag < lag[segments.node])
    count = np.bincount(segments.node[passed], minlength=len(segments.many))
    node = np.flatnonzero(count)
    segment = segments.first[node] + count[node] - 1
    rises = (height[node] - segments.height[segment]) / np.maximum(segments.rise[segment], 1)
    stalled = np.where(
        segments.height[segment] == height[node],
        (lag[node] - segments.lag[segment]) / np.maximum(segments.drag[segment], 1),
        1.0,
    )
    return node, segment, np.minimum(np.where(segments.stalls[segment], stalled, rises), 1.0)


def full_at(segments: Segments, open_kinds: Sequence[int]) -> tuple[int, float]:
    """At the root: the segment, and the fraction of it, at which the first of these kinds is saturated."""
    whole = int(USE)
    used, more = segments.used[open_kinds], segments.more[open_kinds]
    ends = np.flatnonzero((used + more >= whole - NEARLY).any(axis=0))
    if not len(ends):
        return int(segments.many[0]) - 1, 1.0
    segment = int(ends[0])
    left = [
        (whole - int(have)) / int(add) for have, add in zip(used[:, segment], more[:, segment], strict=True) if add > 0
    ]
    return segment, max(0.0, min([1.0, *left]))
