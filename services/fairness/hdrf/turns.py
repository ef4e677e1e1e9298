"""Where the speeds of nodes change along their paths, in arrays."""

from dataclasses import dataclass
from typing import Any

import numpy as np

COARSE, FINE = float(1 << 20), float(1 << 64)

Array = Any
"""Of numpy, with 64-bit whole numbers or IEEE 754 doubles."""


@dataclass(slots=True)
class Turns:
    """Where speeds change: of which node, at what level and lag of its water; by how much, per level and per lag."""

    node: Array
    level: Array
    lag: Array
    speed: tuple[Array, Array]
    drift: tuple[Array, Array] | None


def split(speed: Array) -> tuple[Array, Array]:
    """A speed as two whole numbers."""
    coarse = np.rint(speed * COARSE)
    return coarse.astype(np.int64), np.rint((speed - coarse / COARSE) * FINE).astype(np.int64)


def joined(parts: tuple[Array, Array]) -> Array:
    """And back again."""
    return parts[0] / COARSE + parts[1] / FINE


def starts_of(node: Array) -> Array:
    """Where each run of equal numbers begins."""
    return np.flatnonzero(np.concatenate(([True], node[1:] != node[:-1])))


def running(parts: tuple[Array, Array], starts: Array, many: Array) -> Array:
    """Speeds after each change, from 0 at each start."""
    found = []
    for changes in parts:
        sums = np.cumsum(changes, axis=1)
        if len(starts) > 1:
            sums -= np.repeat(sums[:, starts] - changes[:, starts], many, axis=1)
        found.append(sums)
    return joined((found[0], found[1]))


def merge(first: Turns | None, second: Turns | None) -> Turns | None:
    """All turns in order; None if there are none. Only the second may have lags."""
    found = first if second is None else second
    if found is None:
        return None
    node, level, lag, speed, drift = found.node, found.level, found.lag, found.speed, found.drift
    if first is not None and second is not None:
        node, level, lag = (
            np.concatenate(both) for both in ((first.node, node), (first.level, level), (first.lag, lag))
        )
        speed = beside(first.speed, speed)
        if drift is not None:
            nothing = np.zeros_like(first.speed[0])
            drift = beside((nothing, nothing), drift)
    order = np.lexsort((level, node) if drift is None else (lag, level, node))
    return Turns(
        node[order], level[order], lag[order], _picked(speed, order), None if drift is None else _picked(drift, order)
    )


def beside(parts: tuple[Array, Array], more: tuple[Array, Array]) -> tuple[Array, Array]:
    return np.concatenate((parts[0], more[0]), axis=1), np.concatenate((parts[1], more[1]), axis=1)


def _picked(parts: tuple[Array, Array], order: Array) -> tuple[Array, Array]:
    return parts[0][:, order], parts[1][:, order]
