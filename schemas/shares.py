"""What fairness answers an opening with: what each queue is entitled to."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class KindsLevel:
    """The part of a leaf's level that is for tasks which ask for just these kinds of resource: their dominant share, in
    10^-9 of the cell."""

    kinds: list[str]
    target: int


@dataclass
class Level:
    """The fair share of a queue, as a dominant share in 10^-9 of the cell (H-DRF, section 3). Of a leaf, placement
    divides what it holds by `target`; of an inner node, it is what its children come to. `due`: of a leaf that is
    passed over because its waiting tasks find no room, its whole fair share; `target` is then the part that it can
    place, and the rest goes to its siblings first. `kinds`: of a leaf whose tasks ask for several sets of kinds, the
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
