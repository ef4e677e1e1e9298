"""What leftover learns, record by record: `FOLDS` is the table of cases."""

from largesse.core import Folds
from largesse.ids import shard_of
from largesse.lifecycle.dag import graph_of, progress_of
from largesse.lifecycle.job_life import fail, succeed
from largesse.lifecycle.promises import fold_plans, open_promises, switch
from largesse.lifecycle.queue_policy import groups, serves
from largesse.lifecycle.remaining import KINDS
from largesse.lifecycle.run_times import informed, learn, observe
from largesse.lifecycle.running_limit import admit, leave, limit
from largesse.lifecycle.task_facts import SpareEnd, facts_of
from schemas import (
    Asks,
    ConfigChanged,
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
    Plans,
    Record,
    RoundAbandoned,
    RoundClosed,
    RoundOpened,
    Shares,
    Struck,
    TaskFailed,
    TaskFinished,
    Vector,
)
from schemas.nodes import devices_of
from schemas.placement_rules import class_key, rules_of
from schemas.tasks import TaskEnd, TaskFailure
from services.leftover.core import locality, stragglers
from services.leftover.core.asks import ask, asks_of, shorten
from services.leftover.core.board import add_job, is_reserved, leaf_at, leaf_of, waiting_of, work_left
from services.leftover.core.gather import due_of
from services.leftover.core.order import note_work
from services.leftover.core.pool_breaches import breach_key
from services.leftover.core.reserved import forget_runs, note_runs, take_back
from services.leftover.core.serving import depart, join, move, note_capacity, note_duration, set_up
from services.leftover.core.state import NO_ASKS, Allocation, Job, Node, Reserving, State
from services.leftover.placement.apart import counters_of
from services.leftover.placement.board import Board
from services.leftover.placement.entries import BY_WORK_LEFT
from services.leftover.placement.pending_reasons import WANTS_ROOM


def start(shard: int = 0, of: int = 1) -> State:
    """An empty cell."""
    return State()


def fold(state: State, record: Record) -> None:
    """Learns one record."""
    FOLDS[type(record.body)](state, record)


def in_shard(name: str, asks: Asks) -> bool:
    return shard_of(name, asks.of) == asks.shard


def _config(state: State, record: Record[ConfigChanged]) -> None:
    body = record.body
    served = serves(state.policy)
    if body.policy is not None:
        state.policy = body.policy
        if not body.policy.speculation_permille:
            state.runs = {}
        switch(state.promises, body.policy)
    if body.queues is not None:
        state.queues = body.queues
    _regroup(state, record.time, served=served)
    leaves = {group.path: True for group in state.groups.values()}
    state.served = {leaf: seq for leaf, seq in state.served.items() if leaf in leaves}
    _forget_board(state)
    if body.queues is not None:
        _begin(state, limit(state.running_limits, body.queues), record)


def _regroup(state: State, time: int, *, served: bool) -> None:
    """Queues, and who is served how in them, may be others: then the shadow begins anew. `served`: whether it was kept
    before, which the default policy does without any record of a config."""
    before, fair = state.groups, state.shadow.tree
    state.groups = groups(state.queues, state.policy.preset, "fsp" if serves(state.policy) else "drf")
    if serves(state.policy) != served or state.groups != before or state.queues != fair:
        set_up(state, time)


def _forget_board(state: State) -> None:
    state.board = state.decided = None


def _registered(state: State, record: Record[NodeRegistered]) -> None:
    body = record.body
    before = state.nodes.get(body.node)
    draining = before is not None and before.draining
    devices = devices_of(body.capacity, body.devices)
    node = Node(body.epoch, body.capacity, body.labels, devices, draining, unschedulable=bool(body.unschedulable))
    note_capacity(state, _usable(before), body.capacity)
    state.nodes[body.node] = node
    _forget_board(state)
    _tasks(state, record)


def _usable(node: Node | None) -> Vector:
    """What a node counts in the capacity of the cell."""
    return node.capacity if node is not None and not node.lost else {}


def _reported(state: State, record: Record[NodeReported]) -> None:
    body = record.body
    node = state.nodes[body.node]
    note_capacity(state, _usable(node), body.capacity if not node.lost else {})
    node.capacity, node.labels, node.devices = body.capacity, body.labels, devices_of(body.capacity, body.devices)
    node.unschedulable = bool(body.unschedulable)
    _forget_board(state)


