"""Folds the records of rounds: openings, the winning shares, asks and grants, and closings, by which grants become
binding. A board that corresponds to the answer that was closed is kept; any other is dropped.
"""

from typing import Final

from largesse.lifecycle.failing_nodes import expire
from largesse.lifecycle.promises import open_promises
from schemas import (
    Asks,
    Grant,
    Grants,
    JobAsk,
    Record,
    RoundAbandoned,
    RoundClosed,
    RoundOpened,
    Shares,
    Struck,
)
from schemas.placement_rules import class_key, rules_of
from services.leftover.core import failed_on, locality
from services.leftover.core.asks import ask, asks_of, in_shard, shorten
from services.leftover.core.board import is_reserved, leaf_of, spans_of
from services.leftover.core.copies import stragglers
from services.leftover.core.job import NO_ASKS
from services.leftover.core.levels import keep_levels
from services.leftover.core.pool_breaches import breach_key
from services.leftover.core.preemption.runs import close_claims, note_opening, note_start
from services.leftover.core.reservations.runs import note_runs, take_back
from services.leftover.core.shadow_order import follow
from services.leftover.core.state import Allocation, State
from services.leftover.placement.apart import counters_of
from services.leftover.placement.pending_reasons import WANTS_ROOM
from services.leftover.placement.task_class import TaskClass

UNASKED_MAX: Final = 16
"""So many tasks more than there were may start on a node before anybody asks when what runs there ends."""


def forget_board(state: State) -> None:
    state.board = state.decided = None


def rank_nodes(state: State, names: list[str]) -> None:
    """These nodes have begun or ceased to be failing."""
    if state.board is not None:
        table = state.board.node_table
        for name in names:
            failures = state.failures.get(name)
            if table.find(name) is not None:
                table.put_last(name, failures is not None and failures.until_ms > 0)


# ---------------------------------------------------------------- winners and closings
def fold_opening(state: State, record: Record[RoundOpened]) -> None:
    state.opened, state.opened_ms = record.seq, record.time
    if state.failures:
        rank_nodes(state, expire(state.failures, record.time))
    if open_promises(state.promises, record.time):
        forget_board(state)  # Shares are of something else.
    body = record.body
    if len(body.pools_ppm) != len(state.pools_ppm):
        forget_board(state)  # Jobs have other segments from now on.
    state.pools_ppm = body.pools_ppm
    for judged in body.judged:
        job = state.jobs.get(judged.job)
        if job is not None and job.job_class != judged.job_class:
            job.job_class = judged.job_class
            if state.pools_ppm:
                forget_board(state)
    follow(state, record.time)
    if state.claimed:
        note_opening(state)


def fold_shares(state: State, record: Record[Shares]) -> None:
    body = record.body
    if state.decided is not None and state.decided.shares_seen != record.id:
        forget_board(state)
    keep_levels(state, body)


def fold_asks(state: State, record: Record[Asks]) -> None:
    body = record.body
    if state.decided is None or record.id not in state.decided.asks_seen:
        forget_board(state)
    if body.full:
        for name, job in state.jobs.items():
            if job.began < state.opened and in_shard(name, body):
                ask(job, NO_ASKS)
    said: JobAsk
    for said in body.jobs:
        known = state.jobs.get(said.job)
        if known is None or known.admitted > state.opened:
            continue  # Another job had the name when it was asked for.
        if said.job not in state.on_hold:  # Else it is held since.
            ask(known, said.asks)
            if said.asks:
                state.shadow.stir(known)


def fold_grants(state: State, record: Record[Grants]) -> None:
    body = record.body
    if state.decided is None or (state.decided.grants, state.decided.held) != (body.grants, body.held):
        forget_board(state)
    if body.full:
        state.reasons, state.kept, state.short, state.turns = {}, {}, {}, {}
        state.vacated, state.awaited, state.pool_breaches, state.promised = {}, {}, {}, {}
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
    for said in body.promised:
        if not said.reservation:
            state.promised.pop(f"{said.job}/{said.stage}", None)
        elif said.job in state.jobs:
            state.promised[f"{said.job}/{said.stage}"] = said
    for shortfall in body.shortfalls:
        if shortfall.over:
            state.short.pop(shortfall.queue, None)
            state.turns.pop(shortfall.queue, None)
        else:
            state.short.setdefault(shortfall.queue, record.time)
            if shortfall.turn_ms is not None:
                state.turns[shortfall.queue] = shortfall.turn_ms
    for breach in body.pool_breaches:
        key = breach_key(breach.queue, breach.job_class)
        if breach.over:
            state.pool_breaches.pop(key, None)
        else:
            state.pool_breaches[key] = breach


