"""What stages hand on to later ones: which of their tasks succeeded where, in this or an earlier run of their job."""

from dataclasses import dataclass, field
from typing import Final

from schemas import JobAdmitted, Record

PAST_JOBS_MAX: Final = 1_000
"""Of so many jobs that have ended an agent knows what they handed on, for when they run again from a later stage, of
those that ended last;"""
PAST_RECORDS_MAX: Final = 100_000
"""and of so many successes of their tasks in all."""


@dataclass(slots=True)
class Handed:
    """Tasks of one stage that succeeded in this attempt on this node, whose results later stages need. `run`: of their
    job, the seq of its admission; 0: the one that needs them. No tasks: nobody knows any more which they were.
    """

    stage: str
    first: int
    count: int
    attempt: int
    node: str
    run: int = 0


@dataclass(slots=True)
class Past:
    """By job that has ended, what its stages have handed on, the job that ended last at the end; `records` in all."""

    jobs: dict[str, dict[str, list[Handed]]] = field(default_factory=dict)
    records: int = 0


def handed_at_first(past: Past, record: Record[JobAdmitted]) -> dict[str, list[Handed]]:
    """What is known at the admission of a job of what its stages hand on, by stage of which others need the results."""
    body = record.body
    before = _forget(past, body.spec.job)
    handed: dict[str, list[Handed]] = {}
    for stage in body.spec.stages:
        for name in stage.inputs:
            handed[name] = []
            if name in body.kept:
                handed[name] = before[name] if before is not None else [Handed(name, 0, 0, 0, "")]
    return handed


def remember(past: Past, job: str, handed: dict[str, list[Handed]]) -> None:
    """A job has ended."""
    _forget(past, job)
    if not handed:
        return
    past.jobs[job] = handed
    past.records += sum(len(tasks) for tasks in handed.values())
    while past.records > PAST_RECORDS_MAX or len(past.jobs) > PAST_JOBS_MAX:
        _forget(past, next(iter(past.jobs)))


def _forget(past: Past, job: str) -> dict[str, list[Handed]] | None:
    handed = past.jobs.pop(job, None)
    if handed is not None:
        past.records -= sum(len(tasks) for tasks in handed.values())
    return handed
