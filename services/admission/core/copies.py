"""Tasks that have copies: several attempts of such a task hold room at a time, each on a node of its own.

One attempt counts as the task's own for all services that count tasks; the others are extra. A task ends with the first
attempt that succeeds, or with the end of its last attempt. The end of any other attempt is that of a spare one
(`SpareAttempt`), and its record says so; hence no other core has to keep track of attempts.
"""

from collections.abc import Sequence

from largesse.lifecycle.task_keys import index_of, stage_in, task_key
from schemas import Grant, SpareAttempt, TaskRange
from schemas.nodes import KnownAttempt
from schemas.tasks import TaskEnd, TaskFailure
from services.admission.core.granted import attempt_of, is_held, mark_of, marks, put_in
from services.admission.core.state import Copied, JobState, State


def copied_in(state: State, job: str, stage: str, low: int, high: int) -> list[int]:
    """Of tasks `low` .. `high - 1` of a stage, those that were granted copies, in order."""
    copied = state.copied.get(job)
    if copied is None:
        return []
    indexes = [index_of(task) for task in copied if stage_in(task) == stage]
    return sorted([index for index in indexes if low <= index < high])


def spare_among(
    state: State, ends: Sequence[TaskRange | TaskEnd | TaskFailure | KnownAttempt], *, succeeded: bool
) -> list[SpareAttempt]:
    """The spare attempts among those that end by one record, all of them in success or none of them."""
    found: list[SpareAttempt] = []
    left: dict[str, int] = {}  # By task, how many attempts hold room once this record's ends so far are counted.
    done: dict[str, bool] = {}
    for end in ends:
        for index in copied_in(state, end.job, end.stage, end.first, end.first + end.count):
            task = f"{end.stage}/{index}"
            copied = state.copied[end.job][task]
            key = task_key(end.job, end.stage, index)
            others = left[key] = left.get(key, copied.attempts) - 1
            if copied.done or key in done or (others and not succeeded):
                found.append(SpareAttempt(end.job, end.stage, index, end.attempt))
            elif succeeded:
                done[key] = True
    return found


def can_copy(state: State, job: JobState, grant: Grant) -> bool:
    """Whether what a copy was granted for still holds: the attempt before it runs, and nothing of the task is on the
    node."""
    granted = job.granted[job.graph.position[grant.stage]]
    _, _, mark = marks(granted, grant.first, grant.first + 1)[0]
    key = task_key(grant.job, grant.stage, grant.first)
    return is_held(mark) and attempt_of(mark) == grant.attempt - 1 and key not in state.nodes[grant.node].holds


def begin_copy(state: State, job: JobState, grant: Grant) -> None:
    """A copy holds room from now on."""
    job.extra += 1
    copied = state.copied.setdefault(grant.job, {}).setdefault(f"{grant.stage}/{grant.first}", Copied(1, grant.attempt))
    copied.attempts += 1
    copied.highest = grant.attempt


def end_own(state: State, job: JobState, name: str, at: int, first: int, end: int) -> None:
    """Tasks `first` .. `end - 1` of a stage have ended with an attempt, which holds nothing any more: those that were
    copied have succeeded, or failed with their last attempt."""
    stage, tasks = job.graph.stages[at].stage, job.graph.tasks[at]
    for index in copied_in(state, name, stage, first, end):
        copied = state.copied[name][f"{stage}/{index}"]
        copied.done = True
        job.granted = put_in(job.granted, at, index, index + 1, mark_of(copied.highest, False), tasks)
        _leave(state, name, f"{stage}/{index}")


def end_spare(state: State, job: JobState, name: str, stage: str, index: int) -> None:
    """A spare attempt of a task holds nothing any more."""
    job.extra -= 1
    _leave(state, name, f"{stage}/{index}")


def _leave(state: State, name: str, task: str) -> None:
    copied = state.copied[name][task]
    copied.attempts -= 1
    if not copied.attempts:
        del state.copied[name][task]
        if not state.copied[name]:
            del state.copied[name]
