"""The nodes of a cell, and what classes of tasks ask of them: whether a node has it, and how it ranks for a class."""

from typing import Final

from schemas.placement_rules import class_key
from schemas.policy import Placing
from schemas.quantities import SHARE_UNITS, SLOTS, Vector, on_devices, tasks_on_devices
from services.leftover.placement.apart import Bounds, Counters, matches
from services.leftover.placement.fits import rank_of_room, step
from services.leftover.placement.fragments import Fragments, Mix
from services.leftover.placement.linked import numbered
from services.leftover.placement.node_choice import WHOLE, NodeChoice, left_on_device, scarce_kinds
from services.leftover.placement.task_class import NodeRoom, Shape, TaskClass

_SCALE_BITS: Final = 60
_PREFERRED: Final = 1 << 162  # Outweighs everything but
_LAST: Final = 1 << 200  # whether attempts fail on the node one after another.

_AT_ONCE_RANK: Final = 1 << 62
"""Ranks are computed in arrays only for classes whose ranks stay below this, so that they fit into 64 bits."""


class CellNodes:
    """All nodes of a cell. Positions of resources and nodes never change while it lives."""

    def __init__(self, capacities: list[Vector], slots: int = 0, placing: Placing = "packed") -> None:
        """`slots`: a node has so many places, a task takes one, and what it asks for only says which nodes have any of
        it; 0: a task takes what it asks for. `placing`: by what nodes are chosen.
        """
        self.slots = slots
        self.placing = placing
        self.scarce = scarce_kinds(capacities) if placing == "packed" and not slots else list[str]()
        self.capacities: list[Vector] = []  # By node, only where places count.
        if slots:
            capacities = [{SLOTS: slots} for _ in capacities]
        names = [SLOTS] if slots else sorted({resource for capacity in capacities for resource in capacity})
        self.position = {name: i for i, name in enumerate(names)}
        self.total = [sum(c.get(name, 0) for c in capacities) for name in names]
        self.largest = [max((c.get(name, 0) for c in capacities), default=0) for name in names]
        self.nodes: list[NodeRoom] = []
        self.number: dict[str, int] = {}
        self._allowed: dict[tuple[object, ...], int] = {}
        self.counters = Counters()
        self.fragments: Fragments | None = None

    def add(
        self,
        name: str,
        epoch: str,
        capacity: Vector,
        labels: dict[str, str],
        devices: list[tuple[int, int]],
        open_: bool,
        near: list[tuple[str, int | None]] | None = None,
    ) -> None:
        """An empty node; devices as (index, milli), `near`: the group of linked ones and the NUMA node of each."""
        if self.slots:
            self.capacities.append(capacity)
            capacity = {SLOTS: self.slots}
        vector = [capacity.get(resource, 0) for resource in self.position]
        self.number[name] = len(self.nodes)
        indexes, sizes = [index for index, _ in devices], [milli for _, milli in devices]
        node = NodeRoom(name, epoch, vector, list(vector), labels, list(sizes), indexes, sizes, open_)
        for i, kind in enumerate(self.scarce):
            node.scarce |= int(capacity.get(kind, 0) > 0) << i
        if near is not None:
            node.links, node.numas = numbered(near)
        self.nodes.append(node)

    def totals(self) -> Vector:
        """What the queues divide, by kind."""
        return {kind: self.total[p] for kind, p in self.position.items()}

    def divide(self, divided: Vector) -> None:
        """The queues divide so much: shares are parts of it from now on."""
        self.total = [divided[kind] for kind in self.position]

    def set_mix(self, mix: Mix) -> None:
        """For these classes, as (demand, labels, weight), room on GPUs is kept from now on; all nodes are there."""
        if "gpu" in self.scarce and any(demand.get("gpu") for demand, _, _ in mix):
            self.fragments = Fragments(self.nodes, self.position, mix)

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
        task.choice = self._choice(shape.demand, needs, rank)
        task.is_ranked_at_once = is_plain and rank < _AT_ONCE_RANK and self.placing != "spread"
        if task.choice is not None and gpu and not (labels or prefer) and (gpu < WHOLE or not gpu % WHOLE):
            task.is_ranked_at_once = rank < _AT_ONCE_RANK and not task.choice.is_spread and len(needs) == len(pairs)
        return task

    def _choice(self, demand: Vector, needs: list[tuple[int, int, int]], bound: int) -> NodeChoice | None:
        """How nodes are compared for a class, where not by alignment; `bound`: no rank by that is below minus this."""
        gpu = demand.get("gpu", 0)
        if self.placing == "spread" and not self.slots:
            return NodeChoice(gpu, 0, [], -1, 0, 0, needs=needs)
        if not self.scarce:
            return None
        asked = [kind for kind in self.scarce if demand.get(kind)]
        kinds = sum([1 << i for i, kind in enumerate(self.scarce) if demand.get(kind)])
        amounts = [(self.position[kind], self.largest[self.position[kind]]) for kind in asked or self.scarce]
        cpu = self.position.get("cpu", -1)
        if not asked or cpu < 0:
            return NodeChoice(gpu, kinds, amounts, -1, bound, bound.bit_length())
        return NodeChoice(gpu, kinds, amounts, cpu, 0, self.largest[cpu].bit_length())

    def suits(self, task: TaskClass, node: NodeRoom) -> int | None:
        """The rank of the node for one task of the class, less is better; None where it does not fit now."""
        rank = self._rank(task, node)
        return rank if rank is None or not node.last else rank + _LAST

    def _rank(self, task: TaskClass, node: NodeRoom) -> int | None:
        if not node.open or (node.kept is not None and node.kept.index != task.index):
            return None
        choice = task.choice
        if choice is None and task.is_ranked_at_once:
            return rank_of_room(task.needs, node.free)
        free, rank = node.free, 0
        for p, amount, weight in task.needs:
            have = free[p]
            if have < amount:
                return None
            rank += weight * have
        if task.gpu and choice is not None:
            left = left_on_device(task.gpu, node.devices)
            if left < 0:
                return None
        else:
            left = 0
        if not task.is_plain and not (self.allows(task, node) if choice is None else self.admits(task, node)):
            return None
        if choice is not None:
            growth = 0
            if self.fragments is not None and not choice.is_spread:
                growth = self.fragments.growths(task, [node])[0]
            rank = choice.rank(node.scarce, free, node.capacity, left, rank, growth)
        if task.is_plain:
            return rank
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
        return self.admits(task, node)

    def admits(self, task: TaskClass, node: NodeRoom) -> bool:
        """The same beside room and devices."""
        if len(task.needs) < len(task.pairs) or (self.slots and not self.has_all(task, node)):
            return False
        return not task.labels or all(node.labels.get(k) == v for k, v in task.labels.items())

    def could_fit(self, task: TaskClass) -> bool:
        """Whether the open nodes would hold one task, of a gang all, if they were empty. Worked out once: the nodes of
        a room stay the same.
        """
        if task.could_fit is None:
            task.could_fit = self._could_hold(task, {})
        return task.could_fit

    def avoid(self, task: TaskClass, bounds: Bounds, names: list[str]) -> None:
        """Bars nodes to a class, if the others could run it. To a gang none is barred: what its rules leave of the
        others may never hold all its tasks.
        """
        avoided = dict.fromkeys(names, True)
        if task.gang:
            bounds.last = avoided
        elif self._could_hold(task, avoided):
            bounds.avoided = avoided

    def _could_hold(self, task: TaskClass, without: dict[str, bool]) -> bool:
        wanted, room = max(1, task.gang), 0
        for node in self.nodes:
            if node.name not in without:
                room += self._held_empty(task, node, wanted - room)
                if room >= wanted:
                    return True
        return False

    def _held_empty(self, task: TaskClass, node: NodeRoom, most: int) -> int:
        """How many tasks of a class, at most `most`, an open node would hold if it were empty."""
        bounds = task.bounds
        if not self.holds_empty(task, node):
            return 0
        if bounds is not None and not all(label in node.labels for label in bounds.labels):
            return 0
        if most == 1 or (bounds is not None and bounds.is_apart):
            return 1
        held = min([most, *[node.capacity[p] // amount for p, amount in task.pairs if amount]])
        return tasks_on_devices(task.gpu, node.sizes, held) if task.gpu else held

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

    def among(self, task: TaskClass) -> int:
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
