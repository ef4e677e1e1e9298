"""Who gets the next task, and where: a board of jobs that wait, leaf by leaf and class by class.

Across leaves those go first that would stay within their target share with one of their tasks more, then the others;
among either the least held / target share, then whoever was served longest ago, then by path. (By the ratio alone all
leaves that hold nothing are equals, and a queue due three places of five gets one beside four that are due less than
one. policies.md breaks ties by id; so a leaf that holds nothing could starve beside another.)

Inside a leaf higher priority, then the least dominant share (DRF), then the job that was admitted first: by ids, a job
whose id sorts late could starve under arrivals. `fifo` is strict at the head. Work conserving: the round ends when
nothing that waits fits anywhere, but for `fifo`, which idles behind a head that does not fit.
"""

from schemas.quantities import SHARE_UNITS, Vector
from services.leftover.placement.ageing import Hungry
from services.leftover.placement.candidates import Candidates
from services.leftover.placement.class_pools import Pools, Stage
from services.leftover.placement.entries import (
    BY_SHARE,
    CLASS_MASK,
    LANE_BITS,
    OPTIONAL_BIT,
    Discipline,
    JobEntry,
    LeafEntry,
    Order,
    Part,
    Placement,
    Waiting,
    key_of,
)
from services.leftover.placement.indexed_heap import JobHeap
from services.leftover.placement.kinds_levels import KindsLevels
from services.leftover.placement.leaf_queue import LeafQueue
from services.leftover.placement.nodes import Room, TaskClass
from services.leftover.placement.packing import Alignment, Packers
from services.leftover.placement.queue_limits import QueueLimits, count_in, full_queue
from services.leftover.placement.ranks import Draw

CLASSES_MAX = 4_096
"""So many classes of tasks are remembered before those that nobody waits in any more are forgotten."""


