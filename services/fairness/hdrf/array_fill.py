"""The result of filling a tree of queues in arrays (arrays.py)."""

from dataclasses import dataclass

import numpy as np

from schemas.quantities import SHARE_UNITS
from services.fairness.hdrf.breakpoints import Array
from services.fairness.tree import ONE_BITS

_SHARE_BITS = 60


@dataclass(slots=True)
class ArrayFill:
    """The result for leaves (`names`) and inner nodes (`inner`): dominant shares, at most 1, and whether each is
    `satisfied`, that is has all it asked for. `full`: the saturated kinds, a bit each.
    """

    names: list[str]
    inner: list[str]
    _shares: Array
    _inner_shares: Array
    satisfied: list[bool]
    inner_satisfied: list[bool]
    full: int

    def units(self) -> list[int]:
        """Shares of the leaves in billionths, rounded down."""
        return _whole(self._shares, SHARE_UNITS)

    def inner_units(self) -> list[int]:
        """And of the nodes."""
        return _whole(self._inner_shares, SHARE_UNITS)

    def shares(self) -> list[int]:
        """Shares of the leaves, of `ONE`."""
        return [share << ONE_BITS - _SHARE_BITS for share in _whole(self._shares, 1 << _SHARE_BITS)]

    def inner_shares(self) -> list[int]:
        """And of the nodes."""
        return [share << ONE_BITS - _SHARE_BITS for share in _whole(self._inner_shares, 1 << _SHARE_BITS)]


def _whole(shares: Array, one: int) -> list[int]:
    found: list[int] = np.floor(shares * one).astype(np.int64).tolist()
    return found
