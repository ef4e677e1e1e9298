"""Which classes of tasks are worth a try in a round: those that are not blocked, and of the others those that may fit
on a node that got room. A class that cannot fit is never looked at, however many there are.
"""

from services.leftover.placement.fits import Demands, numbers
from services.leftover.placement.nodes import Room, TaskClass

_FAILED_LEAST = 16
"""After so many classes that found no room, and one for each node that had some, what may have room is worked out anew:
either costs about as much."""


class Candidates:
    """Bit sets of classes, by their numbers. A class is blocked from when it finds no room until it has some, or until
    tasks wait in it again after none did.
    """

    def __init__(self, room: Room, classes: list[TaskClass]) -> None:
        """`classes`: those of a board, by number; it only grows."""
        self.room, self.classes = room, classes
        self.blocked: dict[int, TaskClass] = {}
        self.demands = Demands(len(room.total))  # By size, those that are known.
        self._known = 0  # So many classes are in `demands`.
        self._open = 0  # Classes that are not blocked.
        self._hoping = 0  # Classes that are blocked and may have room now, and others.
        self._nodes: dict[int, bool] = {}  # Where they may have it,
        self._looked = 0  # among the nodes that the room had listed as changed by then.
        self._failed = 0  # So many classes found none since `_hoping` was worked out,
        self._failed_open = 0  # and so many that were not blocked since those were swept.

    @property
    def live(self) -> int:
        """Bit set of the classes that are worth a try."""
        return self._open | self._hoping

    def refresh(self) -> None:
        """Takes in new classes, and the nodes that got room."""
        first, self._known = self._known, len(self.classes)
        self.demands.add(first, [task.wants for task in self.classes[first:]])
        self._open |= (1 << self._known) - (1 << first)
        self._nodes = dict.fromkeys(self.room.changed_since(self._looked), True)
        self._looked = self.room.cursor
        self._failed_open = 0
        self._sum_up()

    def _sum_up(self) -> None:
        hoping, nodes = 0, self.room.nodes
        for number in list(self._nodes):
            node = nodes[number]
            found = self.demands.classes(node.free) if node.open else 0
            if found:
                hoping |= found
            else:
                del self._nodes[number]
        self._hoping, self._failed = hoping, 0

    def block(self, task: TaskClass) -> None:
        """The class has found no room."""
        mark = 1 << task.index
        if not task.blocked:
            task.blocked = True
            self.blocked[task.index] = task
            self._open ^= mark
            self._failed_open += 1
            if self._failed_open > _FAILED_LEAST + len(self.room.nodes):
                self._sweep()
        if self._hoping & mark:
            self._hoping ^= mark
            self._failed += 1
            if self._failed > _FAILED_LEAST + len(self._nodes):  # By now others may have taken the room.
                before = self._hoping
                self._sum_up()
                self._hoping &= before

    def _sweep(self) -> None:
        """Blocks all classes at once that no node has room for: many new ones may find a full cell."""
        union = 0
        for node in self.room.nodes:
            if node.open:
                union |= self.demands.classes(node.free)
        for index in numbers(self._open & ~union):
            task = self.classes[index]
            task.blocked = True
            self.blocked[index] = task
        self._open &= union
        self._failed_open = 0

    def unblock(self, task: TaskClass) -> None:
        """The class has room, or may have."""
        if task.blocked:
            task.blocked = False
            del self.blocked[task.index]
            self._open |= 1 << task.index

    def unblock_all(self) -> None:
        """Every class is worth a try."""
        for task in list(self.blocked.values()):
            self.unblock(task)

    def finish(self, *, all_tried: bool) -> None:
        """The round is over. Where not `all_tried`, classes that were live may have room and were not looked at."""
        if not all_tried:
            for index in numbers(self._hoping):
                self.unblock(self.classes[index])
        self._hoping = 0
