"""A large tree without guarantees, kept laid out from one filling to the next: only leaves that moved are written anew.

What a kept tree comes to is what a new one would, to the last bit. So it is given up where a level would be measured
otherwise: a queue that is not in it asks, the last one below a queue no longer does, or the heaviest of siblings.
"""

from collections.abc import Sequence

from services.fairness.accounts.ledger import Ledger
from services.fairness.accounts.seat import Seat
from services.fairness.core.fill_tree import PIECE, Caps, Planting
from services.fairness.core.state import State
from services.fairness.hdrf import arrays
from services.fairness.hdrf.arrays import Filled, Plot, plot_of
from services.fairness.tree import Node, walk


class Plotted:
    """A tree as it was planted. `moved`: leaves whose demand has changed since it was last filled, which the
    caller says; `written`: units that were looked at for that; `idle`: units in it that ask for nothing now."""

    def __init__(self, planting: Planting, root: Node, plot: Plot) -> None:
        self._planting = planting
        self._plot = plot
        self.pieces = planting.pieces  # Of leaves that ask for several sets of kinds.
        self.moved: dict[str, bool] = {}
        self.written: list[str] = []
        self.idle: dict[str, bool] = {}
        self._units = len(plot.names)
        self._above: dict[str, str] = {}
        self._asking: dict[str, int] = {}  # Queue -> children in the tree that ask.
        self._heaviest: dict[str, int] = {}  # And those as heavy as any that ever did.
        self._is_heaviest: dict[str, bool] = {}
        for node in walk(root):
            most = max([child.weight for child in node.children], default=0)
            self._asking[node.name] = len(node.children)
            self._heaviest[node.name] = sum([child.weight == most for child in node.children])
            for child in node.children:
                if not child.children:
                    self._above[child.name], self._is_heaviest[child.name] = node.name, child.weight == most
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
        units = [unit for unit in units if unit.name in self._above or unit.name in self.pieces]
        changed = [name for name in self._planting.follow(units, caps) if name in self._above]
        self._blur(changed)
        return all(self._write(name) for name in changed)

    def fill(self) -> Filled:
        """A filling."""
        return self._plot.fill()

    def _stands(self, state: State, seat: Seat, caps: Caps) -> bool:
        """Whether what a unit asks for now has its place in the tree."""
        asks = is_asked_of(state, seat)
        sets = state.sets.get(seat.name, {})
        if seat.name in self.pieces or (len(sets) > 1 and not seat.children):
            names = [f"{seat.name}{PIECE}{key}" for key in sorted(sets)]
            return self.pieces.get(seat.name) == names and seat.name not in caps
        if seat.name not in self._above:
            return not asks
        return asks != (seat.name in self.idle) or self._turn(seat.name, asks)

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

    def _turn(self, unit: str, asks: bool) -> bool:
        """A unit begins to ask again, or ceases to. False if its siblings would be measured otherwise then."""
        above = self._above[unit]
        if asks:
            del self.idle[unit]
        else:
            self.idle[unit] = True
        self._asking[above] += 1 if asks else -1
        if self._is_heaviest[unit]:
            self._heaviest[above] += 1 if asks else -1
        return self._asking[above] > 0 and self._heaviest[above] > 0


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
    if root is None or not _is_kept(ledger) or planting.passes_over or planting.churned:
        return None
    plot = plot_of(root, planting.capacity, blurs=planting.bits > 0)
    return Plotted(planting, root, plot) if plot is not None else None
