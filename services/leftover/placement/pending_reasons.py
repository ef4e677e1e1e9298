"""Why the tasks of a class wait, for users and for other policies. The reason depends only on what is held and what
waits, so that a restarted instance says the same. (Under the preset `fifo` also on whether the head is blocked, which
every round tries again.)
"""

from typing import Literal

from services.leftover.placement.barred import is_barred
from services.leftover.placement.board import Board
from services.leftover.placement.entries import JobEntry
from services.leftover.placement.fits import bit_set
from services.leftover.placement.keys import CLASS_MASK, SEGMENT_BITS, job_class_of
from services.leftover.placement.leaf_queue import LeafEntry
from services.leftover.placement.queue_limits import asked_of, lacked_below, queue_at_maximum
from services.leftover.placement.task_class import TaskClass

Reason = Literal["none", "no_room", "no_node", "gang_no_room", "behind_head", "queue_max", "pool", "locality", "spread"]

WANTS_ROOM: tuple[Reason, ...] = ("no_room", "gang_no_room", "pool")
"""Reasons that room would end. Room that no class can use within its pool is lent, unless pools do not lend: then room
that comes free in the pool ends it."""

Heads = dict[str, list[int]]
"""By strict leaf, the buckets that it is at."""


def short(board: Board, heads: Heads | None = None) -> list[TaskClass]:
    """Classes with tasks that wait for nothing but room, in any order. `heads`: see `seekers`."""
    if board.buckets.is_mixed:
        known: Heads = {} if heads is None else heads
        return [task for task in board.classes.by_number if task.waiting and _has_seeker(board, task, known)]
    return [task for task in board.classes.candidates.blocked.values() if task.waiting]


def short_set(board: Board) -> int:
    """The same as a bit set of their numbers."""
    return (
        bit_set([task.index for task in short(board)])
        if board.buckets.is_mixed
        else board.classes.candidates.kept_out()
    )


def reasons(board: Board) -> list[tuple[TaskClass, Reason]]:
    """Why the tasks of each class wait, for the classes where that may have changed since the last call; for all
    where orders are strict or queues have a maximum, since there any change can alter it.
    """
    classes, pools = board.classes, board.pools
    if pools.count > 1:
        for index in pools.flipped():
            classes.recheck[index] = True
    for index in classes.bounded:
        classes.recheck[index] = True  # Others may have taken the room that was barred to it.
    recheck = [classes.by_number[index] for index in classes.recheck]
    classes.recheck = {}
    heads: Heads = {}
    tasks = classes.by_number if board.buckets.is_mixed else recheck
    return [(task, reason_of(board, task, heads)) for task in tasks]


def reason_of(board: Board, task: TaskClass, heads: Heads | None = None) -> Reason:
    """Why the tasks of a class wait. `heads`: see `seekers`."""
    if not task.waiting:
        return "none"
    if not board.node_table.could_fit(task):
        return "no_node"
    if board.pools.keeps and _is_barred_by_pools(board, task):
        return "pool"
    if board.buckets.discipline != "fair" and not task.blocked:
        return "behind_head"
    if (
        board.buckets.discipline == "fair"
        and board.buckets.is_mixed
        and not _has_seeker(board, task, {} if heads is None else heads)
    ):
        entries = [board.buckets.leaves[name] for name, _ in task.buckets]
        held_back = any(leaf.sorts.holds_back for leaf in entries)
        return "behind_head" if held_back else "queue_max"
    if task.bounds is not None and is_barred(board.node_table, task):
        return "locality" if task.bounds.is_near else "spread"  # Before pools: what pools leave idle is lent out.
    if board.pools.count > 1 and board.pools.is_used_up(task):
        return "pool"
    return "gang_no_room" if task.gang else "no_room"


def seekers(board: Board, task: TaskClass, heads: Heads | None = None) -> list[tuple[LeafEntry, int]]:
    """Leaves and buckets in which tasks of a class wait for nothing but room: no head of a strict order is before them,
    they may pack, and no queue at its maximum above them. Depends on what holds and waits alone, not on what was tried.
    `heads`: those of the strict leaves that were looked at since anything was placed or came; more are added.
    """
    known: Heads = {} if heads is None else heads
    found = []
    for name, bucket_id in task.buckets:
        leaf = board.buckets.leaves[name]
        if _seeks(board, task, leaf, bucket_id, known):
            found.append((leaf, bucket_id))
    return found


