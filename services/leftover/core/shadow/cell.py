"""When jobs will end in the shadow cluster (cluster.py): with the remaining work, the order of `largesse` (keys.py).

The base of the shadow follows log time. After each arrival or change of capacity a copy of it runs ahead, at most
`shadow_steps` steps a round, to see when all jobs end. Until a job's end is seen, the one seen before counts, or else
an estimate from its work.
"""

from dataclasses import dataclass

from largesse.lifecycle.queue_policy import Group
from largesse.lifecycle.run_times import expected_ms
from schemas import Queue, Vector
from schemas.quantities import largest_share
from services.leftover.core.job import Job, leaf_path
from services.leftover.core.shadow.cluster import advance, arrive, forget, fork, leave
from services.leftover.core.shadow.keys import (
    AT_ONCE,
    LAST,
    RENEWED_PART,
    RESTS,
    STALE,
    claim,
    claim_moved,
    note_size,
    renew,
    work_left,
)
from services.leftover.core.shadow.state import LINE, NOWHERE, Cluster, Lines, Shadow
from services.leftover.core.shadow.works import estimate_ms, measure, run_of, work_of
from services.leftover.placement.board import Board
from services.leftover.placement.task_span import TaskSpan

SHADOW_JOBS_MAX = 10_000
"""So many jobs are in the shadow at a time. The others join it in order of admission as jobs end there, and are served
after those that are in it."""

EACH_ANEW = 256
"""With so many jobs in the shadow at most it is looked ahead again whenever one comes or leaves early; of those beyond,
once a part of them has (MOVED_PART). Among thousands of jobs one more moves the ends of the others by little, and to
see them again takes a step for each."""

MOVED_PART = 4


@dataclass(slots=True)
class ShadowCell(Shadow):
    """The shadow as the rest of the core sees it: told of capacity and jobs, it says which job is served first.

    A `board` that is passed learns of each key that changes; `groups` say by queue whose jobs are one list.
    """

    # ------------------------------------------------------------ what the log tells
    def resize(self, before: Vector, after: Vector) -> None:
        """A node has another capacity: that of a node which is not there is empty."""
        for vector, sign in ((before, -1), (after, 1)):
            for kind, amount in vector.items():
                self.capacity[kind] = self.capacity.get(kind, 0) + sign * amount
        self.resized = True

    def join(self, name: str, job: Job, groups: dict[str, Group], time: int, board: Board | None) -> None:
        """A job may run from now on."""
        if self._is_full():
            self.outside[job.admitted] = name
            return
        work = work_of(name, leaf_path(groups, job), job, time)
        measure(self, work)
        self.works[job.admitted] = work
        note_size(self, work)
        self.arrivals.append((time, job.admitted))
        self.ends[job.admitted] = STALE | time + max(work.path_ms, default=0)
        claim(self, job, time, board)

    def depart(self, job: Job, *, succeeded: bool = False, returns: bool = False) -> None:
        """A job is over, or a user holds or moves it (`returns`). One that has succeeded stays until it ends here: the
        share it would have used until then determines who is served before whom.
        """
        seq = job.admitted
        if self.outside:
            self.outside.pop(seq, None)
        if self.ends.pop(seq, None) is None:
            return
        self.ranked.pop(seq, None)
        del self.claims[seq]
        if succeeded and seq in self.base.runs:
            return
        if seq in self.base.runs:
            if returns:
                forget(self, seq)
            leave(self, seq)
            self.moved += 1
        else:
            self.arrivals = [arrival for arrival in self.arrivals if arrival[1] != seq]
        del self.works[seq]

    def stir(self, job: Job) -> None:
        """Something has happened to a job, so that it may ask for more: if its key rests, the next opening computes
        it.
        """
        known = self.claims.get(job.admitted)
        if known is not None:
            known.stirred = True
            if known.renew_ms == RESTS:
                known.renew_ms = AT_ONCE
                self.renewals.add(AT_ONCE, job.admitted)

    def note_work(self, job: Job) -> None:
        """Tasks of a job have ended, or have to be done again: the next opening computes its key if that matters."""
        known = self.claims.get(job.admitted)
        if known is None or known.renew_ms == AT_ONCE:
            return
        work, known.stirred = work_left(self, job), True
        if known.renew_ms == RESTS or work > known.work or (known.work - work) * RENEWED_PART >= known.work:
            known.renew_ms = AT_ONCE
            self.renewals.add(AT_ONCE, job.admitted)

    def note_duration(self, job: Job, at: int) -> None:
        """More is known of how long the tasks of a stage take."""
        work = self.works.get(job.admitted)
        if work is not None:
            work.lasts_ms[at] = expected_ms(job.graph.stages[at], job.seen)

    # ------------------------------------------------------------ a round opens
    def move(self, jobs: dict[str, Job], groups: dict[str, Group], steps: int, time: int, board: Board | None) -> None:
        """Follows log time, and looks ahead, in `steps` at most."""
        changed: dict[int, bool] = {}  # Jobs with another end than was known.
        resized = self.resized
        if resized:
            _resize(self)
        while self.outside and not self._is_full():
            name = self.outside.pop(next(iter(self.outside)))
            self.join(name, jobs[name], groups, time, board)
        steps = _follow(self, self.tree, time, steps, changed)
        if steps > 0 and self.moved > max(0, len(self.base.runs) - EACH_ANEW) // MOVED_PART:
            _look_anew(self)
        elif self.ahead is not None and self.ahead.now_ms <= self.base.now_ms:
            self.ahead = fork(self.base)  # The base has come as far, and may have forgotten jobs that ended.
        _look_ahead(self, steps, changed)
        for seq in list(self.ends) if resized else changed:
            if resized:
                claim(self, jobs[self.works[seq].name], time, board)
            else:
                claim_moved(self, seq, jobs, time, board)
        renew(self, jobs, time, board)

    # ------------------------------------------------------------ what it says
    def knows(self, job: Job) -> bool:
        """Whether a job has joined and not departed, even if there is no place for it yet."""
        return job.admitted in self.ends or job.admitted in self.outside

    def key_of(self, job: Job) -> int:
        """What a job is served by, least first."""
        known = self.claims.get(job.admitted)
        return LAST if known is None else known.key

    def longest_first(self, job: Job, spans: list[TaskSpan]) -> None:
        """Sorts what a job waits for: the stage with the longest way to the end of the job first."""
        work = self.works.get(job.admitted)
        if work is not None:
            path_ms = work.path_ms
            spans.sort(key=lambda span: -path_ms[span.stage_at])

    def _is_full(self) -> bool:
        return len(self.base.runs) + len(self.arrivals) >= SHADOW_JOBS_MAX


