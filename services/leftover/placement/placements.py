"""What a round places: tasks of one stage of a job on one node, from the first note of it to the placement."""

from dataclasses import dataclass

from services.leftover.placement.entries import JobEntry
from services.leftover.placement.task_class import TaskClass
from services.leftover.placement.task_span import TaskSpan


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


def note_placed(span: TaskSpan, number: int, beyond: bool, devices: list[tuple[int, int]]) -> bool:
    """Counts one task of a span to a node; whether it is the first that the round places of the span."""
    key = number << 1 | int(beyond)
    is_first = span.placed_at < 0
    if span.placed_at == key:
        span.placed_count += 1
    elif is_first:
        span.placed_at, span.placed_count = key, 1
    else:
        if span.others is None:
            span.others = {}
        span.others[key] = span.others.get(key, 0) + 1
    if devices:
        if span.devices is None:
            span.devices = {}
        span.devices.setdefault(key, []).append(devices)
    return is_first


def placements_of(job: JobEntry, span: TaskSpan) -> list[Placement]:
    """What was noted of a span, in one piece a node; nothing is noted of it any more."""
    placements, counts = list[Placement](), [(span.placed_at, span.placed_count)]
    if span.others is not None:
        counts += span.others.items()
    for key, count in counts:
        devices = span.devices.get(key, []) if span.devices is not None else []
        number, beyond, first = key >> 1, key & 1 > 0, span.first
        placements.append(
            Placement(
                job.name,
                span.stage,
                first,
                count,
                span.attempt,
                number,
                beyond,
                span.task,
                devices,
                job.queue,
                job.user,
            )
        )
        span.first += count
    span.placed_at, span.others, span.devices = -1, None, None
    return placements
