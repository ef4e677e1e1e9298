"""Who gets the next task, and where: a board of jobs that wait, leaf by leaf and class by class.

Leaf queues are served in two groups: first those that stay within their target share after one more task, then the
rest. Within a group the lowest held / target ratio goes first, then the least recently served, then by path. (By the
ratio alone all leaves that hold nothing are equal, and a queue due three of five tasks gets one beside four that are
due less than one. With ties broken by id, a leaf that holds nothing could starve beside another.)

Inside a leaf higher priority, then the least dominant share (DRF), then the job that was admitted first: by ids, a job
whose id sorts late could starve under arrivals. `fifo` is strict at the head. Work conserving: the round ends when
nothing that waits fits anywhere, but for `fifo`, which idles behind a head that does not fit.
"""

from schemas.quantities import SHARE_UNITS
from services.leftover.placement.apart import counters_of
from services.leftover.placement.bins import Buckets
from services.leftover.placement.class_pools import Stage
from services.leftover.placement.entries import (
    CLASS_MASK,
    NO_BUCKETS,
    NO_WAITS,
    OPTIONAL_BIT,
    SEGMENT_BITS,
    JobEntry,
    LeafEntry,
    PlacedTasks,
    Placement,
    TaskSpan,
    job_class_of,
    key_of,
)
from services.leftover.placement.indexed_heap import POSITION_BITS
from services.leftover.placement.queue_limits import count_in, full_queue
from services.leftover.placement.task_class import TaskClass


