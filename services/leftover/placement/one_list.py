"""All leaf queues of a cell as one list of jobs: under presets that order jobs, and what is left over by planned jobs.

Priority counts within a queue alone: nobody overtakes jobs of another queue by it. Each queue has its own order, and
its tasks stand in the list by what their own job is served by, without the priority, but not before any job of their
queue that waits and has a higher one. (Where that one finds no room, they start when its turn comes. If they went to
their own place then, it would matter when it is found out that there is no room.) Among tasks that stand in the list by
how well they fit, those that wait behind a higher priority come last.

The places are in a heap. While a round places tasks, a queue only moves back in the list, but for the one that is
served: so the first is looked at again when its turn comes, and all are when a class of tasks may have room again.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heapreplace
from typing import Final

from schemas.sharing import ServingOrder
from services.leftover.placement.bands import Bands
from services.leftover.placement.entries import Discipline, JobEntry
from services.leftover.placement.keys import (
    CLASS_MASK,
    OPTIONAL_BIT,
    RANK_SHIFT,
    STAGE_RANK_SHIFT,
)
from services.leftover.placement.leaf_queue import LeafEntry, LeafQueue
from services.leftover.placement.orders import JOB_ORDERS
from services.leftover.placement.packing import Packers
from services.leftover.placement.task_span import TaskSpan

_AFTER_LEVELS: Final = 1 << 300
"""Beyond any claim of a leaf: what is within the level of its queue comes before the list."""

_OPTIONAL: Final = 1 << OPTIONAL_BIT

Place = tuple[int, int, int, str, int, int]
"""Of the first task of a queue: whether it is optional, how well it packs, and its key without the priority; then the
queue, the class of jobs and the bucket."""


def priority_shift(discipline: Discipline, order: ServingOrder) -> int:
    """Above how many bits of a key is the priority; below them, what a job has without it."""
    if discipline == "fifo_stage":
        return STAGE_RANK_SHIFT
    return RANK_SHIFT + JOB_ORDERS[order].below_priority


class OneList:
    """The list. `by_level`: tasks that are required come first as long as their queue stays within its level."""

    def __init__(
        self,
        leaf_queue: LeafQueue,
        packers: Packers,
        bands: dict[str, Bands],
        discipline: Discipline,
        order: ServingOrder,
        follow: Callable[[LeafEntry, int], tuple[JobEntry, TaskSpan] | None],
    ) -> None:
        """`bands`: by leaf; filled by `add`. `follow`: brings a bucket in line with the rank of its first job; None: it
        was not."""
        self.by_level = JOB_ORDERS[order].gives
        self._leaf_queue = leaf_queue
        self._packers = packers
        self._bands = bands
        self._follow = follow
        self._shift = priority_shift(discipline, order)
        self._is_strict = discipline != "fair" or JOB_ORDERS[order].is_strict
        self._heap: list[Place] | None = None  # None: not yet filled.
        self._live: list[int] = []  # What was live when it was filled.

    def add(self, leaf: LeafEntry) -> None:
        """There is another leaf."""
        if not self._is_strict:
            self._bands[leaf.name] = Bands(self._shift - RANK_SHIFT)

    def begin(self) -> None:
        """A stage of a round begins."""
        self._heap = None

    def place_of(self, leaf: LeafEntry, key: int) -> int:
        """Where a task stands in the list, by its key in its leaf."""
        optional, rest = key & _OPTIONAL, key & ~_OPTIONAL
        own = rest & (1 << self._shift) - 1
        if self._is_strict:
            return own
        last = self._bands[leaf.name].last_before(int(optional > 0), rest >> self._shift)
        return optional | (last if last > own else own)

    def turn_of(self, leaf: LeafEntry, key: int) -> int:
        """What a task of a leaf is served by in the whole cell, by its key there, least first."""
        claim = self._leaf_queue.claim(leaf)
        if self.by_level and key < _OPTIONAL and self._leaf_queue.is_within(claim):
            return claim
        return _AFTER_LEVELS + self.place_of(leaf, key)

    def next(self, live: list[int], *, owed: bool, end: int | None) -> tuple[LeafEntry, int] | None:
        """The leaf and the bucket that come next; as `LeafQueue.next`. Where the order is strict, nobody overtakes the
        first of its class of jobs: where that finds no room, no other of the class is served in this stage.
        """
        heap = self._heap
        if heap is None or self._has_more(live):
            heap = self._heap = self._filled(live, owed, end)
            self._live = list(live)
        while heap:
            place = heap[0]
            leaf, job_class = self._leaf_queue.leaves[place[3]], place[4]
            now = self._first_of(leaf, job_class, live[job_class], end)
            if now is None:
                heappop(heap)
            elif now == place:
                if not self._is_strict or live[job_class] >> (place[5] & CLASS_MASK) & 1:
                    return leaf, place[5]
                heap = self._heap = [other for other in heap if other[4] != job_class]
                heapify(heap)
            else:
                heapreplace(heap, now)
        return None

    def _has_more(self, live: list[int]) -> bool:
        return any(now & ~before for now, before in zip(live, self._live, strict=True))

    def _filled(self, live: list[int], owed: bool, end: int | None) -> list[Place]:
        heap: list[Place] = []
        every = self._leaf_queue.owed if owed else self._leaf_queue.ranks
        for job_class, ranks in enumerate(every):
            for block in ranks.blocks:
                if self._is_strict or block.classes & live[job_class]:
                    for _, name in block.entries:
                        first = self._first_of(self._leaf_queue.leaves[name], job_class, live[job_class], end)
                        if first is not None:
                            heap.append(first)
        heapify(heap)
        return heap

    def _first_of(self, leaf: LeafEntry, job_class: int, live: int, end: int | None) -> Place | None:
        ready = leaf.ready[job_class]
        found = ready.first() if self._is_strict else leaf.first_of(live, job_class, end)
        while leaf.packs and found is not None and self._follow(leaf, found) is None:
            found = leaf.first_of(live, job_class, end)  # How well it fits says nothing of where it was.
        if found is None:
            return None
        key = ready.key[found] if self._is_strict else ready.found_key
        optional = int(key >= _OPTIONAL)
        if leaf.packs and (optional or not self.by_level):
            score = 0
            if (key & ~_OPTIONAL) >> self._shift <= self._bands[leaf.name].first(optional):
                score = self._packers.by_leaf[leaf.name][job_class].score_of(found, key)
            return optional, score, key & (1 << self._shift) - 1 if score else 0, leaf.name, job_class, found
        return optional, 0, self.place_of(leaf, key), leaf.name, job_class, found
