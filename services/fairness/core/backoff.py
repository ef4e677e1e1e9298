"""Tasks in back-off: they failed, and altruism asks for them again only when their back-off is over. A gang is asked
for again as a whole, once no task of its failed attempt runs any more.

They are counted as sums per leaf, so thousands of tasks that failed together cost nothing until something about them
changes.
"""

from heapq import heappop, heappush

from largesse.lifecycle.job_life import backoff_ms, gang_backoff_ms
from largesse.lifecycle.task_keys import stage_in
from schemas.tasks import Failure
from services.fairness.core.demand import add_rest, rest
from services.fairness.core.state import Backoff, Job, State


def back_off(state: State, job: Job, name: str, at: int, index: int, reason: Failure, time: int) -> None:
    """An attempt of a task, which is of no gang, has ended without success."""
    if wait_ms := backoff_ms(state.policy, job, at, index, reason):
        stage = job.graph.stages[at]
        key = f"{stage.stage}/{index}"
        state.backoffs.by_job.setdefault(name, {})[key] = Backoff(time + wait_ms, 1, stage.demand)
        rest(state, job, at, 1)
        heappush(state.backoffs.ends, (time + wait_ms, name, key))


def requeue_gang(state: State, job: Job, name: str, at: int, time: int) -> None:
    """One of a gang whose attempt is broken holds nothing any more."""
    stage = job.graph.stages[at]
    held, backing_off = state.held.get(f"{name}/{stage.stage}"), state.backoffs.by_job.setdefault(name, {})
    waits = backing_off.get(stage.stage)
    if waits is None:
        waits = backing_off[stage.stage] = Backoff(None, 0, stage.demand)
    before, waits.tasks = waits.tasks, stage.tasks - (len(held.since) if held is not None else 0)
    add_rest(state, job, stage.demand, waits.tasks - before)
    if held is not None:
        return
    if wait_ms := gang_backoff_ms(state.policy, job, at):
        waits.at_ms = time + wait_ms
        heappush(state.backoffs.ends, (waits.at_ms, name, stage.stage))
    else:
        _end(state, job, name, stage.stage)


def wake(state: State, time: int) -> None:
    """Back-offs that are over by now count no more."""
    while state.backoffs.ends and state.backoffs.ends[0][0] <= time:
        at_ms, name, key = heappop(state.backoffs.ends)
        backing_off = state.backoffs.by_job.get(name, {}).get(key)
        if backing_off is not None and backing_off.at_ms == at_ms:
            _end(state, state.jobs[name], name, key)


def forget_backoffs(state: State, job: Job, name: str) -> None:
    """The job is over."""
    for key in list(state.backoffs.by_job.get(name, ())):
        _end(state, job, name, key)


def _end(state: State, job: Job, name: str, key: str) -> None:
    ended = state.backoffs.by_job[name].pop(key)
    if not state.backoffs.by_job[name]:
        del state.backoffs.by_job[name]
    rest(state, job, job.graph.position[stage_in(key)], -ended.tasks)
