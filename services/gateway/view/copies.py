"""Copies of slow tasks in the view.

`State.holds` has one attempt of each task, by which tasks are counted; others are in `State.copies`, by the same key.
"""

from schemas import Grant
from services.gateway.view.places import place
from services.gateway.view.state import Allocation, State


def begin_copy(state: State, grant: Grant, hold: Allocation) -> None:
    """A copy holds room on a node from now on."""
    job = state.jobs[grant.job]
    job.copies[job.graph.position[grant.stage]] += 1
    state.copies.setdefault(f"{grant.job}/{grant.stage}/{grant.first}", []).append(hold)


def own(state: State, name: str, stage: str, index: int, attempt: int) -> None:
    """This attempt is the one that its task is counted by from now on: the task ends with it."""
    key = f"{name}/{stage}/{index}"
    before = state.holds.get(key)
    if key not in state.copies or before is None or before.attempt == attempt:
        return
    copies = state.copies[key]
    at = next(at for at, copy in enumerate(copies) if copy.attempt == attempt)
    now, copies[at] = copies[at], before
    _count_by(state, name, stage, index, before, now)


def leave_over(state: State, name: str, stage: str, index: int) -> None:
    """A task has succeeded: the attempts of it that are left are copies no more, they are to end."""
    copies, job = state.copies.get(f"{name}/{stage}/{index}"), state.jobs.get(name)
    if copies is not None and job is not None:
        at = job.graph.position[stage]
        job.copies[at] -= len(copies)
        job.ending[at] += len(copies)


def end_spare(state: State, name: str, stage: str, index: int, attempt: int) -> Allocation:
    """An attempt holds nothing any more, and its task has not ended with it. Returns what it held."""
    key = f"{name}/{stage}/{index}"
    copies = state.copies[key]
    before = state.holds.get(key)
    if before is not None and before.attempt == attempt:
        ended = before
        _count_by(state, name, stage, index, before, copies.pop(0))
    else:
        ended = next(copy for copy in copies if copy.attempt == attempt)
        copies.remove(ended)
    if not copies:
        del state.copies[key]
    job = state.jobs.get(name)
    if job is not None:
        counts = job.ending if before is None else job.copies
        counts[job.graph.position[stage]] -= 1
    return ended


def find_hold(state: State, name: str, stage: str, index: int, attempt: int) -> Allocation:
    """What an attempt holds."""
    key = f"{name}/{stage}/{index}"
    hold = state.holds.get(key)
    if hold is not None and hold.attempt == attempt:
        return hold
    return next(copy for copy in state.copies[key] if copy.attempt == attempt)


def _count_by(state: State, name: str, stage: str, index: int, before: Allocation, now: Allocation) -> None:
    state.holds[f"{name}/{stage}/{index}"] = now
    job = state.jobs.get(name)
    if job is None:
        return
    at = job.graph.position[stage]
    place(job.places[at], index, 1, now.node)
    job.running[at] += now.started - before.started
    job.starting[at] -= now.started - before.started
