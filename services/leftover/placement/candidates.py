"""Which classes of tasks are worth a try in a round: those that are not blocked, and of the blocked ones those that may
fit on a node that has got room since. It follows from two bitmap indexes, of what classes need and of what nodes have
free, so a class that cannot fit is never looked at, however many there are.
"""

from typing import Final

from services.leftover.placement.fits import ClassIndex, bit_set, members
from services.leftover.placement.node_table import NODES_AT_ONCE_LEAST, NodeTable
from services.leftover.placement.task_class import TaskClass

_SWEPT_AFTER: Final = 16
"""Once this many classes, plus one for each node, have found no room in a round, all other classes are compared with
every node at once: many new classes may have come to a full cell."""

_TRIED_MOST: Final = 16
"""Where more nodes than this got room and more tasks of a class wait, the class keeps a heap of nodes by rank."""

_FAILURE_COSTS = 16
"""A try that finds no room costs about as much as comparing the classes that wait with so many nodes. Classes are
compared again once the tries that failed since have cost as much as a comparison: at most about twice the least
possible cost is spent (rent or buy).
"""


class Candidates:
    """Bit sets of classes, by their numbers. A class is `blocked` once a search of all nodes has found no room for it:
    it is then tried only on nodes that have got room since, until it is opened again: tasks wait in it after none did,
    counters of spread moved, or a round has not come to it.
    """

    def __init__(self, table: NodeTable, classes: list[TaskClass]) -> None:
        """`classes`: those of a board, by number; it only grows."""
        self.table, self.classes = table, classes
        self.blocked: dict[int, TaskClass] = {}
        self.demands = ClassIndex(len(table.total))  # By what one task needs.
        self._known = 0  # How many classes are in `demands`,
        self._whole = 0  # and bit set of those that ask for nothing that no node has.
        self.live = 0  # Bit set of the classes that are worth a try: the open ones, and the retry candidates.
        self._open = 0  # Classes that are not blocked.
        self._waiting = 0  # Classes whose tasks wait; `_moved` may have changed that.
        self._moved: dict[int, bool] = {}  # Classes whose count of waiting tasks became or left zero.
        self._retry_candidates = 0  # Blocked classes that may have room by now; a superset, compared exactly later.
        self._nodes: dict[int, int] = {}  # By node that has got room, the classes that may fit there, or more.
        self._looked = 0  # How many nodes the room had listed as changed when `_nodes` was filled.
        self._seen: dict[int, int] = {}  # What `room.moves` said of these nodes when classes were compared with them.
        self._failed = 0  # How many retry candidates found no room since they were last compared with nodes.
        self._failed_open = 0  # How many open classes found no room since the last sweep.

    def learn(self) -> None:
        """Takes in new classes."""
        first, self._known = self._known, len(self.classes)
        if first < self._known:
            self.demands.add(first, [task.needs for task in self.classes[first:]])
            self._whole |= bit_set([t.index for t in self.classes[first:] if len(t.needs) == len(t.pairs)])
        self._open |= (1 << self._known) - (1 << first)

    def refresh(self) -> None:
        """Takes in new classes, and the nodes that got room."""
        self.learn()
        changed, self._looked = self.table.changed_since(self._looked)
        self._nodes = dict.fromkeys(changed, 0)
        self._failed = self._failed_open = 0
        if self._moved:
            self._note_waiting()
        self._retry_candidates = self._with_room(self._waiting ^ self._waiting & self._open)
        self.live = self._open | self._retry_candidates

    def note_waiting(self, task: TaskClass) -> None:
        """Tasks of a class wait, after none did, or none does any more."""
        self._moved[task.index] = True

    def _note_waiting(self) -> None:
        moved = bit_set(list(self._moved))
        began = bit_set([index for index in self._moved if self.classes[index].waiting])
        self._waiting = (self._waiting | moved) ^ moved | began
        self._moved = {}

    def kept_out(self) -> int:
        """Bit set of the classes that are blocked and whose tasks wait."""
        if self._moved:
            self._note_waiting()
        return self._waiting & (1 << self._known) - 1 & ~self._open

    def fitting(self, number: int, among: int) -> list[TaskClass]:
        """Of a set of classes those of which a task may fit into what a node has free: all that do are among them."""
        return [self.classes[index] for index in members(self.demands.classes(self.table.nodes[number].free, among))]

    def least_needs(self, among: int) -> dict[int, int] | None:
        """By resource position, the least that a class of a set asks for; missing: nothing. None: not known, as all of
        them ask for something that no node has.
        """
        return self.demands.least(among) if among & self._whole else None

    def _with_room(self, among: int) -> int:
        """Of a set of classes those that may fit on the nodes that got room; forgets nodes where none does."""
        found, nodes, moves = 0, self.table.nodes, self.table.moves
        self._seen = {}
        for number in list(self._nodes):
            node = nodes[number]
            fitting = self.demands.classes(node.free, among) if among and node.open else 0
            if fitting:
                found |= fitting
                self._nodes[number] = fitting
                self._seen[number] = moves[number]
            else:
                del self._nodes[number]
        return found

    def _narrow(self) -> None:
        """Drops the retry candidates that fit on no node any more: while a round places tasks, no node gets more room.
        A node is compared again only if its room has moved, and none once there is a node for each of the classes.
        """
        nodes, moves, seen = self.table.nodes, self.table.moves, self._seen
        missing = self._retry_candidates
        for number, fitting in list(self._nodes.items()):
            if seen[number] != moves[number]:
                seen[number] = moves[number]
                fitting = self.demands.classes(nodes[number].free, fitting & self._retry_candidates)
                if not fitting:
                    del self._nodes[number]
                    continue
                self._nodes[number] = fitting
            found = missing & fitting
            if found:
                missing ^= found
                if not missing:
                    break
        self._retry_candidates ^= missing
        self._failed = 0

    def best(self, task: TaskClass) -> int | None:
        """Number of the node that suits a blocked class best now, or None. Only nodes that got room since can have any.
        (A gang is blocked by what all of its tasks need; single ones of them may fit elsewhere.)
        """
        if min(task.waiting, len(self._nodes)) > _TRIED_MOST and not task.gang and task.bounds is None:
            return self.table.best(task)  # Many tasks find their nodes in order of rank.
        if len(self._nodes) >= NODES_AT_ONCE_LEAST and self.table.ranks_at_once(task):
            return self.table.best_of_all(task)
        numbers = [number for number, fitting in self._nodes.items() if fitting >> task.index & 1]
        return self.table.best_among(task, numbers) if numbers else None

    def block(self, task: TaskClass) -> None:
        """The class has found no room."""
        mark = 1 << task.index
        if not task.blocked:
            task.blocked = True
            self.blocked[task.index] = task
            self._open ^= mark
            self._failed_open += 1
            if self._failed_open > _SWEPT_AFTER + len(self.table.nodes):
                self._sweep()
        if self._retry_candidates & mark:
            self._retry_candidates ^= mark
            self._failed += 1
            if self._failed * _FAILURE_COSTS >= len(self._nodes):
                self._narrow()
        self.live = self._open | self._retry_candidates

    def _sweep(self) -> None:
        """Blocks all classes at once that no node has room for."""
        union = 0
        for node in self.table.nodes:
            if node.open:
                union |= self.demands.classes(node.free, self._open)
        for index in members(self._open & ~union):
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
            self.live |= 1 << task.index

    def unblock_all(self) -> None:
        """Every class is worth a try."""
        for task in list(self.blocked.values()):
            self.unblock(task)

    def finish(self, *, all_tried: bool) -> None:
        """The round is over. Where not `all_tried`, classes that were live may have room and were not looked at."""
        if not all_tried:
            for index in members(self._retry_candidates):
                self.unblock(self.classes[index])
        self._retry_candidates = 0
        self.live = self._open
