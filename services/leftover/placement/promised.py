"""Room for promised units, node by node (Rayon; docs/reservations.md).

A promise is a number of units, each of which has to fit on some node. `PromisedNodes` tells whether a task that still
runs at the start of a lease leaves room for all that is promised then. `Clearing` finds room for tasks whose lease
begins, and chooses the revocable attempts to take back for it: those that lose the least work.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

from schemas.quantities import on_devices
from services.leftover.placement.backfill.timeline import could_hold
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.task_class import NodeRoom, TaskClass


@dataclass(slots=True, eq=False)
class Space:
    """What is free on a node at some time: by resource position, and milli-units by device position."""

    free: list[int]
    devices: list[int]

    def fits(self, task: TaskClass) -> bool:
        """Whether one task of a class has room here."""
        for p, amount, _ in task.needs:
            if self.free[p] < amount:
                return False
        return not task.gpu or on_devices(task.gpu, self.devices) is not None

    def take(self, task: TaskClass) -> list[tuple[int, int]]:
        """Takes the room of one task of a class; returns its devices as (position, milli)."""
        devices = on_devices(task.gpu, self.devices) or [] if task.gpu else []
        self.add(task.pairs, devices, -1)
        return devices

    def add(self, pairs: list[tuple[int, int]], devices: list[tuple[int, int]], sign: int = 1) -> None:
        """Gives room back, or with `sign` -1 takes it. Devices as (position, milli)."""
        for p, amount in pairs:
            if p >= 0:
                self.free[p] += sign * amount
        for position, milli in devices:
            self.devices[position] += sign * milli

    def copy(self) -> "Space":
        """A copy that can be changed independently."""
        return Space(list(self.free), list(self.devices))


def empty(node: NodeRoom) -> Space:
    """What a node has free if nothing runs there."""
    return Space(list(node.capacity), list(node.sizes))


def by_position(node: NodeRoom, devices: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Device shares as (index, milli) -> (position, milli); devices that the node no longer has are left out."""
    return [(node.device_indexes.index(index), milli) for index, milli in devices if index in node.device_indexes]


_NO_DEVICES: list[tuple[int, int]] = []

SpaceOf = Callable[[int], Space]
"""What a node has free at a certain time, by its number, before promised units are placed on it."""


