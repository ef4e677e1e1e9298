"""What altruism learns, record by record: `FOLDS` is the table of cases."""

from heapq import heappop, heappush

from largesse.core import Folds
from largesse.ids import shard_of
from largesse.lifecycle.dag import graph_of, progress_of
from largesse.lifecycle.entitlements import fold_entitlements
from largesse.lifecycle.job_life import backoff_ms, fail, gang_backoff_ms, next_gang_attempt, succeed
from largesse.lifecycle.promises import divisible, fold_plans, open_promises, switch
from largesse.lifecycle.queue_policy import GIVING
from largesse.lifecycle.run_times import informed, learn, observe
from largesse.lifecycle.running_limit import admit, leave, limit
from largesse.lifecycle.state import Span
from largesse.lifecycle.task_facts import facts_of
from schemas import (
    Asks,
    ConfigChanged,
    JobAdmitted,
    JobCancelled,
    JobEnded,
    NodeLost,
    NodeRegistered,
    NodeReported,
    Plans,
    Record,
    RoundAbandoned,
    RoundClosed,
    RoundOpened,
    Shares,
    TaskFailed,
    TaskFinished,
)
from schemas.jobs import Outcome
from schemas.queue_tree import walk
from schemas.tasks import Failure, TaskEnd, TaskFailure
from services.altruism.core.giving import (
    count_capacity,
    is_late,
    moved_jobs,
    next_due,
    planned_of,
    running_now,
    start_tasks,
    stop_tasks,
)
from services.altruism.core.ledger import entry_of, renew
from services.altruism.core.reserving import admit_reserved, changed_sides, close_account
from services.altruism.core.state import NOTHING_STARTED, BackingOff, Job, State
from services.altruism.core.waits import begin, does_wait, forget_empty, own_waits, take


def start(shard: int = 0, of: int = 1) -> State:
    """No jobs yet."""
    return State(shard)


def fold(state: State, record: Record[RoundOpened]) -> None:
    """Learns one record."""
    FOLDS[type(record.body)](state, record)


def _config(state: State, record: Record[ConfigChanged]) -> None:
    body = record.body
    if body.policy is not None:
        moved = switch(state.promises, body.policy)
        before, state.policy = state.policy.preset in GIVING, body.policy
        if before != (state.policy.preset in GIVING):
            _switch(state, record.time, on=not before)
        if moved:
            _change_sides(state, record.time)
    if body.queues is not None:
        state.queues_permille = {
            path: queue.altruism_permille for path, queue in walk(body.queues) if queue.altruism_permille is not None
        }
        _begin(state, limit(state.running_limits, body.queues), record.time)


def _switch(state: State, time: int, *, on: bool) -> None:
    """Jobs are planned from now on, or no longer: all of them ask anew."""
    state.stale, state.dues = {}, []
    for name, job in state.jobs.items():
        later: dict[int, int] = {}
        for item in state.backing_off.get(name, ()):
            later[item.stage] = later.get(item.stage, 0) + item.count
        job.plan = job.account = None
        job.started = running_now(job, later, time) if on else NOTHING_STARTED
        if does_wait(job) or job.started:
            _derail(state, name, job)
            _change(state, name)


def _change_sides(state: State, time: int) -> None:
    """Other reservations are accepted than before: their jobs are planned no longer, or from now on."""
    for name in changed_sides(state):
        if state.policy.preset in GIVING:
            job = state.jobs[name]
            if name in state.outside:
                close_account(state, name, job, time)
            else:
                _derail(state, name, job)
            _change(state, name)


def _derail(state: State, name: str, job: Job) -> None:
    """A job is to be planned anew, whatever comes of that."""
    if state.policy.preset in GIVING and _is_ours(state, name):
        state.stale[name] = job.derailed = True


def _admitted(state: State, record: Record[JobAdmitted]) -> None:
    body = record.body
    spec, from_history = informed(state.history, body.spec, state.policy.estimates)
    graph = graph_of(spec)
    job = state.jobs[spec.job] = Job(graph, progress_of(graph), spec.queue, record.seq)
    if from_history:
        job.from_history = from_history
    job.altruism_permille = spec.altruism_permille
    admit_reserved(state, spec)
    if admit(state.running_limits, spec.job, spec.queue, spec.priority, record.seq):
        _begin(state, [spec.job], record.time)


