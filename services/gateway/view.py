"""Gateway: what people ask about a cell, folded from the log and from the winning decision records.

Folds   every fact of jobs, tasks, nodes, config and reservations; winning Shares, Asks and Grants; closings.
Decides nothing. `documents.py` words what is kept here for the outside.
"""

from typing import Any

from largesse.core import Folds, OpenRound
from largesse.lifecycle.dag import graph_of, lean, progress_of
from largesse.lifecycle.job_classes import class_name
from largesse.lifecycle.job_life import COUNTED, backoff_ms, fail, gang_backoff_ms, succeed
from largesse.lifecycle.running_limit import admit, leave, limit
from largesse.lifecycle.task_facts import SpareEnd, facts_of
from schemas import (
    Asks,
    ConfigChanged,
    Grants,
    InputRefused,
    InputRepeated,
    InputSkipped,
    JobAdmitted,
    JobCancelled,
    JobEnded,
    JobRejected,
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
from schemas.nodes import devices_of
from schemas.queue_tree import walk
from schemas.tasks import TaskEnd, TaskFailure, TaskRange
from services.gateway.copies import end_spare, find_hold, own
from services.gateway.places import forget_places, keep_places, move
from services.gateway.usage import failed_attempt, note_used
from services.gateway.view_classes import fold_forecast
from services.gateway.view_reservations import RESERVATION_FOLDS, forget_job, name_reservation, note_job
from services.gateway.view_rounds import (
    add_amounts,
    fold_abandoned,
    fold_asks,
    fold_closed,
    fold_grants,
    fold_opened,
    fold_shares,
)
from services.gateway.view_state import (
    ENDED_JOBS_MAX,
    FAILURES_KEPT,
    Allocation,
    DrainRow,
    EndedJob,
    EndedStage,
    FailedAttempt,
    LiveJob,
    NodeRow,
    StageUse,
    State,
    touch,
)

NAME = "gateway"
TOPIC = ""
UPSTREAM = ()
READS = ("shares", "asks", "grants")
LAYOUT = 18


def start(shard: int = 0, of: int = 1) -> State:
    """An empty cell."""
    return State()


def fold(state: State, record: Record) -> None:
    """Learns one record."""
    FOLDS[type(record.body)](state, record)


def decide(state: State, opened: OpenRound) -> list[Any]:
    """Nothing: the gateway answers people, no rounds."""
    return []


# ---------------------------------------------------------------- jobs
def _admitted(state: State, record: Record) -> None:
    body: JobAdmitted = record.body
    graph = graph_of(body.spec)
    of = len(body.spec.stages)
    state.jobs[body.spec.job] = LiveJob(
        spec=lean(body.spec, graph),
        graph=graph,
        progress=progress_of(graph),
        tries=None,
        job_class=body.job_class,
        author=body.author,
        admitted=record.seq,
        submitted_ms=record.time,
        running=[0] * of,
        starting=[0] * of,
        asked=[0] * of,
        failed=[0] * of,
        retry_ms=[0] * of,
        places=[[] for _ in body.spec.stages],
        nodes=[{} for _ in body.spec.stages],
        copies=[0] * of,
        began=0,
        started_ms=None,
        failures=[],
        used=[StageUse() for _ in body.spec.stages],
    )
    state.ended.pop(body.spec.job, None)
    forget_places(state, body.spec.job)
    note_job(state, body.spec)
    touch(state, body.spec.job)
    if admit(state.running_limits, body.spec.job, body.spec.queue, body.spec.priority, record.seq):
        _let_run(state, [body.spec.job], record)


def _let_run(state: State, names: list[str], record: Record) -> None:
    """These jobs may run from now on, and ask for the stages that can."""
    for name in names:
        job = state.jobs[name]
        job.began = record.seq
        job.asked = [0 if stage.after else stage.tasks for stage in job.spec.stages]
        touch(state, name)


def _rejected(state: State, record: Record) -> None:
    body: JobRejected = record.body
    spec = body.spec
    if body.reason == "name_taken":
        return  # The name is another job's.
    stages = [EndedStage(stage.stage, stage.after, stage.tasks, 0, 0) for stage in spec.stages]
    detail = f"{body.field}: {body.detail}"
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
        stages,
    )
    job.reason = body.reason
    _keep(state, name_reservation(job, spec))


