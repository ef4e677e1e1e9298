"""The levels: what every unit that is shared out comes to. CellLevels anew only if a change can alter the outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from largesse.lifecycle.queue_policy import LISTS, sharing_of
from schemas import KindsLevel, Vector
from schemas.queue_tree import upwards
from services.fairness.accounts.queue_account import QueueAccount
from services.fairness.accounts.tree_accounts import TreeAccounts
from services.fairness.core.cached_tree import CachedTree, cached_tree_of, is_asked_of
from services.fairness.core.fill_tree import PIECE, TOP, Caps, FillTree
from services.fairness.core.held_levels import handed_out
from services.fairness.core.placeable import cap_of, is_short
from services.fairness.core.state import State
from services.fairness.core.tolerance import fits
from services.fairness.hdrf.static import Fill, fill
from services.fairness.tree import ONE, ONE_BITS, leaves, share_units, walk

Direction = tuple[int, ...]

CAPPINGS_MAX = 3
"""So often at most what units cannot place is given to others in one round; what those cannot place either goes
upwards."""

_BLUR = 1 << ONE_BITS - 34
"""What clipping a demand at a maximum may round off a share."""


@dataclass(slots=True)
class CellLevels:
    """The last filling. `levels`: of the units that ask; `nodes`: of the queues above them, in billionths of the cell.

    For each unit what it asked for (its direction counts) and whether it was satisfied: the filling depends on those.
    `capped`: queues that asked for more than their maximum; `pledges`: what guarantees came from; `amounts`: what they
    left to each queue, were there one kind only, and whether it would take more. `moved`: leaves whose demand has
    changed since. `all_fits`: every demand was met; `churned`: some went by what they hold. `caps`: units that were
    taken to ask for these amounts; `over`: the filling with further caps, once there was one. `parts`: of leaves that
    ask for several sets of kinds, the levels by set; `pieces`: for each set what it asked for, whether satisfied.
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
    cached: CachedTree | None = None
    caps: Caps = field(default_factory=dict)
    over: "CellLevels | None" = None
    parts: dict[str, dict[str, int]] = field(default_factory=dict)
    pieces: dict[str, dict[str, tuple[Sequence[int], bool]]] = field(default_factory=dict)


def kinds_levels(parts: Mapping[str, int] | None) -> list[KindsLevel]:
    """Levels by set of kinds, as a record has them."""
    return [KindsLevel(key.split(","), target) for key, target in sorted(parts.items())] if parts else []


def levels_in(state: State, accounts: TreeAccounts | None) -> tuple[CellLevels | None, dict[str, int]]:
    """The level of each unit, limited to what it can place, and for each unit that cannot place its whole level what
    it would be entitled to. None where the cell is not shared out. The previous object, unless the level of a unit
    changed that does not get all it asks for.
    """
    if accounts is None or state.queues is None or state.policy.preset == "fifo":
        return None, {}
    if (state.queues.policy or sharing_of(state.policy.preset)) in LISTS:
        return None, {}
    before: CellLevels | None = state.filled
    over = before.over if before is not None else None
    at = over
    while at is not None and before is not None:
        at.moved |= before.moved
        at = at.over
    if fits(state, accounts):
        moved = before.moved if before is not None else {}
        cached = before.cached if before is not None else None
        filled = _satisfied(state, accounts, before)  # May be `before` itself.
        if cached is not None:
            cached.moved |= moved
        filled.moved, filled.cached = {}, cached
    else:
        filled = _refilled(state, accounts, before, {})
    state.filled = filled
    filled.over = over
    if not state.capped or filled.all_fits or filled.churned:
        filled.over = None
        return filled, {}
    return _over_what_fits(state, accounts, filled)


def lent_in(state: State, levels: Mapping[str, int], dues: Mapping[str, int]) -> dict[str, int]:
    """By unit, how much of its level (or of its due) is only what others cannot place."""
    plain: CellLevels | None = state.filled
    if not dues or plain is None:
        return {}
    rests = {unit: max(level, dues.get(unit, 0)) - plain.levels.get(unit, 0) for unit, level in levels.items()}
    return {unit: rest for unit, rest in rests.items() if rest > 0}


def _over_what_fits(state: State, accounts: TreeAccounts, filled: CellLevels) -> tuple[CellLevels, dict[str, int]]:
    """Levels with those units capped that cannot place what they are due. What such a unit leaves may be more than a
    sibling can place: then that one is due so much, and is capped in the next filling.
    """
    dues: dict[str, int] = {}
    caps: dict[str, Sequence[int]] = {}
    for _ in range(CAPPINGS_MAX):
        found: dict[str, Sequence[int]] = {}
        for unit, cap in state.capped.items():
            level, account, amounts = filled.levels.get(unit, 0), accounts.queues[unit], cap_of(cap, accounts)
            if unit not in caps and is_short(account, accounts.share_of(amounts), level):
                found[unit], dues[unit] = amounts, level
        if not found:
            break
        caps = caps | found
        filled.over = _refilled(state, accounts, filled.over, caps)
        filled = filled.over
    filled.over = None
    return filled, dues


