"""How fairness folds the records of rounds: openings, its own answers, grants and closings."""

from largesse.lifecycle.entitlements import fold_entitlements
from largesse.lifecycle.promises import open_promises
from schemas import (
    Grant,
    Record,
    RoundAbandoned,
    RoundClosed,
    RoundOpened,
    Shares,
    TimeReached,
    Vector,
)
from services.fairness.core.accounts import accounts_of
from services.fairness.core.backoff import wake
from services.fairness.core.demand import count_tasks
from services.fairness.core.entitlement import open_entitlement
from services.fairness.core.placeable import fold_levels, watch_room
from services.fairness.core.promised import divide_anew
from services.fairness.core.queue_report import fold_said, watch
from services.fairness.core.stale import abandon
from services.fairness.core.state import Allocation, State
from services.fairness.core.tolerance import open_round
from services.fairness.core.user_demand import cut_users


# ---------------------------------------------------------------- what is held
def _grant(state: State, grants: list[Grant], time: int) -> None:
    """Tasks hold something from now on. The sums of a leaf change once for all tasks in a row that ask for the same:
    like jobs share what they ask for.
    """
    granted: dict[tuple[str, str], list[tuple[Vector, int]]] = {}  # By leaf and, where they are limited, user.
    total = 0
    for grant in grants:
        name, stage, first, tasks = grant.job, grant.stage, grant.first, grant.count
        key = f"{name}/{stage}"
        held = state.held.get(key)
        if held is None:
            job = state.jobs[name]
            held = state.held[key] = Allocation(job.queue, job.graph.stages[job.graph.position[stage]].demand, job.user)
        since = held.since
        for index in range(first, first + tasks):
            since[index] = time
        at = held.leaf, held.user if state.users.most else ""
        counts = granted.get(at)
        if counts is None:
            counts = granted[at] = []
        if counts and counts[-1][0] is held.demand:
            counts[-1] = held.demand, counts[-1][1] + tasks
        else:
            counts.append((held.demand, tasks))
        total += tasks
    if total:
        state.runs.begin(time, total)
    for (leaf, user), counts in granted.items():
        for demand, tasks in counts:
            count_tasks(state, leaf, demand, 0, -tasks, tasks, user)


# ---------------------------------------------------------------- rounds
def fold_opening(state: State, record: Record[RoundOpened]) -> None:
    state.rounds.open(record.seq)
    if open_promises(state.promises, record.time):
        divide_anew(state)
    wake(state, record.time)
    if state.users.touched:
        cut_users(state)
    open_entitlement(state)
    open_round(state, accounts_of(state), record)


def fold_abandoned(state: State, record: Record[RoundAbandoned]) -> None:
    abandon(state)


def fold_closing(state: State, record: Record[RoundClosed]) -> None:
    body = record.body
    # A copy counts against no queue: its task does already, and a copy only gets what no other task can use.
    grants = [grant for grant in body.grants if grant.why != "speculative"]
    _grant(state, grants, record.time)
    if state.users.touched:
        cut_users(state)
    state.rounds.close()
    watch(state, record.time)
    watch_room(state, accounts_of(state), grants)


def fold_time(state: State, record: Record[TimeReached]) -> None:
    state.rounds.note_time(record.seq, record.body.wake_ms)


def fold_shares(state: State, record: Record[Shares]) -> None:
    body = record.body
    fold_levels(state, body)
    if body.full:
        state.rounds.full_round = record.round
    state.rounds.wake_ms = body.wake_ms
    fold_entitlements(state.entitled, body.entitlements)
    fold_said(state, body)
