"""Leftover: whole tasks on nodes, best claim first, until nothing that waits fits.

Folds   facts of nodes and jobs, task ends, ConfigChanged; winning Shares, Asks and Grants; openings and closings.
Decides Grants: tasks with their nodes, and the task classes whose reason to wait has changed.
"""

from dataclasses import dataclass, field, replace

from largesse.core import Folds, OpenRound
from largesse.ids import shard_of
from schemas import (
    Asks,
    Cache,
    ClassWait,
    ConfigChanged,
    Device,
    DeviceShare,
    Grant,
    Grants,
    JobAdmitted,
    JobAsk,
    JobCancelled,
    JobEnded,
    NodeDrained,
    NodeForgotten,
    NodeLost,
    NodeRegistered,
    NodeReported,
    Policy,
    Record,
    RoundAbandoned,
    RoundClosed,
    RoundOpened,
    Shares,
    StageAsk,
    Struck,
    TaskFailed,
    TaskFinished,
    TaskRange,
    Vector,
)
from schemas.gate import Gate, admit, leave, limit
from schemas.graph import Graph, graph_of
from schemas.nodes import devices_of
from schemas.quantities import SHARE_UNITS
from services.leftover.placement import Board, Discipline, Placement, Waiting
from services.leftover.room import Room

NAME = "leftover"
TOPIC = "grants"
UPSTREAM = ("shares", "asks")
READS = ("shares", "asks", "grants")
LAYOUT = 1


@dataclass(slots=True)
class Node:
    """A node as far as placement goes."""

    epoch: str
    capacity: Vector
    labels: dict[str, str]
    devices: list[Device]
    draining: bool = False
    lost: bool = False


@dataclass(slots=True)
class Job:
    """A live job: its queue, its place in the order of admission, its graph, what it asks for in its order. `began`:
    seq of the record since which it may run; from then on it asks for all tasks of the stages without parents."""

    queue: str
    order: int
    priority: int
    graph: Graph
    began: int = 0
    asks: list[StageAsk] = field(default_factory=list)


@dataclass(slots=True)
class Held:
    """One task's room on a node; outlives its job until the node gives it back."""

    job: str
    node: str
    demand: Vector
    devices: list[DeviceShare]


@dataclass(slots=True)
class Decided:
    """What this instance answered to the open round, until the closing says what binds."""

    asks_seen: list[str]
    shares_seen: str
    placements: list[Placement]
    grants: list[Grant]


@dataclass(slots=True)
class State:
    """One cell. `gate`: which jobs may run. `opened`: seq of the last opening. `held` is keyed "job/stage/index";
    `targets` are the levels in force; `reasons` what was last said of
    each class that waits. `board` ranks all that and can be built from it; `decided` belongs to the board."""

    policy: Policy = field(default_factory=Policy)
    has_queues: bool = False
    gate: Gate = field(default_factory=Gate)
    opened: int = 0
    nodes: dict[str, Node] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    targets: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, ClassWait] = field(default_factory=dict)
    board: Cache = None
    decided: Cache = None


def start(shard: int = 0, of: int = 1) -> State:
    """An empty cell."""
    return State()


def fold(state: State, record: Record) -> None:
    """Learns one record."""
    FOLDS[type(record.body)](state, record)


def decide(state: State, opened: OpenRound) -> list[Grants]:
    """Places what the round asks for. Only the caches change; the closing says what binds."""
    if state.decided is not None:
        state.board = None  # An answer that was never folded: begin again from what binds.
    board = state.board if state.board is not None else _build(state)
    state.board = board
    shares, asks = opened.upstream["shares"][0], opened.upstream["asks"]
    for queue in shares.body.gone:
        board.set_target(queue, SHARE_UNITS)
    for level in shares.body.levels:
        board.set_target(level.queue, level.target)
    for record in asks:
        _show_asks(state, board, record.body)
    placements = board.place()
    grants = [_grant(board, p) for p in placements]
    state.decided = Decided([record.id for record in asks], shares.id, placements, grants)
    return [Grants(grants, waits=_waits(state, board))]