def _job_ended(state: State, record: Record) -> None:
    body: JobEnded = record.body
    for end in body.jobs:
        job = state.jobs.pop(end.job)
        spec = job.spec
        stages = [
            EndedStage(stage.stage, stage.after, stage.tasks, stage.tasks - job.progress.left[at], job.failed[at])
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
            stages=stages,
            job_class=class_name(state.policy, job.job_class),
            started_ms=job.started_ms,
            failures=job.failures,
            admitted=job.admitted,
        )
        forget_job(state, spec)
        _keep(state, name_reservation(over, spec))
        keep_places(state, end.job, job.places, job.used)
        _let_run(state, leave(state.running_limits, end.job), record)


def _cancelled(state: State, record: Record) -> None:
    """Its place behind the gate is free; JobEnded follows."""
    body: JobCancelled = record.body
    _let_run(state, leave(state.running_limits, body.job), record)


def _keep(state: State, job: EndedJob) -> None:
    state.ended.pop(job.job, None)
    state.ended[job.job] = job
    touch(state, job.job)
    if len(state.ended) > ENDED_JOBS_MAX:
        oldest = next(iter(state.ended))
        del state.ended[oldest]
        touch(state, oldest)
        forget_places(state, oldest)


# ---------------------------------------------------------------- nodes
def _registered(state: State, record: Record) -> None:
    body: NodeRegistered = record.body
    _set_node(state, body)
    _tasks(state, record)


def _reported(state: State, record: Record) -> None:
    _set_node(state, record.body)


def _set_node(state: State, body: NodeRegistered | NodeReported) -> None:
    before = state.nodes.get(body.node)
    devices = devices_of(body.capacity, body.devices)
    node = NodeRow(body.epoch, body.capacity, body.labels, devices, body.author, unschedulable=body.unschedulable)
    if before is not None:
        node.used, node.holds, node.draining, node.drain = before.used, before.holds, before.draining, before.drain
        node.address, node.results = before.address, before.results
    if isinstance(body, NodeRegistered):
        node.address, node.results = body.address, body.results
    state.nodes[body.node] = node
    touch(state, node=body.node)


def _drained(state: State, record: Record) -> None:
    body: NodeDrained = record.body
    node = state.nodes[body.node]
    node.draining, node.drain = body.draining, DrainRow(body.author, body.reason, record.time, body.within_ms)
    touch(state, node=body.node)


def _lost(state: State, record: Record) -> None:
    body: NodeLost = record.body
    node = state.nodes[body.node]
    node.lost, node.left = True, body.left
    touch(state, node=body.node)
    _tasks(state, record)


def _forgotten(state: State, record: Record) -> None:
    del state.nodes[record.body.node]
    touch(state, node=record.body.node)


# ---------------------------------------------------------------- tasks
def _tasks(state: State, record: Record) -> None:
    for fact in facts_of(record.body):
        indices = range(fact.first, fact.first + fact.count)
        if isinstance(fact, TaskEnd):
            for index in indices:
                note_used(state, fact, index)
                own(state, fact.job, fact.stage, index, fact.attempt)
                _release(state, fact.job, fact.stage, index)
            job = state.jobs.get(fact.job)
            if job is not None:
                succeed(job, job.graph.position[fact.stage], fact.count, fact.attempt)
        elif isinstance(fact, TaskFailure):
            for index in indices:
                own(state, fact.job, fact.stage, index, fact.attempt)
                _fail(state, fact.job, failed_attempt(fact, index, record.time))
        elif isinstance(fact, SpareEnd):
            _end_spare(state, fact, record.time)
        else:
            for index in indices:
                _begin(state, record, fact, index)


def _begin(state: State, record: Record, tasks: TaskRange, index: int) -> None:
    name, stage = tasks.job, tasks.stage
    hold = find_hold(state, name, stage, index, tasks.attempt)
    if hold.started:
        return
    hold.started = True
    job = state.jobs.get(name)
    if job is not None and state.holds.get(f"{name}/{stage}/{index}") is hold:
        at = job.graph.position[stage]
        job.starting[at] -= 1
        job.running[at] += 1
        touch(state, name)
        if job.started_ms is None:
            job.started_ms = record.time


