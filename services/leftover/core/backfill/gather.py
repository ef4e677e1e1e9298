"""From what leftover keeps to the room that a round gathers, and to what it says of it."""

from dataclasses import dataclass
from typing import Final

from schemas import HeldRoom
from schemas.grants import HoldReason
from schemas.presets import PRESETS
from services.leftover.core.backfill.running import Running
from services.leftover.core.board import estimate_of, rules_said, stage_of, task_class_of
from services.leftover.core.round import Round
from services.leftover.core.state import State
from services.leftover.placement.backfill.headroom import (
    aged_since,
    begun_for,
    blocked_heads,
    choose,
    first_in_path,
    gather,
    is_exposed,
    is_lacking,
    lacks_part_of_gang,
    least_needs,
    shortfall,
    wanted_by,
)
from services.leftover.placement.backfill.lending import lend_all
from services.leftover.placement.backfill.timeline import HeldNode, Wanted
from services.leftover.placement.board import Board
from services.leftover.placement.leaf_queue import LeafEntry
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.pending_reasons import WANTS_ROOM, Heads, reason_of
from services.leftover.placement.placements import Placement
from services.leftover.placement.task_class import TaskClass

IDLE_PARTS: Final = 2
"""Room comes free bit by bit, so until it is complete one in so many parts of it stands idle on average: it may be held
once the wait has been that part of the time until then."""

_ANY_MS: Final = 1 << 62


@dataclass(slots=True, eq=False)
class _Nodes:
    """Nodes to hold, by number, and when others may be without another fact (ms). `owed`: classes that leaves lack as
    well, and for which none is held.
    """

    held: dict[int, HeldNode]
    wake_ms: int | None
    owed: list[TaskClass]

    def __init__(self, held: dict[int, HeldNode], wake_ms: int | None, owed: list[TaskClass]) -> None:
        self.held = held
        self.wake_ms = wake_ms
        self.owed = owed


_NO_NODES = _Nodes({}, None, [])


def hold_for_gangs(round_: Round) -> None:
    """Before anything is placed: keeps room for gangs of leaves that are known to be short. A gang cannot start in the
    room of one of its leaf's tasks that ends, so that others would take it at once. Gangs come first, since all of one
    wait for its last room; nodes that are held for others stay so. What the last round has tried does not count here.
    """
    state, board, now_ms = round_.state, round_.board, round_.now_ms
    leaves = board.leaves_of(state.short)
    if not any(leaf.gangs for leaf in leaves) or not any(lacks_part_of_gang(board, leaf) for leaf in leaves):
        return
    lacking = [leaf for leaf in leaves if is_lacking(board, leaf)]
    wants = _wanted(state, board, None, lacking, [], {}, {}, now_ms)
    wants.sort(key=lambda wanted: wanted.task.gang == 0)
    wanted_for = {wanted.task.index: True for wanted in wants}
    kept = _Kept(state, board, now_ms)
    others = {n: task for n, task in kept.by_node.items() if task.waiting and task.index not in wanted_for}
    held = _nodes_for(state, board, wants, kept, Running(state, board, [], now_ms), others)
    round_.table.hold_nodes(others | {number: reserved.task for number, reserved in held.items()})


def gather_room(round_: Round) -> None:
    """Gathers room for what has found none in the round, and lends out what is held meanwhile."""
    state, board, table = round_.state, round_.board, round_.table
    placements, now_ms = round_.placements, round_.now_ms
    gathered = _gather(state, board, placements, now_ms)
    if not gathered.held and not table.has_holds() and not state.kept:
        round_.wakes_ms.append(gathered.wake_ms)
        return
    while table.hold_nodes(_classes(gathered)) and (more := board.place(now_ms, state.policy.ageing_ms)):
        placements += more  # Somebody could use what is held no longer.
        gathered = _gather(state, board, placements, now_ms)
    if gathered.held:
        lasting: dict[tuple[str, str], int] = {}

        def lasts_ms(name: str, stage: str) -> int:
            key = name, stage
            if key not in lasting:
                lasting[key] = estimate_of(state.jobs[name], stage_of(state.jobs[name], stage))
            return lasting[key]

        placements += lend_all(board, gathered.held, gathered.owed, now_ms, lasts_ms)
    round_.held += _said_of(state, table, gathered.held)
    round_.wakes_ms.append(gathered.wake_ms)


def _classes(gathered: _Nodes) -> dict[int, TaskClass]:
    return {number: reserved.task for number, reserved in gathered.held.items()}


