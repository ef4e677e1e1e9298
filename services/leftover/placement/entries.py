"""What a board keeps of jobs, of the queues they are served in, and of queues that may not grow beyond a maximum."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from schemas.quantities import SHARE_UNITS
from schemas.queues import ServingOrder
from services.leftover.placement.indexed_heap import ADMITTED_BITS, POSITION_BITS, IndexedHeap, JobHeap
from services.leftover.placement.ranks import Ranks
from services.leftover.placement.task_class import TaskClass

BY_SHARE = ("drf", "tetris-fair")
"""Orders by the dominant share that a job holds."""

Discipline = Literal["fair", "fifo_job", "fifo_stage"]
"""How jobs are served: fairly, or strictly in the order of admission, job by job or stage by stage."""

BY_WORK_LEFT = ("srtf", "giving")
"""Orders by the work that is left of a job."""

BY_WORK = ("sjf", *BY_WORK_LEFT)
"""Orders by a figure of the job itself: that, or its critical path when it came."""

SEGMENT_BITS = 32
"""A bucket is numbered by its class, and above these bits by its segment: jobs of one leaf under other maxima, or of
another class.
"""
CLASS_MASK = (1 << SEGMENT_BITS) - 1

JOB_CLASS_BITS = 8
"""The lowest bits of a segment: the class of its jobs."""
_JOB_CLASS_MASK = (1 << JOB_CLASS_BITS) - 1

POSITION_MASK = (1 << POSITION_BITS) - 1

OPTIONAL_BIT = 240
"""In what jobs are served by: far above any rank, so that all that is required comes before all that is not."""

_SHARE_BITS = 40
_SHARE_MOST = (1 << _SHARE_BITS) - 1
_WORK_BITS = 100
_PRIORITY_TOP = 1 << 20
_ABOVE_FLOOR = 1 << 90  # Above any share, and any moment in ms.
PRIORITY_BITS = _SHARE_BITS + ADMITTED_BITS + POSITION_BITS
"""In what jobs of a leaf are served by: above these bits is their priority, where it is by DRF."""


def job_class_of(bucket_id: int) -> int:
    """The class of the jobs in a bucket."""
    return bucket_id >> SEGMENT_BITS & _JOB_CLASS_MASK


@dataclass(slots=True, eq=False)
class TaskSpan:
    """A span of tasks that could start: tasks `first` .. `first + count - 1` as attempt `attempt`. `position`: in the
    list of spans that its job came with. `optional`: they need not start yet. `is_sole`: its job alone waits for tasks
    of its class in its leaf, and this is the first of the job's spans of that class.
    """

    stage: str
    place: int
    task: TaskClass
    first: int
    count: int
    attempt: int
    since_ms: int
    placed: dict[tuple[int, bool], "PlacedTasks"] | None = None
    position: int = 0
    optional: bool = False
    is_sole: bool = False

    def __init__(
        self, stage: str, place: int, task: TaskClass, first: int, count: int, attempt: int, since_ms: int
    ) -> None:
        self.stage = stage
        self.place = place
        self.task = task
        self.first = first
        self.count = count
        self.attempt = attempt
        self.since_ms = since_ms
        self.placed = None
        self.position = 0
        self.optional = False
        self.is_sole = False


NO_WAITS: list[TaskSpan] = []
NO_BUCKETS: list[int] = []
"""Of jobs that wait for nothing: shared, since such jobs are many, so never to be changed in place."""


@dataclass(slots=True, eq=False)
class PlacedTasks:
    """How many tasks of a span go to one node in this round, with their device shares."""

    count: int = 0
    devices: list[list[tuple[int, int]]] | None = None

    def __init__(self) -> None:
        self.count = 0
        self.devices = None


@dataclass(slots=True, eq=False)
class QueueEntry:
    """A queue with a maximum: `most` and `held` by resource position. `capped`: buckets that wait for it to shrink, as
    (leaf, bucket).
    """

    path: str
    most: dict[int, int]
    held: list[int]
    capped: dict[tuple[str, int], bool] = field(default_factory=dict)

    def has_room(self, pairs: list[tuple[int, int]], count: int) -> bool:
        """Whether `count` more tasks stay within the maximum; `pairs` as (resource position, amount)."""
        most, held = self.most, self.held
        return all(p not in most or held[p] + amount * count <= most[p] for p, amount in pairs)


@dataclass(slots=True, eq=False)
class SoleSpans:
    """Task spans of one job whose task class no other job of the same leaf waits for, required ones or optional ones,
    in their order. `classes`: bit set of theirs; `lowest`: the least of those; `segment`: what their buckets have above
    their class.
    """

    spans: list[TaskSpan]
    segment: int
    classes: int
    lowest: int

    def __init__(self, spans: list[TaskSpan], segment: int) -> None:
        self.spans = spans
        self.segment = segment
        self.lowest = min([span.task.index for span in spans])
        classes = 0
        for span in spans:
            classes |= 1 << span.task.index - self.lowest
        self.classes = classes << self.lowest

    def remove(self, span: TaskSpan) -> None:
        """Nobody waits for this span any more; there are others."""
        self.spans.remove(span)
        self.classes ^= 1 << span.task.index

    def first_of(self, live: int) -> TaskSpan | None:
        """The first span whose class is in the set `live`."""
        near = live >> self.lowest
        for span in self.spans:
            if near >> span.task.index - self.lowest & 1:
                return span
        return None


class ReadyQueue(Ranks[int]):
    """What a leaf may serve of one class of jobs, by the key of what comes first there: buckets, and jobs by their
    `sole_id`. `classes` is a set of all the classes among them, never too few. `sole_spans`: what those jobs wait for.
    `found_key`: what the bucket that was found last is served by.
    """

    __slots__ = ("classes", "found_key", "mask", "sole_spans")

    def __init__(self, mask: int) -> None:
        """`mask`: which bits of a bucket's number name its class."""
        super().__init__()
        self.classes = 0
        self.found_key = 0
        self.mask = mask
        self.sole_spans: dict[int, SoleSpans] = {}

    def first_of(self, live: int, end: int | None = None) -> int | None:
        """The first bucket whose class is in the set `live` and whose key is below `end`, or None; of spans that one
        job alone waits for each span counts as a bucket.
        """
        if not self.classes & live:
            return None
        mask, sole_spans, union = self.mask, self.sole_spans, 0
        found, found_key = -1, -1  # The best so far: a job with sole spans is filed by its earliest span.
        for block in self.blocks:
            first = block.entries[0][0]
            if found >= 0 and first > found_key:
                break
            if end is not None and first >= end:
                break
            hit = block.classes & live
            if hit:
                for key, id_ in block.entries:
                    if found >= 0 and key > found_key:
                        break
                    if end is not None and key >= end:
                        break
                    if id_ < 0:
                        job = sole_spans[id_]
                        span = job.first_of(hit) if job.classes & hit else None
                        if span is not None:
                            behind = span.position - (key & POSITION_MASK)
                            if found < 0 or key + behind < found_key:
                                found, found_key = job.segment | span.task.index, key + behind
                            if not behind:
                                break
                    elif hit >> (id_ & mask) & 1:
                        found, found_key = id_, key
                        break
                else:
                    if found < 0:
                        block.classes ^= hit  # None of them is there any more.
            union |= block.classes
        else:
            if found < 0:
                self.classes = union  # Where `end` cut the last block short, it still has what lies behind that.
        self.found_key = found_key
        return found if found >= 0 else None


