"""What fairness keeps of a cell: who asks for what, who holds what since when, what has been told."""

from dataclasses import dataclass, field

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
    """Tasks that failed, each with this demand, and are asked for again at `at_ms` only; None: of a gang some still
    run. `failures`: so many count for the back-off; 0: there is none."""

    at_ms: int | None
    tasks: int
    demand: Vector
    failures: int


@dataclass(slots=True)
class State:
    """One cell. `gate`: which jobs may run.

    By leaf queue, in base units: `demand`, all that jobs run or could start (`total` its sum over the leaves);
    `waiting`, the part of it that no task holds, and `waits`, how many tasks that is; `used`, all that is held, also of
    jobs that are over. `held` is keyed "job/stage"; `running`: log time of a closing -> tasks that it granted and that
    still hold. `resting`: by job, what waits out a back-off, by "stage/index", a gang by "stage"; `rest_ends`: a heap
    of when, for which job and what; `rests` and `rested`: by leaf, how many tasks that is and what they ask for.

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
    resting: dict[str, dict[str, Rest]] = field(default_factory=dict)
    rest_ends: list[tuple[int, str, str]] = field(default_factory=list)
    rests: dict[str, int] = field(default_factory=dict)
    rested: dict[str, Vector] = field(default_factory=dict)
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


SLOTS = "slots"
"""The only kind that counts under the preset `slots`: places, one a task."""

_ONE_SLOT = {SLOTS: 1}


def counted(state: State, demand: Vector) -> Vector:
    """What a task with such a demand counts for."""
    return _ONE_SLOT if state.policy.preset == "slots" else demand


def counted_capacity(state: State, capacity: Vector) -> Vector:
    """What a node with such a capacity counts for; one without any (unknown as yet) for nothing."""
    return {SLOTS: state.policy.slots_per_node} if capacity and state.policy.preset == "slots" else capacity


def slots_of(policy: Policy) -> int:
    """Places a node; 0 where they do not count."""
    return policy.slots_per_node if policy.preset == "slots" else 0


def recount(state: State) -> None:
    """Sums everything up anew, after what a task or a node counts for has changed. Costs the nodes and live jobs."""
    state.capacity, state.total = {}, {}
    state.demand, state.waiting, state.used, state.rests, state.rested = {}, {}, {}, {}, {}
    for capacity in state.nodes.values():
        for resource, amount in counted_capacity(state, capacity).items():
            state.capacity[resource] = state.capacity.get(resource, 0) + amount
    for job in state.jobs.values():
        for at, left in enumerate(job.progress.left):
            if job.began and left and job.progress.parents[at] == 0:
                demand = counted(state, job.graph.stages[at].demand)
                add_tasks(state.demand, job.queue, demand, left)
                add_tasks(state.waiting, job.queue, demand, left)
                for resource, amount in demand.items():
                    state.total[resource] = state.total.get(resource, 0) + amount * left
    for key, held in state.held.items():
        demand = counted(state, held.demand)
        add_tasks(state.used, held.leaf, demand, len(held.since))
        if key.partition("/")[0] in state.jobs:
            add_tasks(state.waiting, held.leaf, demand, -len(held.since))
    for name, resting in state.resting.items():
        for each in resting.values():
            add_rest(state, state.jobs[name].queue, each.demand, each.tasks)


def add_rest(state: State, leaf: str, demand: Vector, tasks: int) -> None:
    """So many tasks more of a leaf (fewer, where negative) wait out a back-off."""
    if tasks:
        left = state.rests.get(leaf, 0) + tasks
        if left:
            state.rests[leaf] = left
            add_tasks(state.rested, leaf, counted(state, demand), tasks)
        else:
            del state.rests[leaf]
            state.rested.pop(leaf, None)
        if state.ledger is not None:
            state.ledger.moved[leaf] = True


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
