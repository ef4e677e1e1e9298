"""How capacity is taken back in a round for queues below their guarantee (docs/concepts/preemption.md).

First the tasks start whose room has come free by now; the rest of what was taken back is shut to everybody else. Once
all have had what they can use, a queue that has waited below its guarantee for `preempt_after_ms` claims room for what
is left of its tasks, and attempts of others are taken back for it.
"""

from dataclasses import dataclass, field

from largesse.lifecycle.task_keys import parts_of
from schemas import Claim, HeldRoom, Revocation
from schemas.presets import PRESETS
from services.leftover.core.board import leaf_at, rules_said, task_class_of
from services.leftover.core.preemption.ending import is_ending
from services.leftover.core.preemption.lending import Lending, share_of
from services.leftover.core.preemption.wants import bucket_for, claimed_by, may_claim
from services.leftover.core.reservations.foresight import Foresight
from services.leftover.core.round import Round
from services.leftover.core.state import State
from services.leftover.placement.backfill.timeline import fits_now
from services.leftover.placement.leaf_queue import LeafEntry
from services.leftover.placement.preemption.holdings import meeting
from services.leftover.placement.preemption.taking import Claimed, Taking
from services.leftover.placement.task_class import TaskClass


@dataclass(slots=True, eq=False)
class Claims:
    """The rooms of a round that were taken back, or will be, and have not come to their tasks."""

    rooms: list[Claimed] = field(default_factory=list)


def is_on(state: State) -> bool:
    """Whether capacity is taken back for guarantees."""
    return state.policy.preemption == "on" and PRESETS[state.policy.preset].has_queues


# ---------------------------------------------------------------- before anything is placed
def begin_claims(round_: Round, foresight: Foresight | None) -> Claims:
    """Starts tasks in room that was taken back for their queue, and shuts what has not come free yet. A room is given
    up once nobody is left to use it, or nothing ends there any more and it still is not enough.
    """
    state, board, table = round_.state, round_.board, round_.table
    claims = Claims()
    if not state.claimed:
        return claims
    board.begin(round_.now_ms, state.policy.ageing_ms)
    groups: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for name in sorted(state.claimed):
        claimed, number = state.claimed[name], table.find(name)
        if number is not None and claimed.leaf in board.buckets.leaves:
            index = task_class_of(board, claimed.room).index
            groups.setdefault((claimed.leaf, index), []).append((number, claimed.tasks))
    for (leaf, index), nodes in sorted(groups.items()):
        _serve(round_, claims, board.buckets.leaves[leaf], board.classes.by_number[index], nodes)
    placed = board.placed()
    round_.placements += placed if foresight is None else foresight.judge(placed)
    for room in claims.rooms:
        table.shut(room.node, room.task.pairs)
    return claims


def _serve(round_: Round, claims: Claims, leaf: LeafEntry, task: TaskClass, nodes: list[tuple[int, int]]) -> None:
    """Starts what can start of a class of a leaf in its rooms on these nodes; the others stay its own, as far as it may
    still claim them.
    """
    board, table = round_.board, round_.table
    rooms = [number for number, tasks in nodes for _ in range(tasks)]
    if task.gang:
        rooms = _start_gangs(round_, claims, leaf, task, rooms)
    else:
        waiting: list[int] = []
        for number in rooms:
            bucket_id = bucket_for(board, leaf, task)
            if bucket_id is None or not claimed_by(board, leaf, bucket_id, claims.rooms):
                break
            if fits_now(table, task, table.node(number)):
                board.put(leaf, *board.buckets.first_in(leaf, bucket_id), number)
            else:
                waiting.append(number)
        rooms = waiting
    bucket_id = bucket_for(board, leaf, task)
    if bucket_id is None or not any(_ends_on(round_, number) for number in rooms):
        return
    most = claimed_by(board, leaf, bucket_id, claims.rooms)
    claims.rooms += [Claimed(number, task, leaf.name) for number in rooms[:most]]


def _start_gangs(round_: Round, claims: Claims, leaf: LeafEntry, task: TaskClass, rooms: list[int]) -> list[int]:
    """Starts gangs whose rooms have all come free; returns the rooms of the others."""
    board = round_.board
    while len(rooms) >= task.gang:
        bucket_id = bucket_for(board, leaf, task)
        if bucket_id is None or not claimed_by(board, leaf, bucket_id, claims.rooms):
            return []
        if not board.put_gang(leaf, *board.buckets.first_in(leaf, bucket_id), rooms[: task.gang]):
            break
        rooms = rooms[task.gang :]
    return rooms


def _ends_on(round_: Round, number: int) -> bool:
    """Whether something is ending on a node."""
    state, name = round_.state, round_.table.node(number).name
    return any(is_ending(state, name, key, held) for key, held in state.held.get(name, {}).items())


# ---------------------------------------------------------------- once everybody has had what they can use
def end_claims(round_: Round, claims: Claims, foresight: Foresight | None) -> None:
    """Takes capacity back for leaves that have waited long enough, and says what is held for claims."""
    state, board, table, now_ms = round_.state, round_.board, round_.table, round_.now_ms
    due = _due(round_)
    taking: Taking | None = None
    if due:
        lending = Lending(round_, claims.rooms)
        if lending.loans or lending.ending:
            taking = lending.taking()
            _claim(round_, claims, due, taking, foresight)
            round_.revoked += _revocations(round_, taking)
        round_.wakes_ms.append(_next_ms(round_, lending, taking))
    for room in claims.rooms:
        table.give(room.node, room.task.pairs, [])
    for name, since_ms in state.owed.items():
        if since_ms + state.policy.preempt_after_ms > now_ms and name in board.buckets.leaves:
            round_.wakes_ms.append(since_ms + state.policy.preempt_after_ms)


