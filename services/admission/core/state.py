"""What the sequencer's core keeps of a cell: nodes with their free room, jobs with their holds, the open round."""

from dataclasses import dataclass, field

from mypy_extensions import mypyc_attr

from largesse.lifecycle.state import Graph, JobLife, Progress, RunningLimits
from schemas import Cache, Device, JobEnd, JobSpec, Policy, Queue, ReleaseCurve, RoundOpened, Vector
from schemas.jobs import Outcome
from schemas.nodes import KnownAttempt

LIVE_JOBS_MAX = 1_000_000
"""Jobs of a cell that have not ended. One more is rejected with `too_many_jobs`."""

SKIPS_MAX = 1_000
"""Skipped inputs that are remembered. Once all of them still wait for their turn, no other is taken."""


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Allocation:
    """An attempt that holds room on its node: under which agent epoch, how much, which devices, which port (0: none)
    of the node's host."""

    attempt: int
    epoch: str
    demand: Vector
    started: bool = False
    devices: dict[str, int] | None = None
    port: int = 0

    def __init__(self, attempt: int, epoch: str, demand: Vector) -> None:
        self.attempt = attempt
        self.epoch = epoch
        self.demand = demand
        self.started = False
        self.devices = None
        self.port = 0


@dataclass(slots=True)
class NodeState:
    """A node as the log knows it. `free` can be negative after a capacity loss, and under the preset `slots`.
    `devices`: those on which tasks may start, `out`: the others that it lists; `devices_free`: milli-units free by
    index. `holds`: the attempts that hold room here, by "job/stage/index", in the order in which they were granted.
    `drain_reason`, and `drain_ends`, whether what runs here is to end by a deadline: of the drain in force.
    `unschedulable`: why its agent takes no new tasks; empty: it does. `host`, `port_first`, `port_last`: as in its
    registration, see ports.py.
    """

    epoch: str
    capacity: Vector
    free: Vector
    labels: dict[str, str] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    devices_free: dict[str, int] = field(default_factory=dict)
    draining: bool = False
    drain_reason: str = ""
    drain_ends: bool = False
    lost: bool = False
    holds: dict[str, Allocation] = field(default_factory=dict)
    unschedulable: str = ""
    host: str = ""
    port_first: int = 0
    port_last: int = 0
    out: list[Device] = field(default_factory=list)


@dataclass(slots=True)
class Copied:
    """A task that was granted a copy, as long as any attempt of it holds room: how many of them do, the number of
    the last one that was granted, and whether the task has ended."""

    attempts: int
    highest: int
    done: bool = False


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class JobState(JobLife):
    """A job that has not ended. `seq`: of its admission, which tells it from an earlier job of its name. `granted`: by
    stage position, which attempts were granted (granted.py). `held`: how many of them hold room; `extra`: how many of
    those do beside another attempt of their task, or after its success. `parked`: a queue's `running_jobs_max` holds it
    back (parked.py).
    """

    spec: JobSpec
    seq: int
    granted: list[list[int]]
    job_class: int
    held: int = 0
    extra: int = 0
    over: bool = False
    parked: bool = False

    def __init__(
        self, spec: JobSpec, graph: Graph, progress: Progress, seq: int, granted: list[list[int]], job_class: int
    ) -> None:
        self.graph = graph
        self.progress = progress
        self.tries = None
        self.spec = spec
        self.seq = seq
        self.granted = granted
        self.job_class = job_class
        self.held = 0
        self.extra = 0
        self.over = False
        self.parked = False


@dataclass(slots=True)
class Changed:
    """A live job that was changed after it was submitted. `digest`: of the spec as it was then; `seq`: of the last
    change by which grants of a round that is open do not bind any more."""

    digest: str
    seq: int = 0


@dataclass(slots=True)
class Resumed:
    """A job that runs again: see JobAdmitted."""

    run: int
    attempts: int


@dataclass(slots=True)
class Ended:
    """A name that stays taken for a while after its job's end. `job`: the job, while attempts of it still hold room.
    `run`: which run of the job that was; `attempts`: the highest number that an attempt had; `succeeded`: positions of
    the stages that did, where not all did; `moved_to`: the cell that it was cancelled for."""

    digest: str
    at_ms: int
    outcome: Outcome
    job: JobState | None = None
    run: int = 1
    attempts: int = 0
    succeeded: list[int] = field(default_factory=list)
    moved_to: str = ""


