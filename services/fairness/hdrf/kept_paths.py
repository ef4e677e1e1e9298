"""The paths of a tree's nodes until the first kind is saturated, kept from one filling to the next.

These paths are most of a filling, and a node's path depends only on what the leaves below it ask for. So where few
leaves ask for something else than at the last filling, only the paths of the nodes above them are composed again.
`paths.compose` works on each node by itself: what is kept is, to the last bit, what the whole tree would come to.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import numpy as np

from services.fairness.hdrf import breakpoints, paths
from services.fairness.hdrf.breakpoints import Array, Breakpoints
from services.fairness.hdrf.paths import LONG, Compared, Segments
from services.fairness.hdrf.tree_lists import Depth

_COLUMNS = [field.name for field in fields(Segments) if field.name not in ("node", "first", "many")]
_SPARE, _SPARE_SHIFT = 4, 3
"""A node can gain so many segments, and an eighth, before the segments of its depth are moved."""

LeafBreakpoints = Callable[[int, Array], Breakpoints | None]
"""The breakpoints of the leaves below the marked nodes of a depth."""


class KeptPaths:
    """The segments of all nodes, one `Segments` a depth. Behind the segments of a node there is room for more, filled
    with segments at a height that is never reached.
    """

    def __init__(self) -> None:
        self._segments: list[Segments] = []
        self._room: list[Array] = []

    def update(
        self, depths: Sequence[Depth], compared: Compared, kinds: int, leaf_breakpoints: LeafBreakpoints
    ) -> list[Segments]:
        """The paths for the present demands. `compared`: by which kinds children below the root are compared. Clears
        the stale marks of `depths`."""
        is_new = not self._segments
        if is_new:
            self._segments = [paths.no_segments(len(depth.parent), kinds) for depth in depths]
            self._room = [segments.many for segments in self._segments]
        children = np.zeros(0, dtype=bool)  # Those of the depth below whose paths have changed.
        for at in range(len(depths) - 1, -1, -1):
            depth = depths[at]
            stale = np.ones(len(depth.parent), dtype=bool) if is_new else depth.stale.copy()
            below = at + 1 < len(depths)
            if below:
                stale[depths[at + 1].parent[children]] = True
            nodes = np.flatnonzero(stale)
            if len(nodes):
                place = np.zeros(len(stale), dtype=np.int64)
                place[nodes] = np.arange(len(nodes))
                found = leaf_breakpoints(at, stale)
                if found is not None:
                    found.node = place[found.node]
                found = breakpoints.merge(
                    found, self._breakpoints_of_children(at + 1, depths[at + 1], stale, place) if below else None
                )
                here = replace(compared, marked=depth.naive[nodes] if depth.naive.any() else None) if at else None
                none = np.zeros((kinds, len(nodes)), dtype=np.int64)
                segments = paths.no_segments(len(nodes), kinds)
                if found is not None:
                    segments = paths.compose(found, len(nodes), none, depth.slope[nodes], here)
                self._put(at, nodes, segments)
            depth.stale[:] = False
            children = stale
        return self._segments

    def _breakpoints_of_children(self, at: int, depth: Depth, stale: Array, place: Array) -> Breakpoints | None:
        """The breakpoints of the children of stale nodes; the children are those of depth `at`."""
        children = np.flatnonzero(stale[depth.parent])
        return paths.breakpoints_of(self._taken(at, children), place[depth.parent[children]])

    def _taken(self, at: int, nodes: Array) -> Segments:
        """The segments of some nodes, which are renumbered in their order."""
        segments = self._segments[at]
        many = segments.many[nodes]
        if len(nodes) == len(segments.many) and many.sum() == len(segments.node):
            return segments
        lines = _ranges(segments.first[nodes], many)
        columns = {name: getattr(segments, name).take(lines, axis=-1) for name in _COLUMNS}
        first = np.cumsum(many) - many
        return Segments(np.repeat(np.arange(len(nodes)), many), first, many, **columns)

    def _put(self, at: int, nodes: Array, found: Segments) -> None:
        """Replaces the segments of some nodes."""
        if len(nodes) == len(found.many) == len(self._segments[at].many):
            self._segments[at], self._room[at] = found, found.many.copy()
            return
        if (found.many > self._room[at][nodes]).any():
            self._make_room(at, nodes, found.many)
        segments, room = self._segments[at], self._room[at]
        first = segments.first[nodes]
        lines = _ranges(first, found.many)
        for name in _COLUMNS:
            getattr(segments, name)[..., lines] = getattr(found, name)
        segments.height[_ranges(first + found.many, room[nodes] - found.many)] = LONG
        segments.many[nodes] = found.many

    def _make_room(self, at: int, nodes: Array, many: Array) -> None:
        """Moves the segments of a depth, so that these nodes have room for `many` each."""
        segments = self._segments[at]
        kept = segments.many.copy()
        kept[nodes] = 0
        needed = segments.many.copy()
        needed[nodes] = many
        room = needed + (needed >> _SPARE_SHIFT) + _SPARE
        first = np.cumsum(room) - room
        lines, before = _ranges(first, kept), _ranges(segments.first, kept)
        columns = {}
        for name in _COLUMNS:
            column = getattr(segments, name)
            columns[name] = np.zeros((*column.shape[:-1], int(room.sum())), dtype=column.dtype)
            columns[name][..., lines] = column.take(before, axis=-1)
        blank = np.ones(len(columns["height"]), dtype=bool)
        blank[lines] = False
        columns["height"][blank] = LONG
        self._segments[at] = Segments(np.repeat(np.arange(len(room)), room), first, kept, **columns)
        self._room[at] = room


def _ranges(first: Array, many: Array) -> Array:
    """The concatenation of the ranges `first` .. `first + many - 1`."""
    before = np.cumsum(many) - many
    return np.repeat(first - before, many) + np.arange(int(many.sum()))
