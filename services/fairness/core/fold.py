"""How fairness folds records: `FOLDS` maps each type to its function."""

from largesse.core import Folds
from largesse.lifecycle.counted import counted_spec
from largesse.lifecycle.dag import graph_of, resumed
from largesse.lifecycle.job_classes import has_pools
from largesse.lifecycle.job_life import fail, give_up, is_gang_given_up, succeed
from largesse.lifecycle.promises import fold_plans
from largesse.lifecycle.run_times import informed, learn, observe, rule_of
from largesse.lifecycle.running_limit import leave, may_run, relimit, take_turns
from largesse.lifecycle.slots import slots_of
from largesse.lifecycle.task_facts import facts_of
from schemas import (
    ConfigChanged,
    JobAdmitted,
    JobCancelled,
    JobChanged,
    JobEnded,
    JobTurns,
    NodeDrained,
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
    TimeReached,
)
from schemas.policy import Estimates
from schemas.queue_tree import user_limits
from schemas.tasks import TaskEnd, TaskFailure
from services.fairness.core.backoff import back_off, forget_backoffs, requeue_gang
from services.fairness.core.demand import asked_of, count_tasks, is_limited, recount, shift
from services.fairness.core.placeable import forget_placed
from services.fairness.core.promised import divide_anew, place_reserved, queue_of, queues_named, switch_promises
from services.fairness.core.queue_report import forget_queues
from services.fairness.core.round_fold import (
    fold_abandoned,
    fold_closing,
    fold_opening,
    fold_shares,
    fold_time,
)
from services.fairness.core.stale import all_changed, change_work, entitle
from services.fairness.core.state import Allocation, Job, State
from services.fairness.core.user_holds import begin, fold_changed, hold_again, let_go, park


class _Ends:
    """Tasks of one stage that have succeeded in one record, and what each of them held."""

    def __init__(self, held: Allocation, tasks: int) -> None:
        self.held = held
        self.tasks = tasks


def start(shard: int = 0, of: int = 1) -> State:
    """An empty cell."""
    return State()


def fold(state: State, record: Record) -> None:
    """Folds one record."""
    FOLDS[type(record.body)](state, record)


# ---------------------------------------------------------------- facts
def _config(state: State, record: Record[ConfigChanged]) -> None:
    body = record.body
    if body.policy is not None:
        before, state.policy = state.policy, body.policy
        switch_promises(state)
        if slots_of(before) != slots_of(state.policy):
            recount(state)
        if has_pools(state.policy) and not has_pools(before):
            state.rounds.publish_all(
                state.policy.keyframe_rounds
            )  # Every queue's guarantee is published in the next round.
    if body.queues is not None:
        state.queues = body.queues  # Demand stays: jobs are in the same leaves, and a tree without those is refused.
        if (limits := user_limits(body.queues)) != state.users.most:
            state.users.most = limits
            recount(state)
        begin(state, relimit(state.running_limits, body.queues, queues_named(state)))
        forget_queues(state)
        forget_placed(state)
    all_changed(state)
    state.rounds.note_change(record.seq)


def _capacity(state: State, record: Record[NodeRegistered | NodeReported]) -> None:
    body = record.body
    state.capacity.put(body.node, body.capacity, state.policy)
    divide_anew(state)
    if isinstance(body, NodeRegistered):
        _tasks(state, record)
    state.rounds.note_change(record.seq)


def _lost(state: State, record: Record[NodeLost]) -> None:
    body = record.body
    state.capacity.drop(body.node, state.policy)
    divide_anew(state)
    _tasks(state, record)
    state.rounds.note_change(record.seq)


def _drained(state: State, record: Record[NodeDrained]) -> None:
    state.rounds.note_change(record.seq)


