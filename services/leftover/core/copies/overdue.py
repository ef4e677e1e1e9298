"""Which tasks run for longer than they should (stragglers), and when the next one will.

Each watched stage is filed under the moment at which the first of its tasks becomes a straggler, and is looked at once
that has come. So a round costs the stages of which something has started or ended and those with stragglers, not all
that are watched. The file is a cache: it can be made again from what runs.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from services.leftover.core.copies.stragglers import may_be_copied
from services.leftover.core.job import Job
from services.leftover.core.state import Run, StageRuns, State, Watch

WHOLE_PERMILLE: Final = 1_000

_STRAYS_MAX: Final = 64
"""Entries of the heap that say nothing any more, before it is made again."""


@dataclass(slots=True)
class Straggler:
    """A task that should have a copy. `since_ms`: when it became a straggler."""

    since_ms: int
    job: str
    at: int
    index: int
    run: Run


def stragglers(state: State, now_ms: int) -> tuple[list[Straggler], int | None]:
    """Tasks that should have a copy, those that are overdue by most first; and when the next one becomes a straggler.
    Changes the cache only.
    """
    watch = _up_to_date(state)
    while watch.heap and watch.heap[0][0] <= now_ms:
        at_ms, name, at = heappop(watch.heap)
        if watch.late_ms.get((name, at)) == at_ms:
            watch.overdue[name, at] = True
    while watch.heap and watch.late_ms.get((watch.heap[0][1], watch.heap[0][2])) != watch.heap[0][0]:
        heappop(watch.heap)
    wake_ms = watch.heap[0][0] if watch.heap else None
    late: list[Straggler] = []
    for name, at in watch.overdue:
        next_ms = _note_late(state, name, at, now_ms, late)
        if next_ms is not None and (wake_ms is None or next_ms < wake_ms):
            wake_ms = next_ms
    late.sort(key=lambda one: (one.since_ms, state.jobs[one.job].admitted, one.at, one.index))
    return late, wake_ms


def _up_to_date(state: State) -> Watch:
    """The file of watched stages, with what has changed since the last round."""
    watch = state.watch
    if watch is None:
        watch = state.watch = Watch()
        watch.changed = {(name, at): True for name, stages in state.runs.items() for at in stages}
    for name, at in watch.changed:
        key, due_ms = (name, at), _due_ms(state, name, at)
        was_overdue = watch.overdue.pop(key, False)
        if due_ms is None:
            watch.late_ms.pop(key, None)
        elif was_overdue or watch.late_ms.get(key) != due_ms:
            watch.late_ms[key] = due_ms
            heappush(watch.heap, (due_ms, name, at))
    watch.changed = {}
    if len(watch.heap) > 2 * len(watch.late_ms) + _STRAYS_MAX:
        waiting = [(due_ms, key[0], key[1]) for key, due_ms in watch.late_ms.items() if key not in watch.overdue]
        watch.heap = sorted(waiting)
    return watch


def _due_ms(state: State, name: str, at: int) -> int | None:
    """When the first task of a stage that may have a copy becomes a straggler."""
    of_stage = state.runs.get(name, {}).get(at) if name not in state.on_hold else None
    after_ms = None if of_stage is None else _late_after_ms(state, state.jobs[name], at, of_stage)
    if of_stage is None or after_ms is None or not may_be_copied(state, name, state.jobs[name].graph.stages[at]):
        return None
    for index, run in of_stage.runs.items():
        if _is_free(state, name, at, index, run):
            return run.start_ms + after_ms + 1
    return None


def _note_late(state: State, name: str, at: int, now_ms: int, late: list[Straggler]) -> int | None:
    """Adds the stragglers of a stage; when its next task becomes one."""
    of_stage = state.runs[name][at]
    after_ms = _late_after_ms(state, state.jobs[name], at, of_stage)
    assert after_ms is not None, f"{name}: stage {at} is overdue, and nobody knows how long it takes"
    for index, run in of_stage.runs.items():
        if _is_free(state, name, at, index, run):
            since_ms = run.start_ms + after_ms + 1
            if since_ms > now_ms:
                return since_ms  # The others began later.
            late.append(Straggler(since_ms, name, at, index, run))
    return None


def _is_free(state: State, name: str, at: int, index: int, run: Run) -> bool:
    """Whether a task has no copy, and may have one."""
    if run.alone:
        return False
    copied = state.copied.get(name)
    return not copied or f"{state.jobs[name].graph.stages[at].stage}/{index}" not in copied


def _late_after_ms(state: State, job: Job, at: int, of_stage: StageRuns) -> int | None:
    """How long a task of a stage runs before it is a straggler; None: nobody knows how long it should."""
    policy, ran_ms = state.policy, of_stage.ran_ms
    if not policy.speculation_permille or not of_stage.runs:
        return None
    usual_ms = job.graph.stages[at].estimate_ms
    if ran_ms and len(ran_ms) >= policy.speculation_finished_min:
        usual_ms = max(1, ran_ms[(len(ran_ms) - 1) // 2])
    return usual_ms * policy.speculation_permille // WHOLE_PERMILLE if usual_ms else None
