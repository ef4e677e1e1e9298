"""Folds everything but rounds: configuration, nodes, jobs, and ends of tasks. `FOLDS` says which function folds which
record.
"""

from largesse.core import Folds
from largesse.lifecycle.counted import counted_spec
from largesse.lifecycle.dag import graph_of, resumed
from largesse.lifecycle.failing_nodes import note_failure, note_success
from largesse.lifecycle.job_life import fail, give_up, succeed
from largesse.lifecycle.promises import fold_plans, switch
from largesse.lifecycle.queue_policy import groups, serving_leaf, uses_shadow_order
from largesse.lifecycle.run_times import informed, learn, observe, rule_of
from largesse.lifecycle.running_limit import leave, may_run, relimit, take_turns
from largesse.lifecycle.task_facts import SpareEnd, facts_of
from schemas import (
    Asks,
    ConfigChanged,
    Grants,
    JobAdmitted,
    JobCancelled,
    JobChanged,
    JobEnded,
    JobTurns,
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
    TaskFailed,
    TaskFinished,
    Vector,
)
from schemas.nodes import devices_of
from schemas.policy import Estimates
from schemas.tasks import TaskEnd, TaskFailure
from services.leftover.core import failed_on, locality
from services.leftover.core.board import add_job, leaf_at, work_left
from services.leftover.core.copies import stragglers
from services.leftover.core.job import Job
from services.leftover.core.mix import note_admitted
from services.leftover.core.preemption.changes import note_change
from services.leftover.core.preemption.runs import note_release, recount
from services.leftover.core.reservations.runs import forget_promised, forget_runs
from services.leftover.core.round_fold import (
    fold_abandoned,
    fold_asks,
    fold_closing,
    fold_grants,
    fold_opening,
    fold_shares,
    forget_board,
    rank_nodes,
)
from services.leftover.core.shadow_order import note_capacity, set_up
from services.leftover.core.state import Node, Reserving, State
from services.leftover.core.user_holds import begin, fold_changed, park
from services.leftover.placement.board import Board
from services.leftover.placement.orders import JOB_ORDERS


def start(shard: int = 0, of: int = 1) -> State:
    """An empty cell."""
    return State()


def fold(state: State, record: Record) -> None:
    """Learns one record."""
    FOLDS[type(record.body)](state, record)


def _config(state: State, record: Record[ConfigChanged]) -> None:
    body = record.body
    note_change(state)
    served = uses_shadow_order(state.policy)
    if body.policy is not None:
        state.policy = body.policy
        state.watch = None
        if not body.policy.speculation_permille:
            state.runs = {}
        switch(state.promises, body.policy)
    if body.queues is not None:
        state.queues = body.queues
    _regroup(state, record.time, served=served)
    leaves = {serving_leaf(state.groups, queue): True for queue in state.groups}
    state.served = {leaf: seq for leaf, seq in state.served.items() if leaf in leaves}
    forget_board(state)
    recount(state)
    if body.queues is not None:
        queues = [(name, job.queue) for name, job in state.jobs.items()]
        begin(state, relimit(state.running_limits, body.queues, queues), record)


def _regroup(state: State, time: int, *, served: bool) -> None:
    """Queues, and who is served how in them, may be others: then the shadow starts over. `served`: whether it was kept
    before, which the default policy does without any record of a config."""
    before, shadow_tree = state.groups, state.shadow.tree
    state.groups = groups(state.queues, state.policy.preset, "fsp" if uses_shadow_order(state.policy) else "drf")
    if uses_shadow_order(state.policy) != served or state.groups != before or state.queues != shadow_tree:
        set_up(state, time)


def _registered(state: State, record: Record[NodeRegistered]) -> None:
    body = record.body
    note_change(state)
    before = state.nodes.get(body.node)
    draining = before is not None and before.draining
    devices = devices_of(body.capacity, body.devices)
    node = Node(body.epoch, body.capacity, body.labels, devices, draining, unschedulable=bool(body.unschedulable))
    note_capacity(state, _usable(before), body.capacity)
    state.nodes[body.node] = node
    forget_board(state)
    _tasks(state, record)
    if before is not None and before.epoch != body.epoch:
        state.failures.pop(body.node, None)


