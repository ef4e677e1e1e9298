"""A round of placement: takes the leaf queue with the best claim, its best job and the best node, until nothing fits.

Leaf queues are served in two groups: first those that stay within their level after one more task, then the rest.
Within a group the lowest ratio of what is held to the level goes first, then the leaf that was served longest ago, then
by path. (By the ratio alone all leaves that hold nothing are equal, and a queue due three of five tasks gets one beside
four that are due less than one. With ties broken by id, a leaf that holds nothing could starve beside another.) Where
all jobs of the cell are one list (one_list.py), only what is required within levels comes before it.

Inside a leaf the order of waiting_jobs.py holds. A round is work conserving: it ends when nothing that waits fits
anywhere. Under `fifo` alone nodes may idle, since nobody goes ahead of a head that does not fit.
"""

from collections.abc import Iterable
from typing import NamedTuple

from schemas.quantities import Vector
from schemas.sharing import ServingOrder
from services.leftover.placement.apart import counters_of
from services.leftover.placement.backfill.timeline import fits_now
from services.leftover.placement.barred_stages import BarredStages
from services.leftover.placement.buckets import Buckets
from services.leftover.placement.class_pools import ONE_STAGE, Stage
from services.leftover.placement.delays import Delays
from services.leftover.placement.entries import NO_SHAPES, Discipline, JobEntry
from services.leftover.placement.keys import CLASS_MASK, OPTIONAL_BIT
from services.leftover.placement.kinds_levels import KindsLevels
from services.leftover.placement.leaf_queue import LeafEntry, ReadyQueue
from services.leftover.placement.limits import Limits
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.one_list import OneList
from services.leftover.placement.orders import JOB_ORDERS
from services.leftover.placement.packing import Alignment
from services.leftover.placement.placements import Placement, note_placed, placements_of
from services.leftover.placement.task_class import Shape, TaskClass
from services.leftover.placement.task_classes import TaskClasses
from services.leftover.placement.task_span import TaskSpan
from services.leftover.placement.waiting_jobs import WaitingJobs


class LeafLevel(NamedTuple):
    """What placement takes from a published level, in 10^-9 of the cell (`LeafEntry` says what is what). `kinds`:
    where its tasks ask for several sets of kinds of resource, the level of each set (kinds_levels.py).
    """

    queue: str
    level: int
    own_level: int | None = None
    guaranteed: int = 0
    kinds: tuple[tuple[list[str], int], ...] = ()


