"""The levels: the dominant share that each unit is entitled to. Recomputed only if a change in demand can alter the
result.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from schemas.quantities import SHARE_UNITS
from schemas.queue_tree import upwards
from services.fairness.accounts.queue_account import QueueAccount
from services.fairness.accounts.quiet_band import PUBLISH_STEP
from services.fairness.accounts.tree_accounts import TreeAccounts
from services.fairness.filling.cached_tree import CachedTree, cached_tree_of, is_asked_of
from services.fairness.filling.cell_levels import CellLevels, needs_refill
from services.fairness.filling.fill_tree import PIECE, TOP, Caps, FillTree
from services.fairness.filling.naive_levels import handed_out
from services.fairness.filling.shared_tree import SharedTree
from services.fairness.filling.unit_levels import UnitLevel, UnitLevels
from services.fairness.hdrf.static import Fill, fill
from services.fairness.tree import ONE, ONE_BITS, leaves, share_units, walk

CAPPINGS_MAX: Final = 3
"""How many times in a round the share that some units cannot place is offered to others. After that it goes to the
whole tree."""

_BLUR: Final = 1 << ONE_BITS - 34
"""What clipping a demand at a maximum may round off a share."""


_ROUNDED: Final = 16
"""Billionths by which what a leaf holds, counted in tasks, may be off."""


class Division:
    """What the units of a cell are due. `plain`: the levels if each could place all of its own, `filled`: those limited
    to what units can place; `dues`: what those would be entitled to that cannot place all of it; `lent`: by unit, how
    much of its level or due is only what others cannot place.
    """

    def __init__(self, plain: CellLevels, filled: CellLevels, dues: dict[str, int]) -> None:
        self.plain = plain
        self.filled = filled
        self.dues = dues
        self.lent = _lent_in(plain, filled.levels, dues) if dues else {}

    def moved(self, published: UnitLevels, targets: Sequence[str]) -> list[str]:
        """The units of whose level something differs from what was published; `targets`: those whose target does."""
        filled, units = self.filled, published.units
        found = dict.fromkeys(targets, True)
        for unit in {**published.others, **self.dues, **filled.parts, **self.lent}:
            if unit in filled.levels and unit in units and self._differs(unit, units[unit]):
                found[unit] = True
        return sorted([unit for unit in found if unit in filled.levels])

    def _differs(self, unit: str, level: UnitLevel) -> bool:
        """Whether anything of a unit has changed beside its target."""
        if self.dues.get(unit) != level.due or self.lent.get(unit, 0) != level.lent:
            return True
        return self.filled.parts.get(unit, {}) != level.kinds


def levels_in(tree: SharedTree, before: CellLevels | None, placeable: Caps, *, fits: bool) -> Division:
    """The levels of all units. `before`: the plain ones when they were worked out last, which are returned again unless
    the level of a unit changed that does not get all it asks for. `placeable`: what some units can place; `fits`: all
    demands can be met.
    """
    over = before.over if before is not None else None
    at = over
    while at is not None and before is not None:
        at.moved |= before.moved
        at = at.over
    if fits:
        moved = before.moved if before is not None else {}
        cached = before.cached if before is not None else None
        filled = _satisfied(tree.accounts, before)  # May be `before` itself.
        if cached is not None:
            cached.moved |= moved
        filled.moved, filled.cached = {}, cached
    else:
        filled = _refilled(tree, before, {})
    filled.over = over
    if not placeable or filled.all_fits or filled.churned:
        filled.over = None
        return Division(filled, filled, {})
    limited, dues = _over_what_fits(tree, placeable, filled)
    return Division(filled, limited, dues)


def _lent_in(plain: CellLevels, levels: Mapping[str, int], dues: Mapping[str, int]) -> dict[str, int]:
    rests = {unit: max(level, dues.get(unit, 0)) - plain.levels.get(unit, 0) for unit, level in levels.items()}
    return {unit: rest for unit, rest in rests.items() if rest > 0}


def _over_what_fits(tree: SharedTree, placeable: Caps, filled: CellLevels) -> tuple[CellLevels, dict[str, int]]:
    """The levels once units that cannot place what they are due are capped at what they can place. The share that such
    a unit leaves may be more than a sibling can place; then that sibling is capped in the next filling.
    """
    accounts = tree.accounts
    dues: dict[str, int] = {}
    caps: dict[str, Sequence[int]] = {}
    for _ in range(CAPPINGS_MAX):
        found: dict[str, Sequence[int]] = {}
        for unit, amounts in placeable.items():
            level = filled.levels.get(unit, 0)
            if unit not in caps and accounts.queues[unit].is_short(accounts.share_of(amounts), level):
                found[unit], dues[unit] = amounts, level
        if not found:
            break
        caps = caps | found
        filled.over = _refilled(tree, filled.over, caps)
        filled = filled.over
    filled.over = None
    return filled, dues


def _refilled(tree: SharedTree, before: CellLevels | None, caps: Caps) -> CellLevels:
    """The levels of the present demand, with units in `caps` asking for no more; `before` where they are the same."""
    accounts = tree.accounts
    cached = before.cached if before is not None else None
    if before is not None and cached is not None:
        capped = [unit for unit in {**before.caps, **caps} if before.caps.get(unit) != caps.get(unit)]
        cached.moved |= before.moved | dict.fromkeys(capped, True)
    filled = before
    by_used = cached is None and any(not account.children for account in accounts.over.values())
    if (
        filled is None
        or filled.all_fits
        or filled.churned
        or by_used  # Their bases, and `_raise_within_maxima`.
        or filled.caps != caps
        or needs_refill(accounts, filled)
    ):
        if cached is not None and not cached.follow(accounts, caps):
            cached = None
        fill_tree: FillTree | None = None
        if cached is None:
            fill_tree = FillTree(tree, caps)
            cached = cached_tree_of(fill_tree, accounts)
        if cached is not None:
            filled = _fill_kept(accounts, cached)
        else:
            assert fill_tree is not None
            filled = _fill(accounts, fill_tree)
        filled.number = accounts.fillings = accounts.fillings + 1
        filled.caps, filled.over = caps, before.over if before is not None else None
    filled.moved, filled.cached = {}, cached
    return filled


def _satisfied(accounts: TreeAccounts, before: CellLevels | None) -> CellLevels:
    """The levels if every demand can be met: each unit's level is its demand, so only changed demands are looked at."""
    if before is None or not before.all_fits:
        before = CellLevels({}, {}, {}, {}, all_fits=True)
        before.number = accounts.fillings = accounts.fillings + 1
        before.moved = dict(accounts.demanding)
    for leaf in accounts.leaves_of(before.moved):
        unit = accounts.group_of(leaf)
        if unit.asks or is_asked_of(unit):
            before.levels[unit.name] = accounts.share_of(unit.demand)
        else:
            before.levels.pop(unit.name, None)
    return before


