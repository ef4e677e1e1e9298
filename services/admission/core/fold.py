"""What admission learns, record by record: `FOLDS` is the table of cases."""

from largesse.core import Folds
from largesse.lifecycle.dag import graph_of, lean, progress_of
from largesse.lifecycle.job_classes import thresholds_of
from largesse.lifecycle.job_life import COUNTED, fail, succeed
from largesse.lifecycle.state import Graph
from largesse.lifecycle.task_facts import SpareEnd, facts_of
from schemas import (
    AttemptsKnown,
    ConfigChanged,
    InputRefused,
    InputSkipped,
    JobAdmitted,
    JobCancelled,
    JobEnd,
    JobEnded,
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
    TaskRange,
    TaskStarted,
    TimeReached,
    Vector,
)
from schemas.jobs import UNJUDGED
from schemas.nodes import devices_of
from schemas.queue_tree import leaf_paths, walk
from schemas.tasks import TaskEnd, TaskFailure
from services.admission.core.copies import begin_copy, end_own, end_spare
from services.admission.core.demand import forget_job, note_held, note_job, pools_of, remeasure
from services.admission.core.granted import mark_of, nothing_yet, put_in
from services.admission.core.keys import attempt_key, digest_of
from services.admission.core.parked import admit_job, leave_queue, limit_queues
from services.admission.core.reservations import fold_answers, fold_deleted, fold_proposed, fold_requested, fold_updated
from services.admission.core.series import fold_series, fold_series_end
from services.admission.core.skips import fold_refused, fold_skipped
from services.admission.core.state import Allocation, Ended, JobState, NodeState, Opening, PartialRegistration, State


def start(shard: int = 0, of: int = 1) -> State:
    """An empty cell."""
    return State()


def fold(state: State, record: Record) -> None:
    """Learns one log record. Raises AssertionError where the record contradicts the log before it."""
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
    if body.queues is not None:
        state.queues = body.queues
        limit_queues(state, body.queues)
        state.leaves = dict.fromkeys(leaf_paths(state.queues), True)
        state.submitters = {path: queue.submitters for path, queue in walk(state.queues) if queue.submitters}
        state.ceilings = {path: queue.max for path, queue in walk(state.queues) if queue.max}
    state.needs_round = True


def _registered(state: State, record: Record[NodeRegistered]) -> None:
    body = record.body
    before = state.nodes.get(body.node)
    state.lost_ms.pop(body.node, None)
    state.removed.pop(body.node, None)
    state.known.pop(body.node, None)
    _set_capacity(state, body)
    if before is not None:
        _take_facts(state, record)
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
    """Takes a node's new capacity in; what it holds goes on holding."""
    before = state.nodes.get(body.node)
    used: Vector = {}
    if before is not None:
        used = {r: before.capacity.get(r, 0) - before.free.get(r, 0) for r in {**before.capacity, **before.free}}
        if not before.lost:
            _count_capacity(state, before.capacity, -1)
    free = {r: body.capacity.get(r, 0) - used.get(r, 0) for r in {**body.capacity, **used}}
    devices = devices_of(body.capacity, body.devices)
    node = NodeState(body.epoch, body.capacity, free, body.labels, devices, {str(d.index): d.milli for d in devices})
    node.unschedulable = body.unschedulable
    if before is not None:
        node.draining, node.holds = before.draining, before.holds
        node.drain_reason, node.drain_ends = before.drain_reason, before.drain_ends
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
    _take_facts(state, record)
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
    graph = graph_of(body.spec)
    granted, spec = nothing_yet(len(graph.tasks)), lean(body.spec, graph)
    job = JobState(spec, graph, progress_of(graph), record.seq, granted, body.job_class)
    state.jobs[body.spec.job] = job
    if body.job_class == UNJUDGED:
        state.unjudged[body.spec.job] = True
    admit_job(state, body.spec.job, job)
    note_job(state, body.spec.job)
    state.ended.pop(body.spec.job, None)
    _count_tasks(state, body.spec.user, _tasks_of(graph))
    state.needs_round = True


def _tasks_of(graph: Graph) -> int:
    return graph.tasks[0] if len(graph.tasks) == 1 else sum(graph.tasks)


