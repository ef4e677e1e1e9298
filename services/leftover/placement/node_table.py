"""Nodes with what they have free, and for each class of tasks the node that suits it best.

Which node that is follows from the policy (node_choice.py); nodes with preferred labels come before all others, nodes
where attempts fail one after another come last, and of equals the node that registered first. By alignment it is the
node whose free room aligns most with the demand (Tetris: dot product of both, each as a part of the largest node). A
bitmap index (fits.py) names the nodes that may have room, so the cost follows these and not all nodes. A class of which
many tasks wait keeps a *view*: a heap of the nodes that suit it by rank. Where ranks only worsen as nodes fill, it is
updated with the nodes that got room; else with all nodes that have changed.
"""

from typing import Final

from schemas.policy import Placing
from schemas.quantities import Vector
from services.leftover.placement.cell_nodes import CellNodes
from services.leftover.placement.fits import FreeAmounts, NodeIndex, members
from services.leftover.placement.fragments import Mix
from services.leftover.placement.indexed_heap import IndexedHeap
from services.leftover.placement.linked import for_tasks, on_linked
from services.leftover.placement.node_choice import WHOLE
from services.leftover.placement.task_class import NodeRoom, TaskClass

_SCANNED_MOST: Final = 8
"""Up to so many nodes are compared for each task; if there are more, the class keeps a view."""

NODES_AT_ONCE_LEAST = 64
"""From so many nodes on their ranks are computed in arrays, below it one by one."""

_OUTDATED_MOST: Final = 8
"""After so many entries at the top of a view that have another rank by now, all nodes are compared in arrays: tasks of
other classes have been placed on these nodes since, and the entries below are likely to be outdated too."""

_SCAN_COSTS: Final = 16
"""Comparing all nodes in arrays costs about as much as bringing a view up to date with so many of them."""

VIEW_ENTRIES_MAX = 1 << 20
"""Once the views of all classes have more entries than this, the oldest view is dropped. It is built again when its
class needs it.
"""


class Changes:
    """Numbers of nodes in the order in which they changed; readers follow each from a cursor of its own. `base`: so
    many of the oldest are forgotten.
    """

    __slots__ = ("_in_span", "_most", "_span", "base", "numbers")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.base = 0
        self._most = 1_000
        self._span, self._in_span = (0, 0), list[int]()  # The last answer of `since`.

    def size(self, nodes: int) -> None:
        """There are so many nodes: the list may get a few times as long."""
        self._most = 4 * nodes + 1_000

    def add(self, number: int) -> None:
        """A node has changed."""
        self.numbers.append(number)
        if len(self.numbers) > self._most:  # Whoever has not looked for so long starts again.
            self.base += len(self.numbers)
            self.numbers.clear()

    def end(self) -> int:
        """The cursor of who has read everything."""
        return self.base + len(self.numbers)

    def knows(self, cursor: int) -> bool:
        """Whether nothing since this cursor is forgotten."""
        return cursor >= self.base

    def since(self, cursor: int) -> list[int]:
        """The nodes that have changed since, each once: many change again and again, and most readers look at the same
        time.
        """
        span = cursor, self.end()
        if span != self._span:
            self._span, self._in_span = span, list(dict.fromkeys(self.numbers[cursor - self.base :]))
        return self._in_span