def _usable(node: Node | None) -> Vector:
    """What a node counts in the capacity of the cell."""
    return node.capacity if node is not None and not node.lost else {}


def _reported(state: State, record: Record[NodeReported]) -> None:
    body = record.body
    note_change(state)
    node = state.nodes[body.node]
    note_capacity(state, _usable(node), body.capacity if not node.lost else {})
    node.capacity, node.labels, node.devices = body.capacity, body.labels, devices_of(body.capacity, body.devices)
    node.unschedulable = bool(body.unschedulable)
    forget_board(state)


def _drained(state: State, record: Record[NodeDrained]) -> None:
    body = record.body
    note_change(state)
    state.nodes[body.node].draining = body.draining
    forget_board(state)


def _lost(state: State, record: Record[NodeLost]) -> None:
    body = record.body
    note_change(state)
    note_capacity(state, _usable(state.nodes[body.node]), {})
    state.nodes[body.node].lost = True
    forget_board(state)
    _tasks(state, record)


def _forgotten(state: State, record: Record[NodeForgotten]) -> None:
    del state.nodes[record.body.node]  # It was lost, so it is on no board.
    state.failures.pop(record.body.node, None)


def _admitted(state: State, record: Record[JobAdmitted]) -> None:
    body = record.body
    note_change(state)
    spec, _ = informed(state.history, counted_spec(body), state.policy)
    graph = graph_of(spec)
    job = Job(spec.queue, record.seq, spec.priority, graph, resumed(graph, body.kept), body.job_class, spec.user)
    state.jobs[spec.job] = job
    if spec.reservation is not None:
        state.reserving[spec.job] = Reserving(spec.reservation, spec.reservation_atom)
    if spec.revocable != "auto":
        state.revocable[spec.job] = spec.revocable
    if state.board is not None:
        add_job(state, state.board, spec.job, job)
    note_admitted(state, job)
    if body.run > 1:
        state.again[spec.job] = body.attempts
    if spec.hold:
        state.on_hold[spec.job] = False
    if may_run(state.running_limits, spec.job, spec.queue, spec.priority, record.seq):
        begin(state, [spec.job], record)


def _turned(state: State, record: Record[JobTurns]) -> None:
    body = record.body
    for back in body.held_back:
        park(state, back.job)
    take_turns(state.running_limits, body)
    begin(state, body.let_run, record)


def _cancelled(state: State, record: Record[JobCancelled]) -> None:
    _forget_job(state, record.body.job)
    begin(state, leave(state.running_limits, record.body.job), record)


def _ended(state: State, record: Record[JobEnded]) -> None:
    body = record.body
    for end in body.jobs:
        _forget_job(state, end.job, succeeded=end.outcome == "succeeded")
    for end in body.jobs:
        begin(state, leave(state.running_limits, end.job), record)


def _forget_job(state: State, name: str, *, succeeded: bool = False) -> None:
    job = state.jobs.pop(name, None)
    if job is not None:
        state.shadow.depart(job, succeeded=succeeded)
        if not succeeded and state.ending:
            state.ending = {}  # What it holds still may be given back at any moment.
        learn(state.history, name, job.user, job.seen)
        locality.forget(state, name)
        failed_on.forget(state, name)
        stragglers.forget(state, name)
        state.reserving.pop(name, None)
        state.held_back.pop(name, None)
        state.on_hold.pop(name, None)
        state.again.pop(name, None)
        forget_promised(state, name, job)
        if state.board is not None and state.board.has_job(name):
            state.board.remove_job(name)


def _tasks(state: State, record: Record) -> None:
    rule = rule_of(state.policy)
    for fact in facts_of(record.body):
        name, stage, first, count = fact.job, fact.stage, fact.first, fact.count
        if isinstance(fact, TaskEnd):
            _release(state, fact.node, name, stage, first, count)
            if state.runs:
                stragglers.note_end(state, fact)
            if state.failures:
                rank_nodes(state, note_success(state.failures, fact))
            _succeed(state, fact, name, stage, count, rule)
        elif isinstance(fact, TaskFailure):
            _release(state, fact.node, name, stage, first, count)
            if state.runs:
                stragglers.note_end(state, fact)
            if note_failure(state.failures, fact, record.time):
                rank_nodes(state, [fact.node])
            _fail(state, fact)
        elif isinstance(fact, SpareEnd):
            _release(state, fact.node, name, stage, first, count, spare=True)
            if state.runs:
                stragglers.note_spare_end(state, fact)


