"""What altruism learns, record by record: `FOLDS` is the table of cases."""

from largesse.core import Folds
from largesse.lifecycle.counted import counted_spec
from largesse.lifecycle.dag import graph_of, resumed
from largesse.lifecycle.job_life import (
    backoff_ms,
    fail,
    gang_backoff_ms,
    give_up,
    is_gang_given_up,
    next_gang_attempt,
    succeed,
)
from largesse.lifecycle.promises import fold_plans, switch
from largesse.lifecycle.run_times import informed, learn, observe, rule_of
from largesse.lifecycle.running_limit import leave, may_run, relimit, take_turns
from largesse.lifecycle.state import Span
from largesse.lifecycle.task_facts import facts_of
from schemas import (
    Asks,
    ConfigChanged,
    JobAdmitted,
    JobCancelled,
    JobChanged,
    JobEnded,
    JobTurns,
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
from schemas.presets import PRESETS
from schemas.queue_tree import walk
from schemas.tasks import TaskEnd, TaskFailure
from services.altruism.core.giving import (
    count_capacity,
    running_now,
    stop_tasks,
)
from services.altruism.core.ledger import entry_of
from services.altruism.core.reserving import admit_reserved, changed_sides, close_account
from services.altruism.core.round_fold import (
    change,
    fold_abandoned,
    fold_asks,
    fold_closing,
    fold_opening,
    fold_shares,
    is_ours,
    push_due,
    put_first,
)
from services.altruism.core.state import NOTHING_STARTED, BackingOff, Job, State
from services.altruism.core.user_holds import begin, derail, fold_changed, park
from services.altruism.core.waits import does_wait, is_held_in, own_waits


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
        before, state.policy = PRESETS[state.policy.preset].plans_jobs, body.policy
        if before != (PRESETS[state.policy.preset].plans_jobs):
            _switch(state, record.time, on=not before)
        if moved:
            _change_sides(state, record.time)
    if body.queues is not None:
        state.queues_permille = {
            path: queue.altruism_permille for path, queue in walk(body.queues) if queue.altruism_permille is not None
        }
        queues = [(name, job.queue) for name, job in state.jobs.items()]
        begin(state, relimit(state.running_limits, body.queues, queues), record.time)


def _switch(state: State, time: int, *, on: bool) -> None:
    """Jobs are planned from now on, or no longer: all of them ask again."""
    state.stale, state.dues = {}, []
    for name, job in state.jobs.items():
        later: dict[int, int] = {}
        for item in state.backing_off.get(name, ()):
            later[item.stage] = later.get(item.stage, 0) + item.count
        job.plan = job.account = None
        job.started = running_now(job, later, time) if on else NOTHING_STARTED
        if does_wait(job) or job.started:
            derail(state, name, job)
            change(state, name)


def _change_sides(state: State, time: int) -> None:
    """Other reservations are accepted than before: their jobs are planned no longer, or from now on."""
    for name in changed_sides(state):
        if PRESETS[state.policy.preset].plans_jobs:
            job = state.jobs[name]
            if name in state.outside:
                close_account(state, name, job, time)
            else:
                derail(state, name, job)
            change(state, name)


def _admitted(state: State, record: Record[JobAdmitted]) -> None:
    body = record.body
    spec, from_history = informed(state.history, counted_spec(body), state.policy)
    graph = graph_of(spec)
    job = state.jobs[spec.job] = Job(graph, resumed(graph, body.kept), spec.queue, record.seq, spec.user)
    if from_history:
        job.from_history = from_history
    job.altruism_permille = spec.altruism_permille
    admit_reserved(state, spec)
    if body.run > 1:
        state.again[spec.job] = body.attempts
    if spec.hold:
        state.on_hold[spec.job] = False
    if may_run(state.running_limits, spec.job, spec.queue, spec.priority, record.seq):
        begin(state, [spec.job], record.time)


def _turned(state: State, record: Record[JobTurns]) -> None:
    body = record.body
    for back in body.held_back:
        park(state, back.job, record.time)
    take_turns(state.running_limits, body)
    begin(state, body.let_run, record.time)


def _ready(job: Job, stages: list[int], attempt: int, time: int) -> None:
    waits = own_waits(job)
    for at in stages:
        waits[at] = [Span(0, job.graph.stages[at].tasks, attempt, time)]


def _ended(state: State, record: Record[JobEnded]) -> None:
    body = record.body
    for end in body.jobs:
        _forget(state, end.job, record.time, end.outcome)
    for end in body.jobs:
        begin(state, leave(state.running_limits, end.job), record.time)


def _cancelled(state: State, record: Record[JobCancelled]) -> None:
    _forget(state, record.body.job, record.time, "cancelled")
    begin(state, leave(state.running_limits, record.body.job), record.time)


def _forget(state: State, name: str, time: int, end: Outcome) -> None:
    job = state.jobs.get(name)
    if job is not None:
        learn(state.history, name, job.user, job.seen)
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
        state.held_back,
        state.on_hold,
        state.again,
    ):
        kept.pop(name, None)