def _admitted(state: State, record: Record[JobAdmitted]) -> None:
    body = record.body
    spec, _ = informed(state.history, counted_spec(body), state.policy)
    graph = graph_of(spec)
    state.jobs[body.spec.job] = Job(queue_of(state, body.spec), graph, resumed(graph, body.kept), spec.user)
    if body.spec.hold:
        state.on_hold[body.spec.job] = False
    if may_run(state.running_limits, body.spec.job, body.spec.queue, body.spec.priority, record.seq):
        begin(state, [body.spec.job])
    state.rounds.note_change(record.seq)


def _turned(state: State, record: Record[JobTurns]) -> None:
    body = record.body
    for back in body.held_back:
        park(state, back.job)
    take_turns(state.running_limits, body)
    begin(state, body.let_run)
    state.rounds.note_change(record.seq)


def _ask_nothing(state: State, name: str, job: Job) -> None:
    """What it waits for counts no more."""
    change_work(state, name)
    entitle(state)
    for at, left in enumerate(job.progress.left):
        if left and job.progress.parents[at] == 0:
            _ask(state, job, at, -asked_of(job.graph.stages[at], left))


def _ask_all(state: State, job: Job, at: int) -> None:
    """The stages before it are over."""
    stage = job.graph.stages[at]
    _ask(state, job, at, asked_of(stage, stage.tasks))


def _ask(state: State, job: Job, at: int, tasks: int) -> None:
    """`tasks` more (fewer, where negative) of a stage run or could start."""
    count_tasks(state, job.queue, job.graph.stages[at].demand, tasks, tasks, user=job.user)


def _cancelled(state: State, record: Record[JobCancelled]) -> None:
    _forget(state, record.body.job)
    begin(state, leave(state.running_limits, record.body.job))
    state.rounds.note_change(record.seq)


def _ended(state: State, record: Record[JobEnded]) -> None:
    body = record.body
    for end in body.jobs:
        _forget(state, end.job)
    for end in body.jobs:
        begin(state, leave(state.running_limits, end.job))
    state.rounds.note_change(record.seq)


def _forget(state: State, name: str) -> None:
    let_go(state, [name])
    state.on_hold.pop(name, None)
    job = state.jobs.pop(name, None)
    state.reserving.pop(name, None)
    if job is None:
        return
    learn(state.history, name, job.user, job.seen)
    forget_backoffs(state, job, name)
    if not job.began:
        return
    for at, stage in enumerate(job.graph.stages):
        held = state.held.get(f"{name}/{stage.stage}")
        if held is not None and not is_gang_given_up(job, at):
            # It still holds them, but no longer asks for them.
            count_tasks(state, job.queue, held.demand, 0, len(held.since), user=job.user)
    _ask_nothing(state, name, job)


def _tasks(state: State, record: Record) -> None:
    rule = rule_of(state.policy)
    ends: dict[str, _Ends] = {}
    held = let_go(state, list(dict.fromkeys([fact.job for fact in facts_of(record.body)]))) if state.on_hold else []
    for fact in facts_of(record.body):
        if isinstance(fact, TaskEnd):
            _succeed(state, fact, record.time, rule, ends)
        elif isinstance(fact, TaskFailure):
            _count_ends(state, ends)
            for index in range(fact.first, fact.first + fact.count):
                _fail(state, fact, index, record.time)
    _count_ends(state, ends)
    hold_again(state, held)
    state.rounds.note_change(record.seq)


def _succeed(state: State, ended: TaskEnd, time: int, rule: Estimates, ends: dict[str, _Ends]) -> None:
    name, stage, count = ended.job, ended.stage, ended.count
    key = f"{name}/{stage}"
    held = _give_back(state, key, ended.first, count)
    job = state.jobs.get(name)
    if job is None:
        count_tasks(state, held.leaf, held.demand, 0, 0, -count, held.user)
        return
    at = job.graph.position[stage]
    job.seen = observe(job.seen, job.graph.stages[at], count, ended.run_ms, rule)
    change_work(state, name)
    left = job.progress.left[at]
    ready = succeed(job, at, count, ended.attempt)
    if ready is None:
        is_over = is_gang_given_up(job, at)
        count_tasks(state, held.leaf, held.demand, 0, 0 if is_over else count, -count, held.user)
        if not is_over:
            requeue_gang(state, job, name, at, time)
        return
    before = ends.get(key)
    if is_limited(job.graph.stages[at]):
        count_tasks(state, held.leaf, held.demand, 0, count, -count, held.user)
        shift(state, job, at, left, job.resting.get(at, 0))
    elif before is None:
        ends[key] = _Ends(held, count)
    else:
        before.tasks += count
    if ready:
        _count_ends(state, ends)
        for child in ready:
            _ask_all(state, job, child)