class _Kept:
    """Nodes that are held since the last round. `before`: by class and node, for how many of its tasks, negative where
    they are late; `by_node`: the class; `said`: by node, what was said of it.
    """

    def __init__(self, state: State, board: Board, now_ms: int) -> None:
        self.before: dict[int, dict[int, int]] = {}
        self.by_node: dict[int, TaskClass] = {}
        self.said: dict[int, HeldRoom] = {}
        table = board.node_table
        for name, said in state.kept.items():
            number = table.find(name)
            if number is not None:
                task = task_class_of(board, said)
                self.said[number], self.by_node[number] = said, task
                is_late = said.complete_ms is not None and said.complete_ms < now_ms
                self.before.setdefault(task.index, {})[number] = -said.tasks if is_late else said.tasks


def _wait_ms(state: State) -> int:
    """For how long a leaf or a class waits at most before room is gathered for it."""
    return 0 if state.policy.headroom == "always" else state.policy.headroom_after_ms


def _gather(state: State, board: Board, placements: list[Placement], now_ms: int) -> _Nodes:
    if state.policy.headroom == "off" or not PRESETS[state.policy.preset].has_queues:
        return _NO_NODES
    fresh = [name for name in board.changed_leaves() if name not in state.short]
    leaves = board.leaves_of([*state.short, *fresh])
    short_leaves = [leaf for leaf in leaves if is_lacking(board, leaf)]
    kept = _Kept(state, board, now_ms)
    heads: Heads = {}  # Nothing is placed while room is gathered.
    starved = _starved_heads(state, board, placements, kept.before, heads, now_ms)
    if not short_leaves and not starved:
        return _NO_NODES
    least = least_needs(board, [placement.task for placement in placements], heads)
    wants = _wanted(state, board, least, short_leaves, starved, kept.before, heads, now_ms)
    held = _nodes_for(state, board, wants, kept, Running(state, board, placements, now_ms), {})
    for number, reserved in held.items():
        said = kept.said.get(number)
        if said is not None and said.tasks <= reserved.tasks and kept.by_node[number] is reserved.task:
            reserved.promised_ms = reserved.promised_ms if said.complete_ms is None else said.complete_ms
    has_room = {reserved.task.index: True for reserved in held.values()}
    owed = [wanted.task for wanted in wants if not wanted.starves and wanted.task.index not in has_room]
    return _Nodes(held, _wake_ms(state, wants, short_leaves, now_ms), owed)


