"""Leaf queues whose tasks ask for different sets of kinds of resource (some need a GPU, some do not). Fairness then
gives each set a level of its own (`Level.kinds`).

Between leaves the level of the whole leaf counts, but a leaf is also within its level as long as one of its sets is:
what it holds of GPUs says how far it has come, not how much CPU it may still have. Inside a leaf that serves jobs by
DRF, among jobs of equal priority, tasks of the set that holds the least part of its level go first; once every set
holds its level, the order of the leaf decides. So tasks that need a scarce kind get their share however many others
wait beside them, as if they were in a queue of their own, and the others go on when that kind is used up.
"""

from typing import Final

from schemas.quantities import SHARE_UNITS
from services.leftover.placement.fits import bit_set
from services.leftover.placement.keys import CLASS_MASK, PRIORITY_BITS
from services.leftover.placement.kinds_part import KindsPart, kinds_asked
from services.leftover.placement.leaf_queue import LeafEntry, LeafQueue, ReadyQueue
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.task_class import Shape, TaskClass

_RATIO_BITS: Final = 30


class KindsLevels:
    """The parts of all leaves that have several levels."""

    def __init__(self, table: NodeTable, leaf_queue: LeafQueue, tasks: list[TaskClass]) -> None:
        """`tasks`: the classes of tasks, by number; they only become more."""
        self._table = table
        self._leaf_queue = leaf_queue  # Knows what runs.
        self._tasks = tasks
        self._classes: dict[int, int] = {}  # By set of kinds, bit set of the classes whose tasks ask for just those.
        self._new_classes: dict[int, list[int]] = {}  # Those that are not in these sets yet, by number.
        self._kinds: list[int] = []  # By number of a class, the set of kinds that its tasks ask for.
        self.parts: dict[str, list[KindsPart]] = {}
        self.placed_parts: list[KindsPart] = []  # Those that this round has placed something of.

    def _look(self) -> None:
        """Notes the kinds that new classes of tasks ask for."""
        for task in self._tasks[len(self._kinds) :]:
            kinds = kinds_asked(task.pairs)
            self._kinds.append(kinds)
            self._new_classes.setdefault(kinds, []).append(task.index)

    def set(self, leaf: LeafEntry, levels: tuple[tuple[list[str], int], ...]) -> None:
        """The levels of a leaf by set of kinds, in 10^-9 of the cell, where it has several; else none."""
        if not (levels or leaf.parts):
            return
        if leaf.order == "drf":
            leaf.choosers = []
        if not levels:
            del self.parts[leaf.name]
            leaf.parts = []
            self._leaf_queue.move([leaf])
            return
        self._look()
        table, before = self._table, {part.kinds: part for part in self.parts.get(leaf.name, [])}
        targets = {self._named(names): target for names, target in levels}
        parts = self.parts[leaf.name] = [
            before.get(kinds) or KindsPart(kinds, 0, len(table.total)) for kinds in targets
        ]
        if any(kinds not in before for kinds in targets):  # Else what they hold has been counted all along.
            for part in parts:
                part.held = [0] * len(table.total)
            for shape, count in self._leaf_queue.running.get(leaf.name, {}).items():
                self._add(leaf.name, shape.pairs, count, placed=False)
            for part in parts:
                part.sizes.fill({})
            for bucket_id, size in leaf.sizes.key.items():
                for part in parts:
                    if part.kinds == self._kinds[bucket_id & CLASS_MASK]:
                        part.sizes.set(bucket_id, size)
        for part in parts:
            part.level = targets[part.kinds]
            self._rank(part)
        parts.sort(key=_by_ratio)
        leaf.parts = parts
        self._leaf_queue.move([leaf])
        if leaf.order == "drf":
            leaf.choosers = [_Chooser(self, parts, ready).choose for ready in leaf.ready]

    def _named(self, names: list[str]) -> int:
        kinds = 0
        for name in names:
            if name in self._table.position:
                kinds |= 1 << self._table.position[name]
        return kinds

    def run(self, leaf: str, shape: Shape, count: int) -> None:
        """So many more tasks of a leaf run (fewer, where negative), whether or not their jobs are over."""
        self._leaf_queue.run(leaf, shape, count)
        if self.parts:
            self._add(leaf, shape.pairs, count, placed=False)

    def place(self, leaf: LeafEntry, task: TaskClass, count: int) -> None:
        """Counts what the round has placed; that it runs is counted later."""
        if self.parts:
            self._add(leaf.name, task.pairs, count, placed=True)

    def learn(self) -> None:
        """Takes classes that are new into the sets of those that ask for the same kinds."""
        self._look()
        for kinds, indexes in self._new_classes.items():
            self._classes[kinds] = self._classes.get(kinds, 0) | bit_set(indexes)
        self._new_classes = {}

    def begin(self) -> None:
        """A round begins: what the last one placed and the cell let start runs by now."""
        for part in self.placed_parts:
            part.placed = [0] * len(part.placed)
            self._rank(part)
        if self.placed_parts:
            self.placed_parts = []
            for parts in self.parts.values():
                parts.sort(key=_by_ratio)
            self._leaf_queue.move([self._leaf_queue.leaves[name] for name in self.parts])

    def _add(self, leaf: str, pairs: list[tuple[int, int]], count: int, *, placed: bool) -> None:
        parts = self.parts.get(leaf)
        if parts is None:
            return
        kinds = kinds_asked(pairs)
        for part in parts:
            if part.kinds == kinds:
                held = part.placed if placed else part.held
                if placed and not any(held):
                    self.placed_parts.append(part)
                for p, amount in pairs:
                    if p >= 0:
                        held[p] += amount * count
                self._rank(part)
                parts.sort(key=_by_ratio)
                return

    def _rank(self, part: KindsPart) -> None:
        share, total = 0, self._table.total
        for p, amount in enumerate(part.held):
            if total[p]:
                share = max(share, (amount + part.placed[p]) * SHARE_UNITS // total[p])
        part.share = share
        part.ratio = 1 << _RATIO_BITS if share >= part.level else (share << _RATIO_BITS) // part.level

    def choose(self, parts: list[KindsPart], ready: ReadyQueue, live: int, end: int | None) -> int | None:
        """The bucket that a leaf serves next, of those whose class is in the set `live` and whose key is below
        `end`.
        """
        first = ready.first_of(live, end)
        if first is None:
            return None
        first_key = ready.found_key
        for part in parts:
            if part.ratio >> _RATIO_BITS:
                break
            classes = live & self._classes.get(part.kinds, 0)
            found = ready.first_of(classes, end) if classes else None
            if found is not None and ready.found_key >> PRIORITY_BITS == first_key >> PRIORITY_BITS:
                return found
        ready.found_key = first_key
        return first


class _Chooser:
    """`KindsLevels.choose` for one ready queue of a leaf."""

    def __init__(self, levels: KindsLevels, parts: list[KindsPart], ready: ReadyQueue) -> None:
        self.levels = levels
        self.parts = parts
        self.ready = ready

    def choose(self, live: int, end: int | None) -> int | None:
        """The bucket to serve next: see `KindsLevels.choose`."""
        return self.levels.choose(self.parts, self.ready, live, end)


def _by_ratio(part: KindsPart) -> tuple[int, int]:
    return part.ratio, part.kinds
