"""How admission folds records: `FOLDS` maps each type to its function."""

from largesse.core import Folds
from largesse.lifecycle.counted import counted_spec
from largesse.lifecycle.dag import graph_of, lean, resumed
from largesse.lifecycle.job_classes import thresholds_of
from schemas import (
    AttemptsKnown,
    ConfigChanged,
    InputRefused,
    InputSkipped,
    JobAdmitted,
    JobCancelled,
    JobChanged,
    JobEnd,
    JobEnded,
    JobTurns,
    NodeDrained,
    NodeForgotten,
    NodeLost,
    NodeRegistered,
    NodeRemoved,
    NodeReported,
    PlanProposed,
    Plans,
    Record,
    Releases,
    ReservationDeleted,
    ReservationRequested,
    ReservationUpdated,
    RoundAbandoned,
    RoundClosed,
    RoundOpened,
    SeriesEnded,
    SeriesRequested,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    TimeReached,
    TokenMade,
    TokenRevoked,
    Vector,
)
from schemas.jobs import UNJUDGED
from schemas.nodes import devices_of, out_of
from schemas.queue_tree import leaf_paths, user_limits, walk
from services.admission.core.access import fold_revoked, fold_token
from services.admission.core.after_jobs import fold_admitted, fold_ends
from services.admission.core.changes import fold_changed, forget_changes, submission_of
from services.admission.core.demand import note_job, remeasure
from services.admission.core.granted import nothing_yet
from services.admission.core.parked import admit_job, fold_turns, leave_queue, limit_queues
from services.admission.core.peaks import begin_peaks, end_peaks, keep_peaks
from services.admission.core.reruns import ended_of
from services.admission.core.reservations import fold_deleted, fold_proposed, fold_requested, fold_updated
from services.admission.core.round_fold import (
    fold_abandoned,
    fold_closing,
    fold_forecast,
    fold_opening,
    fold_time,
)
from services.admission.core.series import fold_series, fold_series_end
from services.admission.core.skips import fold_refused, fold_skipped
from services.admission.core.state import JobState, NodeState, PartialRegistration, Resumed, State
from services.admission.core.task_fold import count_job, count_tasks, end_job, fold_tasks, take_facts, tasks_of


def start(shard: int = 0, of: int = 1) -> State:
    """An empty cell."""
    return State()


def fold(state: State, record: Record) -> None:
    """Folds one log record. Raises AssertionError where the record contradicts the log before it."""
    FOLDS[type(record.body)](state, record)


def _config(state: State, record: Record[ConfigChanged]) -> None:
    body = record.body
    state.configured = True
    if body.policy is not None:
        if thresholds_of(body.policy) != thresholds_of(state.policy):
            state.unjudged = dict.fromkeys(state.jobs, True)
        if body.policy.reservations != state.policy.reservations:
            state.demand = None
        state.policy = body.policy
        keep_peaks(state, body.policy)
    if body.queues is not None:
        state.queues = body.queues
        limit_queues(state, body.queues)
        state.leaves = dict.fromkeys(leaf_paths(state.queues), True)
        state.submitters = {path: queue.submitters for path, queue in walk(state.queues) if queue.submitters}
        state.ceilings = {path: queue.max for path, queue in walk(state.queues) if queue.max}
        state.user_jobs_max = {
            path: queue.user_jobs_max for path, queue in walk(state.queues) if queue.user_jobs_max is not None
        }
        state.user_running_max = user_limits(state.queues)
    state.needs_round = True


def _registered(state: State, record: Record[NodeRegistered]) -> None:
    body = record.body
    before = state.nodes.get(body.node)
    state.lost_ms.pop(body.node, None)
    state.removed.pop(body.node, None)
    state.known.pop(body.node, None)
    _set_capacity(state, body)
    if before is not None:
        take_facts(state, record)
    state.needs_round = True


def _known(state: State, record: Record[AttemptsKnown]) -> None:
    body = record.body
    before = state.known.get(body.node)
    if body.part and before is not None:
        before.parts, before.attempts = body.part + 1, before.attempts + body.attempts
    else:
        state.known[body.node] = PartialRegistration(body.epoch, 1, body.attempts)


def _reported(state: State, record: Record[NodeReported]) -> None:
    _set_capacity(state, record.body)
    state.needs_round = True


def _set_capacity(state: State, body: NodeRegistered | NodeReported) -> None:
    """Applies a node's new capacity; what its tasks hold stays."""
    before = state.nodes.get(body.node)
    used: Vector = {}
    if before is not None:
        used = {r: before.capacity.get(r, 0) - before.free.get(r, 0) for r in {**before.capacity, **before.free}}
        if not before.lost:
            _count_capacity(state, before.capacity, -1)
    free = {r: body.capacity.get(r, 0) - used.get(r, 0) for r in {**body.capacity, **used}}
    devices = devices_of(body.capacity, body.devices)
    node = NodeState(body.epoch, body.capacity, free, body.labels, devices, {str(d.index): d.milli for d in devices})
    node.unschedulable, node.out = body.unschedulable, out_of(body.devices)
    if before is not None:
        node.draining, node.holds = before.draining, before.holds
        node.drain_reason, node.drain_ends = before.drain_reason, before.drain_ends
        node.host, node.port_first, node.port_last = before.host, before.port_first, before.port_last
    if isinstance(body, NodeRegistered):
        node.host, node.port_first, node.port_last = body.host, body.port_first, body.port_last
    for hold in node.holds.values():
        for index, milli in (hold.devices or {}).items():
            node.devices_free[index] = node.devices_free.get(index, 0) - milli
    state.nodes[body.node] = node
    _count_capacity(state, body.capacity, 1)
    remeasure(state)