def _drained(state: State, record: Record[NodeDrained]) -> None:
    body = record.body
    state.nodes[body.node].draining = body.draining
    _forget_board(state)


def _lost(state: State, record: Record[NodeLost]) -> None:
    body = record.body
    note_capacity(state, _usable(state.nodes[body.node]), {})
    state.nodes[body.node].lost = True
    _forget_board(state)
    _tasks(state, record)


def _forgotten(state: State, record: Record[NodeForgotten]) -> None:
    del state.nodes[record.body.node]  # It was lost, so it is on no board.


def _admitted(state: State, record: Record[JobAdmitted]) -> None:
    body = record.body
    spec, _ = informed(state.history, body.spec, state.policy.estimates)
    graph = graph_of(spec)
    job = Job(spec.queue, record.seq, spec.priority, graph, progress_of(graph), body.job_class)
    state.jobs[spec.job] = job
    if spec.reservation is not None:
        state.reserving[spec.job] = Reserving(spec.reservation, spec.reservation_atom)
    if state.board is not None:
        add_job(state, state.board, spec.job, job)
    if admit(state.running_limits, spec.job, spec.queue, spec.priority, record.seq):
        _begin(state, [spec.job], record)


def _begin(state: State, names: list[str], record: Record) -> None:
    """These jobs may run from now on, and ask for the stages that can; altruism names what changes later."""
    for name in names:
        job = state.jobs[name]
        job.began = record.seq
        job.fresh_ms = record.time
        join(state, name, job, record.time)  # A reserved one too: its reservation may end before it does.
        if state.board is not None and name in state.board.jobs:
            state.board.wait(name, waiting_of(state, state.board, name, job, asks_of(job)))


def _cancelled(state: State, record: Record[JobCancelled]) -> None:
    _forget_job(state, record.body.job)
    _begin(state, leave(state.running_limits, record.body.job), record)


def _ended(state: State, record: Record[JobEnded]) -> None:
    body = record.body
    for end in body.jobs:
        _forget_job(state, end.job, succeeded=end.outcome == "succeeded")
    for end in body.jobs:
        _begin(state, leave(state.running_limits, end.job), record)


def _forget_job(state: State, name: str, *, succeeded: bool = False) -> None:
    job = state.jobs.pop(name, None)
    if job is not None:
        depart(state, job, succeeded=succeeded)
        learn(state.history, name, job.seen)
        locality.forget(state, name)
        state.runs.pop(name, None)
        state.reserving.pop(name, None)
        if state.board is not None and name in state.board.jobs:
            state.board.remove_job(name)


def _tasks(state: State, record: Record) -> None:
    for fact in facts_of(record.body):
        if isinstance(fact, TaskEnd):
            _release(state, fact.node, fact.job, fact.stage, fact.first, fact.count)
            if state.runs:
                stragglers.note_end(state, fact)
            _succeed(state, fact)
        elif isinstance(fact, TaskFailure):
            _release(state, fact.node, fact.job, fact.stage, fact.first, fact.count)
            if state.runs:
                stragglers.note_end(state, fact)
            _fail(state, fact)
        elif isinstance(fact, SpareEnd):
            _release(state, fact.node, fact.job, fact.stage, fact.first, fact.count, spare=True)
            if state.runs:
                stragglers.note_spare_end(state, fact)


def _succeed(state: State, ended: TaskEnd) -> None:
    name = ended.job
    job = state.jobs.get(name)
    if job is None:
        return
    at = job.graph.position[ended.stage]
    job.seen = observe(job.seen, job.graph.stages[at], ended.count, ended.run_ms, state.policy.estimates)
    if len(job.graph.stages) == 1 == job.graph.stages[0].tasks:
        return  # The job is over, and nobody asks how far it has come.
    succeed(job, at, ended.count, ended.attempt)
    note_duration(state, job, at)
    _note_work(state, name, job)


def _fail(state: State, failed: TaskFailure) -> None:
    job = state.jobs.get(failed.job)
    if job is None:
        return
    at = job.graph.position[failed.stage]
    before = job.progress.left[at]
    for index in range(failed.first, failed.first + failed.count):
        fail(job, at, index, failed.attempt, failed.reason)
    if job.progress.left[at] != before:
        _note_work(state, failed.job, job)  # A gang starts over as a whole.


