"""What attempts used of memory and CPU, in the gateway's view."""

from dataclasses import fields
from json import dumps, loads

from schemas import Record
from schemas.tasks import TaskEnd, TaskFailure
from services.gateway.view.jobs import FailedAttempt, StageUse
from services.gateway.view.state import State

UNKNOWN = -1
"""Stands for a number that was not measured."""


_COLUMNS = tuple(field.name for field in fields(StageUse))


def use_text(used: StageUse) -> str:
    """What a stage has used as one text, as it is kept of a job that has ended: few of thousands are asked for."""
    return dumps([getattr(used, name) for name in _COLUMNS], separators=(",", ":"))


def use_of(text: str) -> StageUse:
    """The same read again."""
    return StageUse(*loads(text))


def note_used(state: State, item: TaskEnd, index: int, granted: int) -> None:
    """Task `index` of an item has succeeded, in an attempt that record `granted` let start."""
    job = state.jobs.get(item.job)
    if job is None:
        return
    used = job.used[job.graph.position[item.stage]]
    used.cpu_peak = max(used.cpu_peak, item.peak.get("cpu", UNKNOWN))
    columns = (used.attempts, used.granted, used.run_ms, used.peak_mib, used.cpu_ms)
    said = (item.attempt, granted, *(_of(item, field, index) for field in ("run_ms", "peak_mib", "cpu_ms")))
    for column, number in zip(columns, said, strict=True):
        column.extend([0] * (index + 1 - len(column)))
        column[index] = UNKNOWN if number is None else number


def failed_attempt(item: TaskFailure, index: int, record: Record) -> FailedAttempt:
    """Task `index` of an item that failed."""
    measured = [_of(item, field, index) for field in ("run_ms", "peak_mib", "cpu_ms")]
    run_ms, peak_mib, cpu_ms = measured
    said = (item.stage, index, item.attempt, item.node, item.reason, item.exit_code, item.detail)
    return FailedAttempt(*said, record.time, run_ms, peak_mib, cpu_ms, record.seq)


def _of(item: TaskEnd | TaskFailure, field: str, index: int) -> int | None:
    """What an item says of one of its tasks: it has one number for all, one for each, or none."""
    said: list[int] = getattr(item, field)
    if len(said) == item.count:
        return said[index - item.first]
    return said[0] if said else None
