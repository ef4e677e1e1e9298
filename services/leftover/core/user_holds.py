"""Jobs that users have put on hold, released or changed, and what that changes here."""

from largesse.lifecycle.running_limit import leave, may_run, rerank
from schemas import JobChanged, Record
from services.leftover.core import locality
from services.leftover.core.asks import ask, asks_of, first_asks
from services.leftover.core.board import spans_of
from services.leftover.core.copies import stragglers
from services.leftover.core.job import Job
from services.leftover.core.round_fold import forget_board
from services.leftover.core.shadow_order import join
from services.leftover.core.state import State


def begin(state: State, names: list[str], record: Record) -> None:
    """These jobs may run from now on, and ask for the stages that can; altruism names what changes later."""
    for name in names:
        if name in state.on_hold:
            state.on_hold[name] = True
        else:
            _ask(state, name, state.jobs[name], record)


def park(state: State, name: str) -> None:
    """A job may run no more until it is named again. It stays in the shadow."""
    if name in state.on_hold:
        state.on_hold[name] = False
    else:
        _stop_asking(state, name, state.jobs[name])


def fold_changed(state: State, record: Record[JobChanged]) -> None:
    """A user has changed a job."""
    body = record.body
    name, job = body.job, state.jobs[body.job]
    if state.decided is not None:
        forget_board(state)  # The round that is open was decided for the job as it was.
    if body.priority is not None:
        job.priority = body.priority
        rerank(state.running_limits, name, body.priority)
        if state.board is not None and state.board.has_job(name):
            state.board.jobs.set_priority(name, body.priority)
    if body.queue is not None:
        _move(state, name, job, body.queue, record)
    if body.hold is True and name not in state.on_hold:
        state.on_hold[name] = job.began > 0
        if job.began:
            _stop_asking(state, name, job)
        state.shadow.depart(job, returns=True)
        _note_runs(state, name)
    elif body.hold is False and name in state.on_hold:
        if state.on_hold.pop(name):
            _ask(state, name, job, record)
        _note_runs(state, name)


def _move(state: State, name: str, job: Job, queue: str, record: Record) -> None:
    """A job with nothing running moves to another queue."""
    if job.began:
        _stop_asking(state, name, job)
    state.shadow.depart(job, returns=True)
    begin(state, leave(state.running_limits, name), record)
    job.queue = queue
    forget_board(state)
    if name in state.on_hold:
        state.on_hold[name] = False
    if may_run(state.running_limits, name, queue, job.priority, job.admitted):
        begin(state, [name], record)


def _ask(state: State, name: str, job: Job, record: Record) -> None:
    job.began = record.seq
    if state.held_back.pop(name, False):
        if not state.shadow.knows(job):
            join(state, name, job, record.time)
        state.shadow.stir(job)
        return  # It is not at its beginning: altruism says in the next round what it asks for.
    if name in state.again:
        ask(job, first_asks(job, state.again[name] + 1, record.time))
    else:
        job.fresh_ms = record.time
    join(state, name, job, record.time)  # A reserved one too: its reservation may end before it does.
    if state.board is not None and state.board.has_job(name):
        state.board.wait(name, spans_of(state, state.board, name, job, asks_of(job)))


def _stop_asking(state: State, name: str, job: Job) -> None:
    state.held_back[name] = True
    job.began = 0
    ask(job, [])
    locality.forget(state, name)
    if state.board is not None and state.board.has_job(name):
        state.board.wait(name, [])


def _note_runs(state: State, name: str) -> None:
    """What runs of it may be copied no longer, or again."""
    for at in state.runs.get(name, {}):
        stragglers.note_change(state, name, at)
