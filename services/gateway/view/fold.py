"""How the gateway's view folds records: `FOLDS` maps each type to its function."""

from dataclasses import replace
from typing import Any

from largesse.core import Folds, OpenRound
from largesse.lifecycle.counted import counted_spec
from largesse.lifecycle.dag import graph_of, lean, resumed
from largesse.lifecycle.job_classes import class_name
from largesse.lifecycle.job_life import is_skipped
from largesse.lifecycle.running_limit import admit, leave, limit, rerank, take_turns
from schemas import (
    Asks,
    Checkpoint,
    ConfigChanged,
    Grants,
    InputRefused,
    InputRepeated,
    InputSkipped,
    JobAdmitted,
    JobCancelled,
    JobChanged,
    JobEnded,
    JobRejected,
    JobTurns,
    NodeDrained,
    NodeForgotten,
    NodeLost,
    NodeRegistered,
    NodeReported,
    Queue,
    Record,
    Releases,
    RoundAbandoned,
    RoundClosed,
    RoundOpened,
    SequencerAlive,
    Shares,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    TimeReached,
)
from schemas.queue_tree import user_limits, walk
from schemas.wording import placed
from services.gateway.view.access import ACCESS_FOLDS
from services.gateway.view.classes import fold_forecast
from services.gateway.view.history import take_sample
from services.gateway.view.jobs import (
    AFTER_JOBS,
    Account,
    EndedJob,
    EndedStage,
    Hold,
    LiveJob,
    StageUse,
    counted_row,
    rest_of,
    succeeded_of,
    waiting_of,
)
from services.gateway.view.nodes import fold_drained, fold_forgotten, fold_lost, fold_registered, fold_reported
from services.gateway.view.places import forget_places, keep_places
from services.gateway.view.reruns import forget_spec, keep_spec, keep_stages
from services.gateway.view.reservations import RESERVATION_FOLDS, forget_job, name_reservation, note_job
from services.gateway.view.rounds import (
    fold_abandoned,
    fold_asks,
    fold_closed,
    fold_grants,
    fold_opened,
    fold_shares,
)
from services.gateway.view.scoring import note_new, note_other, predict
from services.gateway.view.state import (
    ENDED_CHARACTERS_MAX,
    ENDED_JOBS_MAX,
    REFUSED_KEPT,
    RefusedRow,
    State,
    note,
    touch,
)
from services.gateway.view.tasks import fold_tasks
from services.gateway.view.waited import close, settle_all


def start(shard: int = 0, of: int = 1) -> State:
    """An empty cell."""
    return State()


def fold(state: State, record: Record) -> None:
    """Folds one record."""
    FOLDS[type(record.body)](state, record)


def decide(state: State, opened: OpenRound) -> list[Any]:
    """Nothing: the gateway answers people, no rounds."""
    return []


# ---------------------------------------------------------------- jobs
def _admitted(state: State, record: Record) -> None:
    body: JobAdmitted = record.body
    graph = graph_of(counted_spec(body))
    of = len(body.spec.stages)
    state.jobs[body.spec.job] = LiveJob(
        spec=lean(body.spec, graph_of(body.spec)),
        graph=graph,
        progress=resumed(graph, body.kept),
        tries=None,
        job_class=body.job_class,
        author=body.author,
        admitted=record.seq,
        submitted_ms=record.time,
        running=[0] * of,
        starting=[0] * of,
        asked=[0] * of,
        failed=[0] * of,
        given_up=[0] * of,
        failed_tasks=[[] for _ in body.spec.stages],
        retry_ms=[0] * of,
        places=[[] for _ in body.spec.stages],
        nodes=[{} for _ in body.spec.stages],
        copies=[0] * of,
        ending=[0] * of,
        began=0,
        hold=_hold_of(body, record.time),
        started_ms=None,
        failures=[],
        used=[StageUse() for _ in body.spec.stages],
        account=Account(record.time),
        strikes=[],
        run=body.run,
        kept={},
        counted={graph.position[each.stage]: each for each in body.counted},
    )
    if body.waits_for:
        state.submitted[body.spec.job] = body.submitted
    keep_stages(state, state.jobs[body.spec.job], body)
    forget_spec(state, body.spec.job)
    _let_go(state, body.spec.job)
    forget_places(state, body.spec.job)
    note_job(state, body.spec)
    touch(state, body.spec.job)
    note_new(state, body.spec.job)
    if admit(state.running_limits, body.spec.job, body.spec.queue, body.spec.priority, record.seq):
        _let_run(state, [body.spec.job], record)