def _count_tasks(state: State, user: str, tasks: int) -> None:
    """So many tasks more (fewer, where negative) belong to jobs that are not over."""
    state.live_tasks += tasks
    of_user = state.user_tasks.get(user, 0) + tasks
    if of_user:
        state.user_tasks[user] = of_user
    else:
        del state.user_tasks[user]


def _cancelled(state: State, record: Record[JobCancelled]) -> None:
    body = record.body
    _over(state, record, JobEnd(body.job, "cancelled", f"by {body.author}"))
    leave_queue(state, body.job)


def _over(state: State, record: Record, end: JobEnd) -> None:
    job = state.jobs[end.job]
    if not job.over:
        job.over = True
        forget_job(state, end.job)
        _count_tasks(state, job.spec.user, -_tasks_of(job.graph))
        state.over.append(end)
        state.over_cause = record.id
        state.needs_round = True


def _ended(state: State, record: Record[JobEnded]) -> None:
    body = record.body
    for end in body.jobs:
        job = state.jobs.pop(end.job)
        if job.held or state.policy.name_kept_ms:
            state.ended[end.job] = Ended(digest_of(job.spec), record.time, job if job.held else None)
    for end in body.jobs:
        leave_queue(state, end.job)
    state.over = []
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


def _tasks(state: State, record: Record[TaskFinished | TaskFailed]) -> None:
    _take_facts(state, record)
    state.needs_round = True


def _take_facts(state: State, record: Record) -> None:
    for fact in facts_of(record.body):
        if isinstance(fact, TaskEnd):
            _succeed(state, record, fact)
        elif isinstance(fact, TaskFailure):
            for index in range(fact.first, fact.first + fact.count):
                _fail(state, record, fact, index)
        elif isinstance(fact, SpareEnd):
            _release(state, fact.node, fact.job, fact.stage, fact.first, fact.count, fact.attempt, spare=True)
        else:
            _begin(state, fact)


def _begin(state: State, tasks: TaskRange) -> None:
    """Attempts run, under this epoch: one that goes on under a new agent is that agent's from now on."""
    holds = state.nodes[tasks.node].holds
    for index in range(tasks.first, tasks.first + tasks.count):
        hold = holds[attempt_key(tasks.job, tasks.stage, index)]
        hold.epoch, hold.started = tasks.epoch, True


def _succeed(state: State, record: Record, ended: TaskEnd) -> None:
    job = _release(state, ended.node, ended.job, ended.stage, ended.first, ended.count, ended.attempt)
    if job is None or job.over:
        return
    at = job.graph.position[ended.stage]
    if succeed(job, at, ended.count, ended.attempt) is None:
        return
    if job.progress.left[at] == 0 and not any(job.progress.left):
        _over(state, record, JobEnd(ended.job, "succeeded"))


def _fail(state: State, record: Record, failed: TaskFailure, index: int) -> None:
    name, stage, reason = failed.job, failed.stage, failed.reason
    job = _release(state, failed.node, name, stage, index, 1, failed.attempt)
    if job is None or job.over:
        return
    if fail(job, job.graph.position[stage], index, failed.attempt, reason) == "over":
        cause = f"{reason}: {failed.detail}" if failed.detail else reason
        tried = "" if reason in COUNTED else " (too many lost attempts)"
        _over(state, record, JobEnd(name, "failed", f"{stage}/{index} {cause}{tried}"))


def _release(
    state: State, on: str, name: str, stage: str, first: int, count: int, attempt: int, *, spare: bool = False
) -> JobState | None:
    """Attempts hold no room any more; their tasks end with them, unless they are `spare`. Returns their job; None where
    it has ended.
    """
    node = state.nodes[on]
    for index in range(first, first + count):
        hold = node.holds.pop(attempt_key(name, stage, index))
        for resource, amount in hold.demand.items():
            node.free[resource] += amount
        for device, milli in (hold.devices or {}).items():
            node.devices_free[device] = node.devices_free.get(device, 0) + milli
    live = state.jobs.get(name)
    ended = state.ended[name] if live is None else None
    job = live if ended is None else ended.job
    assert job is not None, f"job {name} has ended and holds nothing"
    at = job.graph.position[stage]
    if spare:
        end_spare(state, job, name, stage, first)
    else:
        mark = mark_of(attempt, False)
        job.granted = put_in(job.granted, at, first, first + count, mark, job.graph.tasks[at])
        if state.copied:
            end_own(state, job, name, at, first, first + count)
    job.held -= count
    _use(state, job, at, -count)
    if live is not None:
        note_job(state, name)
    if ended is not None and not job.held:
        ended.job = None
    return live


