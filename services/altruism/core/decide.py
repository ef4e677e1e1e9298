"""How altruism answers an open round."""

from collections.abc import Mapping

from largesse.core import OpenRound
from largesse.ids import shard_of
from largesse.lifecycle.entitlements import shares_said
from schemas import Asks, Entitlement, JobAsk, JobPlan, LedgerEntry
from schemas.presets import PRESETS
from services.altruism.core.giving import STEPS_A_ROUND, asks_of, moved_jobs, plan_of, planned_of
from services.altruism.core.late_starts import late_of, next_moment
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
    planned: list[str] = []
    if PRESETS[state.policy.preset].plans_jobs:
        asks, planned = _planned_asks(state, opened, names)
    else:
        for name in names:
            if _is_asked(state, name):
                asks.append(JobAsk(name, asks_of(state, name, state.jobs[name], None, opened.time)))
    ledger = [*state.settling, *_accounts(state, opened, asks)]
    wake_ms = opened.time + 1 if planned else _wake_ms(state, opened, asks)
    return [Asks(state.shard, of, asks, state.full, wake_ms, ledger, planned)]


def _accounts(state: State, opened: OpenRound, asks: list[JobAsk]) -> list[LedgerEntry]:
    """Accounts of the jobs that are planned again, but for those planned for the first time."""
    replanned = [ask.job for ask in asks if ask.plan is not None and state.jobs[ask.job].account is not None]
    return [entry_of(name, state.jobs[name], opened.time) for name in replanned]


def _planned_asks(state: State, opened: OpenRound, names: dict[str, bool]) -> tuple[list[JobAsk], list[str]]:
    """The same where jobs are planned: also of those that are entitled to something else by now. And the jobs that
    were planned again, if others have to wait for that."""
    said: list[Entitlement] = opened.upstream["shares"][0].body.entitlements
    entitled: Mapping[str, int] = {**state.entitled, **shares_said(said)} if said else state.entitled
    planning = dict(state.planning)
    for name in moved_jobs(state, said, entitled):
        planning[name] = True  # It asks again only with a new plan: the one that it has is in force until then.
    plans, planned = _plans(state, opened, names, planning, entitled)
    asks = []
    for name in [*names, *[name for name in plans if name not in names]]:
        if not _is_asked(state, name):
            continue
        job, said_plan = state.jobs[name], plans.get(name)
        in_force = planned_of(state, job, said_plan) if said_plan is not None else job.plan
        asks.append(JobAsk(name, asks_of(state, name, job, in_force, opened.time), said_plan))
    return asks, planned


def _is_asked(state: State, name: str) -> bool:
    if name not in state.jobs or name in state.held_back or name in state.on_hold:
        return False
    return not state.full or does_wait(state.jobs[name])


def _plans(
    state: State, opened: OpenRound, names: dict[str, bool], planning: dict[str, bool], entitled: Mapping[str, int]
) -> tuple[dict[str, JobPlan], list[str]]:
    """New plans: of all jobs that have none, then of those to be planned again, in the order in which that was found,
    until the steps of the round are used up. And which of the latter had their turn; empty where all had."""
    plans: dict[str, JobPlan] = {}
    due = [name for name in names if _is_due(state, name) and state.jobs[name].plan is None]
    first = len(due)
    due += [name for name in planning if _is_due(state, name) and state.jobs[name].plan is not None]
    steps = 0
    for turn, name in enumerate(due):
        if turn > first and steps >= STEPS_A_ROUND:
            return plans, due[first:turn]
        found, took = plan_of(state, state.jobs[name], name, entitled, opened)
        steps += took
        if found is not None:
            plans[name] = found
    return plans, []


def _is_due(state: State, name: str) -> bool:
    return _is_asked(state, name) and name not in state.outside


def _wake_ms(state: State, opened: OpenRound, asks: list[JobAsk]) -> int | None:
    """The next end of a back-off, or latest start."""
    time = opened.time
    moments = [item.at_ms for later in state.backing_off.values() for item in later]
    if state.dues:
        moments.append(state.dues[0][0])
    for ask in asks:
        if ask.plan is not None and ask.plan.gives:
            waiting = {each.stage: True for each in ask.asks if each.kind == "optional"}
            for late in ask.plan.late:
                if late.stage in waiting and (at_ms := next_moment(late_of(late), time)) is not None:
                    moments.append(at_ms)
    wake_ms = None
    for at_ms in moments:
        if at_ms > time and (wake_ms is None or at_ms < wake_ms):
            wake_ms = at_ms
    return wake_ms
