"""How altruism answers an open round."""

from collections.abc import Mapping

from largesse.core import OpenRound
from largesse.ids import shard_of
from largesse.lifecycle.entitlements import shares_said
from largesse.lifecycle.queue_policy import GIVING
from schemas import Asks, Entitlement, JobAsk, LedgerEntry
from services.altruism.core.giving import asks_of, has_moved, plan_of, planned_of
from services.altruism.core.ledger import entry_of
from services.altruism.core.state import State
from services.altruism.core.waits import does_wait


def decide(state: State, opened: OpenRound) -> list[Asks]:
    """Asks of the jobs that changed since the last closed round; of all, where the count of shards has."""
    of = opened.record.body.shards
    names: dict[str, bool] = dict(state.answering)
    if state.full:
        names = {name: True for name in state.jobs if shard_of(name, of) == state.shard}
    asks: list[JobAsk] = []
    if state.policy.preset in GIVING:
        asks = _planned_asks(state, opened, names)
    else:
        for name in names:
            job = state.jobs.get(name)
            if job is not None and (does_wait(job) or not state.full):
                asks.append(JobAsk(name, asks_of(state, job, None, opened.time)))
    ledger = [*state.settling, *_accounts(state, opened, asks)]
    return [Asks(state.shard, of, asks, state.full, _wake_ms(state, opened, asks), ledger)]


def _accounts(state: State, opened: OpenRound, asks: list[JobAsk]) -> list[LedgerEntry]:
    """Accounts of the jobs that are planned anew, but for those planned for the first time."""
    replanned = [ask.job for ask in asks if ask.plan is not None and state.jobs[ask.job].account is not None]
    return [entry_of(name, state.jobs[name], opened.time) for name in replanned]


def _planned_asks(state: State, opened: OpenRound, names: dict[str, bool]) -> list[JobAsk]:
    """The same where jobs are planned: also of those that are entitled to something else by now."""
    said: list[Entitlement] = opened.upstream["shares"][0].body.entitlements
    entitled: Mapping[str, int] = state.entitled
    planning = dict(state.planning)
    if said:
        moved = shares_said(said)
        entitled = {**entitled, **moved}
        for name, job in state.jobs.items():
            if job.plan is not None and job.plan.key in moved and has_moved(state, job, entitled):
                planning[name] = names[name] = True
    asks = []
    for name in names:
        if name not in state.jobs or (state.full and not does_wait(state.jobs[name])):
            continue
        job = state.jobs[name]
        due = (name in planning or job.plan is None) and name not in state.outside
        said_plan = plan_of(state, job, name, entitled, opened) if due else None
        planned = planned_of(state, job, said_plan) if said_plan is not None else job.plan
        asks.append(JobAsk(name, asks_of(state, job, planned, opened.time), said_plan))
    return asks


def _wake_ms(state: State, opened: OpenRound, asks: list[JobAsk]) -> int | None:
    """The next end of a back-off, or latest start."""
    moments = [item.at_ms for later in state.backing_off.values() for item in later]
    moments += [at_ms for at_ms, _ in state.dues[:1]]
    for ask in asks:
        if ask.plan is not None and ask.plan.gives:
            waiting = {each.stage: True for each in ask.asks if each.kind == "optional"}
            moments += [late.at_ms for late in ask.plan.late if late.stage in waiting]
    return min([at_ms for at_ms in moments if at_ms > opened.time], default=None)
