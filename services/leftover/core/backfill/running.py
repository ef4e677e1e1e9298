"""When what runs on a node is expected to end, as far as that counts for room that is gathered there."""

from collections.abc import Iterator
from typing import Final

from schemas.estimates import end_ms
from services.leftover.core.board import estimate_of, leaf_at, leaf_of, stage_of
from services.leftover.core.job import Job
from services.leftover.core.state import Allocation, Ending, Expected, State
from services.leftover.placement.backfill.timeline import End, Wanted
from services.leftover.placement.board import Board
from services.leftover.placement.placements import Placement
from services.leftover.placement.task_class import TaskClass

OVERRUN_MOST: Final = 2
"""A task that runs on is expected to end at any moment until it has run so many times as long as it was expected to."""

NOTHING_HELD: Final[list[Allocation]] = []
"""Of nodes on which nothing gives room that counts: shared, and never changed."""

NOTHING_PLACED: Final[list[Placement]] = []
"""Of nodes on which this round has placed nothing: shared, and never changed."""


def _at_ms(held: Allocation) -> int:
    return held.expected.end.at_ms if held.expected is not None else 0


class Running:
    """What runs on nodes, with what this round has placed there, by its estimated ends. What is known of a task is kept
    with it from round to round: what it gives back as long as the board lasts, what it is expected to take as long as
    its job lives and nothing more was seen of its stage.
    """

    def __init__(self, state: State, board: Board, placements: list[Placement], now_ms: int) -> None:
        self._state, self._board, self._table, self.now_ms = state, board, board.node_table, now_ms
        self._held: dict[int, list[Allocation]] = {}  # By node, brought up to date when it is first looked at.
        self._placed: dict[int, list[Placement]] = {}
        for placement in placements:
            self._placed.setdefault(placement.node, []).append(placement)

    def ends(self, number: int, wanted: Wanted) -> Iterator[End]:
        """In order of time; without the tasks that are the class's own, unless they count, too. Who has seen enough
        asks for no more."""
        placed, next_ = self._ends_placed(number, wanted), 0
        for held in self._held_on(number) if self._could_give(number, wanted) else NOTHING_HELD:
            expected = held.expected
            if expected is None or not self._gives_room(held, expected.path, wanted, number):
                continue
            while next_ < len(placed) and placed[next_].at_ms < expected.end.at_ms:
                yield placed[next_]
                next_ += 1
            yield expected.end
        while next_ < len(placed):
            yield placed[next_]
            next_ += 1

    def _could_give(self, number: int, wanted: Wanted) -> bool:
        """Whether anything that ran on the node before this round may give room that counts: not where all of it is of
        leaves that want it, and whose own ends do not count."""
        if wanted.starves or wanted.of_own:
            return True
        ending = self._state.ending.get(self._table.nodes[number].name)
        return ending is None or any(not path or path not in wanted.leaves for path in ending.paths)

    def _ends_placed(self, number: int, wanted: Wanted) -> list[End]:
        """Of what this round has placed there."""
        state, now_ms = self._state, self.now_ms
        found: list[End] = []
        for p in self._placed.get(number, NOTHING_PLACED):
            job = state.jobs[p.job]
            own = p.task is wanted.task if wanted.task.gang else p.task.demand == wanted.task.demand
            of_leaves = leaf_of(state, job) in wanted.leaves
            if (wanted.of_own and of_leaves) or (not own and (wanted.starves or not of_leaves)):
                lasts_ms = estimate_of(job, stage_of(job, p.stage))
                for i in range(p.count):
                    found.append(End(now_ms + lasts_ms, p.task.pairs, p.devices[i] if p.devices else []))
        if len(found) > 1:
            found.sort(key=lambda end: end.at_ms)
        return found

    def _held_on(self, number: int) -> list[Allocation]:
        """What ran on the node before this round, in the order in which it is expected to end by now."""
        known = self._held.get(number)
        if known is None:
            known = self._held[number] = self._in_order(self._table.node(number).name)
        return known

    def _in_order(self, name: str) -> list[Allocation]:
        """The same, from an earlier round where all of it is of live jobs of one task: then only what has started
        since, and what has not ended by the time that was expected, is expected at another."""
        state, ending = self._state, self._state.ending.get(name)
        if ending is not None and self._follow(ending):
            return ending.order
        on_node = state.held.get(name)
        known = list(on_node.values()) if on_node is not None else []
        is_steady = not state.copied
        paths: dict[str, bool] = {}
        for held in known:
            is_steady = self._is_steady(held) and is_steady
            if held.expected is not None:
                paths[held.expected.path] = True
        known.sort(key=_at_ms)
        if is_steady:
            state.ending[name] = Ending(known, paths)
        elif ending is not None:
            del state.ending[name]
        return known

    def _is_steady(self, held: Allocation) -> bool:
        """Brings up to date when a task is expected to end; whether nothing but time changes that."""
        job = self._expect(held)
        return job is not None and len(job.graph.tasks) == 1 == job.graph.tasks[0]

    def _follow(self, ending: Ending) -> bool:
        """Brings up to date what was kept of a node; whether it can be kept on."""
        order = ending.order
        if ending.has_ended:
            ending.has_ended, order = False, [held for held in order if held.expected is not None]
        is_sorted = not self._put_off(order)
        if ending.started:
            for held in ending.started.values():
                if not self._is_steady(held):
                    return False
                order.append(held)
            ending.started, is_sorted = {}, False
        if not is_sorted:
            order.sort(key=_at_ms)
        ending.order = order
        return True

    def _put_off(self, known: list[Allocation]) -> bool:
        """Expects what should have ended by now at another time; whether there is such."""
        for i, held in enumerate(known):
            expected = held.expected
            if expected is None or expected.end.at_ms >= self.now_ms:
                return i > 0
            expected.end.at_ms = self._end_of(held.start_ms, expected.lasts_ms)
        return len(known) > 0

    def _expect(self, held: Allocation) -> Job | None:
        """Brings up to date when a task is expected to end; its job. Another job may have its name by now."""
        state, expected, is_new = self._state, held.expected, False
        if expected is None:
            devices = [(share.index, share.milli) for share in held.devices] if held.devices else []
            end = End(self.now_ms, self._table.pairs(held.demand), devices)
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
        return job

    def _gives_room(self, held: Allocation, path: str, wanted: Wanted, number: int) -> bool:
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
        if leaf.is_owed and not (wanted.starves or task.gang):
            return False
        if wanted.of_all or leaf.own_level is None or leaf.share > (leaf.guaranteed if wanted.owed else leaf.own_level):
            return True
        wanted.spared[number] = True
        return False

    def _is_of(self, held: Allocation, task: TaskClass) -> bool:
        """Whether a task with the demand of a gang's class is of that class."""
        job = self._state.jobs.get(held.job)
        stage = stage_of(job, held.stage) if job is not None else None
        return stage is not None and stage.gang and stage.tasks == task.gang and stage.labels == task.labels

    def _end_of(self, start_ms: int, lasts_ms: int) -> int:
        now_ms = self.now_ms
        if start_ms + lasts_ms < now_ms <= start_ms + OVERRUN_MOST * lasts_ms:
            return now_ms  # It may end at any moment: to go elsewhere would be to start over.
        return end_ms(start_ms, lasts_ms, now_ms)