def _note_work(state: State, name: str, job: Job) -> None:
    """There is more, or less, left of a job."""
    board: Board | None = state.board
    if board is not None and name in board.jobs and board.leaf_of(name).order in BY_WORK_LEFT:
        board.set_work(name, work_left(board, job))
    note_work(state, job)


def _release(state: State, node: str, job: str, stage: str, first: int, count: int, *, spare: bool = False) -> None:
    """Attempts hold no room any more. Those that are `spare` do not end their task, for which its queue holds room
    still."""
    board: Board | None = state.board
    on_node = state.held[node]
    for index in range(first, first + count):
        held = on_node.pop(f"{job}/{stage}/{index}")
        if board is not None:
            pairs = board.room.pairs(held.demand)
            devices = [(share.index, share.milli) for share in held.devices] if held.devices else []
            board.room.give(board.room.number[node], pairs, devices)
            if held.counted:
                board.count(held.counted, board.room.number[node], -1)
            if not spare:
                board.hold(job, pairs, -1, held.queue)
                board.kinds_levels.run(leaf_at(state, held.queue), held.demand, -1)
        if state.copied:
            stragglers.leave(state, node, job, f"{stage}/{index}", spare=spare)
    if not on_node:
        del state.held[node]
    if state.reserving or state.lent:
        forget_runs(state, node, job, stage, first, count)


# ---------------------------------------------------------------- winners and closings
def _opened(state: State, record: Record[RoundOpened]) -> None:
    state.opened, state.opened_ms = record.seq, record.time
    if open_promises(state.promises, record.time):
        _forget_board(state)  # Shares are of something else.
    body = record.body
    if len(body.pools_ppm) != len(state.pools_ppm):
        _forget_board(state)  # Jobs have other lanes from now on.
    state.pools_ppm = body.pools_ppm
    for judged in body.judged:
        job = state.jobs.get(judged.job)
        if job is not None and job.job_class != judged.job_class:
            job.job_class = judged.job_class
            if state.pools_ppm:
                _forget_board(state)
    if serves(state.policy):
        move(state, record.time)


def _shares(state: State, record: Record[Shares]) -> None:
    body = record.body
    if state.decided is not None and state.decided.shares_seen != record.id:
        _forget_board(state)
    for queue in body.gone:
        state.targets.pop(queue, None)
        state.dues.pop(queue, None)
        state.guarantees.pop(queue, None)
        state.parts.pop(queue, None)
    for level in body.levels:
        state.targets[level.queue] = max(level.target, level.due or 0)
        if level.kinds:
            state.parts[level.queue] = {KINDS.join(part.kinds): part.target for part in level.kinds}
        else:
            state.parts.pop(level.queue, None)
        if due_of(level) == state.targets[level.queue]:
            state.dues.pop(level.queue, None)
        else:
            state.dues[level.queue] = due_of(level)
        if level.guaranteed:
            state.guarantees[level.queue] = level.guaranteed
        else:
            state.guarantees.pop(level.queue, None)


def _asks(state: State, record: Record[Asks]) -> None:
    body = record.body
    if state.decided is None or record.id not in state.decided.asks_seen:
        _forget_board(state)
    if body.full:
        for name, job in state.jobs.items():
            if job.began < state.opened and in_shard(name, body):
                ask(job, NO_ASKS)
    said: JobAsk
    for said in body.jobs:
        known = state.jobs.get(said.job)
        if known is not None and known.admitted < state.opened:  # Else another job had the name when it was asked for.
            ask(known, said.asks)


def _grants(state: State, record: Record[Grants]) -> None:
    body = record.body
    if state.decided is None or (state.decided.grants, state.decided.held) != (body.grants, body.held):
        _forget_board(state)
    if body.full:
        state.reasons, state.kept, state.short = {}, {}, {}
        state.vacated, state.awaited, state.pool_breaches = {}, {}, {}
    for wait in body.waits:
        key = class_key(wait.demand, wait.labels, wait.prefer, wait.gang, wait.rules, wait.near)
        if wait.reason == "none":
            state.reasons.pop(key, None)
        else:
            state.reasons[key] = wait
        if wait.reason in WANTS_ROOM:
            state.starved.setdefault(key, record.time)
        else:
            state.starved.pop(key, None)
    for held in body.held:
        rooms = state.kept
        if held.why in ("promise", "locality"):
            rooms = state.vacated if held.why == "promise" else state.awaited
        if held.demand:
            rooms[held.node] = held
        else:
            rooms.pop(held.node, None)
    locality.begin(state, body.locality_waits, record.time)
    for shortfall in body.shortfalls:
        if shortfall.over:
            state.short.pop(shortfall.queue, None)
        else:
            state.short[shortfall.queue] = record.time
    for breach in body.pool_breaches:
        key = breach_key(breach.queue, breach.job_class)
        if breach.over:
            state.pool_breaches.pop(key, None)
        else:
            state.pool_breaches[key] = breach


