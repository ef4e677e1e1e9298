"""What is to come of each class, by both forecasters, second by second. Costs what has started, ended, or overrun.

All of it follows from the rest of the state and the present time, so it is a cache.
"""

from bisect import bisect_left, insort
from heapq import heappop, heappush

from largesse.lifecycle.job_classes import thresholds_of
from largesse.lifecycle.run_times import NOTHING_SEEN, expected_ms
from largesse.lifecycle.task_keys import position_of
from schemas import Vector
from schemas.jobs import UNJUDGED
from services.estimator.core.state import FORECASTERS, Job, Placed, State, Sums
from services.estimator.forecast_by_durations import end_second
from services.estimator.phases import Windows, next_change_ms, ramps
from services.estimator.ramp import increments
from services.estimator.scores import HORIZONS_S, SAMPLE_MS, Sample

RAMP, DURATIONS = 0, 1
SECOND_MS = 1_000


def refresh(state: State, now_ms: int, *, phases: bool) -> Sums:
    """The sums as they are at an opening; those of the ramps only with `phases`: a job whose tasks end one by one would
    otherwise be drawn again, second by second, in every round, though seldom anybody asks.
    """
    sums: Sums | None = state.sums
    if sums is None:
        sums = state.sums = _built(state, now_ms)
    while sums.wakes and sums.wakes[0][0] <= now_ms:
        _, name, at, start_ms = heappop(sums.wakes)
        if at < 0:
            sums.dirty[name] = True
        else:
            _overrun(state, sums, name, at, start_ms, now_ms)
    if phases:
        for name in sums.dirty:
            _look(state, sums, name, now_ms)
        sums.dirty = {}
    return sums


def put_group(state: State, name: str, job: Job, at: int, start_ms: int, tasks: int, now_ms: int) -> None:
    """So many tasks of a stage that started at `start_ms` run from now on; negative: no longer."""
    sums: Sums | None = state.sums
    if sums is not None:
        if job.active is not None:
            sums.dirty[name] = True
        _put(sums, name, job, at, start_ms, tasks, now_ms)


def move_stage(state: State, name: str, job: Job, at: int, now_ms: int) -> None:
    """Tasks of a stage are expected to take another time from now on."""
    sums: Sums | None = state.sums
    if sums is None or job.active is None:
        return
    stage = f"{at}/"
    starts = {running.start_ms: True for key, running in job.active.running.items() if key.startswith(stage)}
    for start_ms in starts:
        _replace(sums, name, job, at, start_ms, now_ms)


def drop_job(state: State, name: str, job: Job) -> None:
    """The job has ended."""
    sums: Sums | None = state.sums
    if sums is None:
        return
    if job.alone_ms >= 0:
        _forget_group(sums, name, job, 0, job.alone_ms)
    if job.active is None:
        return
    _count_ramps(sums, name, -1)
    sums.ramps.pop(name, None)
    sums.dirty.pop(name, None)
    for key, running in job.active.running.items():
        _forget_group(sums, name, job, position_of(key), running.start_ms)


def _forget_group(sums: Sums, name: str, job: Job, at: int, start_ms: int) -> None:
    placed = sums.placed.pop((name, at, start_ms), None)
    if placed is not None:
        _count(sums, job, at, placed.second, -placed.tasks)


def to_come(sums: Sums, forecaster: int, job_class: int, kind: str, now_ms: int, until_s: int) -> list[list[int]]:
    """Points [second, amount in all by its end] after `now_ms`, at most up to the second `until_s`. What is overdue is
    expected by the end of the second that runs."""
    first = now_ms // SECOND_MS + 1
    seconds = sums.seconds[forecaster][job_class].get(kind, {})
    points: list[list[int]] = []
    total = 0
    for second in sums.order[forecaster][job_class].get(kind, ()):
        if second > until_s:
            break
        total += seconds[second]
        if points and second <= points[-1][0]:
            points[-1][1] = total  # Overdue, as the one before.
        else:
            points.append([max(second, first), total])
    return points


def take_sample(state: State, now_ms: int) -> None:
    """Notes what both forecasters say now, to compare it with what happens. Where nothing runs there is nothing to
    say."""
    if state.sampled_ms is not None and now_ms - state.sampled_ms < SAMPLE_MS:
        return
    sums = refresh(state, now_ms, phases=True)
    if not sums.placed:
        return
    state.sampled_ms = now_ms
    classes = range(len(sums.seconds[RAMP]))
    forecast = [
        [[_by(sums, forecaster, job_class, now_ms, horizon) for job_class in classes] for horizon in HORIZONS_S]
        for forecaster in range(len(FORECASTERS))
    ]
    state.samples.append(Sample(now_ms, forecast, [[{} for _ in classes] for _ in HORIZONS_S]))