class Board(Buckets):
    """Everything that placement ranks. Built from a core's state, kept up to date with it, rebuilt when in doubt."""

    # ------------------------------------------------------------ a round
    def place(self, now_ms: int = 0, ageing_ms: int = 0) -> list[Placement]:
        """Places what fits, best claim first. What is placed counts as held until the core says otherwise. `ageing_ms`:
        a job that holds nothing and could have started so long ago goes first in its leaf; 0: none does.
        """
        self._refresh()
        if ageing_ms and self.discipline == "fair":
            for admitted in self._ageing.take(now_ms - ageing_ms):
                self.by_admission[admitted].aged = True
                self._enter(self.by_admission[admitted])
        candidates = self._candidates
        self.kinds_levels.begin()
        candidates.refresh()
        if self.discipline != "fair":
            candidates.unblock_all()  # The head is tried every round; nobody goes ahead of it.
        for stage in self.pools.stages(self.leaf_queue):
            self._serve(stage)
        candidates.finish(all_tried=not self.is_mixed)  # Else some are behind a head, or in a queue at its maximum.
        return self.placed()

    def _serve(self, stage: Stage) -> None:
        """Places what fits in one stage of a round, best claim first."""
        candidates, pools = self._candidates, self.pools
        pools.begin(stage)
        self.packers.begin()
        while (found := pools.next(self.leaf_queue, candidates.live)) is not None:
            leaf, bucket_id = found
            task = self.classes[bucket_id & CLASS_MASK]
            job = self.top(leaf, bucket_id)
            span = job.first_span(task)
            if self._has_fallen_behind(leaf, bucket_id, job, span):
                continue
            if stage.within and pools.refuses(job.job_class, task):
                continue
            if job.under and self._is_capped(leaf, bucket_id, job, span):
                continue
            if not (self._place_gang(leaf, job, span) if task.gang else self._place_one(leaf, job, span)):
                candidates.block(task)  # Where the order is strict, it stays the head, and nobody goes ahead of it.
                self.recheck[task.index] = True
                continue
            if stage.owed and not stage.within:
                self._note_beyond(leaf, job)

    def _has_fallen_behind(self, leaf: LeafEntry, bucket_id: int, job: JobEntry, span: TaskSpan) -> bool:
        """Whether the job was placed from another bucket since it entered this one, so that it comes later here, too.
        What a job is served by only rises while tasks of it are placed, so each bucket can follow when its turn comes.
        """
        key = key_of(self.discipline, job, span)
        if span.is_sole:
            listed = leaf.ready[job.job_class].key[job.sole_id - span.optional]
            if listed >> POSITION_BITS == key >> POSITION_BITS:
                return False
            self._offer_sole(leaf, job)
            return True
        bucket = leaf.buckets[bucket_id]
        if bucket.key[job.admitted] == key:
            return False
        bucket.set(job.admitted, key)
        self._offer(leaf, bucket_id, bucket)
        return True

    def top(self, leaf: LeafEntry, bucket_id: int) -> JobEntry:
        """The job that stands first in a bucket of a leaf, or waits alone for its class there."""
        sole_job = leaf.sole_jobs.get(bucket_id)
        if sole_job is not None:
            return sole_job
        top = leaf.buckets[bucket_id].top()
        assert top is not None, f"{leaf.name}: an empty bucket"
        return self.by_admission[top]

    def first_in(self, leaf: LeafEntry, bucket_id: int) -> tuple[JobEntry, TaskSpan]:
        """The job that is served first in a bucket, with its first span there."""
        task = self.classes[bucket_id & CLASS_MASK]
        while True:
            job = self.top(leaf, bucket_id)
            span = job.first_span(task)
            if span.is_sole or not self._has_fallen_behind(leaf, bucket_id, job, span):
                return job, span

    def key_in(self, leaf: LeafEntry, bucket_id: int) -> int:
        """What the job that is served first in a bucket is served by."""
        job, span = self.first_in(leaf, bucket_id)
        return key_of(self.discipline, job, span)

    def head(self, leaf: LeafEntry, job_class: int) -> int | None:
        """The bucket that a leaf would serve first of a class of jobs, whether there is room or not."""
        ready = leaf.ready[job_class]
        while (id_ := ready.first()) is not None:
            if id_ < 0:
                sole = ready.sole_spans[id_]
                bucket_id = sole.segment | sole.spans[0].task.index
                if not self._has_fallen_behind(leaf, bucket_id, leaf.sole_jobs[bucket_id], sole.spans[0]):
                    return bucket_id
            else:
                self.first_in(leaf, id_)
                if ready.first() == id_:
                    return id_
        return None

    def _note_beyond(self, leaf: LeafEntry, job: JobEntry) -> None:
        """A task was placed: notes where a guarantee took it beyond a pool while another could start in its own."""
        if not self.pools.is_pushed(leaf, job.job_class):
            return
        live = self.pools.live_within(self._candidates.live)
        while (found := self.leaf_queue.next(live, end=1 << OPTIONAL_BIT)) is not None:
            other, span = self.first_in(*found)
            if other.under and self._is_capped(*found, other, span):
                continue
            if self.pools.could_start(other.job_class, span.task, self.room, live):
                self.pools.beyond[leaf.name, job.job_class] = True
                break
        self.packers.begin()  # They have been asked for less than what is live.

    def _is_capped(self, leaf: LeafEntry, bucket_id: int, job: JobEntry, span: TaskSpan) -> bool:
        """Whether the next task would take a queue beyond its maximum; then its bucket leaves the ready queue until the
        queue shrinks, and where the order is strict its segment.
        """
        full = full_queue(job, span.task)
        if full is None:
            return False
        segment = bucket_id >> SEGMENT_BITS
        buckets = [other for other in leaf.buckets if other >> SEGMENT_BITS == segment] if leaf.strict else [bucket_id]
        for other in buckets:
            self.leaf_queue.withdraw(leaf, job_class_of(other), other)
            full.capped[leaf.name, other] = True
        if leaf.strict:
            leaf.stopped[segment] = full, leaf.buckets[bucket_id].key[job.admitted]
        return True

    def _place_one(self, leaf: LeafEntry, job: JobEntry, span: TaskSpan) -> bool:
        task = span.task
        is_new = not task.blocked or task.bounds is not None  # Else only nodes that got room can suit it.
        number = self.room.best(task) if is_new else self._candidates.best(task)
        if number is not None:
            self.put(leaf, job, span, number)
        return number is not None

    def _place_gang(self, leaf: LeafEntry, job: JobEntry, span: TaskSpan) -> bool:
        """All tasks of a gang, or none."""
        task = span.task
        taken: list[tuple[int, list[tuple[int, int]]]] = []
        while len(taken) < span.count and (number := self.room.best(task)) is not None:
            taken.append((number, self.room.take(task, number)))
        if len(taken) < span.count:
            for number, devices in reversed(taken):
                self.room.put_back(task, number, devices)
            return False
        for number, devices in taken:
            self._note(leaf, job, span, number, devices)
        self._shrink(leaf, job, span, span.count)
        self.open_others(task)
        return True

    def open_others(self, task: TaskClass) -> None:
        """A task was placed, in whatever way: where it is counted by label, others that are may find a node now."""
        if task.bounds is not None and task.bounds.is_spread:
            for rule in task.bounds.rules:
                for index in rule.counter.classes:
                    self._candidates.unblock(self.classes[index])

    def _note(
        self, leaf: LeafEntry, job: JobEntry, span: TaskSpan, number: int, devices: list[tuple[int, int]]
    ) -> None:
        """Counts one task of a span to a node; which index it is follows when the round is over."""
        if span.placed is None:
            span.placed = {}
            self._touched.append((job.name, span))
        beyond = self.discipline == "fair" and leaf.share >= leaf.target
        key = number, span.optional if leaf.order == "giving" else beyond
        part = span.placed.get(key)
        if part is None:
            part = span.placed[key] = PlacedTasks()
        part.count += 1
        if devices:
            if part.devices is None:
                part.devices = []
            part.devices.append(devices)

    def put(self, leaf: LeafEntry, job: JobEntry, span: TaskSpan, number: int) -> None:
        """One task of a span starts on a node that has the room, whoever that is held for. `placed` tells of it."""
        self._note(leaf, job, span, number, self.room.take(span.task, number))
        self._shrink(leaf, job, span, 1)
        self.open_others(span.task)

    def placed(self) -> list[Placement]:
        """What was placed since the last call, each span's tasks in one piece a node."""
        placements = []
        for job, span in self._touched:
            for (number, beyond), part in (span.placed or {}).items():
                count = part.count
                tasks = (job, span.stage, span.first, count, span.attempt, number, beyond, span.task)
                placements.append(Placement(*tasks, part.devices or [], self.jobs[job].queue))
                span.first += count
            span.placed = None
        self._touched = []
        return placements

    def _shrink(self, leaf: LeafEntry, job: JobEntry, span: TaskSpan, count: int) -> None:
        """`count` tasks of a span have been placed: shares rise, the span shortens, ranks follow."""
        task, total = span.task, self.room.total
        if job.under:
            count_in(job.under, task.pairs, count)
        if self.pools.count > 1:
            self.pools.hold(job.job_class, task.pairs, count)
        if not job.tasks:
            self._ageing.drop(job.admitted)
        job.tasks += count
        job.aged = False
        mine, ours = job.own_held(self._nothing), leaf.held
        for p, amount in task.pairs:
            mine[p] += amount * count
            ours[p] += amount * count
            if (share := mine[p] * SHARE_UNITS // total[p]) > job.share:
                job.share = share
            if (share := ours[p] * SHARE_UNITS // total[p]) > leaf.share:
                leaf.share = share
        span.count -= count
        self._count_waiting(task, -count)
        self.recheck[task.index] = True
        next_: TaskSpan | None = span
        if not span.count:
            if len(job.waits) > 1:
                job.waits.remove(span)
            else:
                job.waits = NO_WAITS
            next_ = job.next_span(task)
        bucket_id = job.segment << SEGMENT_BITS | task.index
        if next_ is None:
            self._withdraw(leaf, job, bucket_id)
            job.buckets = [other for other in job.buckets if other != bucket_id] if len(job.buckets) > 1 else NO_BUCKETS
        elif not span.is_sole:
            bucket = leaf.buckets[bucket_id]
            bucket.set(job.admitted, key_of(self.discipline, job, next_))
            self._offer(leaf, bucket_id, bucket)
        if span.is_sole:
            self._shorten_sole(leaf, job, span, next_)
        self.leaf_queue.move(leaf)
        if leaf.choosers:  # It packs, or has levels by sets of kinds.
            self.packers.note(job)
            self.kinds_levels.place(leaf, task, count)

    def unplace(self, placement: Placement, *, alive: bool = True) -> None:
        """A placement that does not bind: its room is free again. The core then says anew what the job waits for, if it
        is still `alive`.
        """
        for devices in placement.devices or [[]] * placement.count:
            self.room.give(placement.node, placement.task.pairs, devices)
        if placement.task.bounds is not None:
            self.count(counters_of(placement.task.bounds.said), placement.node, -placement.count)
        if not placement.copy:
            self.hold(placement.job if alive else "", placement.task.pairs, -placement.count, placement.queue)
