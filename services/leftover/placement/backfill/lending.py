"""Backfilling: tasks that do not delay a class start on the nodes that are held for it (docs/concepts/gathering.md).

Waiting tasks are tried in the order in which they would be served, and of each class in a leaf only its first job.
Gangs are not lent to, since all of their tasks would have to find room on held nodes.

Where levels do not follow from guarantees, no room is held against one: a leaf that is below its own takes what is free
there if all that the room is held for is beyond the guarantees of others. Else it would wait for as long as it takes to
gather that, and for ever where further leaves of the same class take each room as soon as it is there.
"""

from collections.abc import Callable

from services.leftover.placement.backfill.timeline import HeldNode, could_hold, fits_now, lend, lent_until
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
    waiting = _Seekers(board, now_ms, lasting)
    for number, reserved in held.items():
        node = board.node_table.nodes[number]
        others = board.classes.candidates.fitting(number, among)
        others = [task for task in others if task is not reserved.task and not task.gang]
        fitting = [task for task in others if fits_now(board.node_table, task, node)]
        is_owed = any(could_hold(board.node_table, task, node) for task in owed) if fitting else False
        while fitting and (found := waiting.first(node, reserved, fitting, is_owed)) is not None:
            lend(reserved, node, found.span.task, found.end_ms)
            board.put(found.leaf, found.job, found.span, number)
            waiting.forget()
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


class _Seeker:
    """Who is served first in a bucket, and when its task is expected to end."""

    def __init__(
        self, turn: tuple[int, str, int, int], end_ms: int, leaf: LeafEntry, job: JobEntry, span: TaskSpan
    ) -> None:
        self.turn = turn
        self.end_ms = end_ms
        self.leaf = leaf
        self.job = job
        self.span = span


class _Seekers:
    """Who waits for each class, in the order in which they are served. What is placed may change any of it, so then it
    is told to `forget`; until then nodes without number are looked at for the cost of one.
    """

    def __init__(self, board: Board, now_ms: int, lasting: Lasting) -> None:
        self._board = board
        self._now_ms = now_ms
        self._lasting = lasting
        self._known: dict[int, list[_Seeker]] = {}
        self._soonest: dict[int, int] = {}

    def forget(self) -> None:
        """Something was placed."""
        self._known = {}

    def _of(self, task: TaskClass) -> list[_Seeker]:
        known = self._known.get(task.index)
        if known is None:
            known = self._known[task.index] = [self._seeker(*each) for each in seekers(self._board, task)]
            known.sort(key=lambda seeker: seeker.turn)
            self._soonest[task.index] = min([seeker.end_ms for seeker in known], default=0)
        return known

    def _seeker(self, leaf: LeafEntry, bucket_id: int) -> _Seeker:
        job, span = self._board.buckets.first_in(leaf, bucket_id)
        turn = self._board.turn_of(leaf, bucket_id)
        end_ms = self._now_ms + self._lasting(job.name, span.stage)
        return _Seeker(turn, end_ms, leaf, job, span)

    def first(self, node: NodeRoom, reserved: HeldNode, classes: list[TaskClass], is_owed: bool) -> _Seeker | None:
        """Who is served first of those that do not delay what the node is held for. `is_owed`: what is left of the room
        is others' due.
        """
        best: _Seeker | None = None
        first_ms = reserved.first_ms
        for task in classes:
            known = self._of(task)
            until_ms = lent_until(reserved, node, task)
            if self._soonest[task.index] > until_ms:
                continue
            for seeker in known:
                if best is not None and best.turn < seeker.turn:
                    break
                if seeker.end_ms > until_ms:
                    continue
                if is_owed and seeker.end_ms > first_ms and not self._board.stays_within(seeker.leaf):
                    continue
                best = seeker
                break
        return best
