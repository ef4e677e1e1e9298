"""Demand and use by leaf queue, in the units that count (largesse/lifecycle/slots.py).

A stage with a `running_max` asks for no more tasks at a time than that, whatever is left of it, so its queue is owed
no room that it may not use. Of its tasks in back-off those count that would otherwise be among those asked for.
"""

from largesse.lifecycle.job_life import is_gang_given_up
from largesse.lifecycle.slots import counted_demand, counted_promises
from largesse.lifecycle.task_keys import in_job, job_of, stage_in
from schemas import Stage, Vector
from services.fairness.core.demands import Demands
from services.fairness.core.stale import change_demand, change_sums
from services.fairness.core.state import Job, State
from services.fairness.core.user_demand import note_user


def divide_capacity(state: State) -> None:
    """Computes what part of the cell is divided."""
    state.capacity.divide(counted_promises(state.policy, state.promises))


def recount(state: State) -> None:
    """Recomputes all sums, after the units have changed that count. Takes time proportional to nodes and live jobs."""
    state.demands, state.users.tasks, state.users.touched = Demands(), {}, {}
    state.capacity.recount(state.policy)
    divide_capacity(state)
    for job in state.jobs.values():
        for at, left in enumerate(job.progress.left):
            if job.queue and job.began and left and job.progress.parents[at] == 0:
                asked = asked_of(job.graph.stages[at], left)
                _add(state, job.queue, job.graph.stages[at].demand, asked, asked, user=job.user)
    for key, held in state.held.items():
        if not held.leaf:
            continue
        name, stage = job_of(key), in_job(key)
        live, tasks = state.jobs.get(name), len(held.since)
        waits = live is not None and not is_gang_given_up(live, live.graph.position[stage])
        _add(state, held.leaf, held.demand, 0, -tasks if waits else 0, tasks, held.user)
    for name in [name for name, might_run in state.on_hold.items() if might_run]:
        live = state.jobs[name]
        for at, of in enumerate(live.graph.stages):
            tasks = running(state, name, live, at)
            if tasks and live.queue:  # What it runs counts, as it does above for all others.
                _add(state, live.queue, of.demand, tasks, tasks, user=live.user)
    for name in state.backoffs.by_job:
        if state.jobs[name].began:
            count_rests(state, state.jobs[name], name, 1)


def _add(state: State, leaf: str, demand: Vector, asked: int, waiting: int, held: int = 0, user: str = "") -> None:
    """Adds to the sums alone; `count_tasks` says which."""
    if state.users.most:
        note_user(state, user, leaf, demand, waiting, runs=held)
    state.demands.add(leaf, counted_demand(state.policy, demand), asked, waiting, held)


def count_tasks(
    state: State, leaf: str, demand: Vector, asked: int, waiting: int, held: int = 0, user: str = ""
) -> None:
    """A leaf asks for so many tasks of a user more (fewer, where negative), so many more of those wait, and it holds so
    many more. Nothing where the leaf is "": what is reserved is outside the tree."""
    if not leaf:
        return
    if asked:
        change_demand(state, leaf)
    _add(state, leaf, demand, asked, waiting, held, user)
    change_sums(state, leaf)


def running(state: State, name: str, job: Job, at: int) -> int:
    """How many tasks of a stage hold something. Of a gang that has failed for good none counts."""
    held = state.held.get(f"{name}/{job.graph.stages[at].stage}")
    return len(held.since) if held is not None and not is_gang_given_up(job, at) else 0


# ---------------------------------------------------------------- stages with a running_max
def is_limited(stage: Stage) -> bool:
    """Whether fewer tasks of a stage than have not ended may be asked for."""
    return stage.running_max is not None and not stage.gang


def asked_of(stage: Stage, left: int) -> int:
    """How many tasks of a stage are asked for at a time, those that run among them, where so many have not ended."""
    return min(left, stage.width) if is_limited(stage) else left


def resting_of(job: Job, at: int) -> int:
    """How many tasks fewer of a stage with a `running_max` are asked for than if none were in back-off."""
    return _resting(job.graph.stages[at], job.progress.left[at], job.resting.get(at, 0))


def _resting(stage: Stage, left: int, resting: int) -> int:
    return asked_of(stage, left) - asked_of(stage, left - resting)


def shift(state: State, job: Job, at: int, left: int, resting: int) -> None:
    """Of a stage with a `running_max` tasks have ended, are in back-off from now on or no longer; so many had not ended
    before, and were in back-off."""
    stage = job.graph.stages[at]
    more = asked_of(stage, job.progress.left[at]) - asked_of(stage, left)
    count_tasks(state, job.queue, stage.demand, more, more, user=job.user)
    add_rest(state, job, stage.demand, resting_of(job, at) - _resting(stage, left, resting))


def rest(state: State, job: Job, at: int, tasks: int) -> None:
    """So many tasks more of a stage (fewer, where negative) are in back-off."""
    stage = job.graph.stages[at]
    if not is_limited(stage):
        if job.began:
            add_rest(state, job, stage.demand, tasks)
        return
    before = job.resting.get(at, 0)
    job.resting = {**job.resting, at: before + tasks}
    if not job.resting[at]:
        del job.resting[at]
    if job.began:
        shift(state, job, at, job.progress.left[at], before)


# ---------------------------------------------------------------- sums
def count_rests(state: State, job: Job, name: str, sign: int) -> None:
    """What of a job is in back-off counts (`sign` 1), or no longer does (-1)."""
    for key, each in state.backoffs.by_job.get(name, {}).items():
        if not is_limited(job.graph.stages[job.graph.position[stage_in(key)]]):
            add_rest(state, job, each.demand, sign * each.tasks)
    for at in job.resting:
        add_rest(state, job, job.graph.stages[at].demand, sign * resting_of(job, at))


def add_rest(state: State, job: Job, demand: Vector, tasks: int) -> None:
    """So many tasks more of a job (fewer, where negative) are in back-off."""
    if tasks and job.queue:
        if state.users.most:
            note_user(state, job.user, job.queue, demand, rests=tasks)
        state.demands.add(job.queue, counted_demand(state.policy, demand), 0, 0, resting=tasks)
        change_sums(state, job.queue)
