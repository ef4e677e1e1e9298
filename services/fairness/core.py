"""Fairness: what every queue of the tree is entitled to, from what its jobs could use now.

Folds   facts of nodes and jobs, task ends, ConfigChanged; its own winning Shares.
Decides Shares: the levels of the queues that moved. Presets: `drf` (leaves side by side), `hdrf` and `largesse` (the
tree).
"""

from dataclasses import dataclass, field
from math import gcd

from largesse.core import Folds, OpenRound
from schemas import (
    Cache,
    ConfigChanged,
    JobAdmitted,
    JobCancelled,
    JobEnded,
    Level,
    NodeLost,
    NodeRegistered,
    NodeReported,
    Policy,
    Queue,
    Record,
    Shares,
    TaskFailed,
    TaskFinished,
    TaskRange,
    Vector,
)
from schemas.gate import Gate, admit, leave, limit
from schemas.graph import Graph, Progress, end_tasks, graph_of, progress_of, runnable
from schemas.tasks import Failure
from schemas.track import Tries, is_broken, judge_failure
from services.fairness.hdrf import fill
from services.fairness.tree import ONE_BITS, Node, share_units

NAME = "fairness"
TOPIC = "shares"
UPSTREAM = ()
READS = ("shares",)
LAYOUT = 2

_ROOT = "/"  # No path of a queue is called so.


@dataclass(slots=True)
class Job:
    """A live job and how far it has come. `began`: it was let through the gates of its queues, and asks."""

    queue: str
    graph: Graph
    progress: Progress
    tries: Tries | None = None
    began: bool = False


@dataclass(slots=True)
class Filled:
    """The last filling, and for each leaf what of its demand the filling depends on: its direction and whether it was
    satisfied. `moved`: leaves whose demand has changed since. `all_fits`: nobody was held back."""

    levels: dict[str, int]
    direction: dict[str, tuple[tuple[str, int], ...]]
    satisfied: dict[str, bool]
    moved: dict[str, bool] = field(default_factory=dict)
    all_fits: bool = False


@dataclass(slots=True)
class State:
    """One cell. `gate`: which jobs may run. `demand`: by leaf queue, all that those jobs run or could start, in base
    units; `total` its sum over the leaves. `told`: levels in force. `full_round`: the last round in which everything
    was written."""

    policy: Policy = field(default_factory=Policy)
    queues: Queue | None = None
    nodes: dict[str, Vector] = field(default_factory=dict)
    capacity: Vector = field(default_factory=dict)
    gate: Gate = field(default_factory=Gate)
    jobs: dict[str, Job] = field(default_factory=dict)
    demand: dict[str, Vector] = field(default_factory=dict)
    total: Vector = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)
    full_round: int = 0
    filled: Cache = None


def start(shard: int = 0, of: int = 1) -> State:
    """An empty cell."""
    return State()


def fold(state: State, record: Record) -> None:
    """Learns one record."""
    FOLDS[type(record.body)](state, record)


def decide(state: State, opened: OpenRound) -> list[Shares]:
    """Levels that differ from those in force; all of them every `keyframe_rounds`."""
    levels = _levels(state)
    full = opened.record.round - state.full_round >= state.policy.keyframe_rounds
    if full:
        changed = [Level(queue, target) for queue, target in sorted(levels.items())]
    elif levels == state.told:
        return [Shares([])]
    else:
        changed = [Level(q, target) for q, target in sorted(levels.items()) if state.told.get(q) != target]
    gone = sorted(queue for queue in state.told if queue not in levels)
    return [Shares(changed, gone, full)]


# ---------------------------------------------------------------- levels
def _levels(state: State) -> dict[str, int]:
    """Dominant share by leaf queue with demand, in 10^-9 of the cell. Fills anew only if a change can alter the
    outcome.
    """
    if state.queues is None or not state.queues.children or state.policy.preset == "fifo":
        return {}
    filled: Filled | None = state.filled
    if _all_fits(state):
        state.filled = filled = _satisfied(state, filled)
    elif filled is None or filled.all_fits or any(_matters(state, filled, leaf) for leaf in filled.moved):
        state.filled = filled = _fill(state)
    filled.moved = {}
    return filled.levels


def _all_fits(state: State) -> bool:
    """Whether everybody can have all that they ask for. A kind that the cell has not got never counts."""
    have = state.capacity
    return all(amount <= have.get(kind, 0) or not have.get(kind) for kind, amount in state.total.items())


