"""What leftover keeps of a cell: nodes, jobs and what they ask for, room that is held, levels, and why classes wait."""

from dataclasses import dataclass, field

from mypy_extensions import mypyc_attr

from largesse.lifecycle.failing_nodes import NodeFailures
from largesse.lifecycle.queue_policy import Group
from largesse.lifecycle.run_times import History
from largesse.lifecycle.state import Promises, RunningLimits
from schemas import (
    Cache,
    ClassWait,
    Device,
    DeviceShare,
    Grant,
    HeldRoom,
    Level,
    Policy,
    PoolBreach,
    PromisedWait,
    Queue,
    Revocable,
    Stage,
    Vector,
)
from services.leftover.core.job import Job
from services.leftover.core.reservations.leases import Leases
from services.leftover.core.shadow.cell import ShadowCell
from services.leftover.placement.backfill.timeline import End
from services.leftover.placement.board import Board
from services.leftover.placement.placements import Placement


@dataclass(slots=True)
class Node:
    """A node as far as placement goes. `unschedulable`: its agent takes no new tasks."""

    epoch: str
    capacity: Vector
    labels: dict[str, str]
    devices: list[Device]
    draining: bool = False
    lost: bool = False
    unschedulable: bool = False


NOWHERE_COUNTED: list[str] = []
"""Of tasks that no rule counts: shared, since most are like that. Nobody changes it."""


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True, eq=False)
class Expected:
    """When a task that runs is expected to end, and what it gives back then (`end`), by its live job (None: it is
    over), its stage there and what that is expected to take. `path`: the queue it is served in.
    """

    end: End
    path: str
    job: Job | None
    stage: Stage | None
    lasts_ms: int

    def __init__(self, end: End, path: str) -> None:
        self.end = end
        self.path = path
        self.job = None
        self.stage = None
        self.lasts_ms = 0


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Allocation:
    """One task's room on a node, since `start_ms`; outlives its job until the node gives it back. `counted`: the
    counters of rules that it counts in (placement/apart.py); `expected`: its end, once a round of this board has asked
    for it.
    """

    job: str
    stage: str
    queue: str
    start_ms: int
    demand: Vector
    devices: list[DeviceShare]
    user: str = ""
    attempt: int = 0
    counted: list[str] = field(default_factory=list)
    expected: Cache[Expected | None] = field(default=None, repr=False, compare=False)

    def __init__(
        self,
        job: str,
        stage: str,
        queue: str,
        start_ms: int,
        demand: Vector,
        devices: list[DeviceShare],
        user: str = "",
        attempt: int = 0,
    ) -> None:
        self.job = job
        self.stage = stage
        self.queue = queue
        self.start_ms = start_ms
        self.demand = demand
        self.devices = devices
        self.user = user
        self.attempt = attempt
        self.counted = NOWHERE_COUNTED
        self.expected = None


@dataclass(slots=True)
class Reserving:
    """A live job that names a reservation, or a part of it (`atom`), with what runs of it: "stage/index" -> node."""

    reservation: str
    atom: str
    runs: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Lent:
    """A revocable attempt that runs. `taken`: a closing has taken it back."""

    attempt: int
    taken: bool = False


@dataclass(slots=True)
class ClaimedRoom:
    """Room of a node that was taken back for a leaf, by the class of tasks that it is for: see `HeldRoom`."""

    leaf: str
    room: HeldRoom
    tasks: int


@dataclass(slots=True)
class TakenBack:
    """How many closings took attempts of a stage back for promises, and for how long the longest of these had run."""

    times: int = 0
    longest_ms: int = 0


@dataclass(slots=True)
class Copied:
    """A task that was granted a copy: the nodes where attempts of it hold room, and the one of them whose room
    counts for its queue (""; none, the task has ended)."""

    nodes: list[str]
    counted: str


@dataclass(slots=True)
class Run:
    """A task that runs: since when and where, and the number of the last attempt of it that was granted. `alone`: no
    copy of it is made any more, since one has failed."""

    start_ms: int
    node: str
    attempt: int
    alone: bool = False


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True, eq=False)
class Ending:
    """What runs on a node in the `order` of its expected ends, where nothing but time changes those
    (backfill/running.py), as of the last round that asked. `started`: what has started there since, by task;
    `has_ended`: some has, and says so by having no expected end any more. `paths`: the queues that all of it is served
    in, and perhaps others.
    """

    order: list[Allocation]
    started: dict[str, Allocation]
    has_ended: bool
    paths: dict[str, bool]

    def __init__(self, order: list[Allocation], paths: dict[str, bool]) -> None:
        self.order = order
        self.started = {}
        self.has_ended = False
        self.paths = paths


