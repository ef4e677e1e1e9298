"""Queues that may not grow beyond a maximum, and which of them a job lies under."""

from schemas.quantities import Vector
from services.leftover.placement.entries import JobEntry, QueueEntry
from services.leftover.placement.task_class import TaskClass


class QueueLimits:
    """`given`: by path of a queue, its maximum. `position`: of every resource that a node has."""

    def __init__(self, given: dict[str, Vector], position: dict[str, int]) -> None:
        self.given = given
        self._position = position
        self._entries: dict[str, QueueEntry] = {}
        self._above: dict[str, tuple[int, tuple[QueueEntry, ...]]] = {}

    def above(self, queue: str) -> tuple[int, tuple[QueueEntry, ...]]:
        """The segment of jobs of a queue, and the queues with a maximum that it lies under; segment 0 if there are
        none.
        """
        if not self.given:
            return 0, ()
        known = self._above.get(queue)
        if known is None:
            names = queue.split("/") if queue else []
            paths = ["/".join(names[:depth]) for depth in range(len(names), -1, -1)]  # Its own, then upwards to "".
            entries = [self._entry(path) for path in paths if self.given.get(path)]
            segment = 1 + sum(1 for segment, _ in self._above.values() if segment) if entries else 0
            known = self._above[queue] = segment, tuple(entries)
        return known

    def _entry(self, path: str) -> QueueEntry:
        entry = self._entries.get(path)
        if entry is None:
            position = self._position
            most = {position[kind]: amount for kind, amount in self.given[path].items() if kind in position}
            entry = self._entries[path] = QueueEntry(path, most, [0] * len(position))
        return entry


def full_queue(job: JobEntry, task: TaskClass) -> QueueEntry | None:
    """The queue, if any, that one more task of a job (or its whole gang) would take beyond its maximum."""
    if not job.under:
        return None
    return next((entry for entry in job.under if not entry.has_room(task.pairs, task.gang or 1)), None)


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