def _hold_of(body: JobAdmitted, time: int) -> Hold | None:
    """Who holds a job that has just been admitted: its user, or the jobs that it comes after."""
    if body.waits_for:
        return Hold(AFTER_JOBS, time)
    return Hold(body.spec.user or body.author, time) if body.spec.hold else None


def _let_run(state: State, names: list[str], record: Record) -> None:
    """These jobs may run from now on, and ask for the stages that can."""
    for name in names:
        job = state.jobs[name]
        job.began = record.seq
        if job.hold is None:
            _ask(job)
        touch(state, name)


def _ask(job: LiveJob) -> None:
    """A job is asked for from now on: for as many tasks of each stage that may start as may run at a time."""
    for at, (stage, parents) in enumerate(zip(job.graph.stages, job.progress.parents, strict=True)):
        free = stage.width - job.running[at] - job.starting[at]
        job.asked[at] = 0 if parents else max(0, min(waiting_of(job, at), free))


def _turned(state: State, record: Record) -> None:
    """Jobs that held nothing gave way to others."""
    body: JobTurns = record.body
    take_turns(state.running_limits, body)
    for back in body.held_back:
        job = state.jobs[back.job]
        job.began, job.asked = 0, [0] * len(job.asked)
        touch(state, back.job)
    _let_run(state, body.let_run, record)


def _changed(state: State, record: Record) -> None:
    """A user has changed a live job."""
    body: JobChanged = record.body
    name, job = body.job, state.jobs[body.job]
    note_other(state, name)
    if body.priority is not None or body.queue is not None:
        state.submitted.setdefault(name, job.spec)
    if body.priority is not None:
        job.spec = replace(job.spec, priority=body.priority)
        rerank(state.running_limits, name, body.priority)
    if body.queue is not None:
        _let_run(state, leave(state.running_limits, name), record)
        job.spec = replace(job.spec, queue=body.queue)
        job.account.kinds = {}
        job.began, job.asked = 0, [0] * len(job.asked)
        if admit(state.running_limits, name, body.queue, job.spec.priority, job.admitted):
            _let_run(state, [name], record)
    if body.hold is True and job.hold is None:
        job.hold, job.asked = Hold(body.author, record.time), [0] * len(job.asked)
    elif body.hold is False and job.hold is not None:
        job.hold = None
        if job.began:
            job.began = record.seq
            _ask(job)
    touch(state, name)


def _rejected(state: State, record: Record) -> None:
    body: JobRejected = record.body
    spec = body.spec
    if body.reason == "name_taken":
        return  # The name is another job's.
    stages = [EndedStage(stage.stage, stage.after, stage.tasks, 0, 0, 0, stage.tasks) for stage in spec.stages]
    detail = placed(body.field, body.detail)
    job = EndedJob(
        spec.job,
        spec.queue,
        spec.user,
        spec.priority,
        body.author,
        record.time,
        record.time,
        "rejected",
        detail,
        rest_of(stages, [], {}, record.seq),
    )
    job.reason, job.tasks = body.reason, sum(stage.tasks for stage in spec.stages)
    _keep(state, name_reservation(job, spec))


def _job_ended(state: State, record: Record) -> None:
    body: JobEnded = record.body
    for end in body.jobs:
        job = state.jobs.pop(end.job)
        spec = job.spec
        for stage in spec.stages if state.promised else ():
            state.promised.pop(f"{end.job}/{stage.stage}", None)
        stages = [
            EndedStage(
                stage.stage,
                stage.after,
                stage.tasks,
                succeeded_of(job, at),
                job.failed[at],
                job.running[at] + job.starting[at],
                stage.tasks - sum(1 for node in job.places[at] if node),
                job.given_up[at],
                stage.max_failed,
                is_skipped(job, at),
                counted_row(job, at),
                job.failed_tasks[at],
            )
            for at, stage in enumerate(spec.stages)
        ]
        over = EndedJob(
            job=end.job,
            queue=spec.queue,
            user=spec.user,
            priority=spec.priority,
            author=job.author,
            submitted_ms=job.submitted_ms,
            ended_ms=record.time,
            outcome=end.outcome,
            detail=end.detail,
            rest=rest_of(stages, job.failures, job.kept, record.seq, close(state, job, record.time)),
            job_class=class_name(state.policy, job.job_class),
            started_ms=job.started_ms,
            admitted=job.admitted,
            run=job.run,
            tasks=sum(job.graph.tasks),
        )
        note_other(state, end.job)
        keep_spec(state, end.job, spec)
        forget_job(state, spec)
        _keep(state, name_reservation(over, spec))
        keep_places(state, end.job, job.places, job.used)
        _let_run(state, leave(state.running_limits, end.job), record)


