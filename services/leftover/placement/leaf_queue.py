"""The line of leaves: whose claim to the next task is best, among those with something in their draw.

A class that finds no room is not live: its bins stay where they are, and searches pass over them (ranks.py). So a round
costs the leaves that it serves and those whose claim has moved, not all in which somebody waits.
"""

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
        if not leaf.draw.key:
            self.ranks.drop(leaf.name)

    def move(self, leaf: LeafSeat) -> None:
        """The leaf's claim may be another."""
        self.changed[leaf.name] = True
        if leaf.name in self.ranks.key:
            self.ranks.set(leaf.name, self.claim(leaf), leaf.draw.classes)

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
