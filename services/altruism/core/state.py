"""What altruism keeps of a cell: how far each live job has come, what of it could start, what waits out a back-off."""

from dataclasses import dataclass, field

from mypy_extensions import mypyc_attr

from largesse.lifecycle.run_times import NOTHING_SEEN, History, Seen
from largesse.lifecycle.state import Graph, JobLife, Progress, Promises, RunningLimits, Span
from schemas import LedgerEntry, Policy, Vector


@dataclass(slots=True)
class BackingOff:
    """Tasks that failed and wait out their back-off."""

    at_ms: int
    stage: int
    first: int
    count: int
    attempt: int


@dataclass(slots=True)
class Started:
    """Tasks of a stage that were granted at the same moment and have not ended, as far as they can be told apart."""

    start_ms: int
    count: int


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Late:
    """`count` tasks of a stage start at the latest at `at_ms` (log time), as many more every `every_ms` after that,
    `waves` times in all."""

    at_ms: int
    count: int
    waves: int
    every_ms: int

    def __init__(self, at_ms: int, count: int, waves: int, every_ms: int) -> None:
        self.at_ms = at_ms
        self.count = count
        self.waves = waves
        self.every_ms = every_ms


@dataclass(slots=True)
class Planned:
    """A job's plan in force: when the job is over, what it was entitled to (billionths of the cell), whether it gives,
    and which jobs are entitled to the same (`key`). By stage position, `late`: latest starts; `waiting`: tasks that
    waited then. `due_ms`: the next latest start that was noted.
    """

    deadline_ms: int
    share: int
    gives: bool
    key: str = ""
    vector: Vector = field(default_factory=dict)
    due_ms: int | None = None
    late: dict[int, list[Late]] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)


NO_WAITS: dict[int, list[Span]] = {}
NOTHING_STARTED: dict[int, list[Started]] = {}
_NONE: list[int] = []
"""Of jobs for which that is so: shared, since such jobs are many, and never changed."""


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Account:
    """What a job has donated and received up to `since_ms`, in base units x ms; what it is entitled to (`vector`) and
    holds since. `waited`: what it lacked for tasks that had to start; `required`: by stage position, how many of those
    wait. `promised_ms`: when it would be over by its own plan, see ledger.py."""

    since_ms: int
    promised_ms: int
    vector: Vector = field(default_factory=dict)
    held: Vector = field(default_factory=dict)
    donated: Vector = field(default_factory=dict)
    received: Vector = field(default_factory=dict)
    waited: Vector = field(default_factory=dict)
    required: dict[int, int] = field(default_factory=dict)

    def __init__(self, since_ms: int, promised_ms: int) -> None:
        self.since_ms = since_ms
        self.promised_ms = promised_ms
        self.vector = {}
        self.held = {}
        self.donated = {}
        self.received = {}
        self.waited = {}
        self.required = {}


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Job(JobLife):
    """A live job. By stage position, `waits`: what could start now (waits.py reads and changes it); `started`: where
    jobs are planned, what runs, those that started first before the others. `fresh_ms`: since when all its stages
    without parents wait, where nothing of it has been granted yet: then that is what waits; -1: something has, or it
    may not run yet. `derailed`: tasks have failed or were lost since the last plan. `admitted`: seq of its admission.
    `seen`: by stage, how long its tasks ran, where somebody may ask for it; `from_history`: positions of the stages
    whose run time is known from earlier runs; `altruism_permille`: in how many of a thousand plans it gives, where it
    says. `account`: what it has given away and received, where it is planned by this shard. `began`: it might run at
    some time, and so it waits for what its graph says. `user`: whose it is; "": nobody's that is named.
    """

    queue: str = ""
    admitted: int = 0
    waits: dict[int, list[Span]] = field(default_factory=dict)
    started: dict[int, list[Started]] = field(default_factory=dict)
    plan: Planned | None = None
    derailed: bool = False
    seen: dict[str, Seen] = field(default_factory=dict)
    from_history: list[int] = field(default_factory=list)
    fresh_ms: int = -1
    altruism_permille: int | None = None
    account: Account | None = None
    began: bool = False
    user: str = ""

    def __init__(self, graph: Graph, progress: Progress, queue: str = "", admitted: int = 0, user: str = "") -> None:
        self.graph = graph
        self.progress = progress
        self.queue = queue
        self.admitted = admitted
        self.tries = None
        self.waits = NO_WAITS
        self.started = NOTHING_STARTED
        self.plan = None
        self.derailed = False
        self.seen = NOTHING_SEEN
        self.from_history = _NONE
        self.fresh_ms = -1
        self.altruism_permille = None
        self.account = None
        self.began = False
        self.user = user


