"""What waits and in what order: jobs by leaf and by class of tasks, and what everybody holds.

Inside a leaf higher priority, then the least dominant share (DRF), then the job that was admitted first: by ids, a job
whose id sorts late could starve under arrivals.

A class in which several jobs of a leaf wait has a bucket there, with those jobs in order. A class in which one job
waits alone has none: the job itself stands in the ready queue of the leaf with all such classes. So a job of many
stages with demands of their own moves as one when its share changes, and the cost of a round follows the jobs it
serves, not their stages.
"""

from schemas.jobs import PlacementRule
from schemas.placement_rules import class_key
from schemas.quantities import Vector, largest_share
from schemas.queues import ServingOrder
from services.leftover.placement.ageing import AgeingJobs
from services.leftover.placement.barred import bind
from services.leftover.placement.candidates import Candidates
from services.leftover.placement.class_pools import Pools
from services.leftover.placement.entries import (
    BY_SHARE,
    CLASS_MASK,
    NO_BUCKETS,
    NO_WAITS,
    SEGMENT_BITS,
    Discipline,
    JobEntry,
    LeafEntry,
    ReadyQueue,
    SoleSpans,
    TaskSpan,
    job_class_of,
    key_of,
)
from services.leftover.placement.indexed_heap import JobHeap
from services.leftover.placement.kinds_levels import KindsLevels
from services.leftover.placement.leaf_queue import LeafQueue
from services.leftover.placement.nodes import Room
from services.leftover.placement.packing import Alignment, Packers
from services.leftover.placement.queue_limits import QueueLimits, count_in
from services.leftover.placement.task_class import TaskClass

CLASSES_MAX = 4_096
"""So many classes of tasks are remembered before those that nobody waits in any more are forgotten."""