@dataclass(slots=True)
class RunPeaks:
    """Of a stage of a recurring job: the largest peak of CPU in each of its latest runs, in millicores, the last run at
    the end. `asked`: what a task asked for in all of them."""

    asked: int
    peaks: list[int]


@dataclass(slots=True)
class PartialRegistration:
    """What an agent has named so far for its registration under `epoch`, in `parts` messages."""

    epoch: str
    parts: int
    attempts: list[KnownAttempt]


@dataclass(slots=True)
class Reserved:
    """A reservation that is promised, or not answered yet. `asked`: a hash of the terms asked for last, empty where
    they were rejected; `queue_asked`: with an update, the queue. `unanswered`: requests that wait for the planner.
    `series`: of an occurrence, the series that it was requested for. `size`: bytes of the terms, the larger ones while
    others are asked for. `broken`: its promise is, and it is tried again. `leases`: what is promised, as [from ms, to
    ms], in order of their begin.
    """

    user: str
    queue: str
    asked: str
    unanswered: int
    accepted: bool = False
    deleting: bool = False
    queue_asked: str = ""
    series: str = ""
    size: int = 0
    broken: bool = False
    leases: list[list[int]] = field(default_factory=list)


@dataclass(slots=True)
class SeriesKnown:
    """A reservation that recurs. `terms`: a hash of what was asked for. `seq`: of its record. `asked_s`: the latest
    occurrence that was requested, in seconds of log time; -1: none yet.
    """

    user: str
    queue: str
    terms: str
    seq: int
    asked_s: int = -1


@dataclass(slots=True)
class TokenKnown:
    """A token that was not revoked. `expires_ms`: from then on it does not count; None: until it is revoked."""

    sha256: str
    expires_ms: int | None


@dataclass(slots=True)
class Skip:
    """An operator's word that an input is not looked at. `passed`: its turn has come and gone."""

    author: str
    reason: str
    passed: bool = False


Shape = tuple[int, ...]
"""Of a job that waits for something: its class, its request in millionths, and by stage how many tasks wait."""


@dataclass(slots=True)
class ClassTally:
    """What jobs of a class hold, wait for, and by request (millionths of the measure) how many jobs wait; `ascending`:
    those requests.
    """

    held: Vector = field(default_factory=dict)
    pending: Vector = field(default_factory=dict)
    jobs: dict[int, int] = field(default_factory=dict)
    ascending: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Demand:
    """By class; `shapes` by job that waits for something; `known`: shapes, each once; `dirty`: jobs to look at;
    `reserving`: by reservation, the live jobs that name it.
    """

    classes: list[ClassTally]
    measure: Vector
    shapes: dict[str, Shape] = field(default_factory=dict)
    known: dict[Shape, Shape] = field(default_factory=dict)
    dirty: dict[str, bool] = field(default_factory=dict)
    reserving: dict[str, dict[str, bool]] = field(default_factory=dict)


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Opening:
    """The round that waits for its answers."""

    id: str
    seq: int
    round: int
    time: int
    body: RoundOpened

    def __init__(self, id: str, seq: int, round: int, time: int, body: RoundOpened) -> None:  # noqa: A002
        self.id = id
        self.seq = seq
        self.round = round
        self.time = time
        self.body = body


