"""The line of leaves: whose claim to the next task is best, among those with something in their draw.

A class that finds no room is not live: its bins stay where they are, and searches pass over them (ranks.py). So a round
costs the leaves that it serves and those whose claim has moved, not all in which somebody waits.
"""

from schemas.quantities import Vector
from services.leftover.placement.entries import LeafSeat
from services.leftover.placement.ranks import Ranks

_RATIO_BITS = 30
_SERVED_BITS = 64
_BEYOND_BITS = 200  # Far above any ratio of a share to a target of one unit.


class Line:
    """Leaves by their claims. `fair`: where it is not, all claims are equal."""

    def __init__(self, fair: bool, leaves: dict[str, LeafSeat]) -> None:
        self.fair = fair
        self.leaves = leaves
        self.ranks: Ranks[str] = Ranks()
        self.changed: dict[str, bool] = {}  # Leaves whose claim may have moved since somebody took this note.
        self.reordered: dict[str, bool] = {}  # The same, and those in whose draw another bin, or none, may come first.
        self.running: dict[str, dict[tuple[tuple[str, int], ...], int]] = {}  # By leaf and demand, how many tasks run.
        self.headed: dict[int, int] = {}  # By class, how many leaves are set to have it as their head.

    def claim(self, leaf: LeafSeat) -> int:
        """What leaves are served by, least first."""
        if not self.fair:
            return 0
        if leaf.target <= 0:
            return 2 << _BEYOND_BITS | leaf.served  # Entitled to nothing: served from what nobody else can use.
        least = leaf.sizes.least()
        beyond = least is not None and leaf.share + least > leaf.target
        return beyond << _BEYOND_BITS | (leaf.share << _RATIO_BITS) // leaf.target << _SERVED_BITS | leaf.served

    def offer(self, leaf: LeafSeat, bin_id: int, key: int, class_index: int) -> None:
        """Puts a bin into the draw of its leaf, or moves it to another key."""
        draw, mark = leaf.draw, 1 << class_index
        self.reordered[leaf.name] = True
        draw.set(bin_id, key, mark)
        if leaf.name not in self.ranks.key:
            draw.classes |= mark
            self.ranks.set(leaf.name, self.claim(leaf), draw.classes)
        elif not draw.classes & mark:
            draw.classes |= mark
            self.ranks.add_classes(leaf.name, mark)

    def withdraw(self, leaf: LeafSeat, bin_id: int) -> None:
        """Takes a bin out of the draw of its leaf."""
        leaf.draw.drop(bin_id)
        self.reordered[leaf.name] = True
        if not leaf.draw.key:
            self.ranks.drop(leaf.name)

    def move(self, leaf: LeafSeat) -> None:
        """The leaf's claim may be another."""
        self.changed[leaf.name] = self.reordered[leaf.name] = True
        if leaf.name in self.ranks.key:
            self.ranks.set(leaf.name, self.claim(leaf), leaf.draw.classes)

    def run(self, leaf: str, demand: Vector, count: int) -> None:
        """So many more tasks of a leaf run (fewer, where negative), whether or not their jobs are over."""
        running, key = self.running.setdefault(leaf, {}), tuple(demand.items())
        before = running.pop(key, 0)
        if after := before + count:
            running[key] = after
        if leaf in self.leaves and not (before and after):
            self.reordered[leaf] = True

    def runs(self, leaf: str, demand: Vector) -> bool:
        """Whether tasks of a leaf with this demand run."""
        return tuple(demand.items()) in self.running.get(leaf, {})

    def set_head(self, leaf: LeafSeat, class_index: int | None) -> None:
        """Counts a leaf among those with this class as their head, and no longer among those with another."""
        headed, before = self.headed, leaf.headed
        if before is not None:
            if headed[before] == 1:
                del headed[before]
            else:
                headed[before] -= 1
        leaf.headed = class_index
        if class_index is not None:
            headed[class_index] = headed.get(class_index, 0) + 1

    def next(self, live: int) -> tuple[LeafSeat, int] | None:
        """The leaf with the best claim that has a bin of a class in the set `live`, and the first such bin; of a strict
        leaf its head alone counts. None where there is none.
        """
        leaves = self.leaves
        for block in self.ranks.blocks:
            if not block.classes & live:
                continue
            classes = 0
            for _, name in block.entries:
                leaf = leaves[name]
                bin_id = leaf.first_of(live)
                if bin_id is not None:
                    return leaf, bin_id
                classes |= leaf.draw.classes
            block.classes = classes
        return None
