"""Rounds and the decisions in them; the sequencer's own records.

Fairness, altruism and leftover answer every opening with exactly one body; estimator and planner with one or none. A
decision carries what changed since the last closed round; `full` marks one that carries everything.
"""

from dataclasses import dataclass, field
from typing import Literal

from schemas.jobs import PlacementRule
from schemas.plans import Plans
from schemas.quantities import Vector
from schemas.tasks import DeviceShare

Strike = Literal["node_lost", "node_draining", "node_epoch", "no_room", "job_over", "gang"]
Why = Literal["required", "optional", "packed", "reserved"]
AskKind = Literal["required", "optional"]
WaitReason = Literal[
    "none", "no_room", "no_node", "gang_no_room", "behind_head", "queue_max", "pool", "locality", "spread"
]


HoldReason = Literal["headroom", "gang", "promise", "locality"]
EstimateSource = Literal["spec", "history", "finished", "default"]
"""Where the expected run time of a task comes from: its spec, earlier runs of the job, tasks of the stage that have
succeeded, or nothing."""

Forecaster = Literal["ramp", "durations"]
"""What a forecast of releases follows from: phases of starts and ends (DRESS, section IV), or expected run times."""

PoolWinner = Literal["promise", "guarantee"]
"""What comes before class pools, the stronger first (docs/concepts/dress.md)."""


@dataclass(slots=True)
class Position:
    """The last offset taken from an input topic's partition."""

    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class SequencerClaimed:
    """A sequencer takes the log over: from here on only records with this token count. It has no seq."""

    token: str


@dataclass(slots=True)
class SequencerAlive:
    """Positions reached, when no other record has said so for a while."""

    positions: list[Position]


@dataclass(slots=True)
class TimeReached:
    """A wake-up: log time has come to a moment at which an answer may differ without a new fact."""

    wake_ms: int


@dataclass(slots=True)
class JobJudged:
    """The class of a live job, by index: it was admitted before there was capacity to judge it by, or the thresholds
    between the classes have changed since.
    """

    job: str
    job_class: int


@dataclass
class RoundOpened:
    """The question. `prefix` is the hash chain over all valid records before it; `rules` names the code that may
    answer. `pools_ppm`: the part of the cell's capacity that each class of jobs has as its pool, in millionths that
    sum to 1,000,000; empty: there are no pools. `judged`: live jobs that have another class from here on than their
    admission, or an earlier opening, said.
    """

    rules: int
    prefix: str
    shards: int = 1
    pools_ppm: list[int] = field(default_factory=list)
    judged: list[JobJudged] = field(default_factory=list)


@dataclass
class Grant:
    """Tasks `first` .. `first + count - 1` of a stage may start on `node` (agent epoch `epoch`) as attempt `attempt`.

    `devices`: for each task, in order, its shares of the node's devices; empty where it asks for none. `revocable`: the
    room is promised to a reservation before the tasks are expected to end, so they may be taken back.
    """

    job: str
    stage: str
    first: int
    count: int
    attempt: int
    node: str
    epoch: str
    why: Why = "required"
    devices: list[list[DeviceShare]] = field(default_factory=list)
    revocable: bool = False


@dataclass(slots=True)
class Struck:
    """A grant that newer facts have overtaken. Its tasks wait again; no attempt is used."""

    grant: Grant
    reason: Strike


@dataclass(slots=True)
class Revocation:
    """Attempts that the node must give back."""

    job: str
    stage: str
    first: int
    count: int
    attempt: int
    node: str
    epoch: str


@dataclass
class DecisionHash:
    """Which decision record a round used: its topic, its shard, SHA-256 of its content."""

    topic: str
    shard: int
    of: int
    hash: str


@dataclass
class RoundClosed:
    """The answer. What it grants binds; its hashes verify every service from the log alone."""

    grants: list[Grant]
    struck: list[Struck]
    revoked: list[Revocation]
    wake_ms: int | None
    hashes: list[DecisionHash]


@dataclass(slots=True)
class RoundAbandoned:
    """Nothing is granted; everything that waited goes to the next round."""

    reason: Literal["rules", "operator"]
    author: str = "unknown"


@dataclass(slots=True)
class KindsLevel:
    """The part of a leaf's level that is for tasks which ask for just these kinds of resource: their dominant share, in
    10^-9 of the cell."""

    kinds: list[str]
    target: int