# ---------------------------------------------------------------- log time and ahead of it
def _follow(shadow: Shadow, tree: Queue | None, time: int, steps: int, changed: dict[int, bool]) -> int:
    """Brings the base up to log time; how many steps are left, 0 where it has not got there."""
    base = shadow.base
    while True:
        until_ms = min(time, shadow.arrivals[0][0]) if shadow.arrivals else time
        seen: list[tuple[int, int]] = []
        steps = advance(shadow, base, tree, until_ms, steps, seen)
        _note_seen(shadow, seen, changed)
        if steps <= 0:
            return 0
        base.now_ms = max(base.now_ms, until_ms)
        if not shadow.arrivals:
            return steps
        come = 0
        while come < len(shadow.arrivals) and shadow.arrivals[come][0] <= until_ms:
            seq = shadow.arrivals[come][1]
            arrive(shadow, seq, run_of(shadow, shadow.works[seq]))
            come += 1
        for _, seq in shadow.arrivals[:come]:
            shadow.ends[seq] = STALE | base.now_ms + estimate_ms(shadow, shadow.works[seq])
            changed[seq] = True
        shadow.arrivals, shadow.moved = shadow.arrivals[come:], shadow.moved + come


def _look_anew(shadow: Shadow) -> None:
    """What was seen ahead may no longer be right. The old results are used until new ones are found."""
    shadow.moved = 0
    waits, ranked = shadow.base.waits, shadow.ranked
    shadow.ahead = fork(shadow.base) if waits else None
    for seq in list(waits if len(waits) < len(ranked) else ranked):  # Others end when they have been seen to.
        if seq in waits and ranked.pop(seq, False):
            shadow.ends[seq] |= STALE


def _look_ahead(shadow: Shadow, steps: int, changed: dict[int, bool]) -> None:
    """Sees when more jobs end."""
    ahead = shadow.ahead
    if steps <= 0 or ahead is None:
        return
    seen: list[tuple[int, int]] = []
    if advance(shadow, ahead, shadow.tree, None, steps, seen) > 0:
        shadow.ahead = None  # It has seen all.
    _note_seen(shadow, seen, changed, shadow.base.waits)


def _note_seen(
    shadow: Shadow, seen: list[tuple[int, int]], changed: dict[int, bool], among: dict[int, bool] | None = None
) -> None:
    """It is known when these jobs end, as far as they are `among` some (None: all)."""
    ends, ranked = shadow.ends, shadow.ranked
    for end_ms, seq in seen:
        before = ends.get(seq)
        if before is None or (among is not None and seq not in among):
            continue
        if before != end_ms:
            ends[seq], changed[seq] = end_ms, True
        ranked[seq] = True


def _resize(shadow: Shadow) -> None:
    """The cell has another capacity: all that follows from it is worked out again."""
    shadow.resized, shadow.moved, shadow.ahead = False, SHADOW_JOBS_MAX, None
    kinds = sorted([kind for kind, amount in shadow.capacity.items() if amount > 0])
    shadow.kinds, shadow.total = kinds, [shadow.capacity[kind] for kind in kinds]
    shadow.capacity = {kind: shadow.capacity[kind] for kind in kinds}
    for work in shadow.works.values():
        measure(shadow, work)
        note_size(shadow, work)
    base = shadow.base
    running: dict[int, dict[int, int]] = {}
    for _, seq, stage, count in base.running:
        stages = running.setdefault(seq, {})
        stages[stage] = stages.get(stage, 0) + count
    _line_up(shadow, base, running)


def _line_up(shadow: Shadow, base: Cluster, running: dict[int, dict[int, int]]) -> None:
    """Puts all jobs in line again; `running`: by job and stage, the tasks of it that run."""
    base.free, base.lines, base.leaves = shadow.total.copy(), {}, None
    for seq, run in base.runs.items():
        work = shadow.works[seq]
        line = base.lines.get(work.leaf)
        if line is None:
            line = base.lines[work.leaf] = Lines([], [[] for _ in shadow.kinds], [0] * len(shadow.kinds))
        run.held = [0] * len(shadow.kinds)
        for stage, count in running.get(seq, {}).items():
            for p, amount in work.needs[stage]:
                run.held[p] += amount * count
        for p, amount in enumerate(run.held):
            base.free[p] -= amount
            line.held[p] += amount
        run.share, line.share = largest_share(run.held, shadow.total), largest_share(line.held, shadow.total)
        line.live += 1
        run.at = LINE if run.ready else NOWHERE
        if run.ready:
            line.turn.append((run.share, seq))
    for line in base.lines.values():
        line.turn.sort()
    base.open = base.weighs = True
