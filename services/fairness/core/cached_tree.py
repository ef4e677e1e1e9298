"""A large tree without guarantees that is kept in arrays from one filling to the next; only leaves whose demand has
changed are updated.

Units without demand are part of it, too. A kept tree gives bit for bit the result that a newly built one would.
"""

from collections.abc import Sequence

from services.fairness.accounts.queue_account import QueueAccount
from services.fairness.accounts.tree_accounts import TreeAccounts
from services.fairness.core.fill_tree import PIECE, Caps, FillTree
from services.fairness.core.state import State
from services.fairness.hdrf import arrays
from services.fairness.hdrf.array_fill import ArrayFill
from services.fairness.hdrf.arrays import ArrayTree, array_tree_of


class CachedTree:
    """The kept tree. `moved`: leaves whose demand has changed since the last filling (set by the caller); `written`:
    units that were updated for that; `idle`: units in it that ask for nothing now.
    """

    def __init__(self, fill_tree: FillTree, tree: ArrayTree) -> None:
        self._fill_tree = fill_tree
        self._tree = tree
        self.pieces = fill_tree.pieces  # Of leaves that ask for several sets of kinds.
        self.moved: dict[str, bool] = {}
        self.written: list[str] = []
        self._names = dict.fromkeys(tree.names, True)
        self._units = sum([PIECE not in name for name in fill_tree.units])
        self.idle = {name: True for name in tree.names if PIECE not in name and name not in fill_tree.asked}
        self._note_clipped(tree.names)

    def follow(self, state: State, accounts: TreeAccounts, caps: Caps) -> bool:
        """Applies the changes in `moved`. False if the tree can no longer be used and has to be built anew."""
        moved, self.moved = self.moved, {}
        if not _is_kept(accounts) or bool(accounts.over) != bool(self._fill_tree.bits):
            return False
        units = [accounts.group_of(path) for path in moved if path in accounts.queues]
        units = [unit for unit in {unit.name: unit for unit in units}.values() if unit.is_group]
        self.written = [unit.name for unit in units]
        if not all(self._stands(state, unit, caps) for unit in units):
            return False
        if self._units - len(self.idle) < arrays.LEAVES_MIN:
            return False  # A new tree would be filled otherwise.
        changed = [name for name in self._fill_tree.follow(units, caps) if name in self._names]
        self._note_clipped(changed)
        return all(self._write(name) for name in changed)

    def fill(self) -> ArrayFill:
        """A filling."""
        return self._tree.fill()

    def _stands(self, state: State, account: QueueAccount, caps: Caps) -> bool:
        """Whether the unit's present demand can be expressed in the tree as it was built."""
        sets = state.sets.get(account.name, {})
        if account.name in self.pieces or (len(sets) > 1 and not account.children):
            names = [f"{account.name}{PIECE}{key}" for key in sorted(sets)]
            return self.pieces.get(account.name) == names and account.name not in caps
        if is_asked_of(state, account):
            self.idle.pop(account.name, None)
        else:
            self.idle[account.name] = True
        return True

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


def is_asked_of(state: State, account: QueueAccount) -> bool:
    """Whether jobs of a unit ask for something, if only for what the cell has not got."""
    if account.children:
        return any(is_asked_of(state, child) for child in account.children)
    return account.name in state.demand


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
