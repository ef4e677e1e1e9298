"""A job's class by the dominant share of its request (DRESS, section IV-C; docs/concepts/dress.md).

A request is the largest tasks x demand of a stage, of its tasks as many as may run at a time. The reference is by
default the total capacity: against what is available at the moment, as the paper has it, every job is large on a full
cluster.
"""

from collections.abc import Sequence

from schemas.jobs import JobSpec
from schemas.quantities import Vector

WHOLE_PERMILLE = 1_000


def class_of(spec: JobSpec, reference: Vector, thresholds: Sequence[int]) -> int:
    """The index of the first threshold (permille of the reference, ascending) that no stage goes beyond in any kind of
    resource, else the number of thresholds. Exact: cross-multiplied. A request counts as the whole reference at most,
    so that none goes beyond a threshold of WHOLE_PERMILLE, and nothing stays below one of 0.
    """
    job_class = 0
    for threshold in thresholds:
        if threshold >= WHOLE_PERMILLE or (threshold > 0 and not _exceeds(spec, reference, threshold)):
            return job_class
        job_class += 1
    return job_class


def _exceeds(spec: JobSpec, reference: Vector, threshold: int) -> bool:
    for stage in spec.stages:
        for kind, amount in stage.demand.items():
            if amount * stage.width * WHOLE_PERMILLE > threshold * reference.get(kind, 0):
                return True
    return False
