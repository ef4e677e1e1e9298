"""Which of the tasks that start in a round are revocable: those that leave too little room for a promise."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from largesse.lifecycle.promises import active
from largesse.lifecycle.run_times import known_ms
from schemas import PlanProfile, PlanStep, Vector
from schemas.estimates import end_ms
from services.leftover.core.board import is_reserved, stage_of
from services.leftover.core.reserved import Reserved
from services.leftover.core.reserved_runs import lent_of
from services.leftover.core.state import Allocation, State
from services.leftover.placement.board import Board, Placement
from services.leftover.placement.promised import PromisedNodes, Space, by_position, empty
from services.leftover.placement.task_class import TaskClass

MOMENTS_MAX: Final = 16
"""So many starts of leases are looked at one by one in a round. Later ones count as one, at the first of them, with the
most that each reservation is promised from then on: a task that runs so far into the future may be called revocable
though it is not."""


UNKNOWN_MS: Final = 1 << 62
"""The estimated end of a task without any estimate: it may still run at the start of every lease."""


def device_shares(held: Allocation) -> list[tuple[int, int]]:
    return [(share.index, share.milli) for share in held.devices] if held.devices else []


# ---------------------------------------------------------------- what is revocable
def call_revocable(
    state: State, board: Board, reserved: Reserved, placements: list[Placement], now_ms: int
) -> list[Placement]:
    """Placements with those tasks called revocable that leave too little room for a promise; where that holds for some
    of the tasks of a placement, it is split.
    """
    ends = [_ends(state, placement, now_ms) for placement in placements]
    last_ms = max(ends, default=now_ms)
    moments = _moments(state, board, reserved, now_ms, last_ms)
    if not moments:
        return placements
    found: list[Placement] = []
    gangs: dict[tuple[str, str], bool] = {}  # Of which a task is revocable.
    for placement, ends_ms in zip(placements, ends, strict=True):
        sure = 0
        while sure < placement.count and _is_sure(placement, ends_ms, moments):
            sure += 1
        found += _split(placement, sure)
        if sure < placement.count and placement.task.gang:
            gangs[placement.job, placement.stage] = True
    for placement in found:
        if (placement.job, placement.stage) in gangs:
            placement.revocable = True
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
        )  # fmt: skip
        part.reserved, part.revocable = placement.reserved, first > 0
        parts.append(part)
    return parts


@dataclass(slots=True, eq=False)
class Need:
    """A moment, and the jobs' tasks that are inside what is promised then, by job and stage."""

    moment: PromisedNodes
    inside: dict[str, int]


def _is_sure(placement: Placement, ends_ms: int, moments: list[Need]) -> bool:
    """Whether one task of a placement leaves room for every promise until it ends."""
    for need in moments:
        if need.moment.at_ms >= ends_ms:
            return True
        key = f"{placement.job}/{placement.stage}/{placement.first}"
        if need.inside.get(key, 0):
            need.inside[key] -= 1
        elif not need.moment.accept(placement.node, placement.task):
            return False
    return True


def _moments(state: State, board: Board, reserved: Reserved, now_ms: int, last_ms: int) -> list[Need]:
    """The starts of leases before a time, now among them, with what is promised then put on the nodes."""
    starts = state.promises.starts
    if not state.promises.on or not starts:
        return []
    first, last = bisect_right(starts, now_ms), bisect_right(starts, last_ms - 1)
    times = [now_ms, *starts[first : min(last, first + MOMENTS_MAX)]]
    lasting = _Lasting(state, board, now_ms)
    needs = [_need(state, board, reserved, lasting, at_ms) for at_ms in times]
    if last > first + MOMENTS_MAX:
        needs.append(_need(state, board, reserved, lasting, starts[first + MOMENTS_MAX], tail=True))
    return needs


class _Lasting:
    """What runs and is not revocable, by node, with its estimated end: looked up once a round for all moments."""

    def __init__(self, state: State, board: Board, now_ms: int) -> None:
        self._state, self._board, self._now_ms = state, board, now_ms
        self._known: dict[int, list[tuple[int, list[tuple[int, int]], list[tuple[int, int]]]]] = {}

    def on(self, number: int) -> list[tuple[int, list[tuple[int, int]], list[tuple[int, int]]]]:
        """By task: its estimated end, its room, and its devices by position."""
        known = self._known.get(number)
        if known is None:
            known = self._known[number] = []
            state, node = self._state, self._board.room.nodes[number]
            for key, held in state.held.get(node.name, {}).items():
                lent = lent_of(state, node.name, key)
                if lent is None or (not lent.taken and is_reserved(state, held.job)):
                    devices = by_position(node, device_shares(held)) if held.devices else []
                    known.append((_end_of(state, held, self._now_ms), self._board.room.pairs(held.demand), devices))
        return known


def _need(state: State, board: Board, reserved: Reserved, lasting: _Lasting, at_ms: int, *, tail: bool = False) -> Need:
    room = board.room
    inside: dict[str, int] = {}
    units: list[tuple[TaskClass, int]] = []
    for reservation, profile in state.promises.profiles.items():
        steps = _largest(profile, at_ms) if tail else list(active(profile.steps, at_ms))
        if steps:
            units += _units_left(board, reserved, reservation, steps, at_ms, inside)
    started: dict[int, list[Placement]] = {}
    for placement in reserved.placed:
        if inside.get(f"{placement.job}/{placement.stage}/{placement.first}"):
            started.setdefault(placement.node, []).append(placement)

    def space_of(number: int) -> Space:
        node = room.nodes[number]
        space = empty(node)
        for ends_ms, pairs, of_devices in lasting.on(number):
            if ends_ms > at_ms:
                space.add(pairs, of_devices, -1)
        for placement in started.get(number, []):
            for i in range(inside[f"{placement.job}/{placement.stage}/{placement.first}"]):
                devices = placement.devices[i] if placement.devices else []
                space.add(placement.task.pairs, by_position(node, devices), -1)
        return space

    moment = PromisedNodes(room, at_ms, space_of)
    for unit, count in sorted(units, key=lambda item: -item[0].size):
        moment.promise(unit, count)
    return Need(moment, inside)


def _end_of(state: State, held: Allocation, now_ms: int) -> int:
    job = state.jobs.get(held.job)
    if job is None:
        return now_ms
    lasts_ms = known_ms(stage_of(job, held.stage), job.seen)
    return UNKNOWN_MS if lasts_ms is None else end_ms(held.start_ms, lasts_ms, now_ms)


def _largest(profile: PlanProfile, from_ms: int) -> list[PlanStep]:
    """The largest lease of each kind of unit from a time on, as if they all held at once."""
    most: dict[tuple[tuple[str, int], ...], PlanStep] = {}
    for step in profile.steps:
        if step.to_ms > from_ms:
            key = tuple(step.unit.items())
            if key not in most or most[key].units < step.units:
                most[key] = step
    return list(most.values())


def _units_left(
    board: Board, reserved: Reserved, reservation: str, steps: list[PlanStep], at_ms: int, inside: dict[str, int]
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
            found.append((board.class_for(step.unit, {}, {}, 0), count))
            for kind, amount in step.unit.items():
                left[kind] = max(0, left.get(kind, 0) - amount * count)
    return found