class PromisedNodes:
    """The nodes at one time, with the units that are promised for that time placed where they fit (first fit). Nodes
    are looked at only as far as units need them.
    """

    def __init__(self, table: NodeTable, at_ms: int, space_of: SpaceOf) -> None:
        self.at_ms = at_ms
        self._table, self._space_of = table, space_of
        self._spaces: dict[int, Space] = {}
        self._units: dict[int, list[tuple[TaskClass, list[tuple[int, int]]]]] = {}  # By node, with their devices.
        self._from: dict[int, int] = {}  # By class of units: no node of a lower number has room.

    def copy(self) -> "PromisedNodes":
        """A copy that can be changed independently."""
        other = PromisedNodes(self._table, self.at_ms, self._space_of)
        other._spaces = {number: space.copy() for number, space in self._spaces.items()}
        other._units = {number: list(units) for number, units in self._units.items()}
        other._from = dict(self._from)
        return other

    def _space(self, number: int) -> Space:
        space = self._spaces.get(number)
        if space is None:
            space = self._spaces[number] = self._space_of(number)
        return space

    def promise(self, unit: TaskClass, count: int) -> int:
        """Places units on nodes; returns how many found no room."""
        nodes = self._table.nodes
        for number in range(self._from.get(unit.index, 0), len(nodes)):
            if could_hold(self._table, unit, nodes[number]):
                space, here = self._space(number), self._units.setdefault(number, [])
                if unit.gpu:
                    while count and space.fits(unit):
                        here.append((unit, space.take(unit)))
                        count -= 1
                elif fitting := min([count, *(max(0, space.free[p]) // amount for p, amount, _ in unit.needs)]):
                    for p, amount, _ in unit.needs:
                        space.free[p] -= amount * fitting
                    here += [(unit, _NO_DEVICES)] * fitting
                    count -= fitting
                if not count:
                    self._from[unit.index] = number
                    return 0
        self._from[unit.index] = len(nodes)
        return count

    def has_space(self, number: int, task: TaskClass) -> bool:
        """Whether a node would have room for a task without the units."""
        space = self._space(number)
        if space.fits(task):
            return True
        space = space.copy()
        for unit, devices in self._units.get(number, []):
            space.add(unit.pairs, devices)
        return space.fits(task)

    def accept(self, number: int, task: TaskClass, *, keep: bool = True) -> bool:
        """Places a task on a node if all units still find room, if need be on other nodes; returns whether they do. If
        not, or where it is only asked (`keep` False), nothing is changed.
        """
        space, units = self._space(number), self._units.get(number, [])
        if space.fits(task):
            if keep:
                space.take(task)
            return True
        moved: list[tuple[TaskClass, list[tuple[int, int]]]] = []
        while units and not space.fits(task):
            unit, devices = units.pop()
            space.add(unit.pairs, devices)
            moved.append((unit, devices))
        placed: list[tuple[int, TaskClass]] = []
        before, accepts = dict(self._from), False
        if space.fits(task):
            taken = space.take(task)
            for unit, _ in moved:
                if self.promise(unit, 1):
                    break
                placed.append((self._from[unit.index], unit))
            else:
                accepts = True
            if accepts and keep:
                return True
            space.add(task.pairs, taken)
        for elsewhere, unit in reversed(placed):
            _, devices = self._units[elsewhere].pop()
            self._space(elsewhere).add(unit.pairs, devices)
        self._from = before
        for unit, devices in reversed(moved):
            space.add(unit.pairs, devices, -1)
            units.append((unit, devices))
        return accepts


@dataclass(slots=True, eq=False)
class Victim:
    """A revocable attempt on a node. `lost`: the work that is lost if it is taken back, in share units x ms. `gang`:
    the attempt of a gang that it belongs to, which is taken back as a whole; "" if it belongs to none.

    `delay` above 0: an attempt that is not revocable, and whose end is waited for instead; the greater, the longer that
    may take. `end_ms`: when it is expected to end.
    """

    node: int
    key: str
    pairs: list[tuple[int, int]]
    devices: list[tuple[int, int]]
    lost: int
    gang: str = ""
    delay: int = 0
    end_ms: int = 0


PATIENCE: Final = 2
"""So much delay on a node that is being emptied is no reason for another: up to four times the expected run time."""


def _takes_nobody(number: int) -> list[Victim]:
    return []


@dataclass(slots=True, eq=False)
class Clearing:
    """Finds room for tasks, and takes `victims` (by node) back where there is none. Where attempts have to end that are
    not revocable (`waits_of` a node), those nodes are taken for which that takes least, then those on which the least
    work is lost, then those in `first`. On these some delay is no reason for others: what was chosen before would be
    given to others each time a task takes longer than expected, and no room would ever be complete. `rooms`: what was
    found, as (node, class); `taken`: the attempts to take back; both in order.
    """

    table: NodeTable
    space_of: SpaceOf
    victims: dict[int, list[Victim]]
    first: dict[int, bool] = field(default_factory=dict)
    waits_of: Callable[[int], list[Victim]] = _takes_nobody
    rooms: list[tuple[int, TaskClass]] = field(default_factory=list)
    taken: list[Victim] = field(default_factory=list)
    _spaces: dict[int, Space] = field(default_factory=dict)
    _gone: dict[str, bool] = field(default_factory=dict)
    _gangs: dict[str, list[Victim]] = field(default_factory=dict)
    _waits: dict[int, list[Victim]] = field(default_factory=dict)
    _before_ms: int = 0

    def __post_init__(self) -> None:
        for victims in self.victims.values():
            for victim in victims:
                if victim.gang:
                    self._gangs.setdefault(victim.gang, []).append(victim)

    def find(self, task: TaskClass, count: int, *, whole: bool, before_ms: int = 0) -> int:
        """Finds room for so many tasks of a class, with `whole` for all of them or none. Returns how many have room.
        What is expected to end later than at `before_ms` is not waited for.
        """
        self._before_ms = before_ms
        before = (
            list(self.rooms),
            list(self.taken),
            dict(self._gone),
            {number: space.copy() for number, space in self._spaces.items()} if whole else {},
        )
        heap = [
            (*cost, number)
            for number, node in enumerate(self.table.nodes)
            if could_hold(self.table, task, node) and (cost := self._cost(number, task)) is not None
        ]
        heapify(heap)
        found = 0
        while found < count and heap:
            *said, number = heappop(heap)
            cost = self._cost(number, task)
            if cost is None:
                continue
            if cost != tuple(said):  # Others took of this node since, or a gang that was there went.
                heappush(heap, (*cost, number))
                continue
            self._take(number, task)
            found += 1
            heappush(heap, (*cost, number))
        if whole and found < count:
            self.rooms, self.taken, self._gone, self._spaces = before
            return 0
        return found

    def _space(self, number: int) -> Space:
        space = self._spaces.get(number)
        if space is None:
            space = self._spaces[number] = self.space_of(number)
            self._waits[number] = self.waits_of(number)
        return space

    def _cost(self, number: int, task: TaskClass) -> tuple[int, int, bool] | None:
        """The cost of room for one more task on a node: the delay, the work that is lost, and whether it is not in
        `first`.
        """
        chosen = self._chosen(number, task)
        if chosen is None:
            return None
        each = {victim.gang or victim.key: self._lost(victim) for victim in chosen}
        delay = max([victim.delay for victim in chosen], default=0)
        is_first = number in self.first
        return max(0, delay - PATIENCE * is_first), sum(each.values()), not is_first

    def _lost(self, victim: Victim) -> int:
        return sum(each.lost for each in self._gangs[victim.gang]) if victim.gang else victim.lost

    def _chosen(self, number: int, task: TaskClass) -> list[Victim] | None:
        """Which attempts to take back for one more task on a node: those with the least loss, and none in vain."""
        if task.bounds is not None and task.bounds.is_apart and (number, task) in self.rooms:
            return None
        space = self._space(number)
        if space.fits(task):
            return []
        waits = [wait for wait in self._waits.get(number, []) if wait.end_ms < self._before_ms]
        there = [victim for victim in [*self.victims.get(number, []), *waits] if victim.key not in self._gone]
        there.sort(key=lambda victim: (victim.delay, self._lost(victim), victim.key))
        space = space.copy()
        chosen: list[Victim] = []
        for victim in there:
            space.add(victim.pairs, victim.devices)
            chosen.append(victim)
            if space.fits(task):
                break
        else:
            return None
        for victim in list(reversed(chosen)):
            space.add(victim.pairs, victim.devices, -1)
            if space.fits(task):
                chosen.remove(victim)
            else:
                space.add(victim.pairs, victim.devices)
        return chosen

    def _take(self, number: int, task: TaskClass) -> None:
        chosen = self._chosen(number, task)
        assert chosen is not None, f"{self.table.nodes[number].name}: no room after all"
        for victim in chosen:
            for each in self._gangs[victim.gang] if victim.gang else [victim]:
                if each.key not in self._gone:
                    self._gone[each.key] = True
                    if not each.delay:
                        self.taken.append(each)
                    self._space(each.node).add(each.pairs, each.devices)
        self._space(number).take(task)
        self.rooms.append((number, task))