def _closed(state: State, record: Record[RoundClosed]) -> None:
    body = record.body
    for grant in body.grants:
        _bind(state, grant, record.time)
    if body.revoked:
        take_back(state, body.revoked)
    if state.board is not None:
        if body.struck:
            _take_back(state, body.struck)
        if state.board.is_crowded():
            state.board = None
    state.decided = None


def _bind(state: State, grant: Grant, time: int) -> None:
    job = state.jobs[grant.job]
    if grant.why == "speculative":
        stragglers.bind(state, job, grant, time)
        return
    stages = job.graph.stages
    stage = stages[0] if len(stages) == 1 else stages[job.graph.position[grant.stage]]
    leaf = leaf_of(state, job)
    if state.board is not None:
        state.board.kinds_levels.run(leaf, stage.demand, grant.count)
    is_outside = is_reserved(state, grant.job)
    if state.groups and state.served.get(leaf) != state.opened and not is_outside:
        state.served[leaf] = state.opened
        if state.board is not None:
            state.board.serve(leaf, state.opened)
    prefix, first, on_node = f"{grant.job}/{grant.stage}/", grant.first, state.held.setdefault(grant.node, {})
    rules = rules_of(grant.job, job.queue, stage)
    counted = counters_of(rules)
    for task in range(grant.count):
        devices = grant.devices[task] if grant.devices else []
        held = Allocation(grant.job, grant.stage, job.queue, time, stage.demand, devices)
        on_node[f"{prefix}{first + task}"] = held
        if counted:
            held.counted = counted
    if grant.revocable or grant.job in state.reserving:
        note_runs(state, grant)
    if state.policy.speculation_permille:
        stragglers.note_start(state, grant, stage, time)
    if state.starved:
        like = (stage.demand, stage.labels, stage.prefer, stage.tasks if stage.gang else 0)
        key = state.board.class_for(*like, rules).key if state.board is not None else class_key(*like, rules)
        if key in state.starved:
            state.starved[key] = state.opened_ms
    shorten(job, grant)
    if state.delays:
        locality.start(state, grant)


def _take_back(state: State, struck: list[Struck]) -> None:
    """Struck placements leave the board; their jobs wait again for what they asked."""
    board, decided = state.board, state.decided
    assert board is not None and decided is not None, "struck grants are of the round that was decided last"
    placed = {(p.job, p.stage, p.first): p for p in decided.placements}
    jobs: dict[str, bool] = {}
    for item in struck:
        name = item.grant.job
        job = state.jobs.get(name)
        alive = (
            job is not None and job.admitted < state.opened
        )  # Else it is over, and another may have its name by now.
        board.unplace(placed[name, item.grant.stage, item.grant.first], alive=alive)
        if alive:
            jobs[name] = True
    for name in [name for name in jobs if name in board.jobs]:
        board.wait(name, waiting_of(state, board, name, state.jobs[name], asks_of(state.jobs[name])))


def _plans(state: State, record: Record[Plans]) -> None:
    if fold_plans(state.promises, record.body):
        _forget_board(state)


def _abandoned(state: State, record: Record[RoundAbandoned]) -> None:
    _forget_board(state)


FOLDS: Folds[State] = {
    ConfigChanged: _config,
    NodeRegistered: _registered,
    NodeReported: _reported,
    NodeDrained: _drained,
    NodeLost: _lost,
    NodeForgotten: _forgotten,
    JobAdmitted: _admitted,
    JobCancelled: _cancelled,
    JobEnded: _ended,
    TaskFinished: _tasks,
    TaskFailed: _tasks,
    Plans: _plans,
    Shares: _shares,
    Asks: _asks,
    Grants: _grants,
    RoundOpened: _opened,
    RoundClosed: _closed,
    RoundAbandoned: _abandoned,
}
