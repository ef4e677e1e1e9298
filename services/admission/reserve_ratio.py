"""How the pools of the classes follow demand and forecast (DRESS, algorithm 3; docs/concepts/dress.md).

All numbers are millionths of the cell, measured in each job's, or class's, tightest kind of resource. The paper has two
classes, whose pools are `delta` and `1 - delta`. With more of them the last one, the largest requests, is the paper's
large class to each of the others: those adjust their pools one after another, the smallest requests first, against what
is left of the last pool. Slips of the paper that are mended here: what is available is in the forecast already and
counts once; each pool has its own forecast; an exact fit is a fit; the last job counts too; a job that is moved uses
the rest of its own pool first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.quantities import MILLIONTHS, Vector


@dataclass(slots=True)
class ClassDemand:
    """Forecast and demand of a class. `gap`: forecast minus demand, in the kind where that is least (negative: so much
    is lacking). `rest`: the forecast, in the kind where that is least. `requests`: requests of its waiting jobs,
    ascending, as (request, number of such jobs).
    """

    gap: int
    rest: int
    requests: Sequence[tuple[int, int]]


@dataclass(slots=True)
class Bounds:
    """The pools of all classes but the last together have at least `least`, at most `most`, and begin with `start`."""

    start: int
    least: int
    most: int


def class_demand(
    forecast: Vector, pending: Vector, capacity: Vector, requests: Sequence[tuple[int, int]]
) -> ClassDemand:
    """From what is forecast and waited for, in base units. Rounded down: nobody counts on a part of a unit."""
    gaps, rests = [0], [0]
    kinds = [kind for kind, amount in capacity.items() if amount > 0]
    if kinds:
        gaps = [(forecast.get(kind, 0) - pending.get(kind, 0)) * MILLIONTHS // capacity[kind] for kind in kinds]
        rests = [forecast.get(kind, 0) * MILLIONTHS // capacity[kind] for kind in kinds]
    return ClassDemand(min(gaps), min(rests), requests)


def first_pools(classes: int, bounds: Bounds) -> list[int]:
    """The pools that `classes` classes (2 or more) begin with."""
    each = bounds.start // (classes - 1)
    return bounded([each] * (classes - 1), bounds)


def next_pools(pools: Sequence[int], demands: Sequence[ClassDemand], bounds: Bounds) -> list[int]:
    """The pools from now on, by class. They sum to MILLIONTHS."""
    last = len(pools) - 1
    reserved = list(pools[:last])
    spare, rest = demands[last].gap, demands[last].rest
    for at in range(last):
        surplus = min(demands[at].gap, reserved[at])
        if surplus > 0:  # Lines 7 and 8: its forecast covers what it waits for.
            reserved[at] -= surplus
            spare += surplus
            rest += surplus
    rest = _left_over(demands[last].requests, rest)
    for at in range(last):
        lacking = -demands[at].gap
        if lacking <= 0:
            continue
        if spare >= 0:  # Lines 9 to 11, but never by more than is lacking.
            grown = min(spare, lacking)
            spare -= grown
        else:  # Lines 12 to 24.
            grown = _moved(demands[at], rest)
            rest -= grown
        reserved[at] += grown
    return bounded(reserved, bounds)


def bounded(reserved: Sequence[int], bounds: Bounds) -> list[int]:
    """All pools, given those of all classes but the last, within the bounds. Each has its part of the lower bound; of
    the upper one the smaller requests get theirs first."""
    most = min(max(bounds.most, 0), MILLIONTHS)
    floor = min(max(bounds.least, 0), most) // len(reserved)
    found = []
    left = most - floor * len(reserved)
    for pool in reserved:
        more = min(max(0, pool - floor), left)
        left -= more
        found.append(floor + more)
    return [*found, MILLIONTHS - sum(found)]


def _left_over(requests: Sequence[tuple[int, int]], rest: int) -> int:
    """What is left of `rest` once jobs are fitted into it, in ascending order of request, until one does not fit."""
    for request, jobs in requests:
        fitting = min(jobs, rest // request)
        rest -= fitting * request
        if fitting < jobs:
            break
    return rest


def _moved(demand: ClassDemand, rest_of_last: int) -> int:
    """How much of the last pool's rest goes to jobs of a class that do not fit into their own pool (lines 21 to 24)."""
    own, moved = demand.rest, 0
    for request, jobs in demand.requests:
        fitting = min(jobs, (own + rest_of_last - moved) // request)
        moved += max(0, fitting * request - own)
        own = max(0, own - fitting * request)
        if fitting < jobs:
            break
    return moved
