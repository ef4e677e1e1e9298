"""Static H-DRF of a large tree in arrays: every node's path, composed from the leaves up, one depth at a time.

Between two moments at which a kind of resource is used up, whatever lies below a node moves along one path, however
fast its siblings move: piecewise linear, from how high the node stands (share / weight) to what it uses. At one level
of a node's water all children that take stand at that height, so a node's path is the sum of theirs. At the top it is
read off where the next kind is used up, and from there down where everything stands then.

A path has *rows*, straight parts of it. On a row that *rests* the node takes and does not rise: the kind in which it
stands highest is held by children that take no more. Siblings that rest at one height are filled together, each with
the same *lag* at any time: usage of the kind of which they take most, over their weight. So the rows of a path are in
the order of height, then of lag.

Levels and lags are whole numbers of 2^-41, usage is in whole numbers of 2^-52 of the cell, so that what stands at one
height does so to the last bit, though usage was rounded. Speeds are in two parts,
whole numbers of 2^-20 and of 2^-64: sums are exact. Between them there are only additions, multiplications, divisions
and roundings of single IEEE 754 doubles, one operation an array, so everything comes out the same everywhere. Shares
are within 2^-30 of those that `hdrf.fill_by_events` works out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from services.fairness.hdrf.turns import Array, Turns, running, split, starts_of

LEVEL = float(1 << 41)
USE = float(1 << 52)
SLOW = 2.0**-16
"""A node that takes is faster than that, per level; anything slower is rounding."""

DRAG_MAX = float(1 << 48)
"""The longest lag of one row: the sum over all rows fits into 64 bits."""

STEEP = float(1 << 24)
"""A node that rises by less than this part of what it takes is taken to rest."""

NEARLY = 1 << 12
"""Usage so close below the whole cell is the whole cell."""

LONG, HIGH = 1 << 62, float(1 << 61)
"""A lag and a height that nothing reaches."""

FAR = 2.0
"""Paths that never end are cut off where they use so much of the cell."""


@dataclass(slots=True)
class Rows:
    """The paths of all nodes of one depth. `first` and `many`: the rows of each node, none of those that cannot take.

    As the parent sees it: `height` and `lag` where a row starts, `rise` and `drag`, what it adds to them. Of the water
    below: its `level`, and the lag `since` children rest, and by how much these move, `length` and `span`. `used` at
    the start, and how much `more` at the end.
    """

    node: Array
    first: Array
    many: Array
    height: Array
    lag: Array
    rise: Array
    drag: Array
    rests: Array
    level: Array
    since: Array
    length: Array
    span: Array
    used: Array
    more: Array


def no_rows(nodes: int, kinds: int) -> Rows:
    """The paths of nodes of which none can take."""
    none, wide = np.zeros(0, dtype=np.int64), np.zeros((kinds, 0), dtype=np.int64)
    first, many = np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
    return Rows(none, first, many, none, none, none, none, none > 0, none, none, none, none, wide, wide)


@dataclass(slots=True)
class Compared:
    """The kinds in which parents compare their children: `some` for all of them; and if `more` tells of a child that it
    is one of the `marked`, the others as well. None at the top, where nothing is compared.
    """

    some: Array
    others: Array
    marked: Array | None

    def seen(self, uses: Array, node: Array) -> Array:
        """The usage of those kinds; where one does not count, -1."""
        found = uses[self.some]
        if self.marked is None:
            return found
        return np.concatenate((found, np.where(self.marked[node], uses[self.others], -1)))


def compose(turns: Turns, nodes: int, used: Array, slope: Array, compared: Compared | None) -> Rows:
    """The paths of `nodes` nodes. `used`: what each uses at first; `slope`: 1 / weight."""
    node = turns.node
    starts = starts_of(node)
    many = np.diff(np.append(starts, len(node)))
    speed = running(turns.speed, starts, many)
    last = np.append(starts[1:], len(node)) - 1
    length = np.zeros(len(node), dtype=np.int64)
    length[:-1] = turns.level[1:] - turns.level[:-1]
    fastest = speed[:, last].max(axis=0)
    length[last] = np.where(fastest > SLOW, np.ceil(FAR / np.maximum(fastest, SLOW) * LEVEL), 0)
    span = np.zeros(len(node), dtype=np.int64)
    flow = speed * (length * (USE / LEVEL))
    if turns.drift is not None:
        drift = running(turns.drift, starts, many)
        span[:-1] = np.where(length[:-1] == 0, turns.lag[1:] - turns.lag[:-1], 0)
        span[last] = 0
        span = np.maximum(span, 0)
        flow += drift * (span * (USE / LEVEL))
    most = flow.max(axis=0)
    # No filling reaches a point where a node uses more than `FAR` of a kind: rows end there, and those that follow are
    # left out.
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
    columns = [each.take(keep, axis=-1) for each in (node, turns.level, turns.lag, length, span, begin, more)]
    if compared is not None:
        columns = _cut(columns, compared)
    return _rows(columns, nodes, slope, compared)


def _cut(columns: list[Array], compared: Compared) -> list[Array]:
    """Rows cut where another kind becomes the one in which a node stands highest."""
    node, used, more = columns[0], columns[5], columns[6]
    at = np.arange(len(node))
    for _ in range(len(used)):
        start, end = compared.seen(used, node), compared.seen(used + more, node)
        top = start.max(axis=0)
        # Of those that stand highest at the start, the fastest; it is overtaken if it is not the highest at the end.
        leads = np.where(start == top, end, -1)
        behind = np.flatnonzero(end.max(axis=0) > leads.max(axis=0) + 4)
        if not len(behind):
            break
        start, end = start[:, behind], end[:, behind]
        gap = (top[behind] - start).astype(np.float64)
        gain = (end - start - (leads[:, behind].max(axis=0) - top[behind])).astype(np.float64)
        part = np.where(gain > 0, gap / np.where(gain > 0, gain, 1.0), 2.0).min(axis=0)
        fits = part < 1.0
        rows, part = at[behind[fits]], part[fits]
        columns = _split_rows(columns, rows, part)
        at = rows + 1 + np.arange(len(rows))
        node, used, more = columns[0][at], columns[5][:, at], columns[6][:, at]
    return columns


def _split_rows(columns: list[Array], at: Array, part: Array) -> list[Array]:
    """Each of these rows becomes two."""
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


def _rows(columns: list[Array], nodes: int, slope: Array, compared: Compared | None) -> Rows:
    node, level, since, length, span, used, more = columns
    many = np.bincount(node, minlength=nodes)
    first = np.cumsum(many) - many
    if compared is None:
        none = np.zeros(len(node), dtype=np.int64)
        return Rows(node, first, many, none, none, none, none, none > 0, level, since, length, span, used, more)
    weigh = slope[node] * (LEVEL / USE)
    tops = [compared.seen(each, node).max(axis=0) for each in (used, used + more)]
    height, end = (np.rint(np.minimum(top * weigh, HIGH)).astype(np.int64) for top in tops)
    rise = np.maximum(end - height, 0)
    most = more.max(axis=0)
    drag = np.maximum(np.rint(np.minimum(most * weigh, DRAG_MAX)).astype(np.int64), 1)
    rests = rise * STEEP < drag
    lag = np.zeros(len(node), dtype=np.int64)
    if rests.any():
        drag = np.where(rests, drag, 0)
        sums = np.cumsum(drag) - drag
        begins = rests.copy()
        begins[1:] &= ~rests[:-1] | (node[1:] != node[:-1])
        lag = np.where(rests, sums - np.maximum.accumulate(np.where(begins, sums, 0)), 0)
    else:
        drag = np.zeros_like(lag)
    return Rows(node, first, many, height, lag, rise, drag, rests, level, since, length, span, used, more)


def turns_of(rows: Rows, parent: Array) -> Turns | None:
    """How parents see the paths of their children."""
    if not len(rows.node):
        return None
    more = rows.more * (1 / USE)
    speed = split(more * np.where(rows.rests, 0.0, LEVEL / np.maximum(rows.rise, 1)))
    opens, many = rows.first[rows.many > 0], len(rows.node)
    last = opens + rows.many[rows.many > 0] - 1
    changes = np.empty((len(speed), many + len(last)), dtype=np.int64)
    np.subtract(speed[:, 1:], speed[:, :-1], out=changes[:, 1:many])
    changes[:, opens] = speed[:, opens]
    changes[:, many:] = -speed[:, last]
    node = np.concatenate((rows.node, rows.node[last]))
    level = np.concatenate((rows.height, rows.height[last] + rows.rise[last]))
    lag = np.zeros(len(node), dtype=np.int64)
    drift: Array | None = None
    if rows.rests.any():
        at = np.flatnonzero(rows.rests)
        pull = split(more[:, at] * (LEVEL / rows.drag[at]))
        node = np.concatenate((node, rows.node[at], rows.node[at]))
        level = np.concatenate((level, rows.height[at], rows.height[at]))
        lag = np.concatenate((lag, rows.lag[at], rows.lag[at] + rows.drag[at]))
        drift = np.concatenate((np.zeros_like(changes), pull, -pull), axis=1)
        changes = np.concatenate((changes, np.zeros((len(changes), 2 * len(at)), dtype=np.int64)), axis=1)
    return Turns(parent[node], level, lag, changes, drift)


def point(rows: Rows, row: Array, part: Array) -> tuple[Array, Array, Array]:
    """Level and lag of the water, and usage, so far along a row."""
    level = rows.level[row] + np.rint(part * rows.length[row]).astype(np.int64)
    rested = rows.since[row] + np.rint(part * rows.span[row]).astype(np.int64)
    # Water that rises has left behind those that rest where it started.
    since = np.where(rows.span[row] > 0, rested, np.where(level == rows.level[row], LONG, 0))
    return level, since, rows.used[:, row] + np.rint(part * rows.more[:, row]).astype(np.int64)


def stand_at(rows: Rows, height: Array, lag: Array) -> tuple[Array, Array, Array]:
    """Where nodes stand on their paths, given for each parent's water: the nodes that have moved, the row, and how far
    along it.
    """
    tall = height[rows.node]
    passed = rows.height < tall
    if rows.rests.any():
        passed |= (rows.height == tall) & rows.rests & (rows.lag < lag[rows.node])
    count = np.bincount(rows.node[passed], minlength=len(rows.many))
    node = np.flatnonzero(count)
    row = rows.first[node] + count[node] - 1
    rises = (height[node] - rows.height[row]) / np.maximum(rows.rise[row], 1)
    rested = np.where(
        rows.height[row] == height[node], (lag[node] - rows.lag[row]) / np.maximum(rows.drag[row], 1), 1.0
    )
    return node, row, np.minimum(np.where(rows.rests[row], rested, rises), 1.0)


def full_at(rows: Rows, open_kinds: Sequence[int]) -> tuple[int, float]:
    """Of the top: the row, and how far along it, at which the first of these kinds is used up."""
    whole = int(USE)
    used, more = rows.used[open_kinds], rows.more[open_kinds]
    ends = np.flatnonzero((used + more >= whole - NEARLY).any(axis=0))
    if not len(ends):
        return int(rows.many[0]) - 1, 1.0
    row = int(ends[0])
    left = [(whole - int(have)) / int(add) for have, add in zip(used[:, row], more[:, row], strict=True) if add > 0]
    return row, max(0.0, min([1.0, *left]))
