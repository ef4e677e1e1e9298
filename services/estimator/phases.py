"""Phases of a job, seen from when its tasks start and end (DRESS, algorithms 1 and 2; docs/concepts/dress.md).

A phase starts with the first start after a window without any, and has started fully when a window passes without a
start: from its first to its last start is its starting variation. It begins to give capacity back with the earliest
finish inside the first window that has more finishes than a threshold, so that a short, *heading* task does not bring
that moment forward. Tasks that still run when finishes have stopped for a window are *trailing*: they count to the next
phase.

Thresholds adapt to phases of fewer tasks than they are, or small jobs would never be seen: a threshold is at most half
of the tasks that a phase has, or while it starts may have, rounded down.
"""

from dataclasses import dataclass, field

from schemas.quantities import Vector


@dataclass(slots=True)
class Windows:
    """The window in milliseconds, and how many starts, or finishes, inside one make a phase start, or give back."""

    window_ms: int
    start_tasks: int
    end_tasks: int

    def __init__(self, window_ms: int, start_tasks: int, end_tasks: int) -> None:
        self.window_ms = window_ms
        self.start_tasks = start_tasks
        self.end_tasks = end_tasks


@dataclass(slots=True)
class Phase:
    """`tasks` belong to it, `finished` of them have; `total` and `given_back`: what they ask for together, and those
    asked for. `expected`: how many tasks it may have, by the stages in it (`stages`, their positions). `release_ms`:
    since when it gives back; None: not yet. `starts`, `finishes`: the latest ones, oldest first, while they may still
    decide.
    """

    number: int
    start_ms_first: int
    start_ms_last: int
    tasks: int = 0
    finished: int = 0
    total: Vector = field(default_factory=dict)
    given_back: Vector = field(default_factory=dict)
    expected: int = 0
    stages: list[int] = field(default_factory=list)
    started: bool = False
    release_ms: int | None = None
    finish_ms_last: int = 0
    starts: list[int] = field(default_factory=list)
    finishes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class JobPhases:
    """The phases of a job that have tasks, oldest first; `number`: of the last one; `trailing` tasks with `total`, of
    phases that are over, wait for the next phase.
    """

    phases: list[Phase] = field(default_factory=list)
    number: int = 0
    trailing: int = 0
    total: Vector = field(default_factory=dict)


@dataclass(slots=True)
class Ramp:
    """What a phase gives back: `total` from `release_ms` on, over `spread_ms`, less what was `given_back`."""

    total: Vector
    given_back: Vector
    release_ms: int
    spread_ms: int


def begin(job: JobPhases, at_ms: int, stage: int, left: int, demand: Vector, windows: Windows) -> int:
    """A task of a stage starts, of which `left` tasks have not started before. Returns the number of its phase."""
    phase = job.phases[-1] if job.phases else None
    if phase is None or at_ms - phase.start_ms_last >= windows.window_ms:
        phase = _next_phase(job, at_ms, windows)
    if stage not in phase.stages:
        phase.stages.append(stage)
        phase.expected += max(1, left)
    phase.tasks += 1
    phase.start_ms_last = at_ms
    _add(phase.total, demand, 1)
    if not phase.started:
        threshold = _threshold(phase, at_ms, windows.start_tasks, windows.window_ms)
        phase.started = _in_window(phase.starts, at_ms, threshold, windows.window_ms) is not None
        if phase.started:
            phase.starts = []
    return phase.number


def finish(job: JobPhases, number: int, at_ms: int, demand: Vector, windows: Windows) -> None:
    """A task of the phase `number` has succeeded."""
    _roll(job, at_ms, windows)
    phase = _phase_of(job, number)
    if phase is None:
        _leave_trailing(job, demand)
        return
    phase.finished += 1
    phase.finish_ms_last = at_ms
    _add(phase.given_back, demand, 1)
    if phase.release_ms is None:
        threshold = _threshold(phase, at_ms, windows.end_tasks, windows.window_ms)
        phase.release_ms = _in_window(phase.finishes, at_ms, threshold, windows.window_ms)
        if phase.release_ms is not None:
            phase.finishes = []
    _drop_if_over(job, phase)


def leave(job: JobPhases, number: int, demand: Vector) -> None:
    """A task of the phase `number` has ended without success: what it shows of the phase is nothing."""
    phase = _phase_of(job, number)
    if phase is None:
        _leave_trailing(job, demand)
        return
    phase.tasks -= 1
    _add(phase.total, demand, -1)
    _drop_if_over(job, phase)