def _begin(state: State, names: list[str], time: int) -> None:
    """These jobs may run from now on. What they ask for follows from their graphs, so there is nothing to say."""
    for name in names:
        job = state.jobs[name]
        begin(job, time)
        state.written += _is_ours(state, name)
        if state.policy.preset in GIVING:
            _derail(state, name, job)
            _change(state, name)


def _ready(job: Job, stages: list[int], time: int) -> None:
    waits = own_waits(job)
    for at in stages:
        waits[at] = [Span(0, job.graph.stages[at].tasks, 1, time)]


def _change(state: State, name: str) -> None:
    if _is_ours(state, name):
        state.changed[name] = True


def _is_ours(state: State, name: str) -> bool:
    return state.of == 1 or shard_of(name, state.of or 1) == state.shard


def _ended(state: State, record: Record[JobEnded]) -> None:
    body = record.body
    for end in body.jobs:
        _forget(state, end.job, record.time, end.outcome)
    for end in body.jobs:
        _begin(state, leave(state.running_limits, end.job), record.time)


def _cancelled(state: State, record: Record[JobCancelled]) -> None:
    _forget(state, record.body.job, record.time, "cancelled")
    _begin(state, leave(state.running_limits, record.body.job), record.time)


def _forget(state: State, name: str, time: int, end: Outcome) -> None:
    job = state.jobs.get(name)
    if job is not None:
        learn(state.history, name, job.seen)
        if job.account is not None:
            state.settled.append(entry_of(name, job, time, end))
    for kept in (
        state.jobs,
        state.changed,
        state.answering,
        state.gangs,
        state.backing_off,
        state.stale,
        state.planning,
        state.reserving,
        state.outside,
        state.copied,
    ):
        kept.pop(name, None)


def _tasks(state: State, record: Record) -> None:
    for fact in facts_of(record.body):
        job = state.jobs.get(fact.job)
        if job is None:
            continue
        at = job.graph.position[fact.stage]
        if isinstance(fact, TaskEnd):
            job.seen = observe(job.seen, job.graph.stages[at], fact.count, fact.run_ms, state.policy.estimates)
            _succeed(state, job, fact.job, at, fact.count, fact.attempt, record.time)
        elif isinstance(fact, TaskFailure):
            for index in range(fact.first, fact.first + fact.count):
                _fail(state, job, fact.job, at, index, fact.attempt, fact.reason, record.time)


def _succeed(state: State, job: Job, name: str, at: int, count: int, attempt: int, time: int) -> None:
    if state.policy.preset in GIVING:
        stop_tasks(job, at, count, time)
        if job.plan is not None and not job.plan.gives:
            _change(state, name)  # What it asks for inside its share is more by now.
    if job.graph.stages[at].gang:
        state.gangs[name][at] -= count
    ready = succeed(job, at, count, attempt)
    if ready is None:
        _requeue_gang(state, job, name, at, time)
        return
    if not job.progress.left[at] and state.policy.preset in GIVING and _is_ours(state, name):
        state.stale[name] = True
        _change(state, name)
    if ready:
        _ready(job, ready, time)
        _change(state, name)
        if job.plan is not None:
            _push_due(state, name, job, time)


def _fail(state: State, job: Job, name: str, at: int, index: int, attempt: int, reason: Failure, time: int) -> None:
    if state.policy.preset in GIVING:
        stop_tasks(job, at, 1, time)
        _derail(state, name, job)
        _change(state, name)
    is_gang = job.graph.stages[at].gang
    if is_gang:
        state.gangs[name][at] -= 1
    if fail(job, at, index, attempt, reason) == "over":
        return  # The job is over; JobEnded follows.
    if is_gang:
        _requeue_gang(state, job, name, at, time)
        return
    at_ms = time + backoff_ms(state.policy, job, at, index, reason)
    last = max(attempt, state.copied.get(name, {}).pop(f"{at}/{index}", 0))
    _again(state, job, name, BackingOff(at_ms, at, index, 1, last + 1), time)


