"""How the estimator folds records: `FOLDS` maps each type to its function."""

from largesse.core import Folds
from largesse.lifecycle.counted import counted_spec
from largesse.lifecycle.dag import graph_of
from largesse.lifecycle.job_classes import has_pools, thresholds_of
from largesse.lifecycle.run_times import NOTHING_SEEN, expected_ms, informed, learn, observe, rule_of
from largesse.lifecycle.task_facts import facts_of
from schemas import (
    ConfigChanged,
    JobAdmitted,
    JobEnded,
    NodeLost,
    NodeRegistered,
    NodeReported,
    Record,
    Releases,
    RoundOpened,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    Vector,
)
from schemas.tasks import TaskEnd, TaskFailure, TaskRange
from services.estimator.core.forecasts import drop_job, move_stage, put_group, take_sample
from services.estimator.core.state import Active, Job, Running, State
from services.estimator.forecast_by_durations import has_moved
from services.estimator.phases import JobPhases, Windows, begin, finish, leave
from services.estimator.scores import note_end, settle

ONE_TASK = [1]
"""The tasks by stage of a job of one task."""


def start(shard: int = 0, of: int = 1) -> State:
    """Nothing runs, nothing was said."""
    return State()


def fold(state: State, record: Record) -> None:
    """Folds one record."""
    FOLDS[type(record.body)](state, record)


# ---------------------------------------------------------------- cell and jobs
def _config(state: State, record: Record[ConfigChanged]) -> None:
    body = record.body
    if body.policy is None:
        return
    on = has_pools(body.policy)
    if not on or thresholds_of(body.policy) != thresholds_of(state.policy):
        state.samples = []  # Made for other classes, or not to be followed any more.
    if state.on and not on:
        for job in state.jobs.values():
            job.active, job.alone_ms = None, -1
    state.policy, state.on = body.policy, on
    state.sums = None


def _registered(state: State, record: Record[NodeRegistered]) -> None:
    body = record.body
    _set_capacity(state, body.node, body.capacity)
    _tasks(state, record)


def _reported(state: State, record: Record[NodeReported]) -> None:
    _set_capacity(state, record.body.node, record.body.capacity)


def _lost(state: State, record: Record[NodeLost]) -> None:
    _set_capacity(state, record.body.node, None)
    _tasks(state, record)


def _set_capacity(state: State, node: str, capacity: Vector | None) -> None:
    for kind, amount in state.nodes.pop(node, {}).items():
        state.capacity[kind] -= amount
    if capacity is not None:
        state.nodes[node] = capacity
        for kind, amount in capacity.items():
            state.capacity[kind] = state.capacity.get(kind, 0) + amount


def _admitted(state: State, record: Record[JobAdmitted]) -> None:
    body = record.body
    spec, _ = informed(state.history, counted_spec(body), state.policy)
    state.jobs[spec.job] = Job(body.job_class, graph_of(spec), spec.user)


def _ended(state: State, record: Record[JobEnded]) -> None:
    """What still runs of it is killed: no forecast counts on when that will be."""
    body = record.body
    for end in body.jobs:
        job = state.jobs.pop(end.job)
        if job.active is not None:
            learn(state.history, end.job, job.user, job.active.seen)
        drop_job(state, end.job, job)


# ---------------------------------------------------------------- tasks
def _tasks(state: State, record: Record) -> None:
    if not state.on:
        return
    for fact in facts_of(record.body):
        job = state.jobs.get(fact.job)
        if job is None:
            continue
        at = job.graph.position[fact.stage]
        indices = range(fact.first, fact.first + fact.count)
        if isinstance(fact, TaskEnd):
            for index in indices:
                _succeed(state, fact.job, job, at, index, record.time)
            if job.active is not None:
                _learn(state, fact.job, job, job.active, at, fact.count, fact.run_ms, record.time)
        elif isinstance(fact, TaskFailure):
            for index in indices:
                _leave(state, fact.job, job, at, index, record.time)
        elif isinstance(fact, TaskRange):
            for index in indices:
                _begin(state, fact.job, job, at, index, record.time)