def ramps(job: JobPhases, now_ms: int, windows: Windows) -> list[Ramp]:
    """What the job's phases give back from now on, by what was seen until now."""
    found: list[Ramp] = []
    carried: Vector = {}
    for phase in job.phases:
        total = phase.total
        if carried:
            total = dict(total)
            _add(total, carried, 1)
            carried = {}
        if is_trailing(phase, now_ms, windows.window_ms):
            carried = {kind: amount - phase.given_back.get(kind, 0) for kind, amount in total.items()}
        elif phase.release_ms is not None and has_started(phase, now_ms, windows.window_ms):
            found.append(Ramp(total, phase.given_back, phase.release_ms, variation_ms(phase)))
    return found


def next_change_ms(job: JobPhases, now_ms: int, windows: Windows) -> int | None:
    """When `ramps` says something else without another start or end, because a window has passed."""
    found: int | None = None
    for phase in job.phases:
        at_ms = None
        if phase.release_ms is not None and phase.finished < phase.tasks:
            at_ms = phase.finish_ms_last + windows.window_ms
            if not has_started(phase, now_ms, windows.window_ms):
                at_ms = min(at_ms, phase.start_ms_last + windows.window_ms)
        if at_ms is not None and at_ms > now_ms and (found is None or at_ms < found):
            found = at_ms
    return found


def variation_ms(phase: Phase) -> int:
    """The starting variation, so far."""
    return phase.start_ms_last - phase.start_ms_first


def has_started(phase: Phase, now_ms: int, window_ms: int) -> bool:
    """More starts than the threshold were seen inside a window, or it has all the tasks that it will have."""
    return phase.started or now_ms - phase.start_ms_last >= window_ms


def is_trailing(phase: Phase, now_ms: int, window_ms: int) -> bool:
    """Its finishes have stopped for a window while tasks remain."""
    return phase.release_ms is not None and phase.finished < phase.tasks and now_ms - phase.finish_ms_last >= window_ms


def _threshold(phase: Phase, at_ms: int, most: int, window_ms: int) -> int:
    size = phase.tasks
    if at_ms - phase.start_ms_last < window_ms:
        size = max(size, phase.expected)
    return min(most, size // 2)


def _in_window(moments: list[int], at_ms: int, threshold: int, window_ms: int) -> int | None:
    """Adds a moment; the earliest one inside the window that ends now, if the window has more than the threshold."""
    moments.append(at_ms)
    while at_ms - moments[0] >= window_ms:
        moments.pop(0)
    return moments[0] if len(moments) > threshold else None


def _next_phase(job: JobPhases, at_ms: int, windows: Windows) -> Phase:
    _roll(job, at_ms, windows)
    job.number += 1
    phase = Phase(job.number, at_ms, at_ms, job.trailing, total=job.total)
    job.trailing, job.total = 0, {}
    job.phases = [each for each in job.phases if each.finished < each.tasks]
    job.phases.append(phase)
    return phase


def _roll(job: JobPhases, at_ms: int, windows: Windows) -> None:
    """Phases whose last tasks trail are over; those tasks count to the next one."""
    if not any(is_trailing(phase, at_ms, windows.window_ms) for phase in job.phases):
        return
    phases, kept = job.phases, []
    for at, phase in enumerate(phases):
        if not is_trailing(phase, at_ms, windows.window_ms):
            kept.append(phase)
            continue
        rest = {kind: amount - phase.given_back.get(kind, 0) for kind, amount in phase.total.items()}
        if at + 1 < len(phases):
            phases[at + 1].tasks += phase.tasks - phase.finished
            _add(phases[at + 1].total, rest, 1)
        else:
            job.trailing += phase.tasks - phase.finished
            _add(job.total, rest, 1)
    job.phases = kept


def _phase_of(job: JobPhases, number: int) -> Phase | None:
    """The phase that the tasks of a phase count to now; None: the next one that comes."""
    for phase in job.phases:
        if phase.number >= number:
            return phase
    return None


def _leave_trailing(job: JobPhases, demand: Vector) -> None:
    job.trailing -= 1
    assert job.trailing >= 0, "a task ends that belongs to no phase"
    _add(job.total, demand, -1)


def _drop_if_over(job: JobPhases, phase: Phase) -> None:
    """The latest phase stays: a task may start inside its window."""
    if phase.finished >= phase.tasks and phase is not job.phases[-1]:
        job.phases.remove(phase)


def _add(total: Vector, demand: Vector, sign: int) -> None:
    for kind, amount in demand.items():
        total[kind] = total.get(kind, 0) + sign * amount
