"""Packing: of the tasks that may start in a leaf, the one that aligns best with what is free goes next (Tetris; Grandl
et al., SIGCOMM 2014).

The score of a class is the dot product of what a task asks for and what is free on the node that suits it best, both as
parts of the largest node; a node with preferred labels outweighs any score, as it does where nodes are compared. Higher
priorities go first in any case, as do jobs that have aged. While a round places tasks, free room only shrinks, so no
score rises: a heap of earlier scores is read from the top, each score there is computed again, and the first one that
has not changed is the best. So a round costs what is placed and the classes that came close.

With fairness, only jobs far below their share may pack: of `n` jobs that wait, those `ceil((1 - f) n)` with the least
dominant shares (Tetris, section 4.3). A node then idles where none of their tasks fits.
"""

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, NamedTuple

from services.leftover.placement.entries import JobEntry
from services.leftover.placement.job_keys import rank_of
from services.leftover.placement.keys import (
    ADMITTED_BITS,
    CLASS_MASK,
    OPTIONAL_BIT,
    POSITION_BITS,
    RANK_SHIFT,
)
from services.leftover.placement.leaf_queue import LeafEntry
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.task_class import TaskClass, as_aligned
from services.leftover.placement.user_limits import waits_open

PERMILLE: Final = 1_000

_OPTIONAL: Final = 1 << OPTIONAL_BIT
_UNSEEN: Final = -(1 << 200)  # Better than any score.


class Alignment(NamedTuple):
    """Settings of packing. `fairness_permille`: the f of `tetris-fair`; `leftover`: under the order `giving`, optional
    tasks are chosen by alignment rather than by the remaining work of their jobs.
    """

    fairness_permille: int = 0
    leftover: bool = False


