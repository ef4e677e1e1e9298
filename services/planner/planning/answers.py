"""Requests for reservations as a planning agent takes them, what it keeps of those that it accepts, and its answers."""

from dataclasses import dataclass, field

from services.planner.planning.placing import Form
from services.planner.planning.request import Node, Plan


@dataclass(slots=True)
class GridRequest:
    """`body`: the request without its outermost window, which is steps `[begin, end)`."""

    name: str
    user: str
    body: Node
    begin: int
    end: int


@dataclass(slots=True)
class AcceptedRequest:
    """An accepted request, and its plan."""

    user: str
    node: Node
    plan: Plan


@dataclass(slots=True)
class Fixed:
    """A promise with only its profile known, so that it cannot be moved: first step, step after the last,
    amounts."""

    user: str
    runs: list[tuple[int, int, list[int]]]


@dataclass(slots=True, frozen=True)
class Offer:
    """What would be accepted: the request in another window, or so much of its width and work in its own, which
    `sizes` says by atom as it is written in a request.
    """

    window: tuple[int, int] | None = None
    size_permille: int | None = None
    sizes: str = ""


@dataclass(slots=True)
class Followed:
    """What a plan has for an atom in all, in unit-steps, and what that is less than needed, in unit-milliseconds."""

    atom: str
    units: int
    missing: int


@dataclass(slots=True)
class Answer:
    """To one request. `code` is empty if it is accepted. `followed`: where a plan follows its jobs, what its atoms
    have."""

    code: str = ""
    reason: str = ""
    form: Form | None = None
    plan: Plan = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    offer: Offer | None = None
    followed: list[Followed] = field(default_factory=list)
