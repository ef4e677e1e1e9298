"""The paths of a tree's nodes until the first kind is used up, kept from one filling to the next.

These paths are most of a filling, and a node's path depends only on what the leaves below it ask for. So where few
leaves ask for something else than at the last filling, only the paths of the nodes above them are composed anew.
`paths.compose` works on each node by itself: what is kept is, to the last bit, what the whole tree would come to.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import numpy as np

from services.fairness.hdrf import paths, turns
from services.fairness.hdrf.laid import Depth
from services.fairness.hdrf.paths import LONG, Compared, Rows
from services.fairness.hdrf.turns import Array, Turns

_COLUMNS = [field.name for field in fields(Rows) if field.name not in ("node", "first", "many")]
_SPARE, _SPARE_SHIFT = 4, 3
"""So many rows, and an eighth, a node can gain before the rows of its depth are moved."""

LeafTurns = Callable[[int, Array], Turns | None]
"""The turns of the leaves right below some nodes of a depth, which are marked."""


class KeptPaths:
    """The rows of all nodes, a `Rows` a depth. A node has room for further rows behind its own; those are at a height
    that nothing reaches.
    """

    def __init__(self) -> None:
        self._rows: list[Rows] = []
        self._room: list[Array] = []

    def update(self, depths: Sequence[Depth], compared: Compared, kinds: int, leaf_turns: LeafTurns) -> list[Rows]:
        """The paths of the present demands; `compared`: the kinds that count below the top. Resets what is stale."""
        is_new = not self._rows
        if is_new:
            self._rows = [paths.no_rows(len(depth.parent), kinds) for depth in depths]
            self._room = [rows.many for rows in self._rows]
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
                found = leaf_turns(at, stale)
                if found is not None:
                    found.node = place[found.node]
                found = turns.merge(
                    found, self._turns_of_children(at + 1, depths[at + 1], stale, place) if below else None
                )
                here = replace(compared, marked=depth.naive[nodes] if depth.naive.any() else None) if at else None
                none = np.zeros((kinds, len(nodes)), dtype=np.int64)
                rows = paths.no_rows(len(nodes), kinds)
                if found is not None:
                    rows = paths.compose(found, len(nodes), none, depth.slope[nodes], here)
                self._put(at, nodes, rows)
            depth.stale[:] = False
            children = stale
        return self._rows

    def _turns_of_children(self, at: int, depth: Depth, stale: Array, place: Array) -> Turns | None:
        """How stale nodes see the paths of their children, which are those of depth `at`."""
        children = np.flatnonzero(stale[depth.parent])
        return paths.turns_of(self._taken(at, children), place[depth.parent[children]])

    def _taken(self, at: int, nodes: Array) -> Rows:
        """The rows of some nodes, numbered in their order."""
        rows = self._rows[at]
        many = rows.many[nodes]
        if len(nodes) == len(rows.many) and many.sum() == len(rows.node):
            return rows
        lines = _ranges(rows.first[nodes], many)
        columns = {name: getattr(rows, name).take(lines, axis=-1) for name in _COLUMNS}
        first = np.cumsum(many) - many
        return Rows(np.repeat(np.arange(len(nodes)), many), first, many, **columns)

    def _put(self, at: int, nodes: Array, found: Rows) -> None:
        """Some nodes have other rows."""
        if len(nodes) == len(found.many) == len(self._rows[at].many):
            self._rows[at], self._room[at] = found, found.many.copy()
            return
        if (found.many > self._room[at][nodes]).any():
            self._make_room(at, nodes, found.many)
        rows, room = self._rows[at], self._room[at]
        first = rows.first[nodes]
        lines = _ranges(first, found.many)
        for name in _COLUMNS:
            getattr(rows, name)[..., lines] = getattr(found, name)
        rows.height[_ranges(first + found.many, room[nodes] - found.many)] = LONG
        rows.many[nodes] = found.many

    def _make_room(self, at: int, nodes: Array, many: Array) -> None:
        """Moves the rows of a depth, so that these nodes have room for so many."""
        rows = self._rows[at]
        kept = rows.many.copy()
        kept[nodes] = 0
        needed = rows.many.copy()
        needed[nodes] = many
        room = needed + (needed >> _SPARE_SHIFT) + _SPARE
        first = np.cumsum(room) - room
        lines, before = _ranges(first, kept), _ranges(rows.first, kept)
        columns = {}
        for name in _COLUMNS:
            column = getattr(rows, name)
            columns[name] = np.zeros((*column.shape[:-1], int(room.sum())), dtype=column.dtype)
            columns[name][..., lines] = column.take(before, axis=-1)
        blank = np.ones(len(columns["height"]), dtype=bool)
        blank[lines] = False
        columns["height"][blank] = LONG
        self._rows[at] = Rows(np.repeat(np.arange(len(room)), room), first, kept, **columns)
        self._room[at] = room


def _ranges(first: Array, many: Array) -> Array:
    """All of `first` .. `first + many - 1`, one after the other."""
    before = np.cumsum(many) - many
    return np.repeat(first - before, many) + np.arange(int(many.sum()))