def _refilled(state: State, accounts: TreeAccounts, before: CellLevels | None, caps: Caps) -> CellLevels:
    """The levels of the present demand, with units in `caps` asking for no more; `before` where they are the same."""
    cached = before.cached if before is not None else None
    if before is not None and cached is not None:
        capped = [unit for unit in {**before.caps, **caps} if before.caps.get(unit) != caps.get(unit)]
        cached.moved |= before.moved | dict.fromkeys(capped, True)
    filled = before
    if filled is None or filled.all_fits or filled.churned or filled.caps != caps or _matters(accounts, filled, state):
        if cached is not None and not cached.follow(state, accounts, caps):
            cached = None
        fill_tree: FillTree | None = None
        if cached is None:
            fill_tree = FillTree(state, accounts, caps)
            cached = cached_tree_of(fill_tree, accounts)
        if cached is not None:
            is_kept = before is not None and before.cached is cached
            filled = _fill_kept(state, accounts, cached, before if is_kept else None)
        else:
            assert fill_tree is not None
            filled = _fill(state, accounts, fill_tree)
        filled.caps, filled.over = caps, before.over if before is not None else None
    filled.moved, filled.cached = {}, cached
    return filled


def _satisfied(state: State, accounts: TreeAccounts, before: CellLevels | None) -> CellLevels:
    """Every demand is met, so every unit's level is its own demand, and only those that moved have another level."""
    if before is None or not before.all_fits:
        before = CellLevels({}, {}, {}, {}, all_fits=True)
        before.moved = dict.fromkeys(state.demand, True)
    for leaf in accounts.leaves_of(before.moved):
        unit = accounts.group_of(leaf)
        if unit.asks or is_asked_of(state, unit):
            before.levels[unit.name] = accounts.share_of(unit.demand)
        else:
            before.levels.pop(unit.name, None)
    return before


def _matters(accounts: TreeAccounts, filled: CellLevels, state: State) -> bool:
    """Whether demands that changed since can lead to another filling."""
    moved = accounts.leaves_of(filled.moved)
    return any(_limits_move(accounts, filled, leaf) or _moves(accounts, filled, leaf, state) for leaf in moved)


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


def _moves(accounts: TreeAccounts, filled: CellLevels, leaf: str, state: State) -> bool:
    """Whether a leaf's demand can: it can unless its unit asks in the same direction as before, was held back by a full
    kind then, and still asks for more than it got."""
    unit = accounts.group_of(leaf)
    if unit.name in filled.caps:
        return False  # What it asks for does not count; whether it is capped has been looked at.
    sets = state.sets.get(leaf, {})
    if unit.name in filled.pieces or (len(sets) > 1 and not unit.children):
        return _a_part_moves(accounts, filled, unit.name, sets)
    if not unit.asks or unit.name not in filled.levels:
        return leaf in state.demand or unit.name in filled.levels
    if filled.satisfied[unit.name] or direction_of(unit.demand) != direction_of(filled.asked[unit.name]):
        return True
    return accounts.share_of(unit.demand) <= filled.levels[unit.name] + 1


def _a_part_moves(accounts: TreeAccounts, filled: CellLevels, unit: str, sets: Mapping[str, Vector]) -> bool:
    """The same for a leaf that asks, or asked, for several sets of kinds: as if each were a leaf."""
    before = filled.pieces.get(unit, {})
    if before.keys() != sets.keys():
        return True
    for key, (asked, satisfied) in before.items():
        demand = [sets[key].get(kind, 0) for kind in accounts.kinds]
        if satisfied or direction_of(demand) != direction_of(asked):
            return True
        if accounts.share_of(demand) <= filled.parts[unit][key] + 1:
            return True
    return False


def _join_pieces(state: State, accounts: TreeAccounts, filled: CellLevels, pieces: Mapping[str, Sequence[str]]) -> None:
    """Levels of nodes below leaves become parts of the leaves' levels."""
    for leaf, names in pieces.items():
        levels, sets = filled.levels, state.sets.get(leaf, {})
        filled.parts[leaf], filled.pieces[leaf] = {}, {}
        for name in names:
            key = name.partition(PIECE)[2]
            filled.parts[leaf][key] = levels.pop(name, 0)
            demand = [sets[key].get(kind, 0) for kind in accounts.kinds]
            filled.pieces[leaf][key] = demand, filled.satisfied.pop(name, True)
        levels[leaf] = filled.nodes.pop(leaf, 0)
        filled.satisfied[leaf] = all(satisfied for _, satisfied in filled.pieces[leaf].values())