def _wake_ms(state: State, wants: list[Wanted], leaves: list[LeafEntry], now_ms: int) -> int | None:
    """When more room may be held without another fact: a wait will have been long enough, or a leaf has its turn."""
    wakes = [state.turns[leaf.name] for leaf in leaves if not _has_turn(state, leaf, now_ms)]
    for wanted in wants:
        if wanted.next_ms is not None:
            wait_ms = -(-(wanted.next_ms - wanted.since_ms) // (IDLE_PARTS + 1))
            wakes.append(wanted.since_ms + max(1, min(wait_ms, _wait_ms(state))))
    return min([at_ms for at_ms in wakes if at_ms > now_ms], default=None)


def _has_turn(state: State, leaf: LeafEntry, now_ms: int) -> bool:
    """Whether a leaf may have a gang that takes it beyond its due: what it is due has paid for those before."""
    return state.turns.get(leaf.name, now_ms) <= now_ms


def turn_after(state: State, leaf: LeafEntry, work: int, now_ms: int) -> int:
    """When a leaf has its turn again after gangs have started in it that will do so much `work` (share units x ms):
    what it is due takes so long to do as much. What it was short of before counts, up to as much again. At the latest
    after `headroom_after_ms`, as estimates may be wrong.
    """
    lasts_ms = work // max(1, leaf.own_level or 0)
    turn_ms = state.turns.get(leaf.name, state.short.get(leaf.name, now_ms))
    return min(max(turn_ms, now_ms - lasts_ms) + lasts_ms, now_ms + _wait_ms(state))


def _nodes_for(
    state: State,
    board: Board,
    wants: list[Wanted],
    kept: _Kept,
    running: Running,
    others: dict[int, TaskClass],
) -> dict[int, HeldNode]:
    """Nodes to hold, beside `others`: as many as the policy allows. One that is held for a class is not taken for one
    that comes before it here, unless only that one is owed its room.
    """
    table = board.node_table
    most = max(1, len(table) * state.policy.headroom_nodes_permille // 1_000) - len(others)
    held: dict[int, HeldNode] = {}
    later = {wanted.task.index: wanted.owed for wanted in wants}
    for wanted in wants:
        index = wanted.task.index
        del later[index]
        if len(held) < most:
            taken = dict.fromkeys([*others, *held], True)
            for number, other in kept.by_node.items():
                if other.index in later and later[other.index] >= wanted.owed:
                    taken[number] = True
            before = kept.before.get(index, {})
            held |= gather(table, wanted, running.now_ms, running.ends, before, taken, most - len(held))
    return held


def _wanted(
    state: State,
    board: Board,
    least: dict[int, int] | None,
    leaves: list[LeafEntry],
    starved: list[tuple[int, TaskClass]],
    before: dict[int, dict[int, int]],
    heads: Heads,
    now_ms: int,
) -> list[Wanted]:
    """What room is to be gathered for: what leaves lack, largest deficit first, then one class that starves. `least`:
    the least that those ask for who could take the room (None: anything); a class that had room held `before` keeps it
    in any case.
    """
    wants: dict[int, Wanted] = {}
    for leaf in sorted(leaves, key=lambda leaf: (not leaf.is_owed, -shortfall(leaf), leaf.name)):
        since_ms = state.short.get(leaf.name, now_ms)
        for lacked in wanted_by(board, leaf, least, before, heads, its_turn=_has_turn(state, leaf, now_ms)):
            task = lacked.task
            wanted = wants.setdefault(task.index, Wanted(task, 0, since_ms))
            wanted.tasks = min(task.waiting, wanted.tasks + lacked.tasks)
            wanted.own = min(wanted.tasks, wanted.own + lacked.own)
            wanted.since_ms = min(wanted.since_ms, since_ms)
            wanted.leaves[leaf.name] = True
            wanted.owed = wanted.owed or leaf.is_owed
    chosen = choose(
        [(since_ms, task) for since_ms, task in starved if task.index in before or is_exposed(task, least)], before
    )
    if chosen is not None and chosen[1].index not in wants:
        since_ms, task = chosen
        wanted = Wanted(task, max(1, task.gang), since_ms, starves=True)
        wanted.of_own = aged_since(board, task) is not None
        wanted.leaves = {leaf: True for leaf, _ in task.buckets}
        wants[task.index] = wanted
    for wanted in wants.values():
        wanted.soon_ms = now_ms + state.policy.headroom_after_ms
        waited_ms = now_ms - wanted.since_ms
        if waited_ms >= _wait_ms(state):
            wanted.until_ms = _ANY_MS
        elif waited_ms:  # Else it has cost nothing yet.
            wanted.until_ms = now_ms + waited_ms * IDLE_PARTS
    return list(wants.values())


def _starved_heads(
    state: State,
    board: Board,
    placements: list[Placement],
    before: dict[int, dict[int, int]],
    heads: Heads,
    now_ms: int,
) -> list[tuple[int, TaskClass]]:
    """Classes that are kept out of a leaf that would serve them next, with the time since which none of them has
    started, or a job has waited that has aged. Only those: a class that waits for its turn is not kept out, nor is one
    that waits for something else than room (a node that could hold it at all, say).
    """
    placed = {placement.task.index: True for placement in placements}
    found: list[tuple[int, TaskClass]] = []
    lacking = {task.index: task for task in [*blocked_heads(board, heads), *begun_for(board, before)]}
    for task in lacking.values():
        if reason_of(board, task, heads) not in WANTS_ROOM:
            continue
        aged_ms = aged_since(board, task)
        if aged_ms is None and (
            task.index in placed or (task.index not in before and _waits_for_turn(state, board, task, now_ms))
        ):
            continue
        since_ms = state.starved.get(task.key, now_ms)
        found.append((since_ms if aged_ms is None else min(aged_ms, since_ms), task))
    return found


def _waits_for_turn(state: State, board: Board, task: TaskClass, now_ms: int) -> bool:
    """Whether gangs of a class wait only in leaves that have started gangs while they were short, and no such leaf has
    its turn, or the last gang of the class is expected to run still: then room is gathered by what the leaf lacks.
    """
    if not task.gang or any(name not in state.turns for name, _ in task.buckets):
        return False
    if all(state.turns[name] > now_ms for name, _ in task.buckets):
        return True
    job, span = first_in_path(board, task)
    live = state.jobs[job.name]
    return now_ms < state.starved.get(task.key, now_ms) + estimate_of(live, stage_of(live, span.stage))


def _said_of(state: State, table: NodeTable, held: dict[int, HeldNode]) -> list[HeldRoom]:
    """Where the room that is held has changed, by name of the node."""
    after: dict[str, HeldRoom] = {}
    for number, reserved in held.items():
        task, name = reserved.task, table.node(number).name
        room = {kind: amount * reserved.tasks for kind, amount in task.demand.items()}
        why: HoldReason = "gang" if task.gang else "headroom"
        after[name] = HeldRoom(
            name, why, room, task.demand, task.labels, task.prefer, task.gang, reserved.tasks, reserved.promised_ms
        )
        after[name].rules = rules_said(task)
    gone = {name: HeldRoom(name, said.why, {}) for name, said in state.kept.items() if name not in after}
    changed = {name: one for name, one in after.items() if state.kept.get(name) != one}
    return [one for _, one in sorted({**gone, **changed}.items())]
