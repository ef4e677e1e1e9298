"""The result of filling a tree of queues in arrays (arrays.py)."""

from dataclasses import dataclass

import numpy as np

from schemas.quantities import SHARE_UNITS
from services.fairness.hdrf.breakpoints import Array
from services.fairness.tree import ONE_BITS

_SHARE_BITS = 60


@dataclass(slots=True)
class ArrayFill:
    """The result for leaves (`names`) and inner nodes (`inner`): dominant shares, at most 1. `satisfied`: for each leaf
    whether it has all it asked for. `full`: the saturated kinds, a bit each.
    """

    names: list[str]
    inner: list[str]
    _shares: Array
    _inner_shares: Array
    satisfied: Array
    full: int

    def units(self) -> Array:
        """Shares of the leaves in billionths, rounded down."""
        return _whole(self._shares, SHARE_UNITS)

    def inner_units(self) -> Array:
        """And of the nodes."""
        return _whole(self._inner_shares, SHARE_UNITS)

    def shares(self) -> list[int]:
        """Shares of the leaves, of `ONE`."""
        return [share << ONE_BITS - _SHARE_BITS for share in _whole(self._shares, 1 << _SHARE_BITS).tolist()]

    def inner_shares(self) -> list[int]:
        """And of the nodes."""
        return [share << ONE_BITS - _SHARE_BITS for share in _whole(self._inner_shares, 1 << _SHARE_BITS).tolist()]


def _whole(shares: Array, one: int) -> Array:
    return np.floor(shares * one).astype(np.int64)


class LastFill:
    """The levels of the last filling of a tree, in billionths, to find those that the next one changes. `satisfied`: as
    in `ArrayFill`. Levels before the first filling are -1.
    """

    def __init__(self, leaves: int, nodes: int) -> None:
        self.levels = np.full(leaves, -1)
        self.satisfied = np.zeros(leaves, dtype=bool)
        self.inner = np.full(nodes, -1)

    def update(self, found: ArrayFill) -> tuple[list[int], list[int]]:
        """Takes over a filling. Returns the indexes of the leaves and of the inner nodes that it changes."""
        levels, inner = found.units(), found.inner_units()
        leaves = np.flatnonzero((levels != self.levels) | (found.satisfied != self.satisfied))
        nodes = np.flatnonzero(inner != self.inner)
        self.levels, self.satisfied, self.inner = levels, found.satisfied, inner
        return leaves.tolist(), nodes.tolist()