def _tasks(state: State, record: Record) -> None:
    rule, time = rule_of(state.policy), record.time
    for fact in facts_of(record.body):
        name = fact.job
        job = state.jobs.get(name)
        if job is None:
            continue
        at = job.graph.position[fact.stage]
        if isinstance(fact, TaskEnd):
            count = fact.count
            job.seen = observe(job.seen, job.graph.stages[at], count, fact.run_ms, rule)
            _succeed(state, job, name, at, count, fact.attempt, time)
        elif isinstance(fact, TaskFailure):
            for index in range(fact.first, fact.first + fact.count):
                _fail(state, job, name, at, index, fact, time)


def _succeed(state: State, job: Job, name: str, at: int, count: int, attempt: int, time: int) -> None:
    if PRESETS[state.policy.preset].plans_jobs:
        stop_tasks(job, at, count, time)
        if job.plan is not None and not job.plan.gives:
            change(state, name)  # What it asks for inside its share is more by now.
    if job.graph.stages[at].gang:
        state.gangs[name][at] -= count
    ready = succeed(job, at, count, attempt)
    if ready is None:
        _requeue_gang(state, job, name, at, time)
        return
    _go_on(state, job, name, at, ready, time)


def _go_on(state: State, job: Job, name: str, at: int, ready: list[int], time: int) -> None:
    """Tasks of a stage have ended; these stages may run from now on."""
    if not job.progress.left[at] and PRESETS[state.policy.preset].plans_jobs and is_ours(state, name):
        state.stale[name] = True
        change(state, name)
    if is_held_in(job, at):
        change(state, name)  # More of it may start.
    if ready:
        _ready(job, ready, state.again.get(name, 0) + 1, time)
        change(state, name)
        if job.plan is not None:
            push_due(state, name, job, time)


def _fail(state: State, job: Job, name: str, at: int, index: int, failed: TaskFailure, time: int) -> None:
    if PRESETS[state.policy.preset].plans_jobs:
        stop_tasks(job, at, 1, time)
        derail(state, name, job)
        change(state, name)
    is_gang = job.graph.stages[at].gang
    if is_gang:
        state.gangs[name][at] -= 1
    after = fail(job, at, index, failed.attempt, failed.reason, failed.exit_code)
    if after == "over":
        return  # The job is over; JobEnded follows.
    if after == "given_up":
        state.copied.get(name, {}).pop(f"{at}/{index}", None)
        _go_on(state, job, name, at, give_up(job, at), time)
        return
    if is_gang:
        _requeue_gang(state, job, name, at, time)
        return
    at_ms = time + backoff_ms(state.policy, job, at, index, failed.reason)
    last = max(failed.attempt, state.copied.get(name, {}).pop(f"{at}/{index}", 0))
    _again(state, job, name, BackingOff(at_ms, at, index, 1, last + 1), time)


def _requeue_gang(state: State, job: Job, name: str, at: int, time: int) -> None:
    """A gang is asked again as a whole when nothing of the broken attempt runs any more."""
    if state.gangs[name][at] == 0 and not is_gang_given_up(job, at):
        at_ms, tasks = time + gang_backoff_ms(state.policy, job, at), job.graph.stages[at].tasks
        _again(state, job, name, BackingOff(at_ms, at, 0, tasks, next_gang_attempt(job, at)), time)


def _again(state: State, job: Job, name: str, item: BackingOff, time: int) -> None:
    if item.at_ms <= time:
        put_first(job, item, time)
    elif name in state.backing_off and _continues(state.backing_off[name][-1], item):
        state.backing_off[name][-1].count += item.count
    else:
        state.backing_off.setdefault(name, []).append(item)
    change(state, name)


def _continues(last: BackingOff, item: BackingOff) -> bool:
    """Whether the tasks stand next to each other in everything: neighbours that end together wait as one."""
    end = last.stage, last.first + last.count, last.attempt, last.at_ms
    return end == (item.stage, item.first, item.attempt, item.at_ms)


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


def _plans(state: State, record: Record[Plans]) -> None:
    if fold_plans(state.promises, record.body):
        _change_sides(state, record.time)


FOLDS: Folds[State] = {
    ConfigChanged: _config,
    JobAdmitted: _admitted,
    JobCancelled: _cancelled,
    JobChanged: fold_changed,
    JobEnded: _ended,
    JobTurns: _turned,
    TaskFinished: _tasks,
    TaskFailed: _tasks,
    NodeLost: _lost,
    NodeRegistered: _registered,
    NodeReported: _reported,
    Plans: _plans,
    Shares: fold_shares,
    Asks: fold_asks,
    RoundOpened: fold_opening,
    RoundClosed: fold_closing,
    RoundAbandoned: fold_abandoned,
}