def _ready_queues() -> list[ReadyQueue]:
    return [ReadyQueue(CLASS_MASK)]


@dataclass(slots=True, eq=False)
class LeafEntry:
    """A queue that jobs are served in. `buckets`: for each class and segment that waits here, its jobs, and
    `sole_jobs`: the job where there is but one; `sizes`: by bucket, what one of its tasks (or gangs) takes; `gangs`:
    the buckets of gangs; `ready`: by class of job, those buckets and jobs in order that no maximum holds back.
    `served`: seq of the opening whose round gave it something last. `target`: its level; `due`: what it is due of its
    own, None where no level is known; `level_reduced`: its level is less than that, since its tasks find no room;
    `guaranteed`: below this no class pool holds it back. `floor`: under `fsp`, jobs that hold less than this dominant
    share go before the others, the least first. `stopped`: where the order is strict, segments whose head finds this
    queue full, with its key. `headed`: the classes that the line has counted as its heads, by number. `choosers`: by
    class of job, what says which bucket to serve next, where that is not the first of the ready queue.
    """

    name: str
    held: list[int]
    order: ServingOrder = "drf"
    target: int = SHARE_UNITS
    due: int | None = None
    level_reduced: bool = False
    share: int = 0
    served: int = 0
    sizes: IndexedHeap[int] = field(default_factory=IndexedHeap)
    gangs: dict[int, bool] = field(default_factory=dict)
    buckets: dict[int, JobHeap] = field(default_factory=dict)
    sole_jobs: dict[int, "JobEntry"] = field(default_factory=dict)
    ready: list[ReadyQueue] = field(default_factory=_ready_queues)
    guaranteed: int = 0
    floor: int = 0
    stopped: dict[int, tuple[QueueEntry, int]] = field(default_factory=dict)
    headed: list[int] = field(default_factory=list)
    choosers: list[Callable[[int, int | None], int | None]] = field(default_factory=list)

    def open(self, bucket_id: int, task: TaskClass) -> None:
        """Somebody waits for tasks of a class from now on."""
        self.sizes.set(bucket_id, task.size)
        if task.gang:
            self.gangs[bucket_id] = True

    def close(self, bucket_id: int) -> None:
        """Nobody does any more."""
        self.sizes.drop(bucket_id)
        self.gangs.pop(bucket_id, None)

    @property
    def strict(self) -> bool:
        """Whether nobody goes ahead of a head that does not fit."""
        return self.order == "fifo"

    @property
    def is_owed(self) -> bool:
        """Whether it waits, and with one task more holds no more than it is guaranteed."""
        least = self.sizes.least() if self.guaranteed else None
        return least is not None and self.share + least <= self.guaranteed

    def first_of(self, live: int, job_class: int = 0, end: int | None = None) -> int | None:
        """The first bucket of a class of jobs that may be served whose class of tasks is in the set `live`, and whose
        key is below `end`; of a strict leaf its head alone.
        """
        ready = self.ready[job_class]
        if not self.strict:
            if not self.choosers:
                return ready.first_of(live, end)
            chosen = self.choosers[job_class](live, end)
            if chosen is not None and chosen in ready.key:  # Else it is a sole span, and the search has set the key.
                ready.found_key = ready.key[chosen]
            return chosen
        head = ready.first()
        if head is not None:
            ready.found_key = ready.key[head]
        return head if head is not None and live >> (head & CLASS_MASK) & 1 else None

    def rank(self, job: "JobEntry") -> int:
        """What jobs of this leaf are served by, least first, before the order of admission decides."""
        if self.order == "fifo" or job.aged:
            return 0
        top = _PRIORITY_TOP - job.priority
        if self.order in BY_SHARE:
            share = job.share
            return (top << _SHARE_BITS) | (share if share < _SHARE_MOST else _SHARE_MOST)
        if self.order == "fair":
            return (top << _SHARE_BITS) | job.tasks
        if self.order == "fsp":
            after = job.share if job.share < self.floor else _ABOVE_FLOOR | job.work
            return (top << _WORK_BITS) | after
        if self.order in BY_WORK:
            return (top << _WORK_BITS) | min(job.work, (1 << _WORK_BITS) - 1)
        return top


