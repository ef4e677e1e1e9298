"""Which units can place all that they are due, and which are taken to ask for no more than they hold.

Leftover serves the unit with the least held / level first. So if a leaf got a task at a worse ratio than that of a
unit that still waits when the round is over, none of its tasks found room (nor a node, nor room for their gang): it was
passed over. A unit that is a task or more below its level, and is passed over twice while it is, is capped: its
siblings are filled as if it asked for what it holds, and the record says what it is due (`Level.due`). Leftover goes on
serving it by that, so its claim is back the moment room appears. Twice, because a task may have come to wait, or have
ended, after the round that is closed was opened: only the next round could have served it.

No flapping: a cap follows what the unit holds upwards at once; downwards once it holds less after two closings in a
row and is passed over at the second. So a cap moves at most once for each task of the unit that starts or ends. It ends
when nothing of the unit waits any more, or what it can place comes within a task of what it is due. Until caps have
moved by as much as demand may (tolerance.py), no level is worked out again. Cost: the units whose sum or level
changed, and a comparison for each that is short.
"""

from collections.abc import Sequence
from typing import Final

from largesse.lifecycle.slots import counted_demand
from schemas import Grant, Shares
from schemas.quantities import SHARE_UNITS
from services.fairness.accounts.queue_account import QueueAccount
from services.fairness.accounts.tree_accounts import TreeAccounts
from services.fairness.core.caps import Cap
from services.fairness.core.state import State
from services.fairness.core.tolerance import note_cap
from services.fairness.filling.cell_levels import confirm
from services.fairness.filling.unit_levels import UnitLevel

_RATIO_BITS: Final = 30
_TIER_BITS: Final = 62
_OWED: Final = 0
_OWN: Final = 1
_LENT: Final = 2
_BEYOND: Final = 3 << _TIER_BITS  # A worse claim than that of any unit within its level.


def forget_placed(state: State) -> None:
    """Another tree is in force: which units can place what they are due has to be observed again."""
    state.caps.forget()


def fold_levels(state: State, body: Shares) -> None:
    """The levels in force from now on. A unit with no due beside its level is capped no longer."""
    for queue in body.gone:
        state.levels.drop(queue)
        state.caps.touch(queue)
    for level in body.levels:
        kinds = {",".join(part.kinds): part.target for part in level.kinds}
        state.levels.put(level.queue, UnitLevel(level.target, level.due, level.lent, kinds))
        state.caps.touch(level.queue)
    confirm(state.filled, [*body.gone, *[level.queue for level in body.levels]], state.levels.units)
    if (
        state.freshness.refills
    ):  # Else this round has kept the levels, and units that were capped since have no due yet.
        units = state.levels.units
        state.caps.lift([unit for unit in state.caps.by_unit if unit not in units or units[unit].due is None])


def watch_room(state: State, accounts: TreeAccounts | None, grants: Sequence[Grant]) -> None:
    """A round is closed: records which units are below their level, which were passed over, and what can be placed."""
    caps, touched = state.caps, state.caps.take_touched()
    if accounts is None:
        return
    for path in touched:
        unit = accounts.group_of(path) if path in accounts.queues else accounts.root
        if unit.is_group:
            _measure(state, accounts, unit)
    served = _worst_served(state, accounts, grants) if caps.short and grants else 0
    for name, short in caps.short.items():
        if short.claim < served:
            if short.passed:
                _pass_over(state, accounts, accounts.queues[name])
            short.passed = True
    if caps.by_unit:
        for path in touched:
            unit = accounts.group_of(path) if path in accounts.queues else accounts.root
            if unit.name in caps.by_unit:
                _follow(state, caps.by_unit[unit.name], unit, accounts)


def cap_of(cap: Cap, accounts: TreeAccounts) -> list[int]:
    """A cap as a vector in the order of the accounts' kinds."""
    return [cap.amounts.get(kind, 0) for kind in accounts.kinds]