def _join_pieces(accounts: TreeAccounts, filled: CellLevels, pieces: Mapping[str, Sequence[str]]) -> None:
    """Turns the levels of nodes below leaves into parts of the leaves' levels."""
    for leaf, names in pieces.items():
        levels = filled.levels
        filled.parts[leaf], filled.pieces[leaf] = {}, {}
        for name in names:
            key = name.partition(PIECE)[2]
            filled.parts[leaf][key] = levels.pop(name, 0)
            filled.pieces[leaf][key] = accounts.queues[leaf].sets[key], filled.satisfied.pop(name, True)
        levels[leaf] = filled.nodes.pop(leaf, 0)
        filled.satisfied[leaf] = all(satisfied for _, satisfied in filled.pieces[leaf].values())


def _fill_kept(accounts: TreeAccounts, cached: CachedTree) -> CellLevels:
    """The result of `_fill` with a cached tree, which overwrites its last result."""
    cached.fill(accounts)
    return CellLevels(
        cached.levels,
        cached.nodes,
        cached.asked,
        cached.satisfied,
        dict.fromkeys(accounts.over, True),
        parts=cached.parts,
        pieces=cached.pieces,
        is_kept=True,
    )


def _fill(accounts: TreeAccounts, fill_tree: FillTree) -> CellLevels:
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
        held = handed_out(accounts, top, cell)
        got |= {unit: accounts.shares_of(vector) for unit, vector in held.items()}
        levels |= {unit: accounts.share_of(vector) for unit, vector in held.items()}
        for node in walk(top):
            nodes.pop(node.name, None)
    asking = {accounts.group_of(leaf).name: True for leaf in accounts.demanding}
    nodes = {**_passed_over(got, nodes), **nodes}
    satisfied = {unit: at.satisfied for unit, at in found.leaves.items()}
    filled = CellLevels(levels, nodes, {}, satisfied)
    _join_pieces(accounts, filled, fill_tree.pieces)
    _raise_within_maxima(accounts, filled)
    filled.levels = {unit: level for unit, level in filled.levels.items() if unit in asking}
    filled.asked = {unit: accounts.queues[unit].demand for unit in filled.levels}
    filled.capped = dict.fromkeys(accounts.over, True)
    filled.pledges = accounts.pledges() if any(accounts.root.claims) else {}
    amounts = fill_tree.amounts.items()
    filled.amounts = {name: (amount, accounts.wants_more(accounts.queues[name], amount)) for name, amount in amounts}
    filled.churned = bool(fill_tree.churned)
    return filled


