"""Backfilling: tasks that do not delay a class start on the nodes that are held for it (docs/concepts/gathering.md).

Waiting tasks are tried in the order in which they would be served, and of each class in a leaf only its first job.
Gangs are not lent to, since all of their tasks would have to find room on held nodes.
"""

from collections.abc import Callable

from services.leftover.placement.board import Board, Placement
from services.leftover.placement.entries import JobEntry
from services.leftover.placement.leaf_queue import LeafEntry
from services.leftover.placement.pending_reasons import seekers, short_set
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
