"""What the gateway's view keeps of jobs."""

from bisect import bisect_left
from dataclasses import dataclass, field, fields
from json import dumps, loads
from operator import attrgetter
from sys import intern
from typing import Any, Literal

from largesse.lifecycle.job_life import given_up, is_skipped
from largesse.lifecycle.state import JobLife
from schemas import JobSpec, Vector
from schemas.jobs import Counted
from schemas.reasons import Reason
from schemas.tasks import Failure

SPANS_MAX = 1_000
"""Spans of failed tasks of a stage that are kept."""

JobOutcome = Literal["succeeded", "failed", "cancelled", "rejected"]


@dataclass(slots=True)
class FailedAttempt:
    """One attempt that ended without success, by record `seq`."""

    stage: str
    index: int
    attempt: int
    node: str
    reason: Failure
    exit_code: int | None
    detail: str
    at_ms: int
    run_ms: int | None = None
    peak_mib: int | None = None
    cpu_ms: int | None = None
    seq: int = 0


@dataclass(slots=True)
class StageUse:
    """What attempts that succeeded have used, by task index, as long as the highest one: `attempts` their numbers (0:
    none has succeeded), how long they ran, their peak of memory and their CPU time (-1: not measured), and the record
    that granted them. `cpu_peak`: the largest peak of CPU of any of them, in millicores (-1: none was measured).
    """

    attempts: list[int] = field(default_factory=list)
    run_ms: list[int] = field(default_factory=list)
    peak_mib: list[int] = field(default_factory=list)
    cpu_ms: list[int] = field(default_factory=list)
    cpu_peak: int = -1
    granted: list[int] = field(default_factory=list)


AFTER_JOBS = "after_jobs"
"""Who holds a job that comes after others."""


@dataclass(slots=True)
class Hold:
    """A job is held: by which user, or by AFTER_JOBS, and since when."""

    by: str
    since_ms: int


Mode = Literal["waiting", "starting", "running"]


@dataclass(slots=True)
class Account:
    """What a job's time went to. `waited`: in all, by reason, or what else it did; `beside`: what further tasks waited
    for while some ran. The rest is what it is now, since `since_ms`: `mode`; `reason`, or the `clock` of a class with
    its totals by then (`mark`), where nothing is recorded, `reason` stands; `until_ms`: the end of
    a back-off. `tasks`: how many of its tasks wait. `ran_ms`: when it began to run, or came further last, with `left`
    tasks to come; `unsure_ms`: what it had run before, perhaps for nothing. `kinds`: classes of stages, by position.
    """

    since_ms: int
    mode: Mode = "waiting"
    reason: Reason | None = None
    clock: str = ""
    mark: dict[str, int] = field(default_factory=dict)
    until_ms: int = 0
    tasks: int = 0
    left: int = 0
    ran_ms: int = 0
    unsure_ms: int = 0
    kinds: dict[int, str] = field(default_factory=dict)
    waited: dict[str, int] = field(default_factory=dict)
    beside: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class ClassClock:
    """How long tasks of a class have waited for each reason since some of them began to. `kind`: the class; `limits`:
    of those in one queue alone, since a `max` counts for it: by queue and resource, how much is asked for at once.
    `jobs`: that look at it.
    """

    reason: str
    since_ms: int
    kind: str
    limits: list[tuple[str, str, int]] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)
    jobs: int = 0

    def turn(self, reason: str, time_ms: int) -> None:
        """Another reason holds from now on."""
        if reason != self.reason:
            self.totals = self.at(time_ms)
            self.reason, self.since_ms = reason, time_ms

    def at(self, time_ms: int) -> dict[str, int]:
        """The totals by then."""
        totals = dict(self.totals)
        add_ms(totals, self.reason, time_ms - self.since_ms)
        return totals


def add_ms(to: dict[str, int], reason: str, ms: int) -> None:
    """Adds a length of time to those of a reason."""
    if ms > 0:
        to[reason] = to.get(reason, 0) + ms