def _due(round_: Round) -> list[LeafEntry]:
    """Leaves below their guarantee that have waited long enough, those that have waited longest first."""
    state, board = round_.state, round_.board
    before_ms = round_.now_ms - state.policy.preempt_after_ms
    found = [(since_ms, name) for name, since_ms in state.owed.items() if since_ms <= before_ms]
    leaves = [board.buckets.leaves[name] for _, name in sorted(found) if name in board.buckets.leaves]
    return [leaf for leaf in leaves if leaf.is_owed]


def _claim(round_: Round, claims: Claims, due: list[LeafEntry], taking: Taking, foresight: Foresight | None) -> None:
    board = round_.board
    for leaf in due:
        keys = {bucket_id: board.buckets.key_in(leaf, bucket_id) for bucket_id in list(leaf.sizes.key)}
        for bucket_id in sorted(keys, key=lambda bucket_id: (keys[bucket_id], bucket_id)):
            if not may_claim(board, leaf, bucket_id):
                continue
            count = claimed_by(board, leaf, bucket_id, claims.rooms + taking.rooms)
            if not count:
                continue
            job, span = board.buckets.first_in(leaf, bucket_id)
            others = {room.node: True for room in claims.rooms + taking.rooms if not _is_like(room, leaf, span.task)}
            nodes = [number for number in taking.able(span.task) if number not in others]
            if foresight is not None:
                nodes = [number for number in nodes if foresight.would_start(job.name, span.stage, number)]
            width = span.task.gang
            if not width:
                taking.find(leaf.name, span.task, count, nodes, whole=False)
            for _ in range(count // width if width else 0):
                if not taking.find(leaf.name, span.task, width, nodes, whole=True):
                    break


def _is_like(room: Claimed, leaf: LeafEntry, task: TaskClass) -> bool:
    """Whether a room is for tasks of this class and leaf: a node is held for one class of one leaf at a time."""
    return room.leaf == leaf.name and room.task is task


def _next_ms(round_: Round, lending: Lending, taking: Taking | None) -> int | None:
    """When more could be taken back without another fact: a task is old enough, or the rate allows it again."""
    state, now_ms = round_.state, round_.now_ms
    moments = [] if lending.ripe_ms is None else [lending.ripe_ms]
    if taking is not None and taking.is_slowed:
        moments += [each[0] + state.policy.preempt_window_ms for each in state.taken]
        if taking.taken:
            moments.append(now_ms + state.policy.preempt_window_ms)
    return min([at_ms for at_ms in moments if at_ms > now_ms], default=None)


# ---------------------------------------------------------------- what is said of it
def _rooms_of(round_: Round, taking: Taking, leaf: str) -> list[HeldRoom]:
    """The rooms that a leaf claims in the round, by node."""
    table, found = round_.table, dict[str, HeldRoom]()
    complete_ms = round_.now_ms + round_.state.policy.revoke_grace_ms
    for room in taking.rooms:
        if room.leaf == leaf:
            task, name = room.task, table.node(room.node).name
            held = found.get(name)
            if held is None:
                held = found[name] = HeldRoom(
                    name, "gang" if task.gang else "headroom", {}, task.demand, task.labels, task.prefer, task.gang, 0,
                    complete_ms, rules_said(task),
                )  # fmt: skip
            held.tasks += 1
            for kind, amount in task.demand.items():
                held.demand[kind] = held.demand.get(kind, 0) + amount
    return [found[name] for name in sorted(found)]


def _revocations(round_: Round, taking: Taking) -> list[Revocation]:
    """Attempts to be taken back, neighbours of a stage on a node as one, in the order of nodes and names."""
    state, table = round_.state, round_.table
    items: list[tuple[int, str, str, int, int, str, str]] = []
    for loan, claimant in taking.taken:
        for part in loan.parts:
            name = table.node(part.node).name
            key = part.key[len(name) + 1 :]
            job, stage, index = parts_of(key)
            items.append((part.node, job, stage, state.held[name][key].attempt, index, claimant, key))
    found: list[Revocation] = []
    said: dict[str, bool] = {}
    for number, job, stage, attempt, index, claimant, key in sorted(items):
        node, last = table.node(number), found[-1] if found else None
        held = state.held[node.name][key]
        claim = Claim(claimant, meeting(claimant, leaf_at(state, held.queue)), share_of(table, held))
        if claimant not in said:
            said[claimant] = True
            claim.rooms = _rooms_of(round_, taking, claimant)
        if (
            last is not None
            and last.claim is not None
            and (last.node, last.job, last.stage, last.attempt) == (node.name, job, stage, attempt)
            and (last.first + last.count, last.claim.queue) == (index, claimant)
        ):
            last.count += 1
            last.claim.share += claim.share
        else:
            found.append(Revocation(job, stage, index, 1, attempt, node.name, node.epoch, claim=claim))
    return found


def note_owed(round_: Round, are_short: dict[str, bool]) -> None:
    """Leaves that are below their guarantee from this round on may take something back once they have waited."""
    state, board = round_.state, round_.board
    for name, is_short in are_short.items():
        if is_short and name not in state.owed and board.buckets.leaves[name].is_owed:
            round_.wakes_ms.append(round_.now_ms + max(1, state.policy.preempt_after_ms))
