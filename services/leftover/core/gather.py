"""From what leftover keeps to the room that a round gathers, and to what it says of it."""

from dataclasses import dataclass
from typing import Final

from schemas import HeldRoom, Vector
from schemas.estimates import end_ms
from schemas.grants import HoldReason
from services.leftover.core.board import estimate_of, leaf_of, rules_said, stage_of, task_class_of
from services.leftover.core.state import Allocation, State
from services.leftover.placement.board import Board, Placement
from services.leftover.placement.headroom import (
    Wanted,
    blocked_heads,
    choose,
    gather,
    is_exposed,
    lacking,
    lacks_part_of_gang,
    least_needs,
    shortfall,
    wanted_by,
)
from services.leftover.placement.leaf_queue import LeafEntry
from services.leftover.placement.lending import lend_all
from services.leftover.placement.pending_reasons import WANTS_ROOM, reason_of, short
from services.leftover.placement.task_class import TaskClass
from services.leftover.placement.timeline import End, Reserved

OVERRUN_MOST: Final = 2
"""A task that runs on is expected to end at any moment until it has run so many times as long as it was expected to."""


@dataclass(slots=True, eq=False)
class Gathered:
    """What a round says of room that is gathered: where that is another than before, and when another answer may come
    without another fact (ms).
    """

    held: list[HeldRoom]
    wake_ms: int | None

    def __init__(self, held: list[HeldRoom], wake_ms: int | None) -> None:
        self.held = held
        self.wake_ms = wake_ms


@dataclass(slots=True, eq=False)
class _Nodes:
    """Nodes to hold, by number, and when others may be without another fact (ms)."""

    held: dict[int, Reserved]
    wake_ms: int | None

    def __init__(self, held: dict[int, Reserved], wake_ms: int | None) -> None:
        self.held = held
        self.wake_ms = wake_ms


_NO_NODES = _Nodes({}, None)


def hold_for_gangs(state: State, board: Board, now_ms: int) -> None:
    """Before anything is placed: keeps room for gangs of leaves that are known to be short. A gang cannot start in the
    room of one of its leaf's tasks that ends, so that others would take it at once. Single tasks that are short come
    first, since they can; nodes that are held for others stay so. What the last round has tried does not count here.
    """
    leaves = [board.leaves[name] for name in state.short if name in board.leaves]
    if not any(leaf.gangs for leaf in leaves):
        return
    board.refresh()
    if not any(lacks_part_of_gang(board, leaf) for leaf in leaves):
        return
    since_ms = now_ms - _wait_ms(state)
    waited = [leaf for leaf in lacking(board, list(state.short), state.short) if state.short[leaf.name] <= since_ms]
    wants = _wanted(board, None, waited, [], {})
    wants.sort(key=lambda wanted: wanted.task.gang > 0)
    wanted_for = {wanted.task.index: True for wanted in wants}
    kept = _Kept(state, board, now_ms)
    others = {n: board.classes[index] for n, index in kept.by_node.items() if index not in wanted_for}
    others = {number: task for number, task in others.items() if task.waiting}
    held = _nodes_for(state, board, wants, kept, _Running(state, board, [], now_ms), others)
    board.room.keep(others | {number: reserved.task for number, reserved in held.items()})


def hold(state: State, board: Board, placements: list[Placement], now_ms: int) -> Gathered:
    """Gathers room, once `placements` are made, and lends out what is held meanwhile. Appends what it places."""
    gathered = _gather(state, board, placements, now_ms)
    if not gathered.held and not board.room.kept_nodes and not state.kept:
        return Gathered([], gathered.wake_ms)
    while board.room.keep(_classes(gathered)) and (more := board.place(now_ms, state.policy.ageing_ms)):
        placements += more  # Somebody could use what is held no longer.
        gathered = _gather(state, board, placements, now_ms)
    if gathered.held:
        lasting: dict[tuple[str, str], int] = {}

        def lasts_ms(name: str, stage: str) -> int:
            key = name, stage
            if key not in lasting:
                lasting[key] = estimate_of(state.jobs[name], stage_of(state.jobs[name], stage))
            return lasting[key]

        placements += lend_all(board, gathered.held, now_ms, lasts_ms)
    return Gathered(_said_of(state, board, gathered.held), gathered.wake_ms)


