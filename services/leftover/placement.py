"""Who gets the next task, and where: a board of jobs that wait, leaf by leaf and class by class.

Across leaves the least held / target share goes first; inside a leaf higher priority, then the least dominant share
(DRF), then the job that was admitted first. (policies.md breaks ties by job id; by that rule a job whose id sorts
late could starve under arrivals, so the order of admission decides.) `fifo` is strict at the head. Work conserving:
the round ends when nothing that waits fits anywhere, but for `fifo`, which idles behind a head that does not fit.
"""

from dataclasses import dataclass, field
from typing import Literal

from schemas.quantities import SHARE_UNITS, Vector
from services.leftover.keyed import Keyed
from services.leftover.room import Room, TaskClass

Discipline = Literal["fair", "fifo_job", "fifo_stage"]
Reason = Literal["none", "no_room", "no_node", "gang_no_room", "behind_head"]
_RATIO_BITS = 30
_PRIORITY_MAX = 1 << 20

CLASSES_MAX = 4_096
"""So many classes of tasks are remembered before those that nobody waits in any more are forgotten."""


@dataclass(slots=True)
class Waiting:
    """A span of tasks that could start: tasks `first` .. `first + count - 1` as attempt `attempt`."""

    stage: str
    place: int
    task: TaskClass
    first: int
    count: int
    attempt: int
    since_ms: int
    placed: dict[tuple[int, bool], "Part"] | None = None


@dataclass(slots=True)
class Part:
    """How many tasks of a span go to one node in this round, with their device shares."""

    count: int = 0
    devices: list[list[tuple[int, int]]] = field(default_factory=list)


@dataclass(slots=True)
class JobSeat:
    """A job on the board. `held` by resource position, with what this round has placed; `share` its dominant share."""

    name: str
    order: int
    leaf: str
    priority: int
    held: list[int]
    share: int = 0
    waits: list[Waiting] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class LeafSeat:
    """A leaf queue on the board. `bins`: for each class that waits here, its jobs; `draw`: the classes in the draw."""

    name: str
    held: list[int]
    target: int = SHARE_UNITS
    share: int = 0
    bins: dict[int, Keyed[int]] = field(default_factory=dict)
    draw: Keyed[int] = field(default_factory=Keyed)


