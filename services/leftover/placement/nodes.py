"""Nodes with what they have free, and for each class of tasks the node that suits it best.

The best node is the one whose free room aligns most with the demand (Tetris: dot product of both, each as a part of the
largest node); nodes with preferred labels come before all others, and of equals the node that registered first. A
bitmap index (fits.py) names the nodes that may have room, so the cost follows these and not all nodes. A class of which
many tasks wait keeps a *view*: a heap of the nodes that suit it by rank, updated with the nodes that got room.
"""

from typing import Final

from schemas.placement_rules import class_key
from schemas.quantities import SHARE_UNITS, SLOTS, Vector, on_devices
from services.leftover.placement.apart import Counters, matches
from services.leftover.placement.fits import FreeAmounts, NodeIndex, members, rank_of_room, step
from services.leftover.placement.indexed_heap import IndexedHeap
from services.leftover.placement.task_class import NodeRoom, Shape, TaskClass

_SCALE_BITS: Final = 60
_PREFERRED: Final = 1 << 100  # Outweighs every alignment.

_SCANNED_MOST: Final = 8
"""Up to so many nodes are compared for each task; if there are more, the class keeps a view."""

NODES_AT_ONCE_LEAST = 64
"""From so many nodes on their ranks are computed in arrays, below it one by one."""

_OUTDATED_MOST: Final = 8
"""After so many entries at the top of a view that have another rank by now, all nodes are compared in arrays: tasks of
other classes have been placed on these nodes since, and the entries below are likely to be outdated too."""

_SCAN_COSTS: Final = 16
"""Comparing all nodes in arrays costs about as much as bringing a view up to date with so many of them."""

_AT_ONCE_RANK: Final = 1 << 62
"""Ranks are computed in arrays only for classes whose ranks stay below this, so that they fit into 64 bits."""

VIEW_ENTRIES_MAX = 1 << 20
"""Once the views of all classes have more entries than this, the oldest view is dropped. It is built again when its
class needs it.
"""


