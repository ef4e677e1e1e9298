"""What the estimator keeps of a cell: what runs and since when, phases of jobs, forecasts that are being compared."""

from dataclasses import dataclass, field

from mypy_extensions import mypyc_attr

from largesse.lifecycle.job_classes import has_pools
from largesse.lifecycle.run_times import History, Seen
from largesse.lifecycle.state import Graph
from schemas import Cache, Policy, ReleaseCurve, Vector
from schemas.releases import Forecaster
from services.estimator.phases import JobPhases
from services.estimator.scores import Sample, Score

FORECASTERS: tuple[Forecaster, ...] = ("ramp", "durations")

Increment = tuple[int, str, int, int]
"""Class, kind, second, and how much comes by its end."""

Group = tuple[str, int, int]
"""Tasks of a stage that started together: job, stage position, start in milliseconds."""


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Running:
    """A task that runs: since when, and the number of its phase."""

    start_ms: int
    phase: int

    def __init__(self, start_ms: int, phase: int) -> None:
        self.start_ms = start_ms
        self.phase = phase


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Active:
    """A job whose tasks have started. `running`: by "stage position/index". By stage position: `begun`, how many
    starts there were, and `lasts_ms`, the expected run time that forecasts go by (0: no task has started).
    """

    phases: JobPhases
    begun: list[int]
    lasts_ms: list[int]
    running: dict[str, Running] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)

    def __init__(self, phases: JobPhases, begun: list[int], lasts_ms: list[int]) -> None:
        self.phases = phases
        self.begun = begun
        self.lasts_ms = lasts_ms
        self.running = {}
        self.seen = {}


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True)
class Job:
    """A live job. `active`: None until a task of it starts. `alone_ms`: start of the first attempt of a job of one
    task, while that runs and nothing else is known of it; -1 otherwise. Such jobs are many, and most of them never need
    an `Active`, which takes 2 KB. `user`: whose it is; "": nobody's that is named.
    """

    job_class: int
    graph: Graph
    active: Active | None = None
    alone_ms: int = -1
    user: str = ""

    def __init__(self, job_class: int, graph: Graph, user: str = "") -> None:
        self.job_class = job_class
        self.graph = graph
        self.active = None
        self.alone_ms = -1
        self.user = user


@dataclass(slots=True)
class Placed:
    """A group's tasks that still run, and the second by whose end they are expected to have ended."""

    tasks: int
    second: int

    def __init__(self, tasks: int, second: int) -> None:
        self.tasks = tasks
        self.second = second


@dataclass(slots=True)
class Sums:
    """By forecaster, class and kind: second -> how much comes by its end; `order`: these seconds, the earliest first,
    since what is asked for lies within a minute and most that runs does not end so soon. `ramps`: what each job's
    phases are in there; `placed`: where each group is. `dirty`: jobs whose phases have changed. `wakes`: a heap of
    (time, job, stage position, start), position -1: its phases are to be looked at, else the group has run for
    longer than was expected.
    """

    seconds: list[list[dict[str, dict[int, int]]]]
    order: list[list[dict[str, list[int]]]]
    ramps: dict[str, list[Increment]] = field(default_factory=dict)
    placed: dict[Group, Placed] = field(default_factory=dict)
    dirty: dict[str, bool] = field(default_factory=dict)
    wakes: list[tuple[int, str, int, int]] = field(default_factory=list)


@dataclass(slots=True)
class State:
    """One cell. While classes have no pools, no task is followed, so that the estimator costs nothing but the list of
    jobs: once they have, what is forecast are the tasks that start from then on.
    """

    policy: Policy = field(default_factory=Policy)
    on: bool = field(default_factory=lambda: has_pools(Policy()))
    """Whether classes have pools."""
    nodes: dict[str, Vector] = field(default_factory=dict)
    """Capacity of those that are up."""
    capacity: Vector = field(default_factory=dict)
    """That of all of them together."""
    jobs: dict[str, Job] = field(default_factory=dict)
    history: History = field(default_factory=History)
    """How long tasks of earlier runs took."""
    forecast: list[ReleaseCurve] = field(default_factory=list)
    """The one in force."""
    forecast_ms: int = 0
    """When it was made."""
    forecast_seq: int = 0
    """Seq of its record; 0: there is none."""
    forecaster: Forecaster = "durations"
    """Who made it."""
    samples: list[Sample] = field(default_factory=list)
    """What came after forecasts (scores.py)."""
    sampled_ms: int | None = None
    scores: list[Score] = field(default_factory=lambda: [Score() for _ in FORECASTERS])
    """By forecaster, how right it was."""
    sums: Cache[Sums | None] = None
    """What is to come, while there are pools."""
