"""What fairness keeps of a cell: what queues ask for, what tasks hold since when, what has been published."""

from dataclasses import dataclass, field

from mypy_extensions import mypyc_attr

from largesse.lifecycle.run_times import NOTHING_SEEN, History, Seen
from largesse.lifecycle.state import Graph, JobLife, Progress, Promises, RunningLimits
from schemas import Cache, Policy, Queue, QueueShare, Vector
from services.fairness.accounts.tree_accounts import TreeAccounts
from services.fairness.core.capacity import Capacity
from services.fairness.core.caps import Caps
from services.fairness.core.demands import Demands
from services.fairness.core.directions import Directions
from services.fairness.core.guarantees import GuaranteeWatch
from services.fairness.core.rounds import Rounds
from services.fairness.core.runs import Runs
from services.fairness.filling.cell_levels import CellLevels
from services.fairness.filling.unit_levels import UnitLevels

NOTHING_RESTS: dict[int, int] = {}
"""Of jobs for which that is so: shared, and never changed."""


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Job(JobLife):
    """A live job and how far it has come. `began`: neither a user nor a `running_jobs_max` holds it back, so it asks.
    `queue` is empty while its reservation is accepted: it is outside the tree then. `seen`: by stage, how long its
    tasks ran, where it may be needed. `resting`: by position of a stage with a `running_max`, how many of its tasks are
    in back-off. `user`: whose it is; "": nobody's that is named.
    """

    queue: str
    user: str = ""
    began: bool = False
    seen: dict[str, Seen] = field(default_factory=dict)
    resting: dict[int, int] = field(default_factory=dict)

    def __init__(self, queue: str, graph: Graph, progress: Progress, user: str = "") -> None:
        self.graph = graph
        self.progress = progress
        self.tries = None
        self.queue = queue
        self.user = user
        self.began = False
        self.seen = NOTHING_SEEN
        self.resting = NOTHING_RESTS


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Allocation:
    """What tasks of one stage hold, each as much as `demand`; outlives the job. `since`: task index -> log time (ms) of
    the closing that granted it."""

    leaf: str
    demand: Vector
    user: str = ""
    since: dict[int, int] = field(default_factory=dict)

    def __init__(self, leaf: str, demand: Vector, user: str = "") -> None:
        self.leaf = leaf
        self.demand = demand
        self.user = user
        self.since = {}


@dataclass(slots=True)
class Asked:
    """Tasks of a user in a leaf that each ask for `demand`, in the units that count: so many wait, and of those so many
    are in back-off. `cut`, `cut_rests`: how many of them the sums of the leaf are without."""

    demand: Vector
    waits: int = 0
    rests: int = 0
    cut: int = 0
    cut_rests: int = 0


@dataclass(slots=True)
class UserTasks:
    """What a user has in a leaf: tasks that run, and by what they ask for those that wait."""

    runs: int = 0
    asked: dict[str, Asked] = field(default_factory=dict)


@dataclass(slots=True)
class Users:
    """Users where only so many of their tasks run at a time (user_demand.py). `most`: by path of a queue, how many;
    `tasks`: by user and leaf, what it has under such limits; `touched`: users of whom that has changed since the last
    opening.
    """

    most: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, dict[str, UserTasks]] = field(default_factory=dict)
    touched: dict[str, bool] = field(default_factory=dict)


@dataclass(slots=True)
class Freshness:
    """What the next round has to work out again.

    Levels: `refill_due`, the next round does so; `refills`, the one that was opened last does. Until then, since the
    last round that did (tolerance.py): `asked_before`, what those leaves asked for then, by set of kinds, that ask for
    something else now; `caps_moved`, by how much caps have moved, in billionths; `spared_ms`, when the first round did
    without; `fitted`, all demands fitted into the cell then.

    Entitlements of planned jobs: `entitlement_due`, jobs, queues or capacity have changed since the last opening;
    `entitles`, the round of that one works them out again.
    """

    refill_due: bool = True
    refills: bool = True
    asked_before: dict[str, dict[str, Vector]] = field(default_factory=dict)
    caps_moved: int = 0
    spared_ms: int | None = None
    fitted: bool = False
    entitlement_due: bool = False
    entitles: bool = False


@dataclass(slots=True)
class Backoff:
    """Tasks that failed, each with this demand, and are asked for again at `at_ms` only; None: of a gang some still
    run."""

    at_ms: int | None
    tasks: int
    demand: Vector


@dataclass(slots=True)
class Backoffs:
    """What waits out a back-off. `by_job`: by "stage/index", a gang by "stage"; `ends`: a heap of when, for which job
    and what.
    """

    by_job: dict[str, dict[str, Backoff]] = field(default_factory=dict)
    ends: list[tuple[int, str, str]] = field(default_factory=list)


@dataclass(slots=True)
class Reserving:
    """A live job that names a reservation, and the queue that it is of while that is not accepted."""

    reservation: str
    queue: str


@dataclass(slots=True)
class State:
    """One cell."""

    policy: Policy = field(default_factory=Policy)
    queues: Queue | None = None
    users: Users = field(default_factory=Users)
    capacity: Capacity = field(default_factory=Capacity)
    promises: Promises = field(default_factory=Promises)
    reserving: dict[str, Reserving] = field(default_factory=dict)
    """By live job, the reservation that it names."""
    running_limits: RunningLimits = field(default_factory=RunningLimits)
    """Which jobs may run."""
    history: History = field(default_factory=History)
    """How long tasks of earlier runs took."""
    jobs: dict[str, Job] = field(default_factory=dict)
    on_hold: dict[str, bool] = field(default_factory=dict)
    """Jobs that users hold: what they run counts, what they wait for does not."""
    demands: Demands = field(default_factory=Demands)
    """What leaf queues ask for and hold."""
    held: dict[str, Allocation] = field(default_factory=dict)
    """Keyed "job/stage"."""
    runs: Runs = field(default_factory=Runs)
    backoffs: Backoffs = field(default_factory=Backoffs)
    levels: UnitLevels = field(default_factory=UnitLevels)
    """Those in force."""
    shares: dict[str, QueueShare] = field(default_factory=dict)
    """What was published of queues."""
    watch: GuaranteeWatch = field(default_factory=GuaranteeWatch)
    """Whose guarantees do not hold."""
    caps: Caps = field(default_factory=Caps)
    freshness: Freshness = field(default_factory=Freshness)
    rounds: Rounds = field(default_factory=Rounds)
    entitled: dict[str, int] = field(default_factory=dict)
    """By queue and set of kinds, what jobs are entitled to, as published."""
    directions: Cache[Directions | None] = None
    filled: Cache[CellLevels | None] = None
    accounts: Cache[TreeAccounts | None] = None
