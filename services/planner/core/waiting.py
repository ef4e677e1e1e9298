"""What the planner has yet to look at: requests, proposals of a solver, promises that follow jobs, broken ones."""

from dataclasses import dataclass, field
from typing import Literal

from schemas import ProposedPlan
from services.planner.core.promises import Lease

RequestKind = Literal["request", "update", "delete"]


@dataclass(slots=True)
class Request:
    """What somebody asks for a reservation. `rdl`: canonical JSON, empty of a deletion. `seq`: of its record; `series`:
    of an occurrence. `aside`: how often others went before it, `restarts`: how often a new step put an end to its
    search (turns.py).
    """

    kind: RequestKind
    reservation: str
    user: str
    queue: str
    rdl: str
    seq: int
    series: str = ""
    weight: int = 1
    aside: int = 0
    restarts: int = 0


@dataclass(slots=True)
class Proposal:
    """What a solver proposed. `seq`: of its record; `aside`: as a request has it."""

    seq: int
    proposed: list[ProposedPlan]
    aside: int = 0


@dataclass(slots=True)
class Need:
    """What an atom is expected to need from time `at_ms` on, all in unit-milliseconds: `left` by its jobs and its
    terms, `planned` by its leases. Leases that are over included, the plan may come to `most`.
    """

    atom: str
    at_ms: int
    left: int
    planned: int
    most: int


@dataclass(slots=True)
class Follow:
    """A promise that is to follow its jobs."""

    reservation: str
    needs: list[Need]


@dataclass(slots=True)
class Restore:
    """A broken promise that is tried again, with its `leases` that are over, and its `works`."""

    reservation: str
    user: str
    queue: str
    rdl: str
    weight: int
    leases: list[Lease] = field(default_factory=list)
    works: dict[str, int] = field(default_factory=dict)


def given_back(waiting: list[Request | Proposal]) -> dict[str, bool]:
    """The reservations that are to be deleted."""
    return {each.reservation: True for each in waiting if isinstance(each, Request) and each.kind == "delete"}