class Board:
    """Everything that placement ranks. Built from a core's state, kept up to date with it, rebuilt when in doubt."""

    def __init__(
        self,
        room: Room,
        discipline: Discipline,
        orders: dict[str, Order] | None = None,
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
        self._alone: dict[int, list[int]] = {}  # lists of one bin are by jobs in no other. Nobody changes them.
        self._stale_jobs: dict[str, bool] = {}
        self._stale_leaves: dict[str, bool] = {}
        self._hungry = Hungry()
        self._candidates = Candidates(room, self.classes)
        self.blocked = self._candidates.blocked
        self.pools = Pools(pools_ppm or [], room.total, self._candidates.demands)
        self.leaf_queue = LeafQueue(discipline == "fair", self.leaves, self.pools.count)
        self.kinds_levels = KindsLevels(room, self.leaf_queue)
        self._touched: list[tuple[str, Waiting]] = []  # Spans with placements of this round.
        self.recheck: dict[int, bool] = {}  # Classes whose reason to wait may have changed.

    # ------------------------------------------------------------ what the core tells
    def class_for(self, demand: Vector, labels: dict[str, str], prefer: dict[str, str], gang: int) -> TaskClass:
        """The class of tasks like these."""
        key: tuple[object, ...] = tuple(demand.items())
        if labels or prefer or gang:
            key = (key, tuple(sorted(labels.items())), tuple(sorted(prefer.items())), gang)
        task = self._class_of.get(key)
        if task is None:
            task = self.room.task_class(len(self.classes), demand, labels, prefer, gang)
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
            entry.draws = [Draw(CLASS_MASK) for _ in range(self.pools.count)]
            self.packers.add(entry)
        return entry

    def add_job(
        self, name: str, admitted: int, leaf: str, priority: int, queue: str = "", work: int = 0, job_class: int = 0
    ) -> None:
        """A job that neither holds nor waits for anything yet. `leaf`: where it is served; `queue`: its own, which lies
        there or below; `work`: what is to be done of it, in share units x ms.
        """
        lane, under = self.maxima.above(queue)
        pool = self.pools.job_class(job_class)
        entry = JobEntry(name, admitted, self.leaf(leaf), priority, self._nothing, queue, lane, under, work, pool)
        self.jobs[name] = self.by_admission[admitted] = entry

    def leaf_of(self, name: str) -> LeafEntry:
        """The entry of the leaf that a job is served in."""
        return self.jobs[name].leaf

    def set_work(self, name: str, work: int) -> None:
        """What is left to be done of a job, in share units x ms."""
        self.jobs[name].work = work
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

    def set_guaranteed(self, name: str, units: int) -> None:
        """The dominant share that a leaf is guaranteed, in 10^-9 of the cell: below it no class pool holds it back."""
        if self.leaf(name).guaranteed != units:
            self.leaves[name].guaranteed = units
            self.leaf_queue.move(self.leaves[name])

    def serve(self, name: str, seq: int) -> None:
        """A leaf was given something by the round that opened with this record."""
        self.leaf(name).served = seq
        self._stale_leaves[name] = True

    def wait(self, name: str, waits: list[Waiting]) -> None:
        """All that a job waits for, in its order; replaces what it waited for."""
        job = self.jobs[name]
        if job.waits:
            self._unwait(job)
        job.aged = False
        if self.discipline == "fifo_stage":
            waits.sort(key=lambda waiting: (waiting.since_ms, waiting.place))  # The oldest of a class speaks for it.
        job.waits = waits
        for position, waiting in enumerate(waits):
            task = waiting.task
            waiting.position = position
            self.recheck[task.index] = True
            if not task.waiting:
                self._candidates.unblock(task)  # Nobody tried the room that there has been since.
            task.waiting += waiting.count
        self._enter(job)

    def hold(self, name: str, task_pairs: list[tuple[int, int]], count: int, queue: str = "") -> None:
        """The job holds `count` more tasks (fewer, where negative). `queue` is its own, also when the job is over."""
        if self.maxima.given:
            for leaf_name, bin_id in count_in(self.maxima.above(queue)[1], task_pairs, count):
                self._uncap(self.leaves[leaf_name], bin_id)
        job = self.jobs.get(name)
        if job is None:
            return
        leaf = job.leaf
        mine, ours = job.own_held(self._nothing), leaf.held
        for p, amount in task_pairs:
            if p >= 0:
                mine[p] += amount * count
                ours[p] += amount * count
        self.pools.hold(job.job_class, task_pairs, count)
        job.tasks += count
        self._stale_jobs[name] = self._stale_leaves[leaf.name] = True

    def _uncap(self, leaf: LeafEntry, bin_id: int) -> None:
        lane = bin_id >> LANE_BITS
        leaf.stopped.pop(lane, None)
        for other in list(leaf.bins) if leaf.strict else [bin_id]:
            if other >> LANE_BITS == lane and other in leaf.bins:
                self._offer(leaf, other, leaf.bins[other])

    # ------------------------------------------------------------ ranking
    def _enter(self, job: JobEntry) -> None:
        """Puts a job in the bins of what it waits for, each under its first span of that class."""
        leaf = job.leaf
        seen: dict[int, bool] = {}
        lane, rank = job.lane << LANE_BITS, leaf.rank(job)
        for waiting in job.waits:
            bin_id = lane | waiting.task.index
            if bin_id in seen:
                continue
            seen[bin_id] = True
            bin_ = leaf.bins.get(bin_id)
            if bin_ is None:
                bin_ = self._new_bin(leaf, bin_id, waiting.task)
            key = key_of(self.discipline, rank, job, waiting)
            bin_.set(job.admitted, key)
            if leaf.stopped and job.lane in leaf.stopped and key < leaf.stopped[job.lane][1]:
                self._uncap(leaf, bin_id)  # It comes before the head, and may be smaller.
            else:
                self._offer(leaf, bin_id, bin_)
        entered = list(seen)
        if len(entered) == 1:
            entered = self._alone.setdefault(entered[0], entered)
        if job.bins != entered:
            for bin_id in job.bins:
                if bin_id not in seen:
                    self._withdraw(leaf, job, bin_id)
            job.bins = entered
        if job.tasks or not entered:
            self._hungry.drop(job.admitted)
        elif not job.aged:
            self._hungry.set(job.admitted, min([waiting.since_ms for waiting in job.waits]))

    def _new_bin(self, leaf: LeafEntry, bin_id: int, task: TaskClass) -> JobHeap:
        bin_ = leaf.bins[bin_id] = JobHeap()
        task.bins[leaf.name, bin_id] = True
        self.pools.wait(bin_id, task, 1)
        leaf.sizes.set(bin_id, task.size)
        self.leaf_queue.move(leaf)  # Another task may be the smallest.
        return bin_

    def _unwait(self, job: JobEntry) -> None:
        for waiting in job.waits:
            waiting.task.waiting -= waiting.count
            self.recheck[waiting.task.index] = True
        leaf = job.leaf
        for bin_id in job.bins:
            self._withdraw(leaf, job, bin_id)
        self._hungry.drop(job.admitted)
        job.waits, job.bins = [], []

    def _withdraw(self, leaf: LeafEntry, job: JobEntry, bin_id: int) -> None:
        bin_ = leaf.bins[bin_id]
        bin_.drop(job.admitted)
        self._offer(leaf, bin_id, bin_)
        if leaf.stopped and (bin_id >> LANE_BITS) in leaf.stopped:
            self._uncap(leaf, bin_id)  # It may have been the head.

    def _offer(self, leaf: LeafEntry, bin_id: int, bin_: JobHeap) -> None:
        """Brings a leaf's draw in line with one of its bins."""
        least = bin_.least()
        if least is None:
            self.leaf_queue.withdraw(leaf, bin_id)
            leaf.sizes.drop(bin_id)
            self.leaf_queue.move(leaf)  # Another task may be the smallest.
            task = self.classes[bin_id & CLASS_MASK]
            del leaf.bins[bin_id], task.bins[leaf.name, bin_id]
            self.pools.wait(bin_id, task, -1)
        elif leaf.stopped and (bin_id >> LANE_BITS) in leaf.stopped:
            leaf.stopped[bin_id >> LANE_BITS][0].capped[leaf.name, bin_id] = True
        else:
            self.leaf_queue.offer(leaf, bin_id, least, bin_id & CLASS_MASK)

    def _share(self, held: list[int]) -> int:
        share, total = 0, self.room.total
        for p, amount in enumerate(held):
            if amount and total[p] and (part := amount * SHARE_UNITS // total[p]) > share:
                share = part
        return share

    def _refresh(self) -> None:
        """Works out the shares that have moved since the last round."""
        for name in self._stale_leaves:
            leaf = self.leaves[name]
            leaf.share = self._share(leaf.held)
            self.leaf_queue.move(leaf)
        for name in self._stale_jobs:
            job = self.jobs[name]
            share, before = self._share(job.held), job.share
            job.share = share
            moved = share != before or not job.tasks or job.leaf.order not in BY_SHARE
            if moved and job.waits and self.discipline == "fair":
                job.aged = job.aged and not job.tasks
                self._enter(job)
        self._stale_leaves, self._stale_jobs = {}, {}

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
            job, waiting = self._top(leaf, bin_id)
            task = waiting.task
            if self._has_fallen_behind(leaf, bin_id, job, waiting) or pools.refuses(job.job_class, task):
                continue
            if job.under and self._is_capped(leaf, bin_id, job, waiting):
                continue
            if not (self._place_gang(leaf, job, waiting) if task.gang else self._place_one(leaf, job, waiting)):
                candidates.block(task)  # Where the order is strict, it stays the head, and nobody goes ahead of it.
                self.recheck[task.index] = True
                continue
            candidates.unblock(task)
            self._note_beyond(leaf, job)

    def _has_fallen_behind(self, leaf: LeafEntry, bin_id: int, job: JobEntry, waiting: Waiting) -> bool:
        """Whether the job was placed from another bin since it entered this one, so that it comes later here, too. What
        a job is served by only rises while tasks of it are placed, so each bin can follow when its turn comes.
        """
        bin_, key = leaf.bins[bin_id], key_of(self.discipline, leaf.rank(job), job, waiting)
        if bin_.key[job.admitted] == key:
            return False
        bin_.set(job.admitted, key)
        self._offer(leaf, bin_id, bin_)
        return True

    def _top(self, leaf: LeafEntry, bin_id: int) -> tuple[JobEntry, Waiting]:
        top = leaf.bins[bin_id].top()
        assert top is not None, f"{leaf.name}: an empty bin in the draw"
        job, task = self.by_admission[top], self.classes[bin_id & CLASS_MASK]
        return job, next(span for span in job.waits if span.task is task)

    def first_in(self, leaf: LeafEntry, bin_id: int) -> tuple[JobEntry, Waiting]:
        """The job that is served first in a bin, with its first span there."""
        while True:
            job, waiting = self._top(leaf, bin_id)
            if not self._has_fallen_behind(leaf, bin_id, job, waiting):
                return job, waiting

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
            self.leaf_queue.withdraw(leaf, other)
            full.capped[leaf.name, other] = True
        if leaf.strict:
            leaf.stopped[lane] = full, leaf.bins[bin_id].key[job.admitted]
        return True

    def _place_one(self, leaf: LeafEntry, job: JobEntry, waiting: Waiting) -> bool:
        number = self.room.best(waiting.task)
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
        return True

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
        self.pools.hold(job.job_class, task.pairs, count)
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
        task.waiting -= count
        self.recheck[task.index] = True
        self._hungry.drop(job.admitted)
        bin_id, next_ = job.lane << LANE_BITS | task.index, waiting
        if not waiting.count:
            job.waits.remove(waiting)
            next_ = next((other for other in job.waits if other.task is task), waiting)
        if next_.count:
            bin_ = leaf.bins[bin_id]
            bin_.set(job.admitted, key_of(self.discipline, leaf.rank(job), job, next_))
            self._offer(leaf, bin_id, bin_)
        else:
            self._withdraw(leaf, job, bin_id)
            job.bins = [other for other in job.bins if other != bin_id]
        self.leaf_queue.move(leaf)
        self.packers.note(job)
        self.kinds_levels.place(leaf, task, count)

    def unplace(self, placement: Placement, *, alive: bool = True) -> None:
        """A placement that does not bind: its room is free again. The core then says anew what the job waits for, if it
        is still `alive`.
        """
        for devices in placement.devices or [[]] * placement.count:
            self.room.give(placement.node, placement.task.pairs, devices)
        self.hold(placement.job if alive else "", placement.task.pairs, -placement.count, placement.queue)

    # ------------------------------------------------------------ classes
    def stir_all(self) -> None:
        """Every class's reason, and every leaf, is worth a look: the board is new."""
        self.leaf_queue.changed = dict.fromkeys(self.leaves, True)
        self.leaf_queue.reordered = dict(self.leaf_queue.changed)
        self.recheck = {task.index: True for task in self.classes}

    def is_crowded(self) -> bool:
        """Whether most of what the board remembers is of no use any more, so that building it anew is cheaper."""
        return len(self.classes) > max(CLASSES_MAX, 2 * sum(task.waiting > 0 for task in self.classes))