@dataclass(slots=True, eq=False)
class JobEntry:
    """A job on the board. `held` by resource position, with what this round has placed; `share` its dominant share;
    `tasks` how many it holds; `work` what is left of it, in share units x ms, or by `sjf` its critical path, in ms, or
    by `fsp` when it ends in the shadow. `under`: queues with a maximum above it; `job_class`: whose pool it counts in.
    `aged`: it holds nothing and has waited so long that it goes first. `has_sole`: nobody else in its leaf waits for
    its classes, so it stands in the ready queue itself and not in buckets: as `sole_id` with its required tasks, as
    `sole_id` - 1 with its optional ones. Both are negative; buckets are not.
    """

    name: str
    admitted: int
    leaf: LeafEntry
    priority: int
    held: list[int]
    queue: str = ""
    segment: int = 0
    under: tuple[QueueEntry, ...] = ()
    work: int = 0
    job_class: int = 0
    tasks: int = 0
    share: int = 0
    aged: bool = False
    has_sole: bool = False
    sole_id: int = 0
    waits: list[TaskSpan] = field(default_factory=list)
    buckets: list[int] = field(default_factory=list)

    def __init__(
        self,
        name: str,
        admitted: int,
        leaf: LeafEntry,
        priority: int,
        held: list[int],
        queue: str = "",
        segment: int = 0,
        under: tuple[QueueEntry, ...] = (),
        work: int = 0,
        job_class: int = 0,
    ) -> None:
        self.name = name
        self.admitted = admitted
        self.leaf = leaf
        self.priority = priority
        self.held = held
        self.queue = queue
        self.segment = segment << JOB_CLASS_BITS | job_class
        self.under = under
        self.work = work
        self.job_class = job_class
        self.tasks = 0
        self.share = 0
        self.aged = False
        self.has_sole = False
        self.sole_id = -1 - (admitted << 1)
        self.waits = NO_WAITS
        self.buckets = NO_BUCKETS

    def own_held(self, nothing: list[int]) -> list[int]:
        """What it holds, to be changed; `nothing` is shared by jobs that hold nothing."""
        if self.held is nothing:
            self.held = nothing.copy()
        return self.held

    def first_span(self, task: TaskClass) -> TaskSpan:
        """The first span of a class that the job waits for."""
        span = self.next_span(task)
        assert span is not None, f"{self.name} does not wait for {task.key}"
        return span

    def next_span(self, task: TaskClass) -> TaskSpan | None:
        """The same, or None where it waits for no such tasks."""
        for span in self.waits:
            if span.task is task:
                return span
        return None


def key_of(discipline: Discipline, job: JobEntry, span: TaskSpan) -> int:
    """What a job is served by in a bucket, least first."""
    if discipline == "fair":
        key = (job.leaf.rank(job) << ADMITTED_BITS | job.admitted) << POSITION_BITS | span.position
        return key | span.optional << OPTIONAL_BIT
    if discipline == "fifo_job":
        return (job.admitted << POSITION_BITS) | span.position
    return (span.since_ms << ADMITTED_BITS | job.admitted) << POSITION_BITS | span.place


@dataclass(slots=True)
class Placement:
    """Tasks of one job's stage that start on one node. `beyond`: outside its leaf's share, or
    under the order `giving` optional. `devices`: shares, task by
    task. `reserved`: inside what is promised to its job; `revocable`: on room that is promised to others before the
    tasks are expected to end. `copy`: a second attempt of a task that runs, which counts for no queue.
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
    reserved: bool = False
    revocable: bool = False
    copy: bool = False

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
        self.reserved = False
        self.revocable = False
        self.copy = False
