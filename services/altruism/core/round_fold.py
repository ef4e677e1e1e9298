"""What altruism learns of rounds: what was opened and closed, and which plans are in force."""

from heapq import heappop, heappush

from largesse.ids import shard_of
from largesse.lifecycle.entitlements import fold_entitlements
from largesse.lifecycle.promises import divisible, open_promises
from largesse.lifecycle.state import Span
from schemas import (
    Asks,
    Record,
    RoundAbandoned,
    RoundClosed,
    RoundOpened,
    Shares,
)
from schemas.presets import PRESETS
from services.altruism.core.giving import (
    is_late,
    moved_jobs,
    next_due,
    planned_of,
    start_tasks,
)
from services.altruism.core.ledger import note_asks, renew
from services.altruism.core.state import BackingOff, Job, State
from services.altruism.core.waits import does_wait, forget_empty, own_waits, take


def change(state: State, name: str) -> None:
    if is_ours(state, name):
        state.changed[name] = True


def is_ours(state: State, name: str) -> bool:
    return state.of == 1 or shard_of(name, state.of or 1) == state.shard


def put_first(job: Job, item: BackingOff, since_ms: int) -> None:
    """Tasks that come back go before those that never ran, neighbours as one span: a lost node costs its stages."""
    spans = own_waits(job).setdefault(item.stage, [])
    if spans:
        head = spans[0]
        if (head.first + head.count, head.attempt, head.since_ms) == (item.first, item.attempt, since_ms):
            head.count += item.count
            return
    spans.insert(0, Span(item.first, item.count, item.attempt, since_ms))


def fold_opening(state: State, record: Record[RoundOpened]) -> None:
    """What changed up to here is what this round answers; a back-off that has run out is over.

    Everything is written when the count of shards changes, and as a keyframe: when `keyframe_rounds` have gone by and
    as many jobs were written or came since the last as there are, so that keyframes too cost what has changed.
    """
    body = record.body
    aged = record.round - state.full_round >= state.policy.keyframe_rounds and state.written >= len(state.jobs)
    if state.of not in (0, body.shards):  # Before the first, all ask as admitted.
        state.full = True
        _deal_again(state, body.shards)
    state.full = state.full or aged
    state.of = body.shards
    for name in list(state.backing_off):
        _mature(state, name, record.time)
    state.opened = record.seq
    if open_promises(state.promises, record.time):
        state.capacity = divisible(state.whole, state.promises.amount)
    _come_due(state, record.time)
    state.planning.update(state.stale)
    state.stale = {}
    state.settling += state.settled
    state.settled = []
    state.answering.update(state.changed)
    state.changed = {}
    state.written += len(state.answering)
    if state.full:
        state.full_round, state.written = record.round, 0


def _deal_again(state: State, of: int) -> None:
    """Another count of shards: jobs that were not this one's have no plan here."""
    state.dues = []
    if PRESETS[state.policy.preset].plans_jobs:
        for name, job in state.jobs.items():
            if shard_of(name, of) == state.shard:
                if does_wait(job) or job.started:
                    state.stale[name] = job.derailed = True
            else:
                job.plan = job.account = None
                state.stale.pop(name, None)


def _come_due(state: State, time: int) -> None:
    """Tasks whose latest start has come have to start now; where some should have before, the job is planned again."""
    while state.dues and state.dues[0][0] <= time:
        at_ms, name = heappop(state.dues)
        job = state.jobs.get(name)
        if job is None or job.plan is None or job.plan.due_ms != at_ms:
            continue  # Another plan is in force, or another moment was noted since.
        change(state, name)
        if is_late(job, at_ms):
            state.stale[name] = True
        push_due(state, name, job, time)


def push_due(state: State, name: str, job: Job, time: int) -> None:
    assert job.plan is not None, f"{name} has no plan"
    due = next_due(job, time)
    if due is not None and due != job.plan.due_ms:
        heappush(state.dues, (due, name))
    job.plan.due_ms = due


def _mature(state: State, name: str, time: int) -> None:
    job, later = state.jobs[name], state.backing_off[name]
    due = [item for item in later if item.at_ms <= time]
    if due:
        for item in due:
            put_first(job, item, item.at_ms)
        change(state, name)
        left = [item for item in later if item.at_ms > time]
        if left:
            state.backing_off[name] = left
        else:
            del state.backing_off[name]


def fold_closing(state: State, record: Record[RoundClosed]) -> None:
    body = record.body
    plans = PRESETS[state.policy.preset].plans_jobs
    for grant in body.grants:
        name = grant.job
        job = state.jobs.get(name)
        if job is None:
            continue
        at, first, count = job.graph.position[grant.stage], grant.first, grant.count
        if grant.why == "speculative":
            state.copied.setdefault(name, {})[f"{at}/{first}"] = grant.attempt
            continue
        spans = own_waits(job)[at]
        take(spans, first, count)
        if not spans:
            forget_empty(job, at)
        if plans:
            start_tasks(job, at, count, record.time)
        if job.graph.stages[at].gang:
            gangs = state.gangs.setdefault(name, {})
            gangs[at] = gangs.get(at, 0) + count
    state.answering, state.planning, state.full, state.settling = {}, {}, False, []


def fold_shares(state: State, record: Record[Shares]) -> None:
    """Jobs that have to be planned again for it are, in this round or a later one."""
    body = record.body
    fold_entitlements(state.entitled, body.entitlements)
    if PRESETS[state.policy.preset].plans_jobs:
        for name in moved_jobs(state, body.entitlements, state.entitled):
            state.planning[name] = True


def fold_asks(state: State, record: Record[Asks]) -> None:
    """What it said itself: plans that are in force from now on. Where not all jobs had their turn to be planned again,
    the others come first in the next round."""
    body = record.body
    if body.planned:
        had_turn = dict.fromkeys(body.planned, True)
        rest = [name for name in state.planning if name not in had_turn and state.jobs[name].plan is not None]
        state.stale = {**dict.fromkeys(rest, True), **state.stale}
    for ask in body.jobs:
        job = state.jobs.get(ask.job)
        if job is None or job.admitted > state.opened or ask.job in state.outside or ask.job in state.on_hold:
            continue  # Another job had the name when it was planned; or it is reserved, or held, since.
        if ask.plan is not None:
            planned = planned_of(state, job, ask.plan)
            renew(job, planned, record.time)
            job.plan, job.derailed = planned, ask.job in state.stale
            push_due(state, ask.job, job, record.time)
        note_asks(job, ask.asks, record.time)


def fold_abandoned(state: State, record: Record[RoundAbandoned]) -> None:
    """Nothing of the round binds: what it was asked waits for the next."""
    state.changed = {**state.answering, **state.changed}
    state.answering = {}
    state.stale = {**state.planning, **state.stale}
    state.settled, state.settling = state.settling + state.settled, []
    state.planning = {}