def fold_closing(state: State, record: Record[RoundClosed]) -> None:
    body, time = record.body, record.time
    tasks = _classes_of(state, body)
    for i, grant in enumerate(body.grants):
        _bind(state, grant, time, tasks[i] if tasks else None)
    if body.revoked:
        take_back(state, body.revoked, time)
    if state.policy.preemption == "on":
        close_claims(state, body, time)
    if state.board is not None:
        if body.struck:
            _undo_struck(state, body.struck)
        if state.board.classes.is_crowded():
            state.board = None
    state.decided = None


def _classes_of(state: State, body: RoundClosed) -> list[TaskClass]:
    """The classes of the grants of a closing, in their order, where the answer that was closed is known to be the one
    that was decided here; else none."""
    decided = state.decided
    if state.board is None or decided is None or body.struck:
        return []
    return [placement.task for placement in decided.placements]


def _bind(state: State, grant: Grant, time: int, task: TaskClass | None) -> None:
    """`task`: the class that was placed, where it is known."""
    name = grant.job
    job = state.jobs[name]
    if grant.why == "speculative":
        stragglers.bind(state, job, grant, time)
        return
    named, first, count, granted_devices = grant.stage, grant.first, grant.count, grant.devices
    stages = job.graph.stages
    stage = stages[0] if len(stages) == 1 else stages[job.graph.position[named]]
    demand, leaf, board = stage.demand, leaf_of(state, job), state.board
    if board is not None:
        shape = task.shape if task is not None and task.bounds is None else None
        board.run(leaf, shape if shape is not None else board.shape_in(name, named, demand), count)
    if state.groups and state.served.get(leaf) != state.opened and not is_reserved(state, name):
        state.served[leaf] = state.opened
        if board is not None:
            board.serve(leaf, state.opened)
    prefix, on_node, attempt = f"{name}/{named}/", state.held.setdefault(grant.node, {}), grant.attempt
    ending = state.ending.get(grant.node)
    if ending is not None and len(ending.started) > len(ending.order) + UNASKED_MAX:
        ending = None  # Nobody has asked for long: who does will look at the node again.
        del state.ending[grant.node]
    if ending is not None:
        ending.paths[leaf] = True
    rules = rules_of(name, job.queue, stage)
    counted = counters_of(rules)
    for index in range(count):
        devices = granted_devices[index] if granted_devices else []
        held = Allocation(name, named, job.queue, time, demand, devices, job.user, attempt)
        key = f"{prefix}{first + index}"
        on_node[key] = held
        if ending is not None:
            ending.started[key] = held
        if counted:
            held.counted = counted
    if grant.revocable or name in state.reserving:
        note_runs(state, grant)
    if state.policy.preemption == "on":
        note_start(state, grant, job, leaf, demand)
    if state.policy.speculation_permille:
        stragglers.note_start(state, grant, stage, time)
    if state.starved:
        if task is not None and task.bounds is None:
            key = task.key
        else:
            tried = failed_on.rules_for(state, name, job, stage, first)
            key = class_key(demand, stage.labels, stage.prefer, stage.tasks if stage.gang else 0, tried)
        if key in state.starved:
            state.starved[key] = state.opened_ms
    shorten(job, name, named, first, count)
    if state.delays:
        locality.start(state, grant)


def _undo_struck(state: State, struck: list[Struck]) -> None:
    """Struck placements leave the board; their jobs wait again for what they asked."""
    board, decided = state.board, state.decided
    assert board is not None and decided is not None, "struck grants are of the round that was decided last"
    placed = {(p.job, p.stage, p.first): p for p in decided.placements}
    jobs: dict[str, bool] = {}
    for item in struck:
        name = item.grant.job
        job = state.jobs.get(name)
        # Else it is over, and another may have its name by now.
        alive = job is not None and job.admitted < state.opened
        board.unplace(placed[name, item.grant.stage, item.grant.first], alive=alive)
        if alive:
            jobs[name] = True
    for name in [name for name in jobs if board.has_job(name)]:
        board.wait(name, spans_of(state, board, name, state.jobs[name], asks_of(state.jobs[name])))


def fold_abandoned(state: State, record: Record[RoundAbandoned]) -> None:
    forget_board(state)
