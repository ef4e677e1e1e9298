"""Tasks that wait out a back-off: they failed, and altruism asks for them again only when it is over.

A gang is asked for again as a whole, once nothing of its broken attempt runs any more.
"""

from schemas import Vector
from schemas.jobs import Stage
from schemas.tasks import Failure
from schemas.track import COUNTED, failures_of
from services.fairness.core_state import Job, Rest, State, add_tasks, counted


def rest(state: State, job: Job, name: str, at: int, index: int, reason: Failure, time: int) -> None:
    """A task's attempt has failed, for a gang the first of an attempt."""
    stage = job.graph.stages[at]
    failures = failures_of(job.tries, job.graph, at, index) if reason in COUNTED else 0
    if stage.gang:
        state.resting.setdefault(job.queue, {})[f"{name}/{stage.stage}"] = Rest(None, 0, stage.demand, failures)
        regang(state, job, name, stage, time)
    elif pause_ms := _pause_ms(state, failures):
        resting = state.resting.setdefault(job.queue, {})
        resting[f"{name}/{stage.stage}/{index}"] = Rest(time + pause_ms, 1, stage.demand, failures)
        _note_end(state, time + pause_ms)


def regang(state: State, job: Job, name: str, stage: Stage, time: int) -> None:
    """One of a gang whose attempt is broken holds nothing any more."""
    key = f"{name}/{stage.stage}"
    resting = state.resting[job.queue]
    held = state.held.get(key)
    waits = resting[key]
    waits.tasks = stage.tasks - (len(held.since) if held is not None else 0)
    if held is None and (pause_ms := _pause_ms(state, waits.failures)):
        waits.at_ms = time + pause_ms
        _note_end(state, waits.at_ms)
    elif held is None:
        _drop(state, job.queue, [key])


def _pause_ms(state: State, failures: int) -> int:
    """As altruism has it."""
    policy = state.policy
    return min(policy.retry_backoff_ms_max, policy.retry_backoff_ms << min(failures - 1, 32)) if failures else 0


def wake(state: State, time: int) -> None:
    """Back-offs that are over by now count no more. Looks at all that rest, where the first of them may be over."""
    if state.rest_end_ms is None or time < state.rest_end_ms:
        return
    state.rest_end_ms = None
    for leaf in list(state.resting):
        ends = {key: resting.at_ms for key, resting in state.resting[leaf].items() if resting.at_ms is not None}
        _drop(state, leaf, [key for key, at_ms in ends.items() if at_ms <= time])
        for at_ms in ends.values():
            if at_ms > time:
                _note_end(state, at_ms)


def forget_rests(state: State, job: Job, name: str) -> None:
    """The job is over."""
    if job.queue in state.resting:
        _drop(state, job.queue, [key for key in state.resting[job.queue] if key.startswith(f"{name}/")])


def could_start(state: State, leaf: str) -> tuple[int, Vector]:
    """How many tasks of a leaf wait for nothing but room, and what they ask for together."""
    waits, waiting = state.waits.get(leaf, 0), state.waiting.get(leaf, {})
    if leaf in state.resting:
        sums = {leaf: dict(waiting)}
        for resting in state.resting[leaf].values():
            waits -= resting.tasks
            add_tasks(sums, leaf, counted(state, resting.demand), -resting.tasks)
            sums.setdefault(leaf, {})
        waiting = sums[leaf]
    assert waits >= 0, f"{leaf}: more tasks rest than wait"
    return waits, waiting


def _note_end(state: State, at_ms: int) -> None:
    if state.rest_end_ms is None or at_ms < state.rest_end_ms:
        state.rest_end_ms = at_ms


def _drop(state: State, leaf: str, keys: list[str]) -> None:
    resting = state.resting[leaf]
    for key in keys:
        del resting[key]
    if not resting:
        del state.resting[leaf]
    if keys and state.ledger is not None:
        state.ledger.moved[leaf] = True