@dataclass(slots=True)
class State:
    """One shard of a cell. `running_limits`: which jobs may run; the others wait for nothing yet. `history`: earlier
    runs. `changed`: jobs to be asked for again; `answering`: those of the open round. `gangs`: by live job, how many
    attempts run of each of its gangs that was started, by stage position; `backing_off`: by live job, what waits out a
    back-off. `of`: shards at the last opening, and `opened` its seq; `full`: everything is to be written in the open
    round. `full_round`: the last round that wrote everything; `written`: jobs written, or let run, since then.

    `whole`: what all nodes have; `capacity`: that without what was promised to reservations at the last opening.

    Where jobs are planned, `entitled`: by "queue//kinds", what each such job is entitled to, in billionths of the cell;
    `stale`: jobs to be planned, `planning`: those of the open round; `dues`: a heap of (when, job): a latest start.
    `queues_permille`: by path of a queue that says so, in how many of a thousand plans its jobs give. `settled`:
    accounts that are closed and of which that has not been said, `settling`: those of the open round.

    `reserving`: by live job, the reservation that it names; `outside`: those of them whose reservation is accepted.
    These are not planned and have no account: reserving.py.

    `copied`: by live job, the number of the last copy that was granted of a task, by "stage position/index". A copy
    stands in no account: the task that it is of does.

    `held_back`: jobs that gave way to others of a queue with a running limit, or that a user holds. What they wait for
    is kept, and not asked for. `on_hold`: jobs that users hold, and whether they might run otherwise. `again`: jobs
    that run not for the first time, with the highest number that an attempt had before.
    """

    shard: int = 0
    of: int = 0
    opened: int = 0
    full: bool = False
    running_limits: RunningLimits = field(default_factory=RunningLimits)
    history: History = field(default_factory=History)
    jobs: dict[str, Job] = field(default_factory=dict)
    changed: dict[str, bool] = field(default_factory=dict)
    answering: dict[str, bool] = field(default_factory=dict)
    gangs: dict[str, dict[int, int]] = field(default_factory=dict)
    backing_off: dict[str, list[BackingOff]] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    nodes: dict[str, Vector] = field(default_factory=dict)
    whole: Vector = field(default_factory=dict)
    capacity: Vector = field(default_factory=dict)
    promises: Promises = field(default_factory=Promises)
    reserving: dict[str, str] = field(default_factory=dict)
    outside: dict[str, bool] = field(default_factory=dict)
    entitled: dict[str, int] = field(default_factory=dict)
    stale: dict[str, bool] = field(default_factory=dict)
    planning: dict[str, bool] = field(default_factory=dict)
    dues: list[tuple[int, str]] = field(default_factory=list)
    queues_permille: dict[str, int] = field(default_factory=dict)
    settled: list[LedgerEntry] = field(default_factory=list)
    settling: list[LedgerEntry] = field(default_factory=list)
    full_round: int = 0
    written: int = 0
    copied: dict[str, dict[str, int]] = field(default_factory=dict)
    held_back: dict[str, bool] = field(default_factory=dict)
    on_hold: dict[str, bool] = field(default_factory=dict)
    again: dict[str, int] = field(default_factory=dict)