def _requeue_gang(state: State, job: Job, name: str, at: int, time: int) -> None:
    """A gang is asked again as a whole when nothing of the broken attempt runs any more."""
    if state.gangs[name][at] == 0:
        at_ms, tasks = time + gang_backoff_ms(state.policy, job, at), job.graph.stages[at].tasks
        _again(state, job, name, BackingOff(at_ms, at, 0, tasks, next_gang_attempt(job, at)), time)


def _again(state: State, job: Job, name: str, item: BackingOff, time: int) -> None:
    if item.at_ms <= time:
        _put_first(job, item, time)
    elif name in state.backing_off and _continues(state.backing_off[name][-1], item):
        state.backing_off[name][-1].count += item.count
    else:
        state.backing_off.setdefault(name, []).append(item)
    _change(state, name)


def _continues(last: BackingOff, item: BackingOff) -> bool:
    """Whether the tasks stand next to each other in everything: neighbours that end together wait as one."""
    end = last.stage, last.first + last.count, last.attempt, last.at_ms
    return end == (item.stage, item.first, item.attempt, item.at_ms)


def _put_first(job: Job, item: BackingOff, since_ms: int) -> None:
    """Tasks that come back go before those that never ran, neighbours as one span: a lost node costs its stages."""
    spans = own_waits(job).setdefault(item.stage, [])
    if spans:
        head = spans[0]
        if (head.first + head.count, head.attempt, head.since_ms) == (item.first, item.attempt, since_ms):
            head.count += item.count
            return
    spans.insert(0, Span(item.first, item.count, item.attempt, since_ms))


def _reported(state: State, record: Record[NodeReported]) -> None:
    body = record.body
    count_capacity(state, body.node, body.capacity)


def _lost(state: State, record: Record[NodeLost]) -> None:
    count_capacity(state, record.body.node, None)
    _tasks(state, record)


def _registered(state: State, record: Record[NodeRegistered]) -> None:
    body = record.body
    count_capacity(state, body.node, body.capacity)
    _tasks(state, record)


def _opened(state: State, record: Record[RoundOpened]) -> None:
    """What changed up to here is what this round answers; a back-off that has run out is over.

    Everything is written when the count of shards changes, and as a keyframe: when `keyframe_rounds` have gone by and
    as many jobs were written or came since the last as there are, so that keyframes too cost what has changed.
    """
    body = record.body
    aged = record.round - state.full_round >= state.policy.keyframe_rounds and state.written >= len(state.jobs)
    if state.of not in (0, body.shards):  # Before the first, all ask as admitted.
        state.full = True
        _deal_again(state, body.shards)
    state.full = state.full or aged
    state.of = body.shards
    for name in list(state.backing_off):
        _mature(state, name, record.time)
    state.opened = record.seq
    if open_promises(state.promises, record.time):
        state.capacity = divisible(state.whole, state.promises.amount)
    _come_due(state, record.time)
    state.planning.update(state.stale)
    state.stale = {}
    state.settling += state.settled
    state.settled = []
    state.answering.update(state.changed)
    state.changed = {}
    state.written += len(state.answering)
    if state.full:
        state.full_round, state.written = record.round, 0


def _deal_again(state: State, of: int) -> None:
    """Another count of shards: jobs that were not this one's have no plan here."""
    state.dues = []
    if state.policy.preset in GIVING:
        for name, job in state.jobs.items():
            if shard_of(name, of) == state.shard:
                if does_wait(job) or job.started:
                    state.stale[name] = job.derailed = True
            else:
                job.plan = job.account = None
                state.stale.pop(name, None)