def _raise_within_maxima(accounts: TreeAccounts, filled: CellLevels) -> None:
    """Raises the levels of leaves that get all that their maximum allows, have room below it, and yet reach their level
    with a task more: to what they hold then, which rounding must not keep from them. Where a leaf asks for several sets
    of kinds, its long tasks may hold more of another kind than that: it gets at least what its weight entitles it to.
    """
    for name, account in accounts.over.items():
        level = filled.levels.get(name)
        if level is None or account.children or not account.waiting or not account.has_room_below_maximum:
            continue
        held = accounts.share_of(account.used) + account.slack
        if not any(account.used) or held < level - _ROUNDED or not _gets_all(accounts, filled, account):
            continue
        raised = min(SHARE_UNITS, -(-held // PUBLISH_STEP) * PUBLISH_STEP)
        by_weights = share_units(account.by_weights) if name in filled.parts else 0
        filled.levels[name] = max(level, by_weights, raised)


def _gets_all(accounts: TreeAccounts, filled: CellLevels, account: QueueAccount) -> bool:
    """Whether a leaf gets all that its maximum allows: each set of kinds that gets less than it asks for names one of
    which the leaf gets its maximum.
    """
    if account.name not in filled.parts:
        return filled.satisfied.get(account.name, False)
    got = [0] * len(accounts.capacity)
    for key, (asked, _) in filled.pieces[account.name].items():
        share = accounts.share_of(asked)
        if share:
            part = filled.parts[account.name][key]
            got = [has + amount * part // share for has, amount in zip(got, asked, strict=True)]
    near = account.near_maximum(got)
    pieces = filled.pieces[account.name].values()
    return any(near) and all(satisfied or _names(asked, near) for asked, satisfied in pieces)


def _names(asked: Sequence[int], kinds: Sequence[bool]) -> bool:
    """Whether something is asked of one of these kinds."""
    return any(amount > 0 and named for amount, named in zip(asked, kinds, strict=True))


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
    """The amounts of queues that are in no filling: the sums of their units."""
    sums: dict[str, list[int]] = {}
    for unit, vector in got.items():
        for path in upwards(unit.partition(PIECE)[0].rpartition("/")[0]):
            if path and path not in known:
                sums[path] = [has + more for has, more in zip(sums.get(path, [0] * len(vector)), vector, strict=True)]
    return {path: _units(max(vector)) for path, vector in sums.items()}
