"""What the gateway answers, as types for programs: the documents themselves, as they came, with the fields that most
programs read. Others are there, too: docs/http.md and /openapi.json have all. A test compares these with them.
"""

from typing import Literal, NotRequired, TypedDict

JobState = Literal["waiting", "running", "succeeded", "failed", "cancelled", "rejected"]


class Start(TypedDict):
    """When the next task starts, in Unix ms, by what is expected of those that run; None: not known."""

    earliest_ms: int
    likely_ms: int | None
    latest_ms: int | None


class ReasonRow(TypedDict):
    """One reason: in words, the numbers behind it, and what would remove it."""

    reason: str
    text: str
    numbers: dict[str, object]
    unblocks: list[str]


class Why(TypedDict):
    """Why something is as it is: the main reason first."""

    id: str
    kind: Literal["job", "stage", "task", "reservation", "queue", "node"]
    state: str
    reasons: list[ReasonRow]
    start: Start | None
    waited: dict[str, int] | None


class Placed(TypedDict):
    """Tasks that would start on a node."""

    stage: str
    node: str
    tasks: int


class Submitted(TypedDict):
    """`repeated`: the cell has the same job already. `unanswered`: the log has not answered yet; ask for the job. What
    is not required comes from a dry run alone, but for `job_state` (of a repeat: what the job is now)."""

    job: str
    state: Literal["waiting", "repeated", "unanswered"]
    warnings: list[str]
    reservation: NotRequired[str | None]
    job_state: NotRequired[JobState | None]
    dry_run: NotRequired[Literal[True] | None]
    queue: NotRequired[str | None]
    places: NotRequired[list[Placed] | None]
    waiting: NotRequired[int | None]
    start: NotRequired[Start | None]
    reasons: NotRequired[list[ReasonRow] | None]


class TaskCounts(TypedDict):
    """Tasks by state. `failed`: for good; `skipped`: after a failed stage. `failed_attempts` counts attempts."""

    total: int
    waiting: int
    starting: int
    running: int
    succeeded: int
    failed: int
    skipped: int
    failed_attempts: int


class Waiting(TypedDict):
    """Why a number of tasks wait."""

    reason: str
    tasks: int
    text: str


class StageStatus(TypedDict):
    """`failed_tasks`: which have failed for good, spans of indexes, first and last. `nodes`: how many attempts are on
    each node; `indexes`: which, None for stages of more than 100 tasks."""

    stage: str
    after: list[str]
    state: Literal["waiting", "running", "succeeded", "failed", "skipped", "unfinished"]
    tasks: TaskCounts
    failed_tasks: list[list[int]]
    why: list[Waiting]
    nodes: dict[str, int]
    indexes: dict[str, list[int]] | None
    demand: dict[str, str] | None
    labels: dict[str, str]


class FailedAttempt(TypedDict):
    """An attempt of a task that failed, and where."""

    stage: str
    index: int
    attempt: int
    node: str
    reason: str
    exit_code: int | None
    detail: str
    at_ms: int


class JobSummary(TypedDict):
    """A job in brief. `why`: what it waits for, in words. `reason`, `detail`: why it was refused, or how it ended."""

    job: str
    run: int
    state: JobState
    queue: str
    priority: int
    reservation: str | None
    user: str
    author: str
    submitted_ms: int
    started_ms: int | None
    ended_ms: int | None
    tasks: TaskCounts
    why: str | None
    reason: str | None
    detail: str


class Job(JobSummary):
    """A job. `failures`: the last 20 attempts that failed."""

    stages: list[StageStatus]
    failures: list[FailedAttempt]


class Node(TypedDict):
    """A node. `running`: tasks that hold room there."""

    node: str
    state: str
    capacity: dict[str, str]
    used: dict[str, str]
    free: dict[str, str]
    running: int
    labels: dict[str, str]
    unschedulable: str


class JobCounts(TypedDict):
    """Jobs that have not ended. `parked`: those of the waiting ones that `running_jobs_max` holds back."""

    waiting: int
    running: int
    parked: int


class QueueStatus(TypedDict):
    """A queue and those below it. Shares are dominant shares of the cell; None where a queue has none of its own."""

    queue: str
    weight: float
    guaranteed: float | None
    fair: float | None
    allocated: float
    used: dict[str, str]
    jobs: JobCounts
    children: list["QueueStatus"]


class ReservationAnswer(TypedDict):
    """What the planner said. `offer_from_ms`, `offer_to_ms`: the window in which it would say yes."""

    accepted: bool
    reason: str
    detail: str
    offer_from_ms: int | None
    offer_to_ms: int | None


class Reservation(TypedDict):
    """Capacity in time."""

    reservation: str
    user: str
    queue: str
    state: str
    answer: ReservationAnswer | None


class Changes(TypedDict):
    """What has changed behind record `since_seq` up to record `seq`. `all`: anything may have."""

    seq: int
    round: int
    time_ms: int
    since_seq: int | None
    all: bool
    changed: dict[str, object]


class ResultRow(TypedDict):
    """A line of a list of results: the first one of a task has `attempt`, each further one a `path`."""

    stage: str
    index: int
    attempt: NotRequired[int]
    left_out: NotRequired[int]
    path: NotRequired[str]
    kind: NotRequired[Literal["file", "folder", "link"]]
    size: NotRequired[int]
    changed_ms: NotRequired[int]
    problem: NotRequired[dict[str, object]]