def _come_due(state: State, time: int) -> None:
    """Tasks whose latest start has come have to start now; where some should have before, the job is planned anew."""
    while state.dues and state.dues[0][0] <= time:
        at_ms, name = heappop(state.dues)
        job = state.jobs.get(name)
        if job is None or job.plan is None or job.plan.due_ms != at_ms:
            continue  # Another plan is in force, or another moment was noted since.
        _change(state, name)
        if is_late(job, at_ms):
            state.stale[name] = True
        _push_due(state, name, job, time)


def _push_due(state: State, name: str, job: Job, time: int) -> None:
    assert job.plan is not None, f"{name} has no plan"
    due = next_due(job, time)
    if due is not None and due != job.plan.due_ms:
        heappush(state.dues, (due, name))
    job.plan.due_ms = due


def _mature(state: State, name: str, time: int) -> None:
    job, later = state.jobs[name], state.backing_off[name]
    due = [item for item in later if item.at_ms <= time]
    if due:
        for item in due:
            _put_first(job, item, item.at_ms)
        _change(state, name)
        left = [item for item in later if item.at_ms > time]
        if left:
            state.backing_off[name] = left
        else:
            del state.backing_off[name]


def _closed(state: State, record: Record[RoundClosed]) -> None:
    body = record.body
    for grant in body.grants:
        job = state.jobs.get(grant.job)
        if job is None:
            continue
        at = job.graph.position[grant.stage]
        if grant.why == "speculative":
            state.copied.setdefault(grant.job, {})[f"{at}/{grant.first}"] = grant.attempt
            continue
        spans = own_waits(job)[at]
        take(spans, grant.first, grant.count)
        if not spans:
            forget_empty(job, at)
        if state.policy.preset in GIVING:
            start_tasks(job, at, grant.count, record.time)
        if job.graph.stages[at].gang:
            gangs = state.gangs.setdefault(grant.job, {})
            gangs[at] = gangs.get(at, 0) + grant.count
    state.answering, state.planning, state.full, state.settling = {}, {}, False, []


def _shares(state: State, record: Record[Shares]) -> None:
    """Jobs that have to be planned again for it are, in this round or a later one."""
    body = record.body
    fold_entitlements(state.entitled, body.entitlements)
    if state.policy.preset in GIVING:
        for name in moved_jobs(state, body.entitlements, state.entitled):
            state.planning[name] = True


def _asks(state: State, record: Record[Asks]) -> None:
    """What it said itself: plans that are in force from now on. Where not all jobs had their turn to be planned again,
    the others come first in the next round."""
    body = record.body
    if body.planned:
        had_turn = dict.fromkeys(body.planned, True)
        rest = [name for name in state.planning if name not in had_turn and state.jobs[name].plan is not None]
        state.stale = {**dict.fromkeys(rest, True), **state.stale}
    for ask in body.jobs:
        job = state.jobs.get(ask.job)
        if job is None or ask.plan is None or job.admitted > state.opened or ask.job in state.outside:
            continue  # Another job had the name when it was planned; or its reservation has been accepted since.
        planned = planned_of(state, job, ask.plan)
        renew(job, planned, record.time)
        job.plan, job.derailed = planned, ask.job in state.stale
        _push_due(state, ask.job, job, record.time)


def _abandoned(state: State, record: Record[RoundAbandoned]) -> None:
    """Nothing of the round binds: what it was asked waits for the next."""
    state.changed = {**state.answering, **state.changed}
    state.answering = {}
    state.stale = {**state.planning, **state.stale}
    state.settled, state.settling = state.settling + state.settled, []
    state.planning = {}


def _plans(state: State, record: Record[Plans]) -> None:
    if fold_plans(state.promises, record.body):
        _change_sides(state, record.time)


FOLDS: Folds[State] = {
    ConfigChanged: _config,
    JobAdmitted: _admitted,
    JobCancelled: _cancelled,
    JobEnded: _ended,
    TaskFinished: _tasks,
    TaskFailed: _tasks,
    NodeLost: _lost,
    NodeRegistered: _registered,
    NodeReported: _reported,
    Plans: _plans,
    Shares: _shares,
    Asks: _asks,
    RoundOpened: _opened,
    RoundClosed: _closed,
    RoundAbandoned: _abandoned,
}