@dataclass(slots=True)
class Placement:
    """Tasks of one job's stage that start on one node. `beyond`: outside its leaf's share. `devices`: shares, task by
    task.
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


class Board:
    """Everything that placement ranks. Built from a core's state, kept up to date with it, rebuilt when in doubt."""

    def __init__(self, room: Room, discipline: Discipline) -> None:
        self.room = room
        self.discipline = discipline
        self.classes: list[TaskClass] = []
        self._class_of: dict[tuple[object, ...], TaskClass] = {}
        self.jobs: dict[str, JobSeat] = {}
        self._by_order: dict[int, JobSeat] = {}
        self.leaves: dict[str, LeafSeat] = {}
        self._draw: Keyed[str] = Keyed()
        self._stale_jobs: dict[str, bool] = {}
        self._stale_leaves: dict[str, bool] = {}
        self._blocked: dict[int, TaskClass] = {}
        self._touched: list[tuple[str, Waiting]] = []  # Spans with placements of this round.
        self.stirred: dict[int, bool] = {}  # Classes whose reason to wait may have changed.

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
        return task

    def leaf(self, name: str) -> LeafSeat:
        """The seat of a leaf queue."""
        seat = self.leaves.get(name)
        if seat is None:
            seat = self.leaves[name] = LeafSeat(name, [0] * len(self.room.total))
        return seat

    def add_job(self, name: str, order: int, leaf: str, priority: int) -> None:
        """A job that neither holds nor waits for anything yet."""
        seat = JobSeat(name, order, leaf, priority, [0] * len(self.room.total))
        self.jobs[name] = self._by_order[order] = seat

    def remove_job(self, name: str) -> None:
        """The job is over; what its attempts still hold counts for nobody until it is given back."""
        job = self.jobs.pop(name)
        del self._by_order[job.order]
        self._unwait(job)
        leaf = self.leaf(job.leaf)
        leaf.held = [have - held for have, held in zip(leaf.held, job.held, strict=True)]
        self._stale_leaves[job.leaf] = True
        self._stale_jobs.pop(name, None)

    def set_target(self, name: str, target: int) -> None:
        """The dominant share that fairness gives a leaf, in 10^-9 of the cell."""
        self.leaf(name).target = target
        self._stale_leaves[name] = True

    def wait(self, name: str, waits: list[Waiting]) -> None:
        """All that a job waits for, in its order; replaces what it waited for."""
        job = self.jobs[name]
        self._unwait(job)
        if self.discipline == "fifo_stage":
            waits.sort(key=lambda waiting: (waiting.since_ms, waiting.place))  # The oldest of a class speaks for it.
        job.waits = waits
        for waiting in waits:
            waiting.task.waiting += waiting.count
            if waiting.task.blocked:
                self.stirred[waiting.task.index] = True  # It may be the first to wait since the class was blocked.
        self._enter(job)

    def hold(self, name: str, task_pairs: list[tuple[int, int]], count: int) -> None:
        """The job holds `count` more tasks (fewer, where negative)."""
        job = self.jobs.get(name)
        if job is None:
            return
        leaf = self.leaf(job.leaf)
        for p, amount in task_pairs:
            if p >= 0:
                job.held[p] += amount * count
                leaf.held[p] += amount * count
        self._stale_jobs[name] = self._stale_leaves[job.leaf] = True

    # ------------------------------------------------------------ ranking
    def _key(self, job: JobSeat, waiting: Waiting, position: int) -> int:
        if self.discipline == "fifo_job":
            return (job.order << 24) | position
        if self.discipline == "fifo_stage":
            return (((waiting.since_ms << 44) | job.order) << 24) | waiting.place
        rank = ((_PRIORITY_MAX - job.priority) << 40) | min(job.share, (1 << 40) - 1)
        return (((rank << 44) | job.order) << 24) | position

    def _enter(self, job: JobSeat) -> None:
        """Puts a job in the bins of what it waits for, each under its first span of that class."""
        leaf = self.leaf(job.leaf)
        entered: list[int] = []
        for position, waiting in enumerate(job.waits):
            index = waiting.task.index
            if index in entered:
                continue
            entered.append(index)
            bin_ = leaf.bins.get(index)
            if bin_ is None:
                bin_ = leaf.bins[index] = Keyed()
            bin_.set(job.order, self._key(job, waiting, position))
            self._offer(leaf, waiting.task, bin_)
        for index in job.classes:
            if index not in entered:
                self._withdraw(leaf, job, index)
        job.classes = entered

    def _unwait(self, job: JobSeat) -> None:
        for waiting in job.waits:
            waiting.task.waiting -= waiting.count
            self.stirred[waiting.task.index] = True
        leaf = self.leaf(job.leaf)
        for index in job.classes:
            self._withdraw(leaf, job, index)
        job.waits, job.classes = [], []

    def _withdraw(self, leaf: LeafSeat, job: JobSeat, index: int) -> None:
        bin_ = leaf.bins[index]
        bin_.drop(job.order)
        self._offer(leaf, self.classes[index], bin_)

    def _offer(self, leaf: LeafSeat, task: TaskClass, bin_: Keyed[int]) -> None:
        """Brings a leaf's draw in line with one of its bins; a blocked class stays out of it."""
        top = bin_.top()
        if top is None:
            leaf.draw.drop(task.index)
            del leaf.bins[task.index]
        elif task.blocked:
            task.parked[leaf.name] = True
        else:
            leaf.draw.set(task.index, bin_.key[top])
            if leaf.name not in self._draw.key:
                self._draw.set(leaf.name, self._ratio(leaf))

    def _ratio(self, leaf: LeafSeat) -> int:
        if self.discipline != "fair":
            return 0
        if leaf.target <= 0:
            return 1 << 80  # Entitled to nothing: served from what nobody else can use.
        return (leaf.share << _RATIO_BITS) // leaf.target

    def _share(self, held: list[int]) -> int:
        share = 0
        for amount, total in zip(held, self.room.total, strict=True):
            if amount and total and (part := amount * SHARE_UNITS // total) > share:
                share = part
        return share

    def _refresh(self) -> None:
        """Works out the shares that have moved since the last round."""
        for name in self._stale_leaves:
            leaf = self.leaves[name]
            leaf.share = self._share(leaf.held)
            if name in self._draw.key:
                self._draw.set(name, self._ratio(leaf))
        for name in self._stale_jobs:
            job = self.jobs[name]
            share = self._share(job.held)
            if share != job.share:
                job.share = share
                if job.waits and self.discipline == "fair":
                    self._enter(job)
        self._stale_leaves, self._stale_jobs = {}, {}

    # ------------------------------------------------------------ a round
    def place(self) -> list[Placement]:
        """Places what fits, best claim first. What is placed counts as held until the core says otherwise."""
        self._refresh()
        for task in list(self._blocked.values()):
            if self.discipline != "fair":
                self._unblock(task)  # The head is tried every round; nobody goes ahead of it.
            elif task.waiting and not self.room.unchanged_since(task) and self.room.look(task).top() is not None:
                self._unblock(task)
        while (leaf_name := self._draw.top()) is not None:
            leaf = self.leaves[leaf_name]
            index = leaf.draw.top()
            if index is None:
                self._draw.drop(leaf_name)
                continue
            task = self.classes[index]
            if task.blocked:
                leaf.draw.drop(index)
                task.parked[leaf_name] = True
                continue
            top = leaf.bins[index].top()
            assert top is not None, f"{leaf_name}: an empty bin in the draw"
            job = self._by_order[top]
            waiting = next(w for w in job.waits if w.task is task)
            if not (self._place_gang(leaf, job, waiting) if task.gang else self._place_one(leaf, job, waiting)):
                self._block(task)
                if self.discipline != "fair":
                    break
        return self._collect()

    def _place_one(self, leaf: LeafSeat, job: JobSeat, waiting: Waiting) -> bool:
        number = self.room.best(waiting.task)
        if number is None:
            return False
        self._note(leaf, job, waiting, number, self.room.take(waiting.task, number))
        self._shrink(leaf, job, waiting, 1)
        return True

    def _place_gang(self, leaf: LeafSeat, job: JobSeat, waiting: Waiting) -> bool:
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
        self, leaf: LeafSeat, job: JobSeat, waiting: Waiting, number: int, devices: list[tuple[int, int]]
    ) -> None:
        """Counts one task of a span to a node; which index it is follows when the round is over."""
        if waiting.placed is None:
            waiting.placed = {}
            self._touched.append((job.name, waiting))
        key = number, self.discipline == "fair" and leaf.share >= leaf.target
        part = waiting.placed.get(key)
        if part is None:
            part = waiting.placed[key] = Part()
        part.count += 1
        if devices:
            part.devices.append(devices)

    def _collect(self) -> list[Placement]:
        """The round's placements, each span's tasks in one piece a node."""
        placements = []
        for job, waiting in self._touched:
            for (number, beyond), part in (waiting.placed or {}).items():
                count = part.count
                placements.append(
                    Placement(
                        job,
                        waiting.stage,
                        waiting.first,
                        count,
                        waiting.attempt,
                        number,
                        beyond,
                        waiting.task,
                        part.devices,
                    )
                )
                waiting.first += count
            waiting.placed = None
        self._touched = []
        return placements

    def _shrink(self, leaf: LeafSeat, job: JobSeat, waiting: Waiting, count: int) -> None:
        """`count` tasks of a span have been placed: shares rise, the span shortens, ranks follow."""
        task, total = waiting.task, self.room.total
        for p, amount in task.pairs:
            job.held[p] += amount * count
            leaf.held[p] += amount * count
            if (share := job.held[p] * SHARE_UNITS // total[p]) > job.share:
                job.share = share
            if (share := leaf.held[p] * SHARE_UNITS // total[p]) > leaf.share:
                leaf.share = share
        waiting.count -= count
        task.waiting -= count
        self.stirred[task.index] = True
        if not waiting.count:
            job.waits.remove(waiting)
        if job.waits or len(job.classes) > 1:
            self._enter(job)
        else:
            self._withdraw(leaf, job, task.index)
            job.classes = []
        if leaf.name in self._draw.key:
            self._draw.set(leaf.name, self._ratio(leaf))

    def unplace(self, placement: Placement) -> None:
        """A placement that does not bind: its room is free again. The core then says anew what the job waits for."""
        for devices in placement.devices or [[]] * placement.count:
            self.room.give(placement.node, placement.task.pairs, devices)
        self.hold(placement.job, placement.task.pairs, -placement.count)

    # ------------------------------------------------------------ classes that find no room
    def _block(self, task: TaskClass) -> None:
        """Out of the draw in every leaf until a node gets room; leaves drop it as they come to it."""
        task.blocked = True
        self._blocked[task.index] = task
        self.stirred[task.index] = True

    def _unblock(self, task: TaskClass) -> None:
        task.blocked = False
        del self._blocked[task.index]
        self.stirred[task.index] = True
        parked, task.parked = task.parked, {}
        for name in parked:
            leaf = self.leaves[name]
            if task.index in leaf.bins:
                self._offer(leaf, task, leaf.bins[task.index])

    def stir_all(self) -> None:
        """Every class's reason is worth a look: the board is new."""
        self.stirred = {task.index: True for task in self.classes}

    def reasons(self) -> list[tuple[TaskClass, Reason]]:
        """Why the tasks of each class wait, for the classes where that may have changed since the last call."""
        if self.discipline == "fair":
            tasks = [self.classes[index] for index in self.stirred]
        else:
            tasks = self.classes
        self.stirred = {}
        return [(task, self._reason(task)) for task in tasks]

    def _reason(self, task: TaskClass) -> Reason:
        if not task.waiting:
            return "none"
        if not task.blocked:
            return "none" if self.discipline == "fair" else "behind_head"
        if task.gang:
            return "gang_no_room"
        return "no_room" if self.room.could_fit(task) else "no_node"

    def is_crowded(self) -> bool:
        """Whether most of what the board remembers is of no use any more, so that building it anew is cheaper."""
        return len(self.classes) > CLASSES_MAX and 2 * sum(task.waiting > 0 for task in self.classes) < len(
            self.classes
        )
