"""What the core tells a board: the leaves with their levels, the jobs with what they hold, and the classes of tasks."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from schemas.jobs import PlacementRule
from schemas.placement_rules import class_key
from schemas.quantities import Vector, largest_share
from schemas.sharing import ServingOrder
from services.leftover.placement.barred import bind
from services.leftover.placement.entries import BY_SHARE, NO_SHAPES, Discipline, JobEntry
from services.leftover.placement.gated_jobs import GatedJobs
from services.leftover.placement.job_keys import key_of
from services.leftover.placement.keys import CLASS_MASK
from services.leftover.placement.kinds_levels import KindsLevels
from services.leftover.placement.leaf_queue import LeafEntry, ReadyQueue
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.one_list import OneList
from services.leftover.placement.packing import Alignment, Packers
from services.leftover.placement.queue_limits import QueueEntry, QueueLimits, count_in
from services.leftover.placement.task_class import Shape, TaskClass
from services.leftover.placement.task_span import TaskSpan
from services.leftover.placement.user_limits import UserLimits, UserPlaces
from services.leftover.placement.waiting_jobs import first_span

CLASSES_MAX: Final = 4_096
"""So many classes of tasks are remembered before those that nobody waits in any more are forgotten."""


_QUEUES_BITS: Final = 20
"""So many bits tell the sets of queues with a maximum apart, of which there are fewer than queues."""


class LeafLevel(NamedTuple):
    """What placement takes from a published level, in 10^-9 of the cell (`LeafEntry` says what is what). `kinds`:
    where its tasks ask for several sets of kinds of resource, the level of each set (kinds_levels.py).
    """

    queue: str
    target: int
    due: int | None = None
    guaranteed: int = 0
    kinds: tuple[tuple[list[str], int], ...] = ()


class BoardState(GatedJobs):
    """Everything on a board, as the core keeps it up to date between rounds."""

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
        self.orders = orders or {}
        strict = discipline != "fair" or any(order in ("fifo", "tetris-fair") for order in self.orders.values())
        ppm = pools_ppm or []
        is_mixed = strict or bool(maxima) or (len(ppm) > 1 and not pools_lend)
        super().__init__(table, discipline, ppm, is_mixed=is_mixed, pools_lend=pools_lend)
        self.users = UserLimits(user_running_max or {})
        self.maxima = QueueLimits(maxima or {}, table.position)
        self.strict_leaves: list[LeafEntry] = []  # Where some queue has a maximum, those that keep a strict order.
        self.packers = Packers(alignment or Alignment(), table, self.classes, self.by_admission)
        self.one_list: OneList | None = None
        if listed is not None:
            self.one_list = OneList(
                self.leaf_queue, self.packers, self.bands, discipline, listed, self.first_if_current
            )
        self.kinds_levels = KindsLevels(table, self.leaf_queue)
        self.over_ms: dict[str, int | None] = {}  # By job, when tasks wait no longer for preferred nodes.
        self.barred: dict[str, dict[str, bool]] = {}  # By job, stages that wait for room that is not promised.
        self._class_of: dict[tuple[object, ...], TaskClass] = {}
        self._shapes: dict[tuple[tuple[str, int], ...], Shape] = {}
        self._stale_jobs: dict[str, bool] = {}  # Their ranks may have changed; True: what they hold may have, too.
        self._stale_leaves: dict[str, bool] = {}
        self._touched: list[tuple[str, TaskSpan]] = []  # Spans with placements of this round, and the names of jobs.

    # ------------------------------------------------------------ leaves
    def leaf(self, name: str) -> LeafEntry:
        """The entry of a leaf queue."""
        entry = self.leaves.get(name)
        if entry is None:
            order = self.orders.get(name, "drf" if self.discipline == "fair" else "fifo")
            entry = self.leaves[name] = LeafEntry(name, [0] * len(self.node_table.total), order)
            entry.has_maximum = name in self.maxima.given
            if self.maxima.given and entry.strict:
                self.strict_leaves.append(entry)
            entry.ready = [ReadyQueue(CLASS_MASK) for _ in range(self.pools.count)]
            self.packers.add(entry)
            if self.one_list is not None:
                self.one_list.add(entry)
        return entry

    def leaves_of(self, names: Iterable[str]) -> list[LeafEntry]:
        """The entries of these leaves, as far as they are on the board."""
        return [self.leaves[name] for name in names if name in self.leaves]

    def changed_leaves(self) -> list[str]:
        """Leaves for which something has changed since these were last taken."""
        return list(self.leaf_queue.changed)

    def take_changed_leaves(self) -> list[str]:
        """The same, for the last time."""
        changed, self.leaf_queue.changed = self.leaf_queue.changed, {}
        return list(changed)

    def set_levels(self, levels: list[LeafLevel]) -> None:
        """Fairness says these levels from now on."""
        for level in levels:
            leaf = self.leaf(level.queue)
            leaf.target, leaf.due = level.target, level.due
            self._stale_leaves[level.queue] = True
            if leaf.guaranteed != level.guaranteed:
                leaf.guaranteed = level.guaranteed
                self.leaf_queue.move([leaf])
            if level.kinds or leaf.parts:
                self.kinds_levels.set(leaf, level.kinds)

    def serve(self, name: str, seq: int) -> None:
        """A leaf was given something by the round that opened with this record."""
        self.leaf(name).served = seq
        self._stale_leaves[name] = True

    def set_floor(self, name: str, floor: int) -> None:
        """Jobs of a leaf that have less than this come first in it."""
        leaf = self.leaf(name)
        if leaf.floor != floor:
            leaf.floor = floor
            for job in self.jobs.values():
                if job.leaf is leaf:
                    self.rerank(job.name)  # It may come before the floor now, or after it.

    def run(self, leaf: str, shape: Shape, count: int) -> None:
        """So many more tasks of a leaf run (fewer, where negative), whether or not their jobs are over."""
        self.kinds_levels.run(leaf, shape, count)

    def _note_turned(self, leaf: LeafEntry) -> None:
        self.packers.turn(leaf)

    # ------------------------------------------------------------ jobs
    def add_job(
        self,
        name: str,
        admitted: int,
        leaf: str,
        priority: int,
        queue: str = "",
        work: int = 0,
        job_class: int = 0,
        user: str = "",
    ) -> None:
        """A job that neither holds nor waits for anything yet. `leaf`: where it is served; `queue`: its own, which lies
        there or below; `work`: what is to be done of it, in share units x ms.
        """
        limits, under = self.maxima.above(queue)
        number, places = self.users.add_job(queue, user)
        limits |= number << _QUEUES_BITS
        pool = self.pools.job_class(job_class)
        entry = JobEntry(name, admitted, self.leaf(leaf), priority, self._nothing, queue, limits, under, work, pool)
        entry.user, entry.places = user, places
        self.jobs[name] = self.by_admission[admitted] = entry

    def has_job(self, name: str) -> bool:
        """Whether a job is on the board: one with an accepted reservation is not."""
        return name in self.jobs

    def order_of(self, name: str) -> ServingOrder | None:
        """The order in which a job is served in its leaf; None: it is not on the board."""
        job = self.jobs.get(name)
        return job.leaf.order if job is not None else None

    def jobs_in(self, leaf: LeafEntry, bucket_id: int) -> list[JobEntry]:
        """The jobs that wait in a bucket of a leaf, in any order."""
        return [self.by_admission[admitted] for admitted in leaf.buckets[bucket_id].key]

    def spans_in(self, name: str) -> list[TaskSpan]:
        """What a job on the board waits for. To be read only."""
        return self.jobs[name].spans

    def set_work(self, name: str, work: int) -> None:
        """What a job is served by, where that is not its share: see `JobEntry.work`."""
        self.set_work_of(self.jobs[name], work)

    def set_work_of(self, job: JobEntry, work: int) -> None:
        """The same of an entry."""
        if job.work != work:
            job.work = work
            if job.spans:  # Else it is ranked once it waits for something.
                self._stale_jobs.setdefault(job.name, False)

    def show_key(self, admitted: int, key: int) -> None:
        """What a job is served by in the order of the shadow, if it is served so and is on the board."""
        job = self.by_admission.get(admitted)
        if job is not None and job.leaf.order == "fsp":
            self.set_work_of(job, key)

    def set_priority(self, name: str, priority: int) -> None:
        """The job has another priority from the next round on."""
        job = self.jobs[name]
        if job.priority != priority:
            job.priority = priority
            if job.spans:
                offers: dict[str, dict[int, bool]] = {job.leaf.name: {}}
                self._rank_again(job, offers)
                self._offer_all(job.leaf, offers[job.leaf.name])

    def rerank(self, name: str) -> None:
        """The job may come earlier or later in its leaf from the next round on."""
        if self.jobs[name].spans:  # Else it is ranked once it waits for something.
            self._stale_jobs.setdefault(name, False)

    def remove_job(self, name: str) -> None:
        """The job is over; what its attempts still hold counts for nobody until it is given back."""
        job = self.jobs.pop(name)
        self.barred.pop(name, None)
        if job.spans:
            self._unwait(job)
        if job.places:
            self.users.remove_job(job.places)
        del self.by_admission[job.admitted]
        if job.tasks:
            leaf = job.leaf
            leaf.held = [have - held for have, held in zip(leaf.held, job.held, strict=True)]
            self.pools.give_back(job.job_class, job.held)
            self._stale_leaves[leaf.name] = True
        self._stale_jobs.pop(name, None)

    def hold(self, name: str, task_pairs: list[tuple[int, int]], count: int, queue: str = "") -> None:
        """The job holds `count` more tasks (fewer, where negative). `queue` is its own, also when the job is over."""
        if self.maxima.given:
            for leaf_name, bucket_id in count_in(self.maxima.above(queue)[1], task_pairs, count):
                self._uncap(self.leaves[leaf_name], bucket_id)
        job = self.jobs.get(name)
        if job is None:
            return
        leaf = job.leaf
        if job.held is self._nothing:
            job.held = self._nothing.copy()
        mine, ours = job.held, leaf.held
        fewer = -count
        for p, amount in task_pairs:
            if p >= 0 and count >= 0:  # Multiplied by what is not negative, as in `add_amounts`.
                more = amount * count
                mine[p], ours[p] = mine[p] + more, ours[p] + more
            elif p >= 0:
                less = amount * fewer
                mine[p], ours[p] = mine[p] - less, ours[p] - less
        if self.pools.count > 1:
            self.pools.hold(job.job_class, task_pairs, count)
        job.tasks += count
        self._stale_jobs[name] = self._stale_leaves[leaf.name] = True

    def bar(self, name: str, stages: dict[str, bool]) -> bool:
        """Stages of a job that wait for room that is not promised, from now on; whether they are others than before."""
        if name not in self.jobs or stages == self.barred.get(name, {}):
            return False
        self.barred[name] = stages
        if not stages:
            del self.barred[name]
        return True

    def barred_stages(self, name: str) -> dict[str, bool] | None:
        """The stages of a job that are barred. To be read only."""
        return self.barred.get(name) if self.barred else None

    def barred_jobs(self) -> list[str]:
        """The jobs with such stages."""
        return list(self.barred)

    def end_delay_at(self, name: str, at_ms: int | None) -> None:
        """From this time on tasks of a job wait no longer for nodes that they prefer, and the core says again what the
        job waits for; None: no delay ends by itself.
        """
        self.over_ms[name] = at_ms

    def take_ended_delays(self, now_ms: int) -> list[str]:
        """Jobs of which a delay is over by now."""
        names = [name for name, at_ms in self.over_ms.items() if at_ms is not None and at_ms <= now_ms]
        for name in names:
            del self.over_ms[name]
        return names

    def forget_delay(self, name: str) -> None:
        """Nothing of a job waits for preferred nodes any more."""
        self.over_ms.pop(name, None)

    def has_delays(self) -> bool:
        """Whether any job has tasks that may wait for nodes that they prefer."""
        return bool(self.over_ms)

    def maxima_above(self, queue: str) -> tuple[QueueEntry, ...]:
        """The queues with a maximum that tasks of a queue count for."""
        return self.maxima.above(queue)[1]

    def places_of(self, queue: str, user: str) -> tuple[UserPlaces, ...]:
        """The limits that tasks of a user in a queue lie under, the nearest first."""
        return self.users.above(queue, user)

    def has_user_limits(self) -> bool:
        """Whether only so many tasks of a user may run in some queue."""
        return bool(self.users.given)

    def occupy(self, queue: str, user: str, attempts: int) -> None:
        """So many more attempts of a user's tasks run in a queue (fewer, where negative), whether or not their jobs are
        over.
        """
        if self.users.given:
            places = self.users.above(queue, user)
            self.count_users(places, attempts)
            self.users.tidy(places)

    def refresh(self) -> None:
        """Works out the shares that have moved since the last round, and ranks jobs again."""
        total = self.node_table.total
        leaves = [self.leaves[name] for name in self._stale_leaves]
        for leaf in leaves:
            leaf.share = largest_share(leaf.held, total)
        stale = [(self.jobs[name], has_moved) for name, has_moved in self._stale_jobs.items()]
        befores = [job.share for job, _ in stale]
        for job, has_moved in stale:
            if has_moved:
                job.share = largest_share(job.held, total)
        self.leaf_queue.move(leaves)
        offers: dict[str, dict[int, bool]] = {}
        for (job, has_moved), before in zip(stale, befores, strict=True):
            ranks = job.share != before or not job.tasks or job.leaf.order not in BY_SHARE
            if ranks and job.spans and self.discipline == "fair":
                job.aged = job.aged and not job.tasks
                self._rank_again(job, offers)
                if has_moved:
                    self._note_ageing(job)
        for name, bucket_ids in offers.items():
            self._offer_all(self.leaves[name], bucket_ids)
        self._stale_leaves, self._stale_jobs = {}, {}

    def _rank_again(self, job: JobEntry, offers: dict[str, dict[int, bool]]) -> None:
        """The job waits for the same as before, and has another rank. By leaf, `offers` gets the buckets that are to be
        offered once all such jobs have theirs.
        """
        leaf = job.leaf
        for bucket_id in job.buckets:
            bucket = leaf.buckets.get(bucket_id)
            if bucket is None:
                continue  # It has sole spans there.
            key = key_of(self.discipline, job, first_span(job, self.classes[bucket_id & CLASS_MASK]))
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

    def _offer_all(self, leaf: LeafEntry, bucket_ids: dict[int, bool]) -> None:
        """The same as `_offer` for several buckets, as far as they are there still."""
        for bucket_id in bucket_ids:
            bucket = leaf.buckets.get(bucket_id)
            if bucket is not None:
                self._offer(leaf, bucket_id, bucket)

    # ------------------------------------------------------------ classes
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
        shape = self.shape_of(demand)
        if not (labels or prefer or gang or rules or near):
            if shape.plain is None:
                shape.plain = self._new_class(shape, labels, prefer, gang)
            return shape.plain
        key: tuple[object, ...] = (shape.number, tuple(sorted(labels.items())), tuple(sorted(prefer.items())), gang)
        if rules or near:
            key = (class_key(demand, labels, prefer, gang, rules or (), near),)
        task = self._class_of.get(key)
        if task is None:
            task = self._class_of[key] = self._new_class(shape, labels, prefer, gang)
            if rules or near:
                bind(self.node_table, task, rules or [], near)
        return task

    def _new_class(self, shape: Shape, labels: dict[str, str], prefer: dict[str, str], gang: int) -> TaskClass:
        task = self.node_table.task_class(len(self.classes), shape, labels, prefer, gang)
        self.classes.append(task)
        self.kinds_levels.add_class(task)
        return task

    def near_classes(self) -> list[TaskClass]:
        """Classes whose tasks wait for nodes that they prefer, by key."""
        near = [task for task in self.bounded.values() if task.bounds is not None and task.bounds.is_near]
        return sorted(near, key=lambda task: task.key)

    def is_bounded(self) -> bool:
        """Whether tasks wait that may not run everywhere, by rules or since they prefer other nodes."""
        return bool(self.bounded)

    def shape_of(self, demand: Vector) -> Shape:
        """What tasks with a demand ask for."""
        key = tuple(demand.items())
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self.node_table.shape(demand, len(self._shapes))
        return shape

    def share_of(self, demand: Vector) -> int:
        """The dominant share of a demand, in share units."""
        return self.node_table.share_of(demand)

    def shape_in(self, name: str, stage: str, demand: Vector) -> Shape:
        """The same of tasks of a job's stage: where the job is on the board, by its stage, which costs less."""
        job = self.jobs.get(name)
        if job is None:
            return self.shape_of(demand)
        shape = job.shapes.get(stage)
        if shape is None:
            if job.shapes is NO_SHAPES:
                job.shapes = {}
            shape = job.shapes[stage] = self.shape_of(demand)
        return shape

    def count(self, names: list[str], number: int, count: int) -> None:
        """So many tasks more (fewer, where negative) that these counters count run on a node."""
        node = self.node_table.nodes[number]
        for index in self.node_table.counters.count(names, node.name, node.labels, count):
            self._candidates.unblock(self.classes[index])

    def recheck_all(self) -> None:
        """The reasons of all classes, and all leaves, are to be looked at: the board is new."""
        self.leaf_queue.changed = dict.fromkeys(self.leaves, True)
        self.leaf_queue.reordered = dict(self.leaf_queue.changed)
        self.recheck = {task.index: True for task in self.classes}

    def is_crowded(self) -> bool:
        """Whether most of what the board remembers is of no use any more, so that building it again is cheaper."""
        return len(self.classes) > CLASSES_MAX and 2 * self._in_use < len(self.classes)
