"""What a leaf below its guarantee claims: tasks that wait for nothing but room, as far as it is guaranteed theirs."""

from typing import Final

from schemas.quantities import SHARE_UNITS
from schemas.queue_tree import is_below
from services.leftover.placement.backfill.headroom import is_required
from services.leftover.placement.board import Board
from services.leftover.placement.entries import JobEntry
from services.leftover.placement.keys import CLASS_MASK
from services.leftover.placement.leaf_queue import LeafEntry
from services.leftover.placement.pending_reasons import is_seeker
from services.leftover.placement.preemption.holdings import ROUNDED
from services.leftover.placement.preemption.taking import Claimed
from services.leftover.placement.task_class import TaskClass
from services.leftover.placement.user_limits import free_places

MANY: Final = 1 << 62


def bucket_for(board: Board, leaf: LeafEntry, task: TaskClass) -> int | None:
    """The bucket of a class that a leaf would serve first, of those that wait for nothing but room."""
    found = [bucket_id for bucket_id in list(leaf.sizes.key) if bucket_id & CLASS_MASK == task.index]
    able = [
        (board.buckets.key_in(leaf, bucket_id), bucket_id) for bucket_id in found if may_claim(board, leaf, bucket_id)
    ]
    return min(able)[1] if able else None


def may_claim(board: Board, leaf: LeafEntry, bucket_id: int) -> bool:
    """Whether what waits in a bucket waits for nothing but room, and needs it now. As where room is gathered, nothing
    is claimed for tasks that wait for preferred nodes or are spread: which nodes may take them changes meanwhile.
    """
    bounds = board.classes.by_number[bucket_id & CLASS_MASK].bounds
    if bounds is not None and (bounds.is_near or bounds.is_spread):
        return False
    return is_required(board, leaf, bucket_id) and is_seeker(board, leaf, bucket_id, {})


def claimed_by(board: Board, leaf: LeafEntry, bucket_id: int, rooms: list[Claimed]) -> int:
    """How many tasks that wait in a bucket a leaf may claim room for, beside the `rooms` that are claimed already: it
    then holds no more than it is guaranteed, and no maximum and no limit of their user is exceeded.
    """
    task = board.classes.by_number[bucket_id & CLASS_MASK]
    jobs = _jobs_in(board, leaf, bucket_id)
    own = [room for room in rooms if room.leaf == leaf.name]
    count = sum([span.count for job in jobs for span in job.spans if span.task is task])
    count -= len([room for room in own if room.task is task])
    count = min(count, _within(board, leaf, task, own))
    first = board.buckets.first_in(leaf, bucket_id)[0]
    for entry in first.under:
        claimed = [room for room in rooms if is_below(room.leaf, entry.path)]
        for p, amount in task.pairs:
            if p in entry.most and amount:
                held = entry.held[p] + sum([of_p(room.task, p) for room in claimed])
                count = min(count, max(0, entry.most[p] - held) // amount)
    if first.places:
        count = min(count, free_places(first.places, MANY) - len(own))
    width = max(1, task.gang)
    return max(0, count) // width * width


def of_p(task: TaskClass, position: int) -> int:
    """What a task of a class asks for of one resource."""
    return sum([amount for p, amount in task.pairs if p == position])


def _within(board: Board, leaf: LeafEntry, task: TaskClass, own: list[Claimed]) -> int:
    """How many more tasks of a class a leaf may hold of what it is guaranteed."""
    total, count = board.node_table.total, MANY
    for p, amount in task.pairs:
        if p >= 0 and amount:
            most = (leaf.guaranteed + ROUNDED) * total[p] // SHARE_UNITS
            held = leaf.held[p] + sum([of_p(room.task, p) for room in own])
            count = min(count, max(0, most - held) // amount)
    return 0 if count == MANY or _is_full(board, leaf, own) else count


def _is_full(board: Board, leaf: LeafEntry, own: list[Claimed]) -> bool:
    """Whether a leaf holds more than it is guaranteed of anything, asked for or not."""
    total, most = board.node_table.total, leaf.guaranteed + ROUNDED
    for p, held in enumerate(leaf.held):
        if total[p] and (held + sum([of_p(room.task, p) for room in own])) * SHARE_UNITS // total[p] > most:
            return True
    return False


def _jobs_in(board: Board, leaf: LeafEntry, bucket_id: int) -> list[JobEntry]:
    """The jobs that wait in a bucket of a leaf."""
    buckets = board.buckets
    if bucket_id in leaf.sole_jobs:
        return [buckets.by_admission[leaf.sole_jobs[bucket_id]]]
    return [buckets.by_admission[admitted] for admitted in leaf.buckets[bucket_id].key]
