"""What does not start in a round, since it is foreseen that a promise will need its room (docs/reservations.md).

A task that says how long it runs, or of which that is known, starts on no room that a lease needs before it ends. One
of which nothing is known starts, and is taken to need longer with each time that it was taken back. Other nodes are
tried before a task is refused, and who is refused leaves the round, so that it stands in nobody's way: it is *barred*.

What was said to wait is barred from the beginning of the next round on, unless some node could run a task of it by
then. Of one class of tasks, who needs longer than one that is barred is barred, too: so the shortest are looked at
first, and the first that no node could run settles it for the others. Who never came to be placed is not looked at.
"""

from bisect import bisect_right
from typing import Final

from largesse.lifecycle.promises import active
from largesse.lifecycle.run_times import known_ms
from schemas import PromisedWait, StageAsk
from services.leftover.core.asks import asks_of, without
from services.leftover.core.backfill.gather import gather_room
from services.leftover.core.board import spans_of, stage_class, stage_of
from services.leftover.core.reservations.promises import Kept
from services.leftover.core.reservations.revocable import UNKNOWN_MS, Moments
from services.leftover.core.round import Round
from services.leftover.placement.backfill.timeline import could_hold, fits_now
from services.leftover.placement.placements import Placement
from services.leftover.placement.promised import PromisedNodes, empty
from services.leftover.placement.task_class import TaskClass

BACK_OFF_MS: Final = 60_000
"""What a task of unknown length that was taken back is taken to need beyond what it has run; doubled each time."""

DOUBLINGS_MAX: Final = 20
GAPS_MAX: Final = 64
"""So many leases ahead are looked at for the first gap in which a task could run."""