def _count_ends(state: State, ends: dict[str, _Ends]) -> None:
    """Tasks that have succeeded ask for nothing any more: the sums of a leaf change once for all tasks of a stage."""
    for each in ends.values():
        held, tasks = each.held, each.tasks
        count_tasks(state, held.leaf, held.demand, -tasks, 0, -tasks, held.user)
    ends.clear()


def _fail(state: State, failed: TaskFailure, index: int, time: int) -> None:
    """The task waits again, so demand stays; but what had succeeded of a broken gang comes back."""
    name, stage, reason = failed.job, failed.stage, failed.reason
    held = _give_back(state, f"{name}/{stage}", index, 1)
    job = state.jobs.get(name)
    if job is None or is_gang_given_up(job, job.graph.position[stage]):
        count_tasks(state, held.leaf, held.demand, 0, 0, -1, held.user)
        return
    count_tasks(state, held.leaf, held.demand, 0, 1, -1, held.user)
    change_work(state, name)
    at = job.graph.position[stage]
    before = job.progress.left[at]
    after = fail(job, at, index, failed.attempt, reason, failed.exit_code)  # Where that ends the job, JobEnded follows.
    if after == "given_up":
        _give_up(state, job, name, at, before)
        return
    if back := job.progress.left[at] - before:
        _ask(state, job, at, back)
    if job.graph.stages[at].gang:
        requeue_gang(state, job, name, at, time)
    else:
        back_off(state, job, name, at, index, reason, time)


def _give_up(state: State, job: Job, name: str, at: int, left: int) -> None:
    """A task, or a gang of which `left` had not ended, asks for nothing any more, whatever of it still runs."""
    stage = job.graph.stages[at]
    held = state.held.get(f"{name}/{stage.stage}") if stage.gang else None
    tasks = left if stage.gang else 1
    ready = give_up(job, at)
    if is_limited(stage):
        shift(state, job, at, left, job.resting.get(at, 0))
    else:
        runs = len(held.since) if held is not None else 0
        count_tasks(state, job.queue, stage.demand, -tasks, runs - tasks, user=job.user)
    for child in ready:
        _ask_all(state, job, child)


def _give_back(state: State, key: str, first: int, tasks: int) -> Allocation:
    """Tasks of "job/stage" hold nothing any more; the caller updates the sums of their leaf."""
    held, runs = state.held[key], state.runs
    for index in range(first, first + tasks):
        runs.end(held.since.pop(index))
    if not held.since:
        del state.held[key]
    return held


def _plans(state: State, record: Record[Plans]) -> None:
    body = record.body
    if fold_plans(state.promises, body):
        place_reserved(state)
    if body.profiles or body.gone:
        state.rounds.note_change(record.seq)


FOLDS: Folds[State] = {
    ConfigChanged: _config,
    NodeRegistered: _capacity,
    NodeReported: _capacity,
    NodeDrained: _drained,
    NodeLost: _lost,
    JobAdmitted: _admitted,
    JobCancelled: _cancelled,
    JobChanged: fold_changed,
    JobEnded: _ended,
    JobTurns: _turned,
    TaskFinished: _tasks,
    TaskFailed: _tasks,
    RoundOpened: fold_opening,
    RoundAbandoned: fold_abandoned,
    RoundClosed: fold_closing,
    TimeReached: fold_time,
    Shares: fold_shares,
    Plans: _plans,
}
