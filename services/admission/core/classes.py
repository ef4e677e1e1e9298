"""The class of every live job: decided when it is admitted, and again once there is a capacity to compare with, or the
thresholds have changed. The next opening records the new classes.
"""

from largesse.lifecycle.job_classes import thresholds_of
from schemas import JobJudged, JobSpec, Vector
from schemas.jobs import UNJUDGED
from services.admission.core.state import State
from services.admission.job_class import class_of


def judged_class(state: State, spec: JobSpec) -> int:
    """The class of a job by the present capacity and policy; UNJUDGED where there is no capacity."""
    if not any(state.capacity.values()):
        return UNJUDGED
    return class_of(spec, reference_of(state), thresholds_of(state.policy))


def reference_of(state: State) -> Vector:
    """What requests are compared with: what the nodes have, or what no task holds of it."""
    if state.policy.class_reference == "total":
        return state.capacity
    return {kind: max(0, amount - state.used.get(kind, 0)) for kind, amount in state.capacity.items()}


def judged_again(state: State) -> list[JobJudged]:
    """The jobs that have another class now than the log says, in order of admission."""
    if not state.unjudged or not any(state.capacity.values()):
        return []
    reference, thresholds = reference_of(state), thresholds_of(state.policy)
    found: list[JobJudged] = []
    for name in state.unjudged:
        job = state.jobs.get(name)
        if job is not None and not job.over:
            job_class = class_of(job.spec, reference, thresholds)
            if job_class != job.job_class:
                found.append(JobJudged(name, job_class))
    return found
