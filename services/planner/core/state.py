"""What the planner keeps of a cell: its capacity, what is promised, and which requests wait for an answer."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from schemas import Cache, Policy, ProposedPlan, Vector

if TYPE_CHECKING:
    from services.planner.core.cell_plan import CellPlan

AskKind = Literal["request", "update", "delete", "proposal"]


@dataclass(slots=True)
class Node:
    """A node as the log knows it. It counts while it is `up`, and neither draining nor `unschedulable`."""

    capacity: Vector
    up: bool = True
    draining: bool = False
    unschedulable: bool = False


def counted(node: Node) -> Vector:
    """What of a node can be promised: nothing where it takes no tasks."""
    return node.capacity if node.up and not node.draining and not node.unschedulable else {}


@dataclass(slots=True)
class Waiting:
    """What has not been answered: a request, or what a solver proposed (then only `seq` and `proposed` count). `seq`:
    of its record; `rdl`: canonical JSON, empty of a deletion; `series`: of an occurrence.
    """

    kind: AskKind
    reservation: str
    user: str
    queue: str
    rdl: str
    seq: int
    proposed: list[ProposedPlan] = field(default_factory=list)
    series: str = ""


@dataclass(slots=True)
class Lease:
    """`gangs` gangs of the atom at the path `atom`, in steps `[begin, end)`."""

    atom: str
    begin: int
    end: int
    gangs: int


@dataclass(slots=True)
class Promise:
    """An accepted reservation. `seq`: of the request that was accepted. `series`: of an occurrence, its series, which
    may have ended."""

    user: str
    queue: str
    rdl: str
    seq: int
    leases: list[Lease] = field(default_factory=list)
    series: str = ""


@dataclass(slots=True)
class Series:
    """A reservation that recurs, as `schemas.SeriesRequested` has it. `asked_s`: the latest occurrence that was
    requested, in seconds of log time; -1: none yet. What it means for times is worked out in the shell (renewing.py).
    """

    user: str
    queue: str
    rdl: str
    every: str
    zone: str
    start_s: int
    seq: int
    asked_s: int = -1


@dataclass(slots=True)
class State:
    """One cell. `capacity`: of the nodes that count, by resource; one that there was once stays with 0.

    Steps are `step_ms` long, and counted from log time 0. `waiting`: requests in the order of the log. `promises`: by
    reservation, in the order of acceptance; `ended`: those that are over, until that is told. `series`: those that
    recur, by name. `first`: the first step
    that could be planned in the round that was opened last; `rounds`: so many in a row could have told the next answer.
    `told_seq`: of the last plan in the log, 0 is none; `wake_ms`: the wake-up in it that is still to come.
    """

    policy: Policy = field(default_factory=Policy)
    step_ms: int = Policy().reservation_step_ms
    nodes: dict[str, Node] = field(default_factory=dict)
    capacity: Vector = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)
    promises: dict[str, Promise] = field(default_factory=dict)
    ended: dict[str, bool] = field(default_factory=dict)
    series: dict[str, Series] = field(default_factory=dict)
    first: int = 0
    rounds: int = 0
    told_seq: int = 0
    wake_ms: int | None = None
    plan: Cache["CellPlan | None"] = None
