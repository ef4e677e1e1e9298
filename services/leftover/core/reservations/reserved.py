"""Tasks of jobs with an accepted reservation: within the promise they start before all others, beyond it after all
others. They are not on the board, since what they get does not depend on who else waits.
"""

from dataclasses import dataclass, field

from largesse.lifecycle.promises import active, earlier_parts, serves
from largesse.lifecycle.task_keys import stage_in
from schemas import PlanProfile, Stage, StageAsk, Vector
from schemas.estimates import end_ms
from services.leftover.core.asks import asks_of
from services.leftover.core.board import estimate_of, is_reserved, stage_class, stage_of
from services.leftover.core.job import Job
from services.leftover.core.reservations.runs import lent_of
from services.leftover.core.state import Reserving, State
from services.leftover.placement.board import Board
from services.leftover.placement.placements import Placement
from services.leftover.placement.task_class import TaskClass
from services.leftover.placement.user_limits import free_places


@dataclass(slots=True, eq=False)
class Span:
    """Tasks of a stage that a reserved job asks for and that have not been placed in this round. `parts`: the same as
    (first, count, attempt), in the order in which they were asked for. Gangs of a promise are counted over all of them:
    retries, and asks of other kinds, must not take tasks of one gang apart.
    """

    job: str
    stage: Stage
    task: TaskClass
    count: int = 0
    parts: list[tuple[int, int, int]] = field(default_factory=list)

    def take(self, count: int) -> list[tuple[int, int, int]]:
        """Takes off the first tasks, as (first, count, attempt)."""
        taken: list[tuple[int, int, int]] = []
        self.count -= count
        while count:
            first, have, attempt = self.parts[0]
            some = min(count, have)
            taken.append((first, some, attempt))
            self.parts[:1] = [(first + some, have - some, attempt)] if some < have else []
            count -= some
        return taken


@dataclass(slots=True, eq=False)
class Claim:
    """Tasks, `width` of which start together, that have a lease now or within the grace and no room yet. `rest`: less
    than a gang, beside units of the lease that run still: what is free is kept for them, and nothing taken back.
    """

    task: TaskClass
    count: int
    width: int
    reservation: str
    rest: bool = False