def _show_asks(state: State, board: Board, asks: Asks) -> None:
    if asks.full:
        named = {ask.job: True for ask in asks.jobs}
        for name, job in state.jobs.items():
            if job.asks and name not in named and _in_shard(name, asks):
                board.wait(name, [])
    for ask in asks.jobs:
        asking = state.jobs.get(ask.job)
        if asking is not None:
            board.wait(ask.job, _waiting(board, asking, ask.asks))


def _in_shard(name: str, asks: Asks) -> bool:
    return shard_of(name, asks.of) == asks.shard


def _waiting(board: Board, job: Job, asks: list[StageAsk]) -> list[Waiting]:
    waits = []
    for ask in asks:
        place = job.graph.position[ask.stage]
        stage = job.graph.stages[place]
        task = board.class_for(stage.demand, stage.labels, stage.prefer, stage.tasks if stage.gang else 0)
        waits.append(Waiting(ask.stage, place, task, ask.first, ask.count, ask.attempt, ask.since_ms))
    return waits


def _grant(board: Board, placement: Placement) -> Grant:
    node = board.room.nodes[placement.node]
    grant = Grant(
        placement.job, placement.stage, placement.first, placement.count, placement.attempt, node.name, node.epoch
    )
    if placement.beyond:
        grant.why = "packed"
    if placement.devices:
        grant.devices = [[DeviceShare(index, milli) for index, milli in shares] for shares in placement.devices]
    return grant


def _waits(state: State, board: Board) -> list[ClassWait]:
    """Classes whose reason is another than the one last said, in the order of their keys."""
    changed: dict[str, ClassWait] = {}
    for task, reason in board.reasons():
        key = _class_key(task.demand, task.labels, task.prefer, task.gang)
        said = state.reasons.get(key)
        if reason != (said.reason if said is not None else "none"):
            changed[key] = ClassWait(task.demand, task.labels, task.prefer, task.gang, reason)
    return [changed[key] for key in sorted(changed)]


def _class_key(demand: Vector, labels: dict[str, str], prefer: dict[str, str], gang: int) -> str:
    return f"{sorted(demand.items())}{sorted(labels.items())}{sorted(prefer.items())}{gang}"


def _build(state: State) -> Board:
    """The board that everything folded so far comes to."""
    nodes = {name: node for name, node in state.nodes.items() if not node.lost}
    room = Room([node.capacity for node in nodes.values()])
    for name, node in nodes.items():
        devices = [(device.index, device.milli) for device in node.devices]
        room.add(name, node.epoch, node.capacity, node.labels, devices, not node.draining)
    board = Board(room, _discipline(state))
    for name, job in state.jobs.items():
        board.add_job(name, job.order, _leaf_of(state, job), job.priority)
    for held in state.held.values():
        pairs = room.pairs(held.demand)
        if held.node in room.number:
            room.occupy(held.node, pairs, [(share.index, share.milli) for share in held.devices])
        board.hold(held.job, pairs, 1)
    for queue, target in state.targets.items():
        board.set_target(queue, target)
    for name, job in state.jobs.items():
        if job.asks:
            board.wait(name, _waiting(board, job, job.asks))
    for said in state.reasons.values():  # What was said to wait may wait no longer.
        board.class_for(said.demand, said.labels, said.prefer, said.gang)
    board.stir_all()
    return board


def _discipline(state: State) -> Discipline:
    if state.policy.preset != "fifo":
        return "fair"
    return "fifo_stage" if state.policy.fifo_order == "stage" else "fifo_job"


def _leaf_of(state: State, job: Job) -> str:
    return job.queue if state.has_queues and state.policy.preset != "fifo" else ""


