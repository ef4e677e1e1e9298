"""What the cores keep of the jobs that they follow: plain data, which snapshots hold. dag.py, running_limit.py,
job_life.py and promises.py work on it. Why some have an `__init__` written out, and what mypyc is told:
infra/DECISIONS.md, 18.
"""

from dataclasses import dataclass, field

from mypy_extensions import mypyc_attr

from schemas.cache import Cache
from schemas.jobs import Stage
from schemas.plans import PlanProfile
from schemas.quantities import Vector
from schemas.tasks import Failure


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Progress:
    """By stage position: tasks that have not ended in success, and parents that have not ended."""

    left: list[int]
    parents: list[int]

    def __init__(self, left: list[int], parents: list[int]) -> None:
        self.left = left
        self.parents = parents


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Graph:
    """Stages by position; names by position; by position the children, and how many tasks and parents there are.
    `roots`: those without parents. Shared by jobs alike, and immutable. `untouched`: the progress of those of which
    nothing has ended yet, also shared.
    """

    stages: list[Stage]
    position: dict[str, int]
    children: list[list[int]]
    tasks: list[int]
    parents: list[int]
    roots: list[int]
    untouched: Cache[Progress | None] = field(default=None, repr=False, compare=False)

    def __init__(
        self,
        stages: list[Stage],
        position: dict[str, int],
        children: list[list[int]],
        tasks: list[int],
        parents: list[int],
        roots: list[int],
    ) -> None:
        self.stages = stages
        self.position = position
        self.children = children
        self.tasks = tasks
        self.parents = parents
        self.roots = roots
        self.untouched = None


@dataclass(slots=True)
class Parked:
    """A job that `running_jobs_max` of a queue holds back. `admitted`: the seq of its admission."""

    job: str
    priority: int
    admitted: int


@dataclass(slots=True)
class RunningLimits:
    """`limits` and `through` (how many jobs may run now) by queue path ("" is the root), only for queues with a limit;
    `leaf`: live job -> its queue; `parked`: by leaf queue, the jobs held back, the next to run first.
    """

    limits: dict[str, int] = field(default_factory=dict)
    through: dict[str, int] = field(default_factory=dict)
    leaf: dict[str, str] = field(default_factory=dict)
    parked: dict[str, list[Parked]] = field(default_factory=dict)


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Span:
    """Tasks `first` .. `first + count - 1` that wait for attempt `attempt`, runnable since `since_ms`."""

    first: int
    count: int
    attempt: int
    since_ms: int

    def __init__(self, first: int, count: int, attempt: int, since_ms: int) -> None:
        self.first = first
        self.count = count
        self.attempt = attempt
        self.since_ms = since_ms


@dataclass(slots=True)
class Tries:
    """Failures so far, by "stage position/index"; a gang counts as its index 0. Only tasks that failed are here.

    `broken`: by stage position, the last attempt of a gang that ended without success; `broken_by`: what ended it.
    `given_up`: by stage position, tasks that have failed for good in a job that goes on. `ruled`: failures under a rule
    of the stage, by "stage position/index/rule position"; `rule`: by task, the rule of the latest, where one was.
    """

    failed: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)
    broken_by: dict[str, Failure] = field(default_factory=dict)
    given_up: dict[str, int] = field(default_factory=dict)
    ruled: dict[str, int] = field(default_factory=dict)
    rule: dict[str, int] = field(default_factory=dict)


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class JobLife:
    """How far a live job has come: what every core keeps of it, and job_life.py works on. The cores' own classes of
    jobs extend it. `tries`: None until a task of it has failed.
    """

    graph: Graph
    progress: Progress
    tries: Tries | None

    def __init__(self, graph: Graph, progress: Progress) -> None:
        self.graph = graph
        self.progress = progress
        self.tries = None


@dataclass(slots=True)
class Promises:
    """What is promised to reservations. `profiles`: by accepted reservation; `starts` and `edges`: when leases begin,
    and when they begin or end, each once and in order. `amount` is promised in all since the last opening, in base
    units, and comes to `units` units; it stays so until `until_ms` (None: for ever). `on`: promises count.
    """

    on: bool = True
    profiles: dict[str, PlanProfile] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    edges: list[int] = field(default_factory=list)
    amount: Vector = field(default_factory=dict)
    units: int = 0
    until_ms: int | None = None
