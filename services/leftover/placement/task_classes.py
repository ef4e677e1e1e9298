"""The classes of tasks on a board: which there are, of which tasks wait, and for which the reason may have changed."""

from typing import Final

from schemas.jobs import PlacementRule
from schemas.placement_rules import class_key
from schemas.quantities import Vector
from services.leftover.placement.barred import bind
from services.leftover.placement.candidates import Candidates
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.task_class import Shape, TaskClass

CLASSES_MAX: Final = 4_096
"""So many classes of tasks are remembered before those that nobody waits in any more are forgotten."""


class TaskClasses:
    """Classes of tasks by number, and of them those that are worth a try (`candidates`)."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self.by_number: list[TaskClass] = []
        self.candidates = Candidates(table, self.by_number)
        self.recheck: dict[int, bool] = {}  # Those whose reason to wait may have changed.
        self.bounded: dict[
            int, TaskClass
        ] = {}  # Those whose tasks wait and may not run everywhere, by rules or since they prefer other nodes.
        self._in_use = 0  # How many have tasks that wait.
        self._of_key: dict[tuple[object, ...], TaskClass] = {}
        self._shapes: dict[tuple[tuple[str, int], ...], Shape] = {}

    def class_for(
        self,
        demand: Vector,
        labels: dict[str, str],
        prefer: dict[str, str],
        gang: int,
        rules: list[PlacementRule] | None = None,
        near: bool = False,
    ) -> TaskClass:
        """The class of tasks like these. `rules` keep them apart; `near`: they wait for nodes that they prefer."""
        shape = self.shape_of(demand)
        if not (labels or prefer or gang or rules or near):
            if shape.plain is None:
                shape.plain = self._new_class(shape, labels, prefer, gang)
            return shape.plain
        key: tuple[object, ...] = (shape.number, tuple(sorted(labels.items())), tuple(sorted(prefer.items())), gang)
        if rules or near:
            key = (class_key(demand, labels, prefer, gang, rules or (), near),)
        task = self._of_key.get(key)
        if task is None:
            task = self._of_key[key] = self._new_class(shape, labels, prefer, gang)
            if rules or near:
                bind(self._table, task, rules or [], near)
        return task

    def _new_class(self, shape: Shape, labels: dict[str, str], prefer: dict[str, str], gang: int) -> TaskClass:
        task = self._table.task_class(len(self.by_number), shape, labels, prefer, gang)
        self.by_number.append(task)
        return task

    def shape_of(self, demand: Vector) -> Shape:
        """What tasks with a demand ask for."""
        key = tuple(demand.items())
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self._table.shape(demand, len(self._shapes))
        return shape

    # ------------------------------------------------------------ what waits
    def begin_waiting(self, task: TaskClass) -> None:
        """Before the first of its tasks wait: any node may have room for them by now."""
        if not task.waiting:
            self.candidates.unblock(task)  # While nobody waited, nodes that got room were not compared with it.

    def count_waiting(self, task: TaskClass, count: int) -> None:
        """So many tasks more (fewer, where negative) of a class wait."""
        before = task.waiting
        task.waiting = before + count
        if before and task.waiting:
            return
        self._in_use += (task.waiting > 0) - (before > 0)
        self.candidates.note_waiting(task)
        if task.bounds is not None:
            if task.waiting:
                self.bounded[task.index] = task
            else:
                self.bounded.pop(task.index, None)

    def near(self) -> list[TaskClass]:
        """Classes whose tasks wait for nodes that they prefer, by key."""
        near = [task for task in self.bounded.values() if task.bounds is not None and task.bounds.is_near]
        return sorted(near, key=lambda task: task.key)

    def open_others(self, task: TaskClass) -> None:
        """A task was placed, in whatever way: where it is counted by label, others that are may find a node now."""
        if task.bounds is not None and task.bounds.is_spread:
            for rule in task.bounds.rules:
                for index in rule.counter.classes:
                    self.candidates.unblock(self.by_number[index])

    def count(self, names: list[str], number: int, count: int) -> None:
        """So many tasks more (fewer, where negative) that these counters count run on a node."""
        node = self._table.nodes[number]
        for index in self._table.counters.count(names, node.name, node.labels, count):
            self.candidates.unblock(self.by_number[index])

    def recheck_all(self) -> None:
        """The reasons of all classes are to be looked at."""
        self.recheck = {task.index: True for task in self.by_number}

    def is_crowded(self) -> bool:
        """Whether most of what the board remembers is of no use any more, so that building it again is cheaper."""
        return len(self.by_number) > CLASSES_MAX and 2 * self._in_use < len(self.by_number)
