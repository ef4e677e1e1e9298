"""The order in which waiting jobs are served inside their leaf queues, kept up to date as they come, hold and go.

Inside a leaf higher priority goes first, then the least dominant share (DRF) or whatever the leaf's order says, then
the job that was admitted first. (By ids, a job whose id sorts late could starve under arrivals.)

A class of tasks that several jobs of a leaf wait for has a bucket there, a heap of those jobs. A class that one job
alone waits for has none: all such spans of a job stand in the ready queue of the leaf as one entry. So a job of many
stages with demands of their own moves as one entry when its share changes, and the cost of a round follows the jobs
that it serves, not their stages.

What waits for a user's limit (user_limits.py) is in its bucket as any other, in order, but the bucket is not ready to
be served, is none of those that tell what its leaf asks for, and its tasks do not count as waiting: rounds do not look
at it.
"""

from schemas.quantities import SHARE_UNITS
from services.leftover.placement.ageing import AgeingJobs
from services.leftover.placement.bands import Bands
from services.leftover.placement.class_pools import Pools
from services.leftover.placement.entries import NO_BUCKETS, Discipline, JobEntry, first_span, span_of
from services.leftover.placement.indexed_heap import JobHeap
from services.leftover.placement.job_keys import key_of
from services.leftover.placement.keys import CLASS_MASK, POSITION_BITS, SEGMENT_BITS, job_class_of
from services.leftover.placement.leaf_queue import LeafEntry, LeafQueue
from services.leftover.placement.limits import Limits, is_full
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.packing import Alignment, Packers
from services.leftover.placement.queue_limits import Stop, asked_of, count_in, lacked_below, queue_at_maximum
from services.leftover.placement.task_class import TaskClass
from services.leftover.placement.task_classes import TaskClasses
from services.leftover.placement.task_span import NO_SPANS, SoleSpans, TaskSpan
from services.leftover.placement.user_limits import Gate, GateKey, UserPlaces


