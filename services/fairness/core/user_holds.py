"""Jobs that users have put on hold, released or changed, and what that changes here."""

from largesse.lifecycle.running_limit import leave, may_run, rerank
from schemas import JobChanged, Record
from services.fairness.core.demand import asked_of, count_rests, count_tasks, running
from services.fairness.core.stale import change_work, entitle
from services.fairness.core.state import Job, State


def begin(state: State, names: list[str]) -> None:
    """These jobs may run from now on."""
    for name in names:
        if name in state.on_hold:
            state.on_hold[name] = True
        else:
            _ask(state, name, state.jobs[name])


def park(state: State, name: str) -> None:
    """A job may run no more until it is named again."""
    if name in state.on_hold:
        state.on_hold[name] = False
    else:
        _stop_asking(state, name, state.jobs[name])


def fold_changed(state: State, record: Record[JobChanged]) -> None:
    """A user has changed a job."""
    body = record.body
    name, job = body.job, state.jobs[body.job]
    if body.priority is not None:
        rerank(state.running_limits, name, body.priority)
    if body.queue is not None and body.priority is not None:
        _move(state, name, job, body.queue, body.priority, body.admitted)
    if body.hold is True and name not in state.on_hold:
        state.on_hold[name] = job.began
        if job.began:
            _stop_asking(state, name, job)
    elif body.hold is False and state.on_hold.pop(name, False):
        _ask(state, name, job)
    state.rounds.note_change(record.seq)


def _move(state: State, name: str, job: Job, queue: str, priority: int, admitted: int) -> None:
    """A job with nothing running moves to another queue."""
    if job.began:
        _stop_asking(state, name, job)
    begin(state, leave(state.running_limits, name))
    reserving = state.reserving.get(name)
    if reserving is not None:
        reserving.queue = queue
    if reserving is None or job.queue:
        job.queue = queue
    if name in state.on_hold:
        state.on_hold[name] = False
    if may_run(state.running_limits, name, queue, priority, admitted):
        begin(state, [name])


def let_go(state: State, names: list[str]) -> list[str]:
    """Those of these jobs that are held and might run ask for a moment. Returns them."""
    found = [name for name in names if state.on_hold.get(name, False)]
    for name in found:
        _ask(state, name, state.jobs[name])
    return found


def hold_again(state: State, names: list[str]) -> None:
    """The moment is over."""
    for name in names:
        _stop_asking(state, name, state.jobs[name])


def _ask(state: State, name: str, job: Job) -> None:
    """A job asks from now on for all that it waits for."""
    job.began = True
    _count(state, name, job, 1)
    count_rests(state, job, name, 1)


def _stop_asking(state: State, name: str, job: Job) -> None:
    """A job asks no longer for what it waits for."""
    count_rests(state, job, name, -1)
    _count(state, name, job, -1)
    job.began = False


def _count(state: State, name: str, job: Job, sign: int) -> None:
    change_work(state, name)
    entitle(state)
    for at, left in enumerate(job.progress.left):
        if left and job.progress.parents[at] == 0:
            waits = sign * (asked_of(job.graph.stages[at], left) - running(state, name, job, at))
            count_tasks(state, job.queue, job.graph.stages[at].demand, waits, waits, user=job.user)