@dataclass(slots=True)
class StageRuns:
    """What runs of a stage, by task, in order of start; and how long those took that have succeeded (ascending)."""

    runs: dict[int, Run] = field(default_factory=dict)
    ran_ms: list[int] = field(default_factory=list)


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Watch:
    """When tasks that run become stragglers (copies/overdue.py), by (job, stage position): `late_ms`, when the first
    may have a copy, also as a `heap` of (ms, job, stage position), with entries that say nothing any more;
    `overdue`: stages of which that has come, which are not in the heap; `changed`: of which something may be otherwise
    by now.
    """

    late_ms: dict[tuple[str, int], int] = field(default_factory=dict)
    heap: list[tuple[int, str, int]] = field(default_factory=list)
    overdue: dict[tuple[str, int], bool] = field(default_factory=dict)
    changed: dict[tuple[str, int], bool] = field(default_factory=dict)


@dataclass(slots=True)
class Lately:
    """A class of tasks that ask for GPUs: how many were admitted lately, and its weight in the mix in force."""

    demand: Vector
    labels: dict[str, str]
    count: int = 0
    weight: int = 0


@dataclass(slots=True)
class Mix:
    """Classes of tasks that ask for GPUs, by key (mix.py). `tasks`: the sum of their counts; `fresh`: how many of them
    were counted since the weights were made.
    """

    classes: dict[str, Lately] = field(default_factory=dict)
    tasks: int = 0
    fresh: int = 0


@dataclass(slots=True)
class Decided:
    """What this instance answered to the open round, until the closing says what binds."""

    asks_seen: list[str]
    shares_seen: str
    placements: list[Placement]
    grants: list[Grant]
    held: list[HeldRoom]

    def __init__(
        self,
        asks_seen: list[str],
        shares_seen: str,
        placements: list[Placement],
        grants: list[Grant],
        held: list[HeldRoom],
    ) -> None:
        self.asks_seen = asks_seen
        self.shares_seen = shares_seen
        self.placements = placements
        self.grants = grants
        self.held = held


