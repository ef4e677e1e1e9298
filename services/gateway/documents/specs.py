"""The spec of a job as people write it: what it was submitted with, less what is the default."""

from dataclasses import asdict

from schemas import JobSpec, Stage
from schemas.quantities import quantity_texts
from services.gateway.documents import Document

_SAME = (
    *("after", "gang", "retries", "timeout_ms", "labels", "prefer", "command", "env", "cwd", "locality_wait_ms"),
    *("speculative", "max_failed", "on_failure", "running_max", "inputs"),
)
"""Fields of a stage that are written as they are kept."""

_DEFAULT = Stage("", 1, {})
_PLAIN = JobSpec("", "", [])


def spec_document(spec: JobSpec) -> Document:
    """A spec that `POST /v1/jobs` reads as the same job."""
    found: Document = {"job": spec.job, "queue": spec.queue}
    for name in ("user", "priority", "reservation", "reservation_atom", "altruism_permille", "revocable", "hold"):
        if (value := getattr(spec, name)) != getattr(_PLAIN, name):
            found[name] = value
    return found | {"stages": [_stage(stage) for stage in spec.stages]}


def _stage(stage: Stage) -> Document:
    found: Document = {"stage": stage.stage, "tasks": stage.tasks, "demand": quantity_texts(stage.demand)}
    if stage.true_demand:
        found |= {"demand": quantity_texts(stage.true_demand), "estimate_demand": quantity_texts(stage.demand)}
    if len(stage.durations_ms) == 1:
        found["duration_ms"] = stage.durations_ms[0]
    elif stage.durations_ms:
        found["durations_ms"] = stage.durations_ms
    if stage.estimate_ms:
        found["estimate_ms"] = stage.estimate_ms
    for name in _SAME:
        if (value := getattr(stage, name)) != getattr(_DEFAULT, name):
            found[name] = value
    if stage.anti_affinity is not None:
        group = stage.anti_affinity.group
        found["anti_affinity"] = ({"group": group} if group else {}) | {"required": stage.anti_affinity.required}
    if stage.spread is not None:
        found["spread"] = asdict(stage.spread)
    return found