@dataclass
class Level:
    """A queue's place in the tree: the dominant share it is entitled to now, in 10^-9 of the cell. Leaves carry what
    leftover divides by; inner nodes what their children come to. `due`: of a leaf that is passed over because its
    waiting tasks find no room, what it would be entitled to if they did; `target` is then what it can place, and what
    is left of the due goes to its siblings first. `kinds`: of a leaf whose tasks ask for several sets of kinds, the
    level of each, by kinds; `target` is what they come to together. `lent`: how much of the due, or else of the target,
    is only there because others cannot place it; no room is gathered for that part. `guaranteed`: its exact guarantee,
    as a dominant share, where there are class pools: below it no pool holds the queue back.
    """

    queue: str
    target: int
    due: int | None = None
    kinds: list[KindsLevel] = field(default_factory=list)
    lent: int = 0
    guaranteed: int = 0


@dataclass(slots=True)
class QueueShare:
    """What a queue has, as dominant shares in 10^-9 of the cell. `guaranteed`: by its weight among the siblings that
    ask, or by its guarantee; `fair`: what it comes to now, with what others leave it; `allocated`: what its tasks hold;
    `resource`: the one that its holdings are largest in, empty where it holds nothing. `lent` is what it leaves of its
    guarantee to others, `borrowed` what it holds beyond it.
    """

    queue: str
    guaranteed: int
    fair: int
    allocated: int
    lent: int
    borrowed: int
    resource: str


@dataclass(slots=True)
class Breach:
    """A queue that asks for more and has held less than it is guaranteed since `since_ms`, longer than the longest task
    that runs has been running. `winner`: the queue that holds most beyond its guarantee. `over`: it is no longer so.
    `placeable`: not so where none of what waits below it finds room, so that nobody else keeps it from its guarantee.
    """

    queue: str
    guaranteed: int
    allocated: int
    since_ms: int
    winner: str = ""
    over: bool = False
    placeable: bool = True


@dataclass(slots=True)
class Entitlement:
    """What each job of a queue is entitled to whose remaining work asks for just these kinds of resource: its dominant
    share, in 10^-9 of the cell, in the direction of that work. 0: there is no such job any more.
    """

    queue: str
    kinds: list[str]
    share: int


@dataclass
class Shares:
    """Levels of the queues that moved; `gone` names queues that are no longer in the tree. `queues`: those, inner ones
    too, of which a value moved by a permille or more. `breaches`: guarantees that broke, or hold again.
    `entitlements`: those that moved, where jobs are planned.
    """

    levels: list[Level]
    gone: list[str] = field(default_factory=list)
    full: bool = False
    wake_ms: int | None = None
    queues: list[QueueShare] = field(default_factory=list)
    breaches: list[Breach] = field(default_factory=list)
    entitlements: list[Entitlement] = field(default_factory=list)


@dataclass(slots=True)
class StageAsk:
    """Tasks `first` .. `first + count - 1` of a stage could start as attempt `attempt`; runnable since `since_ms`."""

    stage: str
    first: int
    count: int
    attempt: int
    since_ms: int
    kind: AskKind = "required"


@dataclass(slots=True)
class LateStart:
    """`count` tasks of a stage that waited when the job was planned start at `at_ms` (log time), or before."""

    stage: str
    at_ms: int
    count: int


@dataclass(slots=True)
class StageEstimate:
    """What a task of a stage was expected to run for when its job was planned."""

    stage: str
    run_ms: int
    source: EstimateSource


@dataclass(slots=True)
class JobPlan:
    """How a job with the dominant share `share` (10^-9 of the cell) ends by `deadline_ms`: with each task started by
    its latest start; those of a stage are in order. `turned`: they come from packing the graph with its edges turned,
    else from moving the forward packing. `gives`: tasks that may start later are optional. `estimates`: what was
    expected of stages that are not over, where it does not come from the spec.
    """

    deadline_ms: int
    share: int
    late: list[LateStart]
    turned: bool
    gives: bool
    estimates: list[StageEstimate] = field(default_factory=list)


@dataclass(slots=True)
class JobAsk:
    """All that a job asks for, in the order it wants it. Replaces what it asked before; later grants come off by
    themselves. `plan`: what the asks follow from, where that is new.
    """

    job: str
    asks: list[StageAsk]
    plan: JobPlan | None = None


@dataclass(slots=True)
class LedgerEntry:
    """What a job has given away and received since it was first planned, up to the opening, or up to its end where it
    is `over`: by kind, in base units x seconds. `lost_ms`: how much later it ends than by its own plan alone; of a live
    job what is expected. Figures begin anew where the number of shards changes. Once its reservation is accepted, a job
    has no account: the one that it had is over.
    """

    job: str
    queue: str
    donated: Vector
    received: Vector
    lost_ms: int
    over: bool = False