@dataclass(slots=True, eq=False)
class Purse:
    """What is promised to a reservation at a time, and what of it tasks hold: in all, and by part of the reservation
    that jobs are bound to.
    """

    profile: PlanProfile
    at_ms: int
    held: dict[str, Vector] = field(default_factory=dict)

    def add(self, part: str, demand: Vector, count: int) -> None:
        """So many tasks more of jobs bound to a part hold something."""
        for name in {part: True, "": True}:
            vector = self.held.setdefault(name, {})
            for kind, amount in demand.items():
                vector[kind] = vector.get(kind, 0) + amount * count

    def most(self, part: str, demand: Vector, count: int) -> int:
        """How many tasks more, up to `count`, are inside the promise."""
        for name in {part: True, "": True}:
            promised: Vector = {}
            for step in active(self.profile.steps, self.at_ms):
                if serves(step.atom, name):
                    for kind, amount in step.usage.items():
                        promised[kind] = promised.get(kind, 0) + amount
            held = self.held.get(name, {})
            for kind, amount in demand.items():
                if amount:
                    count = min(count, max(0, promised.get(kind, 0) - held.get(kind, 0)) // amount)
        return count

    def width(self, part: str) -> int:
        """How many tasks start together: the gang of what is promised to a part; 1 where its leases differ in that."""
        gangs = {step.gang: True for step in active(self.profile.steps, self.at_ms) if serves(step.atom, part)}
        return next(iter(gangs)) if len(gangs) == 1 else 1


class ReservedJobs:
    """The live jobs of accepted reservations in one round, by order of admission."""

    def __init__(self, state: State, board: Board, asked: dict[str, list[StageAsk]], now_ms: int) -> None:
        """`asked`: what jobs ask for that ask for something else than before."""
        self._asked = asked
        self._state, self._board, self._now_ms = state, board, now_ms
        named = [(state.jobs[name].admitted, name) for name in state.reserving if is_reserved(state, name)]
        self.jobs: dict[str, list[str]] = {}  # By reservation.
        for _, name in sorted(named):
            self.jobs.setdefault(state.reserving[name].reservation, []).append(name)
        self.placed: list[Placement] = []
        self._parts: dict[tuple[str, str], list[str]] = {}  # By reservation and part, those that come before it.
        self._spans = [span for names in self.jobs.values() for name in names for span in self._spans_of(name)]

    def _spans_of(self, name: str) -> list[Span]:
        job, asked = self._state.jobs[name], self._asked.get(name)
        found: dict[str, Span] = {}
        for ask in asks_of(job) if asked is None else asked:
            if ask.stage not in found:
                found[ask.stage] = self._span(name, job, ask.stage)
            span = found[ask.stage]
            span.count += ask.count
            span.parts.append((ask.first, ask.count, ask.attempt))
        return list(found.values())

    def _span(self, name: str, job: Job, of: str) -> Span:
        stage = stage_of(job, of)
        return Span(name, stage, stage_class(self._state, self._board, name, job, stage, -1))

    # ------------------------------------------------------------ what is promised
    def purse(self, profile: PlanProfile, at_ms: int) -> Purse:
        """What is promised at a time, and what of it is held by tasks that run now and still do then."""
        purse = Purse(profile, at_ms)
        for name in self.jobs.get(profile.reservation, []):
            reserving = self._state.reserving[name]
            for stage, tasks in self._running(name, reserving, at_ms).items():
                purse.add(reserving.atom, stage_of(self._state.jobs[name], stage).demand, tasks)
        for placement in self.placed:
            reserving = self._state.reserving[placement.job]
            if reserving.reservation == profile.reservation and self.end_of(placement) > at_ms:
                purse.add(reserving.atom, placement.task.demand, placement.count)
        return purse

    def held_at(self, reservation: str, at_ms: int) -> Vector:
        """What tasks of a reservation hold now and are expected to hold at a time still."""
        found: Vector = {}
        for name in self.jobs.get(reservation, []):
            for stage, tasks in self._running(name, self._state.reserving[name], at_ms).items():
                for kind, amount in stage_of(self._state.jobs[name], stage).demand.items():
                    found[kind] = found.get(kind, 0) + amount * tasks
        return found

    def reservation_of(self, name: str) -> str:
        """The reservation of a job."""
        return self._state.reserving[name].reservation

    def _running(self, name: str, reserving: Reserving, at_ms: int) -> dict[str, int]:
        """By stage, how many tasks of a job run and are expected to run at a time."""
        found: dict[str, int] = {}
        for run, node in reserving.runs.items():
            stage = stage_in(run)
            held = self._state.held[node][f"{name}/{run}"]
            lent = lent_of(self._state, node, f"{name}/{run}")
            if (lent is None or not lent.taken) and self._ends(name, stage, held.start_ms) > at_ms:
                found[stage] = found.get(stage, 0) + 1
        return found

    def _ends(self, name: str, stage: str, start_ms: int) -> int:
        job = self._state.jobs[name]
        return max(self._now_ms + 1, end_ms(start_ms, estimate_of(job, stage_of(job, stage)), self._now_ms))

    def end_of(self, placement: Placement) -> int:
        """When tasks that start in this round are expected to end."""
        job = self._state.jobs[placement.job]
        return self._now_ms + estimate_of(job, stage_of(job, placement.stage))

    def is_early(self, name: str, at_ms: int) -> bool:
        """Whether a job has to wait for what the reservation puts before it: for its own first lease, and for jobs that
        serve an earlier part (RDL's `order`).
        """
        reserving = self._state.reserving[name]
        profile = self._state.promises.profiles[reserving.reservation]
        job = self._state.jobs[name]
        has_begun = bool(reserving.runs) or job.progress.left != job.graph.tasks
        if not profile.order or not reserving.atom or has_begun:
            return False
        parts = self._earlier(profile, reserving.atom)
        if not parts:
            return False
        begins = [step.from_ms for step in profile.steps if serves(step.atom, reserving.atom)]
        if begins and min(begins) > at_ms:
            return True
        others = [self._state.reserving[other].atom for other in self.jobs[reserving.reservation] if other != name]
        return any(atom and serves(atom, part) for atom in others for part in parts)

    def _earlier(self, profile: PlanProfile, part: str) -> list[str]:
        key = profile.reservation, part
        if key not in self._parts:
            self._parts[key] = earlier_parts(profile.order, part)
        return self._parts[key]

    # ------------------------------------------------------------ inside the promise
    def start(self) -> list[Placement]:
        """Places what is inside the promises of now, as far as there is room."""
        purses = {name: self.purse(self._state.promises.profiles[name], self._now_ms) for name in self.jobs}
        for span in self._spans:
            reserving = self._state.reserving[span.job]
            purse = purses[reserving.reservation]
            count = purse.most(reserving.atom, span.task.demand, span.count)
            if count and not self.is_early(span.job, self._now_ms):
                width = self._width(span, purse, reserving.atom)
                placed = self._place(span, count, width, reserved=True)
                purse.add(reserving.atom, span.task.demand, placed)
        return self.placed

    def _width(self, span: Span, purse: Purse, part: str) -> int:
        if span.stage.gang:
            return span.count
        return min(span.count, purse.width(part))  # Of a gang that has begun, the rest starts by itself.

    def _place(self, span: Span, count: int, width: int, *, reserved: bool) -> int:
        """Starts tasks of a span, `width` at a time; returns how many."""
        done = 0
        for number, devices in self._board.start_outside(span.task, count, width).items():
            self._note(span, number, devices, reserved=reserved)
            done += len(devices)
        return done

    def _note(self, span: Span, number: int, devices: list[list[tuple[int, int]]], *, reserved: bool) -> None:
        job, task = self._state.jobs[span.job], span.task
        begin = 0
        for first, count, attempt in span.take(len(devices)):
            shares = devices[begin : begin + count] if task.gpu else []
            begin += count
            placement = Placement(
                span.job,
                span.stage.stage,
                first,
                count,
                attempt,
                number,
                not reserved,
                task,
                shares,
                job.queue,
                job.user,
            )
            placement.reserved = reserved
            self.placed.append(placement)
        self._board.hold(span.job, task.pairs, len(devices), job.queue)
        self._board.count_attempts(job.queue, job.user, len(devices))

    def claims(self, until_ms: int) -> list[Claim]:
        """What is inside the promises of now, or of the moments up to a time, and has found no room yet. Of a gang some
        of whose units run, room that has come free is kept until there is enough for the next: lent out, it would be
        taken back at once.
        """
        starts = [at_ms for at_ms in self._state.promises.starts if self._now_ms < at_ms <= until_ms]
        claimed = [0] * len(self._spans)
        widths = [1] * len(self._spans)
        rests = [0] * len(self._spans)
        for at_ms in [self._now_ms, *starts]:
            purses = {name: self.purse(self._state.promises.profiles[name], at_ms) for name in self.jobs}
            for i, span in enumerate(self._spans):
                reserving = self._state.reserving[span.job]
                if not span.count or self.is_early(span.job, at_ms):
                    continue
                purse = purses[reserving.reservation]
                width = self._width(span, purse, reserving.atom)
                most = purse.most(reserving.atom, span.task.demand, span.count)
                count = most // width * width
                if at_ms == self._now_ms and not span.stage.gang and purse.held.get(reserving.atom):
                    rests[i] = most - count
                purse.add(reserving.atom, span.task.demand, count + rests[i] * (at_ms == self._now_ms))
                if count > claimed[i]:
                    claimed[i], widths[i] = count, width
        of = [self.reservation_of(span.job) for span in self._spans]
        whole = [Claim(span.task, claimed[i], widths[i], of[i]) for i, span in enumerate(self._spans) if claimed[i]]
        return whole + [
            Claim(span.task, rests[i], 1, of[i], rest=True) for i, span in enumerate(self._spans) if rests[i]
        ]

    # ------------------------------------------------------------ beyond the promise
    def start_beyond(self) -> list[Placement]:
        """Places what is left of the jobs where there is room that nobody else can use."""
        before = len(self.placed)
        for span in self._spans:
            if span.count and not self.is_early(span.job, self._now_ms):
                count = self._below_maxima(span)
                if count:
                    self._place(span, count, span.count if span.stage.gang else 1, reserved=False)
        return self.placed[before:]

    def _below_maxima(self, span: Span) -> int:
        """How many tasks of a span leave all queues above within their maxima, and their user within its limits."""
        job = self._state.jobs[span.job]
        entries = self._board.limits.maxima_above(job.queue)
        count = free_places(self._board.limits.places_of(job.queue, job.user), span.count)
        if span.stage.gang and count < span.count:
            return 0
        while count and not all(entry.has_room(span.task.pairs, count) for entry in entries):
            count = 0 if span.stage.gang else count // 2
        return count
