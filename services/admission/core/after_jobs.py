"""Jobs that come after other jobs: what they wait for, when they are let go, when they can run no more.

A job that waits is admitted as held, which every core knows; what it was submitted with is `submitted` of its
admission. When the last job that it waits for has ended as it has to, the sequencer releases it, by a record like that
of a user. It waits only for jobs that were admitted before it, so jobs never wait for each other in a circle.
"""

from dataclasses import replace

from schemas import JobAdmitted, JobChanged, JobEnd, JobSpec, Record
from schemas.jobs import DependencyOn, Outcome
from schemas.wording import nearest
from services.admission.core.keys import digest_of, is_free
from services.admission.core.parked import leave_queue
from services.admission.core.state import Changed, State
from services.admission.core.task_fold import end_job

NAMES_LOOKED_AT = 1_000
"""A nearest name is looked for among this number of jobs at most."""

RELEASES = "sequencer"
"""The author of a release that follows from the ends of other jobs."""


def is_met(on: DependencyOn, outcome: Outcome) -> bool:
    """Whether an end is one that is waited for. A cancelled job has not succeeded."""
    return on == "any" or (on == "success") == (outcome == "succeeded")


def dependency_problem(state: State, spec: JobSpec, time: int) -> tuple[str, str] | None:
    """The field and the reason of a refusal for the jobs that a job comes after."""
    for i, after in enumerate(spec.after_jobs):
        if after.job in state.jobs:
            continue
        field = f"after_jobs[{i}].job"
        ended = state.ended.get(after.job)
        if ended is None or is_free(state, ended, time):
            close = nearest(after.job, state.jobs) if len(state.jobs) <= NAMES_LOOKED_AT else None
            fix = f'did you mean "{close}"?' if close else "submit that first, or leave it out if it ended long ago"
            return field, f'no job "{after.job}" is known here: {fix}'
        if ended.moved_to:
            return field, f'job "{after.job}" has moved to cell {ended.moved_to}: submit this one there'
        if not is_met(after.on, ended.outcome):
            return field, unmet_text(after.job, after.on, ended.outcome)
    return None


def unmet_text(job: str, on: DependencyOn, outcome: Outcome) -> str:
    """Why a job can run no more that comes after another."""
    return f'job "{job}" has ended as {outcome}, and this one comes after its {on}'


def waiting_for(state: State, spec: JobSpec) -> list[str]:
    """The jobs that have to end before this one may run."""
    return [after.job for after in spec.after_jobs if after.job in state.jobs]


def fold_admitted(state: State, body: JobAdmitted) -> None:
    """A job waits for others from now on."""
    name = body.spec.job
    if not body.waits_for:
        return
    state.waits[name] = dict.fromkeys(body.waits_for, True)
    for other in body.waits_for:
        state.waited_by.setdefault(other, {})[name] = True
    state.changed[name] = Changed(digest_of(body.submitted))
    if body.held:
        state.held_too[name] = True


def note_held(state: State, name: str) -> None:
    """A user holds a job: also where it waits, or is about to be released."""
    state.released.pop(name, None)
    if name in state.waits:
        state.held_too[name] = True


def forget_waiting(state: State, name: str) -> None:
    """A job is over: it waits for nothing any more."""
    for other in state.waits.pop(name, ()):
        waiting = state.waited_by.get(other, {})
        waiting.pop(name, None)
        if not waiting:
            state.waited_by.pop(other, None)
    state.held_too.pop(name, None)
    state.released.pop(name, None)


def fold_ends(state: State, record: Record, ends: list[JobEnd]) -> None:
    """Jobs have ended, and are forgotten: what becomes of those that come after them."""
    for end in ends:
        for name in list(state.waited_by.pop(end.job, ())):
            state.waits[name].pop(end.job)
            job = state.jobs[name]
            if job.over:
                continue
            on = next(after.on for after in job.spec.after_jobs if after.job == end.job)
            if not is_met(on, end.outcome):
                _unmet(state, record, name, unmet_text(end.job, on, end.outcome))
            elif not state.waits[name]:
                held = name in state.held_too
                forget_waiting(state, name)
                if not held:
                    state.released[name] = True


def _unmet(state: State, record: Record, name: str, detail: str) -> None:
    """It is cancelled; or it stays held until somebody releases it."""
    cancelled = state.jobs[name].spec.on_unmet == "cancel"
    forget_waiting(state, name)
    if cancelled:
        end_job(state, record, JobEnd(name, "cancelled", detail))
        leave_queue(state, name)


def release_due(state: State) -> JobChanged | None:
    """The next release that follows from ends of jobs."""
    for name in state.released:
        return JobChanged(name, hold=False, admitted=state.jobs[name].seq, author=RELEASES)
    return None


def held_spec(state: State, body: JobAdmitted) -> JobAdmitted:
    """The admission, of a job that waits where others have to end first."""
    waits = waiting_for(state, body.spec)
    return replace(body, spec=replace(body.spec, hold=True), waits_for=waits, held=body.spec.hold) if waits else body