class Room:
    """All nodes of a cell. Positions of resources and nodes never change while a Room lives."""

    def __init__(self, capacities: list[Vector], slots: int = 0) -> None:
        """`slots`: a node has so many places, a task takes one, and what it asks for only says which nodes have any of
        it; 0: a task takes what it asks for.
        """
        self.slots = slots
        self.capacities: list[Vector] = []  # By node, only where places count.
        if slots:
            capacities = [{SLOTS: slots} for _ in capacities]
        names = [SLOTS] if slots else sorted({resource for capacity in capacities for resource in capacity})
        self.position = {name: i for i, name in enumerate(names)}
        self.total = [sum(c.get(name, 0) for c in capacities) for name in names]
        self.largest = [max((c.get(name, 0) for c in capacities), default=0) for name in names]
        self.nodes: list[NodeRoom] = []
        self.number: dict[str, int] = {}
        self.changed: list[int] = []  # Nodes that got room, in order; classes read it from their cursor on.
        self.changed_base = 0
        self._span, self._in_span = (0, 0), list[int]()  # The last answer of `_changed_since`.
        self.kept_nodes: list[int] = []
        self.moves: list[int] = []  # By node, how often what it has free has changed,
        self.moves_all = 0  # and of all nodes together.
        self._fits: NodeIndex | None = None  # Built at the first look, when all nodes are there.
        self._grown: dict[int, bool] = {}  # Nodes that got room since they were listed in `_fits`,
        self._shrunk: dict[int, bool] = {}  # and those that gave some.
        self._frees: FreeAmounts | None = None  # What nodes have free, but for those in `_moved`.
        self._moved: dict[int, bool] = {}
        self._allowed: dict[tuple[object, ...], int] = {}
        self.counters = Counters()
        self._views: dict[int, TaskClass] = {}
        self._view_entries = 0

    def add(
        self,
        name: str,
        epoch: str,
        capacity: Vector,
        labels: dict[str, str],
        devices: list[tuple[int, int]],
        open_: bool,
    ) -> None:
        """An empty node; devices as (index, milli)."""
        if self.slots:
            self.capacities.append(capacity)
            capacity = {SLOTS: self.slots}
        vector = [capacity.get(resource, 0) for resource in self.position]
        self.number[name] = len(self.nodes)
        indexes, sizes = [index for index, _ in devices], [milli for _, milli in devices]
        node = NodeRoom(name, epoch, vector, list(vector), labels, list(sizes), indexes, sizes, open_)
        self.nodes.append(node)
        self.moves.append(0)

    def shape(self, demand: Vector, number: int = 0) -> Shape:
        """What tasks with a demand ask for, as the board's shape of this number."""
        return Shape(demand, self.pairs(demand), number)

    def task_class(
        self, index: int, shape: Shape, labels: dict[str, str], prefer: dict[str, str], gang: int
    ) -> TaskClass:
        """A class with no tasks yet. A resource that no node has makes a class that never fits."""
        largest, total, pairs = self.largest, self.total, shape.pairs
        needs: list[tuple[int, int, int]] = []
        wants: list[tuple[int, int]] = []
        part, rank = 0, 0
        for p, amount in pairs:
            if p < 0:
                continue
            most = largest[p]
            weight = -max(1, (amount << _SCALE_BITS) // (most * most)) if most else 0
            needs.append((p, amount, weight))
            wants.append((p, step(amount)))
            rank -= weight * most
            if total[p]:
                part = max(part, amount * SHARE_UNITS // total[p])
        gpu = shape.demand.get("gpu", 0)
        is_plain = not (labels or prefer or gpu or self.slots) and len(needs) == len(pairs)
        key, size = class_key(shape.demand, labels, prefer, gang), part * max(1, gang)
        task = TaskClass(index, key, shape, labels, prefer, gang, needs, is_plain, gpu, size, wants)
        task.is_ranked_at_once = is_plain and rank < _AT_ONCE_RANK
        return task

    def suits(self, task: TaskClass, node: NodeRoom) -> int | None:
        """The rank of the node for one task of the class, less is better; None where it does not fit now."""
        if not node.open or (node.kept is not None and node.kept is not task):
            return None
        if task.is_ranked_at_once:
            return rank_of_room(task.needs, node.free)
        free, rank = node.free, 0
        for p, amount, weight in task.needs:
            have = free[p]
            if have < amount:
                return None
            rank += weight * have
        if task.is_plain:
            return rank
        if not self.allows(task, node):
            return None
        if task.bounds is not None:
            if not task.bounds.permits(node.name, node.labels):
                return None
            rank += task.bounds.penalty(node.name, node.labels)
        return rank - _PREFERRED * matches(task.prefer, node.labels) if task.prefer else rank

    def allows(self, task: TaskClass, node: NodeRoom) -> bool:
        """Whether the node has what a class asks for beside room."""
        if len(task.needs) < len(task.pairs):
            return False  # A resource that no node has.
        if task.gpu and on_devices(task.gpu, node.devices) is None:
            return False
        if self.slots and not self.has_all(task, node):
            return False
        return not task.labels or all(node.labels.get(k) == v for k, v in task.labels.items())

    def could_fit(self, task: TaskClass) -> bool:
        """Whether any open node would hold one task if it were empty. Worked out once: a room's nodes stay the same."""
        if task.could_fit is None:
            task.could_fit = self._could_fit(task)
        return task.could_fit

    def _could_fit(self, task: TaskClass) -> bool:
        needed = task.bounds.labels if task.bounds is not None else []
        for node in self.nodes:
            if self.holds_empty(task, node) and not [label for label in needed if label not in node.labels]:
                return True
        return False

    def holds_empty(self, task: TaskClass, node: NodeRoom) -> bool:
        """Whether an open node would run one task if nothing else ran there."""
        large = all(p >= 0 and node.capacity[p] >= amount for p, amount in task.pairs)
        large = large and (not task.gpu or on_devices(task.gpu, node.sizes) is not None) and self.has_all(task, node)
        return large and node.open and all(node.labels.get(k) == v for k, v in task.labels.items())

    def has_all(self, task: TaskClass, node: NodeRoom) -> bool:
        """Whether a node has something of every kind that a task asks for. Where places do not count, its room says."""
        if not self.slots:
            return True
        capacity = self.capacities[self.number[node.name]]
        return all(capacity.get(kind) for kind, amount in task.demand.items() if amount)

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
            task.among = self._among(task)
        return fits.nodes(task.wants, task.among)

    def _among(self, task: TaskClass) -> int:
        """Bit set of the open nodes that have the labels and the kinds of resources that a class asks for."""
        if len(task.needs) < len(task.pairs):
            return 0  # A resource that no node has.
        kinds = sorted(task.demand) if self.slots else []
        key: tuple[object, ...] = (tuple(sorted(task.labels.items())), tuple(kinds))
        among = self._allowed.get(key)
        if among is None:
            among = 0
            for number, node in enumerate(self.nodes):
                if node.open and all(node.labels.get(k) == v for k, v in task.labels.items()):
                    if self.has_all(task, node):
                        among |= 1 << number
            self._allowed[key] = among
        return among

    def _relist(self, number: int) -> None:
        """A node that was listed turned out not to suit: it is listed with what it has now, if that is less."""
        if number in self._shrunk and self._fits is not None:
            del self._shrunk[number]
            self._fits.move([(number, self.nodes[number].free)])

    def _look(self, task: TaskClass) -> IndexedHeap[int]:
        """The class's view of the nodes, brought up to date with those that got room since its last look."""
        nodes, view = self.nodes, task.nodes
        task.scans = 0
        if view is None or task.cursor < self.changed_base:
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
            self._views[task.index] = task
            self._view_entries += len(ranks)
            while self._view_entries > VIEW_ENTRIES_MAX and len(self._views) > 1:
                self._forget_view(next(iter(self._views.values())))
        else:
            before = len(view)
            for number in self._changed_since(task):
                rank = self.suits(task, nodes[number])
                if rank is not None:
                    view.set(number, rank)
            self._view_entries += len(view) - before
        task.cursor = self.changed_base + len(self.changed)
        return view

    def _forget_view(self, task: TaskClass) -> None:
        if task.nodes is not None:
            self._view_entries -= len(task.nodes)
            task.nodes = None
            del self._views[task.index]

    def _changed_since(self, task: TaskClass) -> list[int]:
        """Nodes that got room since the class looked, each once: many get room again and again, and most classes look
        at the same time.
        """
        span = task.cursor, self.changed_base + len(self.changed)
        if span != self._span:
            self._span, self._in_span = span, list(dict.fromkeys(self.changed[task.cursor - self.changed_base :]))
        return self._in_span

    def changed_since(self, cursor: int) -> tuple[list[int], int]:
        """Nodes that got room since the list of changed nodes was as long as `cursor`, each once (all of them, if that
        was too long ago), and how long that list is by now.
        """
        now = self.changed_base + len(self.changed)
        if cursor < self.changed_base:
            return list(range(len(self.nodes))), now
        return list(dict.fromkeys(self.changed[cursor - self.changed_base :])), now

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
        if task.nodes is not None and task.cursor >= self.changed_base:
            many = min(many, self.changed_base + len(self.changed) - task.cursor)
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
        return task.is_ranked_at_once and not self.kept_nodes

    def best_of_all(self, task: TaskClass) -> int | None:
        """The best of all nodes, for a class to which only room counts."""
        frees = self._frees
        if frees is None:
            open_ = [node.open for node in self.nodes]
            frees = self._frees = FreeAmounts([node.free for node in self.nodes], len(self.total), open_)
        else:
            frees.set(list(self._moved))
        self._moved = {}
        return frees.least(task.needs)

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
        taken = on_devices(task.gpu, node.devices)
        assert taken is not None, f"{node.name}: no device for {task.gpu} milli"
        for position, milli in taken:
            node.devices[position] -= milli
        return [(node.device_indexes[position], milli) for position, milli in taken]

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

    def pairs(self, demand: Vector) -> list[tuple[int, int]]:
        """A demand as (resource position, amount); position -1 for a resource that no node has."""
        if self.slots:
            return [(0, 1)]
        return [(self.position.get(resource, -1), amount) for resource, amount in demand.items() if amount]

    def share_of(self, demand: Vector) -> int:
        """The dominant share of a demand, in share units."""
        total = self.total
        return max(
            [amount * SHARE_UNITS // total[p] for p, amount in self.pairs(demand) if p >= 0 and total[p]], default=0
        )

    def give(self, number: int, demand: list[tuple[int, int]], devices: list[tuple[int, int]]) -> None:
        """One task's room is free again: `demand` as (resource position, amount)."""
        _add(self.nodes[number], demand, devices, 1)
        self.touch(number)

    def keep(self, kept: dict[int, TaskClass]) -> bool:
        """In a round these nodes take tasks of these classes alone, and all others take any. Returns whether a node
        takes others from now on.
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
        self.changed.append(number)
        if len(self.changed) > 4 * len(self.nodes) + 1_000:  # Whoever has not looked for so long starts anew.
            self.changed_base += len(self.changed)
            self.changed.clear()

    def _note(self, number: int) -> None:
        """What a node has free has changed."""
        self._moved[number] = True
        self.moves[number] += 1
        self.moves_all += 1


def _add(node: NodeRoom, pairs: list[tuple[int, int]], devices: list[tuple[int, int]], sign: int) -> None:
    """So much more of a node is free (less, where `sign` is -1). What it has no more is left out."""
    free = node.free
    for p, amount in pairs:
        if p >= 0:
            free[p] = free[p] + amount if sign > 0 else free[p] - amount
    for index, milli in devices:
        if index in node.device_indexes:
            node.devices[node.device_indexes.index(index)] += milli * sign
