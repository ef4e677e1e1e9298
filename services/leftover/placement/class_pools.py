"""Pools of capacity by class of job: what all jobs of a class may hold before others are served (DRESS, section IV-C).

A pool limits all jobs of one job class. It is applied to each pair of a leaf queue and a job class: a leaf may have
jobs of every class, and only those of a class whose pool is used up are passed over. While jobs of several classes
wait, a round serves in stages, each in the order of claims:

1. leaves below their guarantee, within the pools;
2. leaves below their guarantee, beyond the pools: a guarantee comes before the pools (docs/concepts/dress.md);
3. all leaves, within the pools;
4. all leaves, beyond the pools: what nobody can use inside its pool is lent, so no room stays idle for a pool's sake.
   What was lent comes back as tasks end, since the other stages come first.

While only jobs of one class wait there is nobody to keep room for, and one stage serves them all, as without pools.
Under the order `giving` optional tasks are not served before the last stage: leftover goes across pools.

Where pools do not lend, as in the paper, there are no stages 2 and 4; a last one serves optional tasks in the pools.
This holds also while jobs of one class alone wait: what they leave idle is there for jobs that are yet to come. A task
or a gang that is larger than its pool is not bound by it, since it would never start.
"""

from typing import Final, NamedTuple

from services.leftover.placement.fits import ClassIndex, members, top_of_step
from services.leftover.placement.keys import OPTIONAL_BIT, job_class_of
from services.leftover.placement.leaf_queue import LeafEntry, LeafQueue
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.task_class import TaskClass

JOB_CLASSES_MAX: Final = 8
"""Classes of jobs at the most; a segment has room for 256."""

PPM: Final = 1_000_000

_SHUT_LEAST: Final = 16
"""After so many classes of tasks that found their pool too small, all classes that it is too small for are found at
once."""


class Stage(NamedTuple):
    """A part of a round: serves tasks `within` the pools alone, or only leaves that are `owed` their guarantee; what
    is `optional` also within the pools."""

    within: bool
    owed: bool
    optional: bool = False


EVERYBODY = Stage(within=False, owed=False)
ONE_STAGE = (EVERYBODY,)
STAGES = (Stage(within=True, owed=False), EVERYBODY)
STAGES_OWED = (Stage(within=True, owed=True), Stage(within=False, owed=True), *STAGES)
KEPT = (Stage(within=True, owed=False), Stage(within=True, owed=False, optional=True))
KEPT_OWED = (Stage(within=True, owed=True), *KEPT)


