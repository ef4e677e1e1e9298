"""Changes of live jobs: held and released, another priority, another queue. Which may be, and what is learnt of them.

The log has a change once. Grants of a round that was open meanwhile are struck where the job is held from then on, or
is of another queue.
"""

from dataclasses import replace

from largesse.lifecycle.queue_rules import queue_problem
from largesse.lifecycle.running_limit import rerank
from schemas import InputRefused, JobChanged, JobSpec, Record
from schemas.jobs import Rejection
from schemas.wording import plural
from services.admission.core.after_jobs import forget_waiting, note_held
from services.admission.core.demand import note_job
from services.admission.core.job_limits import ceiling_problem, gang_problem, jobs_problem
from services.admission.core.keys import digest_of
from services.admission.core.parked import admit_job, leave_queue
from services.admission.core.reservations import reservation_problem
from services.admission.core.state import Changed, JobState, State
from services.admission.core.task_fold import count_job


def submission_of(state: State, name: str, job: JobState) -> str:
    """A short name for the spec that a live job was submitted with."""
    changed = state.changed.get(name)
    return digest_of(job.spec) if changed is None else changed.digest


def is_same(state: State, name: str, job: JobState, spec: JobSpec) -> bool:
    """Whether a live job was submitted with this spec."""
    changed = state.changed.get(name)
    return job.spec == spec if changed is None else changed.digest == digest_of(spec)


def judge_change(state: State, body: JobChanged, author: str) -> JobChanged | InputRefused:
    """The record that a change becomes. One that changes nothing is a record too: who asked gets an answer."""
    job = state.jobs.get(body.job)
    if job is None or job.over:
        what = "has ended" if job is not None or body.job in state.ended else "is not known here"
        return _refused(f'job "{body.job}" {what}', "change", author)
    if body.hold is False and (waits := state.waits.get(body.job)):
        others = ", ".join(f'"{other}"' for other in waits)
        return _refused(f"it comes after {others}, and is released when that has ended", "hold", author)
    priority, queue = body.priority, body.queue
    if queue == job.spec.queue:
        queue = None
    if queue is not None:
        if problem := _problem(state, replace(job.spec, queue=queue), job.spec.queue):
            return _refused(problem[2], "queue" if problem[1].startswith("stages") else problem[1], author)
        if job.held:
            there = f"{plural(job.held, 'attempt')} of its tasks {'holds' if job.held == 1 else 'hold'} room"
            rule = "a job changes its queue only while nothing of it runs"
            return _refused(f"{there}, and {rule}: hold the job and wait until none does", "queue", author)
        if priority is None:
            priority = job.spec.priority
    return JobChanged(body.job, body.hold, priority, queue, job.seq, author)


def why_begun(state: State, name: str, job: JobState, admitted: int = 0) -> str:
    """Why a live job is not as it was when it was submitted; empty: it is, and none of its attempts was ever granted.
    `admitted`: the seq of the admission that is meant; 0: any.
    """
    if admitted not in (0, job.seq):
        return f"was admitted by record {job.seq}, not {admitted}"
    if any(job.granted):
        return "has been started"
    if name in state.runs:
        return "runs again here"
    if name in state.waited_by:
        return "is one that other jobs come after"
    return "was changed" if name in state.changed else ""


def _problem(state: State, spec: JobSpec, before: str) -> tuple[Rejection, str, str] | None:
    """Why a job may not be of its queue from now on."""
    return (
        queue_problem(state.leaves, state.submitters, spec.queue, spec.user)
        or jobs_problem(state, spec, before)
        or reservation_problem(state, spec)
        or ceiling_problem(state, spec)
        or gang_problem(state, spec)
    )


def _refused(reason: str, field: str, author: str) -> InputRefused:
    return InputRefused("jobs", reason, field, 0, "", author)


def fold_changed(state: State, record: Record[JobChanged]) -> None:
    """A live job is another from now on."""
    body = record.body
    name, job = body.job, state.jobs[body.job]
    changed = state.changed.get(name)
    if changed is None:
        changed = state.changed[name] = Changed(digest_of(job.spec))
    if body.priority is not None:
        job.spec = replace(job.spec, priority=body.priority)
        rerank(state.running_limits, name, body.priority)
    if body.queue is not None:
        changed.seq = record.seq
        leave_queue(state, name)
        count_job(state, job.spec, -1)
        job.spec, job.parked = replace(job.spec, queue=body.queue), False
        count_job(state, job.spec, 1)
        admit_job(state, name, job)
    if body.hold is True:
        note_held(state, name)
    elif body.hold is False:
        state.released.pop(name, None)
    if body.hold is True and name not in state.on_hold:
        changed.seq = record.seq
        state.on_hold[name] = True
    elif body.hold is False:
        state.on_hold.pop(name, None)
    note_job(state, name)
    state.needs_round = True


def forget_changes(state: State, name: str) -> None:
    """A job is over."""
    forget_waiting(state, name)
    state.changed.pop(name, None)
    state.on_hold.pop(name, None)
