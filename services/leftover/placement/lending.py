"""Backfilling: tasks that do not delay a class start on the nodes that are held for it (docs/concepts/gathering.md).

Waiting tasks are tried in the order in which they would be served, and of each class in a leaf only its first job.
Gangs are not lent to, since all of their tasks would have to find room on held nodes.

No room is held against a guarantee: a leaf that is below its own takes what is free there if all that the room is held
for is beyond the guarantees of others. Else it would wait for as long as it takes to gather that, and for ever where
further leaves of the same class take each room as soon as it is there.
"""

from collections.abc import Callable

from services.leftover.placement.board import Board, Placement
from services.leftover.placement.entries import JobEntry
from services.leftover.placement.keys import CLASS_MASK
from services.leftover.placement.leaf_queue import LeafEntry
from services.leftover.placement.pending_reasons import is_seeker, seekers, short_set
from services.leftover.placement.task_class import NodeRoom, TaskClass
from services.leftover.placement.task_span import TaskSpan
from services.leftover.placement.timeline import Reserved, can_lend, could_hold, fits_now, lend

Lasting = Callable[[str, str], int]
"""What a task of a job's stage is expected to take, in ms."""


def lend_all(
    board: Board, held: dict[int, Reserved], owed: list[TaskClass], now_ms: int, lasting: Lasting
) -> list[Placement]:
    """Places what may start on the nodes that are held. `owed`: further classes that leaves lack."""
    among = short_set(board)
    for number, reserved in held.items():
        node = board.room.nodes[number]
        others = [task for task in board.fitting(number, among) if task is not reserved.task and not task.gang]
        fitting = [task for task in others if fits_now(board.room, task, node)]
        is_owed = any(could_hold(board.room, task, node) for task in owed) if fitting else False
        while fitting and (found := _first(board, node, reserved, fitting, is_owed, now_ms, lasting)) is not None:
            leaf, job, span, end_ms = found
            lend(reserved, node, span.task, end_ms)
            board.put(leaf, job, span, number)
            fitting = [task for task in fitting if task.waiting and fits_now(board.room, task, node)]
    return board.placed()


def serve_owed(board: Board, names: list[str]) -> None:
    """Before a round places anything: those of these leaves that are below their guarantee take what is free on nodes
    that are held for what others are due beyond theirs, unless they find room elsewhere. Room for gangs stays theirs:
    each that starts takes its leaf beyond a guarantee, and brings it below again when it ends.
    """
    owed = [leaf for name in names if (leaf := board.leaves.get(name)) is not None and leaf.is_owed]
    if not owed:
        return
    for number in sorted(board.room.kept_nodes):
        node = board.room.nodes[number]
        if node.kept is not None and not node.kept.gang and not _is_owed(board, node.kept):
            while (found := _first_owed(board, node, owed)) is not None:
                board.put(*found, number)


def _is_owed(board: Board, task: TaskClass) -> bool:
    """Whether a leaf that is below its guarantee waits for tasks of a class."""
    return any(board.leaves[name].is_owed for name, _ in task.buckets)


def _first_owed(board: Board, node: NodeRoom, owed: list[LeafEntry]) -> tuple[LeafEntry, JobEntry, TaskSpan] | None:
    """The first of these leaves that is below its guarantee and waits for single tasks that fit on a node and nowhere
    else, with the job and the span that it serves first of them.
    """
    for _, name in sorted((board.leaf_queue.claim(leaf), leaf.name) for leaf in owed if leaf.is_owed):
        leaf, heads = board.leaves[name], dict[str, list[int]]()
        fitting: list[tuple[int, int]] = []
        for bucket_id in list(leaf.sizes.key):
            task = board.classes[bucket_id & CLASS_MASK]
            if not task.gang and fits_now(board.room, task, node) and is_seeker(board, leaf, bucket_id, heads):
                fitting.append((board.key_in(leaf, bucket_id), bucket_id))
        if fitting and board.room.best(board.classes[min(fitting)[1] & CLASS_MASK]) is None:
            job, span = board.first_in(leaf, min(fitting)[1])
            return leaf, job, span
    return None


def _first(
    board: Board,
    node: NodeRoom,
    reserved: Reserved,
    classes: list[TaskClass],
    is_owed: bool,
    now_ms: int,
    lasting: Lasting,
) -> tuple[LeafEntry, JobEntry, TaskSpan, int] | None:
    """Who is served first of those that do not delay what the node is held for, and when it is expected to end."""
    best: tuple[int, str, int, int] | None = None
    found: tuple[LeafEntry, JobEntry, TaskSpan, int] | None = None
    for task in classes:
        for leaf, bucket_id in seekers(board, task):
            job, span = board.first_in(leaf, bucket_id)
            rank = board.turn_of(leaf, bucket_id)
            if best is not None and best < rank:
                continue
            end_ms = now_ms + lasting(job.name, span.stage)
            if is_owed and end_ms > reserved.first_ms and not board.stays_within(leaf):
                continue  # What is left of the room is others' due.
            if can_lend(reserved, node, task, end_ms):
                best, found = rank, (leaf, job, span, end_ms)
    return found