class Pools:
    """By class of job and resource position: what its pool is, and what its jobs hold. Without pools all jobs are of
    one class, and nothing is bounded. `beyond`: (leaf, class) pairs that were served beyond the pool in this round
    because of the leaf's guarantee, though others could have started within theirs.
    """

    def __init__(self, ppm: list[int], total: list[int], demands: ClassIndex, *, lends: bool = True) -> None:
        """`ppm`: by class, its part of the cell in millionths; empty: no pools. `total`: capacity by position. `lends`:
        what nobody can use inside its pool goes to others."""
        self.count = max(1, len(ppm))
        self.keeps = not lends and len(ppm) > 1
        self._tasks: dict[int, TaskClass] = {}  # Classes of tasks that waited, where pools do not lend.
        self._outsize = [0] * self.count  # Of these, those that are larger than the pool.
        self._total = total
        self._demands = demands
        self.most: list[list[int]] = []
        self.held = [[0] * len(total) for _ in range(self.count)]
        self.set(ppm)
        self._waiting: list[dict[int, int]] = [{} for _ in range(self.count)]  # By class of tasks, how many buckets.
        self._open = [0] * self.count  # Classes of tasks that may fit into what is left of the pool, for this stage.
        self._failed = 0
        self._used_up = [0] * self.count  # Classes of tasks that did not fit when that was last looked at.
        self.stage = EVERYBODY
        self.beyond: dict[tuple[str, int], bool] = {}

    def set(self, ppm: list[int]) -> None:
        """Sets the sizes of the pools. Rounds down, so that all together never exceed the cell."""
        before, self.most = self.most, [[have * part // PPM for have in self._total] for part in ppm]
        if self.keeps and self.most != before:
            self._find_outsize(list(self._tasks.values()))

    def job_class(self, job_class: int) -> int:
        """The pool that a job of this class belongs to: not judged yet, or from before there were fewer classes, it
        counts as one of the largest.
        """
        return job_class if 0 <= job_class < self.count else self.count - 1

    # ------------------------------------------------------------ what is held, and who waits
    def hold(self, job_class: int, pairs: list[tuple[int, int]], count: int) -> None:
        """Jobs of a class hold `count` more tasks (fewer, where negative); `pairs` as (resource position, amount)."""
        held = self.held[job_class]
        for p, amount in pairs:
            if p >= 0:
                held[p] = held[p] + amount * count

    def give_back(self, job_class: int, amounts: list[int]) -> None:
        """A job is over: what it still holds counts in no pool."""
        held = self.held[job_class]
        for p, amount in enumerate(amounts):
            held[p] = held[p] - amount

    def wait(self, bucket_id: int, task: TaskClass, buckets: int) -> None:
        """Tasks wait in one bucket more (fewer, where negative)."""
        if self.keeps and self._tasks.get(task.index) is not task:
            self._tasks[task.index] = task
            self._find_outsize([task])
        waiting = self._waiting[job_class_of(bucket_id)]
        left = waiting.pop(task.index, 0) + buckets
        if left:
            waiting[task.index] = left

    @property
    def compete(self) -> bool:
        """Whether jobs of several classes wait, or may come while the others have to leave them their pool."""
        return self.keeps or (self.count > 1 and sum([1 for waiting in self._waiting if waiting]) > 1)

    # ------------------------------------------------------------ questions
    def rest(self, job_class: int) -> list[int]:
        """What is left of a pool, by position; less than nothing where it has borrowed."""
        return [most - held for most, held in zip(self.most[job_class], self.held[job_class], strict=True)]

    def _about(self, job_class: int) -> list[int]:
        """What is left of a pool, to three significant bits, rounded up: reasons that are published follow from it."""
        return [top_of_step(amount) for amount in self.rest(job_class)]

    def has_room(self, job_class: int, task: TaskClass) -> bool:
        """Whether one more task, or the whole gang, stays within the pool."""
        most, held, count = self.most[job_class], self.held[job_class], task.gang or 1
        return all(p < 0 or held[p] + amount * count <= most[p] for p, amount in task.pairs)

    def bars(self, job_class: int, task: TaskClass) -> bool:
        """Whether a pool that does not lend keeps tasks from starting, however much room there is."""
        return self.keeps and not (self.has_room(job_class, task) or self._is_outsize(job_class, task))

    def _is_outsize(self, job_class: int, task: TaskClass) -> bool:
        """Whether one task, or the whole gang, is larger than all of a pool that does not lend."""
        return self.keeps and self._outsize[job_class] >> task.index & 1 > 0

    def _find_outsize(self, tasks: list[TaskClass]) -> None:
        for job_class, most in enumerate(self.most):
            for task in tasks:
                count, bit = task.gang or 1, 1 << task.index
                is_outsize = any(p >= 0 and amount * count > most[p] for p, amount in task.pairs)
                self._outsize[job_class] = self._outsize[job_class] & ~bit | (bit if is_outsize else 0)

    def take_breaches(self) -> list[tuple[str, int]]:
        """Leaves and classes of jobs that a guarantee took beyond a pool since the last call."""
        beyond, self.beyond = self.beyond, {}
        return list(beyond)

    def is_exceeded(self, job_class: int) -> bool:
        """Whether the jobs of a class hold more than their pool."""
        return 1 < self.count > job_class and min(self.rest(job_class), default=0) < 0

    def is_used_up(self, task: TaskClass) -> bool:
        """Whether tasks wait whose pools, all of them, have no room for one more, as of the last `flipped`. Amounts
        are compared to three significant bits: a task that asks for a little more than is left may pass as fitting.
        """
        at, found = task.index, False
        for waiting, used_up in zip(self._waiting, self._used_up, strict=True):
            if at in waiting:
                if not used_up >> at & 1:
                    return False
                found = True
        return found

    def flipped(self) -> list[int]:
        """Classes of tasks, by number, whose pool is used up and was not at the last call, or the other way round."""
        flipped = 0
        for job_class, before in enumerate(self._used_up):
            now = (
                self._demands.all & ~self._demands.classes(self._about(job_class), self._demands.all)
                if self.compete
                else 0
            )
            self._used_up[job_class] = now
            flipped |= before ^ now
        return members(flipped)

    # ------------------------------------------------------------ a round
    def stages(self, leaf_queue: LeafQueue) -> tuple[Stage, ...]:
        """The stages of a round."""
        if not self.compete:
            return ONE_STAGE
        if any(owed.key for owed in leaf_queue.owed):
            return KEPT_OWED if self.keeps else STAGES_OWED
        return KEPT if self.keeps else STAGES

    def begin(self, stage: Stage) -> None:
        """Begins a stage of a round."""
        self.stage = stage
        if stage.within:
            self._find_open()

    def _find_open(self) -> None:
        """Finds the classes of tasks of which one may fit into what is left of each pool."""
        demands = self._demands
        self._open = [demands.classes(self.rest(job_class), demands.all) for job_class in range(self.count)]
        if self.keeps:
            self._open = [able | outsize for able, outsize in zip(self._open, self._outsize, strict=True)]
        self._failed = 0

    def served(self, live: int) -> list[int]:
        """By class of jobs, the classes of tasks that this stage may serve, of those `live`, which are worth a try."""
        return self.live_within(live) if self.stage.within else [live] * self.count

    @property
    def end(self) -> int | None:
        """Below which key this stage serves; None: any."""
        return 1 << OPTIONAL_BIT if self.stage.within and not self.stage.optional else None

    def refuses(self, job_class: int, task: TaskClass) -> bool:
        """Whether the pool has no room for the task in this stage. Then it is passed over until the next one."""
        if not self.stage.within or self.has_room(job_class, task) or self._is_outsize(job_class, task):
            return False
        self._open[job_class] &= ~(1 << task.index)
        self._failed += 1
        if self._failed > _SHUT_LEAST:
            before = self._open
            self._find_open()
            self._open = [now & was for now, was in zip(self._open, before, strict=True)]
        return True

    def is_new_breach(self, leaf: LeafEntry, job_class: int) -> bool:
        """Whether the stage serves a leaf because of its guarantee although its class of jobs holds more than its pool,
        and that is not noted in `beyond` yet.
        """
        stage = self.stage
        if not stage.owed or stage.within or (leaf.name, job_class) in self.beyond:
            return False
        return self.is_exceeded(job_class)

    def live_within(self, live: int) -> list[int]:
        """By class of jobs, the classes of tasks worth a try of which one task may fit into the pool."""
        return [live & open_ for open_ in self._open]

    def could_start(self, job_class: int, task: TaskClass, table: NodeTable, live: list[int]) -> bool:
        """Whether a task finds room on a node and within its pool. If not, it is no longer in `live`. Of gangs that is
        not said: that they fit together is only found out by trying.
        """
        if task.gang or table.best(task) is None:
            live[:] = [each & ~(1 << task.index) for each in live]
            return False
        if not self.has_room(job_class, task):
            live[job_class] &= ~(1 << task.index)
            return False
        return True
