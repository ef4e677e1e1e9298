"""Backfilling: tasks that do not delay a class start on the nodes that are held for it (docs/concepts/gathering.md).

Waiting tasks are tried in the order in which they would be served, and of each class in a leaf only its first job.
Gangs are not lent to, since all of their tasks would have to find room on held nodes.

Where levels do not follow from guarantees, no room is held against one: a leaf that is below its own takes what is free
there if all that the room is held for is beyond the guarantees of others. Else it would wait for as long as it takes to
gather that, and for ever where further leaves of the same class take each room as soon as it is there.
"""

from collections.abc import Callable

from services.leftover.placement.backfill.timeline import HeldNode, can_lend, could_hold, fits_now, lend
from services.leftover.placement.board import Board
from services.leftover.placement.entries import JobEntry
from services.leftover.placement.fits import bit_set
from services.leftover.placement.keys import CLASS_MASK
from services.leftover.placement.leaf_queue import LeafEntry
from services.leftover.placement.pending_reasons import seekers, short_set
from services.leftover.placement.placements import Placement
from services.leftover.placement.task_class import NodeRoom, TaskClass
from services.leftover.placement.task_span import TaskSpan

Lasting = Callable[[str, str], int]
"""What a task of a job's stage is expected to take, in ms."""


def lend_all(
    board: Board, held: dict[int, HeldNode], owed: list[TaskClass], now_ms: int, lasting: Lasting
) -> list[Placement]:
    """Places what may start on the nodes that are held. `owed`: further classes that leaves lack."""
    among = short_set(board)
    for number, reserved in held.items():
        node = board.node_table.nodes[number]
        others = board.classes.candidates.fitting(number, among)
        others = [task for task in others if task is not reserved.task and not task.gang]
        fitting = [task for task in others if fits_now(board.node_table, task, node)]
        is_owed = any(could_hold(board.node_table, task, node) for task in owed) if fitting else False
        while fitting and (found := _first(board, node, reserved, fitting, is_owed, now_ms, lasting)) is not None:
            leaf, job, span, end_ms = found
            lend(reserved, node, span.task, end_ms)
            board.put(leaf, job, span, number)
            fitting = [task for task in fitting if task.waiting and fits_now(board.node_table, task, node)]
    return board.placed()


def serve_owed(board: Board, names: list[str]) -> None:
    """Before a round places anything: those of these leaves that are below their guarantee take what is free on nodes
    that are held for what others are due beyond theirs, unless they find room elsewhere. Room for gangs stays theirs:
    each that starts takes its leaf beyond a guarantee, and brings it below again when it ends.
    """
    table = board.node_table
    numbers = [number for number in sorted(table.kept_nodes) if _is_beyond(board, table.nodes[number].kept)]
    owed = [leaf for name in names if (leaf := board.buckets.leaves.get(name)) is not None and leaf.is_owed]
    if not numbers or not owed:
        return
    among = bit_set(list({bucket_id & CLASS_MASK: True for leaf in owed for bucket_id in list(leaf.sizes.key)}))
    for number in numbers:
        node = table.nodes[number]
        able = board.classes.candidates.fitting(number, among)
        able = [task for task in able if not task.gang and fits_now(table, task, node)]
        while able and (found := _first_owed(board, able)) is not None:
            board.put(*found, number)
            able = [task for task in able if task.waiting and fits_now(table, task, node)]


def _is_beyond(board: Board, task: TaskClass | None) -> bool:
    """Whether room is held for single tasks that no leaf below its guarantee waits for."""
    leaves = board.buckets.leaves
    return task is not None and not task.gang and not any(leaves[name].is_owed for name, _ in task.buckets)


def _first_owed(board: Board, classes: list[TaskClass]) -> tuple[LeafEntry, JobEntry, TaskSpan] | None:
    """Who is served first with one of these classes, of the leaves below their guarantee: only such classes as find no
    room on a node that is not held.
    """
    best: tuple[int, str, int, int] | None = None
    found: tuple[LeafEntry, int] | None = None
    for task in classes:
        owed = [(leaf, bucket_id) for leaf, bucket_id in seekers(board, task) if leaf.is_owed]
        if not owed or board.node_table.best(task) is not None:
            continue
        for leaf, bucket_id in owed:
            rank = board.buckets.leaf_queue.claim(leaf), leaf.name, board.buckets.key_in(leaf, bucket_id), bucket_id
            if best is None or rank < best:
                best, found = rank, (leaf, bucket_id)
    return (found[0], *board.buckets.first_in(*found)) if found is not None else None


def _first(
    board: Board,
    node: NodeRoom,
    reserved: HeldNode,
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
            job, span = board.buckets.first_in(leaf, bucket_id)
            rank = board.turn_of(leaf, bucket_id)
            if best is not None and best < rank:
                continue
            end_ms = now_ms + lasting(job.name, span.stage)
            if is_owed and end_ms > reserved.first_ms and not board.stays_within(leaf):
                continue  # What is left of the room is others' due.
            if can_lend(reserved, node, task, end_ms):
                best, found = rank, (leaf, job, span, end_ms)
    return found
