"""What agents say of ranges of tasks and of what they measured, checked."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from schemas.edge.base import (
    TASKS_MAX,
    Malformed,
    vector_of,
)
from schemas.quantities import Vector

MESSAGE_TASKS_MAX = TASKS_MAX  # Tasks that the ranges of one message come to, together.


def peak_of(amounts: Mapping[str, object], parent: str) -> Vector:
    """The largest use that an agent saw. Raises Malformed under `parent`."""
    try:
        return vector_of(amounts, round_up=True)
    except Malformed as fault:
        raise fault.under(f"{parent}.peak") from None


def check_range(first: int, count: int, parent: str) -> None:
    """Indexes stay below the most tasks that a stage can have. Raises Malformed under `parent`."""
    if first + count > TASKS_MAX:
        raise Malformed(f"{parent}.count", f"goes beyond task {TASKS_MAX - 1}, the last that a stage can have")


def check_tasks(counts: Iterable[int], field: str) -> None:
    """The ranges of one message speak of at most MESSAGE_TASKS_MAX tasks. Raises Malformed for `field`."""
    if (tasks := sum(counts)) > MESSAGE_TASKS_MAX:
        raise Malformed(
            field, f"speaks of {tasks} tasks: a message may speak of at most {MESSAGE_TASKS_MAX}; send several"
        )


def check_run_ms(run_ms: list[int], count: int, parent: str, *, needed: bool) -> None:
    """One run time for all tasks or one for each. Raises Malformed under `parent`."""
    if len(run_ms) not in (1, count) and (run_ms or needed):
        raise Malformed(
            f"{parent}.run_ms", f"has {len(run_ms)} entries: give one for all {count} tasks, or one for each"
        )


class Ended(Protocol):
    """An item that speaks of attempts which ended."""

    count: int
    peak_mib: list[int]
    cpu_ms: list[int]


def check_measured(item: Ended, parent: str) -> None:
    """What was measured is told of every task of an item, or of none. Raises Malformed under `parent`."""
    for field, measured in (("peak_mib", item.peak_mib), ("cpu_ms", item.cpu_ms)):
        if len(measured) not in (0, item.count):
            raise Malformed(
                f"{parent}.{field}", f"has {len(measured)} entries: give one for each of {item.count} tasks"
            )