STRIKES_KEPT = 5
"""Struck grants that are kept of each live job, the last ones."""


@dataclass(slots=True)
class StruckRow:
    """A grant that newer facts had overtaken when record `seq` closed its round."""

    seq: int
    at_ms: int
    stage: str
    first: int
    count: int
    node: str
    reason: str


@dataclass
class LiveJob(JobLife):
    """A job that has not ended. Lists are by stage position: tasks that run, tasks granted and not begun, tasks
    asked for, failures that counted, tasks that have failed for good and which (see `add_span`), the end of the last
    back-off, by task index the node that it was granted last
    ("": none; as long as the highest index granted), by node how many attempts are there now, how many of those are
    copies, beside another attempt of their task, and how many are to end, since it has succeeded. `admitted`: seq of
    its admission. `began`: seq of the record since which it may run; 0: the queue's `running_jobs_max` holds it
    back. `hold`: a user holds it, whatever `began` says. `run`: which of this job; `kept`: by position, stages
    that stay as they succeeded in an earlier run, with the seq of that run's admission. `counted`: by position, stages
    whose tasks count for less than they ask for: `spec` has what they ask for, `graph` what they count for."""

    # Written out: where the base is compiled, `slots=True` would make slots of its fields too, which hide them.
    __slots__ = (
        "account",
        "admitted",
        "asked",
        "author",
        "began",
        "copies",
        "counted",
        "ending",
        "failed",
        "failed_tasks",
        "failures",
        "given_up",
        "hold",
        "job_class",
        "kept",
        "nodes",
        "places",
        "retry_ms",
        "run",
        "running",
        "spec",
        "started_ms",
        "starting",
        "strikes",
        "submitted_ms",
        "used",
    )

    spec: JobSpec
    job_class: int
    author: str
    admitted: int
    submitted_ms: int
    running: list[int]
    starting: list[int]
    asked: list[int]
    failed: list[int]
    given_up: list[int]
    failed_tasks: list[list[list[int]]]
    retry_ms: list[int]
    places: list[list[str]]
    nodes: list[dict[str, int]]
    copies: list[int]
    ending: list[int]
    began: int
    hold: Hold | None
    run: int
    kept: dict[int, int]
    counted: dict[int, Counted]
    started_ms: int | None
    failures: list[FailedAttempt]
    used: list[StageUse]
    account: Account
    strikes: list[StruckRow]


def succeeded_of(job: LiveJob, at: int) -> int:
    """How many tasks of a stage have succeeded."""
    return 0 if is_skipped(job, at) else job.graph.tasks[at] - job.progress.left[at] - given_up(job, at)


def waiting_of(job: LiveJob, at: int) -> int:
    """How many tasks of a stage wait. A gang that has failed for good waits for nothing, though some of it may run."""
    return max(0, job.progress.left[at] - job.running[at] - job.starting[at])


def add_span(spans: list[list[int]], first: int, last: int) -> None:
    """Adds tasks that are not among them yet to spans of [first, last], which stay in order and apart. Of more than
    SPANS_MAX those of the highest tasks are forgotten.
    """
    at = bisect_left(spans, [first])
    if at < len(spans) and spans[at][0] == last + 1:
        last = spans.pop(at)[1]
    if at and spans[at - 1][1] == first - 1:
        spans[at - 1][1] = last
    else:
        spans.insert(at, [first, last])
    del spans[SPANS_MAX:]


def held_in(job: LiveJob, at: int, waiting: int) -> int:
    """How many of the waiting tasks of a stage its `running_max` keeps from starting, even where there is room."""
    stage = job.graph.stages[at]
    if stage.running_max is None:
        return 0
    may_start = max(job.asked[at], stage.width - job.running[at] - job.starting[at])
    return max(0, waiting - may_start)


