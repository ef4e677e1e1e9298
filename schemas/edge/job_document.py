"""A job spec as a document that reads back to the same: what a gateway sends where a job is to run again."""

from dataclasses import asdict
from decimal import Decimal

from schemas.jobs import ENGINE_LABEL, JobSpec, RetryRule, Stage
from schemas.quantities import quantity_texts

Document = dict[str, object]


def job_document(spec: JobSpec) -> Document:
    """What a submission of this job says. Its quantities are texts."""
    document: Document = {
        "job": spec.job,
        "queue": spec.queue,
        "priority": spec.priority,
        "user": spec.user,
        "stages": [_stage(stage) for stage in spec.stages],
        "reservation": spec.reservation,
        "reservation_atom": spec.reservation_atom,
        "altruism_permille": spec.altruism_permille,
        "revocable": spec.revocable,
        "hold": spec.hold,
        "after_jobs": [asdict(after) for after in spec.after_jobs],
        "on_unmet": spec.on_unmet,
    }
    return document


def _stage(stage: Stage) -> Document:
    document: Document = {
        "stage": stage.stage,
        "after": stage.after,
        "demand": quantity_texts(stage.true_demand or stage.demand),
        "estimate_ms": stage.estimate_ms,
        "gang": stage.gang,
        "retries": stage.retries,
        "timeout_ms": stage.timeout_ms,
        "labels": stage.labels,
        "prefer": stage.prefer,
        "env": stage.env,
        "cwd": stage.cwd,
        "locality_wait_ms": stage.locality_wait_ms,
        "speculative": stage.speculative,
        "max_failed": stage.max_failed,
        "on_failure": stage.on_failure,
        "running_max": stage.running_max,
        "inputs": stage.inputs,
        "array": stage.array or None,
        "matrix": {axis.name: axis.values for axis in stage.matrix} or None,
        "secrets": stage.secrets,
        "grace_ms": stage.grace_ms,
        "retry": [_rule(rule) for rule in stage.retry],
    }
    if stage.true_demand:
        document["estimate_demand"] = quantity_texts(stage.demand)
    if stage.command:
        document |= {"command": stage.command, "tasks": stage.tasks}
    elif len(stage.durations_ms) == 1:
        document |= {"duration_ms": stage.durations_ms[0], "tasks": stage.tasks}
    else:
        document["durations_ms"] = stage.durations_ms
    if stage.anti_affinity is not None:
        document["anti_affinity"] = {**asdict(stage.anti_affinity), "group": stage.anti_affinity.group or None}
    if stage.spread is not None:
        document["spread"] = asdict(stage.spread)
    if stage.container is not None:  # It asks for the label itself.
        document["labels"] = {key: value for key, value in stage.labels.items() if key != ENGINE_LABEL}
        document["container"] = asdict(stage.container)
    return document


def _rule(rule: RetryRule) -> Document:
    factor = Decimal(rule.backoff_factor_permille) / 1_000
    return {
        "on": rule.on,
        "limit": rule.limit,
        "backoff_ms": rule.backoff_ms,
        "backoff_factor": factor,
        "backoff_max_ms": rule.backoff_max_ms,
    }