# ---------------------------------------------------------------- facts
def _config(state: State, record: Record) -> None:
    body: ConfigChanged = record.body
    if body.policy is not None:
        state.policy = body.policy
    if body.queues is not None:
        state.has_queues = bool(body.queues.children)
    _forget_board(state)
    if body.queues is not None:
        _begin(state, limit(state.gate, body.queues), record)


def _forget_board(state: State) -> None:
    state.board = state.decided = None


def _registered(state: State, record: Record) -> None:
    body: NodeRegistered = record.body
    before = state.nodes.get(body.node)
    draining = before is not None and before.draining
    state.nodes[body.node] = Node(
        body.epoch, body.capacity, body.labels, devices_of(body.capacity, body.devices), draining
    )
    _forget_board(state)
    _release_ranges(state, body.lost)
    for known in body.attempts:
        if known.state != "running":
            _release(state, known.job, known.stage, known.first, known.count)


def _reported(state: State, record: Record) -> None:
    body: NodeReported = record.body
    node = state.nodes[body.node]
    node.capacity, node.labels, node.devices = body.capacity, body.labels, devices_of(body.capacity, body.devices)
    _forget_board(state)


def _drained(state: State, record: Record) -> None:
    body: NodeDrained = record.body
    state.nodes[body.node].draining = body.draining
    _forget_board(state)


def _lost(state: State, record: Record) -> None:
    body: NodeLost = record.body
    state.nodes[body.node].lost = True
    _forget_board(state)
    _release_ranges(state, body.lost)


def _forgotten(state: State, record: Record) -> None:
    del state.nodes[record.body.node]  # It was lost, so it is on no board.


def _admitted(state: State, record: Record) -> None:
    body: JobAdmitted = record.body
    spec = body.spec
    job = Job(spec.queue, record.seq, spec.priority, graph_of(spec))
    state.jobs[spec.job] = job
    if state.board is not None:
        state.board.add_job(spec.job, job.order, _leaf_of(state, job), job.priority)
    if admit(state.gate, spec.job, spec.queue, spec.priority, record.seq):
        _begin(state, [spec.job], record)


def _begin(state: State, names: list[str], record: Record) -> None:
    """These jobs may run from now on, and ask for the stages that can; altruism names what changes later."""
    for name in names:
        job = state.jobs[name]
        job.began = record.seq
        job.asks = [StageAsk(s.stage, 0, s.tasks, 1, record.time) for s in job.graph.stages if not s.after]
        if state.board is not None:
            state.board.wait(name, _waiting(state.board, job, job.asks))


def _cancelled(state: State, record: Record) -> None:
    _forget_job(state, record.body.job)
    _begin(state, leave(state.gate, record.body.job), record)


def _ended(state: State, record: Record) -> None:
    body: JobEnded = record.body
    for end in body.jobs:
        _forget_job(state, end.job)
    for end in body.jobs:
        _begin(state, leave(state.gate, end.job), record)


def _forget_job(state: State, name: str) -> None:
    if state.jobs.pop(name, None) is not None and state.board is not None:
        state.board.remove_job(name)


def _finished(state: State, record: Record) -> None:
    for item in record.body.items:
        _release(state, item.job, item.stage, item.first, item.count)


def _release_ranges(state: State, ranges: list[TaskRange]) -> None:
    for item in ranges:
        _release(state, item.job, item.stage, item.first, item.count)


def _release(state: State, job: str, stage: str, first: int, count: int) -> None:
    board: Board | None = state.board
    for index in range(first, first + count):
        held = state.held.pop(f"{job}/{stage}/{index}")
        if board is not None:
            pairs = board.room.pairs(held.demand)
            devices = [(share.index, share.milli) for share in held.devices] if held.devices else []
            board.room.give(board.room.number[held.node], pairs, devices)
            board.hold(job, pairs, -1)


# ---------------------------------------------------------------- winners and closings
def _opened(state: State, record: Record) -> None:
    state.opened = record.seq


