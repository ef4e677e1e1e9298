"""The line of leaves: whose claim to the next task is best, among those with something in their draw.

A class that finds no room is blocked: its bins leave the draws of their leaves and stand aside. When it gets room they
come back one leaf at a time, best claim first, and only as far as the round gets: most often a task or two end, one or
two leaves are served, and the class is blocked again. So a round costs the leaves that it serves and those whose claim
has moved, not all in which somebody waits.
"""

from services.leftover.keyed import Keyed
from services.leftover.room import TaskClass
from services.leftover.seats import LeafSeat

_RATIO_BITS = 30
_SERVED_BITS = 64
_BEYOND_BITS = 200  # Far above any ratio of a share to a target of one unit.


class Line:
    """Leaves by their claims. `fair`: where it is not, all claims are equal."""

    def __init__(self, fair: bool, leaves: dict[str, LeafSeat], classes: list[TaskClass]) -> None:
        self.fair = fair
        self.leaves, self.classes = leaves, classes
        self.draw: Keyed[str] = Keyed()
        self._moved: list[str] = []  # Leaves with bins aside whose claim may have moved; classes read from `seen` on.
        self._moved_base = 0
        self._unread = False  # Nobody has read the last entry.
        self._opened: Keyed[int] = Keyed()  # Classes that are blocked no longer, by the best leaf they have aside.

    def claim(self, leaf: LeafSeat) -> int:
        """What leaves are served by, least first."""
        if not self.fair:
            return 0
        if leaf.target <= 0:
            return 2 << _BEYOND_BITS | leaf.served  # Entitled to nothing: served from what nobody else can use.
        least = leaf.sizes.least()
        beyond = least is not None and leaf.share + least > leaf.target
        return beyond << _BEYOND_BITS | (leaf.share << _RATIO_BITS) // leaf.target << _SERVED_BITS | leaf.served

    def join(self, leaf: LeafSeat) -> None:
        """The leaf has something in its draw."""
        if leaf.name not in self.draw.key:
            self.draw.set(leaf.name, self.claim(leaf))

    def move(self, leaf: LeafSeat) -> None:
        """The leaf's claim may be another."""
        if leaf.name in self.draw.key:
            self.draw.set(leaf.name, self.claim(leaf))
        if leaf.parks and not (self._unread and self._moved[-1] == leaf.name):
            self._moved.append(leaf.name)
            self._unread = True
            if len(self._moved) > 4 * len(self.leaves) + 1_000:  # Whoever has not looked for so long looks at all.
                self._moved_base += len(self._moved)
                self._moved.clear()
                self._unread = False

    def park(self, task: TaskClass, leaf: LeafSeat, bin_id: int) -> None:
        """A bin of a blocked class stands aside."""
        bins = task.parked.get(leaf.name)
        if bins is None:
            bins = task.parked[leaf.name] = {}
            claim = self.draw.key.get(leaf.name)
            task.aside.set(leaf.name, self.claim(leaf) if claim is None else claim)
            leaf.parks = True
        bins[bin_id] = True

    def block(self, task: TaskClass) -> None:
        """The class has no room: what it has aside stays there."""
        self._opened.drop(task.index)

    def open(self, task: TaskClass) -> None:
        """The class has room: what it has aside comes back when its turn is there."""
        if task.seen < self._moved_base:
            names = list(task.parked)
        else:
            names = list(dict.fromkeys(self._moved[task.seen - self._moved_base :]))
        self._unread = False
        task.seen = self._moved_base + len(self._moved)
        for name in names:
            if name in task.parked:
                task.aside.set(name, self.claim(self.leaves[name]))
        self._next_turn(task)

    def _next_turn(self, task: TaskClass) -> None:
        claim = task.aside.least()
        if claim is None:
            self._opened.drop(task.index)
        else:
            self._opened.set(task.index, claim)

    def turn(self) -> TaskClass | None:
        """The class that has a leaf aside which comes before, or is, the first of the draw; None where there is none.
        A leaf's claim moves only while nothing of it is left aside that could come back.
        """
        index = self._opened.top()
        if index is None:
            return None
        first = self.draw.least()
        return None if first is not None and first < self._opened.key[index] else self.classes[index]

    def back(self, task: TaskClass) -> tuple[LeafSeat, dict[int, bool]]:
        """The leaf whose turn it is, with its bins of the class: they stand aside no longer."""
        name = task.aside.top()
        assert name is not None, f"{task.key}: nothing stands aside"
        task.aside.drop_top()
        self._next_turn(task)
        return self.leaves[name], task.parked.pop(name)
