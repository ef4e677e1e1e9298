"""What the planner keeps of a cell: its capacity, what is promised, and which requests wait for an answer."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from mypy_extensions import mypyc_attr

from largesse.lifecycle.run_times import Seen
from largesse.lifecycle.state import Graph, JobLife, Progress
from schemas import Cache, Policy, ProposedPlan, Vector

if TYPE_CHECKING:
    from services.planner.core.cell_plan import CellPlan

AskKind = Literal["request", "update", "delete", "proposal", "progress", "restore"]


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
class Lease:
    """`gangs` gangs of the atom at the path `atom`, in steps `[begin, end)`."""

    atom: str
    begin: int
    end: int
    gangs: int


@dataclass(slots=True)
class Waiting:
    """What has not been answered: a request; what a solver proposed (then only `seq` and `proposed` count); a promise
    that is to follow its jobs (only `reservation` and `needs`); or one that is broken and tried again (with its
    `leases` that are over, and its `works`). `seq`: of its record; `rdl`: canonical JSON, empty of a deletion;
    `series`: of an occurrence; `weight`: of a request. `aside`: how often others went before it, `restarts`: how
    often a new step put an end to its search (turns.py).
    """

    kind: AskKind
    reservation: str
    user: str
    queue: str
    rdl: str
    seq: int
    proposed: list[ProposedPlan] = field(default_factory=list)
    series: str = ""
    needs: list[Need] = field(default_factory=list)
    aside: int = 0
    restarts: int = 0
    leases: list[Lease] = field(default_factory=list)
    works: dict[str, int] = field(default_factory=dict)
    weight: int = 1


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Job(JobLife):
    """A live job that names a reservation (`part`: of it, see JobSpec). `running`: "stage position/index" -> log time
    of its start. `seen`: by stage position, tasks that have succeeded and what they took. `earned`: by stage position,
    task-milliseconds of work that have not been counted for an atom yet; `credited`: by atom, what has.
    """

    reservation: str
    part: str
    running: dict[str, int] = field(default_factory=dict)
    seen: dict[int, Seen] = field(default_factory=dict)
    earned: dict[int, int] = field(default_factory=dict)
    credited: dict[str, int] = field(default_factory=dict)

    def __init__(self, graph: Graph, progress: Progress, reservation: str, part: str) -> None:
        self.graph = graph
        self.progress = progress
        self.tries = None
        self.reservation = reservation
        self.part = part
        self.running = {}
        self.seen = {}
        self.earned = {}
        self.credited = {}


@dataclass(slots=True)
class Terms:
    """An atom as it was asked for. `unit`: by resource; `work`: unit-milliseconds; its window is [begin_ms, end_ms)."""

    atom: str
    unit: Vector
    gang: int
    work: int
    begin_ms: int
    end_ms: int


@dataclass(slots=True)
class Promise:
    """An accepted reservation. `seq`: of the request that was accepted. `series`: of an occurrence, its series,
    which may have ended.

    What the log says of its progress, by atom: `works`, gang-steps that take the place of the work asked for;
    `missing`, unit-milliseconds that its plan had too little, or too much, when it was compared last. `done`: by atom,
    the work of its jobs that was counted so far, in 10^-6 unit-milliseconds. `weight`: what it counts beside others.
    `terms`: of all its atoms, by path.
    """

    user: str
    queue: str
    rdl: str
    seq: int
    leases: list[Lease] = field(default_factory=list)
    series: str = ""
    works: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    weight: int = 1
    terms: Cache[dict[str, Terms] | None] = None


@dataclass(slots=True)
class Broken:
    """A promise that could not be kept, with its leases up to that moment. It is tried again until `until_ms`. `why`:
    what broke it.
    """

    promise: Promise
    until_ms: int
    why: str


@dataclass(slots=True)
class Series:
    """A reservation that recurs, as `schemas.SeriesRequested` has it. `asked_s`: the latest occurrence that was
    requested, in seconds of log time; -1: none yet. What it means for times is worked out in the shell
    (occurrences.py).
    """

    user: str
    queue: str
    rdl: str
    every: str
    zone: str
    start_s: int
    seq: int
    asked_s: int = -1
    weight: int = 1


@dataclass(slots=True)
class State:
    """One cell. `capacity`: of the nodes that count, by resource; one that there was once stays with 0.

    Steps are `step_ms` long, and counted from log time 0. `ceilings`: what queues may hold together, by path, only
    where the tree in force says so. `waiting`: requests in the order of the log. `promises`: by reservation, in the
    order of acceptance; `broken`: those that are tried again, the next first; `ended`: those that are over, until that
    is published. `series`: those that recur, by name. `first`: the first step that could be planned in the round that
    was opened last; `rounds`: how many rounds the search for the next answer has had.
    `plan_seq`: of the last plan in the log, 0 is none; `wake_ms`: the wake-up in it that is still to come.

    `jobs`: that name a reservation; `reserving`: their names by reservation. `active`: reservations with jobs that have
    a lease now, or whose tasks ran since their plan was last compared with what is left to do; `due`: those that are
    still to be compared in this step; `looks`: plans that are to follow, in order; they are published before any
    request is answered. `retries`: broken promises that are tried again now, behind those. `freed`: room that was
    promised has been given back, or there is more, since this step began; `retry`: before that, in the last one;
    `returned`: the same since broken promises were tried again.
    """

    policy: Policy = field(default_factory=Policy)
    step_ms: int = Policy().reservation_step_ms
    nodes: dict[str, Node] = field(default_factory=dict)
    capacity: Vector = field(default_factory=dict)
    ceilings: dict[str, Vector] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)
    promises: dict[str, Promise] = field(default_factory=dict)
    broken: dict[str, Broken] = field(default_factory=dict)
    ended: dict[str, bool] = field(default_factory=dict)
    series: dict[str, Series] = field(default_factory=dict)
    first: int = 0
    rounds: int = 0
    plan_seq: int = 0
    wake_ms: int | None = None
    jobs: dict[str, Job] = field(default_factory=dict)
    reserving: dict[str, dict[str, bool]] = field(default_factory=dict)
    active: dict[str, bool] = field(default_factory=dict)
    due: dict[str, bool] = field(default_factory=dict)
    looks: list[Waiting] = field(default_factory=list)
    retries: list[Waiting] = field(default_factory=list)
    freed: bool = False
    retry: bool = False
    returned: bool = False
    plan: Cache["CellPlan | None"] = None
