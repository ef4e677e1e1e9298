"""A round of placement: takes the leaf queue with the best claim, its best job and the best node, until nothing fits.

Leaf queues are served in two groups: first those that stay within their level after one more task, then the rest.
Within a group the lowest ratio of what is held to the level goes first, then the leaf that was served longest ago, then
by path. (By the ratio alone all leaves that hold nothing are equal, and a queue due three of five tasks gets one beside
four that are due less than one. With ties broken by id, a leaf that holds nothing could starve beside another.) Where
all jobs of the cell are one list (one_list.py), only what is required within levels comes before it.

Inside a leaf the order of waiting_jobs.py holds. A round is work conserving: it ends when nothing that waits fits
anywhere. Under `fifo` alone nodes may idle, since nobody goes ahead of a head that does not fit.
"""

from dataclasses import dataclass

from services.leftover.placement.apart import counters_of
from services.leftover.placement.board_state import BoardState
from services.leftover.placement.class_pools import ONE_STAGE, Stage
from services.leftover.placement.entries import JobEntry
from services.leftover.placement.fragments import Mix
from services.leftover.placement.job_keys import key_of
from services.leftover.placement.keys import CLASS_MASK, OPTIONAL_BIT
from services.leftover.placement.leaf_queue import LeafEntry
from services.leftover.placement.task_class import Shape, TaskClass
from services.leftover.placement.task_span import TaskSpan
from services.leftover.placement.waiting_jobs import first_span


@dataclass(slots=True, frozen=True)
class Lease:
    """What is promised to a reservation over `[from_ms, to_ms)`."""

    reservation: str
    from_ms: int
    to_ms: int


@dataclass(slots=True)
class Placement:
    """Tasks of one stage of a job that start on one node. `devices`: by task, its device shares as (index, milli).
    `beyond`: outside the share of its leaf; under the order `giving`, optional. `reserved`: inside what is promised to
    its job. `revocable`: on room that is promised to others before the tasks are expected to end; `lease`: to whom.
    `copy`: a second attempt of a task that runs, which counts for no queue.
    """

    job: str
    stage: str
    first: int
    count: int
    attempt: int
    node: int
    beyond: bool
    task: TaskClass
    devices: list[list[tuple[int, int]]]
    queue: str = ""
    user: str = ""
    reserved: bool = False
    revocable: bool = False
    copy: bool = False
    lease: Lease | None = None

    def __init__(
        self,
        job: str,
        stage: str,
        first: int,
        count: int,
        attempt: int,
        node: int,
        beyond: bool,
        task: TaskClass,
        devices: list[list[tuple[int, int]]],
        queue: str = "",
        user: str = "",
    ) -> None:
        self.job = job
        self.stage = stage
        self.first = first
        self.count = count
        self.attempt = attempt
        self.node = node
        self.beyond = beyond
        self.task = task
        self.devices = devices
        self.queue = queue
        self.user = user
        self.reserved = False
        self.revocable = False
        self.copy = False
        self.lease = None


