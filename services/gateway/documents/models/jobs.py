"""Answers of the gateway about jobs, as models: /openapi.json is made from them."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from schemas.reasons import PendingReason
from schemas.tasks import Failure
from services.gateway.documents import Document
from services.gateway.documents.models.cell import At, Count, JobState, Ms
from services.gateway.documents.models.why import At as Behind
from services.gateway.documents.models.why import ReasonRow, Start
from services.gateway.view.jobs import SPANS_MAX


# ---------------------------------------------------------------- jobs
class SharesNow(BaseModel):
    """What a queue has now, in parts of the cell, as `/v1/queues` tells; `queue`: the one above, where it has no shares
    of its own."""

    queue: str
    guaranteed: float | None
    fair: float | None
    allocated: float
    resource: str | None


class Placed(BaseModel):
    """Tasks that would start on a node."""

    stage: str
    node: str
    tasks: Count


class Submitted(BaseModel):
    """`repeated`: the cell has the same job already. `unanswered`: the log has not answered yet; ask for the job. All
    from `dry_run` on only in the answer of a dry run, and from `class` on only where the job would be admitted."""

    job: str
    state: Literal["waiting", "repeated", "unanswered"]
    warnings: list[str]
    reservation: Annotated[
        str | None, Field(description="of a job that names a series: the occurrence that it is bound to")
    ] = None
    job_state: Annotated[JobState | None, Field(description="of a repeat: what the job is now, null if forgotten")] = (
        None
    )
    dry_run: Literal[True] | None = None
    at: Annotated[Behind | None, Field(description="the record behind which the job would come")] = None
    class_: Annotated[str | None, Field(alias="class", description="null: not judged yet")] = None
    queue: str | None = None
    shares: SharesNow | None = None
    places: Annotated[list[Placed] | None, Field(description="what of it the next round would start")] = None
    waiting: Annotated[Count | None, Field(description="further tasks that could start, and would wait")] = None
    start: Annotated[Start | None, Field(description="when its first task would start")] = None
    reasons: Annotated[list[ReasonRow] | None, Field(description="as `/v1/why` would tell them then")] = None


class TaskCounts(BaseModel):
    """Tasks by state. `failed`: for good; `skipped`: after a failed stage. `failed_attempts` counts attempts."""

    total: Count
    waiting: Count
    starting: Count
    running: Count
    succeeded: Count
    failed: Count
    skipped: Count
    failed_attempts: Count


class Waiting(BaseModel):
    """Why a number of tasks wait."""

    reason: PendingReason
    tasks: Count
    text: str


class AttemptUsage(BaseModel):
    """What an attempt that succeeded used: its peak of memory, and CPU time in milliseconds; null: not measured."""

    index: Count
    attempt: int
    node: str
    run_ms: Count | None
    peak_memory: str | None
    cpu_ms: Count | None


class UsagePercentile(BaseModel):
    """So many per cent of the attempts that succeeded ran no longer, and used no more; null: not measured."""

    percent: int
    run_ms: Count | None
    peak_memory: str | None
    cpu_ms: Count | None


class StageUsage(BaseModel):
    """What attempts that succeeded used: the largest peak of memory, the largest of CPU (the most that one used on
    average over any 10 seconds), CPU time in all, and memory and CPU time of each in stages of at most 100 tasks, else
    percentiles (100: the most)."""

    peak_memory: str | None
    peak_cpu: str | None
    cpu_ms: Count | None
    attempts: list[AttemptUsage] | None
    percentiles: list[UsagePercentile] | None


class CountedDemand(BaseModel):
    """What a task asks for of some resources, and what it counts for in scheduling instead: by the largest peak that
    any of the latest `runs` of the job had."""

    asked: dict[str, str]
    counted: dict[str, str]
    runs: Count
    peak: dict[str, str]


class Revocable(BaseModel):
    """How many running tasks may be taken back, and for which lease first: `from_ms` to `until_ms`."""

    tasks: Count
    reservation: str
    from_ms: Ms
    until_ms: Ms
    text: str


class StageStatus(BaseModel):
    """`copies`: further attempts of slow tasks that run. `ending`: attempts of tasks that have succeeded in another
    one, which are being ended. `nodes`: how many attempts are on each node.
    `indexes`: which; null for stages of more than 100 tasks. `gang` is left out once the job has ended. `usage`: null
    where no task has succeeded, or it is forgotten."""

    stage: str
    after: list[str]
    state: Literal["waiting", "running", "succeeded", "failed", "skipped", "unfinished"]
    gang: bool | None = None
    tasks: TaskCounts
    failed_tasks: Annotated[
        list[tuple[Count, Count]],
        Field(
            description=f"which have failed for good: spans of indexes, first and last; at most {SPANS_MAX:,} of them"
        ),
    ]
    killed: Annotated[
        Count, Field(description="tasks that were at work when the job ended, which ended them; left out before")
    ] = 0
    never_started: Annotated[
        Count, Field(description="tasks that had not started when the job ended; left out before")
    ] = 0
    why: list[Waiting]
    copies: Count
    ending: Count
    nodes: dict[str, int]
    indexes: dict[str, list[int]] | None
    revocable: Annotated[Revocable | None, Field(description="null: none of its running tasks may be taken back")]
    demand: Annotated[
        dict[str, str] | None, Field(description="what a task holds; null: of a job that has ended, and forgotten")
    ]
    labels: Annotated[dict[str, str], Field(description="those of the nodes that it may run on; empty: on any")]
    counted: Annotated[CountedDemand | None, Field(description="null: a task counts for what it asks for")]
    usage: StageUsage | None


class FailedAttempt(BaseModel):
    stage: str
    index: Count
    attempt: int
    node: str
    reason: Failure
    exit_code: int | None
    detail: str
    at_ms: Ms
    run_ms: Count | None
    peak_memory: str | None
    cpu_ms: Count | None
    seq: Annotated[int, Field(description="the record that says so")] = 0


class Results(BaseModel):
    """Where a node keeps what tasks printed and wrote where they were started: a pattern of folders. `until_ms`: so
    long at the latest, null while the job lives; the oldest goes sooner where newer results need the room."""

    node: str
    folder: str
    until_ms: Ms | None


class Held(BaseModel):
    """Who holds a job, and since when."""

    by: str
    since_ms: Ms


class JobSpecAnswer(BaseModel):
    """What a job was submitted with, as `POST /v1/jobs` takes it."""

    job: str
    spec: Document
    at: At = None


class Given(BaseModel):
    """What a job has given away, received and waited for, in resource-time, as `/v1/ledger` has it."""

    donated: dict[str, str]
    received: dict[str, str]
    waited: dict[str, str]
    lost_ms: int


class JobSummary(BaseModel):
    """`why`: what it waits for, in words. `reason` and `detail`: why it was refused, or how it ended."""

    job: str
    run: Annotated[Count, Field(description="which run of the job this is; 1: the first")]
    state: JobState
    queue: str
    class_: Annotated[str | None, Field(alias="class", description="null: refused, or not judged yet")]
    priority: int
    held: Annotated[Held | None, Field(description="a user holds it: none of its tasks starts; null: nobody does")]
    reservation: Annotated[str | None, Field(description="the reservation that it names")]
    reservation_atom: Annotated[str, Field(description="the part of the reservation that it is bound to; empty: any")]
    user: str
    author: Annotated[str, Field(description="who submitted it, as the request said")]
    submitted_ms: Ms
    started_ms: Ms | None
    ended_ms: Ms | None
    tasks: TaskCounts
    why: str | None
    reason: str | None
    detail: str


class Job(JobSummary):
    """`failures`: the last 20 attempts that failed. `results`: of at most 20 nodes."""

    stages: list[StageStatus]
    failures: list[FailedAttempt]
    results: list[Results]
    account: Annotated[Given | None, Field(description="null: jobs are not planned, or it is forgotten")]
    at: At = None


class Jobs(BaseModel):
    """`total`: how many there are that are as asked for; `offset`: how many of them come before the first one here."""

    jobs: list[JobSummary]
    total: Count
    offset: Count
    ended_kept_max: Annotated[int, Field(description="ended jobs that are kept at most")]
    at: At = None
