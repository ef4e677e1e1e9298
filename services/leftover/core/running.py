"""When what runs on a node is expected to end, as far as that counts for room that is gathered there."""

from typing import Final

from schemas.estimates import end_ms
from services.leftover.core.board import estimate_of, leaf_at, leaf_of, stage_of
from services.leftover.core.state import Allocation, Expected, State
from services.leftover.placement.board import Board, Placement
from services.leftover.placement.task_class import TaskClass
from services.leftover.placement.timeline import End, Wanted

OVERRUN_MOST: Final = 2
"""A task that runs on is expected to end at any moment until it has run so many times as long as it was expected to."""


class Running:
    """What runs on nodes, with what this round has placed there, by its estimated ends. What is known of a task is kept
    with it from round to round: what it gives back as long as the board lasts, what it is expected to take as long as
    its job lives and nothing more was seen of its stage.
    """

    def __init__(self, state: State, board: Board, placements: list[Placement], now_ms: int) -> None:
        self._state, self._board, self.now_ms = state, board, now_ms
        self._held: dict[int, list[Allocation]] = {}  # By node, brought up to date when it is first looked at.
        self._placed: dict[int, list[Placement]] = {}
        for placement in placements:
            self._placed.setdefault(placement.node, []).append(placement)

    def ends(self, number: int, wanted: Wanted) -> list[End]:
        """In order of time; without the tasks that are the class's own, unless they count, too."""
        state, now_ms = self._state, self.now_ms
        found: list[End] = []
        for held in self._held_on(number):
            expected = held.expected
            if expected is not None and self._gives_room(held, expected.path, wanted):
                found.append(expected.end)
        for p in self._placed.get(number, []):
            job = state.jobs[p.job]
            own = p.task is wanted.task if wanted.task.gang else p.task.demand == wanted.task.demand
            of_leaves = leaf_of(state, job) in wanted.leaves
            if (wanted.of_own and of_leaves) or (not own and (wanted.starves or not of_leaves)):
                lasts_ms = estimate_of(job, stage_of(job, p.stage))
                for i in range(p.count):
                    found.append(End(now_ms + lasts_ms, p.task.pairs, p.devices[i] if p.devices else []))
        found.sort(key=lambda end: end.at_ms)
        return found

    def _held_on(self, number: int) -> list[Allocation]:
        """What ran on the node before this round, each with its end as it is expected now."""
        known = self._held.get(number)
        if known is None:
            on_node = self._state.held.get(self._board.room.nodes[number].name)
            known = self._held[number] = list(on_node.values()) if on_node is not None else []
            for held in known:
                self._expect(held)
        return known

    def _expect(self, held: Allocation) -> None:
        """Brings up to date when a task is expected to end. Another job may have the name of its own by now."""
        state, expected, is_new = self._state, held.expected, False
        if expected is None:
            devices = [(share.index, share.milli) for share in held.devices] if held.devices else []
            end = End(self.now_ms, self._board.room.pairs(held.demand), devices)
            expected = held.expected = Expected(end, leaf_at(state, held.queue))
            is_new = True
        job = state.jobs.get(held.job)
        if is_new or job is not expected.job:
            expected.job, expected.stage = job, None
            if job is not None:
                expected.stage = stage_of(job, held.stage)
                expected.lasts_ms = estimate_of(job, expected.stage)
        elif job is not None and job.seen and expected.stage is not None:
            expected.lasts_ms = estimate_of(job, expected.stage)
        expected.end.at_ms = self.now_ms if job is None else self._end_of(held.start_ms, expected.lasts_ms)

    def _gives_room(self, held: Allocation, path: str, wanted: Wanted) -> bool:
        """Whether what this task gives back counts as room to gather: where possible only what tasks of leaves that
        hold more than they are due give back.
        """
        task = wanted.task
        if held.demand == task.demand and (not task.gang or self._is_of(held, task)):
            return wanted.of_own and path in wanted.leaves and path != ""
        if not path:
            return True
        if path in wanted.leaves:
            return wanted.starves or wanted.of_own
        leaf = self._board.leaf(path)
        if leaf.is_owed and not wanted.starves:
            return False
        return wanted.of_all or leaf.due is None or leaf.share > (leaf.guaranteed if wanted.owed else leaf.due)

    def _is_of(self, held: Allocation, task: TaskClass) -> bool:
        """Whether a task with the demand of a gang's class is of that class."""
        job = self._state.jobs.get(held.job)
        stage = stage_of(job, held.stage) if job is not None else None
        return stage is not None and stage.gang and stage.tasks == task.gang and stage.labels == task.labels

    def _end_of(self, start_ms: int, lasts_ms: int) -> int:
        now_ms = self.now_ms
        if start_ms + lasts_ms < now_ms <= start_ms + OVERRUN_MOST * lasts_ms:
            return now_ms  # It may end at any moment: to go elsewhere would be to begin anew.
        return end_ms(start_ms, lasts_ms, now_ms)