def _succeed(state: State, ended: TaskEnd, name: str, stage: str, count: int, rule: Estimates) -> None:
    job = state.jobs.get(name)
    if job is None:
        return
    graph = job.graph
    at = graph.position[stage]
    job.seen = observe(job.seen, graph.stages[at], count, ended.run_ms, rule)
    if len(graph.tasks) == 1 == graph.tasks[0]:
        return  # The job is over, and nobody asks how far it has come.
    succeed(job, at, count, ended.attempt)
    failed_on.succeeded(state, name, job, at, ended.first, count)
    state.shadow.note_duration(job, at)
    _note_work(state, name, job)


def _fail(state: State, failed: TaskFailure) -> None:
    job = state.jobs.get(failed.job)
    if job is None:
        return
    at = job.graph.position[failed.stage]
    before = job.progress.left[at]
    failed_on.note(state, job, failed)
    for index in range(failed.first, failed.first + failed.count):
        if fail(job, at, index, failed.attempt, failed.reason, failed.exit_code) == "given_up":
            give_up(job, at)
    if job.progress.left[at] != before:
        _note_work(state, failed.job, job)  # A gang starts over as a whole, or tasks are given up.
    state.shadow.stir(job)


def _note_work(state: State, name: str, job: Job) -> None:
    """There is more, or less, left of a job."""
    board: Board | None = state.board
    if board is not None:
        order = board.jobs.order_of(name)
        if order is not None and JOB_ORDERS[order].value == "work_left":
            board.jobs.set_sort_value(name, work_left(board, job))
    state.shadow.note_work(job)


def _release(state: State, node: str, job: str, stage: str, first: int, count: int, *, spare: bool = False) -> None:
    """Attempts hold no room any more. Those that are `spare` do not end their task, for which its queue holds room
    still."""
    board: Board | None = state.board
    on_node, prefix = state.held[node], f"{job}/{stage}/"
    ending = state.ending.get(node)
    if ending is not None:
        ending.has_ended = True
    for index in range(first, first + count):
        key = f"{prefix}{index}"
        held = on_node.pop(key)
        held.expected = None
        if ending is not None and ending.started:
            ending.started.pop(key, None)
        if board is not None:
            shape = board.shape_in(job, stage, held.demand)
            devices = [(share.index, share.milli) for share in held.devices] if held.devices else []
            board.release(node, shape, devices, held.counted, held.queue, held.user)
            if not spare:
                board.hold(job, shape.pairs, -1, held.queue)
                board.run(leaf_at(state, held.queue), shape, -1)
        if state.copied:
            stragglers.leave(state, node, job, f"{stage}/{index}", spare=spare)
        if state.policy.preemption == "on":
            note_release(state, key, held, leaf_at(state, held.queue))
    if not on_node:
        del state.held[node]
    if state.reserving or state.lent:
        forget_runs(state, node, job, stage, first, count)


def _plans(state: State, record: Record[Plans]) -> None:
    note_change(state)
    if fold_plans(state.promises, record.body):
        forget_board(state)


FOLDS: Folds[State] = {
    ConfigChanged: _config,
    NodeRegistered: _registered,
    NodeReported: _reported,
    NodeDrained: _drained,
    NodeLost: _lost,
    NodeForgotten: _forgotten,
    JobAdmitted: _admitted,
    JobCancelled: _cancelled,
    JobChanged: fold_changed,
    JobEnded: _ended,
    JobTurns: _turned,
    TaskFinished: _tasks,
    TaskFailed: _tasks,
    Plans: _plans,
    Shares: fold_shares,
    Asks: fold_asks,
    Grants: fold_grants,
    RoundOpened: fold_opening,
    RoundClosed: fold_closing,
    RoundAbandoned: fold_abandoned,
}