CountedRow = tuple[Vector, Vector, int, Vector]


def counted_row(job: LiveJob, at: int) -> CountedRow | None:
    """What an ended job keeps of what its tasks counted for."""
    counted = job.counted.get(at)
    if counted is None:
        return None
    asked = {kind: job.spec.stages[at].demand[kind] for kind in counted.demand}
    return asked, counted.demand, counted.runs, counted.peak


@dataclass(slots=True)
class EndedStage:
    """What came of one stage. `failed` counts attempts, `given_up` tasks that failed for good, at most `max_failed` of
    which leave the stage a success; `failed_tasks`: which (see `add_span`). `killed`: tasks that were at work when the
    job ended; `never_started`: those that had not begun by then. `skipped`: none of it ran, since a stage before it
    failed. `counted`: what a task asked for, what it counted for, how many runs that was from, and their peak; None: it
    counted for what it asked for."""

    stage: str
    after: list[str]
    tasks: int
    succeeded: int
    failed: int
    killed: int = 0
    never_started: int = 0
    given_up: int = 0
    max_failed: int = 0
    skipped: bool = False
    counted: CountedRow | None = None
    failed_tasks: list[list[int]] = field(default_factory=list)


@dataclass(slots=True)
class EndedJob:
    """A job that is over, or was refused by the cell (`reason` says why, `detail` in words), of `tasks` tasks. `rest`:
    its stages, the attempts that failed, the stages that stayed from an earlier run and what its time went to, as one
    text: thousands of such jobs are kept, few are looked at, and a text has a size.
    """

    job: str
    queue: str
    user: str
    priority: int
    author: str
    submitted_ms: int
    ended_ms: int
    outcome: JobOutcome
    detail: str
    rest: str
    job_class: str | None = None
    started_ms: int | None = None
    reason: str | None = None
    admitted: int = 0
    reservation: str | None = None
    reservation_atom: str = ""
    run: int = 1
    tasks: int = 0

    def __post_init__(self) -> None:
        # The same few of thousands of jobs.
        self.queue, self.user, self.author = intern(self.queue), intern(self.user), intern(self.author)

    @property
    def stages(self) -> list[EndedStage]:
        """What came of each stage."""
        return [EndedStage(*stage) for stage in self._rest()[0]]

    @property
    def failures(self) -> list[FailedAttempt]:
        """The last attempts that failed."""
        return [FailedAttempt(*failed) for failed in self._rest()[1]]

    @property
    def kept(self) -> dict[int, int]:
        """As `LiveJob` has it."""
        return {int(at): seq for at, seq in self._rest()[2].items()}

    @property
    def size(self) -> int:
        """Characters that grow with what the job was."""
        return len(self.rest) + len(self.detail)

    @property
    def waited(self) -> tuple[dict[str, int], dict[str, int]]:
        """What its time went to, and what further tasks waited for while some ran (see Account)."""
        waited, beside = self._rest()[3]
        return waited, beside

    @property
    def seq(self) -> int:
        """The record by which it is over."""
        seq: int = self._rest()[4]
        return seq

    def _rest(self) -> list[Any]:
        rest: list[Any] = loads(self.rest)
        return rest


_STAGE_FIELDS = attrgetter(*(each.name for each in fields(EndedStage)))
_FAILURE_FIELDS = attrgetter(*(each.name for each in fields(FailedAttempt)))


def rest_of(
    stages: list[EndedStage],
    failures: list[FailedAttempt],
    kept: dict[int, int],
    seq: int,
    account: Account | None = None,
) -> str:
    """The text that an EndedJob has of these."""
    waited = ({}, {}) if account is None else (account.waited, account.beside)
    rows = (
        [_STAGE_FIELDS(stage) for stage in stages],
        [_FAILURE_FIELDS(failed) for failed in failures],
        kept,
        waited,
        seq,
    )
    return dumps(rows, separators=(",", ":"))