class Buckets:
    """Jobs that wait, what they hold, and in what order they are served."""

    def __init__(
        self,
        room: Room,
        discipline: Discipline,
        orders: dict[str, ServingOrder] | None = None,
        maxima: dict[str, Vector] | None = None,
        pools_ppm: list[int] | None = None,
        alignment: Alignment | None = None,
    ) -> None:
        """`orders`: how the jobs of a leaf are served, where not by DRF. `maxima`: by path of a queue, its maximum.
        `pools_ppm`: by class of job, its part of the cell, in millionths; none without pools. `alignment`: how leaves
        pack."""
        self.room = room
        self.discipline = discipline
        self.orders = orders or {}
        self.maxima = QueueLimits(maxima or {}, room.position)
        strict = discipline != "fair" or any(order in ("fifo", "tetris-fair") for order in self.orders.values())
        self.is_mixed = strict or bool(maxima)
        self.classes: list[TaskClass] = []
        self._class_of: dict[tuple[object, ...], TaskClass] = {}
        self.jobs: dict[str, JobEntry] = {}
        self.by_admission: dict[int, JobEntry] = {}
        self.packers = Packers(alignment or Alignment(), room, self.classes, self.by_admission)
        self.leaves: dict[str, LeafEntry] = {}
        self._nothing = [0] * len(room.total)  # Shared by jobs that hold nothing, as
        self._shared_lists: dict[
            int, list[int]
        ] = {}  # lists of one bucket are by jobs in no other. Nobody changes them.
        self._stale_jobs: dict[str, bool] = {}
        self._stale_leaves: dict[str, bool] = {}
        self._ageing = AgeingJobs()
        self._candidates = Candidates(room, self.classes)
        self.blocked = self._candidates.blocked
        self.pools = Pools(pools_ppm or [], room.total, self._candidates.demands)
        self.leaf_queue = LeafQueue(discipline == "fair", self.leaves, self.pools.count)
        self._in_use = 0  # Classes of which tasks wait.
        self.kinds_levels = KindsLevels(room, self.leaf_queue)
        self._touched: list[tuple[str, TaskSpan]] = []  # Spans with placements of this round.
        self.recheck: dict[int, bool] = {}  # Classes whose reason to wait may have changed.
        self.bounded: dict[int, TaskClass] = {}  # Classes with bounds, of which tasks wait.
        self.over_ms: dict[str, int | None] = {}  # When the core has to say anew what a job waits for (locality).

    # ------------------------------------------------------------ what the core tells
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
        key: tuple[object, ...] = tuple(demand.items())
        if labels or prefer or gang:
            key = (key, tuple(sorted(labels.items())), tuple(sorted(prefer.items())), gang)
        if rules or near:
            key = (class_key(demand, labels, prefer, gang, rules or (), near),)
        task = self._class_of.get(key)
        if task is None:
            task = self.room.task_class(len(self.classes), demand, labels, prefer, gang)
            if rules or near:
                bind(self.room, task, rules or [], near)
            self.classes.append(task)
            self._class_of[key] = task
            self.kinds_levels.add_class(task)
        return task

    def leaf(self, name: str) -> LeafEntry:
        """The entry of a leaf queue."""
        entry = self.leaves.get(name)
        if entry is None:
            order = self.orders.get(name, "drf" if self.discipline == "fair" else "fifo")
            entry = self.leaves[name] = LeafEntry(name, [0] * len(self.room.total), order)
            entry.ready = [ReadyQueue(CLASS_MASK) for _ in range(self.pools.count)]
            self.packers.add(entry)
        return entry

    def add_job(
        self, name: str, admitted: int, leaf: str, priority: int, queue: str = "", work: int = 0, job_class: int = 0
    ) -> None:
        """A job that neither holds nor waits for anything yet. `leaf`: where it is served; `queue`: its own, which lies
        there or below; `work`: what is to be done of it, in share units x ms.
        """
        segment, under = self.maxima.above(queue)
        pool = self.pools.job_class(job_class)
        entry = JobEntry(name, admitted, self.leaf(leaf), priority, self._nothing, queue, segment, under, work, pool)
        self.jobs[name] = self.by_admission[admitted] = entry

    def leaf_of(self, name: str) -> LeafEntry:
        """The entry of the leaf that a job is served in."""
        return self.jobs[name].leaf

    def set_work(self, name: str, work: int) -> None:
        """What a job is served by, where that is not its share: see `JobEntry.work`."""
        if self.jobs[name].work != work:
            self.jobs[name].work = work
            self.rerank(name)

    def rerank(self, name: str) -> None:
        """The job may come earlier or later in its leaf from the next round on."""
        if self.jobs[name].waits:  # Else it is ranked once it waits for something.
            self._stale_jobs[name] = True

    def remove_job(self, name: str) -> None:
        """The job is over; what its attempts still hold counts for nobody until it is given back."""
        job = self.jobs.pop(name)
        del self.by_admission[job.admitted]
        if job.waits:
            self._unwait(job)
        if job.tasks:
            leaf = job.leaf
            leaf.held = [have - held for have, held in zip(leaf.held, job.held, strict=True)]
            self.pools.give_back(job.job_class, job.held)
            self._stale_leaves[leaf.name] = True
        self._stale_jobs.pop(name, None)

    def set_target(self, name: str, target: int) -> None:
        """The dominant share that fairness gives a leaf, in 10^-9 of the cell."""
        self.leaf(name).target = target
        self._stale_leaves[name] = True

    def set_due(self, name: str, due: int | None, *, level_reduced: bool = False) -> None:
        """What a leaf is due of its own, and whether its level is less since its tasks find no room."""
        leaf = self.leaf(name)
        leaf.due, leaf.level_reduced = due, level_reduced
        self._stale_leaves[name] = True

    def set_guaranteed(self, name: str, units: int) -> None:
        """The dominant share that a leaf is guaranteed, in 10^-9 of the cell: below it no class pool holds it back."""
        if self.leaf(name).guaranteed != units:
            self.leaves[name].guaranteed = units
            self.leaf_queue.move(self.leaves[name])

    def serve(self, name: str, seq: int) -> None:
        """A leaf was given something by the round that opened with this record."""
        self.leaf(name).served = seq
        self._stale_leaves[name] = True

    def wait(self, name: str, waits: list[TaskSpan]) -> None:
        """All that a job waits for, in its order; replaces what it waited for."""
        job = self.jobs[name]
        if job.waits:
            self._unwait(job)
        job.aged = False
        if self.discipline == "fifo_stage":
            waits.sort(key=lambda span: (span.since_ms, span.place))  # The oldest of a class speaks for it.
        job.waits = waits
        for position, span in enumerate(waits):
            task = span.task
            span.position = position
            self.recheck[task.index] = True
            if not task.waiting:
                self._candidates.unblock(task)  # Nobody tried the room that there has been since.
            self._count_waiting(task, span.count)
        self._enter(job)

    def hold(self, name: str, task_pairs: list[tuple[int, int]], count: int, queue: str = "") -> None:
        """The job holds `count` more tasks (fewer, where negative). `queue` is its own, also when the job is over."""
        if self.maxima.given:
            for leaf_name, bucket_id in count_in(self.maxima.above(queue)[1], task_pairs, count):
                self._uncap(self.leaves[leaf_name], bucket_id)
        job = self.jobs.get(name)
        if job is None:
            return
        leaf = job.leaf
        mine, ours = job.own_held(self._nothing), leaf.held
        for p, amount in task_pairs:
            if p >= 0:
                mine[p] += amount * count
                ours[p] += amount * count
        if self.pools.count > 1:
            self.pools.hold(job.job_class, task_pairs, count)
        job.tasks += count
        self._stale_jobs[name] = self._stale_leaves[leaf.name] = True

    def _uncap(self, leaf: LeafEntry, bucket_id: int) -> None:
        segment = bucket_id >> SEGMENT_BITS
        leaf.stopped.pop(segment, None)
        for other in list(leaf.buckets) if leaf.strict else [bucket_id]:
            if other >> SEGMENT_BITS == segment and other in leaf.buckets:
                self._offer(leaf, other, leaf.buckets[other])

    # ------------------------------------------------------------ ranking
    def _enter(self, job: JobEntry) -> None:
        """Puts a job in the buckets of what it waits for, each under its first span of that class, or into the ready
        queue with what nobody else waits for.
        """
        leaf, seen = job.leaf, dict[int, bool]()
        segment = job.segment << SEGMENT_BITS
        found_sole = False
        for span in job.waits:
            bucket_id = segment | span.task.index
            if bucket_id in seen:
                continue
            seen[bucket_id] = True
            if span.is_sole:
                continue
            bucket = leaf.buckets.get(bucket_id)
            if bucket is None:
                bucket = self._new_bucket(leaf, bucket_id, job, span)
                if bucket is None:
                    found_sole = True
                    continue
            key = key_of(self.discipline, job, span)
            bucket.set(job.admitted, key)
            self._offer_head(leaf, job, bucket_id, key, bucket)
        entered = list(seen)
        if len(entered) == 1:
            entered = self._shared_lists.setdefault(entered[0], entered)
        if job.buckets != entered:
            for bucket_id in job.buckets:
                if bucket_id not in seen:
                    self._withdraw(leaf, job, bucket_id)
            job.buckets = entered
        if found_sole:
            self._list_sole(leaf, job)
        elif job.has_sole:
            self._offer_sole(leaf, job)
        self._note_ageing(job)

    def _rank_again(self, job: JobEntry) -> None:
        """The job waits for the same as before, and is served by something else."""
        leaf = job.leaf
        for bucket_id in job.buckets:
            bucket = leaf.buckets.get(bucket_id)
            if bucket is not None:  # Else it waits there alone.
                key = key_of(self.discipline, job, job.first_span(self.classes[bucket_id & CLASS_MASK]))
                bucket.set(job.admitted, key)
                self._offer_head(leaf, job, bucket_id, key, bucket)
        if job.has_sole:
            self._offer_sole(leaf, job)
        self._note_ageing(job)

    def _offer_head(self, leaf: LeafEntry, job: JobEntry, bucket_id: int, key: int, bucket: JobHeap) -> None:
        """A job has entered a bucket with this key."""
        if leaf.stopped and job.segment in leaf.stopped and key < leaf.stopped[job.segment][1]:
            self._uncap(leaf, bucket_id)  # It comes before the head, and may be smaller.
        else:
            self._offer(leaf, bucket_id, bucket)

    def _note_ageing(self, job: JobEntry) -> None:
        """Notes since when a job waits that holds nothing."""
        if job.tasks or not job.buckets:
            self._ageing.drop(job.admitted)
        elif not job.aged:
            self._ageing.set(job.admitted, min([span.since_ms for span in job.waits]))

    def _new_bucket(self, leaf: LeafEntry, bucket_id: int, job: JobEntry, span: TaskSpan) -> JobHeap | None:
        """The bucket of a class that a job begins to wait for; None where no other job of the leaf does."""
        other = leaf.sole_jobs.pop(bucket_id, None)
        if other is None:
            span.task.buckets[leaf.name, bucket_id] = True
            self.pools.wait(bucket_id, span.task, 1)
            leaf.open(bucket_id, span.task)
            self.leaf_queue.move(leaf)  # Another task may be the smallest.
            if not self.is_mixed and not self.packers.serve(leaf):
                leaf.sole_jobs[bucket_id] = job
                span.is_sole = True
                return None
        bucket = leaf.buckets[bucket_id] = JobHeap()
        if other is not None:
            span = other.first_span(span.task)
            span.is_sole = False
            bucket.set(other.admitted, key_of(self.discipline, other, span))
            self._list_sole(leaf, other)
        return bucket

    def _list_sole(self, leaf: LeafEntry, job: JobEntry) -> None:
        """Lists anew what the job alone waits for."""
        job.has_sole = False
        for optional in (False, True):
            spans = [span for span in job.waits if span.is_sole and span.optional == optional]
            id_ = job.sole_id - optional
            if spans:
                job.has_sole = True
                leaf.ready[job.job_class].sole_spans[id_] = SoleSpans(spans, job.segment << SEGMENT_BITS)
            elif leaf.ready[job.job_class].sole_spans.pop(id_, None) is not None:
                self.leaf_queue.withdraw(leaf, job.job_class, id_)
        if job.has_sole:
            self._offer_sole(leaf, job)

    def _offer_sole(self, leaf: LeafEntry, job: JobEntry) -> None:
        """Brings a leaf's ready queue in line with what the job alone waits for."""
        sole_spans = leaf.ready[job.job_class].sole_spans
        for id_ in (job.sole_id, job.sole_id - 1):
            sole = sole_spans.get(id_)
            if sole is not None:
                self.leaf_queue.offer(
                    leaf, job.job_class, id_, key_of(self.discipline, job, sole.spans[0]), sole.classes
                )

    def _shorten_sole(self, leaf: LeafEntry, job: JobEntry, span: TaskSpan, next_: TaskSpan | None) -> None:
        """Tasks of a span that the job alone waits for have been placed; `next_`: its first of the class by now."""
        if next_ is span:
            self._offer_sole(leaf, job)
            return
        span.is_sole = False
        if next_ is not None:
            next_.is_sole = True
            self._list_sole(leaf, job)
            return
        id_ = job.sole_id - span.optional
        sole = leaf.ready[job.job_class].sole_spans[id_]
        if len(sole.spans) == 1:
            self._list_sole(leaf, job)
        else:
            sole.remove(span)
            self._offer_sole(leaf, job)

    def _unwait(self, job: JobEntry) -> None:
        for span in job.waits:
            self._count_waiting(span.task, -span.count)
            span.is_sole = False
            self.recheck[span.task.index] = True
        leaf = job.leaf
        for bucket_id in job.buckets:
            self._withdraw(leaf, job, bucket_id)
        if job.has_sole:
            self._list_sole(leaf, job)
        self._ageing.drop(job.admitted)
        job.waits, job.buckets = NO_WAITS, NO_BUCKETS

    def _withdraw(self, leaf: LeafEntry, job: JobEntry, bucket_id: int) -> None:
        """The job waits for tasks of a class no longer."""
        if leaf.sole_jobs.pop(bucket_id, None) is not None:
            self._close(leaf, bucket_id)
            return
        bucket = leaf.buckets[bucket_id]
        bucket.drop(job.admitted)
        self._offer(leaf, bucket_id, bucket)
        if leaf.stopped and (bucket_id >> SEGMENT_BITS) in leaf.stopped:
            self._uncap(leaf, bucket_id)  # It may have been the head.

    def _close(self, leaf: LeafEntry, bucket_id: int) -> None:
        """Nobody waits for tasks of a class in a leaf any more."""
        leaf.close(bucket_id)
        self.leaf_queue.move(leaf)  # Another task may be the smallest.
        task = self.classes[bucket_id & CLASS_MASK]
        del task.buckets[leaf.name, bucket_id]
        self.pools.wait(bucket_id, task, -1)

    def _offer(self, leaf: LeafEntry, bucket_id: int, bucket: JobHeap) -> None:
        """Brings a leaf's ready queue in line with one of its buckets."""
        least = bucket.least()
        if least is None:
            self.leaf_queue.withdraw(leaf, job_class_of(bucket_id), bucket_id)
            del leaf.buckets[bucket_id]
            self._close(leaf, bucket_id)
        elif leaf.stopped and (bucket_id >> SEGMENT_BITS) in leaf.stopped:
            leaf.stopped[bucket_id >> SEGMENT_BITS][0].capped[leaf.name, bucket_id] = True
        else:
            self.leaf_queue.offer(leaf, job_class_of(bucket_id), bucket_id, least, 1 << (bucket_id & CLASS_MASK))

    def _refresh(self) -> None:
        """Works out the shares that have moved since the last round."""
        total = self.room.total
        for name in self._stale_leaves:
            leaf = self.leaves[name]
            leaf.share = largest_share(leaf.held, total)
            self.leaf_queue.move(leaf)
        for name in self._stale_jobs:
            job = self.jobs[name]
            share, before = largest_share(job.held, total), job.share
            job.share = share
            moved = share != before or not job.tasks or job.leaf.order not in BY_SHARE
            if moved and job.waits and self.discipline == "fair":
                job.aged = job.aged and not job.tasks
                self._rank_again(job)
        self._stale_leaves, self._stale_jobs = {}, {}

    # ------------------------------------------------------------ classes
    def count(self, names: list[str], number: int, count: int) -> None:
        """So many tasks more (fewer, where negative) that these counters count run on a node."""
        node = self.room.nodes[number]
        for index in self.room.counters.count(names, node.name, node.labels, count):
            self._candidates.unblock(self.classes[index])

    def recheck_all(self) -> None:
        """Every class's reason, and every leaf, is worth a look: the board is new."""
        self.leaf_queue.changed = dict.fromkeys(self.leaves, True)
        self.leaf_queue.reordered = dict(self.leaf_queue.changed)
        self.recheck = {task.index: True for task in self.classes}

    def _count_waiting(self, task: TaskClass, count: int) -> None:
        """So many tasks more (fewer, where negative) of a class wait."""
        before = task.waiting
        task.waiting = before + count
        if not before or not task.waiting:
            self._in_use += (task.waiting > 0) - (before > 0)
            self._candidates.note_waiting(task)
        if task.bounds is not None:
            if task.waiting:
                self.bounded[task.index] = task
            else:
                self.bounded.pop(task.index, None)

    def is_crowded(self) -> bool:
        """Whether most of what the board remembers is of no use any more, so that building it anew is cheaper."""
        return len(self.classes) > CLASSES_MAX and 2 * self._in_use < len(self.classes)