class Buckets:
    """Leaves with their buckets, by what jobs wait for and in which order they are served."""

    def __init__(
        self,
        table: NodeTable,
        classes: TaskClasses,
        limits: Limits,
        discipline: Discipline,
        pools_ppm: list[int],
        alignment: Alignment,
        *,
        is_mixed: bool,
        pools_lend: bool,
    ) -> None:
        """`pools_ppm`: by class of job, its part of the cell, in millionths; none without pools; `pools_lend`: what
        nobody can use inside its pool goes to others. `alignment`: how leaves pack. `is_mixed`: some orders are strict,
        or queues or classes have a maximum, so that a bucket may be held back while others are served.
        """
        self.discipline = discipline
        self.is_mixed = is_mixed
        self._table, self._classes, self._limits = table, classes, limits
        self.by_admission: dict[int, JobEntry] = {}
        self.leaves: dict[str, LeafEntry] = {}
        self.pools = Pools(pools_ppm, table.total, classes.candidates.demands, lends=pools_lend)
        self.leaf_queue = LeafQueue(discipline == "fair", self.leaves, self.pools.count)
        self.packers = Packers(alignment, table, classes.by_number, self.by_admission)
        self.bands: dict[str, Bands] = {}  # By leaf, where all leaves are one list.
        self.ageing = AgeingJobs()
        # To save memory, jobs that hold nothing share one list of zeros, and jobs that wait in the same single bucket
        # share one list of it. Neither list is ever changed.
        self.nothing = [0] * len(table.total)
        self._shared_lists: dict[int, list[int]] = {}

    # ------------------------------------------------------------ a job begins to wait, or is ranked again
    def enter(self, job: JobEntry) -> None:
        """Puts a job into the buckets of what it waits for, each under its first span of that class, or its sole spans
        into the ready queue of its leaf.
        """
        leaf, seen = job.leaf, dict[int, bool]()
        segment = job.segment << SEGMENT_BITS
        found_sole = False
        opened: dict[int, TaskClass] = {}
        for span in job.spans:
            bucket_id = segment | span.task.index
            if bucket_id in seen:
                continue
            seen[bucket_id] = True
            if span.is_sole:
                continue
            bucket = leaf.buckets.get(bucket_id)
            if bucket is None:
                bucket = self._new_bucket(leaf, bucket_id, job, span, opened)
                if bucket is None:
                    found_sole = True
                    continue
            self._put_in(leaf, bucket_id, bucket, job, span)
        if opened:
            self.leaf_queue.open_buckets(leaf, opened)
        entered = list(seen)
        if len(entered) == 1:
            entered = self._shared_lists.setdefault(entered[0], entered)
        if job.buckets != entered:
            self._leave(leaf, job, [bucket_id for bucket_id in job.buckets if bucket_id not in seen])
            job.buckets = entered
        if found_sole:
            self._list_sole(leaf, job)
        elif job.has_sole:
            self._offer_sole(leaf, job)
        self.note_ageing(job)
        self._note_band(job)

    def leave(self, job: JobEntry) -> None:
        """The job waits for nothing any more."""
        for span in job.spans:
            self.count_of(job, span.task, -span.count)
            span.is_sole = False
            self._classes.recheck[span.task.index] = True
        leaf = job.leaf
        self._leave(leaf, job, job.buckets)
        if job.has_sole:
            self._list_sole(leaf, job)
        self.ageing.drop(job.admitted)
        job.spans, job.buckets = NO_SPANS, NO_BUCKETS
        self._note_band(job)

    def rank_again(self, job: JobEntry, offers: dict[str, dict[int, bool]]) -> None:
        """The job waits for the same as before, and has another rank. By leaf, `offers` gets the buckets that are to be
        offered once all such jobs have theirs.
        """
        leaf = job.leaf
        for bucket_id in job.buckets:
            bucket = leaf.buckets.get(bucket_id)
            if bucket is None:
                continue  # It has sole spans there.
            key = key_of(self.discipline, job, first_span(job, self._classes.by_number[bucket_id & CLASS_MASK]))
            bucket.set(job.admitted, key)
            if not self._uncapped(leaf, bucket_id, job, key):
                offered = offers.get(leaf.name)
                if offered is None:
                    offers[leaf.name] = {bucket_id: True}
                else:
                    offered[bucket_id] = True
        if job.has_sole:
            self._offer_sole(leaf, job)
        self._note_band(job)

    def offer_all(self, leaf: LeafEntry, bucket_ids: dict[int, bool]) -> None:
        """The same as `_offer` for several buckets, as far as they are there still."""
        for bucket_id in bucket_ids:
            bucket = leaf.buckets.get(bucket_id)
            if bucket is not None:
                self._offer(leaf, bucket_id, bucket)

    def count_of(self, job: JobEntry, task: TaskClass, count: int) -> None:
        """So many tasks more (fewer, where negative) of a job wait."""
        if job.places:
            key = job.leaf.name, job.segment << SEGMENT_BITS | task.index
            gate = self._limits.gate_of(job.places, key, task)
            gate.tasks += count
            if gate.shut:
                return
        self._classes.count_waiting(task, count)

    def _note_band(self, job: JobEntry) -> None:
        if self.bands:
            self.bands[job.leaf.name].note(job)

    def _put_in(self, leaf: LeafEntry, bucket_id: int, bucket: JobHeap, job: JobEntry, span: TaskSpan) -> None:
        key = key_of(self.discipline, job, span)
        bucket.set(job.admitted, key)
        if not self._uncapped(leaf, bucket_id, job, key):
            self._offer(leaf, bucket_id, bucket)

    def _uncapped(self, leaf: LeafEntry, bucket_id: int, job: JobEntry, key: int) -> bool:
        """Whether a job, with this key by now, comes before a head that finds a queue full: it may be smaller. Then
        what waits behind that head may be served again."""
        if leaf.stopped and any(key < stop.key for stop in leaf.stopped.get(job.segment, ())):
            self.uncap(leaf, bucket_id)
            return True
        return False

    def note_ageing(self, job: JobEntry) -> None:
        """Notes since when a job waits that holds nothing."""
        if job.tasks or not job.buckets:
            self.ageing.drop(job.admitted)
        elif not job.aged:
            self.ageing.set(job.admitted, min([span.since_ms for span in job.spans]))

    # ------------------------------------------------------------ who is served first
    def top(self, leaf: LeafEntry, bucket_id: int) -> JobEntry:
        """The job that stands first in a bucket of a leaf, or that alone waits for its class there."""
        top = leaf.sole_jobs.get(bucket_id)
        if top is None:
            top = leaf.buckets[bucket_id].top()
            assert top is not None, f"{leaf.name}: an empty bucket"
        return self.by_admission[top]

    def first_if_current(self, leaf: LeafEntry, bucket_id: int) -> tuple[JobEntry, TaskSpan] | None:
        """The job that stands first in a bucket, with its first span there. None where its rank has risen since it was
        put there, as tasks of it were placed from another bucket: then it has moved to where it belongs. Ranks only
        rise while tasks are placed, so it is enough that each bucket follows when its turn comes.
        """
        job = self.top(leaf, bucket_id)
        span = first_span(job, self._classes.by_number[bucket_id & CLASS_MASK])
        key = key_of(self.discipline, job, span)
        if span.is_sole:
            listed = leaf.ready[job.job_class].key[job.sole_id - span.optional]
            if listed == key or listed >> POSITION_BITS == key >> POSITION_BITS:
                return job, span
            self._offer_sole(leaf, job)
            return None
        bucket = leaf.buckets[bucket_id]
        if bucket.least() == key:
            return job, span
        bucket.set(job.admitted, key)
        self._offer(leaf, bucket_id, bucket)
        return None

    def first_in(self, leaf: LeafEntry, bucket_id: int) -> tuple[JobEntry, TaskSpan]:
        """The job that is served first in a bucket, with its first span there."""
        while bucket_id not in leaf.sole_jobs:
            if (found := self.first_if_current(leaf, bucket_id)) is not None:
                return found
        job = self.top(leaf, bucket_id)
        return job, first_span(job, self._classes.by_number[bucket_id & CLASS_MASK])

    def key_in(self, leaf: LeafEntry, bucket_id: int) -> int:
        """The key of the job that is served first in a bucket."""
        job, span = self.first_in(leaf, bucket_id)
        return key_of(self.discipline, job, span)

    def heads(self, names: list[str]) -> list[tuple[LeafEntry, list[int]]]:
        """By leaf, the buckets that it would serve first, whether there is room or not: one for each class of jobs."""
        found: list[tuple[LeafEntry, list[int]]] = []
        for name in names:
            leaf = self.leaves[name]
            heads = [self._head(leaf, job_class) for job_class in range(len(leaf.ready))]
            found.append((leaf, [bucket_id for bucket_id in heads if bucket_id is not None]))
        return found

    def _head(self, leaf: LeafEntry, job_class: int) -> int | None:
        """The bucket that a leaf would serve first of a class of jobs, whether there is room or not."""
        ready = leaf.ready[job_class]
        while (id_ := ready.first()) is not None:
            if id_ < 0:
                sole = ready.sole_spans[id_]
                bucket_id = sole.segment | sole.spans[0].task.index
            else:
                bucket_id = id_
            if self.first_if_current(leaf, bucket_id) is not None:
                return bucket_id
        return None

    # ------------------------------------------------------------ tasks were placed
    def move_placed(self, leaf: LeafEntry, job: JobEntry, span: TaskSpan, count: int) -> None:
        """`count` tasks of a span have been placed: shares rise, the span shortens, ranks follow."""
        task, total = span.task, self._table.total
        if job.under:
            count_in(job.under, task.pairs, count)
        if self.pools.count > 1:
            self.pools.hold(job.job_class, task.pairs, count)
        if not job.tasks:
            self.ageing.drop(job.admitted)
        job.tasks += count
        job.aged = False
        if job.held is self.nothing:
            job.held = self.nothing.copy()
        mine, ours = job.held, leaf.held
        of_job, of_leaf = job.share, leaf.share
        for p, amount in task.pairs:
            more, whole = amount * count, total[p]
            mine[p] = held = mine[p] + more
            of_job = max(of_job, held * SHARE_UNITS // whole)
            ours[p] = held = ours[p] + more
            of_leaf = max(of_leaf, held * SHARE_UNITS // whole)
        job.share, leaf.share = of_job, of_leaf
        span.count -= count
        self.count_of(job, task, -count)
        self._classes.recheck[task.index] = True
        next_: TaskSpan | None = span
        if not span.count:
            if len(job.spans) > 1:
                job.spans.remove(span)
            else:
                job.spans = NO_SPANS
            next_ = span_of(job, task)
        bucket_id = job.segment << SEGMENT_BITS | task.index
        if next_ is None:
            self._leave(leaf, job, [bucket_id])
            job.buckets = [other for other in job.buckets if other != bucket_id] if len(job.buckets) > 1 else NO_BUCKETS
        elif not span.is_sole:
            bucket = leaf.buckets[bucket_id]
            bucket.set(job.admitted, key_of(self.discipline, job, next_))
            self._offer(leaf, bucket_id, bucket)
        if span.is_sole:
            self._shorten_sole(leaf, job, span, next_)
        self._note_band(job)
        self.leaf_queue.move([leaf])
        if job.places:
            self.count_users(job.places, count)

    # ------------------------------------------------------------ buckets
    def _new_bucket(
        self, leaf: LeafEntry, bucket_id: int, job: JobEntry, span: TaskSpan, opened: dict[int, TaskClass]
    ) -> JobHeap | None:
        """The bucket of a class that a job begins to wait for; None where no other job of the leaf does. Where nobody
        waited for the class there, it is among those `opened`.
        """
        admitted = leaf.sole_jobs.pop(bucket_id, None)
        if admitted is None and not self._limits.is_shut(leaf.name, bucket_id):
            span.task.buckets[leaf.name, bucket_id] = True
            opened[bucket_id] = span.task
            if self.pools.count > 1:
                self.pools.wait(bucket_id, span.task, 1)
            if not self.is_mixed and not leaf.packs and not job.places:
                leaf.sole_jobs[bucket_id] = job.admitted
                span.is_sole = True
                return None
        bucket = leaf.buckets[bucket_id] = JobHeap()
        if admitted is not None:
            other = self.by_admission[admitted]
            first = first_span(other, span.task)
            first.is_sole = False
            bucket.set(admitted, key_of(self.discipline, other, first))
            self._list_sole(leaf, other)
        return bucket

    def _leave(self, leaf: LeafEntry, job: JobEntry, bucket_ids: list[int]) -> None:
        """The job waits for tasks of these classes no longer."""
        closed: list[int] = []
        for bucket_id in bucket_ids:
            if leaf.sole_jobs.pop(bucket_id, None) is not None:
                closed.append(bucket_id)
                continue
            bucket = leaf.buckets[bucket_id]
            bucket.drop(job.admitted)
            self._offer(leaf, bucket_id, bucket)
            if leaf.stopped and (bucket_id >> SEGMENT_BITS) in leaf.stopped:
                self.uncap(leaf, bucket_id)  # It may have been the head.
        if closed:
            self._close(leaf, closed)

    def _close(self, leaf: LeafEntry, bucket_ids: list[int]) -> None:
        """Nobody waits for tasks of these classes in a leaf any more."""
        self.leaf_queue.close_buckets(leaf, bucket_ids)
        for bucket_id in bucket_ids:
            task = self._classes.by_number[bucket_id & CLASS_MASK]
            del task.buckets[leaf.name, bucket_id]
            if self.pools.count > 1:
                self.pools.wait(bucket_id, task, -1)

    def _offer(self, leaf: LeafEntry, bucket_id: int, bucket: JobHeap) -> None:
        """Brings the ready queue of a leaf in line with one of its buckets."""
        least = bucket.least()
        if least is None:
            self.leaf_queue.withdraw(leaf, job_class_of(bucket_id), bucket_id)
            del leaf.buckets[bucket_id]
            if not self._limits.is_shut(leaf.name, bucket_id):
                self._close(leaf, [bucket_id])
            self._limits.forget_gate(leaf.name, bucket_id)
        elif leaf.stopped and (stop := self._stop_before(leaf, bucket_id)) is not None:
            stop.full.capped[leaf.name, bucket_id] = True
        elif not self.may_head(leaf, bucket_id):
            self.leaf_queue.withdraw(leaf, job_class_of(bucket_id), bucket_id)
        else:
            self.leaf_queue.offer(leaf, job_class_of(bucket_id), bucket_id, least, 1 << (bucket_id & CLASS_MASK))

    def may_head(self, leaf: LeafEntry, bucket_id: int) -> bool:
        """Whether others of a leaf may have to wait behind what waits in a bucket: not behind what no available node
        could run, nor behind what waits for tasks of its own user to end.
        """
        task = self._classes.by_number[bucket_id & CLASS_MASK]
        return not self._limits.is_shut(leaf.name, bucket_id) and (not leaf.strict or self._table.could_fit(task))

    # ------------------------------------------------------------ sole spans
    def _list_sole(self, leaf: LeafEntry, job: JobEntry) -> None:
        """Lists again what a job alone waits for."""
        job.has_sole = False
        ready = leaf.ready[job.job_class]
        for optional in (False, True):
            spans = [span for span in job.spans if span.is_sole and span.optional == optional]
            id_ = job.sole_id - optional
            if spans:
                job.has_sole = True
                ready.sole_spans[id_] = SoleSpans(spans, job.segment << SEGMENT_BITS)
            elif ready.sole_spans.pop(id_, None) is not None:
                self.leaf_queue.withdraw(leaf, job.job_class, id_)
        if job.has_sole:
            self._offer_sole(leaf, job)

    def _offer_sole(self, leaf: LeafEntry, job: JobEntry) -> None:
        """Brings the ready queue of a leaf in line with what a job alone waits for."""
        sole_spans = leaf.ready[job.job_class].sole_spans
        for id_ in (job.sole_id, job.sole_id - 1):
            sole = sole_spans.get(id_)
            if sole is not None:
                key = key_of(self.discipline, job, sole.spans[0])
                self.leaf_queue.offer(leaf, job.job_class, id_, key, sole.classes)

    def _shorten_sole(self, leaf: LeafEntry, job: JobEntry, span: TaskSpan, next_: TaskSpan | None) -> None:
        """Tasks of a sole span have been placed; `next_`: the job's first span of the class by now."""
        if next_ is span:
            self._offer_sole(leaf, job)
            return
        span.is_sole = False
        if next_ is not None:
            next_.is_sole = True
            self._list_sole(leaf, job)
            return
        sole = leaf.ready[job.job_class].sole_spans[job.sole_id - span.optional]
        if len(sole.spans) == 1:
            self._list_sole(leaf, job)
        else:
            sole.remove(span)
            self._offer_sole(leaf, job)

    # ------------------------------------------------------------ queues at their maximum
    def is_capped(self, leaf: LeafEntry, bucket_id: int, job: JobEntry, span: TaskSpan) -> bool:
        """Whether the next task would take a queue beyond its maximum. Then its bucket (where the order is strict, all
        of its segment that ask for a resource for which that is so) is not served until the queue shrinks.
        """
        full = queue_at_maximum(job.under, span.task)
        if full is None:
            return False
        buckets, segment = [bucket_id], bucket_id >> SEGMENT_BITS
        if leaf.strict:
            stop = Stop(full, leaf.buckets[bucket_id].key[job.admitted], lacked_below(full, span.task))
            leaf.stopped.setdefault(segment, []).append(stop)
            buckets = [b for b in leaf.buckets if b >> SEGMENT_BITS == segment and self._stop_before(leaf, b) is stop]
        for other in buckets:
            self.leaf_queue.withdraw(leaf, job_class_of(other), other)
            full.capped[leaf.name, other] = True
        return True

    def _stop_before(self, leaf: LeafEntry, bucket_id: int) -> Stop | None:
        """Who in a strict order holds a bucket back: who asks for none of what another lacks goes on."""
        asked = asked_of(self._classes.by_number[bucket_id & CLASS_MASK])
        stops = leaf.stopped.get(bucket_id >> SEGMENT_BITS, ())
        return next((stop for stop in stops if stop.resources & asked), None)

    def uncap(self, leaf: LeafEntry, bucket_id: int) -> None:
        """What the segment of a bucket waits for may be served again."""
        segment = bucket_id >> SEGMENT_BITS
        leaf.stopped.pop(segment, None)
        for other in list(leaf.buckets) if leaf.strict else [bucket_id]:
            if other >> SEGMENT_BITS == segment and other in leaf.buckets:
                self._offer(leaf, other, leaf.buckets[other])

    # ------------------------------------------------------------ limits on users' tasks
    def count_users(self, places: tuple[UserPlaces, ...], attempts: int) -> None:
        """So many attempts more of a user run under these limits (fewer, where negative): opens and shuts gates. Cost:
        the classes of tasks that wait there, where the first place comes free or the last is taken; else nothing, but
        where gangs wait.
        """
        for entry in places:
            before = entry.free
            entry.tasks += attempts
            if entry.gates and (entry.gangs or (before > 0) != (entry.free > 0)):
                for key in list(entry.gates):
                    self._turn(key, entry.gates[key])

    def _turn(self, key: GateKey, gate: Gate) -> None:
        shut = is_full(gate)
        if shut == gate.shut:
            return
        leaf, bucket_id = self.leaves[key[0]], key[1]
        task = self._classes.by_number[bucket_id & CLASS_MASK]
        self._classes.recheck[task.index] = True
        if shut:
            self.leaf_queue.withdraw(leaf, job_class_of(bucket_id), bucket_id)
            self._classes.count_waiting(task, -gate.tasks)
            self._close(leaf, [bucket_id])
            gate.shut = True
        else:
            self._open(leaf, bucket_id, task, gate)
        if leaf.stopped and (bucket_id >> SEGMENT_BITS) in leaf.stopped:
            self.uncap(leaf, bucket_id)  # It was the head, or may be.
        elif not shut:
            self._offer(leaf, bucket_id, leaf.buckets[bucket_id])
        self.packers.turn(leaf)

    def _open(self, leaf: LeafEntry, bucket_id: int, task: TaskClass, gate: Gate) -> None:
        gate.shut = False
        self._classes.begin_waiting(task)
        self._classes.count_waiting(task, gate.tasks)
        task.buckets[leaf.name, bucket_id] = True
        if self.pools.count > 1:
            self.pools.wait(bucket_id, task, 1)
        self.leaf_queue.open_buckets(leaf, {bucket_id: task})
