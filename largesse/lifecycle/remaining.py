"""What is left to be done of a job: by kind of resource, and how long its tasks take. One rule for every core."""

from largesse.lifecycle.run_times import Seen, expected_ms
from largesse.lifecycle.state import Graph, Progress
from schemas.quantities import SHARE_UNITS, Vector

KINDS = ","
"""Separates the kinds of resource in the name of a set of them."""


def work_of(graph: Graph, progress: Progress, seen: dict[str, Seen]) -> Vector:
    """By kind, in base units x ms: what the tasks that have not ended ask for, for as long as one is expected to
    run."""
    work: Vector = {}
    for at, left in enumerate(progress.left):
        if left:
            stage = graph.stages[at]
            lasts_ms = left * expected_ms(stage, seen)
            for kind, amount in stage.demand.items():
                if amount:
                    work[kind] = work.get(kind, 0) + amount * lasts_ms
    return work


def direction_of(work: Vector, capacity: Vector) -> Vector:
    """The dominant shares of work: by kind, the part of the cell (in billionths) that the job would hold which has all
    of its dominant kind. Kinds that the cell has not got are left out; empty where nothing is left.
    """
    shares = {
        kind: amount * SHARE_UNITS // capacity[kind] for kind, amount in work.items() if capacity.get(kind, 0) > 0
    }
    most = max(shares.values(), default=0)
    return {kind: share * SHARE_UNITS // most for kind, share in sorted(shares.items()) if share} if most else {}


def set_of(demand: Vector) -> str:
    """Names the set of kinds that a demand, or work, asks for."""
    return KINDS.join(sorted([kind for kind, amount in demand.items() if amount]))


def share_vector(direction: Vector, capacity: Vector, share: int) -> Vector:
    """The entitlement of a job as a vector, in base units: its dominant share (in billionths) in a direction."""
    return {kind: share * part * capacity[kind] // (SHARE_UNITS * SHARE_UNITS) for kind, part in direction.items()}
