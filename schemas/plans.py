"""What the planner answers to requests for capacity in time, and what it has promised (Rayon)."""

from dataclasses import dataclass, field
from typing import Literal

from schemas.quantities import Vector

PlanReason = Literal[
    "",
    "no_room",
    "invalid",
    "horizon",
    "limit",
    "too_late",
    "off",
    "unknown",
    "broken",
    "moved",
    "ahead",
    "behind",
    "deleted",
]
PlanForm = Literal["", "early", "late", "flat", "milp"]
ProposalReason = Literal["", "stale", "infeasible", "no_better"]

UNASKED: tuple[PlanReason, ...] = ("moved", "broken", "ahead", "behind")
"""Reasons of answers that tell of a promise, and that nobody asked for."""


@dataclass(slots=True)
class PlanStep:
    """A lease: `units` units of `unit` each, promised over `[from_ms, to_ms)`; `usage` is what they come to. `atom`:
    the path of the request's atom that it serves (child indexes below the windows). `gang`: so many units run at the
    same time or not at all; 1: each for itself.
    """

    from_ms: int
    to_ms: int
    usage: Vector
    unit: Vector = field(default_factory=dict)
    units: int = 0
    gang: int = 1
    atom: str = ""


@dataclass(slots=True)
class AtomOrder:
    """Work of `atom`, the path of an atom or of a part of several, starts only once all work of the parts `after` has
    ended (RDL's `order`), and with it that of the parts before those: only the nearest are named.
    """

    atom: str
    after: list[str] = field(default_factory=list)


@dataclass(slots=True)
class AtomProgress:
    """How far the work of `atom` has come, when the plan was compared with it last. `work_ms`: unit-milliseconds that
    the plan has for the atom in all, leases that are over included; from now on this takes the place of `w` of its
    request. `missing_ms`: how much more its jobs are expected to need than the plan has for them; negative: how much
    less, where the terms of the request do not let it be given back.
    """

    atom: str
    work_ms: int
    missing_ms: int = 0


@dataclass(slots=True)
class PlanProfile:
    """All that is promised to an accepted reservation, in order of time; leases that are over may be left out. It
    replaces what was promised before. `queue`: the path of the queue that it serves. `progress`: of atoms whose plan
    was just compared with the progress of jobs; what was said of others stays in force until the request is updated.
    """

    reservation: str
    queue: str
    steps: list[PlanStep] = field(default_factory=list)
    order: list[AtomOrder] = field(default_factory=list)
    progress: list[AtomProgress] = field(default_factory=list)


@dataclass(slots=True)
class PlanAnswer:
    """The answer to a request, to new terms for one, or to what made a promise change. `reason`: why it is rejected
    (`horizon`: its window is outside what can be planned; `limit`: that of its queue; `unknown`: new terms for a
    promise that is over), or `broken` for a promise that can be kept no longer; empty where it is accepted. `deleted`
    answers its owner who gave it back; `moved` tells that a promise is kept at another time than before, `ahead` and
    `behind` that the plan was compared with the progress of the reservation's jobs, and how it follows. Of a rejected
    one, the nearest window that would be accepted (`offer_from_ms`, `offer_to_ms`), or the part of its size
    (`size_permille`); neither where nothing would. `form`: how it was planned. `retry_until_ms`: of a broken one, until
    when it is tried again whenever there is more room; an answer `moved` then tells that it is promised again.
    """

    reservation: str
    accepted: bool
    reason: PlanReason = ""
    detail: str = ""
    offer_from_ms: int | None = None
    offer_to_ms: int | None = None
    size_permille: int | None = None
    form: PlanForm = ""
    retry_until_ms: int | None = None


@dataclass(slots=True)
class ProposalAnswer:
    """Whether a proposal, `seq` of its record, is adopted, and if not, why: it does not fit what has begun or changed
    since (`stale`), breaks a request or exceeds the capacity (`infeasible`), or gains too little (`no_better`).
    """

    seq: int
    adopted: bool
    reason: ProposalReason = ""
    detail: str = ""


@dataclass(slots=True)
class Plans:
    """Answers, and the promises that changed. `after` as in Releases. `gone`: reservations that are promised nothing
    any more. `wake_ms`: when the next lease begins or ends. `proposals`: answers to what a solver proposed. `pauses`:
    nothing is new, and a search goes on at `wake_ms`, if no round is opened before.
    """

    after: int
    answers: list[PlanAnswer] = field(default_factory=list)
    profiles: list[PlanProfile] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    wake_ms: int | None = None
    proposals: list[ProposalAnswer] = field(default_factory=list)
    pauses: bool = False


@dataclass(slots=True)
class ProposedLease:
    """`units` units of the atom at a path, over `[from_ms, to_ms)`."""

    atom: str
    from_ms: int
    to_ms: int
    units: int


@dataclass(slots=True)
class ProposedPlan:
    """All leases of a reservation, also those that have begun."""

    reservation: str
    leases: list[ProposedLease]


@dataclass(slots=True)
class PlanProposed:
    """Other plans for promises, found by a solver that is stopped by a clock: the planner adopts all of them or none.
    `after`: seq of the plan that they start from.
    """

    after: int
    plans: list[ProposedPlan]
    author: str = "unknown"