class Board:
    """Everything that placement ranks. Built from a core's state, kept up to date with it, rebuilt when in doubt.

    Its parts: `node_table`, the nodes and what is free on them; `classes` of tasks; `limits` of queues and users;
    `pools` of classes of jobs; `jobs`, by name, with their `delays` and `barred` stages; and `buckets`, the order in
    which jobs are served in their leaves.
    """

    def __init__(
        self,
        table: NodeTable,
        discipline: Discipline,
        orders: dict[str, ServingOrder] | None = None,
        maxima: dict[str, Vector] | None = None,
        pools_ppm: list[int] | None = None,
        alignment: Alignment | None = None,
        listed: ServingOrder | None = None,
        *,
        pools_lend: bool = True,
        user_running_max: dict[str, int] | None = None,
    ) -> None:
        """`orders`: how the jobs of a leaf are served, where not by DRF. `maxima`: by path of a queue, its maximum.
        `pools_ppm`: by class of job, its part of the cell, in millionths; none without pools; `pools_lend`: what
        nobody can use inside its pool goes to others. `alignment`: how leaves pack. `listed`: the order in which the
        jobs of all leaves are one list; None: they are not. `user_running_max`: by path of a queue, how many tasks of
        one user run there at a time."""
        self._orders = orders or {}
        strict = discipline != "fair" or any(JOB_ORDERS[order].holds_back for order in self._orders.values())
        ppm = pools_ppm or []
        is_mixed = strict or bool(maxima) or (len(ppm) > 1 and not pools_lend)
        self.node_table = table
        self.classes = TaskClasses(table)
        self.limits = Limits(maxima or {}, user_running_max or {}, table.position)
        self.buckets = Buckets(
            table,
            self.classes,
            self.limits,
            discipline,
            ppm,
            alignment or Alignment(),
            is_mixed=is_mixed,
            pools_lend=pools_lend,
        )
        self.pools = self.buckets.pools
        self.jobs = WaitingJobs(table, self.classes, self.limits, self.buckets)
        self._strict_leaves: list[LeafEntry] = []  # Where some queue has a maximum, those that keep a strict order.
        self._one_list: OneList | None = None
        if listed is not None:
            buckets = self.buckets
            self._one_list = OneList(
                buckets.leaf_queue, buckets.packers, buckets.bands, discipline, listed, buckets.first_if_current
            )
        self._kinds_levels = KindsLevels(table, self.buckets.leaf_queue, self.classes.by_number)
        self.delays = Delays()
        self.barred = BarredStages()
        self._touched: list[tuple[JobEntry, TaskSpan]] = []  # Spans with placements of this round.

    # ------------------------------------------------------------ a round
    def open_round(self, pools_ppm: list[int]) -> None:
        """A round begins. `pools_ppm`: how the cell is divided among classes of jobs; none where there are no pools."""
        if self._kinds_levels.placed_parts:
            self._kinds_levels.begin()
        if pools_ppm:
            self.pools.set(pools_ppm)

    def begin(self, now_ms: int, ageing_ms: int) -> None:
        """Brings up to date what leaves and jobs hold, who has aged (see `place`), and which classes there are."""
        self.jobs.refresh()
        self.classes.candidates.learn()
        if ageing_ms:
            self.jobs.age(now_ms - ageing_ms)

    def place(self, now_ms: int = 0, ageing_ms: int = 0) -> list[Placement]:
        """Places what fits, best claim first. What is placed counts as held until the core says otherwise. `ageing_ms`:
        a job that holds nothing and could have started so long ago goes first in its leaf; 0: none does.
        """
        self.begin(now_ms, ageing_ms)
        candidates = self.classes.candidates
        if self._kinds_levels.parts:
            self._kinds_levels.learn()
        candidates.refresh()
        if self.buckets.discipline != "fair":
            candidates.unblock_all()  # The head is tried every round; nobody goes ahead of it.
        pools = self.pools
        for stage in pools.stages(self.buckets.leaf_queue) if pools.count > 1 else ONE_STAGE:
            self._serve(stage)
        candidates.finish(all_tried=not self.buckets.is_mixed)  # If mixed, the round may not have come to all.
        return self.placed()

    def _serve(self, stage: Stage) -> None:
        """Places what fits in one stage of a round, best claim first."""
        if self.pools.count > 1:
            self.pools.begin(stage)
        self._stop_heads()
        if self.buckets.packers.by_leaf:
            self.buckets.packers.begin()
        if self._one_list is not None:
            if self._one_list.by_level:
                self._serve_leaves(stage, within=True)
            self._one_list.begin()
        self._serve_leaves(stage, within=False)

    def _next(self, within: bool) -> tuple[LeafEntry, int] | None:
        """The leaf and the bucket to serve next; `within`: of what is required within levels."""
        pools, live = self.pools, self.classes.candidates.live
        if pools.count == 1 and self._one_list is None:
            return self.buckets.leaf_queue.next([live])
        lives, owed = pools.served(live), pools.stage.owed
        if within:
            return self.buckets.leaf_queue.next(lives, owed=owed, end=1 << OPTIONAL_BIT, within=True)
        if self._one_list is not None:
            return self._one_list.next(lives, owed=owed, end=pools.end)
        return self.buckets.leaf_queue.next(lives, owed=owed, end=pools.end)

    def _serve_leaves(self, stage: Stage, *, within: bool) -> None:
        candidates, pools = self.classes.candidates, self.pools
        while (found := self._next(within)) is not None:
            leaf, bucket_id = found
            first = self.buckets.first_if_current(leaf, bucket_id)
            if first is None:
                continue
            job, span = first
            task = span.task
            if stage.within and pools.refuses(job.job_class, task):
                continue
            if job.under and self.buckets.is_capped(leaf, bucket_id, job, span):
                continue
            if not (self._place_gang(leaf, job, span) if task.gang else self._place_one(leaf, job, span)):
                candidates.block(task)  # Where the order is strict, it stays the head, and nobody goes ahead of it.
                self.classes.recheck[task.index] = True
                continue
            if job.under:
                self._stop_heads()
            if stage.owed and not stage.within:
                self._note_beyond(leaf, job)

    def _stop_heads(self) -> None:
        """In strict orders, heads that would take a queue beyond its maximum hold back those alone who ask for what
        they lack: also heads that are not tried, as no node or their pool has room for them.
        """
        for leaf in self._strict_leaves:
            for ready in leaf.ready:
                while (head := ready.first()) is not None:
                    first = self.buckets.first_if_current(leaf, head)
                    if first is not None and not (first[0].under and self.buckets.is_capped(leaf, head, *first)):
                        break

    def stays_within(self, leaf: LeafEntry) -> bool:
        """Whether a leaf stays within its level after one more task."""
        return self.buckets.leaf_queue.is_within(self.buckets.leaf_queue.claim(leaf))

    def turn_of(self, leaf: LeafEntry, bucket_id: int) -> tuple[int, str, int, int]:
        """What the first job of a bucket is served by among those of all leaves, least first."""
        key = self.buckets.key_in(leaf, bucket_id)
        if self._one_list is not None:
            return self._one_list.turn_of(leaf, key), leaf.name, key, bucket_id
        return self.buckets.leaf_queue.claim(leaf), leaf.name, key, bucket_id

    def _note_beyond(self, leaf: LeafEntry, job: JobEntry) -> None:
        """A task was placed: notes where a guarantee took it beyond a pool while another could start in its own."""
        if not self.pools.is_new_breach(leaf, job.job_class):
            return
        live = self.pools.live_within(self.classes.candidates.live)
        while (found := self.buckets.leaf_queue.next(live, end=1 << OPTIONAL_BIT)) is not None:
            other, span = self.buckets.first_in(*found)
            if other.under and self.buckets.is_capped(*found, other, span):
                continue
            if self.pools.could_start(other.job_class, span.task, self.node_table, live):
                self.pools.beyond[leaf.name, job.job_class] = True
                break
        self.buckets.packers.begin()  # They have been asked for less than what is live.

    def _place_one(self, leaf: LeafEntry, job: JobEntry, span: TaskSpan) -> bool:
        task = span.task
        is_new = not task.blocked or task.bounds is not None  # Else only nodes that got room can suit it.
        number = self.node_table.best(task) if is_new else self.classes.candidates.best(task)
        if number is not None:
            self.put(leaf, job, span, number)
        return number is not None

    def _place_gang(self, leaf: LeafEntry, job: JobEntry, span: TaskSpan) -> bool:
        """All tasks of a gang, or none."""
        task = span.task
        taken = self.node_table.take_best(task, span.count)
        if not taken:
            return False
        for number, devices in taken:
            self._note(leaf, job, span, number, devices)
        self._note_placed(leaf, job, span, span.count)
        return True

    def _note(
        self, leaf: LeafEntry, job: JobEntry, span: TaskSpan, number: int, devices: list[tuple[int, int]]
    ) -> None:
        """Counts one task of a span to a node; which index it is follows when the round is over."""
        is_fair = self.buckets.discipline == "fair"
        beyond = span.optional if leaf.sorts.gives else is_fair and leaf.share >= leaf.level
        if note_placed(span, number, beyond, devices):
            self._touched.append((job, span))

    def put(self, leaf: LeafEntry, job: JobEntry, span: TaskSpan, number: int) -> None:
        """One task of a span starts on a node that has the room, whoever that is held for. `placed` tells of it."""
        self._note(leaf, job, span, number, self.node_table.take(span.task, number))
        self._note_placed(leaf, job, span, 1)

    def put_gang(self, leaf: LeafEntry, job: JobEntry, span: TaskSpan, numbers: list[int]) -> bool:
        """All tasks of a gang start on these nodes, whoever they are held for, or none of them."""
        table, task, taken = self.node_table, span.task, list[tuple[int, list[tuple[int, int]]]]()
        for number in numbers[: span.count]:
            if not fits_now(table, task, table.nodes[number]):
                break
            taken.append((number, table.take(task, number)))
        if len(taken) < span.count:
            for number, devices in reversed(taken):
                table.give(number, task.pairs, devices)
                if task.bounds is not None:
                    task.bounds.count(table.nodes[number].name, table.nodes[number].labels, -1)
            return False
        for number, devices in taken:
            self._note(leaf, job, span, number, devices)
        self._note_placed(leaf, job, span, span.count)
        return True

    def _note_placed(self, leaf: LeafEntry, job: JobEntry, span: TaskSpan, count: int) -> None:
        """Tasks of a span have found their nodes: everything that ranks what waits follows."""
        if leaf.parts:
            self._kinds_levels.place(leaf, span.task, count)
        self.buckets.move_placed(leaf, job, span, count)
        if leaf.choosers:  # It packs, or has levels by sets of kinds.
            self.buckets.packers.note(job)
        self.classes.open_others(span.task)

    def placed(self) -> list[Placement]:
        """What was placed since the last call, each span's tasks in one piece a node."""
        placements: list[Placement] = []
        for job, span in self._touched:
            placements += placements_of(job, span)
        self._touched = []
        return placements

    # ------------------------------------------------------------ leaves
    def leaf(self, name: str) -> LeafEntry:
        """The entry of a leaf queue."""
        entry = self.buckets.leaves.get(name)
        if entry is None:
            order = self._orders.get(name, "drf" if self.buckets.discipline == "fair" else "fifo")
            entry = self.buckets.leaves[name] = LeafEntry(name, [0] * len(self.node_table.total), order)
            entry.has_maximum = name in self.limits.queues.given
            if self.limits.queues.given and entry.strict:
                self._strict_leaves.append(entry)
            entry.ready = [ReadyQueue(CLASS_MASK) for _ in range(self.pools.count)]
            self.buckets.packers.add(entry)
            if self._one_list is not None:
                self._one_list.add(entry)
        return entry

    def leaves_of(self, names: Iterable[str]) -> list[LeafEntry]:
        """The entries of these leaves, as far as they are on the board."""
        return [self.buckets.leaves[name] for name in names if name in self.buckets.leaves]

    def changed_leaves(self) -> list[str]:
        """Leaves for which something has changed since these were last taken."""
        return list(self.buckets.leaf_queue.changed)

    def take_changed_leaves(self) -> list[str]:
        """The same, for the last time."""
        changed, self.buckets.leaf_queue.changed = self.buckets.leaf_queue.changed, {}
        return list(changed)

    def set_levels(self, levels: list[LeafLevel]) -> None:
        """Fairness says these levels from now on."""
        for level in levels:
            leaf = self.leaf(level.queue)
            leaf.level, leaf.own_level = level.level, level.own_level
            self.jobs.note_leaf(level.queue)
            if leaf.guaranteed != level.guaranteed:
                leaf.guaranteed = level.guaranteed
                self.buckets.leaf_queue.move([leaf])
            if level.kinds or leaf.parts:
                self._kinds_levels.set(leaf, level.kinds)

    def serve(self, name: str, seq: int) -> None:
        """A leaf was given something by the round that opened with this record."""
        self.leaf(name).served = seq
        self.jobs.note_leaf(name)

    def set_floor(self, name: str, floor: int) -> None:
        """Jobs of a leaf that have less than this come first in it."""
        self.jobs.set_floor(self.leaf(name), floor)

    def run(self, leaf: str, shape: Shape, count: int) -> None:
        """So many more tasks of a leaf run (fewer, where negative), whether or not their jobs are over."""
        self._kinds_levels.run(leaf, shape, count)

    # ------------------------------------------------------------ jobs
    def add_job(
        self,
        name: str,
        admitted: int,
        leaf: str,
        priority: int,
        queue: str = "",
        sort_value: int = 0,
        job_class: int = 0,
        user: str = "",
    ) -> None:
        """A job that neither holds nor waits for anything yet. `leaf`: where it is served; `queue`: its own, which lies
        there or below; `sort_value`: what its order sorts it by.
        """
        number, under, places = self.limits.add_job(queue, user)
        pool = self.pools.job_class(job_class)
        nothing = self.buckets.nothing
        job = JobEntry(name, admitted, self.leaf(leaf), priority, nothing, queue, number, under, sort_value, pool)
        job.user, job.places = user, places
        self.jobs.add(job)

    def has_job(self, name: str) -> bool:
        """Whether a job is on the board: one with an accepted reservation is not."""
        return name in self.jobs.by_name

    def wait(self, name: str, spans: list[TaskSpan]) -> None:
        """All that a job waits for, in its order; replaces what it waited for."""
        self.jobs.wait(self.jobs.by_name[name], spans)

    def remove_job(self, name: str) -> None:
        """The job is over; what its attempts still hold counts for nobody until it is given back."""
        self.barred.forget(name)
        self.jobs.remove(name)

    def hold(self, name: str, task_pairs: list[tuple[int, int]], count: int, queue: str = "") -> None:
        """The job holds `count` more tasks (fewer, where negative). `queue` is its own, also when the job is over."""
        self.jobs.hold(name, task_pairs, count, queue)

    # ------------------------------------------------------------ what runs
    def count_attempts(self, queue: str, user: str, attempts: int) -> None:
        """So many more attempts of a user's tasks run in a queue (fewer, where negative), whether or not their jobs are
        over.
        """
        if self.limits.users.given:
            places = self.limits.users.above(queue, user)
            self.buckets.count_users(places, attempts)
            self.limits.users.tidy(places)

    def shape_in(self, name: str, stage: str, demand: Vector) -> Shape:
        """What tasks of a job's stage ask for: known by its stage where the job is on the board, which costs less."""
        job = self.jobs.by_name.get(name)
        if job is None:
            return self.classes.shape_of(demand)
        shape = job.shapes.get(stage)
        if shape is None:
            if job.shapes is NO_SHAPES:
                job.shapes = {}
            shape = job.shapes[stage] = self.classes.shape_of(demand)
        return shape

    def recheck_all(self) -> None:
        """The reasons of all classes, and all leaves, are to be looked at: the board is new."""
        leaf_queue = self.buckets.leaf_queue
        leaf_queue.changed = dict.fromkeys(self.buckets.leaves, True)
        leaf_queue.reordered = dict(leaf_queue.changed)
        self.classes.recheck_all()

    def occupy(
        self,
        name: str,
        shape: Shape,
        devices: list[tuple[int, int]],
        counted: list[str],
        queue: str,
        user: str,
    ) -> None:
        """An attempt holds room on a node already. `counted`: the counters of rules that it counts in."""
        number = self.node_table.find(name)
        if number is not None:
            self.node_table.occupy(name, shape.pairs, devices)
            if counted:
                self.classes.count(counted, number, 1)
        self.count_attempts(queue, user, 1)

    def release(
        self,
        name: str,
        shape: Shape,
        devices: list[tuple[int, int]],
        counted: list[str],
        queue: str,
        user: str,
    ) -> None:
        """An attempt holds no room on a node any more. `counted`: the counters of rules that it counted in."""
        number = self.node_table.number[name]
        self.node_table.give(number, shape.pairs, devices)
        if counted:
            self.classes.count(counted, number, -1)
        self.count_attempts(queue, user, -1)

    def move(self, placement: Placement, number: int) -> None:
        """A placement of one task goes to another node, which has room for it."""
        task, table = placement.task, self.node_table
        table.give(placement.node, task.pairs, placement.devices[0] if placement.devices else [])
        if task.bounds is not None:
            self.classes.count(counters_of(task.bounds.said), placement.node, -1)
        devices = table.take(task, number)
        placement.node, placement.devices = number, [devices] if task.gpu else []

    def start_outside(self, task: TaskClass, count: int, width: int) -> dict[int, list[list[tuple[int, int]]]]:
        """Starts up to so many tasks of a job that is not on the board, `width` at a time: by node, the devices of each
        task there.
        """
        table, where, done = self.node_table, dict[int, list[list[tuple[int, int]]]](), 0
        waiting, task.waiting = task.waiting, task.waiting + count
        while done + width <= count:
            taken = table.take_best(task, width)
            if not taken:
                break
            for number, devices in taken:
                where.setdefault(number, []).append(devices)
            done += width
        task.waiting = waiting
        if where:
            self.classes.open_others(task)
        return where

    def start_copy(self, task: TaskClass, number: int, queue: str, user: str) -> list[tuple[int, int]]:
        """A second attempt of a task starts on a node, and counts for its user alone. Its devices."""
        devices = self.node_table.take(task, number)
        self.classes.open_others(task)
        self.count_attempts(queue, user, 1)
        return devices

    def unplace(self, placement: Placement, *, alive: bool = True) -> None:
        """A placement that does not bind: its room is free again. The core says again what the job waits for, if it
        is still `alive`.
        """
        for devices in placement.devices or [[]] * placement.count:
            self.node_table.give(placement.node, placement.task.pairs, devices)
        if placement.task.bounds is not None:
            self.classes.count(counters_of(placement.task.bounds.said), placement.node, -placement.count)
        self.count_attempts(placement.queue, placement.user, -placement.count)
        if not placement.copy:
            self.hold(placement.job if alive else "", placement.task.pairs, -placement.count, placement.queue)
