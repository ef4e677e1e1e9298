"""The line of leaves: whose claim to the next task is best, among those with something in their ready queue.

A class that finds no room is not live: its buckets stay where they are, and searches pass over them (ranks.py). So a
round costs the leaves that it serves and those whose claim has moved, not all in which somebody waits.
"""

from schemas.quantities import Vector
from services.leftover.placement.entries import LeafEntry
from services.leftover.placement.ranks import Ranks

_RATIO_BITS = 30
_SERVED_BITS = 64
_BEYOND_BITS = 200  # Far above any ratio of a share to a target of one unit.
_RETURNED, _OWN, _BEYOND, _NOTHING = range(4)
"""What a leaf would take next: what others were given since it found no room, which is its own again now that there is
some; what it is due; more than that; or, where it is entitled to nothing, what nobody else can use."""


class LeafQueue:
    """Leaves by their claims. `fair`: where it is not, all claims are equal."""

    def __init__(self, fair: bool, leaves: dict[str, LeafEntry], job_classes: int = 1) -> None:
        """`job_classes`: how many classes of jobs have pools; 1 where there are none."""
        self.fair = fair
        self.leaves = leaves
        self.ranks: list[Ranks[str]] = [Ranks() for _ in range(job_classes)]
        self.owed: list[Ranks[str]] = [Ranks() for _ in range(job_classes)]  # Of these, those below their guarantee.
        self.changed: dict[str, bool] = {}  # Leaves whose claim may have moved since somebody took this note.
        self.reordered: dict[
            str, bool
        ] = {}  # The same, and those in whose ready queue another bucket, or none, may come first.
        self.running: dict[str, dict[tuple[tuple[str, int], ...], int]] = {}  # By leaf and demand, how many tasks run.
        self.headed: dict[int, int] = {}  # By class, how many leaves are set to have it as a head.

    def claim(self, leaf: LeafEntry) -> int:
        """What leaves are served by, least first."""
        if not self.fair:
            return 0
        if leaf.target <= 0:
            return _NOTHING << _BEYOND_BITS | leaf.served
        least, tier = leaf.sizes.least(), _OWN
        if least is not None and leaf.share + least > leaf.target:
            tier = _BEYOND
        elif leaf.level_reduced:
            tier = _RETURNED
        return tier << _BEYOND_BITS | (leaf.share << _RATIO_BITS) // leaf.target << _SERVED_BITS | leaf.served

    def offer(self, leaf: LeafEntry, job_class: int, id_: int, key: int, classes: int) -> None:
        """Puts a bucket, or a job with what it alone waits for, into the ready queue of its leaf, or moves it to
        another key. `classes`: bit set of theirs.
        """
        ready, ranks = leaf.ready[job_class], self.ranks[job_class]
        self.reordered[leaf.name] = True
        ready.set(id_, key, classes)
        if leaf.name not in ranks.key:
            ready.classes |= classes
            self._rank(leaf, job_class, self.claim(leaf))
        elif ready.classes & classes != classes:
            ready.classes |= classes
            ranks.add_classes(leaf.name, classes)
            if leaf.name in self.owed[job_class].key:
                self.owed[job_class].add_classes(leaf.name, classes)

    def _rank(self, leaf: LeafEntry, job_class: int, claim: int) -> None:
        """The leaf has something in its ready queue of this class, and this claim."""
        classes = leaf.ready[job_class].classes
        self.ranks[job_class].set(leaf.name, claim, classes)
        if len(self.owed) == 1:
            return  # Nobody asks who is owed where there are no pools.
        if leaf.is_owed:
            self.owed[job_class].set(leaf.name, claim, classes)
        else:
            self.owed[job_class].drop(leaf.name)

    def withdraw(self, leaf: LeafEntry, job_class: int, id_: int) -> None:
        """Takes a bucket or a job out of the ready queue of its leaf."""
        leaf.ready[job_class].drop(id_)
        self.reordered[leaf.name] = True
        if not leaf.ready[job_class].key:
            self.ranks[job_class].drop(leaf.name)
            self.owed[job_class].drop(leaf.name)

    def move(self, leaf: LeafEntry) -> None:
        """The leaf's claim may be another."""
        self.changed[leaf.name] = self.reordered[leaf.name] = True
        claim: int | None = None
        for job_class, ranks in enumerate(self.ranks):
            if leaf.name in ranks.key:
                claim = self.claim(leaf) if claim is None else claim
                self._rank(leaf, job_class, claim)

    def run(self, leaf: str, demand: Vector, count: int) -> None:
        """So many more tasks of a leaf run (fewer, where negative), whether or not their jobs are over."""
        running, key = self.running.get(leaf), tuple(demand.items())
        if running is None:
            running = self.running[leaf] = {}
        before = running.get(key, 0)
        if after := before + count:
            running[key] = after
        else:
            running.pop(key, None)
        if leaf in self.leaves and not (before and after):
            self.reordered[leaf] = True

    def runs(self, leaf: str, demand: Vector) -> bool:
        """Whether tasks of a leaf with this demand run."""
        return tuple(demand.items()) in self.running.get(leaf, {})

    def set_heads(self, leaf: LeafEntry, heads: list[int]) -> None:
        """Counts a leaf among those with these classes as their heads, and no longer among those with others."""
        headed, before = self.headed, leaf.headed
        if before == heads:
            return
        for index in before:
            if headed[index] == 1:
                del headed[index]
            else:
                headed[index] -= 1
        leaf.headed = heads
        for index in heads:
            headed[index] = headed.get(index, 0) + 1

    def next(self, live: list[int], *, owed: bool = False, end: int | None = None) -> tuple[LeafEntry, int] | None:
        """The leaf with the best claim that has a bucket of a class of tasks in the set `live` (one for each class of
        jobs), and the first such bucket whose key is below `end`; of a strict leaf its head alone. `owed`: only leaves
        below their guarantee. None where there is none.
        """
        every = self.owed if owed else self.ranks
        if len(every) == 1:
            return self._first(every[0], 0, live[0], end)
        best: tuple[int, str, int, int] | None = None
        for job_class, ranks in enumerate(every):
            found = self._first(ranks, job_class, live[job_class], end)
            if found is not None:
                leaf, bucket_id = found
                rank = ranks.key[leaf.name], leaf.name, leaf.ready[job_class].found_key, bucket_id
                if best is None or rank < best:
                    best = rank
        return None if best is None else (self.leaves[best[1]], best[3])

    def _first(self, ranks: Ranks[str], job_class: int, live: int, end: int | None) -> tuple[LeafEntry, int] | None:
        leaves = self.leaves
        for block in ranks.blocks:
            if not block.classes & live:
                continue
            classes = 0
            for _, name in block.entries:
                leaf = leaves[name]
                bucket_id = leaf.first_of(live, job_class, end)
                if bucket_id is not None:
                    return leaf, bucket_id
                classes |= leaf.ready[job_class].classes
            block.classes = classes
        return None
