"""How admission names attempts and specs, what holds room under such names, and when a job's name is free again."""

from dataclasses import replace
from typing import Final

from largesse.ids import content_hash
from largesse.lifecycle.task_keys import parts_of
from schemas import JobSpec, TaskRange
from services.admission.core.state import Ended, State


def seen_key(state: State, key: str, attempt: int) -> str:
    """Names one attempt of a task within a message. Where no task of the cell has copies, the task names it."""
    return f"{key}/{attempt}" if state.copied else key


def tasks_held_by(state: State, node: str) -> list[TaskRange]:
    """The attempts on a node, in the order they were granted."""
    ranges = []
    for key, hold in state.nodes[node].holds.items():
        job, stage, index = parts_of(key)
        ranges.append(TaskRange(job, stage, index, 1, hold.attempt, node, hold.epoch))
    return ranges


def is_free(state: State, ended: Ended, time: int) -> bool:
    """Whether a job that has ended no longer takes its name at log time `time` (ms).

    Attempts that still hold room are known by it: they have to end first, however short names are kept.
    """
    return ended.job is None and time - ended.at_ms > state.policy.name_kept_ms


_LATER_OF_STAGE: Final = (
    ", container=None)",
    ", retry=[])",
    ", grace_ms=None)",
    ", array='', matrix=[], secrets={})",
    *(", inputs=[])", ", running_max=None)", ", max_failed=0, on_failure='fail')"),
)
_LATER_OF_JOB: Final = (", after_jobs=[], on_unmet='cancel')", ", hold=False)", ", revocable='auto')")
"""How texts of stages and jobs end that do without fields which are younger than the digests in older logs, the
youngest first: those that came together are one end.
"""


def digest_of(spec: JobSpec) -> str:
    """A short name for a spec: equal for equal specs. Its text names every field in order, the same on every Python;
    later fields where they are not at their defaults, so that a spec without them keeps the name that it had.
    """
    head = f"JobSpec(job={spec.job!r}, queue={spec.queue!r}, stages=["
    stages = ", ".join([_without(repr(stage), _LATER_OF_STAGE) for stage in spec.stages])
    rest = _without(repr(replace(spec, stages=[])), _LATER_OF_JOB)[len(head) :]
    text = f"{head}{stages}{rest}"
    return content_hash(text.encode("ascii", "backslashreplace"))[:32]


def _without(text: str, ends: tuple[str, ...]) -> str:
    for end in ends:
        if not text.endswith(end):
            return text
        text = text.removesuffix(end) + ")"
    return text
