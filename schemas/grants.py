"""What leftover answers an opening with: tasks with nodes, room that is held, and who waits why."""

from dataclasses import dataclass, field
from typing import Literal

from schemas.jobs import PlacementRule
from schemas.quantities import Vector
from schemas.tasks import DeviceShare

Why = Literal["required", "optional", "packed", "reserved", "speculative"]
WaitReason = Literal[
    "none", "no_room", "no_node", "gang_no_room", "behind_head", "queue_max", "pool", "locality", "spread"
]
HoldReason = Literal["headroom", "gang", "promise", "locality"]
PoolWinner = Literal["promise", "guarantee"]
"""What comes before class pools, the stronger first (docs/concepts/dress.md)."""


@dataclass
class Grant:
    """Tasks `first` .. `first + count - 1` of a stage may start on `node` (agent epoch `epoch`) as attempt `attempt`.

    `devices`: for each task, in order, its shares of the node's devices; empty where it asks for none. `revocable`: the
    room is promised to a reservation before the tasks are expected to end, so they may be taken back. `why`
    speculative: a copy of one task that runs already, elsewhere and for long; the first of its attempts to succeed
    counts. A copy is always revocable. `revocable_by`: the reservation whose lease from `revocable_from_ms` to
    `revocable_until_ms` the room is promised for first; empty for copies, and in logs from before it was said.
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
    revocable_by: str = ""
    revocable_from_ms: int | None = None
    revocable_until_ms: int | None = None


@dataclass(slots=True)
class Claim:
    """Why attempts are taken back for a guarantee: `queue` holds less than it is guaranteed, and claims their room.
    `at`: the queue where its path and that of the queue that loses them meet, empty for the whole cell. `share`: what
    the attempts hold, as a dominant share in 10^-9 of what the queues divide. `rooms`: the room that the queue claims
    in this round, by node, for tasks of it that wait; nobody else uses it. All of it is with a queue's first entry.
    """

    queue: str
    at: str
    share: int
    rooms: "list[HeldRoom]" = field(default_factory=list)


@dataclass(slots=True)
class Revocation:
    """Attempts that the node must give back. `reservation`: whose promise needs the room; empty where none does.
    `claim`: which queue takes the room back, as it holds less than it is guaranteed.
    """

    job: str
    stage: str
    first: int
    count: int
    attempt: int
    node: str
    epoch: str
    reservation: str = ""
    claim: Claim | None = None


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
    """A leaf queue that waits holds less than it is due by more than one of its tasks, or by a part of a gang. `over`:
    it is no longer so. `turn_ms`: what it is due has paid by then for the gangs that have started in it.
    """

    queue: str
    over: bool = False
    turn_ms: int | None = None


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
class PromisedWait:
    """Tasks of a stage do not start, since they would not end before their room is needed for a promise: that of
    `reservation`, whose lease goes from `from_ms` to `until_ms`. `needs_ms`: how long they are taken to run; None: they
    may not be taken back, and how long they run is not known. `taken_back`: how often tasks of the stage have been.
    `fits_ms`: when they could start at the earliest, by all that is promised by now; None: only when all of that is
    over. An empty `reservation`: they wait for that no longer.
    """

    job: str
    stage: str
    reservation: str = ""
    from_ms: int = 0
    until_ms: int = 0
    needs_ms: int | None = None
    taken_back: int = 0
    fits_ms: int | None = None


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
    comes before them, or no longer have to; tasks that begin to wait for nodes that they prefer; stages that wait
    for room that is not promised, or no longer do (`promised`).
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
    promised: list[PromisedWait] = field(default_factory=list)
