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
from services.leftover.placement.bins import Bins
from services.leftover.placement.class_pools import Stage
from services.leftover.placement.entries import (
    CLASS_MASK,
    LANE_BITS,
    NO_BINS,
    NO_WAITS,
    OPTIONAL_BIT,
    JobEntry,
    LeafEntry,
    Part,
    Placement,
    Waiting,
    job_class_of,
    key_of,
)
from services.leftover.placement.indexed_heap import POSITION_BITS
from services.leftover.placement.queue_limits import count_in, full_queue
from services.leftover.placement.task_class import TaskClass


class Board(Bins):
    """Everything that placement ranks. Built from a core's state, kept up to date with it, rebuilt when in doubt."""

    # ------------------------------------------------------------ a round
    def place(self, now_ms: int = 0, ageing_ms: int = 0) -> list[Placement]:
        """Places what fits, best claim first. What is placed counts as held until the core says otherwise. `ageing_ms`:
        a job that holds nothing and could have started so long ago goes first in its leaf; 0: none does.
        """
        self._refresh()
        if ageing_ms and self.discipline == "fair":
            for admitted in self._hungry.take(now_ms - ageing_ms):
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
            leaf, bin_id = found
            task = self.classes[bin_id & CLASS_MASK]
            job = self.top(leaf, bin_id)
            waiting = job.first_span(task)
            if self._has_fallen_behind(leaf, bin_id, job, waiting):
                continue
            if stage.within and pools.refuses(job.job_class, task):
                continue
            if job.under and self._is_capped(leaf, bin_id, job, waiting):
                continue
            if not (self._place_gang(leaf, job, waiting) if task.gang else self._place_one(leaf, job, waiting)):
                candidates.block(task)  # Where the order is strict, it stays the head, and nobody goes ahead of it.
                self.recheck[task.index] = True
                continue
            if stage.owed and not stage.within:
                self._note_beyond(leaf, job)

    def _has_fallen_behind(self, leaf: LeafEntry, bin_id: int, job: JobEntry, waiting: Waiting) -> bool:
        """Whether the job was placed from another bin since it entered this one, so that it comes later here, too. What
        a job is served by only rises while tasks of it are placed, so each bin can follow when its turn comes.
        """
        key = key_of(self.discipline, job, waiting)
        if waiting.lone:
            listed = leaf.draws[job.job_class].key[job.sole_id - waiting.optional]
            if listed >> POSITION_BITS == key >> POSITION_BITS:
                return False
            self._offer_alone(leaf, job)
            return True
        bin_ = leaf.bins[bin_id]
        if bin_.key[job.admitted] == key:
            return False
        bin_.set(job.admitted, key)
        self._offer(leaf, bin_id, bin_)
        return True

    def top(self, leaf: LeafEntry, bin_id: int) -> JobEntry:
        """The job that stands first in a bin of a leaf, or waits alone for its class there."""
        alone = leaf.alone.get(bin_id)
        if alone is not None:
            return alone
        top = leaf.bins[bin_id].top()
        assert top is not None, f"{leaf.name}: an empty bin"
        return self.by_admission[top]

    def first_in(self, leaf: LeafEntry, bin_id: int) -> tuple[JobEntry, Waiting]:
        """The job that is served first in a bin, with its first span there."""
        task = self.classes[bin_id & CLASS_MASK]
        while True:
            job = self.top(leaf, bin_id)
            waiting = job.first_span(task)
            if waiting.lone or not self._has_fallen_behind(leaf, bin_id, job, waiting):
                return job, waiting

    def key_in(self, leaf: LeafEntry, bin_id: int) -> int:
        """What the job that is served first in a bin is served by."""
        job, waiting = self.first_in(leaf, bin_id)
        return key_of(self.discipline, job, waiting)

    def head(self, leaf: LeafEntry, job_class: int) -> int | None:
        """The bin that a leaf would serve first of a class of jobs, whether there is room or not."""
        draw = leaf.draws[job_class]
        while (id_ := draw.first()) is not None:
            if id_ < 0:
                lone = draw.lone[id_]
                bin_id = lone.lane | lone.spans[0].task.index
                if not self._has_fallen_behind(leaf, bin_id, leaf.alone[bin_id], lone.spans[0]):
                    return bin_id
            else:
                self.first_in(leaf, id_)
                if draw.first() == id_:
                    return id_
        return None

    def _note_beyond(self, leaf: LeafEntry, job: JobEntry) -> None:
        """A task was placed: notes where a guarantee took it beyond a pool while another could start in its own."""
        if not self.pools.is_pushed(leaf, job.job_class):
            return
        live = self.pools.live_within(self._candidates.live)
        while (found := self.leaf_queue.next(live, end=1 << OPTIONAL_BIT)) is not None:
            other, waiting = self.first_in(*found)
            if other.under and self._is_capped(*found, other, waiting):
                continue
            if self.pools.could_start(other.job_class, waiting.task, self.room, live):
                self.pools.beyond[leaf.name, job.job_class] = True
                break
        self.packers.begin()  # They have been asked for less than what is live.

    def _is_capped(self, leaf: LeafEntry, bin_id: int, job: JobEntry, waiting: Waiting) -> bool:
        """Whether the next task would take a queue beyond its maximum; then its bin leaves the draw until the queue
        shrinks, and where the order is strict its lane.
        """
        full = full_queue(job, waiting.task)
        if full is None:
            return False
        lane = bin_id >> LANE_BITS
        bins = [other for other in leaf.bins if other >> LANE_BITS == lane] if leaf.strict else [bin_id]
        for other in bins:
            self.leaf_queue.withdraw(leaf, job_class_of(other), other)
            full.capped[leaf.name, other] = True
        if leaf.strict:
            leaf.stopped[lane] = full, leaf.bins[bin_id].key[job.admitted]
        return True

    def _place_one(self, leaf: LeafEntry, job: JobEntry, waiting: Waiting) -> bool:
        task = waiting.task
        is_new = not task.blocked or task.bounds is not None  # Else only nodes that got room can suit it.
        number = self.room.best(task) if is_new else self._candidates.best(task)
        if number is not None:
            self.put(leaf, job, waiting, number)
        return number is not None

    def _place_gang(self, leaf: LeafEntry, job: JobEntry, waiting: Waiting) -> bool:
        """All tasks of a gang, or none."""
        task = waiting.task
        taken: list[tuple[int, list[tuple[int, int]]]] = []
        while len(taken) < waiting.count and (number := self.room.best(task)) is not None:
            taken.append((number, self.room.take(task, number)))
        if len(taken) < waiting.count:
            for number, devices in reversed(taken):
                self.room.put_back(task, number, devices)
            return False
        for number, devices in taken:
            self._note(leaf, job, waiting, number, devices)
        self._shrink(leaf, job, waiting, waiting.count)
        self.open_others(task)
        return True

    def open_others(self, task: TaskClass) -> None:
        """A task was placed, in whatever way: where it is counted by label, others that are may find a node now."""
        if task.bounds is not None and task.bounds.is_spread:
            for rule in task.bounds.rules:
                for index in rule.counter.classes:
                    self._candidates.unblock(self.classes[index])

    def _note(
        self, leaf: LeafEntry, job: JobEntry, waiting: Waiting, number: int, devices: list[tuple[int, int]]
    ) -> None:
        """Counts one task of a span to a node; which index it is follows when the round is over."""
        if waiting.placed is None:
            waiting.placed = {}
            self._touched.append((job.name, waiting))
        beyond = self.discipline == "fair" and leaf.share >= leaf.target
        key = number, waiting.optional if leaf.order == "giving" else beyond
        part = waiting.placed.get(key)
        if part is None:
            part = waiting.placed[key] = Part()
        part.count += 1
        if devices:
            if part.devices is None:
                part.devices = []
            part.devices.append(devices)

    def put(self, leaf: LeafEntry, job: JobEntry, waiting: Waiting, number: int) -> None:
        """One task of a span starts on a node that has the room, whoever that is held for. `placed` tells of it."""
        self._note(leaf, job, waiting, number, self.room.take(waiting.task, number))
        self._shrink(leaf, job, waiting, 1)
        self.open_others(waiting.task)

    def placed(self) -> list[Placement]:
        """What was placed since the last call, each span's tasks in one piece a node."""
        placements = []
        for job, waiting in self._touched:
            for (number, beyond), part in (waiting.placed or {}).items():
                count = part.count
                tasks = (job, waiting.stage, waiting.first, count, waiting.attempt, number, beyond, waiting.task)
                placements.append(Placement(*tasks, part.devices or [], self.jobs[job].queue))
                waiting.first += count
            waiting.placed = None
        self._touched = []
        return placements

    def _shrink(self, leaf: LeafEntry, job: JobEntry, waiting: Waiting, count: int) -> None:
        """`count` tasks of a span have been placed: shares rise, the span shortens, ranks follow."""
        task, total = waiting.task, self.room.total
        if job.under:
            count_in(job.under, task.pairs, count)
        if self.pools.count > 1:
            self.pools.hold(job.job_class, task.pairs, count)
        if not job.tasks:
            self._hungry.drop(job.admitted)
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
        waiting.count -= count
        self._count_waiting(task, -count)
        self.recheck[task.index] = True
        next_: Waiting | None = waiting
        if not waiting.count:
            if len(job.waits) > 1:
                job.waits.remove(waiting)
            else:
                job.waits = NO_WAITS
            next_ = job.next_span(task)
        bin_id = job.lane << LANE_BITS | task.index
        if next_ is None:
            self._withdraw(leaf, job, bin_id)
            job.bins = [other for other in job.bins if other != bin_id] if len(job.bins) > 1 else NO_BINS
        elif not waiting.lone:
            bin_ = leaf.bins[bin_id]
            bin_.set(job.admitted, key_of(self.discipline, job, next_))
            self._offer(leaf, bin_id, bin_)
        if waiting.lone:
            self._shorten_alone(leaf, job, waiting, next_)
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