@dataclass(slots=True)
class State:
    """One cell, as the sequencer knows it."""

    policy: Policy = field(default_factory=Policy)
    queues: Queue | None = None
    configured: bool = False
    """Whether a config has ever been set."""
    leaves: dict[str, bool] = field(default_factory=dict)
    submitters: dict[str, list[str]] = field(default_factory=dict)
    """By queue path, where the tree in force names any."""
    ceilings: dict[str, Vector] = field(default_factory=dict)
    """By queue path, what tasks may hold together, where the tree in force says so."""
    user_jobs_max: dict[str, int] = field(default_factory=dict)
    """By queue path, how many jobs that are not over one user may have."""
    user_running_max: dict[str, int] = field(default_factory=dict)
    """By queue path, how many tasks of one user run at a time."""
    nodes: dict[str, NodeState] = field(default_factory=dict)
    lost_ms: dict[str, int] = field(default_factory=dict)
    """When each node that is down was lost, the longest first."""
    removed: dict[str, bool] = field(default_factory=dict)
    """Nodes that are down, that an operator has removed, and that are still to be forgotten."""
    known: dict[str, PartialRegistration] = field(default_factory=dict)
    """By node, attempts named for a registration that has not come yet."""
    capacity: Vector = field(default_factory=dict)
    jobs: dict[str, JobState] = field(default_factory=dict)
    changed: dict[str, Changed] = field(default_factory=dict)
    """Of live jobs, those that users have changed."""
    runs: dict[str, Resumed] = field(default_factory=dict)
    """Of live jobs, those that run not for the first time."""
    on_hold: dict[str, bool] = field(default_factory=dict)
    """Of live jobs, those of which no task may start."""
    waits: dict[str, dict[str, bool]] = field(default_factory=dict)
    """Of live jobs, those that come after others which have not ended, and which (after_jobs.py)."""
    waited_by: dict[str, dict[str, bool]] = field(default_factory=dict)
    """The same by the other: which jobs come after it."""
    held_too: dict[str, bool] = field(default_factory=dict)
    """Of those that wait, the ones that somebody holds besides."""
    released: dict[str, bool] = field(default_factory=dict)
    """Jobs whose release is still to be announced."""
    live_tasks: int = 0
    """Tasks of all jobs that are not over."""
    user_tasks: dict[str, int] = field(default_factory=dict)
    """The same of each user; "": of jobs that name no user."""
    user_jobs: dict[str, dict[str, int]] = field(default_factory=dict)
    """By user, how many jobs are not over, by the path of each queue that holds them or is above them."""
    ended: dict[str, Ended] = field(default_factory=dict)
    over: list[JobEnd] = field(default_factory=list)
    """Jobs whose end is still to be announced."""
    over_cause: str = ""
    moved: dict[str, str] = field(default_factory=dict)
    """Of those, the ones that were cancelled for another cell, and which."""
    skips: dict[str, Skip] = field(default_factory=dict)
    """By "topic/offset", the inputs that an operator has skipped, the oldest first."""
    tokens: dict[str, TokenKnown] = field(default_factory=dict)
    """By name."""
    tokens_made: bool = False
    """Whether there has ever been a token."""
    reservations: dict[str, Reserved] = field(default_factory=dict)
    """By name."""
    series: dict[str, SeriesKnown] = field(default_factory=dict)
    """Reservations that recur, by name."""
    proposed: int = 0
    """Seq of a solver's proposal that is not answered; 0: there is none."""
    running_limits: RunningLimits = field(default_factory=RunningLimits)
    """Which jobs may run, kept where a queue has such a limit (parked.py)."""
    through: dict[str, bool] = field(default_factory=dict)
    """Jobs that one of these limits counts."""
    open: Opening | None = None
    round: int = 0
    opened_ms: int | None = None
    needs_round: bool = False
    """Whether something has happened since the last opening that can change the schedule."""
    wake_ms: int | None = None
    """The least wake-up of the last closing's winners."""
    wake_forecast_ms: dict[str, int] = field(default_factory=dict)
    """Those of the latest Releases and Plans."""
    forecast_seq: dict[str, int] = field(default_factory=dict)
    unjudged: dict[str, bool] = field(default_factory=dict)
    """Live jobs whose class is to be judged at the next opening that has capacity."""
    used: Vector = field(default_factory=dict)
    """What attempts hold in all."""
    copied: dict[str, dict[str, Copied]] = field(default_factory=dict)
    """By job, live or ended, the tasks of which several attempts hold room, as "stage/index" (copies.py)."""
    measure: Vector = field(default_factory=dict)
    """The capacity by which requests are compared with each other (demand.py)."""
    pools_ppm: list[int] = field(default_factory=list)
    """Of the last opening."""
    curves: list[ReleaseCurve] = field(default_factory=list)
    """The forecast in force."""
    curves_ms: int = 0
    """When it was made."""
    demand: Cache[Demand | None] = None
    """What classes hold and wait for, while they have pools."""
    peaks: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of live jobs, by stage, the largest peak of CPU of tasks that succeeded; UNMEASURED: that of one is not known
    (peaks.py).
    """
    run_peaks: dict[str, RunPeaks] = field(default_factory=dict)
    """The same of earlier runs, by "recurring name/stage/command/user", the latest at the end."""