def _classes(gathered: _Nodes) -> dict[int, TaskClass]:
    return {number: reserved.task for number, reserved in gathered.held.items()}


class _Kept:
    """Nodes that are held since the last round. `before`: by class and node, for how many of its tasks, negative where
    they are late; `by_node`: the class; `said`: by node, what was said of it.
    """

    def __init__(self, state: State, board: Board, now_ms: int) -> None:
        self.before: dict[int, dict[int, int]] = {}
        self.by_node: dict[int, int] = {}
        self.said: dict[int, HeldRoom] = {}
        for name, said in state.kept.items():
            if name in board.room.number:
                number, index = board.room.number[name], task_class_of(board, said).index
                self.said[number], self.by_node[number] = said, index
                is_late = said.complete_ms is not None and said.complete_ms < now_ms
                self.before.setdefault(index, {})[number] = -said.tasks if is_late else said.tasks


def _wait_ms(state: State) -> int:
    """For how long a leaf or a class waits before room is gathered for it."""
    return 0 if state.policy.headroom == "always" else state.policy.headroom_after_ms


def _gather(state: State, board: Board, placements: list[Placement], now_ms: int) -> _Nodes:
    if state.policy.headroom == "off" or state.policy.preset == "fifo":
        return _NO_NODES
    after_ms = _wait_ms(state)
    short_leaves, next_short_ms = _short_leaves(state, board, now_ms, now_ms - after_ms)
    starved, next_starved_ms = _starved_heads(state, board, placements, now_ms, now_ms - after_ms)
    least_ms = next_short_ms
    if least_ms is None or (next_starved_ms is not None and next_starved_ms < least_ms):
        least_ms = next_starved_ms
    wake_ms = None if least_ms is None else least_ms + after_ms
    if not short_leaves and not starved:
        return _Nodes({}, wake_ms)
    kept = _Kept(state, board, now_ms)
    least = least_needs([*short(board), *(placement.task for placement in placements)])
    wants = _wanted(board, least, short_leaves, starved, kept.before)
    held = _nodes_for(state, board, wants, kept, _Running(state, board, placements, now_ms), {})
    for number, reserved in held.items():
        said = kept.said.get(number)
        if said is not None and said.tasks <= reserved.tasks and kept.by_node[number] == reserved.task.index:
            reserved.promised_ms = reserved.promised_ms if said.complete_ms is None else said.complete_ms
    return _Nodes(held, wake_ms)