def _by(sums: Sums, forecaster: int, job_class: int, now_ms: int, horizon_s: int) -> Vector:
    until_s = now_ms // SECOND_MS + horizon_s
    found: Vector = {}
    by_kind = sums.seconds[forecaster][job_class]
    for kind in sorted(by_kind):  # A state has one order, also where these sums were built again.
        seconds, amount = by_kind[kind], 0
        for second in sums.order[forecaster][job_class][kind]:
            if second > until_s:
                break
            amount += seconds[second]
        if amount:
            found[kind] = amount
    return found


def _built(state: State, now_ms: int) -> Sums:
    classes = len(thresholds_of(state.policy)) + 1
    sums = Sums(
        [[{} for _ in range(classes)] for _ in FORECASTERS], [[{} for _ in range(classes)] for _ in FORECASTERS]
    )
    for name, job in state.jobs.items():
        if job.alone_ms >= 0:
            _put(sums, name, job, 0, job.alone_ms, 1, now_ms)
        if job.active is None:
            continue
        sums.dirty[name] = True
        for key, running in job.active.running.items():
            _put(sums, name, job, position_of(key), running.start_ms, 1, now_ms)
    return sums


def _put(sums: Sums, name: str, job: Job, at: int, start_ms: int, tasks: int, now_ms: int) -> None:
    group = (name, at, start_ms)
    placed = sums.placed.get(group)
    if placed is None:
        second = end_second(start_ms, _lasts_ms(job, at), now_ms)
        placed = sums.placed[group] = Placed(0, second)
        heappush(sums.wakes, (second * SECOND_MS + 1, name, at, start_ms))
    placed.tasks += tasks
    _count(sums, job, at, placed.second, tasks)
    if not placed.tasks:
        del sums.placed[group]


def _lasts_ms(job: Job, at: int) -> int:
    """The run time of a task of a stage that forecasts go by, in ms."""
    return expected_ms(job.graph.stages[at], NOTHING_SEEN) if job.active is None else job.active.lasts_ms[at]


def _replace(sums: Sums, name: str, job: Job, at: int, start_ms: int, now_ms: int) -> None:
    placed = sums.placed.get((name, at, start_ms))
    if placed is None:
        return
    second = end_second(start_ms, _lasts_ms(job, at), now_ms)
    if second != placed.second:
        _count(sums, job, at, placed.second, -placed.tasks)
        _count(sums, job, at, second, placed.tasks)
        placed.second = second
        heappush(sums.wakes, (second * SECOND_MS + 1, name, at, start_ms))


def _overrun(state: State, sums: Sums, name: str, at: int, start_ms: int, now_ms: int) -> None:
    """A group that still runs though it was expected to have ended is expected to take twice as long."""
    job = state.jobs.get(name)
    placed = sums.placed.get((name, at, start_ms))
    if job is not None and placed is not None and placed.second * SECOND_MS < now_ms:
        _replace(sums, name, job, at, start_ms, now_ms)


def _count(sums: Sums, job: Job, at: int, second: int, tasks: int) -> None:
    if job.job_class != UNJUDGED:
        job_class = min(job.job_class, len(sums.seconds[DURATIONS]) - 1)
        for kind, amount in job.graph.stages[at].demand.items():
            _add(sums, DURATIONS, job_class, kind, second, amount * tasks)


def _look(state: State, sums: Sums, name: str, now_ms: int) -> None:
    """Counts what a job's phases give back now in place of what was counted before."""
    _count_ramps(sums, name, -1)
    sums.ramps.pop(name, None)
    job = state.jobs.get(name)
    if job is None or job.active is None or job.job_class == UNJUDGED:
        return
    policy = state.policy
    windows = Windows(policy.phase_window_ms, policy.phase_start_tasks, policy.phase_end_tasks)
    job_class = min(job.job_class, len(sums.seconds[RAMP]) - 1)
    until_ms = now_ms + 2 * policy.forecast_horizon_ms
    found = [
        (job_class, kind, second, amount)
        for ramp in ramps(job.active.phases, now_ms, windows)
        for kind, second, amount in increments(ramp, until_ms)
    ]
    if found:
        sums.ramps[name] = found
        _count_ramps(sums, name, 1)
        # Before the part that was left out comes into sight.
        heappush(sums.wakes, (now_ms + policy.forecast_horizon_ms, name, -1, 0))
    change_ms = next_change_ms(job.active.phases, now_ms, windows)
    if change_ms is not None:
        heappush(sums.wakes, (change_ms, name, -1, 0))


def _count_ramps(sums: Sums, name: str, sign: int) -> None:
    for job_class, kind, second, amount in sums.ramps.get(name, ()):
        _add(sums, RAMP, job_class, kind, second, sign * amount)


def _add(sums: Sums, forecaster: int, job_class: int, kind: str, second: int, amount: int) -> None:
    by_kind, orders = sums.seconds[forecaster][job_class], sums.order[forecaster][job_class]
    seconds = by_kind.get(kind)
    if seconds is None:
        seconds = by_kind[kind] = {}
        orders[kind] = []
    before = seconds.get(second, 0)
    if before + amount:
        seconds[second] = before + amount
        if not before:
            insort(orders[kind], second)
    elif before:
        del seconds[second], orders[kind][bisect_left(orders[kind], second)]