def _fill_kept(state: State, accounts: TreeAccounts, cached: CachedTree, before: CellLevels | None) -> CellLevels:
    """What `_fill` comes to with a tree that is kept; `before`: what it came to last, which is given up."""
    found = cached.fill()
    levels = dict(zip(found.names, found.units(), strict=True))
    satisfied = dict(zip(found.names, found.satisfied, strict=True))
    for unit in cached.idle:
        del levels[unit], satisfied[unit]
    nodes = dict(zip(found.inner, found.inner_units(), strict=True))
    nodes.pop(TOP, None)
    filled = CellLevels(levels, nodes, {}, satisfied, dict.fromkeys(accounts.over, True))
    _join_pieces(state, accounts, filled, cached.pieces)
    if before is None:
        filled.asked = {unit: accounts.queues[unit].demand for unit in levels}
    else:
        filled.asked = before.asked
        for unit in cached.written:
            if unit in levels:
                filled.asked[unit] = accounts.queues[unit].demand
            else:
                filled.asked.pop(unit, None)
    return filled


def _fill(state: State, accounts: TreeAccounts, fill_tree: FillTree) -> CellLevels:
    root = fill_tree.root
    if root is None:
        return CellLevels({}, {}, {}, {})
    churned = [node for node in fill_tree.churned if node is not root]
    found = fill(root, fill_tree.capacity) if len(churned) == len(fill_tree.churned) else Fill({}, {}, [])
    blur, got = _BLUR if fill_tree.bits else 0, {}
    clipped = {unit: blur for unit in found.leaves if fill_tree.is_clipped(unit)} if blur else {}
    levels = {unit: _units(at.share + clipped.get(unit, 0)) for unit, at in found.leaves.items()}
    if fill_tree.passes_over or churned:
        got = {unit: _got(fill_tree.units[unit], at.share, fill_tree) for unit, at in found.leaves.items()}
    nodes = {path: _units(at.share + blur) for path, at in found.nodes.items() if path != TOP}
    for top in fill_tree.churned:
        cell = accounts.capacity if top is root else _cell([got[leaf.name] for leaf in leaves(top)], accounts)
        held = handed_out(state, accounts, top, cell)
        got |= {unit: accounts.shares_of(vector) for unit, vector in held.items()}
        levels |= {unit: accounts.share_of(vector) for unit, vector in held.items()}
        for node in walk(top):
            nodes.pop(node.name, None)
    asking = {accounts.group_of(leaf).name: True for leaf in accounts.leaves_of(state.demand)}
    nodes = {**_passed_over(got, nodes), **nodes}
    satisfied = {unit: at.satisfied for unit, at in found.leaves.items()}
    filled = CellLevels(levels, nodes, {}, satisfied)
    _join_pieces(state, accounts, filled, fill_tree.pieces)
    filled.levels = {unit: level for unit, level in filled.levels.items() if unit in asking}
    filled.asked = {unit: accounts.queues[unit].demand for unit in filled.levels}
    filled.capped = dict.fromkeys(accounts.over, True)
    filled.pledges = accounts.pledges() if any(accounts.root.claims) else {}
    amounts = fill_tree.amounts.items()
    filled.amounts = {name: (amount, accounts.wants_more(accounts.queues[name], amount)) for name, amount in amounts}
    filled.churned = bool(fill_tree.churned)
    return filled


def _units(share: int) -> int:
    return share_units(min(share, ONE))


def _got(demand: Sequence[int], share: int, fill_tree: FillTree) -> list[int]:
    """The share of each kind that a unit gets; `share` is its dominant one."""
    parts = [(asked << ONE_BITS) // have for asked, have in zip(demand, fill_tree.capacity, strict=True)]
    most = max(parts)
    return [part * share // most if most else 0 for part in parts]


def _cell(shares: Sequence[Sequence[int]], accounts: TreeAccounts) -> list[int]:
    """What units get together, in base units."""
    sums = [sum(column) for column in zip(*shares, strict=True)] or [0] * len(accounts.capacity)
    return [
        min(have, have * share + (ONE >> 1) >> ONE_BITS) for have, share in zip(accounts.capacity, sums, strict=True)
    ]


def _passed_over(got: Mapping[str, Sequence[int]], known: Mapping[str, int]) -> dict[str, int]:
    """What queues come to that no filling has told of: the sum of their units."""
    sums: dict[str, list[int]] = {}
    for unit, vector in got.items():
        for path in upwards(unit.partition(PIECE)[0].rpartition("/")[0]):
            if path and path not in known:
                sums[path] = [has + more for has, more in zip(sums.get(path, [0] * len(vector)), vector, strict=True)]
    return {path: _units(max(vector)) for path, vector in sums.items()}


def direction_of(demand: Sequence[int]) -> Direction:
    """The same for demands that are multiples of each other."""
    divisor = max(1, gcd(*demand))
    return tuple([amount // divisor for amount in demand])
