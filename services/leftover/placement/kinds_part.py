"""The tasks of a leaf queue that ask for one set of kinds of resource (kinds_levels.py)."""

from dataclasses import dataclass, field

from services.leftover.placement.indexed_heap import IndexedHeap


def kinds_asked(pairs: list[tuple[int, int]]) -> int:
    """The kinds that a demand, as (resource position, amount), asks for: a bit each."""
    kinds = 0
    for p, _ in pairs:
        if p >= 0:
            kinds |= 1 << p
    return kinds


@dataclass(slots=True, eq=False)
class KindsPart:
    """The tasks of a leaf that ask for one set of kinds. `kinds`: bit set of resource positions; `level`: their level,
    in 10^-9 of the cell; `held` and `placed`: by resource position, what they hold and what this round has placed;
    `share`: both together, as a dominant share. `ratio`: that as a part of the level, in 2^-30, and 2^30 where it is
    all of it or more. `sizes`: as in `LeafEntry`, of those that wait.
    """

    kinds: int
    level: int
    held: list[int]
    placed: list[int]
    share: int = 0
    ratio: int = 0
    sizes: IndexedHeap[int] = field(default_factory=IndexedHeap)

    def __init__(self, kinds: int, level: int, size: int) -> None:
        self.kinds = kinds
        self.level = level
        self.held = [0] * size
        self.placed = [0] * size
        self.share = self.ratio = 0
        self.sizes = IndexedHeap()