@dataclass(slots=True)
class State:
    """One cell. What binds comes first; the caches at the end can be built from it."""

    policy: Policy = field(default_factory=Policy)
    queues: Queue | None = None
    groups: dict[str, Group] = field(default_factory=dict)
    """By leaf queue, where its jobs are served."""
    pools_ppm: list[int] = field(default_factory=list)
    """By class of job, the part of the cell that is its pool, in millionths."""
    history: History = field(default_factory=History)
    """How long tasks of earlier runs took."""
    opened: int = 0
    opened_ms: int = 0
    """Seq and time of the last opening."""

    # ---------------------------------------------------------------- jobs
    jobs: dict[str, Job] = field(default_factory=dict)
    running_limits: RunningLimits = field(default_factory=RunningLimits)
    """Which jobs may run."""
    held_back: dict[str, bool] = field(default_factory=dict)
    """Jobs that might run before, and gave way to others or are held by users."""
    on_hold: dict[str, bool] = field(default_factory=dict)
    """Jobs that users hold, and whether they might run otherwise."""
    again: dict[str, int] = field(default_factory=dict)
    """Jobs that run not for the first time, with the highest number that an attempt had before."""

    # ---------------------------------------------------------------- nodes and what runs there
    nodes: dict[str, Node] = field(default_factory=dict)
    held: dict[str, dict[str, Allocation]] = field(default_factory=dict)
    """By node, what runs there, keyed "job/stage/index"."""
    failed_on: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """By job and task, as "stage position/index", nodes on which attempts of it have failed, the last at the end."""
    failures: dict[str, NodeFailures] = field(default_factory=dict)
    """By node, what has failed there in a row."""

    # ---------------------------------------------------------------- leaf queues
    levels: dict[str, Level] = field(default_factory=dict)
    """The levels in force, as fairness has published them."""
    served: dict[str, int] = field(default_factory=dict)
    """Seq of the opening whose round gave the leaf something last."""
    short: dict[str, int] = field(default_factory=dict)
    """Since when, in ms, a leaf that waits has held less than it is due by one of its tasks, or by part of a gang."""
    turns: dict[str, int] = field(default_factory=dict)
    """By when, in ms, what such a leaf is due has paid for the gangs that have started in it."""
    pool_breaches: dict[str, PoolBreach] = field(default_factory=dict)
    """What was last said of leaves that hold more than the pools of their jobs."""

    # ---------------------------------------------------------------- classes of tasks that wait
    reasons: dict[str, ClassWait] = field(default_factory=dict)
    """What was last said of each class that waits."""
    starved: dict[str, int] = field(default_factory=dict)
    """Since when, in ms, a class that finds no room has had no task started."""
    kept: dict[str, HeldRoom] = field(default_factory=dict)
    """By node, room that is held for a class."""
    delays: dict[str, dict[str, list[list[int]]]] = field(default_factory=dict)
    """By job and stage, tasks that wait for nodes that they prefer, as [since ms, tasks], the oldest first."""
    awaited: dict[str, HeldRoom] = field(default_factory=dict)
    """By node, room that these leave free."""
    mix: Mix = field(default_factory=Mix)
    """For whom placement keeps room on GPUs."""

    # ---------------------------------------------------------------- reservations
    promises: Promises = field(default_factory=Promises)
    reserving: dict[str, Reserving] = field(default_factory=dict)
    """By live job, the reservation that it names."""
    lent: dict[str, dict[str, Lent]] = field(default_factory=dict)
    """By node, its revocable attempts, keyed as `held`."""
    vacated: dict[str, HeldRoom] = field(default_factory=dict)
    """By node, room that is held for a promise."""
    revocable: dict[str, Revocable] = field(default_factory=dict)
    """What a live job says of that, where it is not `auto`."""
    taken_back: dict[str, TakenBack] = field(default_factory=dict)
    """By "job/stage", what promises have cost it."""
    promised: dict[str, PromisedWait] = field(default_factory=dict)
    """By "job/stage", what was last said of tasks that wait for room that is not promised."""

    # ---------------------------------------------------------------- capacity taken back for guarantees
    leaf_held: dict[str, Vector] = field(default_factory=dict)
    """By leaf, what its attempts hold, where capacity is taken back for guarantees."""
    owed: dict[str, int] = field(default_factory=dict)
    """Since when, in ms, a leaf that is short has held less than it is guaranteed, in the same cells."""
    claimed: dict[str, ClaimedRoom] = field(default_factory=dict)
    """By node, room that was taken back for a leaf and has not come to its tasks yet."""
    ripe: dict[str, bool] = field(default_factory=dict)
    """Nodes with such room for which nothing was ending any more when the last round was opened."""
    losers: dict[str, dict[str, bool]] = field(default_factory=dict)
    """By leaf with such room, those that it was taken from."""
    spared: dict[str, list[str]] = field(default_factory=dict)
    """By "job/stage/index", of tasks that run in such room, the leaves for which they are not taken back."""
    takings: dict[str, dict[str, bool]] = field(default_factory=dict)
    """By leaf, from whom it has taken capacity since weights, submissions or capacity last changed."""
    taken: list[list[int]] = field(default_factory=list)
    """What was taken back within the last `preempt_window_ms`, as [ms, share units], the oldest first."""

    # ---------------------------------------------------------------- order and copies
    shadow: ShadowCell = field(default_factory=ShadowCell)
    """When jobs would end if all had their shares."""
    copied: dict[str, dict[str, Copied]] = field(default_factory=dict)
    """By job, live or ended, tasks of which several attempts hold room, as "stage/index"."""
    runs: dict[str, dict[int, StageRuns]] = field(default_factory=dict)
    """By live job and stage position, what may become a straggler (copies/stragglers.py)."""

    # ---------------------------------------------------------------- caches
    board: Cache[Board | None] = None
    """All of that, ranked."""
    decided: Cache[Decided | None] = None
    """The answer to the open round, of the board above."""
    ending: Cache[dict[str, Ending]] = field(default_factory=dict)
    """By node, when what runs there is expected to end."""
    leases: Cache[Leases | None] = None
    """What is promised, in order of time."""
    watch: Cache[Watch | None] = None
    """When tasks of `runs` become stragglers."""