class PoorestJobs:
    """Which jobs may pack under `tetris-fair`: of those that wait in a leaf the ones furthest below their share."""

    def __init__(self, leaf: LeafEntry, by_admission: dict[int, JobEntry], fairness_permille: int) -> None:
        self._leaf = leaf
        self._by_admission = by_admission
        self._fairness_permille = fairness_permille
        self._ranks: list[int] = []  # Of the jobs that wait, rank and order, sorted.
        self._rank_of: dict[int, int] = {}
        self._moved: list[JobEntry] = []  # Jobs whose rank may have changed since.
        self._is_ranked = False

    def begin(self) -> None:
        """A round or a stage of it begins."""
        self._is_ranked = False

    def note(self, job: JobEntry) -> None:
        """Tasks of a job have been placed, so that its rank may have changed."""
        if self._is_ranked:
            self._moved.append(job)

    def may_pack(self, job: JobEntry) -> bool:
        """Whether a job that waits is among them now. Depends on what holds and waits alone."""
        return self._rank(job) <= self.threshold()

    def _rank(self, job: JobEntry) -> int:
        return rank_of(job) << ADMITTED_BITS | job.admitted

    def _most(self, jobs: int) -> int:
        """How many of the waiting jobs may pack: at least one."""
        return max(1, -(-(PERMILLE - self._fairness_permille) * jobs // PERMILLE))

    def threshold(self) -> int:
        """The largest rank with which a job may pack. It does not fall while a round places tasks."""
        if not self._is_ranked:
            leaf = self._leaf
            self._rank_of = {
                job.admitted: self._rank(job) for job in self._by_admission.values() if job.leaf is leaf and _waits(job)
            }
            self._ranks, self._moved, self._is_ranked = sorted(self._rank_of.values()), [], True
        for job in self._moved:
            before = self._rank_of.pop(job.admitted, None)
            if before is not None:
                del self._ranks[bisect_left(self._ranks, before)]
                if _waits(job):
                    self._rank_of[job.admitted] = now = self._rank(job)
                    insort(self._ranks, now)
        self._moved = []
        return self._ranks[self._most(len(self._ranks)) - 1] if self._ranks else 0


def _waits(job: JobEntry) -> bool:
    """Whether a job waits for anything but other tasks of its user to end."""
    return bool(job.spans) and (not job.places or waits_open(job.places, job.leaf.name, job.buckets))


class Packer:
    """Chooses the bucket that a leaf serves next, for one class of jobs."""

    def __init__(
        self, leaf: LeafEntry, job_class: int, table: NodeTable, classes: list[TaskClass], poorest: PoorestJobs | None
    ) -> None:
        """`poorest`: who may pack; None: everybody. See `Packers`."""
        self.leaf = leaf
        self.job_class = job_class
        self.table = table
        self.classes = classes
        self.poorest = poorest
        self._tier_shift = RANK_SHIFT + leaf.sorts.below_priority
        self._only_optional = leaf.sorts.packs == "optional"
        self._heap: list[tuple[int, int, int, int]] | None = None  # (tier, rank, key, bucket); None: not yet filled.
        self._parked: list[tuple[int, int]] = []  # (rank and order, bucket): jobs that may not pack yet.

    def begin(self) -> None:
        """A round or a stage of it begins: other classes and jobs may be served than before."""
        self._heap = None

    def first_of(self, live: int, end: int | None) -> int | None:
        """The bucket to serve next among those whose class is in the set `live`, and whose key is below `end`; None
        where there is none. (Only the order `giving` has keys beyond an end: what is optional.)
        """
        ready = self.leaf.ready[self.job_class]
        first = ready.first_of(live, end)
        if first is None or (self._only_optional and not ready.key[first] & _OPTIONAL):
            return first  # What is required goes by the order of jobs.
        if self._heap is None:
            self._heap = self._fill(live)
        heap, poorest = self._heap, self.poorest
        threshold = poorest.threshold() if poorest is not None else 0
        while self._parked and self._parked[0][0] <= threshold:
            _, bucket_id = heappop(self._parked)
            if bucket_id in ready.key:
                heappush(heap, (self._tier(ready.key[bucket_id]), _UNSEEN, ready.key[bucket_id], bucket_id))
        while heap:
            bucket_id = heap[0][3]
            key = ready.key.get(bucket_id)
            if key is None or not live >> (bucket_id & CLASS_MASK) & 1:
                heappop(heap)
                continue
            if poorest is not None and key >> POSITION_BITS > threshold:
                heappop(heap)
                heappush(self._parked, (key >> POSITION_BITS, bucket_id))
                continue
            entry = self._entry(bucket_id, key)
            if entry == heap[0]:
                return bucket_id
            heapreplace(heap, entry)
        return None

    def score_of(self, bucket_id: int, key: int) -> int:
        """How well the tasks of a bucket fit, for a comparison with those of other leaves: the best have the least; 0
        without room.
        """
        return self._entry(bucket_id, key)[1]

    def _fill(self, live: int) -> list[tuple[int, int, int, int]]:
        ready = self.leaf.ready[self.job_class]
        self._parked = []
        heap = [
            self._entry(bucket_id, key) for bucket_id, key in ready.key.items() if live >> (bucket_id & CLASS_MASK) & 1
        ]
        heapify(heap)
        return heap

    def _entry(self, bucket_id: int, key: int) -> tuple[int, int, int, int]:
        """The entry of a bucket by its current score. A class without room comes last; it is tried, and then
        blocked.
        """
        task = as_aligned(self.classes[bucket_id & CLASS_MASK])
        number = self.table.best(task)
        rank = self.table.suits(task, self.table.nodes[number]) if number is not None else None
        return self._tier(key), rank or 0, key, bucket_id

    def _tier(self, key: int) -> int:
        return (key & ~_OPTIONAL) >> self._tier_shift


class Packers:
    """The packers of all leaves that pack, by leaf and class of job."""

    def __init__(
        self, alignment: Alignment, table: NodeTable, classes: list[TaskClass], by_admission: dict[int, JobEntry]
    ) -> None:
        """`classes` and `by_admission`: those of the board, by number and by admission."""
        self._alignment, self._table, self._classes, self._by_order = alignment, table, classes, by_admission
        self._poorest: dict[str, PoorestJobs] = {}
        self.by_leaf: dict[str, list[Packer]] = {}

    def add(self, leaf: LeafEntry) -> None:
        """Gives a new leaf its packers, if its order packs."""
        packs = leaf.sorts.packs
        if packs and (packs != "optional" or self._alignment.leftover):
            poorest: PoorestJobs | None = None
            if packs == "fairest":
                self._poorest[leaf.name] = poorest = PoorestJobs(
                    leaf, self._by_order, self._alignment.fairness_permille
                )
            packers = [Packer(leaf, at, self._table, self._classes, poorest) for at in range(len(leaf.ready))]
            leaf.packs = True
            self.by_leaf[leaf.name], leaf.choosers = packers, [packer.first_of for packer in packers]

    def begin(self) -> None:
        """A round begins, or a part of one."""
        for poorest in self._poorest.values():
            poorest.begin()
        for packers in self.by_leaf.values():
            for packer in packers:
                packer.begin()

    def note(self, job: JobEntry) -> None:
        """Tasks of a job have been placed."""
        if job.leaf.name in self._poorest:
            self._poorest[job.leaf.name].note(job)

    def turn(self, leaf: LeafEntry) -> None:
        """Other jobs of a leaf than before wait for room."""
        if leaf.name in self._poorest:
            self._poorest[leaf.name].begin()

    def may_pack(self, job: JobEntry) -> bool:
        """Whether a job that waits is among those that may pack now. Depends on what holds and waits alone."""
        return job.leaf.name not in self._poorest or self._poorest[job.leaf.name].may_pack(job)