def _nodes_for(
    state: State,
    board: Board,
    wants: list[Wanted],
    kept: _Kept,
    running: "_Running",
    others: dict[int, TaskClass],
) -> dict[int, Reserved]:
    """Nodes to hold, beside `others`: as many as the policy allows. One that is held for a class is not taken for one
    that comes before it here.
    """
    most = max(1, len(board.room.nodes) * state.policy.headroom_nodes_permille // 1_000) - len(others)
    held: dict[int, Reserved] = {}
    later = {wanted.task.index: True for wanted in wants}
    for wanted in wants:
        index = wanted.task.index
        del later[index]
        if len(held) < most:
            taken = dict.fromkeys([*others, *held], True)
            taken.update({number: True for number, other in kept.by_node.items() if other in later})
            before = kept.before.get(index, {})
            held |= gather(board.room, wanted, running.now_ms, running.ends, before, taken, most - len(held))
    return held


def _wanted(
    board: Board,
    least: dict[int, int] | None,
    leaves: list[LeafEntry],
    starved: list[tuple[int, TaskClass]],
    before: dict[int, dict[int, int]],
) -> list[Wanted]:
    """What room is to be gathered for: what leaves lack, largest deficit first, then one class that starves. `least`:
    the least that those ask for who could take the room (None: anything); a class that had room held `before` keeps it
    in any case.
    """
    wants: dict[int, Wanted] = {}
    for leaf in sorted(leaves, key=lambda leaf: (-shortfall(leaf), leaf.name)):
        for lacked in wanted_by(board, leaf, least, before):
            task = lacked.task
            wanted = wants.setdefault(task.index, Wanted(task, 0))
            wanted.tasks = min(task.waiting, wanted.tasks + lacked.tasks)
            wanted.own = min(wanted.tasks, wanted.own + lacked.own)
            wanted.leaves[leaf.name] = True
    chosen = choose(
        [(since_ms, task) for since_ms, task in starved if task.index in before or is_exposed(task, least)], before
    )
    if chosen is not None and chosen.index not in wants:
        wanted = Wanted(chosen, max(1, chosen.gang), starves=True)
        wanted.leaves = {leaf: True for leaf, _ in chosen.buckets}
        wants[chosen.index] = wanted
    return list(wants.values())


def _short_leaves(state: State, board: Board, now_ms: int, since_ms: int) -> tuple[list[LeafEntry], int | None]:
    """Leaves that have been short since then or longer, and since when the next has been."""
    next_ms: int | None = None
    found: list[LeafEntry] = []
    fresh = [name for name in board.leaf_queue.changed if name not in state.short]
    for leaf in lacking(board, [*state.short, *fresh], state.short):
        from_ms = state.short.get(leaf.name, now_ms)
        if from_ms <= since_ms:
            found.append(leaf)
        elif next_ms is None or from_ms < next_ms:
            next_ms = from_ms
    return found, next_ms


def _starved_heads(
    state: State, board: Board, placements: list[Placement], now_ms: int, since_ms: int
) -> tuple[list[tuple[int, TaskClass]], int | None]:
    """Classes that are kept out of a leaf that would serve them next, and of which nothing has started since then or
    longer, as (since ms, class); and since when the next has waited. Only those: a class that waits for its turn is not
    kept out, nor is one that waits for something else than room (a node that could hold it at all, say).
    """
    placed = {placement.task.index: True for placement in placements}
    next_ms: int | None = None
    found: list[tuple[int, TaskClass]] = []
    for task in blocked_heads(board):
        if reason_of(board, task) not in WANTS_ROOM:
            continue
        from_ms = now_ms if task.index in placed else state.starved.get(task.key, now_ms)
        if from_ms <= since_ms:
            found.append((from_ms, task))
        elif next_ms is None or from_ms < next_ms:
            next_ms = from_ms
    return found, next_ms


@dataclass(slots=True, eq=False)
class _Alike:
    """Tasks of one stage: what one asks for, also as (resource position, amount), and what it is expected to take in
    all; None: their job is over.
    """

    demand: Vector
    pairs: list[tuple[int, int]]
    lasts_ms: int | None

    def __init__(self, demand: Vector, pairs: list[tuple[int, int]], lasts_ms: int | None) -> None:
        self.demand = demand
        self.pairs = pairs
        self.lasts_ms = lasts_ms


class _Running:
    """What runs on nodes, with what this round has placed there, by its estimated ends."""

    def __init__(self, state: State, board: Board, placements: list[Placement], now_ms: int) -> None:
        self._state, self._board, self.now_ms = state, board, now_ms
        self._held: dict[int, list[tuple[Allocation, End]]] = {}  # By node, worked out when it is first looked at.
        self._alike: dict[tuple[str, str], _Alike] = {}  # By job and stage.
        self._placed: dict[int, list[Placement]] = {}
        for placement in placements:
            self._placed.setdefault(placement.node, []).append(placement)

    def ends(self, number: int, wanted: Wanted) -> list[End]:
        """In order of time; without the tasks that are the class's own, unless they count, too."""
        state, now_ms = self._state, self.now_ms
        found = [end for held, end in self._held_on(number) if self._gives_room(held, wanted)]
        for p in self._placed.get(number, []):
            job = state.jobs[p.job]
            own = p.task is wanted.task if wanted.task.gang else p.task.demand == wanted.task.demand
            of_leaves = leaf_of(state, job) in wanted.leaves
            if wanted.of_own and of_leaves if own else wanted.starves or not of_leaves:
                lasts_ms = estimate_of(job, stage_of(job, p.stage))
                for i in range(p.count):
                    found.append(End(now_ms + lasts_ms, p.task.pairs, p.devices[i] if p.devices else []))
        found.sort(key=lambda end: end.at_ms)
        return found

    def _held_on(self, number: int) -> list[tuple[Allocation, End]]:
        """What ran on the node before this round, with its estimated end."""
        known = self._held.get(number)
        if known is None:
            known = []
            for held in self._state.held.get(self._board.room.nodes[number].name, {}).values():
                devices = [(share.index, share.milli) for share in held.devices] if held.devices else []
                alike = self._alike_of(held)
                known.append((held, End(self._end_of(held.start_ms, alike.lasts_ms), alike.pairs, devices)))
            self._held[number] = known
        return known

    def _gives_room(self, held: Allocation, wanted: Wanted) -> bool:
        """Whether what this task gives back counts as room to gather: where possible only what tasks of leaves that
        hold more than they are due give back.
        """
        task = wanted.task
        if held.demand == task.demand and (not task.gang or self._is_of(held, task)):
            group = self._state.groups.get(held.queue)
            return wanted.of_own and group is not None and group.path in wanted.leaves
        group = self._state.groups.get(held.queue)
        if group is None:
            return True
        if group.path in wanted.leaves:
            return wanted.starves
        leaf = self._board.leaf(group.path)
        return wanted.of_all or leaf.due is None or leaf.share > leaf.due

    def _is_of(self, held: Allocation, task: TaskClass) -> bool:
        """Whether a task with the demand of a gang's class is of that class."""
        job = self._state.jobs.get(held.job)
        stage = stage_of(job, held.stage) if job is not None else None
        return stage is not None and stage.gang and stage.tasks == task.gang and stage.labels == task.labels

    def _alike_of(self, held: Allocation) -> _Alike:
        """What is known of the tasks of a stage."""
        key = held.job, held.stage
        alike = self._alike.get(key)
        if alike is None or alike.demand is not held.demand:  # Another job may have the name by now.
            job = self._state.jobs.get(held.job)
            lasts_ms = None if job is None else estimate_of(job, stage_of(job, held.stage))
            alike = self._alike[key] = _Alike(held.demand, self._board.room.pairs(held.demand), lasts_ms)
        return alike

    def _end_of(self, start_ms: int, lasts_ms: int | None) -> int:
        now_ms = self.now_ms
        if lasts_ms is None:
            return now_ms  # The job is over, and what runs of it is being killed.
        if start_ms + lasts_ms < now_ms <= start_ms + OVERRUN_MOST * lasts_ms:
            return now_ms  # It may end at any moment: to go elsewhere would be to begin anew.
        return end_ms(start_ms, lasts_ms, now_ms)


def _said_of(state: State, board: Board, held: dict[int, Reserved]) -> list[HeldRoom]:
    """Where the room that is held is another than before, by name of the node."""
    after: dict[str, HeldRoom] = {}
    for number, reserved in held.items():
        task, name = reserved.task, board.room.nodes[number].name
        room = {kind: amount * reserved.tasks for kind, amount in task.demand.items()}
        why: HoldReason = "gang" if task.gang else "headroom"
        after[name] = HeldRoom(
            name, why, room, task.demand, task.labels, task.prefer, task.gang, reserved.tasks, reserved.promised_ms
        )
        after[name].rules = rules_said(task)
    gone = {name: HeldRoom(name, said.why, {}) for name, said in state.kept.items() if name not in after}
    changed = {name: one for name, one in after.items() if state.kept.get(name) != one}
    return [one for _, one in sorted({**gone, **changed}.items())]
