"""What the jobs of a leaf, and what they wait for, are served by (keys.py says which bits mean what)."""

from typing import Final

from services.leftover.placement.entries import Discipline, JobEntry
from services.leftover.placement.keys import (
    ADMITTED_BITS,
    OPTIONAL_BIT,
    POSITION_BITS,
    RANK_SHIFT,
    SHARE_BITS,
    SHARE_MOST,
    STAGE_RANK_SHIFT,
    WORK_BITS,
)
from services.leftover.placement.task_span import TaskSpan

_PRIORITY_TOP: Final = 1 << 20
_ABOVE_FLOOR: Final = 1 << 90  # Above any share, and any moment in ms.


def rank_of(job: JobEntry) -> int:
    """What jobs of one leaf are served by, least first, before the order of admission decides."""
    by = job.leaf.sorts.by
    top = _PRIORITY_TOP - job.priority
    if by == "admission":
        return top if job.queue == job.leaf.name else 0  # In a list of several queues it would take from the others.
    if job.aged:
        return 0
    if by == "share":
        share = job.share
        return (top << SHARE_BITS) | (share if share < SHARE_MOST else SHARE_MOST)
    if by == "tasks":
        return (top << SHARE_BITS) | job.tasks
    if by == "floor":
        after = job.share if job.share < job.leaf.floor else _ABOVE_FLOOR | job.sort_value
        return (top << WORK_BITS) | after
    if by == "value":
        return (top << WORK_BITS) | min(job.sort_value, (1 << WORK_BITS) - 1)
    return top


def key_of(discipline: Discipline, job: JobEntry, span: TaskSpan) -> int:
    """What a span of a job is served by in its leaf, least first (keys.py)."""
    if discipline == "fair":
        # One shift and one addition of a number of more than one machine word: there are no fewer.
        key = rank_of(job) << RANK_SHIFT | (job.admitted << POSITION_BITS | span.position)
        return key | 1 << OPTIONAL_BIT if span.optional else key
    top = _PRIORITY_TOP - job.priority
    if discipline == "fifo_job":
        return top << RANK_SHIFT | job.admitted << POSITION_BITS | span.position
    return top << STAGE_RANK_SHIFT | (span.since_ms << ADMITTED_BITS | job.admitted) << POSITION_BITS | span.stage_at