def _fail(state: State, name: str, failed: FailedAttempt) -> None:
    _release(state, name, failed.stage, failed.index)
    job = state.jobs.get(name)
    if job is None:
        return
    at = job.graph.position[failed.stage]
    fail(job, at, failed.index, failed.attempt, failed.reason)
    job.failures = [*job.failures, failed][-FAILURES_KEPT:]
    if failed.reason in COUNTED:
        job.failed[at] += 1
        if job.graph.stages[at].gang:
            wait_ms = gang_backoff_ms(state.policy, job, at)
        else:
            wait_ms = backoff_ms(state.policy, job, at, failed.index, failed.reason)
        job.retry_ms[at] = max(job.retry_ms[at], failed.at_ms + wait_ms)


def _end_spare(state: State, ended: SpareEnd, time: int) -> None:
    """An attempt of a task that goes on, or has succeeded, in another one."""
    name, stage, index = ended.job, ended.stage, ended.first
    hold = end_spare(state, name, stage, index, ended.attempt)
    job = state.jobs.get(name)
    _give_back(state, hold)
    touch(state, name, hold.node)
    if job is not None:
        move(job.nodes[job.graph.position[stage]], hold.node, -1)
        run_ms = ended.run_ms[0] if ended.run_ms else None
        failed = FailedAttempt(
            stage, index, ended.attempt, ended.node, ended.reason, ended.exit_code, ended.detail, time, run_ms
        )
        job.failures = [*job.failures, failed][-FAILURES_KEPT:]


def _give_back(state: State, hold: Allocation) -> None:
    node = state.nodes[hold.node]
    node.holds -= 1
    add_amounts(node.used, hold.demand, -1)
    add_amounts(state.used[hold.queue], hold.demand, -1)
    state.tasks[hold.queue] -= 1


def _release(state: State, name: str, stage: str, index: int) -> None:
    hold = state.holds.pop(f"{name}/{stage}/{index}")
    _give_back(state, hold)
    touch(state, name, hold.node)
    job = state.jobs.get(name)
    if job is not None:
        at = job.graph.position[stage]
        counts = job.running if hold.started else job.starting
        counts[at] -= 1
        move(job.nodes[at], hold.node, -1)


# ---------------------------------------------------------------- config
def _configured(state: State, record: Record) -> None:
    body: ConfigChanged = record.body
    state.configured = True
    if body.policy is not None:
        state.policy = body.policy
    if body.queues is not None:
        _plant(state, body.queues)
        _let_run(state, limit(state.running_limits, body.queues), record)


def _plant(state: State, tree: Queue) -> None:
    """Another tree is in force. What is known of queues that it has not got is of no use any more."""
    state.queues = tree
    queues = dict(walk(tree))
    state.ceilings = {path: queue.max for path, queue in queues.items() if queue.max}
    state.shares = {path: share for path, share in state.shares.items() if path in queues}
    state.breaches = {path: breach for path, breach in state.breaches.items() if path in queues}
    state.used = {path: used for path, used in state.used.items() if path in queues or state.tasks[path]}
    state.tasks = {path: tasks for path, tasks in state.tasks.items() if path in queues or tasks}


def _only_seen(state: State, record: Record) -> None:
    """Nothing to keep but that it came."""


_LOG: Folds[State] = {
    JobAdmitted: _admitted,
    JobRejected: _rejected,
    JobCancelled: _cancelled,
    JobEnded: _job_ended,
    InputRefused: _only_seen,
    InputRepeated: _only_seen,
    InputSkipped: _only_seen,
    NodeRegistered: _registered,
    NodeReported: _reported,
    NodeDrained: _drained,
    NodeLost: _lost,
    NodeForgotten: _forgotten,
    TaskStarted: _tasks,
    TaskFinished: _tasks,
    TaskFailed: _tasks,
    ConfigChanged: _configured,
    **RESERVATION_FOLDS,
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
        learn(state, record)
        state.cell, state.seq, state.time, state.latest = record.cell, record.seq, record.time, record

    return learned


FOLDS: Folds[State] = {
    **{kind: _noting(learn) for kind, learn in _LOG.items()},
    Shares: fold_shares,
    Asks: fold_asks,
    Grants: fold_grants,
}
