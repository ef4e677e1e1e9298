"""How promises to reservations are kept in a round (docs/reservations.md).

Reserved tasks start first. For those that have a lease now, or within `revoke_grace_ms`, and find no room, room is
chosen node by node, revocable attempts are taken back for it, and nobody else may use it meanwhile. Whatever else
starts on room that is promised before it is expected to end starts as revocable.
"""

from bisect import bisect_right
from dataclasses import dataclass, field

from largesse.lifecycle.promises import active, next_edge_ms
from schemas import HeldRoom, PlanProfile, PlanStep, Revocation, StageAsk, Vector
from schemas.estimates import end_ms
from services.leftover.core.board import estimate_of, is_reserved, rules_said
from services.leftover.core.reserved import Claim, Reserved, lent_of, stage_of
from services.leftover.core.state import Allocation, State
from services.leftover.placement.board import Board
from services.leftover.placement.entries import Placement
from services.leftover.placement.nodes import TaskClass
from services.leftover.placement.promised import Clearing, Moment, Space, Victim, by_position, empty

MOMENTS_MAX = 16
"""So many starts of leases are looked at one by one in a round. Later ones count as one, at the first of them, with the
most that each reservation is promised from then on: a task that runs so far into the future may be called revocable
though it is not."""


AGAIN_MS = 1_000
"""After so long, or the grace if that is longer, the room that was chosen for a lease is looked at again."""


@dataclass(slots=True, eq=False)
class Kept:
    """What a round does for promises. `shut`: rooms that nobody else may use in it."""

    reserved: Reserved
    revoked: list[Revocation] = field(default_factory=list)
    shut: list[tuple[int, TaskClass]] = field(default_factory=list)


def keep_promises(state: State, board: Board, asked: dict[str, list[StageAsk]], now_ms: int) -> Kept:
    """Starts what is inside promises, and clears room for what has found none. `asked`: what reserved jobs ask for that
    ask for something else than before.
    """
    kept = Kept(Reserved(state, board, asked, now_ms))
    with_headroom = [(number, board.room.nodes[number].kept) for number in board.room.kept_nodes]
    for number, _ in with_headroom:  # A promise comes before what is gathered for others.
        board.room.nodes[number].kept = None
    kept.reserved.start()
    for number, task in with_headroom:
        board.room.nodes[number].kept = task
    grace_ms = state.policy.revoke_grace_ms
    claims = kept.reserved.claims(now_ms + grace_ms)
    if claims:
        clearing = _clearing(state, board, kept, now_ms, now_ms + grace_ms)
        for claim in claims:
            _clear(clearing, claim)
        kept.shut = clearing.rooms
        kept.revoked = _revocations(state, board, clearing.taken)
        for number, task in kept.shut:
            board.room.shut(number, task.pairs)
    return kept


def finish(state: State, board: Board, kept: Kept, placements: list[Placement], now_ms: int) -> list[Placement]:
    """Once `placements` are made by others: lets reserved jobs have what nobody else can use, and says of everything
    that starts whether it is revocable. Returns all placements.
    """
    beyond = kept.reserved.start_beyond()
    for number, task in kept.shut:
        board.room.give(number, task.pairs, [])
    inside = [placement for placement in kept.reserved.placed if placement.reserved]
    return _judge(state, board, kept.reserved, [*inside, *placements, *beyond], now_ms)


def wake_of(state: State, kept: Kept, now_ms: int) -> int | None:
    """When promises may lead to another answer without another fact."""
    grace_ms = state.policy.revoke_grace_ms
    edge_ms = next_edge_ms(state.promises, now_ms, grace_ms)
    if not kept.shut:
        return edge_ms
    return least(edge_ms, now_ms + max(AGAIN_MS, grace_ms))  # What is expected to end by then may not.


def least(one_ms: int | None, other_ms: int | None) -> int | None:
    """The earlier of two moments, either of which may be missing."""
    if one_ms is None or other_ms is None:
        return one_ms if other_ms is None else other_ms
    return min(one_ms, other_ms)


