"""How fairness answers an open round."""

from collections.abc import Mapping, Sequence
from typing import Final

from largesse.core import OpenRound
from schemas import KindsLevel, Level, Shares
from services.fairness.accounts.guarantees import guarantees_of
from services.fairness.accounts.tree_accounts import TreeAccounts
from services.fairness.core.accounts import accounts_of, levels_of
from services.fairness.core.entitlement import entitlements
from services.fairness.core.queue_report import breaches, queue_shares
from services.fairness.core.state import State
from services.fairness.core.tolerance import newcomers
from services.fairness.filling.cell_levels import share_out, unpublished
from services.fairness.filling.levels import lent_in

SETTLE_MS: Final = 1_000
"""If some job still waits this long after the last change that may have led to a grant, and no other round has opened,
fairness asks for another round: it then publishes what came of the change."""


def decide(state: State, opened: OpenRound) -> list[Shares]:
    """Levels that differ from those in force and published values of queues that have moved; every `keyframe_rounds`
    all of them.
    """
    accounts = accounts_of(state)
    full = opened.record.round - state.full_round >= state.policy.keyframe_rounds
    entitled = entitlements(state, full=full)
    if not full and not state.refills:
        shares = _kept(state, accounts, opened)
        shares.entitlements = entitled
        return [shares]
    plain, filled, dues = levels_of(state, accounts)
    levels = filled.levels if filled is not None else {}
    parts = filled.parts if filled is not None else {}
    lent = lent_in(plain, levels, dues) if plain is not None else {}
    shares = Shares([], full=full, entitlements=entitled)
    moved = unpublished(filled, state.levels)
    said = sorted(levels) if full else _moved(state, moved, levels, dues, parts, lent)
    shares.levels = [_level(at, levels, dues, parts, lent) for at in said]
    shares.gone = sorted([unit for unit in moved if unit not in levels])
    if accounts is not None:
        share_out(accounts, filled)
        _publish_queues(state, accounts, shares, dues, opened)
        units = _guarantees_moved(state, accounts, shares)
        more = [_level(at, levels, dues, parts, lent) for at in units if at in levels]
        _publish_guarantees(accounts, shares, more)
    return [shares]


def _level(
    at: str,
    levels: Mapping[str, int],
    dues: Mapping[str, int],
    parts: Mapping[str, Mapping[str, int]],
    lent: Mapping[str, int],
) -> Level:
    kinds = [KindsLevel(key.split(","), target) for key, target in sorted(parts.get(at, {}).items())]
    return Level(at, levels[at], dues.get(at), kinds, lent.get(at, 0))


def _kept(state: State, accounts: TreeAccounts | None, opened: OpenRound) -> Shares:
    """The answer in a round that keeps the levels."""
    shares = Shares([])
    if accounts is not None:
        shares.levels = [Level(unit, level) for unit, level in newcomers(state, accounts).items()]
        accounts.keep_levels()
        _publish_queues(state, accounts, shares, state.dues, opened)
        units, levels = _guarantees_moved(state, accounts, shares), state.levels
        more = [_level(at, levels, state.dues, state.parts, state.lent) for at in units if at in levels]
        _publish_guarantees(accounts, shares, more)
    return shares


def _guarantees_moved(state: State, accounts: TreeAccounts, shares: Shares) -> list[str]:
    """Units whose published guarantee changes while their level stays the same."""
    levels = {level.queue: True for level in shares.levels}
    moved: list[str] = []
    for queue in shares.queues:
        before = state.shares.get(queue.queue)
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
    if state.demands.waits and state.changed_seq > state.settled:
        shares.wake_ms = opened.time + SETTLE_MS


def _moved(
    state: State,
    moved: Sequence[str],
    levels: Mapping[str, int],
    dues: Mapping[str, int],
    parts: Mapping[str, Mapping[str, int]],
    lent: Mapping[str, int],
) -> list[str]:
    """The units of which something differs from what is in force; `moved`: those of which the level does."""
    found = dict.fromkeys(moved, True)
    if dues != state.dues or parts != state.parts or lent != state.lent:
        for now, before in ((dues, state.dues), (parts, state.parts), (lent, state.lent)):
            found |= {unit: True for unit in {**now, **before} if now.get(unit) != before.get(unit)}
    return sorted([unit for unit in found if unit in levels])
