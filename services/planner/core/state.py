"""What the planner keeps of a cell: its capacity, what is promised, and which requests wait for an answer."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from largesse.lifecycle.run_times import Seen
from largesse.lifecycle.state import Graph, JobLife, Progress
from schemas import Cache, Policy, Vector
from services.planner.core.nodes import Node
from services.planner.core.promises import Broken, Promise
from services.planner.core.waiting import Follow, Proposal, Request, Restore

if TYPE_CHECKING:
    from services.planner.core.cell_plan import CellPlan


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
    """One cell. Steps are counted from log time 0."""

    policy: Policy = field(default_factory=Policy)
    step_ms: int = Policy().reservation_step_ms
    """How long a step is."""
    nodes: dict[str, Node] = field(default_factory=dict)
    capacity: Vector = field(default_factory=dict)
    """Of the nodes that count, by resource; one that there was once stays with 0."""
    ceilings: dict[str, Vector] = field(default_factory=dict)
    """By queue path, what the queue may hold together, where the tree in force says so."""
    waiting: list[Request | Proposal] = field(default_factory=list)
    """Requests and proposals in the order of the log."""
    promises: dict[str, Promise] = field(default_factory=dict)
    """By reservation, in the order of acceptance."""
    broken: dict[str, Broken] = field(default_factory=dict)
    """Promises that are tried again, the next first."""
    ended: dict[str, bool] = field(default_factory=dict)
    """Promises that are over, until that is published."""
    series: dict[str, Series] = field(default_factory=dict)
    """Reservations that recur, by name."""
    first: int = 0
    """The first step that could be planned in the round that was opened last."""
    rounds: int = 0
    """How many rounds the search for the next answer has had."""
    plan_seq: int = 0
    """Seq of the last plan in the log; 0: there is none."""
    wake_ms: int | None = None
    """The wake-up in it that is still to come."""
    jobs: dict[str, Job] = field(default_factory=dict)
    """Those that name a reservation."""
    reserving: dict[str, dict[str, bool]] = field(default_factory=dict)
    """Their names, by reservation."""
    active: dict[str, bool] = field(default_factory=dict)
    """Reservations with jobs that have a lease now, or whose tasks ran since their plan was last compared with what is
    left to do.
    """
    due: dict[str, bool] = field(default_factory=dict)
    """Those of them that are still to be compared in this step."""
    looks: list[Follow] = field(default_factory=list)
    """Plans that are to follow, in order; they are published before any request is answered."""
    retries: list[Restore] = field(default_factory=list)
    """Broken promises that are tried again now, behind those."""
    freed: bool = False
    """Whether room that was promised has been given back, or there is more, since this step began."""
    retry: bool = False
    """The same before that, in the last step."""
    returned: bool = False
    """The same since broken promises were tried again."""
    plan: Cache["CellPlan | None"] = None