def vacated_of(state: State, board: Board, kept: Kept) -> list[HeldRoom]:
    """Where the room that is held for promises is another than before, by name of the node."""
    after: dict[str, HeldRoom] = {}
    for number, task in kept.shut:
        name = board.room.nodes[number].name
        held = after.get(name)
        if held is None:
            held = after[name] = HeldRoom(name, "promise", {}, task.demand, task.labels, task.prefer, task.gang, 0)
            held.rules = rules_said(task)
        held.tasks += 1
        for kind, amount in task.demand.items():
            held.demand[kind] = held.demand.get(kind, 0) + amount
    gone = {name: HeldRoom(name, "promise", {}) for name in state.vacated if name not in after}
    changed = {name: one for name, one in after.items() if state.vacated.get(name) != one}
    return [one for _, one in sorted({**gone, **changed}.items())]


# ---------------------------------------------------------------- taking back
def _clear(clearing: Clearing, claim: Claim) -> None:
    if claim.width == 1:
        clearing.find(claim.task, claim.count, whole=False)
        return
    for _ in range(claim.count // claim.width):
        if not clearing.find(claim.task, claim.width, whole=True):
            return


def _clearing(state: State, board: Board, kept: Kept, now_ms: int, until_ms: int) -> Clearing:
    """The nodes as they are expected to be at a time, and whom could be taken back there."""
    room = board.room
    started: dict[int, list[Placement]] = {}
    for placement in kept.reserved.placed:
        started.setdefault(placement.node, []).append(placement)

    def space_of(number: int) -> Space:
        node = room.nodes[number]
        space = empty(node)
        for key, held in state.held.get(node.name, {}).items():
            lent = lent_of(state, node.name, key)
            if (lent is None or not lent.taken) and not _is_over_by(state, held, now_ms, until_ms):
                space.add(room.pairs(held.demand), by_position(node, _shares(held)), -1)
        for placement in started.get(number, []):
            for i in range(placement.count):
                devices = placement.devices[i] if placement.devices else []
                space.add(placement.task.pairs, by_position(node, devices), -1)
        return space

    victims: dict[int, list[Victim]] = {}
    covered = _covered(state, kept.reserved, now_ms) if state.lent else {}
    for name, on_node in state.lent.items():
        for key, lent in on_node.items():
            held = state.held[name][key]
            spared = lent.taken or key in covered or _is_over_by(state, held, now_ms, until_ms)
            if not spared and name in room.number and held.job in state.jobs:
                victims.setdefault(room.number[name], []).append(_victim(state, board, name, key, held, now_ms))
    first = {room.number[name]: True for name in state.vacated if name in room.number}
    return Clearing(room, space_of, victims, first)


def _victim(state: State, board: Board, name: str, key: str, held: Allocation, now_ms: int) -> Victim:
    number = board.room.number[name]
    lost = board.room.share_of(held.demand) * (now_ms - held.start_ms)
    gang = ""
    job = state.jobs[held.job]
    if stage_of(job, held.stage).gang:
        gang = f"{held.job}/{held.stage}"
    devices = by_position(board.room.nodes[number], _shares(held))
    return Victim(number, f"{name}/{key}", board.room.pairs(held.demand), devices, lost, gang)


def _shares(held: Allocation) -> list[tuple[int, int]]:
    return [(share.index, share.milli) for share in held.devices] if held.devices else []


def _is_over_by(state: State, held: Allocation, now_ms: int, until_ms: int) -> bool:
    """Whether what runs is expected to end by then of itself. Of what has overrun its estimate nothing is expected."""
    job = state.jobs.get(held.job)
    if job is None:
        return True  # It is being killed.
    at_ms = held.start_ms + estimate_of(job, stage_of(job, held.stage))
    return now_ms < at_ms <= until_ms


def _covered(state: State, reserved: Reserved, at_ms: int) -> dict[str, bool]:
    """Tasks that run inside the promises of a time, keyed as `held`: those that started first."""
    found: dict[str, bool] = {}
    for reservation, names in reserved.jobs.items():
        left = _usage(state.promises.profiles[reservation], at_ms)
        runs = [
            (state.held[node][f"{name}/{run}"].start_ms, state.jobs[name].admitted, run, f"{name}/{run}", node)
            for name in names
            for run, node in state.reserving[name].runs.items()
        ]
        for *_, key, node in sorted(runs):
            demand = state.held[node][key].demand
            if all(left.get(kind, 0) >= amount for kind, amount in demand.items()):
                found[key] = True
                for kind, amount in demand.items():
                    left[kind] = left.get(kind, 0) - amount
    return found


def _usage(profile: PlanProfile, at_ms: int) -> Vector:
    usage: Vector = {}
    for step in active(profile.steps, at_ms):
        for kind, amount in step.usage.items():
            usage[kind] = usage.get(kind, 0) + amount
    return usage


def _revocations(state: State, board: Board, taken: list[Victim]) -> list[Revocation]:
    """Attempts to be taken back, neighbours of a stage on a node as one, in the order of nodes and names."""
    items: list[tuple[int, str, str, int, int]] = []
    for victim in taken:
        name = board.room.nodes[victim.node].name
        key = victim.key[len(name) + 1 :]
        job, stage, text = key.rsplit("/", 2)
        items.append((victim.node, job, stage, state.lent[name][key].attempt, int(text)))
    found: list[Revocation] = []
    for number, job, stage, attempt, index in sorted(items):
        node = board.room.nodes[number]
        last = found[-1] if found else None
        if (
            last is not None
            and (last.node, last.job, last.stage, last.attempt) == (node.name, job, stage, attempt)
            and last.first + last.count == index
        ):
            last.count += 1
        else:
            found.append(Revocation(job, stage, index, 1, attempt, node.name, node.epoch))
    return found


# ---------------------------------------------------------------- what is revocable
def _judge(state: State, board: Board, reserved: Reserved, placements: list[Placement], now_ms: int) -> list[Placement]:
    """Placements with those tasks called revocable that leave too little room for a promise; where that holds for some
    of the tasks of a placement, it is split.
    """
    ends = [now_ms + _lasts(state, placement) for placement in placements]
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


def _lasts(state: State, placement: Placement) -> int:
    job = state.jobs[placement.job]
    return estimate_of(job, stage_of(job, placement.stage))


def _split(placement: Placement, sure: int) -> list[Placement]:
    """The first tasks of a placement are sure, the others revocable. A gang is all the one or all the other."""
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

    moment: Moment
    inside: dict[str, int]


def _is_sure(placement: Placement, ends_ms: int, moments: list[Need]) -> bool:
    """Whether one task of a placement leaves room for every promise until it ends."""
    for need in moments:
        if need.moment.at_ms >= ends_ms:
            return True
        key = f"{placement.job}/{placement.stage}/{placement.first}"
        if need.inside.get(key, 0):
            need.inside[key] -= 1
        elif not need.moment.bear(placement.node, placement.task):
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
        """Each task's end, its room and its devices by position."""
        known = self._known.get(number)
        if known is None:
            known = self._known[number] = []
            state, node = self._state, self._board.room.nodes[number]
            for key, held in state.held.get(node.name, {}).items():
                lent = lent_of(state, node.name, key)
                if lent is None or (not lent.taken and is_reserved(state, held.job)):
                    devices = by_position(node, _shares(held)) if held.devices else []
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

    moment = Moment(room, at_ms, space_of)
    for unit, count in sorted(units, key=lambda item: -item[0].size):
        moment.promise(unit, count)
    return Need(moment, inside)


def _end_of(state: State, held: Allocation, now_ms: int) -> int:
    job = state.jobs.get(held.job)
    if job is None:
        return now_ms
    return end_ms(held.start_ms, estimate_of(job, stage_of(job, held.stage)), now_ms)


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
    """The units of some leases that no task stands for which runs then. Notes those that start in this round and do."""
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
