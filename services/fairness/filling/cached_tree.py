"""A large tree without guarantees that is kept in arrays from one filling to the next, with its levels; only leaves
whose demand has changed, and levels that have, are updated.

Units without demand are part of it, too. A kept tree gives bit for bit the result that a newly built one would.
"""

from collections.abc import Mapping, Sequence

from services.fairness.accounts.queue_account import QueueAccount
from services.fairness.accounts.tree_accounts import TreeAccounts
from services.fairness.filling.fill_tree import PIECE, TOP, Caps, FillTree
from services.fairness.filling.unit_levels import UnitLevel
from services.fairness.hdrf import arrays
from services.fairness.hdrf.array_fill import LastFill
from services.fairness.hdrf.arrays import ArrayTree, array_tree_of


class CachedTree:
    """The kept tree. `moved`: leaves whose demand has changed since the last filling (set by the caller); `idle`: units
    in it that ask for nothing now.

    The result of the last filling, as in `CellLevels`: `levels`, `nodes`, `asked`, `satisfied`, `parts`, `pieces`.
    `unshared`: queues whose level, or share, has changed since the accounts took these over, and `shared`, the number
    of the filling that they took over then (0: none). `unpublished`: units whose level may differ from the one in
    force; None: any may.
    """

    def __init__(self, fill_tree: FillTree, tree: ArrayTree) -> None:
        self._fill_tree = fill_tree
        self._tree = tree
        self._pieces = fill_tree.pieces  # Of leaves that ask for several sets of kinds.
        self.moved: dict[str, bool] = {}
        self._written = [name for name in fill_tree.units if PIECE not in name]  # Units updated since the last filling.
        self._at = {name: at for at, name in enumerate(tree.names)}
        self._units = sum([PIECE not in name for name in fill_tree.units])
        self.idle = {name: True for name in tree.names if PIECE not in name and name not in fill_tree.asked}
        self._note_clipped(tree.names)
        self._inner_at = {name: at for at, name in enumerate(tree.inner) if name in self._pieces}
        self._last = LastFill(len(tree.names), len(tree.inner))
        self.levels: dict[str, int] = {}
        self.nodes: dict[str, int] = {}
        self.asked: dict[str, Sequence[int]] = {}
        self.satisfied: dict[str, bool] = {}
        self.parts: dict[str, dict[str, int]] = {}
        self.pieces: dict[str, dict[str, tuple[Sequence[int], bool]]] = {}
        self.unshared: dict[str, bool] = {}
        self.shared = 0
        self.unpublished: dict[str, bool] | None = None

    def follow(self, accounts: TreeAccounts, caps: Caps) -> bool:
        """Applies the changes in `moved`. False if the tree can no longer be used and has to be built again."""
        moved, self.moved = self.moved, {}
        if not _is_kept(accounts) or bool(accounts.over) != bool(self._fill_tree.bits):
            return False
        units = [accounts.group_of(path) for path in moved if path in accounts.queues]
        units = [unit for unit in {unit.name: unit for unit in units}.values() if unit.is_group]
        self._written += [unit.name for unit in units]
        if not all(self._stands(unit, caps) for unit in units):
            return False
        if self._units - len(self.idle) < arrays.LEAVES_MIN:
            return False  # A new tree would be filled otherwise.
        changed = [name for name in self._fill_tree.follow(units, caps) if name in self._at]
        self._note_clipped(changed)
        return all(self._write(name) for name in changed)

    def fill(self, accounts: TreeAccounts) -> None:
        """Fills the tree, and updates the result where it has changed."""
        found = self._tree.fill()
        leaves, nodes = self._last.update(found)
        divided: dict[str, bool] = {}  # Leaves that are divided, one of whose pieces has changed.
        for at in leaves:
            name = found.names[at]
            if PIECE in name:
                divided[name.partition(PIECE)[0]] = True
            elif name not in self.idle:
                self._set(name, int(self._last.levels[at]), satisfied=bool(self._last.satisfied[at]))
        for at in nodes:
            name = found.inner[at]
            if name in self._pieces:
                divided[name] = True
            elif name != TOP:
                self.nodes[name] = int(self._last.inner[at])
                self.unshared[name] = True
        self._follow_written(accounts, divided)
        for leaf in divided:
            self._join(leaf, accounts)

    def confirm(self, units: Sequence[str], published: Mapping[str, UnitLevel]) -> None:
        """The levels in force of these units have changed; `published` are those of all units."""
        if self.unpublished is not None:
            for unit in units:
                in_force = published.get(unit)
                if self.levels.get(unit) == (in_force.target if in_force is not None else None):
                    self.unpublished.pop(unit, None)
                else:
                    self.unpublished[unit] = True

    def _stands(self, account: QueueAccount, caps: Caps) -> bool:
        """Whether the unit's present demand can be expressed in the tree as it was built."""
        if account.name in self._pieces or account.sets:
            names = [f"{account.name}{PIECE}{key}" for key in sorted(account.sets)]
            return self._pieces.get(account.name) == names and account.name not in caps
        if is_asked_of(account):
            self.idle.pop(account.name, None)
        else:
            self.idle[account.name] = True
        return True

    def _set(self, unit: str, level: int, *, satisfied: bool) -> None:
        self.satisfied[unit] = satisfied
        if self.levels.get(unit) != level:
            self.levels[unit] = level
            self._note(unit)

    def _note(self, unit: str) -> None:
        """The level of a unit has changed."""
        self.unshared[unit] = True
        if self.unpublished is not None:
            self.unpublished[unit] = True

    def _follow_written(self, accounts: TreeAccounts, divided: dict[str, bool]) -> None:
        """Units that ask for something else: what they ask for, and whether they have a level at all."""
        written, self._written = self._written, []
        for unit in written:
            if unit in self._pieces:
                divided[unit] = True
            elif unit in self.idle:
                self.asked.pop(unit, None)
                self.satisfied.pop(unit, None)
                if self.levels.pop(unit, None) is not None:
                    self._note(unit)
            elif unit in self._at:
                at = self._at[unit]
                self._set(unit, int(self._last.levels[at]), satisfied=bool(self._last.satisfied[at]))
                self.asked[unit] = accounts.queues[unit].demand

    def _join(self, leaf: str, accounts: TreeAccounts) -> None:
        """Turns the levels of the nodes below a leaf into parts of the leaf's level."""
        self.parts[leaf], self.pieces[leaf] = {}, {}
        for name in self._pieces[leaf]:
            key, at = name.partition(PIECE)[2], self._at[name]
            self.parts[leaf][key] = int(self._last.levels[at])
            self.pieces[leaf][key] = accounts.queues[leaf].sets[key], bool(self._last.satisfied[at])
        level = int(self._last.inner[self._inner_at[leaf]])
        self._set(leaf, level, satisfied=all(each for _, each in self.pieces[leaf].values()))
        self.asked[leaf] = accounts.queues[leaf].demand

    def _note_clipped(self, names: Sequence[str]) -> None:
        """Demands that were cut down to a maximum carry a rounding error; the arrays have to know which."""
        if self._fill_tree.bits:
            for name in names:
                self._tree.set_clipped(name, self._fill_tree.is_clipped(name))

    def _write(self, name: str) -> bool:
        """False where arrays have too few bits for it."""
        try:
            self._tree.set_demand(name, self._fill_tree.units[name])
        except OverflowError:
            return False
        return True


def is_asked_of(account: QueueAccount) -> bool:
    """Whether jobs of a unit ask for something, if only for what the cell has not got."""
    return any(is_asked_of(child) for child in account.children) if account.children else account.asked


def _is_kept(accounts: TreeAccounts) -> bool:
    """Whether trees with these limits are kept between fillings."""
    return not any(accounts.root.claims) and not any(account.listed for account in accounts.over.values())


def cached_tree_of(fill_tree: FillTree, accounts: TreeAccounts) -> CachedTree | None:
    """A tree to be kept; None where it has guarantees or unlike policies, or is not filled in arrays."""
    root = fill_tree.root
    if root is None or not fill_tree.whole or not _is_kept(accounts) or fill_tree.passes_over:
        return None
    tree = array_tree_of(root, fill_tree.capacity, clips=fill_tree.bits > 0)
    return CachedTree(fill_tree, tree) if tree is not None else None