def _cancelled(state: State, record: Record) -> None:
    """It no longer counts against `running_jobs_max`; JobEnded follows."""
    body: JobCancelled = record.body
    _let_run(state, leave(state.running_limits, body.job), record)


def _keep(state: State, job: EndedJob) -> None:
    _let_go(state, job.job)
    state.ended[job.job] = job
    state.ended_kept += job.size
    touch(state, job.job)
    while len(state.ended) > ENDED_JOBS_MAX or state.ended_kept > ENDED_CHARACTERS_MAX:
        oldest = next(iter(state.ended))
        _let_go(state, oldest)
        forget_spec(state, oldest)
        touch(state, oldest)
        forget_places(state, oldest)


def _let_go(state: State, name: str) -> None:
    before = state.ended.pop(name, None)
    if before is not None:
        state.ended_kept -= before.size


# ---------------------------------------------------------------- config
def _configured(state: State, record: Record) -> None:
    body: ConfigChanged = record.body
    state.configured = True
    if body.policy is not None:
        state.policy = body.policy
    if body.queues is not None:
        _set_tree(state, body.queues)
        _let_run(state, limit(state.running_limits, body.queues), record)


def _set_tree(state: State, tree: Queue) -> None:
    """Another queue tree is in force. What is kept of queues that it does not have is dropped."""
    state.queues = tree
    queues = dict(walk(tree))
    state.ceilings = {path: queue.max for path, queue in queues.items() if queue.max}
    limits = user_limits(tree)
    if limits != state.user_running_max:
        state.user_running_max, state.touched = limits, None  # Tasks may wait for other reasons.
    state.shares = {path: share for path, share in state.shares.items() if path in queues}
    state.jobs_changed.update(dict.fromkeys(state.jobs, True))  # A `max` may count for them, or none any more.
    state.breaches = {path: breach for path, breach in state.breaches.items() if path in queues}
    state.short = {path: row for path, row in state.short.items() if path in queues}
    state.used = {path: used for path, used in state.used.items() if path in queues or state.tasks[path]}
    state.tasks = {path: tasks for path, tasks in state.tasks.items() if path in queues or tasks}


def _refused(state: State, record: Record) -> None:
    """An input was refused for good."""
    body: InputRefused = record.body
    row = RefusedRow(record.seq, record.time, body.topic, body.field, body.reason, body.author)
    state.refused, state.refused_count = [*state.refused, row][-REFUSED_KEPT:], state.refused_count + 1
    note(state, "refused")


def _only_seen(state: State, record: Record) -> None:
    """Nothing is kept of the record except that it was read."""


_LOG: Folds[State] = {
    JobAdmitted: _admitted,
    JobRejected: _rejected,
    JobCancelled: _cancelled,
    JobChanged: _changed,
    JobEnded: _job_ended,
    JobTurns: _turned,
    InputRefused: _refused,
    InputRepeated: _only_seen,
    InputSkipped: _only_seen,
    Checkpoint: _only_seen,
    NodeRegistered: fold_registered,
    NodeReported: fold_reported,
    NodeDrained: fold_drained,
    NodeLost: fold_lost,
    NodeForgotten: fold_forgotten,
    TaskStarted: fold_tasks,
    TaskFinished: fold_tasks,
    TaskFailed: fold_tasks,
    ConfigChanged: _configured,
    **RESERVATION_FOLDS,
    **ACCESS_FOLDS,
    Releases: fold_forecast,
    SequencerAlive: _only_seen,
    TimeReached: _only_seen,
    RoundOpened: fold_opened,
    RoundClosed: fold_closed,
    RoundAbandoned: fold_abandoned,
}


def _noting(learn: Any) -> Any:
    """What folds a log record, and notes where the log stands."""

    def learned(state: State, record: Record) -> None:
        take_sample(state, record.time)
        state.history.replaced = state.history.replaced_guaranteed = None
        learn(state, record)
        state.cell, state.seq, state.time, state.latest = record.cell, record.seq, record.time, record
        settle_all(state, record.time)
        predict(state, record)

    return learned


FOLDS: Folds[State] = {
    **{kind: _noting(learn) for kind, learn in _LOG.items()},
    Shares: fold_shares,
    Asks: fold_asks,
    Grants: fold_grants,
}