class NodeTable(CellNodes):
    """The nodes of a cell with what they have free, as tasks start and end there."""

    def __init__(self, capacities: list[Vector], slots: int = 0, placing: Placing = "packed") -> None:
        """See `CellNodes`."""
        super().__init__(capacities, slots, placing)
        self.grown = Changes()  # Nodes that got room; classes read it from their cursor on.
        self.altered = Changes()  # Where ranks may get better as nodes fill: all nodes that have changed.
        self.grown.size(len(capacities))
        self.altered.size(len(capacities))
        self.kept_nodes: list[int] = []
        self.last_nodes: list[int] = []  # Those that come after all others.
        self.moves = [0] * len(capacities)  # By node, how often what it has free has changed,
        self.moves_all = 0  # and of all nodes together.
        self._fits: NodeIndex | None = None  # Built at the first look, when all nodes are there.
        self._grown: dict[int, bool] = {}  # Nodes that got room since they were listed in `_fits`,
        self._shrunk: dict[int, bool] = {}  # and those that gave some.
        self._frees: FreeAmounts | None = None  # What nodes have free, but for those in `_moved`.
        self._moved: dict[int, bool] = {}
        self._views: dict[int, TaskClass] = {}
        self._view_entries = 0

    def set_mix(self, mix: Mix) -> None:
        """See `CellNodes`: nodes rank otherwise from now on."""
        super().set_mix(mix)
        for task in [task for task in self._views.values() if task.choice is not None]:
            self._forget_view(task)

    def __len__(self) -> int:
        return len(self.nodes)

    def find(self, name: str) -> int | None:
        """The number of a node; None where there is no such node, or it is lost."""
        return self.number.get(name)

    def node(self, number: int) -> NodeRoom:
        """The node of a number. To be read only."""
        return self.nodes[number]

    def has_holds(self) -> bool:
        """Whether nodes are held for some classes alone."""
        return bool(self.kept_nodes)

    def lift_holds(self) -> list[tuple[int, TaskClass | None]]:
        """For now all nodes take tasks of any class; what `restore_holds` needs."""
        lifted = [(number, self.nodes[number].kept) for number in self.kept_nodes]
        for number, _ in lifted:
            self.nodes[number].kept = None
        return lifted

    def restore_holds(self, lifted: list[tuple[int, TaskClass | None]]) -> None:
        """They are held as they were before."""
        for number, task in lifted:
            self.nodes[number].kept = task

    def candidates(self, task: TaskClass) -> int:
        """Bit set of the nodes that may suit the class: all that do are in it."""
        fits = self._fits
        if fits is None:
            fits = self._fits = NodeIndex([node.free for node in self.nodes], len(self.total))
            self._grown, self._shrunk = {}, {}
        if self._grown:
            fits.move([(number, self.nodes[number].free) for number in self._grown])
            for number in self._grown:
                self._shrunk.pop(number, None)
            self._grown = {}
        if task.among is None:
            task.among = self.among(task)
        return fits.nodes(task.wants, task.among)

    def _relist(self, number: int) -> None:
        """A node that was listed turned out not to suit: it is listed with what it has now, if that is less."""
        if number in self._shrunk and self._fits is not None:
            del self._shrunk[number]
            self._fits.move([(number, self.nodes[number].free)])

    def _look(self, task: TaskClass) -> IndexedHeap[int]:
        """The class's view of the nodes, brought up to date with those that got room since its last look."""
        nodes, view = self.nodes, task.nodes
        task.scans = 0
        log = self.grown if task.choice is None else self._followed(task)
        if view is not None and task.cursor == log.base + len(log.numbers):
            return view
        if view is None or not log.knows(task.cursor):
            self._forget_view(task)
            ranks: dict[int, int] = {}
            for number in members(self.candidates(task)):
                rank = self.suits(task, nodes[number])
                if rank is None:
                    self._relist(number)
                else:
                    ranks[number] = rank
            view = task.nodes = IndexedHeap()
            view.fill(ranks)
            self._views[task.view] = task
            self._view_entries += len(ranks)
            while self._view_entries > VIEW_ENTRIES_MAX and len(self._views) > 1:
                self._forget_view(next(iter(self._views.values())))
        else:
            before = len(view)
            for number in log.since(task.cursor):
                rank = self.suits(task, nodes[number])
                if rank is not None:
                    view.set(number, rank)
                elif task.choice is not None:
                    view.drop(number)
            self._view_entries += len(view) - before
        task.cursor = log.end()
        return view

    def _followed(self, task: TaskClass) -> Changes:
        """The changes that a view of a class has to follow."""
        return self.grown if task.choice is None or task.choice.needs else self.altered

    def _forget_view(self, task: TaskClass) -> None:
        if task.nodes is not None:
            self._view_entries -= len(task.nodes)
            task.nodes = None
            del self._views[task.view]

    def changed_since(self, cursor: int) -> tuple[list[int], int]:
        """Nodes that got room since the list of changed nodes was as long as `cursor`, each once (all of them, if that
        was too long ago), and how long that list is by now.
        """
        log = self.grown
        return log.since(cursor) if log.knows(cursor) else list(range(len(self.nodes))), log.end()

    def best(self, task: TaskClass) -> int | None:
        """Number of the node that suits the class best now, or None."""
        if self._has_outlived(task):
            return self.best_of_all(task)
        if task.nodes is None:
            found = self.candidates(task)
            if not found:
                return None
            once = task.waiting <= 1 or found.bit_count() <= _SCANNED_MOST
            if once or (task.bounds is not None and task.bounds.is_spread):
                return self._scan(task, found)
        view, outdated = self._look(task), 0
        while (number := view.top()) is not None:
            rank = self.suits(task, self.nodes[number])
            if rank is not None and rank == view.key[number]:
                return number
            outdated += 1
            if outdated > _OUTDATED_MOST and self.ranks_at_once(task):
                return self.best_of_all(task)
            if rank is None:
                view.drop_top()
                self._view_entries -= 1
                self._relist(number)
            else:
                view.set(number, rank)
        return None  # The empty view stays: the next look takes in only those nodes that have got room by then.

    def _has_outlived(self, task: TaskClass) -> bool:
        """Whether to compare all nodes in arrays for the next task of a class rather than bring its view up to date. It
        is a choice between renting and buying: nobody knows how many tasks of the class start before the view is
        outdated again. Nodes are compared until that has cost as much as the update would, which is then made; so at
        most about twice the least possible cost is spent.
        """
        if not self.ranks_at_once(task):
            return False
        many = len(self.nodes)
        log = self.grown if task.choice is None else self._followed(task)
        if task.nodes is not None and task.cursor >= log.base:
            many = min(many, log.base + len(log.numbers) - task.cursor)
        if many < NODES_AT_ONCE_LEAST or task.scans * _SCAN_COSTS >= many:
            return False
        task.scans += 1
        return True

    def _scan(self, task: TaskClass, found: int) -> int | None:
        """The best of some nodes, for a class that has no use for a view: it asks once, or they are few."""
        if self.ranks_at_once(task) and found.bit_count() >= NODES_AT_ONCE_LEAST:
            return self.best_of_all(task)
        return self.best_among(task, members(found), relist=True)

    def best_among(self, task: TaskClass, numbers: list[int], *, relist: bool = False) -> int | None:
        """Number of that of some nodes which suits the class best now, or None; the least number of equals. `relist`:
        the bitmap index named these nodes, and is corrected where one of them has no room.
        """
        best, least, nodes = -1, 0, self.nodes
        for number in numbers:
            rank = self.suits(task, nodes[number])
            if rank is None:
                if relist:
                    self._relist(number)
            elif best < 0 or rank < least or (rank == least and number < best):
                best, least = number, rank
        return best if best >= 0 else None

    def ranks_at_once(self, task: TaskClass) -> bool:
        """Whether only room counts for the class now, so that `best_of_all` may answer for it."""
        return task.is_ranked_at_once and (task.choice is not None or not self.kept_nodes)

    def best_of_all(self, task: TaskClass) -> int | None:
        """The best of all nodes, for a class to which only room counts."""
        frees = self._frees
        if frees is None:
            open_ = [node.open for node in self.nodes]
            frees = self._frees = FreeAmounts([node.free for node in self.nodes], len(self.total), open_)
            if self.scarce:
                frees.add_devices([node.devices for node in self.nodes], [node.scarce for node in self.nodes])
        else:
            frees.set(list(self._moved))
        self._moved = {}
        barred = list[int]()
        if task.choice is not None:
            barred = [number for number in self.kept_nodes if self.nodes[number].kept is not task]
        best = self._least(frees, task, barred + self.last_nodes)
        return self._least(frees, task, barred) if best is None and self.last_nodes else best

    def _least(self, frees: FreeAmounts, task: TaskClass, barred: list[int]) -> int | None:
        if task.choice is None:
            return frees.least(task.needs, barred)
        return frees.least_packed(task, task.choice, barred, self.fragments, self.nodes)

    def put_last(self, name: str, last: bool) -> None:
        """From now on the node comes after all others that have room, or does so no more."""
        number = self.number[name]
        node = self.nodes[number]
        if node.last != last:
            node.last = last
            self.last_nodes = [number for number, node in enumerate(self.nodes) if node.last]
            self.touch(number)

    def take(self, task: TaskClass, number: int) -> list[tuple[int, int]]:
        """One task of the class starts on the node: its device shares as (index, milli)."""
        node = self.nodes[number]
        free = node.free
        for p, amount in task.pairs:
            free[p] = free[p] - amount
        self._shrunk[number] = True
        self._note(number)
        if task.bounds is not None:
            task.bounds.count(node.name, node.labels, 1)
        if not task.gpu:
            return []
        taken = on_linked(task.gpu, node.devices, node.links, node.numas)
        assert taken is not None, f"{node.name}: no device for {task.gpu} milli"
        for position, milli in taken:
            node.devices[position] -= milli
        return [(node.device_indexes[position], milli) for position, milli in taken]

    def take_best(self, task: TaskClass, count: int) -> list[tuple[int, list[tuple[int, int]]]]:
        """So many tasks of the class start, each on the node that suits it best then, or none of them."""
        taken: list[tuple[int, list[tuple[int, int]]]] = []
        while len(taken) < count and (number := self.best(task)) is not None:
            taken.append((number, self.take(task, number)))
        if len(taken) < count:
            for number, devices in reversed(taken):
                self.put_back(task, number, devices)
            return []
        return self.regrouped(task, taken)

    def regrouped(
        self, task: TaskClass, taken: list[tuple[int, list[tuple[int, int]]]]
    ) -> list[tuple[int, list[tuple[int, int]]]]:
        """What tasks that start together have taken, each in its place. Of one node that has linked devices their whole
        ones are chosen together, rather than one task after the other.
        """
        if len(taken) < 2 or not task.gpu or task.gpu % WHOLE:
            return taken
        there: dict[int, list[int]] = {}
        for at, (number, _) in enumerate(taken):
            if self.nodes[number].links:
                there.setdefault(number, []).append(at)
        for number, places in there.items():
            if len(places) < 2:
                continue
            node = self.nodes[number]
            for at in places:
                _add(node, [], taken[at][1], 1)
            parts = for_tasks(task.gpu // WHOLE, len(places), node.devices, node.links, node.numas)
            assert parts is not None, f"{node.name}: what was taken one by one is not there together"
            for at, part in zip(places, parts, strict=True):
                taken[at] = number, [(node.device_indexes[position], WHOLE) for position in part]
                _add(node, [], taken[at][1], -1)
        return taken

    def put_back(self, task: TaskClass, number: int, devices: list[tuple[int, int]]) -> None:
        """Undoes a `take` of the same look: no class but this one has seen it, so no other has to look again."""
        node = self.nodes[number]
        _add(node, task.pairs, devices, 1)
        self._grown[number] = True
        self._note(number)
        if task.bounds is not None:
            task.bounds.count(node.name, node.labels, -1)
        rank = self.suits(task, node)
        assert rank is not None, f"{node.name}: what was taken has no place any more"
        if task.nodes is not None:
            self._view_entries += number not in task.nodes.key
            task.nodes.set(number, rank)

    def occupy(self, name: str, pairs: list[tuple[int, int]], devices: list[tuple[int, int]]) -> None:
        """A task that runs already holds room on a node that was added."""
        _add(self.nodes[self.number[name]], pairs, devices, -1)

    def shut(self, number: int, pairs: list[tuple[int, int]]) -> None:
        """Room of a node is not to be had in this round, be it free or not; `give` ends it."""
        _add(self.nodes[number], pairs, [], -1)
        self._shrunk[number] = True
        self._note(number)

    def give(self, number: int, demand: list[tuple[int, int]], devices: list[tuple[int, int]]) -> None:
        """One task's room is free again: `demand` as (resource position, amount)."""
        _add(self.nodes[number], demand, devices, 1)
        self.touch(number)

    def hold_nodes(self, kept: dict[int, TaskClass]) -> bool:
        """Replaces the set of held nodes: each takes tasks of its class alone, all others take any. Returns whether a
        hold has ended or changed its class, so that placing again may find room.
        """
        opened = False
        for number in self.kept_nodes:
            if kept.get(number) is not self.nodes[number].kept:
                self.nodes[number].kept = None
                self.touch(number)
                opened = True
        for number, task in kept.items():
            self.nodes[number].kept = task
        self.kept_nodes = list(kept)
        return opened

    def touch(self, number: int) -> None:
        """Classes look at the node again."""
        self._grown[number] = True
        self._note(number)
        self.grown.add(number)

    def _note(self, number: int) -> None:
        """What a node has free has changed."""
        self._moved[number] = True
        self.moves[number] += 1
        self.moves_all += 1
        if self.scarce:
            self.altered.add(number)


def _add(node: NodeRoom, pairs: list[tuple[int, int]], devices: list[tuple[int, int]], sign: int) -> None:
    """So much more of a node is free (less, where `sign` is -1). What it has no more is left out."""
    free = node.free
    for p, amount in pairs:
        if p >= 0:
            free[p] = free[p] + amount if sign > 0 else free[p] - amount
    for index, milli in devices:
        if index in node.device_indexes:
            node.devices[node.device_indexes.index(index)] += milli * sign
