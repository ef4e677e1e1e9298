"""When room comes free on a node, by the estimated ends of what runs there, and which tasks may use it meanwhile.

The rule is that of EASY backfilling (Lifka 1995): a task may run on room that is held for others if by its estimate it
ends before that room would be complete, or if it takes none of what they need then.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from schemas.quantities import on_devices, tasks_on_devices
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.task_class import NodeRoom, TaskClass

NEVER_MS: Final = 1 << 62
"""After any moment."""


@dataclass(slots=True, eq=False)
class End:
    """Tasks that are expected to end at `at_ms`: what they give back, as (resource position, amount) and (device index,
    milli-units).
    """

    at_ms: int
    pairs: list[tuple[int, int]]
    devices: list[tuple[int, int]]

    def __init__(self, at_ms: int, pairs: list[tuple[int, int]], devices: list[tuple[int, int]]) -> None:
        self.at_ms = at_ms
        self.pairs = pairs
        self.devices = devices


@dataclass(slots=True, eq=False)
class Wanted:
    """Room for `tasks` tasks of a class (of gangs: all of their tasks). What comes free where its own tasks end comes
    back to it anyway: those of the class, and, unless it `starves` behind them, those of `leaves`. `of_all`: room of
    tasks of all other leaves counts, not only of those that hold more than they are due.

    Of a gang's rooms, `own` are expected where tasks of `leaves` end: a task of a gang that ends leaves room for a part
    of the next one, which others would take before the rest is there. `of_own`: the ends of all tasks of `leaves`
    count, too.

    It has been wanted since `since_ms`, and rooms may be held that are complete by `until_ms` (0: none yet); `next_ms`:
    when the next one is to be complete that may not be held yet. `soon_ms`: room that leaves with more than they are
    due give back later than that does not spare the others. `owed`: it is wanted within what a leaf is guaranteed, so
    leaves give room that hold more than that. `spared`: by number, the nodes on which tasks have not counted that would
    under `of_all`.
    """

    task: TaskClass
    tasks: int
    since_ms: int = 0
    until_ms: int = 0
    soon_ms: int = 0
    next_ms: int | None = None
    owed: bool = False
    own: int = 0
    of_all: bool = False
    of_own: bool = False
    starves: bool = False
    leaves: dict[str, bool] = field(default_factory=dict)
    spared: dict[int, bool] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Moment:
    """From `at_ms` on a node holds `rooms` tasks of a class; `free` and `devices` is what it has free at that time."""

    at_ms: int
    rooms: int
    free: list[int]
    devices: list[int]


@dataclass(slots=True, eq=False)
class HeldNode:
    """A node that is held for tasks of a class (a backfill reservation). Its room is complete when the last of its
    moments is. `promised_ms`: when it was to be complete by what was first said of it; what runs longer than estimated
    does not put that off.
    """

    task: TaskClass
    moments: list[Moment]
    promised_ms: int

    @property
    def tasks(self) -> int:
        """How many tasks of the class it is held for."""
        return self.moments[-1].rooms

    @property
    def first_ms(self) -> int:
        """When the first task may start there, by what was said of it."""
        return min(self.moments[0].at_ms, self.promised_ms)

    @property
    def complete_ms(self) -> int:
        """When the room is complete, by the estimated ends of what runs there."""
        return self.moments[-1].at_ms


def could_hold(table: NodeTable, task: TaskClass, node: NodeRoom) -> bool:
    """Whether the empty node would take tasks of the class, and nothing bars it to them now."""
    if not node.open or len(task.needs) < len(task.pairs) or not table.has_all(task, node):
        return False
    if any(node.labels.get(key) != value for key, value in task.labels.items()):
        return False
    if task.bounds is not None and not task.bounds.permits(node.name, node.labels):
        return False
    return fitting(task, node.capacity, node.sizes, 1) > 0


def fitting(task: TaskClass, free: list[int], devices: list[int], most: int) -> int:
    """How many tasks of the class, `most` at most, fit into what is free."""
    for p, amount, _ in task.needs:
        count = free[p] // amount
        if count < most:
            most = count
    if most <= 0:
        return 0
    return tasks_on_devices(task.gpu, devices, most) if task.gpu else most


def moments_of(task: TaskClass, node: NodeRoom, now_ms: int, ends: Iterable[End], most: int) -> list[Moment]:
    """The first moments at which the node holds 1, 2, .. `most` tasks of the class, as far as `ends` (in order of time)
    lead. Later ones are not asked for.
    """
    free, devices = list(node.free), list(node.devices)
    found: list[Moment] = []
    _note(found, task, now_ms, free, devices, most)
    if len(found) == most:
        return found
    at_ms, has_given = now_ms, False
    for end in ends:
        if has_given and end.at_ms != at_ms:
            _note(found, task, at_ms, free, devices, most)
            if len(found) == most:
                return found
        at_ms, has_given = end.at_ms, True
        _give(node, free, devices, end)
    if has_given:
        _note(found, task, at_ms, free, devices, most)
    return found


def _note(found: list[Moment], task: TaskClass, at_ms: int, free: list[int], devices: list[int], most: int) -> None:
    """Adds the moments for which there is room by now."""
    count = fitting(task, free, devices, most)
    while len(found) < count:
        found.append(Moment(at_ms, len(found) + 1, list(free), list(devices)))


def moment_at(node: NodeRoom, at_ms: int, ends: Iterable[End], rooms: int) -> Moment:
    """What the node has free at a time that is given, when it is to hold `rooms` tasks."""
    free, devices = list(node.free), list(node.devices)
    for end in ends:
        if end.at_ms > at_ms:
            break
        _give(node, free, devices, end)
    return Moment(at_ms, rooms, free, devices)


def _give(node: NodeRoom, free: list[int], devices: list[int], end: End) -> None:
    for p, amount in end.pairs:
        if p >= 0:
            free[p] += amount
    for index, milli in end.devices:
        if index in node.device_indexes:
            devices[node.device_indexes.index(index)] += milli


def fits_now(table: NodeTable, task: TaskClass, node: NodeRoom) -> bool:
    """Whether one task of the class would start on the node if nothing were held there."""
    for p, amount, _ in task.needs:
        if node.free[p] < amount:
            return False
    return could_hold(table, task, node) and (not task.gpu or on_devices(task.gpu, node.devices) is not None)


def lent_until(reserved: HeldNode, node: NodeRoom, task: TaskClass) -> int:
    """By when a task of another class that starts on the node has to be expected to end: by then none of the room is
    due that would not suffice beside it for all that is held for. Room that is late is not put off again: of what those
    tasks need as well, as much has to be free at once as they take.
    """
    held, until_ms = reserved.task, 0
    for moment in reserved.moments:
        until_ms = max(until_ms, min(moment.at_ms, reserved.promised_ms))
        if moment.at_ms > reserved.promised_ms:
            if not _spares(held, moment.rooms, node, task):
                return until_ms
            continue
        free, devices = _without(moment.free, moment.devices, node, task)
        if fitting(held, free, devices, moment.rooms) < moment.rooms:
            return until_ms
    return NEVER_MS


def _spares(held: TaskClass, rooms: int, node: NodeRoom, task: TaskClass) -> bool:
    """Whether of all that the task takes, enough is free beside it for `rooms` tasks of the class that room is held
    for. What it does not take may be missing still.
    """
    free, devices = _without(node.free, node.devices, node, task)
    taken = {p: amount for p, amount, _ in task.needs}
    if any(p in taken and free[p] < amount * rooms for p, amount, _ in held.needs):
        return False
    return not (task.gpu and held.gpu) or tasks_on_devices(held.gpu, devices, rooms) >= rooms


def lend(reserved: HeldNode, node: NodeRoom, task: TaskClass, end_ms: int) -> None:
    """Counts a task that is about to start there on these terms."""
    for moment in reserved.moments:
        if moment.at_ms < end_ms:
            moment.free, moment.devices = _without(moment.free, moment.devices, node, task)


def _without(free: list[int], devices: list[int], node: NodeRoom, task: TaskClass) -> tuple[list[int], list[int]]:
    """What is free beside a task that starts on the node now, where that much would be free without it."""
    free = list(free)
    for p, amount, _ in task.needs:
        free[p] -= amount
    if task.gpu:
        devices = list(devices)
        for position, milli in on_devices(task.gpu, node.devices) or []:
            devices[position] -= milli
    return free, devices