class Foresight:
    """Judges what starts in one round."""

    def __init__(self, round_: Round, kept: Kept) -> None:
        self._round, self._state, self._board, self._now_ms = round_, round_.state, round_.board, round_.now_ms
        self.kept = kept
        self._moments = Moments(self._state, self._board, kept.reserved, self._now_ms)
        self._refused: dict[tuple[str, str], int] = {}  # By job and stage, the moment that is in the way.
        self._barred: dict[str, dict[str, int]] = {}  # By job, the same of all that leave the round.
        self._moved: dict[str, bool] | None = None  # Jobs of which other stages are barred than the board knows.
        self._placed: dict[str, list[Placement]] = {}
        self._stops: dict[tuple[int, int, int], int | None] = {}  # By class and moments, as of `stop_of`.
        self.undone = False  # Something that the board has placed was, so that there may be room for others.
        self._full: dict[tuple[int, int], bool] = {}  # By class and time.
        for placement in kept.reserved.placed:
            needs_ms = self.needs_ms(placement.job, placement.stage)
            self._moments.count(placement, UNKNOWN_MS if needs_ms is None else self._now_ms + needs_ms)

    # ------------------------------------------------------------ what a task needs
    def needs_ms(self, name: str, stage: str) -> int | None:
        """For how long a task has to have its room, as far as that is known; None: it may be taken back at any time.
        `UNKNOWN_MS`: as long as there are promises.
        """
        says = self._state.revocable.get(name, "auto")
        if says == "always":
            return None
        job = self._state.jobs[name]
        lasts_ms = known_ms(stage_of(job, stage), job.seen)
        if lasts_ms is None and says == "never":
            return UNKNOWN_MS
        lost = self._state.taken_back.get(f"{name}/{stage}")
        if lost is None or lasts_ms is not None:
            return lasts_ms
        return lost.longest_ms + (BACK_OFF_MS << min(lost.times - 1, DOUBLINGS_MAX))

    def would_start(self, name: str, stage: str, number: int) -> bool:
        """Whether a task could start on a node once the grace is over that tasks have which are taken back there."""
        needs_ms, first = self.needs_ms(name, stage), self._first(name)
        if needs_ms is None:
            return True
        job = self._state.jobs[name]
        task = stage_class(self._state, self._board, name, job, stage_of(job, stage), -1)
        end = self._moments.before(self._now_ms + self._state.policy.revoke_grace_ms + needs_ms)
        return end <= first or self._moments.stop_on(number, task, first, end) is None

    def _first(self, name: str) -> int:
        """The first moment that counts for a job: that something is promised now does not say that it is needed."""
        return 0 if self._state.revocable.get(name) == "never" else 1

    # ------------------------------------------------------------ before tasks are placed
    def bar(self) -> None:
        """Takes what is barred off the board, and puts back what is no longer."""
        self.undone = False
        board, state = self._board, self._state
        if self._moved is None:
            self._bar_again()
            self._moved = dict.fromkeys([*self._barred, *board.barred.by_job], True)
        moved, self._moved = self._moved, {}
        for name in moved:
            barred = dict.fromkeys(self._barred.get(name, ()), True)
            if board.has_job(name) and board.barred.bar(name, barred):
                board.wait(name, spans_of(state, board, name, state.jobs[name], self._asks(name)))

    def _bar_again(self) -> None:
        """Bars what was said to wait, if it waits still and no node could run a task of it."""
        groups: dict[tuple[int, int], list[tuple[int, int, int, str, str]]] = {}
        for said in self._state.promised.values():
            name, stage = said.job, said.stage
            needs_ms = self.needs_ms(name, stage) if self._board.has_job(name) else None
            if needs_ms is not None and any(ask.stage == stage for ask in self._asks(name)):
                job = self._state.jobs[name]
                at = job.graph.position[stage]
                task = stage_class(self._state, self._board, name, job, job.graph.stages[at], -1)
                groups.setdefault((task.index, self._first(name)), []).append((needs_ms, job.admitted, at, name, stage))
        for group in groups.values():
            stop: int | None = None
            for _, _, _, name, stage in sorted(group):
                if stop is None:
                    stop = self._stop_of(name, stage)
                if stop is not None:
                    self._bar(name, stage, stop)

    def _bar(self, name: str, stage: str, stop: int) -> None:
        self._barred.setdefault(name, {})[stage] = stop
        if self._moved is not None:
            self._moved[name] = True

    def _refuse(self, name: str, stage: str, stop: int) -> None:
        self._refused[name, stage] = stop
        self._bar(name, stage, stop)

    def _asks(self, name: str) -> list[StageAsk]:
        asks = self._round.asked.get(name)
        if asks is None:
            asks = asks_of(self._state.jobs[name])
        for placement in self._placed.get(name, ()):
            asks = without(asks, placement.stage, placement.first, placement.count)
        return asks

    def _stop_of(self, name: str, stage: str) -> int | None:
        """The moment that keeps tasks of a stage from all nodes; None: some node could run one."""
        needs_ms = self.needs_ms(name, stage)
        first = self._first(name)
        end = 0 if needs_ms is None else self._moments.before(self._now_ms + needs_ms)
        if end <= first:
            return None
        job = self._state.jobs[name]
        task = stage_class(self._state, self._board, name, job, stage_of(job, stage), -1)
        key = task.index, first, end
        if key not in self._stops:
            self._stops[key] = self._moments.stop_of(task, first, end)
        return self._stops[key]

    # ------------------------------------------------------------ once they are
    def place(self) -> None:
        """Places what may start: until nothing that is placed would be taken back for a promise."""
        ageing_ms = self._state.policy.ageing_ms
        self.bar()
        while more := self._board.place(self._now_ms, ageing_ms):
            self._round.placements += self.judge(more)
            if not self.undone:
                break
            self.bar()

    def judge(self, placements: list[Placement]) -> list[Placement]:
        """Those of some placements that start, if need be on other nodes. The others are undone, and their stages wait
        for another round.
        """
        gangs: dict[tuple[str, str], list[Placement]] = {}
        for placement in placements:
            if placement.task.gang:
                gangs.setdefault((placement.job, placement.stage), []).append(placement)
        starting: list[Placement] = []
        for placement in placements:
            key = placement.job, placement.stage
            if not placement.task.gang:
                starting += self._judged(placement)
            elif key in gangs:
                starting += self._judged_gang(gangs.pop(key))
        self._stops = {}  # What starts takes room of moments.
        for placement in starting:
            self._placed.setdefault(placement.job, []).append(placement)
        return starting

    def _judged_gang(self, placements: list[Placement]) -> list[Placement]:
        """All placements of a gang, or none."""
        kept = self._moments.kept()
        parts = [part for placement in placements for part in self._judged(placement)]
        if (placements[0].job, placements[0].stage) not in self._refused:
            return parts
        for part in parts:
            self._board.unplace(part)
        self._moments.put_back(kept)
        return []

    def _judged(self, placement: Placement) -> list[Placement]:
        """Those tasks of a placement that start, by node. What is refused is undone."""
        name, stage, task = placement.job, placement.stage, placement.task
        needs_ms, first = self.needs_ms(name, stage), self._first(name)
        if needs_ms is None:
            self._moments.count(placement, UNKNOWN_MS)
            return [placement]
        end = self._moments.before(self._now_ms + needs_ms)
        if end <= first:
            return [placement]
        stays = 0
        while stays < placement.count and self._takes(placement.node, task, first, end):
            stays += 1
        parts = [_part(placement, 0, stays)] if stays else []
        for i in range(stays, placement.count):
            alone = _part(placement, i, 1)
            number = self._other_node(alone, first, end)
            if number is None:
                self._board.unplace(_part(placement, i, placement.count - i))
                stop = self._moments.stop_on(placement.node, task, first, end)
                self._refuse(name, stage, first if stop is None else stop)
                self.undone = True
                break
            self._move(alone, number)
            parts.append(alone)
        return parts

    def _takes(self, number: int, task: TaskClass, first: int, end: int) -> bool:
        """Counts one task on a node, if that leaves room for every promise."""
        if self._moments.stop_on(number, task, first, end) is not None:
            return False
        self._moments.take(number, task, first, end)
        return True

    def _other_node(self, placement: Placement, first: int, end: int) -> int | None:
        """Another node where a task has room now and leaves enough for every promise, the best of them."""
        table, task = self._round.table, placement.task
        ranked = [
            (rank, number)
            for number, node in enumerate(table.nodes)
            if number != placement.node
            and fits_now(table, task, node)
            and (rank := table.suits(task, node)) is not None
        ]
        for _, number in sorted(ranked):
            if self._takes(number, task, first, end):
                return number
        return None

    def _move(self, placement: Placement, number: int) -> None:
        self._board.move(placement, number)
        self.undone = True

    def gather_room(self) -> None:
        """Gathers room as in any round, and judges what starts on what is held."""
        placements = self._round.placements
        before = len(placements)
        gather_room(self._round)
        if len(placements) > before:
            placements[before:] = self.judge(placements[before:])
            self.bar()

    # ------------------------------------------------------------ what is said of it
    def said(self) -> list[PromisedWait]:
        """Stages for which that changed since it was said last, by job and stage."""
        state, found = self._state, {}
        for name in list(self._board.barred.by_job):
            for stage in self._board.barred.stages(name) or ():
                key = f"{name}/{stage}"
                before = state.promised.get(key)
                if before is not None and (name, stage) not in self._refused and self._stands(before):
                    continue
                wait = self._wait_of(name, stage)
                if before is not None:
                    wait.fits_ms = before.fits_ms
                if wait != before:
                    wait.fits_ms = self._fits_ms(name, stage, wait)
                    found[key] = wait
        for key, before in state.promised.items():
            if before.stage not in (self._board.barred.stages(before.job) or ()):
                found[key] = PromisedWait(before.job, before.stage)
        return [found[key] for key in sorted(found)]

    def _stands(self, said: PromisedWait) -> bool:
        """Whether the lease that was said to stand in the way is still to come, or holds."""
        return said.until_ms > self._now_ms and said.reservation in self._state.promises.profiles

    def _wait_of(self, name: str, stage: str) -> PromisedWait:
        """What a stage waits for."""
        state, job = self._state, self._state.jobs[name]
        task = stage_class(state, self._board, name, job, stage_of(job, stage), -1)
        lease = self._moments.lease_of(self._moments.need(self._barred[name][stage]), task)
        assert lease is not None, f"{name}/{stage}: nothing that is promised stands in its way"
        lost, needs_ms = state.taken_back.get(f"{name}/{stage}"), self.needs_ms(name, stage)
        wait = PromisedWait(name, stage, lease.reservation, lease.from_ms, lease.to_ms)
        wait.needs_ms = None if needs_ms == UNKNOWN_MS else needs_ms
        wait.taken_back = 0 if lost is None else lost.times
        return wait

    def _fits_ms(self, name: str, stage: str, wait: PromisedWait) -> int | None:
        """When a task of a stage could start at the earliest by what is promised, if nothing else ran."""
        state, job = self._state, self._state.jobs[name]
        task, starts = stage_class(state, self._board, name, job, stage_of(job, stage), -1), state.promises.starts
        needs_ms = UNKNOWN_MS if wait.needs_ms is None else wait.needs_ms
        after = bisect_right(starts, self._now_ms)
        fits_ms, last_ms = self._now_ms, self._now_ms
        for at_ms in [self._now_ms, *starts[after : after + GAPS_MAX]]:
            if at_ms >= fits_ms + needs_ms:
                return fits_ms
            if self._is_full(task, at_ms):
                fits_ms = max(fits_ms, self._over_ms(at_ms))
            last_ms = max(last_ms, at_ms)
        return fits_ms if len(starts) > after + GAPS_MAX or fits_ms <= last_ms else None

    def _over_ms(self, at_ms: int) -> int:
        """When the last of the leases that hold at a time is over."""
        profiles = self._state.promises.profiles.values()
        return max([step.to_ms for profile in profiles for step in active(profile.steps, at_ms)], default=at_ms)

    def _is_full(self, task: TaskClass, at_ms: int) -> bool:
        """Whether what is promised at a time leaves no node room for a task, whatever else runs."""
        key = task.index, at_ms
        if key not in self._full:
            table = self._round.table
            moment = PromisedNodes(table, at_ms, lambda number: empty(table.node(number)))
            for profile in self._state.promises.profiles.values():
                for step in active(profile.steps, at_ms):
                    moment.promise(self._board.classes.class_for(step.unit, {}, {}, 0), step.units)
            nodes = [number for number, node in enumerate(table.nodes) if could_hold(table, task, node)]
            self._full[key] = not any(moment.accept(number, task, keep=False) for number in nodes)
        return self._full[key]


def _part(placement: Placement, begin: int, count: int) -> Placement:
    """Some of the tasks of a placement."""
    part = Placement(
        placement.job, placement.stage, placement.first + begin, count, placement.attempt, placement.node,
        placement.beyond, placement.task, placement.devices[begin : begin + count], placement.queue,
        placement.user,
    )  # fmt: skip
    part.reserved = placement.reserved
    return part