def _begin(state: State, name: str, job: Job, at: int, index: int, at_ms: int) -> None:
    active = job.active
    if active is None and job.graph.tasks == ONE_TASK:
        if job.alone_ms < 0:
            job.alone_ms = at_ms
            put_group(state, name, job, at, at_ms, 1, at_ms)
        return
    if active is None:
        none = [0] * len(job.graph.stages)
        active = job.active = Active(JobPhases(), none, none.copy())
    key = f"{at}/{index}"
    if key in active.running:
        return
    stage = job.graph.stages[at]
    left = max(0, stage.tasks - active.begun[at])
    number = begin(active.phases, at_ms, at, left, stage.demand, windows_of(state))
    active.begun[at] += 1
    active.running[key] = Running(at_ms, number)
    if not active.lasts_ms[at]:
        active.lasts_ms[at] = expected_ms(stage, active.seen)
    put_group(state, name, job, at, at_ms, 1, at_ms)


def follow(state: State, job: Job) -> None:
    """From now on the only task of a job is followed as any other is, as if that had been so since it started."""
    stage, start_ms = job.graph.stages[0], job.alone_ms
    active = job.active = Active(JobPhases(), [1], [expected_ms(stage, NOTHING_SEEN)])
    number = begin(active.phases, start_ms, 0, 1, stage.demand, windows_of(state))
    active.running["0/0"] = Running(start_ms, number)
    job.alone_ms = -1


def _learn(
    state: State, name: str, job: Job, active: Active, at: int, count: int, run_ms: list[int], at_ms: int
) -> None:
    """What is expected of tasks of the stage that still run, now that some have ended."""
    stage = job.graph.stages[at]
    active.seen = observe(active.seen, stage, count, run_ms, rule_of(state.policy))
    learnt_ms = expected_ms(stage, active.seen)
    if active.lasts_ms[at] and has_moved(active.lasts_ms[at], learnt_ms):
        active.lasts_ms[at] = learnt_ms
        move_stage(state, name, job, at, at_ms)


def _succeed(state: State, name: str, job: Job, at: int, index: int, at_ms: int) -> None:
    if job.alone_ms >= 0 and job.graph.stages[0].estimate_ms and rule_of(state.policy) == "spec":
        _end_alone(state, name, job, at_ms)
        return
    running = _take_off(state, name, job, at, index, at_ms)
    if job.active is not None and running is not None:
        finish(job.active.phases, running.phase, at_ms, job.graph.stages[at].demand, windows_of(state))


def _end_alone(state: State, name: str, job: Job, at_ms: int) -> None:
    """The only task of a job has succeeded, so the job is over: its phases and run time are not needed again."""
    start_ms = job.alone_ms
    put_group(state, name, job, 0, start_ms, -1, at_ms)
    job.alone_ms = -1
    if state.samples:
        note_end(state.samples, job.job_class, start_ms, at_ms, job.graph.stages[0].demand)


def _leave(state: State, name: str, job: Job, at: int, index: int, at_ms: int) -> None:
    running = _take_off(state, name, job, at, index, at_ms)
    if job.active is not None and running is not None:
        leave(job.active.phases, running.phase, job.graph.stages[at].demand)


def _take_off(state: State, name: str, job: Job, at: int, index: int, at_ms: int) -> Running | None:
    """A task runs no longer; None where it has not started."""
    if job.alone_ms >= 0:
        follow(state, job)
    if job.active is None:
        return None
    running = job.active.running.pop(f"{at}/{index}", None)
    if running is not None:
        put_group(state, name, job, at, running.start_ms, -1, at_ms)
        if state.samples:
            note_end(state.samples, job.job_class, running.start_ms, at_ms, job.graph.stages[at].demand)
    return running


# ---------------------------------------------------------------- rounds
def _opened(state: State, record: Record[RoundOpened]) -> None:
    for judged in record.body.judged:
        state.jobs[judged.job].job_class = judged.job_class
        state.sums = None
    if not state.on:
        return
    state.samples = settle(state.samples, state.scores, state.capacity, record.time)
    take_sample(state, record.time)


def _forecast(state: State, record: Record[Releases]) -> None:
    body = record.body
    state.forecast, state.forecaster = body.curves, body.forecaster
    state.forecast_ms, state.forecast_seq = body.at_ms, record.seq


def windows_of(state: State) -> Windows:
    """The policy's."""
    policy = state.policy
    return Windows(policy.phase_window_ms, policy.phase_start_tasks, policy.phase_end_tasks)


FOLDS: Folds[State] = {
    ConfigChanged: _config,
    NodeRegistered: _registered,
    NodeReported: _reported,
    NodeLost: _lost,
    JobAdmitted: _admitted,
    JobEnded: _ended,
    TaskStarted: _tasks,
    TaskFinished: _tasks,
    TaskFailed: _tasks,
    RoundOpened: _opened,
    Releases: _forecast,
}
