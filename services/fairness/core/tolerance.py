"""When the levels are recomputed: not at every change of demand.

A refill costs the whole tree, and in a large cell most changes alter no level noticeably. So a round keeps the levels
while (1) the summed change of all leaves' demands since the last refill, and of what units are taken to be able to
place, is at most `demand_tolerance_permille` of the cell, and (2) the first round that skipped a refill is less than
`demand_tolerance_ms` of log time ago. No wake-up is needed to correct the levels later: only rounds use them, and the
next round after that time begins with a refill. Until then a unit that begins to ask gets its whole demand as its
level, which is at most the tolerance for all such units together.

Applied at once are: another capacity or config; a leaf whose demand covers other sets of kinds, each with a level; and
every change if all demands fit into the cell (where that costs only what changed) or if levels follow current holdings.
What was asked for at the last refill is part of the state, so a replay from any snapshot refills in the same rounds.
"""

from collections.abc import Mapping
from typing import Final

from schemas import Record, Vector
from schemas.quantities import SHARE_UNITS
from services.fairness.accounts.queue_account import QueueAccount
from services.fairness.accounts.tree_accounts import TreeAccounts
from services.fairness.core.state import State
from services.fairness.filling.unit_levels import UnitLevels

_PERMILLE: Final = SHARE_UNITS // 1_000


def note_cap(state: State, before: int, after: int) -> None:
    """What a unit is taken to be able to place has moved from one dominant share (billionths) to another."""
    state.freshness.caps_moved += abs(after - before)


def open_round(state: State, accounts: TreeAccounts | None, record: Record) -> None:
    """Finds out whether this opening's round works the levels out again; if so, changes are counted from here on."""
    fresh = state.freshness
    is_full = state.rounds.is_full(record.round, state.policy.keyframe_rounds)
    fresh.refills = is_full or fresh.refill_due or accounts is None or _has_moved(state, accounts, record.time)
    if fresh.refills:
        fresh.refill_due, fresh.spared_ms, fresh.caps_moved, fresh.asked_before = False, None, 0, {}
        fresh.fitted = accounts is not None and fits(accounts, state.demands.total, state.capacity.divided)
    elif fresh.spared_ms is None and (fresh.asked_before or state.caps.by_unit):
        fresh.spared_ms = record.time


def fits(accounts: TreeAccounts, total: Vector, capacity: Vector) -> bool:
    """Whether all demands, `total` together, can be met. A kind that the cell has nothing of is ignored."""
    return not accounts.over and all(
        amount <= capacity.get(kind, 0) or not capacity.get(kind) for kind, amount in total.items()
    )


def _has_moved(state: State, accounts: TreeAccounts, time: int) -> bool:
    policy, fresh = state.policy, state.freshness
    if not policy.demand_tolerance_permille or accounts.by_holdings or fresh.fitted:
        return True
    if fits(accounts, state.demands.total, state.capacity.divided):
        return True
    spared_ms = fresh.spared_ms if fresh.spared_ms is not None else time
    if time - spared_ms >= policy.demand_tolerance_ms:
        return True
    left = policy.demand_tolerance_permille * _PERMILLE - fresh.caps_moved
    for leaf, before in fresh.asked_before.items():
        if left < 0:
            break
        if leaf in accounts.queues:
            now = state.demands.of(leaf).sets
            if _asks_otherwise(state.levels, accounts.group_of(leaf), before, now):
                return True
            moved = [
                _distance(state.capacity.divided, before.get(kinds, {}), now.get(kinds, {}))
                for kinds in {**before, **now}
            ]
            left -= sum(moved)
    return left < 0


def newcomers(state: State, accounts: TreeAccounts) -> dict[str, int]:
    """Units that have begun to ask since the last refill and have no level yet -> the one they get without a refill."""
    asked_before, demands = state.freshness.asked_before, state.demands
    leaves = [leaf for leaf in asked_before if demands.of(leaf).asked and leaf in accounts.queues]
    units = {unit.name: unit for unit in map(accounts.group_of, leaves)}
    known = state.levels.units
    return {name: accounts.share_of(unit.demand) for name, unit in sorted(units.items()) if name not in known}


def _asks_otherwise(
    levels: UnitLevels, unit: QueueAccount, before: Mapping[str, Vector], now: Mapping[str, Vector]
) -> bool:
    """Whether a leaf asks for other sets of kinds, and has, or is to have, a level for each."""
    if unit.children or not now or before.keys() == now.keys():
        return False
    level = levels.units.get(unit.name)
    return len(now) > 1 or (level is not None and bool(level.kinds))


def _distance(capacity: Vector, before: Vector, now: Vector) -> int:
    """The dominant share, in billionths, of the difference."""
    most = 0
    for kind in {**before, **now}:
        have = capacity.get(kind, 0)
        if have > 0:
            most = max(most, abs(now.get(kind, 0) - before.get(kind, 0)) * SHARE_UNITS // have)
    return most
