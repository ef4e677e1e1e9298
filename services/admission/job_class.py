"""Small or large: a job's class by the dominant share of its request (DRESS, section 3.2; policies.md, "DRESS").

A request is the largest tasks x demand of a stage. The reference is total capacity: against what is available at the
moment, as the paper has it, every job would be large on a full cluster.
"""

from schemas.jobs import JobClass, JobSpec
from schemas.quantities import Vector


def class_of(spec: JobSpec, capacity: Vector, theta_permille: int) -> JobClass:
    """`small` if no stage asks for more than theta of the reference in any resource. Exact: cross-multiplied."""
    for stage in spec.stages:
        for resource, amount in stage.demand.items():
            if amount * stage.tasks * 1000 > theta_permille * capacity.get(resource, 0):
                return "large"
    return "small"
