"""Which of the tasks that start in a round are revocable: those that leave too little room for a promise."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Final

from largesse.lifecycle.promises import active
from largesse.lifecycle.run_times import known_ms
from schemas import PlanStep, Vector
from schemas.estimates import end_ms
from services.leftover.core.board import is_reserved, stage_of
from services.leftover.core.reservations.leases import Leases, Left
from services.leftover.core.reservations.peaks import most_at_a_time
from services.leftover.core.reservations.reserved import ReservedJobs
from services.leftover.core.reservations.runs import lent_of
from services.leftover.core.state import Allocation, State
from services.leftover.placement.backfill.timeline import could_hold
from services.leftover.placement.board import Board
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.placements import Lease, Placement
from services.leftover.placement.promised import PromisedNodes, Space, by_position, empty
from services.leftover.placement.task_class import TaskClass

MOMENTS_MAX: Final = 16
"""So many starts of leases are looked at one by one in a round. Later ones count as one, at the first of them, with the
most of each kind of unit that is promised at a time from then on: where kinds are promised at different times, a task
that runs so far into the future may be called revocable though it is not."""


UNKNOWN_MS: Final = 1 << 62
"""The estimated end of a task without any estimate: it may still run at the start of every lease."""


def device_shares(held: Allocation) -> list[tuple[int, int]]:
    return [(share.index, share.milli) for share in held.devices] if held.devices else []


# ---------------------------------------------------------------- what is revocable
def call_revocable(
    state: State, board: Board, reserved: ReservedJobs, placements: list[Placement], now_ms: int
) -> list[Placement]:
    """Placements with those tasks called revocable that leave too little room for a promise; where that holds for some
    of the tasks of a placement, it is split.
    """
    if not state.promises.on or not state.promises.starts:
        return placements
    moments = Moments(state, board, reserved, now_ms)
    found: list[Placement] = []
    gangs: dict[tuple[str, str], Lease | None] = {}  # Of which a task is revocable.
    for placement in placements:
        ends_ms, sure = _ends(state, placement, now_ms), 0
        while sure < placement.count and (need := moments.stopped(placement, ends_ms)) is None:
            sure += 1
        parts = _split(placement, sure)
        if parts[-1].revocable:
            assert need is not None
            parts[-1].lease = moments.lease_of(need, placement.task)
            if placement.task.gang:
                gangs.setdefault((placement.job, placement.stage), parts[-1].lease)
        found += parts
    for placement in found:
        if (placement.job, placement.stage) in gangs:
            placement.revocable, placement.lease = True, gangs[placement.job, placement.stage]
    return found


def _ends(state: State, placement: Placement, now_ms: int) -> int:
    job = state.jobs[placement.job]
    lasts_ms = known_ms(stage_of(job, placement.stage), job.seen)
    return UNKNOWN_MS if lasts_ms is None else now_ms + lasts_ms


def _split(placement: Placement, sure: int) -> list[Placement]:
    """Splits a placement: its first tasks are not revocable, the others are. A gang is never split."""
    if sure == placement.count:
        return [placement]
    if sure == 0 or placement.task.gang:
        placement.revocable = True
        return [placement]
    parts = []
    for first, count in ((0, sure), (sure, placement.count - sure)):
        part = Placement(
            placement.job, placement.stage, placement.first + first, count, placement.attempt, placement.node,
            placement.beyond, placement.task, placement.devices[first : first + count], placement.queue,
            placement.user,
        )  # fmt: skip
        part.reserved, part.revocable = placement.reserved, first > 0
        parts.append(part)
    return parts


@dataclass(slots=True, eq=False)
class Need:
    """A moment, the jobs' tasks that are inside what is promised then, by job and stage, by reservation the units that
    wait for room, and for the moment that stands for all later ones when each reservation has the leases that count.
    """

    moment: PromisedNodes
    inside: dict[str, int]
    units: dict[str, list[tuple[TaskClass, int]]]
    at_ms: dict[str, int]


class Moments:
    """Now and the starts of leases to come, in one round, with what is promised then put on the nodes. Each is worked
    out when somebody first runs so long.
    """

    def __init__(self, state: State, board: Board, reserved: ReservedJobs, now_ms: int) -> None:
        self._state, self._board, self._table, self._reserved = state, board, board.node_table, reserved
        starts = state.promises.starts if state.promises.on else []
        first = bisect_right(starts, now_ms)
        self.times = [now_ms, *starts[first : first + MOMENTS_MAX + 1]]
        self._leases = _leases_of(state)
        self._near: dict[str, list[PlanStep]] | None = None
        self._lasting = _Lasting(state, self._table, now_ms)
        self._needs: list[Need] = []

    def before(self, ends_ms: int) -> int:
        """How many moments come before a time."""
        return bisect_left(self.times, ends_ms)

    def need(self, at: int) -> Need:
        """A moment by its number."""
        if self._near is None:
            self._near = self._leases.near(self.times[0], self.times[: MOMENTS_MAX + 1][-1])
        while len(self._needs) <= at:
            at_ms, inside = self.times[len(self._needs)], dict[str, int]()
            if len(self._needs) <= MOMENTS_MAX:
                left, times = self._left_of(self._near, at_ms, inside), dict[str, int]()
            else:
                left, times = self._left_behind(at_ms, inside)
            self._needs.append(_need(self._table, self._reserved, self._lasting, at_ms, inside, left, times))
        return self._needs[at]

    def _left_of(self, near: dict[str, list[PlanStep]], at_ms: int, inside: dict[str, int]) -> Left:
        """By reservation, the units that wait for room at a time. Adds to the tasks that are `inside`."""
        found: Left = {}
        for reservation, steps in near.items():
            if held := list(active(steps, at_ms)):
                if left := _units_left(self._board, self._reserved, reservation, held, at_ms, inside):
                    found[reservation] = left
        return found

    def _left_behind(self, at_ms: int, inside: dict[str, int]) -> tuple[Left, dict[str, int]]:
        """The same of all leases from a time on, and when they hold. As in the round before where no task is inside any
        of them."""
        reserved, behind = self._reserved, self._leases.behind_of(at_ms)
        is_plain = not any(
            reserved.reservation_of(placement.job) in behind.steps for placement in reserved.placed
        ) and not any(name in behind.steps and reserved.held_at(name, at_ms) for name in reserved.jobs)
        if is_plain and behind.board is self._board:
            return behind.left, behind.times
        found: Left = {}
        for reservation, steps in behind.steps.items():
            if left := _units_left(self._board, reserved, reservation, steps, at_ms, inside):
                found[reservation] = left
        found, times = _at_a_time(self._state, self._board, found, at_ms)
        if is_plain:
            behind.board, behind.left, behind.times = self._board, found, times
        return found, times

    def stopped(self, placement: Placement, ends_ms: int) -> Need | None:
        """Counts one task of a placement that runs to a time; returns the moment at which it leaves too little room for
        a promise, None: it never does.
        """
        for at in range(self.before(ends_ms)):
            need = self.need(at)
            key = f"{placement.job}/{placement.stage}/{placement.first}"
            if need.inside.get(key, 0):
                need.inside[key] -= 1
            elif not need.moment.accept(placement.node, placement.task):
                return need
        return None

    def count(self, placement: Placement, ends_ms: int) -> None:
        """Counts all tasks of a placement, whether they leave room or not."""
        for _ in range(placement.count):
            self.stopped(placement, ends_ms)

    def stop_on(self, number: int, task: TaskClass, first: int, end: int) -> int | None:
        """The first of some moments at which a task on a node would leave too little room; None: at none of them."""
        for at in range(first, end):
            if not self.need(at).moment.accept(number, task, keep=False):
                return at
        return None

    def stop_of(self, task: TaskClass, first: int, end: int) -> int | None:
        """The same where the best node is chosen; None also where no node could run it at all."""
        latest: int | None = None
        for number, node in enumerate(self._table.nodes):
            if could_hold(self._table, task, node) and self._could_last(number, task, first, end):
                stop = self.stop_on(number, task, first, end)
                if stop is None:
                    return None
                latest = stop if latest is None else max(latest, stop)
        return latest

    def _could_last(self, number: int, task: TaskClass, first: int, end: int) -> bool:
        """Whether a task would have room on a node at all of some moments if nothing were promised."""
        return all(self.need(at).moment.has_space(number, task) for at in range(first, end))

    def take(self, number: int, task: TaskClass, first: int, end: int) -> None:
        """Counts a task that starts on a node and stops at none of these moments."""
        for at in range(first, end):
            self.need(at).moment.accept(number, task)

    def kept(self) -> list[PromisedNodes]:
        """What `put_back` needs to undo everything that is counted from now on."""
        return [need.moment.copy() for need in self._needs]

    def put_back(self, kept: list[PromisedNodes]) -> None:
        """Undoes what was counted since `kept`. Moments that were worked out since are worked out again."""
        del self._needs[len(kept) :]
        for need, moment in zip(self._needs, kept, strict=True):
            need.moment = moment

    def lease_of(self, need: Need, task: TaskClass) -> Lease | None:
        """The lease that needs the room of a class at a moment: of those that ask for the same resources the first."""
        asked = {kind for kind, amount in task.demand.items() if amount}
        for reservation, units in need.units.items():
            if any(asked & unit.demand.keys() for unit, _ in units):
                profile = self._state.promises.profiles[reservation]
                steps = list(active(profile.steps, need.at_ms.get(reservation, need.moment.at_ms)))
                return Lease(reservation, min(s.from_ms for s in steps), max(s.to_ms for s in steps))
        return None


class _Lasting:
    """What runs and is not revocable, by node, with its estimated end: looked up once a round for all moments."""

    def __init__(self, state: State, table: NodeTable, now_ms: int) -> None:
        self._state, self._table, self._now_ms = state, table, now_ms
        self._known: dict[int, list[tuple[int, list[tuple[int, int]], list[tuple[int, int]]]]] = {}

    def on(self, number: int) -> list[tuple[int, list[tuple[int, int]], list[tuple[int, int]]]]:
        """By task: its estimated end, its room, and its devices by position."""
        known = self._known.get(number)
        if known is None:
            known = self._known[number] = []
            state, node = self._state, self._table.node(number)
            for key, held in state.held.get(node.name, {}).items():
                lent = lent_of(state, node.name, key)
                if lent is None or (not lent.taken and is_reserved(state, held.job)):
                    devices = by_position(node, device_shares(held)) if held.devices else []
                    known.append((_end_of(state, held, self._now_ms), self._table.pairs(held.demand), devices))
        return known


def _leases_of(state: State) -> Leases:
    """What is promised, in order of time."""
    leases, promises = state.leases, state.promises
    if leases is None or leases.starts is not promises.starts:
        leases = state.leases = Leases(promises.starts, promises.profiles)
    return leases


def _need(
    table: NodeTable,
    reserved: ReservedJobs,
    lasting: _Lasting,
    at_ms: int,
    inside: dict[str, int],
    of: Left,
    times: dict[str, int],
) -> Need:
    started: dict[int, list[Placement]] = {}
    for placement in reserved.placed:
        if inside.get(f"{placement.job}/{placement.stage}/{placement.first}"):
            started.setdefault(placement.node, []).append(placement)

    def space_of(number: int) -> Space:
        node = table.node(number)
        space = empty(node)
        for ends_ms, pairs, of_devices in lasting.on(number):
            if ends_ms > at_ms:
                space.add(pairs, of_devices, -1)
        for placement in started.get(number, []):
            for i in range(inside[f"{placement.job}/{placement.stage}/{placement.first}"]):
                devices = placement.devices[i] if placement.devices else []
                space.add(placement.task.pairs, by_position(node, devices), -1)
        return space

    moment = PromisedNodes(table, at_ms, space_of)
    units = [each for left in of.values() for each in left]
    for unit, count in sorted(units, key=lambda item: -item[0].size):
        moment.promise(unit, count)
    return Need(moment, inside, of, times)


def _end_of(state: State, held: Allocation, now_ms: int) -> int:
    job = state.jobs.get(held.job)
    if job is None:
        return now_ms
    lasts_ms = known_ms(stage_of(job, held.stage), job.seen)
    return UNKNOWN_MS if lasts_ms is None else end_ms(held.start_ms, lasts_ms, now_ms)


def _at_a_time(
    state: State, board: Board, of: dict[str, list[tuple[TaskClass, int]]], from_ms: int
) -> tuple[dict[str, list[tuple[TaskClass, int]]], dict[str, int]]:
    """Of each kind of unit what waits for room at the time, from `from_ms` on, at which that is most: by reservation,
    and when its leases hold. `of`: the most that each reservation waits for by itself.
    """
    promised: dict[
        int, tuple[TaskClass, dict[str, int], list[tuple[int, int, int, str]]]
    ] = {}  # By kind, with what each waits for.
    for reservation, left in of.items():
        for step in state.promises.profiles[reservation].steps:
            if step.to_ms > from_ms:
                unit = board.classes.class_for(step.unit, {}, {}, 0)
                _, limits, spans = promised.setdefault(unit.index, (unit, {}, []))
                limits[reservation] = sum(count for kind, count in left if kind.index == unit.index)
                spans.append((max(step.from_ms, from_ms), step.to_ms, step.units, reservation))
    found: dict[str, list[tuple[TaskClass, int]]] = {}
    times: dict[str, int] = {}
    for unit, limits, spans in promised.values():
        at_ms, units = most_at_a_time(spans, limits)
        for reservation, count in units.items():
            found.setdefault(reservation, []).append((unit, count))
            times.setdefault(reservation, at_ms)
    return {name: found[name] for name in of if name in found}, times


def _units_left(
    board: Board, reserved: ReservedJobs, reservation: str, steps: list[PlanStep], at_ms: int, inside: dict[str, int]
) -> list[tuple[TaskClass, int]]:
    """How many promised units of these leases are not covered by a task that runs at that time. Tasks of this round
    that do cover some are added to `inside`.
    """
    left: Vector = {}
    for step in steps:
        for kind, amount in step.usage.items():
            left[kind] = left.get(kind, 0) + amount
    for kind, amount in reserved.held_at(reservation, at_ms).items():
        left[kind] = max(0, left.get(kind, 0) - amount)
    for placement in reserved.placed:
        if reserved.reservation_of(placement.job) != reservation or reserved.end_of(placement) <= at_ms:
            continue
        count = placement.count
        for kind, amount in placement.task.demand.items():
            if amount:
                count = min(count, left.get(kind, 0) // amount)
        if count:
            inside[f"{placement.job}/{placement.stage}/{placement.first}"] = count
            for kind, amount in placement.task.demand.items():
                left[kind] = left.get(kind, 0) - amount * count
    found: list[tuple[TaskClass, int]] = []
    for step in steps:
        needed = max([-(-left.get(kind, 0) // amount) for kind, amount in step.unit.items() if amount], default=0)
        count = min(step.units, needed)
        if count:
            found.append((board.classes.class_for(step.unit, {}, {}, 0), count))
            for kind, amount in step.unit.items():
                left[kind] = max(0, left.get(kind, 0) - amount * count)
    return found