class Board(BoardState):
    """Everything that placement ranks. Built from a core's state, kept up to date with it, rebuilt when in doubt."""

    # ------------------------------------------------------------ a round
    def open_round(self, pools_ppm: list[int]) -> None:
        """A round begins. `pools_ppm`: how the cell is divided among classes of jobs; none where there are no pools."""
        if self.kinds_levels.placed_parts:
            self.kinds_levels.begin()
        if pools_ppm:
            self.pools.set(pools_ppm)

    def set_mix(self, mix: Mix) -> None:
        """See `NodeTable`."""
        self.node_table.set_mix(mix)

    def begin(self, now_ms: int, ageing_ms: int) -> None:
        """Brings up to date what leaves and jobs hold, who has aged (see `place`), and which classes there are."""
        self.refresh()
        self._candidates.learn()
        if ageing_ms and self.discipline == "fair" and self._ageing.first_ms <= now_ms - ageing_ms:
            for admitted in self._ageing.take(now_ms - ageing_ms):
                self.by_admission[admitted].aged = True
                self._enter(self.by_admission[admitted])

    def place(self, now_ms: int = 0, ageing_ms: int = 0) -> list[Placement]:
        """Places what fits, best claim first. What is placed counts as held until the core says otherwise. `ageing_ms`:
        a job that holds nothing and could have started so long ago goes first in its leaf; 0: none does.
        """
        self.begin(now_ms, ageing_ms)
        candidates = self._candidates
        if self.kinds_levels.parts:
            self.kinds_levels.learn()
        candidates.refresh()
        if self.discipline != "fair":
            candidates.unblock_all()  # The head is tried every round; nobody goes ahead of it.
        pools = self.pools
        for stage in pools.stages(self.leaf_queue) if pools.count > 1 else ONE_STAGE:
            self._serve(stage)
        candidates.finish(all_tried=not self.is_mixed)  # If mixed, the round may not have come to all.
        return self.placed()

    def _serve(self, stage: Stage) -> None:
        """Places what fits in one stage of a round, best claim first."""
        if self.pools.count > 1:
            self.pools.begin(stage)
        self._stop_heads()
        if self.packers.by_leaf:
            self.packers.begin()
        if self.one_list is not None:
            if self.one_list.by_level:
                self._serve_leaves(stage, within=True)
            self.one_list.begin()
        self._serve_leaves(stage, within=False)

    def _next(self, within: bool) -> tuple[LeafEntry, int] | None:
        """The leaf and the bucket to serve next; `within`: of what is required within levels."""
        pools, live = self.pools, self._candidates.live
        if pools.count == 1 and self.one_list is None:
            return self.leaf_queue.next([live])
        lives, owed = pools.served(live), pools.stage.owed
        if within:
            return self.leaf_queue.next(lives, owed=owed, end=1 << OPTIONAL_BIT, within=True)
        if self.one_list is not None:
            return self.one_list.next(lives, owed=owed, end=pools.end)
        return self.leaf_queue.next(lives, owed=owed, end=pools.end)

    def _serve_leaves(self, stage: Stage, *, within: bool) -> None:
        candidates, pools = self._candidates, self.pools
        while (found := self._next(within)) is not None:
            leaf, bucket_id = found
            first = self.first_if_current(leaf, bucket_id)
            if first is None:
                continue
            job, span = first
            task = span.task
            if stage.within and pools.refuses(job.job_class, task):
                continue
            if job.under and self.is_capped(leaf, bucket_id, job, span):
                continue
            if not (self._place_gang(leaf, job, span) if task.gang else self._place_one(leaf, job, span)):
                candidates.block(task)  # Where the order is strict, it stays the head, and nobody goes ahead of it.
                self.recheck[task.index] = True
                continue
            if job.under:
                self._stop_heads()
            if stage.owed and not stage.within:
                self._note_beyond(leaf, job)

    def _stop_heads(self) -> None:
        """In strict orders, heads that would take a queue beyond its maximum hold back those alone who ask for what
        they lack: also heads that are not tried, as no node or their pool has room for them.
        """
        for leaf in self.strict_leaves:
            for ready in leaf.ready:
                while (head := ready.first()) is not None:
                    first = self.first_if_current(leaf, head)
                    if first is not None and not (first[0].under and self.is_capped(leaf, head, *first)):
                        break

    def take_pool_breaches(self) -> list[tuple[str, int]]:
        """Leaves and classes of jobs that a guarantee took beyond a pool since the last call."""
        beyond, self.pools.beyond = self.pools.beyond, {}
        return list(beyond)

    def is_pool_exceeded(self, job_class: int) -> bool:
        """Whether the jobs of a class hold more than their pool."""
        return self.pools.is_exceeded(job_class)

    def kept_out(self) -> int:
        """Bit set of the classes that are blocked and whose tasks wait."""
        return self._candidates.kept_out()

    def fitting(self, number: int, among: int) -> list[TaskClass]:
        """Of a set of classes those of which a task may fit into what a node has free, or more."""
        return self._candidates.fitting(number, among)

    def least_needs(self, among: int) -> dict[int, int] | None:
        """By resource position, the least that a class of a set asks for (see `Candidates`)."""
        return self._candidates.least_needs(among)

    def first_in(self, leaf: LeafEntry, bucket_id: int) -> tuple[JobEntry, TaskSpan]:
        """The job that is served first in a bucket, with its first span there."""
        while bucket_id not in leaf.sole_jobs:
            if (found := self.first_if_current(leaf, bucket_id)) is not None:
                return found
        job = self.top(leaf, bucket_id)
        return job, first_span(job, self.classes[bucket_id & CLASS_MASK])

    def key_in(self, leaf: LeafEntry, bucket_id: int) -> int:
        """The key of the job that is served first in a bucket."""
        job, span = self.first_in(leaf, bucket_id)
        return key_of(self.discipline, job, span)

    def stays_within(self, leaf: LeafEntry) -> bool:
        """Whether a leaf stays within its level after one more task."""
        return self.leaf_queue.is_within(self.leaf_queue.claim(leaf))

    def turn_of(self, leaf: LeafEntry, bucket_id: int) -> tuple[int, str, int, int]:
        """What the first job of a bucket is served by among those of all leaves, least first."""
        key = self.key_in(leaf, bucket_id)
        if self.one_list is not None:
            return self.one_list.turn_of(leaf, key), leaf.name, key, bucket_id
        return self.leaf_queue.claim(leaf), leaf.name, key, bucket_id

    def _note_beyond(self, leaf: LeafEntry, job: JobEntry) -> None:
        """A task was placed: notes where a guarantee took it beyond a pool while another could start in its own."""
        if not self.pools.is_new_breach(leaf, job.job_class):
            return
        live = self.pools.live_within(self._candidates.live)
        while (found := self.leaf_queue.next(live, end=1 << OPTIONAL_BIT)) is not None:
            other, span = self.first_in(*found)
            if other.under and self.is_capped(*found, other, span):
                continue
            if self.pools.could_start(other.job_class, span.task, self.node_table, live):
                self.pools.beyond[leaf.name, job.job_class] = True
                break
        self.packers.begin()  # They have been asked for less than what is live.

    def _place_one(self, leaf: LeafEntry, job: JobEntry, span: TaskSpan) -> bool:
        task = span.task
        is_new = not task.blocked or task.bounds is not None  # Else only nodes that got room can suit it.
        number = self.node_table.best(task) if is_new else self._candidates.best(task)
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
        beyond = span.optional if leaf.order == "giving" else self.discipline == "fair" and leaf.share >= leaf.target
        key = number << 1 | int(beyond)
        if span.placed_at == key:
            span.placed_count += 1
        elif span.placed_at < 0:
            span.placed_at, span.placed_count = key, 1
            self._touched.append((job.name, span))
        else:
            if span.others is None:
                span.others = {}
            span.others[key] = span.others.get(key, 0) + 1
        if devices:
            if span.devices is None:
                span.devices = {}
            span.devices.setdefault(key, []).append(devices)

    def put(self, leaf: LeafEntry, job: JobEntry, span: TaskSpan, number: int) -> None:
        """One task of a span starts on a node that has the room, whoever that is held for. `placed` tells of it."""
        self._note(leaf, job, span, number, self.node_table.take(span.task, number))
        self._note_placed(leaf, job, span, 1)

    def _note_placed(self, leaf: LeafEntry, job: JobEntry, span: TaskSpan, count: int) -> None:
        """Tasks of a span have found their nodes: everything that ranks what waits follows."""
        if leaf.parts:
            self.kinds_levels.place(leaf, span.task, count)
        self.move_placed(leaf, job, span, count)
        if leaf.choosers:  # It packs, or has levels by sets of kinds.
            self.packers.note(job)
        self.open_others(span.task)

    def placed(self) -> list[Placement]:
        """What was placed since the last call, each span's tasks in one piece a node."""
        placements = []
        for job, span in self._touched:
            entry, counts = self.jobs[job], [(span.placed_at, span.placed_count)]
            if span.others is not None:
                counts += span.others.items()
            for key, count in counts:
                devices = span.devices.get(key, []) if span.devices is not None else []
                number, beyond, first = key >> 1, key & 1 > 0, span.first
                placements.append(
                    Placement(
                        job,
                        span.stage,
                        first,
                        count,
                        span.attempt,
                        number,
                        beyond,
                        span.task,
                        devices,
                        entry.queue,
                        entry.user,
                    )
                )
                span.first += count
            span.placed_at, span.others, span.devices = -1, None, None
        self._touched = []
        return placements

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
            self.count(counted, number, -1)
        self.occupy(queue, user, -1)

    def move(self, placement: Placement, number: int) -> None:
        """A placement of one task goes to another node, which has room for it."""
        task, table = placement.task, self.node_table
        table.give(placement.node, task.pairs, placement.devices[0] if placement.devices else [])
        if task.bounds is not None:
            self.count(counters_of(task.bounds.said), placement.node, -1)
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
            self.open_others(task)
        return where

    def start_copy(self, task: TaskClass, number: int, queue: str, user: str) -> list[tuple[int, int]]:
        """A second attempt of a task starts on a node, and counts for its user alone. Its devices."""
        devices = self.node_table.take(task, number)
        self.open_others(task)
        self.occupy(queue, user, 1)
        return devices

    def unplace(self, placement: Placement, *, alive: bool = True) -> None:
        """A placement that does not bind: its room is free again. The core says again what the job waits for, if it
        is still `alive`.
        """
        for devices in placement.devices or [[]] * placement.count:
            self.node_table.give(placement.node, placement.task.pairs, devices)
        if placement.task.bounds is not None:
            self.count(counters_of(placement.task.bounds.said), placement.node, -placement.count)
        self.occupy(placement.queue, placement.user, -placement.count)
        if not placement.copy:
            self.hold(placement.job if alive else "", placement.task.pairs, -placement.count, placement.queue)
