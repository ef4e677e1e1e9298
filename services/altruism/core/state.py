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
    """One shard of a cell."""

    shard: int = 0
    of: int = 0
    """Shards at the last opening."""
    opened: int = 0
    """Seq of the last opening."""
    full: bool = False
    """Whether everything is to be written in the open round."""
    running_limits: RunningLimits = field(default_factory=RunningLimits)
    """Which jobs may run; the others wait for nothing yet."""
    history: History = field(default_factory=History)
    """How long tasks of earlier runs took."""
    jobs: dict[str, Job] = field(default_factory=dict)
    changed: dict[str, bool] = field(default_factory=dict)
    """Jobs to be asked for again."""
    answering: dict[str, bool] = field(default_factory=dict)
    """Those of the open round."""
    gangs: dict[str, dict[int, int]] = field(default_factory=dict)
    """By live job and stage position, how many attempts run of each gang that was started."""
    backing_off: dict[str, list[BackingOff]] = field(default_factory=dict)
    """By live job, what waits out a back-off."""
    policy: Policy = field(default_factory=Policy)
    nodes: dict[str, Vector] = field(default_factory=dict)
    whole: Vector = field(default_factory=dict)
    """What all nodes have."""
    capacity: Vector = field(default_factory=dict)
    """That without what was promised to reservations at the last opening."""
    promises: Promises = field(default_factory=Promises)
    reserving: dict[str, str] = field(default_factory=dict)
    """By live job, the reservation that it names."""
    outside: dict[str, bool] = field(default_factory=dict)
    """Those of them whose reservation is accepted: they are not planned and have no account (reserving.py)."""
    entitled: dict[str, int] = field(default_factory=dict)
    """Where jobs are planned, by "queue//kinds", what each is entitled to, in billionths of the cell."""
    stale: dict[str, bool] = field(default_factory=dict)
    """Jobs to be planned."""
    planning: dict[str, bool] = field(default_factory=dict)
    """Those of the open round."""
    dues: list[tuple[int, str]] = field(default_factory=list)
    """Latest starts as a heap of (when, job)."""
    queues_permille: dict[str, int] = field(default_factory=dict)
    """By path of a queue that says so, in how many of a thousand plans its jobs give."""
    settled: list[LedgerEntry] = field(default_factory=list)
    """Accounts that are closed, as long as that has not been said."""
    settling: list[LedgerEntry] = field(default_factory=list)
    """Those of the open round."""
    full_round: int = 0
    """The last round that wrote everything."""
    written: int = 0
    """Jobs written, or let run, since then."""
    copied: dict[str, dict[str, int]] = field(default_factory=dict)
    """By live job, the number of the last copy that was granted of a task, by "stage position/index". A copy stands in
    no account: the task that it is of does.
    """
    held_back: dict[str, bool] = field(default_factory=dict)
    """Jobs that gave way to others of a queue with a running limit, or that a user holds. What they wait for is kept,
    and not asked for.
    """
    on_hold: dict[str, bool] = field(default_factory=dict)
    """Jobs that users hold, and whether they might run otherwise."""
    again: dict[str, int] = field(default_factory=dict)
    """Jobs that run not for the first time, with the highest number that an attempt had before."""
