"""What fairness keeps of a cell: who asks for what, who holds what since when, what has been told."""

from dataclasses import dataclass, field
from math import gcd

from schemas import Cache, Policy, Queue, QueueShare, Vector
from schemas.gate import Gate
from schemas.graph import Graph, Progress
from schemas.track import Tries


@dataclass(slots=True)
class Job:
    """A live job and how far it has come. `began`: it was let through the gates of its queues, and asks."""

    queue: str
    graph: Graph
    progress: Progress
    tries: Tries | None = None
    began: bool = False


@dataclass(slots=True)
class Holding:
    """What tasks of one stage hold, each as much as `demand`; outlives the job. `since`: task index -> log time (ms) of
    the closing that granted it."""

    leaf: str
    demand: Vector
    since: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Rest:
    """Tasks of a leaf that failed and may be asked again at `at_ms` only."""

    at_ms: int
    tasks: int


@dataclass(slots=True)
class State:
    """One cell. `gate`: which jobs may run.

    By leaf queue, in base units: `demand`, all that jobs run or could start (`total` its sum over the leaves);
    `waiting`, the part of it that no task holds, and `waits`, how many tasks that is; `used`, all that is held, also of
    jobs that are over. `held` is keyed "job/stage"; `running`: log time of a closing -> tasks that it granted and that
    still hold. `resting`: by leaf, tasks that wait out a back-off.

    `told` are the levels in force, `shares` what was said of queues, `full_round` the last round in which everything
    was. `below`: queues that hold less than they are guaranteed -> since when; `broken`: those of which that has been
    told, `mended`: of which it is no longer so, and that has not been told. `oldest_ms`: since when the longest task
    had been running after the last closing.

    `stirred`: seq of the last fact that may lead to a grant; `opened`: of the last opening; `settled`: of the last one
    that was closed; `wake_ms`: the wake-up that this core asked for last.
    """

    policy: Policy = field(default_factory=Policy)
    queues: Queue | None = None
    nodes: dict[str, Vector] = field(default_factory=dict)
    capacity: Vector = field(default_factory=dict)
    gate: Gate = field(default_factory=Gate)
    jobs: dict[str, Job] = field(default_factory=dict)
    demand: dict[str, Vector] = field(default_factory=dict)
    total: Vector = field(default_factory=dict)
    waiting: dict[str, Vector] = field(default_factory=dict)
    waits: dict[str, int] = field(default_factory=dict)
    used: dict[str, Vector] = field(default_factory=dict)
    held: dict[str, Holding] = field(default_factory=dict)
    running: dict[int, int] = field(default_factory=dict)
    resting: dict[str, list[Rest]] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)
    shares: dict[str, QueueShare] = field(default_factory=dict)
    full_round: int = 0
    below: dict[str, int] = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)
    mended: dict[str, int] = field(default_factory=dict)
    oldest_ms: int | None = None
    stirred: int = 0
    opened: int = 0
    settled: int = 0
    wake_ms: int | None = None
    filled: Cache = None
    ledger: Cache = None


def add_tasks(sums: dict[str, Vector], leaf: str, demand: Vector, tasks: int) -> None:
    """Adds so many tasks (takes off, where negative) to a leaf's vector; what comes to nothing is dropped."""
    vector = sums.get(leaf)
    if vector is None:
        vector = sums[leaf] = {}
    for resource, amount in demand.items():
        new = vector.get(resource, 0) + amount * tasks
        if new:
            vector[resource] = new
        else:
            vector.pop(resource, None)
    if not vector:
        del sums[leaf]


def kinds_of(state: State) -> list[str]:
    """The kinds that the cell has something of, in the order of every vector here."""
    return sorted(kind for kind, amount in state.capacity.items() if amount > 0)


def direction_of(demand: Vector) -> tuple[tuple[str, int], ...]:
    """The same for demands that are multiples of each other."""
    divisor = gcd(*demand.values())
    return tuple((resource, demand[resource] // divisor) for resource in sorted(demand))
