"""Tasks that wait out a back-off: they failed, and altruism asks for them again only when it is over.

A gang is asked for again as a whole, once nothing of its broken attempt runs any more. What rests is summed up by leaf,
so that thousands of tasks that failed together cost nothing until something of theirs changes.
"""

from heapq import heappop, heappush

from largesse.lifecycle.retries import COUNTED, failures_of
from schemas import Vector
from schemas.jobs import Stage
from schemas.tasks import Failure
from services.fairness.core.demand import add_rest
from services.fairness.core.state import Backoff, Job, State


def back_off(state: State, job: Job, name: str, at: int, index: int, reason: Failure, time: int) -> None:
    """A task's attempt has failed, for a gang the first of an attempt."""
    stage = job.graph.stages[at]
    failures = failures_of(job.tries, job.graph, at, index) if reason in COUNTED else 0
    if stage.gang:
        state.backing_off.setdefault(name, {})[stage.stage] = Backoff(None, 0, stage.demand, failures)
        requeue_gang(state, job, name, stage, time)
    elif pause_ms := _pause_ms(state, failures):
        key = f"{stage.stage}/{index}"
        state.backing_off.setdefault(name, {})[key] = Backoff(time + pause_ms, 1, stage.demand, failures)
        add_rest(state, job.queue, stage.demand, 1)
        heappush(state.backoff_ends, (time + pause_ms, name, key))


def requeue_gang(state: State, job: Job, name: str, stage: Stage, time: int) -> None:
    """One of a gang whose attempt is broken holds nothing any more."""
    held = state.held.get(f"{name}/{stage.stage}")
    waits = state.backing_off[name][stage.stage]
    before, waits.tasks = waits.tasks, stage.tasks - (len(held.since) if held is not None else 0)
    add_rest(state, job.queue, stage.demand, waits.tasks - before)
    if held is not None:
        return
    if pause_ms := _pause_ms(state, waits.failures):
        waits.at_ms = time + pause_ms
        heappush(state.backoff_ends, (waits.at_ms, name, stage.stage))
    else:
        _end(state, job, name, stage.stage)


def _pause_ms(state: State, failures: int) -> int:
    """As altruism has it."""
    policy = state.policy
    return min(policy.retry_backoff_ms_max, policy.retry_backoff_ms << min(failures - 1, 32)) if failures else 0


def wake(state: State, time: int) -> None:
    """Back-offs that are over by now count no more."""
    while state.backoff_ends and state.backoff_ends[0][0] <= time:
        at_ms, name, key = heappop(state.backoff_ends)
        backing_off = state.backing_off.get(name, {}).get(key)
        if backing_off is not None and backing_off.at_ms == at_ms:
            _end(state, state.jobs[name], name, key)


def forget_backoffs(state: State, job: Job, name: str) -> None:
    """The job is over."""
    for key in list(state.backing_off.get(name, ())):
        _end(state, job, name, key)


def could_start(state: State, leaf: str) -> tuple[int, Vector]:
    """How many tasks of a leaf wait for nothing but room, and what they ask for together."""
    waits, waiting = state.waits.get(leaf, 0), state.waiting.get(leaf, _NOTHING)
    if leaf in state.backoff_tasks:
        waits -= state.backoff_tasks[leaf]
        backoff_demand = state.backoff_demand.get(leaf, _NOTHING)
        waiting = {kind: amount - backoff_demand.get(kind, 0) for kind, amount in waiting.items()}
    assert waits >= 0, f"{leaf}: more tasks rest than wait"
    return waits, waiting


_NOTHING: Vector = {}


def _end(state: State, job: Job, name: str, key: str) -> None:
    ended = state.backing_off[name].pop(key)
    if not state.backing_off[name]:
        del state.backing_off[name]
    add_rest(state, job.queue, ended.demand, -ended.tasks)
