"""A large tree without limits, kept laid out from one filling to the next: only leaves that moved are written anew.

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
    caller says; `written`: units that were written anew since; `idle`: units in it that ask for nothing now."""

    def __init__(self, root: Node, plot: Plot, pieces: dict[str, list[str]]) -> None:
        self._plot = plot
        self.pieces = pieces  # Of leaves that ask for several sets of kinds.
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

    def follow(self, state: State, ledger: Ledger, caps: Caps) -> bool:
        """Write down what moved. False if the tree is of no use any more."""
        moved, self.moved = self.moved, {}
        if not _is_plain(ledger):
            return False
        units = [ledger.group_of(path) for path in moved if path in ledger.seats]
        units = [unit for unit in units if unit.is_group]
        self.written = [unit.name for unit in units]
        put = all(self._put(state, ledger, unit, caps) for unit in units)
        return put and self._units - len(self.idle) >= arrays.LEAVES_MIN  # A new tree would be filled otherwise.

    def fill(self) -> Filled:
        """A filling."""
        return self._plot.fill()

    def _put(self, state: State, ledger: Ledger, seat: Seat, caps: Caps) -> bool:
        asks = is_asked_of(state, seat)
        sets = state.sets.get(seat.name, {})
        if seat.name in self.pieces or len(sets) > 1:
            names = [f"{seat.name}{PIECE}{key}" for key in sorted(sets)]
            if self.pieces.get(seat.name) != names or seat.name in caps:
                return False
            demands = [[sets[key].get(kind, 0) for kind in ledger.kinds] for key in sorted(sets)]
            return all(self._write(name, demand) for name, demand in zip(names, demands, strict=True))
        if seat.name not in self._above:
            return not asks
        if asks == (seat.name in self.idle) and not self._turn(seat.name, asks):
            return False
        return self._write(seat.name, caps.get(seat.name, seat.demand))

    def _write(self, name: str, demand: Sequence[int]) -> bool:
        """False where compiled code has too few bits for it."""
        try:
            self._plot.put(name, demand)
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


def _is_plain(ledger: Ledger) -> bool:
    return not ledger.over and not any(ledger.root.claims)


def plotted_of(planting: Planting, ledger: Ledger) -> Plotted | None:
    """A tree to be kept; None where it has limits or unlike policies, or is not filled in arrays."""
    root = planting.root
    if root is None or not _is_plain(ledger) or planting.passes_over or planting.churned:
        return None
    plot = plot_of(root, planting.capacity)
    return Plotted(root, plot, planting.pieces) if plot is not None else None