def _shares(state: State, record: Record) -> None:
    body: Shares = record.body
    if state.decided is not None and state.decided.shares_seen != record.id:
        _forget_board(state)
    for queue in body.gone:
        state.targets.pop(queue, None)
    for level in body.levels:
        state.targets[level.queue] = level.target


def _asks(state: State, record: Record) -> None:
    body: Asks = record.body
    if state.decided is None or record.id not in state.decided.asks_seen:
        _forget_board(state)
    if body.full:
        for name, job in state.jobs.items():
            if job.began < state.opened and _in_shard(name, body):
                job.asks = []
    ask: JobAsk
    for ask in body.jobs:
        known = state.jobs.get(ask.job)
        if known is not None:
            known.asks = list(ask.asks)  # Its spans are never changed in place.


def _grants(state: State, record: Record) -> None:
    body: Grants = record.body
    if state.decided is None or state.decided.grants != body.grants:
        _forget_board(state)
    if body.full:
        state.reasons = {}
    for wait in body.waits:
        key = _class_key(wait.demand, wait.labels, wait.prefer, wait.gang)
        if wait.reason == "none":
            state.reasons.pop(key, None)
        else:
            state.reasons[key] = wait


def _closed(state: State, record: Record) -> None:
    body: RoundClosed = record.body
    for grant in body.grants:
        _bind(state, grant)
    if state.board is not None:
        if body.struck:
            _take_back(state, body.struck)
        if state.board.is_crowded():
            state.board = None
    state.decided = None


def _bind(state: State, grant: Grant) -> None:
    job = state.jobs[grant.job]
    stage = job.graph.stages[job.graph.position[grant.stage]]
    prefix = f"{grant.job}/{grant.stage}/"
    for task in range(grant.count):
        devices = grant.devices[task] if grant.devices else []
        state.held[f"{prefix}{grant.first + task}"] = Held(grant.job, grant.node, stage.demand, devices)
    _shorten(job.asks, grant)


def _shorten(asks: list[StageAsk], grant: Grant) -> None:
    """Takes granted tasks off what the job asks for."""
    for i, ask in enumerate(asks):
        behind = grant.first - ask.first
        if ask.stage != grant.stage or behind < 0 or behind >= ask.count:
            continue
        ahead = ask.count - behind - grant.count
        assert ahead >= 0, f"{grant.job}/{grant.stage}: granted tasks are not one span that it asked for"
        rest = [replace(ask, first=grant.first + grant.count, count=ahead)] if ahead else []
        asks[i : i + 1] = [replace(ask, count=behind), *rest] if behind else rest
        return
    raise AssertionError(f"{grant.job}/{grant.stage}/{grant.first} was granted but not asked for")


def _take_back(state: State, struck: list[Struck]) -> None:
    """Struck placements leave the board; their jobs wait again for what they asked."""
    board: Board = state.board
    placed = {(p.job, p.stage, p.first): p for p in state.decided.placements}
    jobs: dict[str, bool] = {}
    for item in struck:
        board.unplace(placed[item.grant.job, item.grant.stage, item.grant.first])
        jobs[item.grant.job] = True
    for name in jobs:
        job = state.jobs.get(name)
        if job is not None:
            board.wait(name, _waiting(board, job, job.asks))


def _abandoned(state: State, record: Record) -> None:
    _forget_board(state)


FOLDS: Folds = {
    ConfigChanged: _config,
    NodeRegistered: _registered,
    NodeReported: _reported,
    NodeDrained: _drained,
    NodeLost: _lost,
    NodeForgotten: _forgotten,
    JobAdmitted: _admitted,
    JobCancelled: _cancelled,
    JobEnded: _ended,
    TaskFinished: _finished,
    TaskFailed: _finished,
    Shares: _shares,
    Asks: _asks,
    Grants: _grants,
    RoundOpened: _opened,
    RoundClosed: _closed,
    RoundAbandoned: _abandoned,
}
