"""The levels that the last filling of a cell gave, and whether demands that have changed since can lead to others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from services.fairness.accounts.queue_account import QueueAccount
from services.fairness.accounts.tree_accounts import TreeAccounts
from services.fairness.filling.cached_tree import CachedTree
from services.fairness.filling.fill_tree import Caps
from services.fairness.filling.unit_levels import UnitLevel

Direction = tuple[int, ...]


@dataclass(slots=True)
class CellLevels:
    """The last filling. `levels`: of the units that ask; `nodes`: of the queues above them, in billionths of the cell.

    For each unit what it asked for (its direction counts) and whether it was satisfied: the filling depends on those.
    `capped`: queues that asked for more than their maximum; `pledges`: what guarantees came from; `amounts`: what they
    left to each queue, were there one kind only, and whether it would take more. `moved`: leaves whose demand has
    changed since. `all_fits`: every demand was met; `churned`: some went by what they hold. `caps`: units that were
    taken to ask for these amounts; `over`: the filling with further caps, once there was one. `parts`: of leaves that
    ask for several sets of kinds, the levels by set; `pieces`: for each set what it asked for, whether satisfied.
    `number`: which filling of the cell it was. `is_kept`: it is the result of the tree in `cached`.
    """

    levels: dict[str, int]
    nodes: dict[str, int]
    asked: dict[str, Sequence[int]]
    satisfied: dict[str, bool]
    capped: dict[str, bool] = field(default_factory=dict)
    pledges: dict[str, tuple[Sequence[int], int]] = field(default_factory=dict)
    amounts: dict[str, tuple[int, bool]] = field(default_factory=dict)
    moved: dict[str, bool] = field(default_factory=dict)
    all_fits: bool = False
    churned: bool = False
    number: int = 0
    cached: CachedTree | None = None
    is_kept: bool = False
    caps: Caps = field(default_factory=dict)
    over: "CellLevels | None" = None
    parts: dict[str, dict[str, int]] = field(default_factory=dict)
    pieces: dict[str, dict[str, tuple[Sequence[int], bool]]] = field(default_factory=dict)

    @property
    def kept(self) -> CachedTree | None:
        """The tree whose result this is; it overwrites it at its next filling."""
        return self.cached if self.is_kept else None


def unpublished(filled: CellLevels | None, published: Mapping[str, UnitLevel]) -> list[str]:
    """The units whose level differs from the one in force, also those that have one no longer."""
    levels = filled.levels if filled is not None else {}
    kept = filled.kept if filled is not None else None
    if kept is not None and kept.unpublished is not None:
        at: UnitLevel | None
        units = kept.unpublished
        return [u for u in units if levels.get(u) != (None if (at := published.get(u)) is None else at.target)]
    found = [unit for unit, level in levels.items() if (at := published.get(unit)) is None or at.target != level]
    found += [unit for unit in published if unit not in levels]
    if kept is not None:
        kept.unpublished = dict.fromkeys(found, True)
    return found


def confirm(filled: CellLevels | None, units: Sequence[str], published: Mapping[str, UnitLevel]) -> None:
    """The levels in force of these units have changed; `published` are those of all units."""
    at = filled
    while at is not None:
        if at.cached is not None:
            at.cached.confirm(units, published)
        at = at.over


def share_out(accounts: TreeAccounts, filled: CellLevels | None) -> None:
    """The accounts take over the levels that are in force from now on."""
    before, number = accounts.shared, filled.number if filled is not None else 0
    if before == number and not accounts.keeps_levels:
        return
    accounts.shared = number
    if filled is None or filled.all_fits:
        accounts.share_out(None)
        return
    kept = filled.kept
    if kept is None:
        accounts.share_out({**filled.nodes, **filled.levels})
        return
    if before and kept.shared == before:
        accounts.share_moved({name: filled.levels.get(name, filled.nodes.get(name, 0)) for name in kept.unshared})
    else:
        accounts.share_out({**filled.nodes, **filled.levels})
    kept.unshared, kept.shared = {}, number


def needs_refill(accounts: TreeAccounts, filled: CellLevels) -> bool:
    """Whether the tree has to be filled again: the demands that have changed since may lead to other levels."""
    moved = accounts.leaves_of(filled.moved)
    return any(_limits_move(accounts, filled, leaf) or _moves(accounts, filled, leaf) for leaf in moved)


def _limits_move(accounts: TreeAccounts, filled: CellLevels, leaf: str) -> bool:
    """Whether a limit above a leaf holds otherwise than before, or a maximum might."""
    at: QueueAccount | None = accounts.queues[leaf]
    while at is not None:
        if at.over or at.name in filled.capped:
            return True
        if any(at.claim) or at.name in filled.pledges:
            if filled.pledges.get(at.name) != accounts.pledge_of(at):
                return True
        if at.name in filled.amounts:
            amount, wants_more = filled.amounts[at.name]
            if not wants_more or not accounts.wants_more(at, amount):
                return True
        at = at.parent
    return False


def _moves(accounts: TreeAccounts, filled: CellLevels, leaf: str) -> bool:
    """Whether a leaf's changed demand can lead to other levels. It cannot if its unit asks in the same direction as
    before, was stopped by a full kind then, and still asks for more than it got.
    """
    account, unit = accounts.queues[leaf], accounts.group_of(leaf)
    if unit.name in filled.caps:
        return False  # What it asks for does not count; whether it is capped has been looked at.
    if unit.name in filled.pieces or (account.sets and not unit.children):
        return _a_part_moves(accounts, filled, unit.name, account.sets)
    if not unit.asks or unit.name not in filled.levels:
        return account.asked or unit.name in filled.levels
    if filled.satisfied[unit.name] or direction_of(unit.demand) != direction_of(filled.asked[unit.name]):
        return True
    return accounts.share_of(unit.demand) <= filled.levels[unit.name] + 1


def _a_part_moves(accounts: TreeAccounts, filled: CellLevels, unit: str, sets: Mapping[str, Sequence[int]]) -> bool:
    """The same for a leaf that asks, or asked, for several sets of kinds: as if each were a leaf."""
    before = filled.pieces.get(unit, {})
    if before.keys() != sets.keys():
        return True
    for key, (asked, satisfied) in before.items():
        demand = sets[key]
        if satisfied or direction_of(demand) != direction_of(asked):
            return True
        if accounts.share_of(demand) <= filled.parts[unit][key] + 1:
            return True
    return False


def direction_of(demand: Sequence[int]) -> Direction:
    """The same for demands that are multiples of each other."""
    divisor = max(1, gcd(*demand))
    return tuple([amount // divisor for amount in demand])
