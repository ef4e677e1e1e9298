"""Jobs that users have put on hold, released or changed, and what that changes here."""

from largesse.lifecycle.running_limit import leave, may_run, rerank
from schemas import JobChanged, Record
from schemas.presets import PRESETS
from services.altruism.core.ledger import accrue
from services.altruism.core.round_fold import change, is_ours
from services.altruism.core.state import Job, State
from services.altruism.core.waits import begin as begin_waits
from services.altruism.core.waits import begin_again, wait_anew


def begin(state: State, names: list[str], time: int) -> None:
    """These jobs may run from now on. What they ask for follows from their graphs, so there is nothing to say."""
    for name in names:
        if name in state.on_hold:
            state.on_hold[name] = True
        else:
            _ask(state, name, state.jobs[name], time)


def park(state: State, name: str, time: int) -> None:
    """A job may run no more until it is named again."""
    if name in state.on_hold:
        state.on_hold[name] = False
    else:
        _stop_asking(state, name, state.jobs[name], time)


def derail(state: State, name: str, job: Job) -> None:
    """A job is to be planned again, whatever comes of that."""
    if PRESETS[state.policy.preset].plans_jobs and is_ours(state, name):
        state.stale[name] = job.derailed = True


def fold_changed(state: State, record: Record[JobChanged]) -> None:
    """A user has changed a job."""
    body, time = record.body, record.time
    name, job = body.job, state.jobs[body.job]
    if body.priority is not None:
        rerank(state.running_limits, name, body.priority)
    if body.queue is not None and body.priority is not None:
        _move(state, name, job, body.queue, body.priority, time)
    if body.hold is True and name not in state.on_hold:
        might_run = job.began and name not in state.held_back
        state.on_hold[name] = might_run
        if might_run:
            _stop_asking(state, name, job, time)
    elif body.hold is False and state.on_hold.pop(name, False):
        wait_anew(job, time)
        _ask(state, name, job, time)


def _move(state: State, name: str, job: Job, queue: str, priority: int, time: int) -> None:
    """A job with nothing running moves to another queue."""
    if job.began and name not in state.held_back:
        _stop_asking(state, name, job, time)
    begin(state, leave(state.running_limits, name), time)
    job.queue = queue
    if name in state.on_hold:
        state.on_hold[name] = False
    if may_run(state.running_limits, name, queue, priority, job.admitted):
        begin(state, [name], time)


def _ask(state: State, name: str, job: Job, time: int) -> None:
    if state.held_back.pop(name, False):
        change(state, name)  # It waits for what it waited for before.
    else:
        job.began = True
        if name in state.again:
            begin_again(job, state.again[name] + 1, time)
        else:
            begin_waits(job, time)
    state.written += is_ours(state, name)
    if PRESETS[state.policy.preset].plans_jobs:
        derail(state, name, job)
        change(state, name)


def _stop_asking(state: State, name: str, job: Job, time: int) -> None:
    state.held_back[name] = True
    accrue(job, time)
    if job.account is not None:
        job.account.vector = {}  # It is entitled to nothing until it may run again, and is planned again then.
