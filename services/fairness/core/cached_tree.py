"""A large tree without guarantees, kept laid out from one filling to the next: only leaves that moved are written anew.

Units that ask for nothing stand in it, too. What a kept tree comes to is what a new one would, to the last bit.
"""

from collections.abc import Sequence

from services.fairness.accounts.ledger import Ledger
from services.fairness.accounts.seat import Seat
from services.fairness.core.fill_tree import PIECE, Caps, Planting
from services.fairness.core.state import State
from services.fairness.hdrf import arrays
from services.fairness.hdrf.arrays import Filled, Plot, plot_of


class Plotted:
    """A tree as it was planted. `moved`: leaves whose demand has changed since it was last filled, which the
    caller says; `written`: units that were looked at for that; `idle`: units in it that ask for nothing now."""

    def __init__(self, planting: Planting, plot: Plot) -> None:
        self._planting = planting
        self._plot = plot
        self.pieces = planting.pieces  # Of leaves that ask for several sets of kinds.
        self.moved: dict[str, bool] = {}
        self.written: list[str] = []
        self._names = dict.fromkeys(plot.names, True)
        self._units = sum([PIECE not in name for name in planting.units])
        self.idle = {name: True for name in plot.names if PIECE not in name and name not in planting.asked}
        self._blur(plot.names)

    def follow(self, state: State, ledger: Ledger, caps: Caps) -> bool:
        """Write down what moved. False if the tree is of no use any more."""
        moved, self.moved = self.moved, {}
        if not _is_kept(ledger) or bool(ledger.over) != bool(self._planting.bits):
            return False
        units = [ledger.group_of(path) for path in moved if path in ledger.seats]
        units = [unit for unit in {unit.name: unit for unit in units}.values() if unit.is_group]
        self.written = [unit.name for unit in units]
        if not all(self._stands(state, unit, caps) for unit in units):
            return False
        if self._units - len(self.idle) < arrays.LEAVES_MIN:
            return False  # A new tree would be filled otherwise.
        changed = [name for name in self._planting.follow(units, caps) if name in self._names]
        self._blur(changed)
        return all(self._write(name) for name in changed)

    def fill(self) -> Filled:
        """A filling."""
        return self._plot.fill()

    def _stands(self, state: State, seat: Seat, caps: Caps) -> bool:
        """Whether what a unit asks for now has its place in the tree."""
        sets = state.sets.get(seat.name, {})
        if seat.name in self.pieces or (len(sets) > 1 and not seat.children):
            names = [f"{seat.name}{PIECE}{key}" for key in sorted(sets)]
            return self.pieces.get(seat.name) == names and seat.name not in caps
        if is_asked_of(state, seat):
            self.idle.pop(seat.name, None)
        else:
            self.idle[seat.name] = True
        return True

    def _blur(self, names: Sequence[str]) -> None:
        """What a maximum leaves was rounded."""
        if self._planting.bits:
            for name in names:
                self._plot.blur(name, self._planting.is_clipped(name))

    def _write(self, name: str) -> bool:
        """False where arrays have too few bits for it."""
        try:
            self._plot.put(name, self._planting.units[name])
        except OverflowError:
            return False
        return True


def is_asked_of(state: State, seat: Seat) -> bool:
    """Whether jobs of a unit ask for something, if only for what the cell has not got."""
    if seat.children:
        return any(is_asked_of(state, child) for child in seat.children)
    return seat.name in state.demand


def _is_kept(ledger: Ledger) -> bool:
    """Whether trees with such limits are kept."""
    return not any(ledger.root.claims) and not any(seat.listed for seat in ledger.over.values())


def plotted_of(planting: Planting, ledger: Ledger) -> Plotted | None:
    """A tree to be kept; None where it has guarantees or unlike policies, or is not filled in arrays."""
    root = planting.root
    if root is None or not planting.whole or not _is_kept(ledger) or planting.passes_over:
        return None
    plot = plot_of(root, planting.capacity, blurs=planting.bits > 0)
    return Plotted(planting, plot) if plot is not None else None
