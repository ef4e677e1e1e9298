"""Copies of stragglers: the last step of a round, in room that no waiting task can use.

A task that has run for longer than `speculation_permille` of the median of its stage is a straggler; a second attempt
of it starts on another node where there is room (Dean and Ghemawat, MapReduce, OSDI 2004, section 3.6; nodes on which
stragglers run are tried last, after LATE: Zaharia et al., OSDI 2008).

A copy never starts on a node where a waiting class would find room if there were no copies. Where copies run and such a
class comes to wait, copies are killed, those that lose the least work first. So copies delay waiting tasks only by the
time that it takes to kill one.
"""

from dataclasses import dataclass, field
from typing import Final

from largesse.lifecycle.task_keys import index_of
from schemas import Revocation
from services.leftover.core.board import stage_class
from services.leftover.core.copies.overdue import stragglers
from services.leftover.core.reservations.runs import lent_of
from services.leftover.core.round import Round
from services.leftover.core.state import Allocation
from services.leftover.placement.backfill.timeline import could_hold
from services.leftover.placement.fits import members
from services.leftover.placement.pending_reasons import WANTS_ROOM, reason_of, short
from services.leftover.placement.placements import Placement
from services.leftover.placement.promised import Space, by_position
from services.leftover.placement.task_class import NodeRoom, TaskClass
from services.leftover.placement.user_limits import free_places

TRIED_MAX: Final = 200
"""Stragglers that a round looks for room for; those that are overdue by most come first."""


@dataclass(slots=True)
class _OnNode:
    """The copies on a node: those that run, as (lost work, key, allocation), and what those hold that are ending."""

    live: list[tuple[int, str, Allocation]] = field(default_factory=list)
    ending: list[Allocation] = field(default_factory=list)


def speculate(round_: Round, *, may_start: bool) -> None:
    """Takes copies back that somebody who waits needs the room of, then starts others. `may_start`: nothing is promised
    to reservations.
    """
    state, board = round_.state, round_.board
    late, wake_ms = stragglers(state, round_.now_ms)
    round_.wakes_ms.append(wake_ms)
    if not late and not state.copied:
        return
    room = _Room(round_)
    room.take_back(round_.revoked)
    room.give_way(round_.revoked)
    if not may_start or round_.table.slots:
        return
    slow = {straggler.run.node: True for straggler in late}
    begun: dict[str, int] = {}
    full: dict[int, bool] = {}  # Classes that found no node.
    for straggler in late[:TRIED_MAX]:
        name, job = straggler.job, state.jobs[straggler.job]
        there = len(state.copied.get(name, ())) + begun.get(name, 0)
        if there >= state.policy.speculation_copies_max or board.limits.maxima_above(job.queue):
            continue
        places = board.limits.places_of(job.queue, job.user)
        if not free_places(places, 1) or any(entry.held_back for entry in places):
            continue
        stage = job.graph.stages[straggler.at]
        task = stage_class(state, board, name, job, stage, straggler.index)
        key = f"{name}/{stage.stage}/{straggler.index}"
        number = None if task.index in full else room.best(task, key, slow)
        if number is None:
            full[task.index] = True
            continue
        devices = board.start_copy(task, number, job.queue, job.user)
        placement = Placement(
            name, stage.stage, straggler.index, 1, straggler.run.attempt + 1, number, True, task,
            [devices] if task.gpu else [], job.queue, job.user,
        )  # fmt: skip
        placement.copy = placement.revocable = True
        round_.placements.append(placement)
        begun[name] = begun.get(name, 0) + 1