def _count_capacity(state: State, capacity: Vector, sign: int) -> None:
    for resource, amount in capacity.items():
        state.capacity[resource] = state.capacity.get(resource, 0) + sign * amount


def _drained(state: State, record: Record[NodeDrained]) -> None:
    body = record.body
    node = state.nodes[body.node]
    node.draining, node.drain_reason = body.draining, body.reason if body.draining else ""
    node.drain_ends = body.within_ms is not None
    state.needs_round = True


def _lost(state: State, record: Record[NodeLost]) -> None:
    body = record.body
    node = state.nodes[body.node]
    node.lost = True
    state.known.pop(body.node, None)
    state.lost_ms[body.node] = record.time
    _count_capacity(state, node.capacity, -1)
    remeasure(state)
    take_facts(state, record)
    state.needs_round = True


def _forgotten(state: State, record: Record[NodeForgotten]) -> None:
    body = record.body
    del state.nodes[body.node], state.lost_ms[body.node]
    state.removed.pop(body.node, None)


def _removed(state: State, record: Record[NodeRemoved]) -> None:
    body = record.body
    state.removed[body.node] = True


def _admitted(state: State, record: Record[JobAdmitted]) -> None:
    body = record.body
    graph = graph_of(counted_spec(body))
    granted, spec = nothing_yet(len(graph.tasks)), lean(body.spec, graph_of(body.spec))
    job = JobState(spec, graph, resumed(graph, body.kept), record.seq, granted, body.job_class)
    state.jobs[body.spec.job] = job
    if body.run > 1:
        state.runs[body.spec.job] = Resumed(body.run, body.attempts)
    if body.spec.hold:
        state.on_hold[body.spec.job] = True
    if body.job_class == UNJUDGED:
        state.unjudged[body.spec.job] = True
    admit_job(state, body.spec.job, job)
    note_job(state, body.spec.job)
    begin_peaks(state, body.spec.job)
    fold_admitted(state, body)
    state.ended.pop(body.spec.job, None)
    count_tasks(state, body.spec.user, tasks_of(graph))
    count_job(state, body.spec, 1)
    state.needs_round = True


def _cancelled(state: State, record: Record[JobCancelled]) -> None:
    body = record.body
    detail = f"by {body.author}"
    if body.moved_to:
        detail = f"moved to cell {body.moved_to}"
        state.moved[body.job] = body.moved_to
    end_job(state, record, JobEnd(body.job, "cancelled", detail))
    leave_queue(state, body.job)


def _ended(state: State, record: Record[JobEnded]) -> None:
    body = record.body
    for end in body.jobs:
        job = state.jobs.pop(end.job)
        end_peaks(state, end.job, job, succeeded=end.outcome == "succeeded")
        if job.held or state.policy.name_kept_ms:
            digest = submission_of(state, end.job, job)
            state.ended[end.job] = ended_of(state, end.job, job, digest, record.time, end.outcome)
        state.runs.pop(end.job, None)
        state.moved.pop(end.job, None)
        forget_changes(state, end.job)
    for end in body.jobs:
        leave_queue(state, end.job)
    state.over = []
    fold_ends(state, record, body.jobs)
    _forget_names(state, record.time)


def _forget_names(state: State, time: int) -> None:
    """Names are kept in order of their jobs' ends, so the oldest stand first. Beyond `names_kept_max` they go early: a
    busy cell ends more jobs in `name_kept_ms` than fit into memory.
    """
    gone: list[str] = []
    too_many = len(state.ended) - state.policy.names_kept_max
    for job, ended in state.ended.items():
        if len(gone) >= too_many and time - ended.at_ms <= state.policy.name_kept_ms:
            break
        if ended.job is None:
            gone.append(job)
    for job in gone:
        del state.ended[job]


FOLDS: Folds[State] = {
    ReservationRequested: fold_requested,
    ReservationUpdated: fold_updated,
    ReservationDeleted: fold_deleted,
    SeriesRequested: fold_series,
    SeriesEnded: fold_series_end,
    PlanProposed: fold_proposed,
    TokenMade: fold_token,
    TokenRevoked: fold_revoked,
    InputSkipped: fold_skipped,
    InputRefused: fold_refused,
    ConfigChanged: _config,
    NodeRegistered: _registered,
    NodeReported: _reported,
    AttemptsKnown: _known,
    NodeDrained: _drained,
    NodeLost: _lost,
    NodeForgotten: _forgotten,
    NodeRemoved: _removed,
    JobAdmitted: _admitted,
    JobCancelled: _cancelled,
    JobChanged: fold_changed,
    JobEnded: _ended,
    JobTurns: fold_turns,
    TaskStarted: take_facts,
    TaskFinished: fold_tasks,
    TaskFailed: fold_tasks,
    RoundOpened: fold_opening,
    RoundClosed: fold_closing,
    RoundAbandoned: fold_abandoned,
    Releases: fold_forecast,
    Plans: fold_forecast,
    TimeReached: fold_time,
}
