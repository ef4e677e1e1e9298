"""Breakpoints of the piecewise linear paths of nodes (`paths.py`): where their speeds change, in arrays."""

from dataclasses import dataclass
from typing import Any

import numpy as np

COARSE, FINE = float(1 << 20), float(1 << 64)
_COARSE_UNIT, _FINE_UNIT = 1 / COARSE, 1 / FINE  # Powers of two: to multiply by them is exact, and faster.

Array = Any
"""Of numpy, with 64-bit whole numbers or IEEE 754 doubles."""


@dataclass(slots=True)
class Breakpoints:
    """Changes of speed: of which `node`, at which `level` and `lag` of its children, and by how much: `speed` per unit
    of level, `drift` per unit of lag (both as `split` encodes them; `drift` None: no child stalls).
    """

    node: Array
    level: Array
    lag: Array
    speed: Array
    drift: Array | None


def split(speed: Array) -> Array:
    """Speeds by kind, each as two integers: the coarse parts of all kinds, then the fine ones. Their sums are exact."""
    kinds = len(speed)
    parts = np.empty((2 * kinds, *speed.shape[1:]), dtype=np.int64)
    coarse = np.rint(speed * COARSE)
    parts[:kinds] = coarse
    parts[kinds:] = np.rint((speed - coarse * _COARSE_UNIT) * FINE)
    return parts


def joined(parts: Array) -> Array:
    """The speeds that `split` has encoded."""
    kinds = len(parts) // 2
    return parts[:kinds] * _COARSE_UNIT + parts[kinds:] * _FINE_UNIT


def starts_of(node: Array) -> Array:
    """Where each run of equal numbers begins."""
    return np.flatnonzero(np.concatenate(([True], node[1:] != node[:-1])))


def running(changes: Array, starts: Array, many: Array) -> Array:
    """Speeds after each change: prefix sums that begin at 0 at each of `starts`."""
    sums = np.cumsum(changes, axis=1)
    if len(starts) > 1:
        sums -= np.repeat(sums[:, starts] - changes[:, starts], many, axis=1)
    return joined(sums)


def merge(first: Breakpoints | None, second: Breakpoints | None) -> Breakpoints | None:
    """All breakpoints by node, level and lag; None if there are none. Only the second may have lags."""
    found = first if second is None else second
    if found is None:
        return None
    node, level, lag, speed, drift = found.node, found.level, found.lag, found.speed, found.drift
    if first is not None and second is not None:
        node, level, lag = (
            np.concatenate(both) for both in ((first.node, node), (first.level, level), (first.lag, lag))
        )
        speed = np.concatenate((first.speed, speed), axis=1)
        if drift is not None:
            drift = np.concatenate((np.zeros_like(first.speed), drift), axis=1)
    order = np.lexsort((level, node) if drift is None else (lag, level, node))
    return Breakpoints(
        node[order],
        level[order],
        lag[order],
        speed.take(order, axis=1),
        None if drift is None else drift.take(order, axis=1),
    )