# ---------------------------------------------------------------- where there is room
class _Room:
    """Nodes as far as copies go: what those hold that run or are ending, and who else could use it."""

    def __init__(self, round_: Round) -> None:
        state, board, revoked = round_.state, round_.board, round_.revoked
        self._state, self._board, self._table, self._now_ms = state, board, round_.table, round_.now_ms
        waiting = [task for task in short(board) if reason_of(board, task) in WANTS_ROOM]
        self._waiting = sorted(waiting, key=lambda task: task.key)
        self._copies: dict[str, _OnNode] = {}
        self._contested: dict[int, bool] = {}
        gone = {f"{r.node}/{r.job}/{r.stage}/{i}": True for r in revoked for i in range(r.first, r.first + r.count)}
        for name, tasks in state.copied.items():
            for task, copied in tasks.items():
                for node in copied.nodes:
                    if node != copied.counted:
                        self._note(node, f"{name}/{task}", not copied.counted or f"{node}/{name}/{task}" in gone)

    def _note(self, node: str, key: str, is_ending: bool) -> None:
        held, lent = self._state.held[node][key], lent_of(self._state, node, key)
        on_node = self._copies.setdefault(node, _OnNode())
        if is_ending or lent is None or lent.taken or held.job not in self._state.jobs:
            on_node.ending.append(held)
        else:
            lost = self._table.share_of(held.demand) * (self._now_ms - held.start_ms)
            on_node.live.append((lost, key, held))

    def _space(self, node: NodeRoom, ending: list[Allocation]) -> Space:
        """What is free on a node once these attempts have ended."""
        space = Space(list(node.free), list(node.devices))
        for held in ending:
            self._add(space, node, held)
        return space

    def _add(self, space: Space, node: NodeRoom, held: Allocation, sign: int = 1) -> None:
        devices = [(share.index, share.milli) for share in held.devices] if held.devices else []
        space.add(self._table.pairs(held.demand), by_position(node, devices), sign)

    def take_back(self, revoked: list[Revocation]) -> None:
        """Copies whose room a class that waits could use, and those on nodes where room is gathered."""
        wanted = {task.index: task.waiting for task in self._waiting}
        for name, on_node in self._copies.items():
            number = self._table.find(name)
            if not on_node.live or number is None:
                continue
            node = self._table.node(number)
            space = self._space(node, on_node.ending)
            on_node.live.sort(key=lambda copy: copy[:2])
            for task in self._waiting:
                while wanted[task.index] and could_hold(self._table, task, node) and node.kept in (None, task):
                    if not space.fits(task):
                        chosen = self._chosen(node, on_node, space, task)
                        if not chosen:
                            break
                        for copy in chosen:
                            self._revoke(node, on_node, copy, space, revoked)
                    space.take(task)
                    wanted[task.index] -= 1
            if node.kept is not None:
                for copy in list(on_node.live):
                    self._revoke(node, on_node, copy, space, revoked)

    def give_way(self, revoked: list[Revocation]) -> None:
        """Takes back copies of users of whom tasks wait for others to end: a copy for each, the least lost work first
        on a node.
        """
        board = self._board
        if not board.limits.has_users():
            return
        wanted: dict[tuple[str, str], int] = {}
        for on_node in self._copies.values():
            for held in on_node.ending:
                for entry in board.limits.places_of(held.queue, held.user):
                    key = entry.path, entry.user
                    wanted[key] = wanted.get(key, entry.held_back) - 1
        for name, on_node in self._copies.items():
            number = self._table.find(name)
            if number is None:
                continue
            for copy in sorted(on_node.live, key=lambda each: each[:2]):
                entries = board.limits.places_of(copy[2].queue, copy[2].user)
                keys = {(entry.path, entry.user): entry.held_back for entry in entries}
                if any(wanted.get(key, held_back) > 0 for key, held_back in keys.items()):
                    node = self._table.node(number)
                    self._revoke(node, on_node, copy, self._space(node, on_node.ending), revoked)
                    for key, held_back in keys.items():
                        wanted[key] = wanted.get(key, held_back) - 1

    def _chosen(
        self, node: NodeRoom, on_node: _OnNode, space: Space, task: TaskClass
    ) -> list[tuple[int, str, Allocation]]:
        """The copies that have to end for one task more: the least lost work first, none that is not needed."""
        space, chosen = space.copy(), []
        for copy in on_node.live:
            self._add(space, node, copy[2])
            chosen.append(copy)
            if space.fits(task):
                break
        else:
            return []
        for copy in list(reversed(chosen)):
            self._add(space, node, copy[2], -1)
            if space.fits(task):
                chosen.remove(copy)
            else:
                self._add(space, node, copy[2])
        return chosen

    def _revoke(
        self,
        node: NodeRoom,
        on_node: _OnNode,
        copy: tuple[int, str, Allocation],
        space: Space,
        revoked: list[Revocation],
    ) -> None:
        _, key, held = copy
        on_node.live.remove(copy)
        on_node.ending.append(held)
        self._add(space, node, held)
        lent = lent_of(self._state, node.name, key)
        assert lent is not None, f"{key}: a copy that is not revocable"
        index = index_of(key)
        revoked.append(Revocation(held.job, held.stage, index, 1, lent.attempt, node.name, node.epoch))

    def best(self, task: TaskClass, key: str, slow: dict[str, bool]) -> int | None:
        """The node where a copy of a task starts; `key`: of the task, whose other attempts run elsewhere."""
        table, best, least = self._table, None, (False, 0)
        for number in members(table.candidates(task)):
            node = table.node(number)
            if node.kept is not None or key in self._state.held.get(node.name, {}) or self._is_contested(number):
                continue
            rank = table.suits(task, node)
            if rank is not None and (best is None or (node.name in slow, rank) < least):
                best, least = number, (node.name in slow, rank)
        return best

    def _is_contested(self, number: int) -> bool:
        """Whether a class that waits could start on a node if no copies were there."""
        known = self._contested.get(number)
        if known is None:
            table, node = self._table, self._table.node(number)
            there = self._copies.get(node.name, _OnNode())
            space = self._space(node, [*there.ending, *[held for _, _, held in there.live]])
            known = any(could_hold(table, task, node) and space.fits(task) for task in self._waiting)
            self._contested[number] = known
        return known
