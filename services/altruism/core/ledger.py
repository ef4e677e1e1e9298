"""What jobs give away and receive: their accounts, in resource-time.

A job receives what it holds beyond its entitlement. What it is entitled to and does not hold, it has waited for as far
as tasks of it that have to start wait for room; the rest it donates, while its plan gives. All three are integrals over
time, by kind of resource. An account also knows by when the job would end by its own plan,
whatever others do: from the first plan on, moved when the job is entitled to less or tasks of it fail, and never put
off for another reason. What it ends later than that is what giving, or waiting for tasks that run in its room, has cost
it.
"""

from collections.abc import Iterable

from schemas import LedgerEntry, StageAsk, Vector
from services.altruism.core.state import Account, Job, Planned

_MS = 1_000


def renew(job: Job, planned: Planned, time: int) -> None:
    """Another plan comes into force."""
    account, before = job.account, job.plan
    if account is None:
        account = job.account = Account(time, planned.deadline_ms)
        for at, groups in job.started.items():
            _hold(account, job, at, sum([each.count for each in groups]))
    else:
        accrue(job, time)
        if before is None or planned.share < before.share or job.derailed:
            account.promised_ms = planned.deadline_ms
        elif planned.share > before.share:
            account.promised_ms = min(account.promised_ms, planned.deadline_ms)
    account.vector = planned.vector


def note_asks(job: Job, asks: Iterable[StageAsk], time: int) -> None:
    """What the job asks for from now on: its required tasks wait."""
    account = job.account
    if account is not None:
        accrue(job, time)
        account.required = {}
        for ask in asks:
            if ask.kind == "required":
                at = job.graph.position[ask.stage]
                account.required[at] = account.required.get(at, 0) + ask.count


def note_held(job: Job, at: int, count: int, time: int) -> None:
    """The job holds `count` more tasks of a stage, first those that had to start (fewer, where negative)."""
    account = job.account
    if account is not None:
        accrue(job, time)
        _hold(account, job, at, count)
        if count > 0 and at in account.required:
            account.required[at] -= count
            if account.required[at] <= 0:
                del account.required[at]


def _hold(account: Account, job: Job, at: int, count: int) -> None:
    held = account.held
    for kind, amount in job.graph.stages[at].demand.items():
        held[kind] = held.get(kind, 0) + amount * count


def accrue(job: Job, time: int) -> None:
    """Counts what was so since the last time up to now."""
    account = job.account
    if account is not None and time > account.since_ms:
        _add(account, job, time - account.since_ms)
        account.since_ms = time


def _add(account: Account, job: Job, span_ms: int) -> None:
    held, vector = account.held, account.vector
    gives = job.plan is not None and job.plan.gives
    for kind, amount in held.items():
        beyond = amount - vector.get(kind, 0)
        if beyond > 0:
            account.received[kind] = account.received.get(kind, 0) + beyond * span_ms
    lacks: Vector = {}
    for at, count in account.required.items():
        for kind, amount in job.graph.stages[at].demand.items():
            lacks[kind] = lacks.get(kind, 0) + amount * count
    for kind, amount in vector.items():
        below = amount - held.get(kind, 0)
        if below > 0:
            waited = min(below, lacks.get(kind, 0))
            if waited:
                account.waited[kind] = account.waited.get(kind, 0) + waited * span_ms
            if gives and below > waited:
                account.donated[kind] = account.donated.get(kind, 0) + (below - waited) * span_ms


def entry_of(name: str, job: Job, time: int, end: str = "") -> LedgerEntry:
    """What is said of a job's account at a moment. `end`: how the job has ended, empty while it is live; what it lost
    is known of one that has succeeded, and of a live one expected by its plan. Changes nothing.
    """
    account = job.account
    assert account is not None, f"{name} was never planned"
    now = Account(account.since_ms, account.promised_ms)
    now.vector, now.held = account.vector, account.held
    now.required = account.required
    now.donated, now.received, now.waited = dict(account.donated), dict(account.received), dict(account.waited)
    _add(now, job, max(0, time - account.since_ms))
    lost_ms = 0
    if end == "succeeded":
        lost_ms = max(0, time - account.promised_ms)
    elif not end and job.plan is not None:
        lost_ms = max(0, job.plan.deadline_ms - account.promised_ms)
    sides = _seconds(now.donated), _seconds(now.received)
    return LedgerEntry(name, job.queue, *sides, lost_ms, bool(end), _seconds(now.waited))


def _seconds(amounts: Vector) -> Vector:
    """Base units x ms as base units x s, by kind; those of which there is less than one are left out."""
    return {kind: amount // _MS for kind, amount in sorted(amounts.items()) if amount >= _MS}
