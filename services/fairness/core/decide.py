"""How fairness answers an open round."""

from collections.abc import Mapping
from typing import Final

from largesse.core import OpenRound
from schemas import KindsLevel, Level, QueueShare, Shares
from services.fairness.accounts.guarantees import guarantees_of
from services.fairness.accounts.tree_accounts import TreeAccounts
from services.fairness.core.accounts import accounts_of, levels_of
from services.fairness.core.entitlement import entitlements
from services.fairness.core.queue_report import breaches, queue_shares
from services.fairness.core.state import State
from services.fairness.core.tolerance import newcomers
from services.fairness.filling.cell_levels import share_out, unpublished
from services.fairness.filling.levels import Division
from services.fairness.filling.unit_levels import UnitLevel

SETTLE_MS: Final = 1_000
"""If some job still waits this long after the last change that may have led to a grant, and no other round has opened,
fairness asks for another round: it then publishes what came of the change."""


def decide(state: State, opened: OpenRound) -> list[Shares]:
    """Levels that differ from those in force and published values of queues that have moved; every `keyframe_rounds`
    all of them.
    """
    accounts = accounts_of(state)
    full = state.rounds.is_full(opened.record.round, state.policy.keyframe_rounds)
    entitled = entitlements(state, full=full)
    if not full and not state.freshness.refills:
        shares = _kept(state, accounts, opened)
        shares.entitlements = entitled
        return [shares]
    division = levels_of(state, accounts)
    filled = division.filled if division is not None else None
    levels = filled.levels if filled is not None else {}
    shares = Shares([], full=full, entitlements=entitled)
    moved = unpublished(filled, state.levels.units)
    shares.gone = sorted([unit for unit in moved if unit not in levels])
    if division is not None:
        said = sorted(levels) if full else division.moved(state.levels, moved)
        shares.levels = [_found(division, unit) for unit in said]
    if accounts is not None:
        share_out(accounts, filled)
        _publish_queues(state, accounts, shares, division.dues if division is not None else {}, opened)
        units = [unit for unit in _guarantees_moved(state.shares, accounts, shares) if unit in levels]
        more = [_found(division, unit) for unit in units] if division is not None else []
        _publish_guarantees(accounts, shares, more)
    return [shares]


def _found(division: Division, unit: str) -> Level:
    filled = division.filled
    kinds = _by_kinds(filled.parts.get(unit))
    return Level(unit, filled.levels[unit], division.dues.get(unit), kinds, division.lent.get(unit, 0))


def _in_force(unit: str, level: UnitLevel) -> Level:
    return Level(unit, level.target, level.due, _by_kinds(level.kinds), level.lent)


def _by_kinds(targets: Mapping[str, int] | None) -> list[KindsLevel]:
    return [KindsLevel(key.split(","), target) for key, target in sorted(targets.items())] if targets else []


def _kept(state: State, accounts: TreeAccounts | None, opened: OpenRound) -> Shares:
    """The answer in a round that keeps the levels."""
    shares = Shares([])
    if accounts is not None:
        shares.levels = [Level(unit, level) for unit, level in newcomers(state, accounts).items()]
        accounts.keep_levels()
        _publish_queues(state, accounts, shares, state.levels.dues(), opened)
        units = state.levels.units
        moved = _guarantees_moved(state.shares, accounts, shares)
        _publish_guarantees(accounts, shares, [_in_force(unit, units[unit]) for unit in moved if unit in units])
    return shares


def _guarantees_moved(published: Mapping[str, QueueShare], accounts: TreeAccounts, shares: Shares) -> list[str]:
    """Units whose published guarantee changes while their level stays the same."""
    levels = {level.queue: True for level in shares.levels}
    moved: list[str] = []
    for queue in shares.queues:
        before = published.get(queue.queue)
        if queue.queue not in levels and queue.guaranteed != (before.guaranteed if before is not None else 0):
            if accounts.queues[queue.queue].is_group:
                moved.append(queue.queue)
    return moved


def _publish_guarantees(accounts: TreeAccounts, shares: Shares, more: list[Level]) -> None:
    """Each level carries the unit's guarantee, which leftover serves first: where queues go by what they hold, what a
    guarantee of its own covers. One that moves by less than a permille of the cell is published with the next level.
    """
    shares.levels = sorted([*shares.levels, *more], key=lambda level: level.queue)
    guarantees = guarantees_of(accounts, [level.queue for level in shares.levels])
    for level, guaranteed in zip(shares.levels, guarantees, strict=True):
        account = accounts.queues[level.queue]
        level.guaranteed = min(guaranteed, accounts.promised(account)) if account.by_holdings else guaranteed


def _publish_queues(
    state: State, accounts: TreeAccounts, shares: Shares, dues: Mapping[str, int], opened: OpenRound
) -> None:
    shares.queues = queue_shares(accounts, full=shares.full)
    shares.breaches = breaches(state, accounts, shares.queues, dues, opened.time)
    if state.demands.waits and state.rounds.has_news():
        shares.wake_ms = opened.time + SETTLE_MS