def _measure(state: State, accounts: TreeAccounts, unit: QueueAccount) -> None:
    level = state.levels.entitled(unit.name) if unit.waiting else 0
    held = accounts.share_of(unit.used) if level else 0
    # A leaf that asks for several sets of kinds is never capped: what it holds does not say which it cannot place.
    if not level or not unit.is_short(held, level) or unit.sets:
        state.caps.short.pop(unit.name, None)
        return
    state.caps.set_short(unit.name, _claim(state, accounts, unit, held, unit.slack, level))


def _worst_served(state: State, accounts: TreeAccounts, grants: Sequence[Grant]) -> int:
    """The worst claim that a round gave a task by; where it gave a unit several, the last one's."""
    sizes: dict[str, int] = {}
    for grant in grants:
        held = state.held.get(f"{grant.job}/{grant.stage}")
        account = accounts.queues.get(held.leaf) if held is not None else None
        if held is None or account is None or account.children:
            continue
        job = state.jobs.get(grant.job)
        is_gang = job is not None and job.graph.stages[job.graph.position[grant.stage]].gang
        demand = counted_demand(state.policy, held.demand)
        size = accounts.share_of([demand.get(kind, 0) for kind in accounts.kinds]) * (len(held.since) if is_gang else 1)
        unit = accounts.group_of(account.name)
        if unit.sets:
            continue  # Each of its sets of kinds is served by itself.
        sizes[unit.name] = max(sizes.get(unit.name, 0), size)
    worst = 0
    for name, size in sizes.items():
        account = accounts.queues[name]
        level = state.levels.entitled(name) if name in state.levels.units else SHARE_UNITS
        held_now = accounts.share_of(account.used)
        if held_now > level:
            return _BEYOND
        worst = max(worst, _claim(state, accounts, account, max(0, held_now - size), size, level) if level else 0)
    return worst


def _claim(state: State, accounts: TreeAccounts, unit: QueueAccount, held: int, size: int, level: int) -> int:
    """By what leftover serves a unit within its level, least first (`LeafQueue.claim`)."""
    said = state.shares.get(unit.name)
    in_force = state.levels.units.get(unit.name)
    own = level - in_force.lent if in_force is not None else level
    guaranteed, tier = said.guaranteed if said is not None else 0, _OWN
    if unit.by_holdings:
        guaranteed = min(guaranteed, accounts.promised(unit))
    if held + size <= guaranteed:
        tier, level = _OWED, guaranteed
    elif held + size > own:
        tier = _LENT
    else:
        level = own
    return tier << _TIER_BITS | (held << _RATIO_BITS) // level


def _pass_over(state: State, accounts: TreeAccounts, unit: QueueAccount) -> None:
    """A unit was passed over again while it was short: what it holds is what it can place."""
    cap = state.caps.by_unit.get(unit.name)
    if cap is None:
        state.caps.by_unit[unit.name] = Cap(_amounts(unit, accounts))
        level = state.levels.entitled(unit.name)
        note_cap(state, level, accounts.share_of(unit.used))
    elif cap.less and accounts.share_of(unit.used) < accounts.share_of(cap_of(cap, accounts)):
        _set_cap(state, cap, unit, accounts)


def _amounts(unit: QueueAccount, accounts: TreeAccounts) -> dict[str, int]:
    return {kind: amount for kind, amount in zip(accounts.kinds, unit.used, strict=True) if amount}


def _set_cap(state: State, cap: Cap, unit: QueueAccount, accounts: TreeAccounts) -> None:
    """What a unit holds now is what it can place."""
    note_cap(state, accounts.share_of(cap_of(cap, accounts)), accounts.share_of(unit.used))
    cap.amounts, cap.less = _amounts(unit, accounts), False


def _follow(state: State, cap: Cap, unit: QueueAccount, accounts: TreeAccounts) -> None:
    """What a unit holds has changed, or may have: its cap rises at once, and may fall from the next closing on."""
    held, at = accounts.share_of(unit.used), accounts.share_of(cap_of(cap, accounts))
    if held > at:
        _set_cap(state, cap, unit, accounts)
    cap.less = held < at
