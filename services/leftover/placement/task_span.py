"""Spans of tasks that wait: neighbouring tasks of one stage, of one class, in one attempt."""

from dataclasses import dataclass

from services.leftover.placement.task_class import TaskClass


@dataclass(slots=True, eq=False)
class TaskSpan:
    """Tasks `first` .. `first + count - 1` of a stage that could start, as attempt `attempt`.

    `stage_at`: the stage's position in the job's graph; `position`: the span's own in the list that its job came with.
    `since_ms`: since when they wait. `optional`: they need not start yet. `is_sole`: no other job of the leaf waits for
    tasks of this class, and this is the job's first span of the class.

    What a round has placed of it so far is counted by number of the node x 2, and one more where it is beyond the
    leaf's share, or optional: `placed_count` tasks at `placed_at`, the first of these numbers (-1: nothing is placed),
    and how many there are at `others`. `devices`: their device shares, where they have any.
    """

    stage: str
    stage_at: int
    task: TaskClass
    first: int
    count: int
    attempt: int
    since_ms: int
    position: int = 0
    optional: bool = False
    is_sole: bool = False
    placed_at: int = -1
    placed_count: int = 0
    others: dict[int, int] | None = None
    devices: dict[int, list[list[tuple[int, int]]]] | None = None

    def __init__(
        self, stage: str, stage_at: int, task: TaskClass, first: int, count: int, attempt: int, since_ms: int
    ) -> None:
        self.stage = stage
        self.stage_at = stage_at
        self.task = task
        self.first = first
        self.count = count
        self.attempt = attempt
        self.since_ms = since_ms
        self.position = 0
        self.optional = False
        self.is_sole = False
        self.placed_at = -1
        self.placed_count = 0
        self.others = None
        self.devices = None


NO_SPANS: list[TaskSpan] = []
"""Of jobs that wait for nothing: shared, since such jobs are many, so never to be changed in place."""


@dataclass(slots=True, eq=False)
class SoleSpans:
    """Spans of one job for whose classes no other job of its leaf waits: all required ones or all optional ones, in
    their order. They stand in the ready queue of the leaf as one entry. `segment`: the bits of their buckets above the
    class; `classes`: bit set of their classes; `lowest`: the least of these.
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
        """Takes one span of several out."""
        self.spans.remove(span)
        self.classes ^= 1 << span.task.index