@dataclass
class Asks:
    """Asks of the jobs of one shard that ask for something else than before. A job that may run asks, until it is named
    here, for all tasks of its stages without parents as attempt 1, since its admission (or since it was let through its
    queue's gate). `full`: jobs of the shard that are not named here ask for nothing, but for those newer than the
    opening. `ledger`: accounts of the jobs that are planned anew, and of those that are over. `planned`: where more
    jobs are to be planned again than one round may plan, those that had their turn, whether or not a new plan came of
    it; the others are planned in the next rounds, and by their present plans until then. Empty: all had their turn.
    """

    shard: int
    of: int
    jobs: list[JobAsk]
    full: bool = False
    wake_ms: int | None = None
    ledger: list[LedgerEntry] = field(default_factory=list)
    planned: list[str] = field(default_factory=list)


@dataclass(slots=True)
class HeldRoom:
    """Room of a node that is kept free on purpose, `demand` in base units: for tasks of the class (`task`, `labels`,
    `prefer`, `gang`, `rules`), `tasks` of them, and meanwhile for others that do not delay those. An empty `demand`:
    nothing is kept there any more. `complete_ms`: when the room is complete, by the estimated ends of what runs on the
    node. `why` locality: tasks of the class could start there, but still wait for nodes that they prefer; others may
    use the room.
    """

    node: str
    why: HoldReason
    demand: Vector
    task: Vector = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    prefer: dict[str, str] = field(default_factory=dict)
    gang: int = 0
    tasks: int = 1
    complete_ms: int | None = None
    rules: list[PlacementRule] = field(default_factory=list)


@dataclass(slots=True)
class Shortfall:
    """A leaf queue that waits holds less than it is due by more than one of its tasks. `over`: it is no longer so."""

    queue: str
    over: bool = False


@dataclass(slots=True)
class ClassWait:
    """Tasks of one class (same demand, labels and rules, same width of a gang) wait, and why; reason `none`: they wait
    no longer. `near`: those that still wait for nodes that they prefer.
    """

    demand: Vector
    labels: dict[str, str]
    prefer: dict[str, str]
    gang: int
    reason: WaitReason
    rules: list[PlacementRule] = field(default_factory=list)
    near: bool = False


@dataclass(slots=True)
class LocalityWait:
    """So many `tasks` more of a stage than were said before could have started in this round if they did not wait for
    nodes that they prefer: their wait begins at the opening.
    """

    job: str
    stage: str
    tasks: int


@dataclass(slots=True)
class PoolBreach:
    """The jobs of a class in a leaf queue start tasks beyond their class's pool, though others could start within
    theirs: `winner` comes before the pools. `over`: the class holds no more than its pool again.
    """

    queue: str
    job_class: int
    winner: PoolWinner = "guarantee"
    over: bool = False


@dataclass
class Grants:
    """Tasks with nodes; nodes where the room held on purpose has changed; attempts taken back; classes whose reason to
    wait has changed; leaf queues that began to hold too little, or hold enough again; class pools that give way to what
    comes before them, or no longer have to; tasks that begin to wait for nodes that they prefer.
    """

    grants: list[Grant]
    held: list[HeldRoom] = field(default_factory=list)
    revoked: list[Revocation] = field(default_factory=list)
    waits: list[ClassWait] = field(default_factory=list)
    full: bool = False
    wake_ms: int | None = None
    shortfalls: list[Shortfall] = field(default_factory=list)
    pool_breaches: list[PoolBreach] = field(default_factory=list)
    locality_waits: list[LocalityWait] = field(default_factory=list)


@dataclass(slots=True)
class ReleaseCurve:
    """What the running tasks of a class will have given back of one kind of resource, in base units. `points`:
    run-length coded, each `[after_ms, amount]`: from `after_ms` behind the forecast's time on it comes to `amount` in
    all, until the next point; before the first point to nothing.
    """

    job_class: int
    kind: str
    points: list[list[int]]


@dataclass(slots=True)
class ForecastScore:
    """How far a forecaster has been off so far. `errors_ppm`: by horizon (1, 5, 10 and 30 s), the mean absolute error
    of its forecasts, in millionths of the cell; `samples`: how many forecasts that is, older ones counting less.
    """

    forecaster: Forecaster
    errors_ppm: list[int]
    samples: list[int]


@dataclass(slots=True)
class Releases:
    """The estimator's forecast, made at `at_ms` by `forecaster`, the one with the better score. `curves`: all that are
    not empty, in order of class and kind; they replace those of the last record. `after`: seq of the last record of
    this kind in its prefix (0: none).
    """

    after: int
    at_ms: int
    wake_ms: int | None = None
    forecaster: Forecaster = "durations"
    curves: list[ReleaseCurve] = field(default_factory=list)
    scores: list[ForecastScore] = field(default_factory=list)


DecisionBody = Releases | Plans | Shares | Asks | Grants
"""What a core answers an opening with."""