def _satisfied(state: State, before: Filled | None) -> Filled:
    """Nobody is held back, so every leaf's level is its own demand, and only leaves that moved have another level."""
    if before is None or not before.all_fits:
        levels = {leaf: _dominant(demand, state.capacity) for leaf, demand in state.demand.items() if demand}
        return Filled(levels, {}, {}, all_fits=True)
    for leaf in before.moved:
        demand = state.demand.get(leaf)
        if demand:
            before.levels[leaf] = _dominant(demand, state.capacity)
        else:
            before.levels.pop(leaf, None)
    return before


def _matters(state: State, filled: Filled, leaf: str) -> bool:
    """Whether the leaf's new demand can lead to another filling: it can unless the leaf asks in the same direction as
    before, was held back by a full kind then, and still asks for more than it got."""
    demand = state.demand.get(leaf)
    if not demand or leaf not in filled.levels:
        return bool(demand) or leaf in filled.levels
    if filled.satisfied[leaf] or _direction(demand) != filled.direction[leaf]:
        return True
    return _dominant(demand, state.capacity) <= filled.levels[leaf] + 1


def _direction(demand: Vector) -> tuple[tuple[str, int], ...]:
    divisor = gcd(*demand.values())
    return tuple((resource, demand[resource] // divisor) for resource in sorted(demand))


def _dominant(demand: Vector, capacity: Vector) -> int:
    """The share of a leaf that gets all it asks for, rounded as a filling rounds it."""
    shares = [(amount << ONE_BITS) // capacity[r] for r, amount in demand.items() if capacity.get(r, 0) > 0]
    return share_units(max(shares, default=0))


def _fill(state: State) -> Filled:
    kinds = sorted(kind for kind, amount in state.capacity.items() if amount > 0)
    assert state.queues is not None
    demand = {leaf: vector for leaf, vector in state.demand.items() if vector}
    nodes = _leaf_nodes(state.queues, demand, kinds) if state.policy.preset == "drf" else None
    root = Node(_ROOT, children=nodes) if nodes is not None else _tree(state.queues, "", demand, kinds)
    if root is None or not root.children:
        return Filled({}, {}, {})
    reached = fill(root, [state.capacity[kind] for kind in kinds]).leaves
    levels = {leaf: at.share_units for leaf, at in reached.items()}
    satisfied = {leaf: at.satisfied for leaf, at in reached.items()}
    return Filled(levels, {leaf: _direction(demand[leaf]) for leaf in levels}, satisfied)


def _tree(queue: Queue, path: str, demand: dict[str, Vector], kinds: list[str]) -> Node | None:
    """The part of the tree that asks for something; None where nothing does."""
    if not queue.children:
        vector = demand.get(path)
        return Node(path, queue.weight, demand=[vector.get(kind, 0) for kind in kinds]) if vector else None
    below = [_tree(child, f"{path}/{child.name}" if path else child.name, demand, kinds) for child in queue.children]
    asking = [node for node in below if node is not None]
    return Node(path or _ROOT, queue.weight, asking) if asking else None


def _leaf_nodes(queue: Queue, demand: dict[str, Vector], kinds: list[str]) -> list[Node]:
    """The leaves that ask for something, side by side, each with its own weight (flat DRF)."""
    root = _tree(queue, "", demand, kinds)
    flat: list[Node] = []
    todo = [root] if root is not None else []
    while todo:
        node = todo.pop()
        todo.extend(reversed(node.children))
        if not node.children:
            flat.append(node)
    return flat


# ---------------------------------------------------------------- facts
def _config(state: State, record: Record) -> None:
    body: ConfigChanged = record.body
    if body.policy is not None:
        state.policy = body.policy
    if body.queues is not None:
        state.queues = body.queues  # Demand stays: jobs are in the same leaves, and a tree without those is refused.
        _begin(state, limit(state.gate, body.queues))
    state.filled = None


def _capacity(state: State, record: Record) -> None:
    body: NodeRegistered | NodeReported = record.body
    _count_capacity(state, state.nodes.pop(body.node, {}), -1)
    state.nodes[body.node] = body.capacity
    _count_capacity(state, body.capacity, 1)
    if isinstance(body, NodeRegistered):
        _end_ranges(state, body.lost)
        for known in body.attempts:
            if known.state == "succeeded":
                _succeed(state, known.job, known.stage, known.count, known.attempt)
            elif known.state == "failed":
                for index in range(known.first, known.first + known.count):
                    _fail(state, known.job, known.stage, index, known.attempt, known.reason or "exit_code")


def _count_capacity(state: State, capacity: Vector, sign: int) -> None:
    for resource, amount in capacity.items():
        state.capacity[resource] = state.capacity.get(resource, 0) + sign * amount
    state.filled = None


def _lost(state: State, record: Record) -> None:
    body: NodeLost = record.body
    _count_capacity(state, state.nodes.pop(body.node), -1)
    _end_ranges(state, body.lost)


def _admitted(state: State, record: Record) -> None:
    body: JobAdmitted = record.body
    graph = graph_of(body.spec)
    state.jobs[body.spec.job] = Job(body.spec.queue, graph, progress_of(graph))
    if admit(state.gate, body.spec.job, body.spec.queue, body.spec.priority, record.seq):
        _begin(state, [body.spec.job])


def _begin(state: State, names: list[str]) -> None:
    """These jobs may run from now on, so they ask for something."""
    for name in names:
        job = state.jobs[name]
        job.began = True
        for at in runnable(job.progress):
            _add(state, job, at, job.graph.stages[at].tasks)


def _add(state: State, job: Job, at: int, tasks: int) -> None:
    """`tasks` more (fewer, where negative) of a stage run or could start."""
    leaf = state.demand.get(job.queue)
    if leaf is None:
        leaf = state.demand[job.queue] = {}
    for resource, amount in job.graph.stages[at].demand.items():
        state.total[resource] = state.total.get(resource, 0) + amount * tasks
        asked = leaf.get(resource, 0) + amount * tasks
        if asked:
            leaf[resource] = asked
        else:
            leaf.pop(resource, None)
    if not leaf:
        del state.demand[job.queue]
    if state.filled is not None:
        state.filled.moved[job.queue] = True


def _cancelled(state: State, record: Record) -> None:
    _forget(state, record.body.job)
    _begin(state, leave(state.gate, record.body.job))


def _ended(state: State, record: Record) -> None:
    body: JobEnded = record.body
    for end in body.jobs:
        _forget(state, end.job)
    for end in body.jobs:
        _begin(state, leave(state.gate, end.job))


def _forget(state: State, name: str) -> None:
    job = state.jobs.pop(name, None)
    if job is None or not job.began:
        return
    for at, left in enumerate(job.progress.left):
        if left and job.progress.parents[at] == 0:
            _add(state, job, at, -left)


def _finished(state: State, record: Record) -> None:
    for item in record.body.items:
        _succeed(state, item.job, item.stage, item.count, item.attempt)


def _succeed(state: State, name: str, stage: str, count: int, attempt: int) -> None:
    job = state.jobs.get(name)
    if job is None:
        return
    at = job.graph.position[stage]
    if job.graph.stages[at].gang and is_broken(job.tries, at, attempt):
        return
    _add(state, job, at, -count)
    for child in end_tasks(job.graph, job.progress, at, count):
        _add(state, job, child, job.graph.stages[child].tasks)


def _failed(state: State, record: Record) -> None:
    for item in record.body.items:
        for index in range(item.first, item.first + item.count):
            _fail(state, item.job, item.stage, index, item.attempt, item.reason)


def _end_ranges(state: State, ranges: list[TaskRange]) -> None:
    for item in ranges:
        for index in range(item.first, item.first + item.count):
            _fail(state, item.job, item.stage, index, item.attempt, "lost")


def _fail(state: State, name: str, stage: str, index: int, attempt: int, reason: Failure) -> None:
    """The task waits again, so demand stays; but what had succeeded of a broken gang comes back."""
    job = state.jobs.get(name)
    if job is None:
        return
    at = job.graph.position[stage]
    before = job.progress.left[at]
    if job.tries is None:
        job.tries = Tries()
    judge_failure(job.tries, job.graph, job.progress, at, index, attempt, reason)
    if back := job.progress.left[at] - before:
        _add(state, job, at, back)


def _told(state: State, record: Record) -> None:
    body: Shares = record.body
    for queue in body.gone:
        state.told.pop(queue, None)
    for level in body.levels:
        state.told[level.queue] = level.target
    if body.full:
        state.full_round = record.round


FOLDS: Folds = {
    ConfigChanged: _config,
    NodeRegistered: _capacity,
    NodeReported: _capacity,
    NodeLost: _lost,
    JobAdmitted: _admitted,
    JobCancelled: _cancelled,
    JobEnded: _ended,
    TaskFinished: _finished,
    TaskFailed: _failed,
    Shares: _told,
}
