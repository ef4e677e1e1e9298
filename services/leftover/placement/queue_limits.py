"""Queues that may not grow beyond a maximum, and which of them a job lies under.

A task starts only if every queue above its job, its own included, stays within its maximum. Jobs of a leaf that lie
under different such queues are in different segments (keys.py), since one may have to wait while the other is served.
"""

from dataclasses import dataclass, field

from schemas.quantities import Vector
from services.leftover.placement.task_class import TaskClass


@dataclass(slots=True, eq=False)
class QueueEntry:
    """A queue with a maximum: `most` and `held` by resource position. `capped`: buckets that wait for it to shrink, as
    (leaf, bucket).
    """

    path: str
    most: dict[int, int]
    held: list[int]
    capped: dict[tuple[str, int], bool] = field(default_factory=dict)

    def has_room(self, pairs: list[tuple[int, int]], count: int) -> bool:
        """Whether `count` more tasks stay within the maximum; `pairs` as (resource position, amount)."""
        most, held = self.most, self.held
        return all(p not in most or held[p] + amount * count <= most[p] for p, amount in pairs)


@dataclass(slots=True, eq=False)
class Stop:
    """The first of a strict order finds a queue at its maximum: `full`, its `key`, and of which resources (bit set of
    positions) its task would take more than that.
    """

    full: QueueEntry
    key: int
    resources: int


class QueueLimits:
    """`given`: by path of a queue, its maximum. `position`: of every resource that a node has."""

    def __init__(self, given: dict[str, Vector], position: dict[str, int]) -> None:
        self.given = given
        self._position = position
        self._entries: dict[str, QueueEntry] = {}
        self._above: dict[str, tuple[int, tuple[QueueEntry, ...]]] = {}

    def above(self, queue: str) -> tuple[int, tuple[QueueEntry, ...]]:
        """The segment of jobs of a queue, and the queues with a maximum that it lies under; 0 if there are none."""
        if not self.given:
            return 0, ()
        known = self._above.get(queue)
        if known is None:
            names = queue.split("/") if queue else []
            paths = ["/".join(names[:depth]) for depth in range(len(names), -1, -1)]  # Its own, then upwards to "".
            entries = [self._entry(path) for path in paths if self.given.get(path)]
            segment = 1 + sum(1 for number, _ in self._above.values() if number) if entries else 0
            known = self._above[queue] = segment, tuple(entries)
        return known

    def _entry(self, path: str) -> QueueEntry:
        entry = self._entries.get(path)
        if entry is None:
            position = self._position
            most = {position[kind]: amount for kind, amount in self.given[path].items() if kind in position}
            entry = self._entries[path] = QueueEntry(path, most, [0] * len(position))
        return entry


def queue_at_maximum(under: tuple[QueueEntry, ...], task: TaskClass) -> QueueEntry | None:
    """The queue, if any, of those that a job lies under, that one more of its tasks (or its whole gang) would take
    beyond its maximum.
    """
    if not under:
        return None
    return next((entry for entry in under if not entry.has_room(task.pairs, task.gang or 1)), None)


def asked_of(task: TaskClass) -> int:
    """Bit set of the positions of the resources that tasks of a class name."""
    found = 0
    for p, _ in task.pairs:
        if p >= 0:
            found |= 1 << p
    return found


def lacked_below(full: QueueEntry, task: TaskClass) -> int:
    """Bit set of the positions of what one more task (or gang) would take more of than the maximum of a queue."""
    count, found = task.gang or 1, 0
    for p, amount in task.pairs:
        if p in full.most and full.held[p] + amount * count > full.most[p]:
            found |= 1 << p
    return found


def count_in(entries: tuple[QueueEntry, ...], task_pairs: list[tuple[int, int]], count: int) -> list[tuple[str, int]]:
    """Queues hold `count` more tasks (fewer, where negative). Returns the buckets that waited for one of them to
    shrink, as (leaf, bucket).
    """
    waited: list[tuple[str, int]] = []
    for entry in entries:
        for p, amount in task_pairs:
            if p >= 0:
                entry.held[p] += amount * count
        if count < 0:
            waited += entry.capped
            entry.capped = {}
    return waited