def seeking_jobs(board: Board, task: TaskClass) -> list[JobEntry]:
    """The jobs that wait for tasks of a class and for nothing but a node; of a strict leaf those at its head."""
    buckets, found = board.buckets, list[JobEntry]()
    for leaf, bucket_id in seekers(board, task):
        if leaf.strict or bucket_id in leaf.sole_jobs:
            found.append(buckets.top(leaf, bucket_id))
        else:
            found += [buckets.by_admission[admitted] for admitted in leaf.buckets[bucket_id].key]
    return found


def _has_seeker(board: Board, task: TaskClass, heads: Heads) -> bool:
    """Whether a class has `seekers`."""
    return any(_seeks(board, task, board.buckets.leaves[name], bucket_id, heads) for name, bucket_id in task.buckets)


def able_heads(board: Board, leaf: LeafEntry, heads: Heads) -> list[int]:
    """The buckets that a strict leaf is at, of those that wait for nothing but room."""
    return [
        bucket_id
        for bucket_id in _heads_in(board, leaf, heads)
        if _seeks(board, board.classes.by_number[bucket_id & CLASS_MASK], leaf, bucket_id, heads)
    ]


def is_seeker(board: Board, leaf: LeafEntry, bucket_id: int, heads: Heads) -> bool:
    """Whether a leaf and a bucket are among the `seekers` of the bucket's class."""
    task = board.classes.by_number[bucket_id & CLASS_MASK]
    return (leaf.name, bucket_id) in task.buckets and _seeks(board, task, leaf, bucket_id, heads)


def _is_barred_by_pools(board: Board, task: TaskClass) -> bool:
    """Whether pools that do not lend keep all tasks of a class from starting."""
    return all(board.pools.bars(job_class_of(bucket_id), task) for _, bucket_id in task.buckets)


def _seeks(board: Board, task: TaskClass, leaf: LeafEntry, bucket_id: int, heads: Heads) -> bool:
    if leaf.strict and bucket_id not in _heads_in(board, leaf, heads):
        return False
    if board.pools.bars(job_class_of(bucket_id), task):
        return False
    if leaf.sorts.packs == "fairest" and not board.buckets.packers.may_pack(board.buckets.first_in(leaf, bucket_id)[0]):
        return False
    return queue_at_maximum(board.buckets.top(leaf, bucket_id).under, task) is None


def _heads_in(board: Board, leaf: LeafEntry, heads: Heads) -> list[int]:
    """`_heads_of` a leaf, from `heads` if it was looked at before."""
    known = heads.get(leaf.name)
    if known is None:
        known = heads[leaf.name] = _heads_of(board, leaf)
    return known


def _heads_of(board: Board, leaf: LeafEntry) -> list[int]:
    """The buckets that a strict leaf is at, one for each class of jobs: of each segment the first that no queue at its
    maximum keeps out, nor one before it that asks for a resource of which a queue holds its maximum. What no available
    node could run is passed over.
    """
    segments: dict[int, list[tuple[int, int, int]]] = {}
    for bucket_id, bucket in leaf.buckets.items():
        if not board.buckets.may_head(leaf, bucket_id):
            continue
        top = bucket.top()
        assert top is not None, f"{leaf.name}: an empty bucket"
        segments.setdefault(bucket_id >> SEGMENT_BITS, []).append((bucket.key[top], bucket_id, top))
    able: dict[int, tuple[int, int]] = {}
    for waiting in segments.values():
        lacked = 0
        for key, bucket_id, top in sorted(waiting):
            task = board.classes.by_number[bucket_id & CLASS_MASK]
            if asked_of(task) & lacked:
                continue
            full = queue_at_maximum(board.buckets.by_admission[top].under, task)
            if full is None:
                job_class = job_class_of(bucket_id)
                able[job_class] = min(able.get(job_class, (key, bucket_id)), (key, bucket_id))
                break
            lacked |= lacked_below(full, task)
    return [bucket_id for _, bucket_id in able.values()]