def _use(state: State, job: JobState, at: int, tasks: int) -> None:
    """Tasks of a stage hold room from now on; negative: no longer."""
    demand = job.graph.stages[at].demand
    for resource, amount in demand.items():
        state.used[resource] = state.used.get(resource, 0) + amount * tasks
    note_held(state, job.job_class, demand, tasks)


def _opened(state: State, record: Record[RoundOpened]) -> None:
    state.open = Opening(record.id, record.seq, record.round, record.time, record.body)
    state.round, state.opened_ms, state.needs_round = record.round, record.time, False
    state.pools_ppm = record.body.pools_ppm
    for judged in record.body.judged:
        state.jobs[judged.job].job_class = judged.job_class
        state.demand = None
    if state.unjudged and any(state.capacity.values()):
        state.unjudged = {}


def _closed(state: State, record: Record[RoundClosed]) -> None:
    body = record.body
    for grant in body.grants:
        job = state.jobs[grant.job]
        at = job.graph.position[grant.stage]
        demand, node = job.graph.stages[at].demand, state.nodes[grant.node]
        for task in range(grant.count):
            index = grant.first + task
            hold = Allocation(grant.attempt, grant.epoch, demand)
            if grant.devices:
                hold.devices = {str(share.index): share.milli for share in grant.devices[task]}
                for device, milli in hold.devices.items():
                    node.devices_free[device] -= milli
            node.holds[attempt_key(grant.job, grant.stage, index)] = hold
        mark = mark_of(grant.attempt, True)
        end = grant.first + grant.count
        job.granted = put_in(job.granted, at, grant.first, end, mark, job.graph.tasks[at])
        job.held += grant.count
        if grant.why == "speculative":
            begin_copy(state, job, grant)
        _use(state, job, at, grant.count)
        note_job(state, grant.job)
        for resource, amount in demand.items():
            node.free[resource] -= amount * grant.count
    state.open = None
    state.wake_ms = body.wake_ms
    if body.struck:
        state.needs_round = True


def _abandoned(state: State, record: Record[RoundAbandoned]) -> None:
    state.open = None
    state.needs_round = True


def _told(state: State, record: Record[Releases | Plans]) -> None:
    body = record.body
    kind = record.type
    state.forecast_seq[kind] = record.seq
    state.wake_forecast_ms.pop(kind, None)
    if body.wake_ms is not None:
        state.wake_forecast_ms[kind] = body.wake_ms
    if isinstance(body, Plans):
        fold_answers(state, body)
        state.needs_round = True
    else:
        state.curves, state.curves_ms = body.curves, body.at_ms
        if pools_of(state, record.time) != state.pools_ppm:
            state.needs_round = True


def _time(state: State, record: Record[TimeReached]) -> None:
    reached: TimeReached = record.body
    if state.wake_ms is not None and state.wake_ms <= reached.wake_ms:
        state.wake_ms = None
    for kind in [k for k, at in state.wake_forecast_ms.items() if at <= reached.wake_ms]:
        del state.wake_forecast_ms[kind]
    state.needs_round = True


FOLDS: Folds[State] = {
    ReservationRequested: fold_requested,
    ReservationUpdated: fold_updated,
    ReservationDeleted: fold_deleted,
    SeriesRequested: fold_series,
    SeriesEnded: fold_series_end,
    PlanProposed: fold_proposed,
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
    JobEnded: _ended,
    TaskStarted: _take_facts,
    TaskFinished: _tasks,
    TaskFailed: _tasks,
    RoundOpened: _opened,
    RoundClosed: _closed,
    RoundAbandoned: _abandoned,
    Releases: _told,
    Plans: _told,
    TimeReached: _time,
}
