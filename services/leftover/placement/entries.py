"""What a board keeps of a job, and how all jobs of a cell are served."""

from dataclasses import dataclass, field
from typing import Literal

from services.leftover.placement.keys import JOB_CLASS_BITS
from services.leftover.placement.leaf_queue import LeafEntry
from services.leftover.placement.queue_limits import QueueEntry
from services.leftover.placement.task_class import Shape, TaskClass
from services.leftover.placement.task_span import NO_SPANS, TaskSpan
from services.leftover.placement.user_limits import NO_PLACES, UserPlaces

Discipline = Literal["fair", "fifo_job", "fifo_stage"]
"""How all jobs of a cell are served: leaf by leaf by their claims, or strictly in the order of admission, job by job or
stage by stage."""

NO_BUCKETS: list[int] = []
"""Of jobs that wait for nothing: shared, since such jobs are many, so never to be changed in place."""

NO_SHAPES: dict[str, Shape] = {}
"""Of jobs that have not run: shared, as above."""


@dataclass(slots=True, eq=False)
class JobEntry:
    """A job on the board.

    `held`: by resource position, with what this round has placed; `share`: its dominant share; `tasks`: how many it
    holds. `sort_value`: what the order of its leaf sorts by, if that has a `SortValue` (orders.py). `job_class`: whose
    pool it counts in; `under`: the queues with a maximum that it lies under; `segment`: see keys.py. `aged`: it holds
    nothing and has waited so long that it goes first.

    `spans`: what it waits for, in its order; `buckets`: the numbers of the buckets that these are in or, where nobody
    else waits for the class, would be in. `has_sole`: some are of the latter kind. They stand in the ready queue of the
    leaf themselves, the required ones as `sole_id`, the optional ones as `sole_id` - 1: negative, as no bucket is.

    `shapes`: by stage, what its tasks ask for, where some have run. `user`: whose it is, and `places`: the limits on
    that user's tasks that it lies under.
    """

    name: str
    admitted: int
    leaf: LeafEntry
    priority: int
    held: list[int]
    queue: str = ""
    segment: int = 0
    under: tuple[QueueEntry, ...] = ()
    sort_value: int = 0
    job_class: int = 0
    tasks: int = 0
    share: int = 0
    aged: bool = False
    has_sole: bool = False
    sole_id: int = 0
    spans: list[TaskSpan] = field(default_factory=list)
    buckets: list[int] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    user: str = ""
    places: tuple[UserPlaces, ...] = NO_PLACES

    def __init__(
        self,
        name: str,
        admitted: int,
        leaf: LeafEntry,
        priority: int,
        held: list[int],
        queue: str = "",
        limits: int = 0,
        under: tuple[QueueEntry, ...] = (),
        sort_value: int = 0,
        job_class: int = 0,
    ) -> None:
        """`limits`: the number of the set of limits under which it lies."""
        self.name = name
        self.admitted = admitted
        self.leaf = leaf
        self.priority = priority
        self.held = held
        self.queue = queue
        self.segment = limits << JOB_CLASS_BITS | job_class
        self.under = under
        self.sort_value = sort_value
        self.job_class = job_class
        self.tasks = 0
        self.share = 0
        self.aged = False
        self.has_sole = False
        self.sole_id = -1 - (admitted << 1)
        self.spans = NO_SPANS
        self.buckets = NO_BUCKETS
        self.shapes = NO_SHAPES
        self.user = ""
        self.places = NO_PLACES


def span_of(job: JobEntry, task: TaskClass) -> TaskSpan | None:
    """The first span of a class that a job waits for, or None."""
    for span in job.spans:
        if span.task is task:
            return span
    return None


def first_span(job: JobEntry, task: TaskClass) -> TaskSpan:
    """The first span of a class of which the job waits for tasks."""
    span = span_of(job, task)
    assert span is not None, f"{job.name} does not wait for {task.key}"
    return span
