"""What each class of jobs holds and waits for, and the pools computed from that. Cost: the jobs that have changed. It
is a cache of the rest of the state, built when the first opening with pools needs it.
"""

from bisect import bisect_left, insort

from largesse.lifecycle.job_classes import has_pools, released_between, thresholds_of
from largesse.lifecycle.task_keys import job_of
from schemas import Policy, Vector
from schemas.jobs import UNJUDGED
from schemas.quantities import MILLIONTHS
from services.admission.core.granted import is_held, marks
from services.admission.core.state import ClassTally, Demand, JobState, Shape, State
from services.admission.reserve_ratio import Bounds, class_demand, first_pools, next_pools

AHEAD_MS = 1_000
"""The paper's t + 1: how far the pools look ahead."""

POOL_STEP_PPM = 1_000
"""Pools stay as they are while none would change by so much."""

SHAPES_MAX = 10_000
"""Distinct (class, request, waiting tasks) that are interned and shared by equal jobs."""


def pools_of(state: State, time: int) -> list[int]:
    """The pools in force from an opening at `time` (ms) on, by class, in millionths; empty where there are none."""
    policy = state.policy
    if not has_pools(policy) or not any(state.capacity.values()):
        state.demand = None
        return []
    bounds, count = bounds_of(policy), len(thresholds_of(policy)) + 1
    before = state.pools_ppm
    if len(before) != count:
        before = first_pools(count, bounds)
    demand = _demand(state, count)
    found = []
    for at, tally in enumerate(demand.classes):
        pool = {kind: amount * before[at] // MILLIONTHS for kind, amount in state.capacity.items()}
        forecast = forecast_of(pool, tally.held, _coming(state, at, time))
        found.append(class_demand(forecast, tally.pending, state.capacity, _requests(tally)))
    after = next_pools(before, found, bounds)
    if len(state.pools_ppm) != count:
        return after
    moved = max(abs(new - old) for new, old in zip(after, before, strict=True))
    within = bounds.least <= MILLIONTHS - before[-1] <= bounds.most
    return before if moved < POOL_STEP_PPM and within else after


def _requests(tally: ClassTally) -> list[tuple[int, int]]:
    """The smallest requests that wait, up to those that together would fill the cell: no other fits."""
    found: list[tuple[int, int]] = []
    total = 0
    for request in tally.ascending:
        found.append((request, tally.jobs[request]))
        total += request * tally.jobs[request]
        if total > MILLIONTHS:
            break
    return found


def forecast_of(pool: Vector, held: Vector, coming: Vector) -> Vector:
    """What a class can use by then, in base units: what its pool has beyond what it holds, and what its tasks give
    back. What it holds beyond its pool is borrowed, and what its tasks give back goes there first: counted as the
    class's own, as the paper's formula has it, it would shrink the pool again with every opening.
    """
    return {kind: max(0, amount - held.get(kind, 0) + coming.get(kind, 0)) for kind, amount in pool.items()}


def bounds_of(policy: Policy) -> Bounds:
    """The bounds of the pools in millionths. A lower bound above the upper one counts as that."""
    least = min(policy.reserve_ratio_permille_min, policy.reserve_ratio_permille_max) * 1_000
    return Bounds(policy.reserve_ratio_permille * 1_000, least, policy.reserve_ratio_permille_max * 1_000)


def note_job(state: State, name: str) -> None:
    """What the job waits for may have changed."""
    if state.demand is not None:
        state.demand.dirty[name] = True


def forget_job(state: State, name: str) -> None:
    """The job is over and no longer waits; it is still known."""
    if state.demand is not None:
        state.demand.dirty.pop(name, None)
        _look(state, state.demand, name)
        reservation = state.jobs[name].spec.reservation
        naming = state.demand.reserving.get(reservation, {}) if reservation is not None else {}
        naming.pop(name, None)
        if reservation is not None and not naming:
            state.demand.reserving.pop(reservation, None)


def note_reservation(state: State, reservation: str) -> None:
    """A reservation is accepted from now on, or no longer: its jobs stand outside the pools, or inside again."""
    if state.demand is not None:
        state.demand.dirty.update(state.demand.reserving.get(reservation, {}))


def note_held(state: State, job_class: int, demand: Vector, tasks: int) -> None:
    """Tasks of a class hold room from now on (negative: no longer)."""
    if state.demand is not None and job_class != UNJUDGED:
        tallies = state.demand.classes
        _add(tallies[min(job_class, len(tallies) - 1)].held, demand, tasks)


def remeasure(state: State) -> None:
    """The capacity has changed. Requests are measured again once any kind has changed by a quarter, not with every node
    that comes: all waiting jobs are looked at then."""
    measure = state.measure
    kinds = {**measure, **state.capacity}
    if any(4 * abs(state.capacity.get(kind, 0) - measure.get(kind, 0)) > measure.get(kind, 0) for kind in kinds):
        state.measure = dict(state.capacity)
        state.demand = None


def _coming(state: State, job_class: int, time: int) -> Vector:
    """What running tasks of a class will have given back AHEAD_MS from now, by the forecast in force."""
    now_ms = time - state.curves_ms
    return released_between(state.curves, job_class, now_ms, now_ms + AHEAD_MS)


def _demand(state: State, count: int) -> Demand:
    demand: Demand | None = state.demand
    if demand is None or len(demand.classes) != count:
        demand = state.demand = Demand([ClassTally() for _ in range(count)], state.measure)
        for name in state.jobs:
            _look(state, demand, name)
        for node in state.nodes.values():
            for key, hold in node.holds.items():
                note_held(state, _class_of_holder(state, job_of(key)), hold.demand, 1)
    for name in demand.dirty:
        _look(state, demand, name)
    demand.dirty = {}
    return demand


def _class_of_holder(state: State, name: str) -> int:
    job = state.jobs.get(name) or state.ended[name].job
    assert job is not None, f"job {name} holds room and is not known"
    return job.job_class


def _look(state: State, demand: Demand, name: str) -> None:
    """Counts what a job waits for now in place of what it waited for before."""
    job = state.jobs.get(name)
    before = demand.shapes.get(name)
    after = _shape(demand, job) if job is not None and _waits_for_pool(state, demand, name, job) else None
    if before == after:
        return
    if before is not None:
        assert job is not None, f"job {name} has ended and waits"
        _count(demand, job, before, -1)
        del demand.shapes[name]
    if after is not None and job is not None:
        after = demand.known.setdefault(after, after)
        if len(demand.known) > SHAPES_MAX:
            demand.known = {}
        demand.shapes[name] = after
        _count(demand, job, after, 1)


def _waits_for_pool(state: State, demand: Demand, name: str, job: JobState) -> bool:
    """False for a job that a user or a running limit holds back, or whose reservation is accepted: that has its
    promise.
    """
    if job.over or job.parked or name in state.on_hold:
        return False
    reservation = job.spec.reservation
    if reservation is None:
        return True
    demand.reserving.setdefault(reservation, {})[name] = True
    known = state.reservations.get(reservation)
    return known is None or not known.accepted or state.policy.reservations == "off"


def _shape(demand: Demand, job: JobState) -> Shape | None:
    """None: it waits for nothing, or has not been judged."""
    if job.job_class == UNJUDGED:
        return None
    if len(job.granted) == 1:
        return _shape_of_stage(demand, job)
    waiting, request = [], 0
    for at, left in enumerate(job.progress.left):
        most = min(left, job.graph.stages[at].width)  # So many ask for room at a time.
        tasks = most - _running(job, at) if left and not job.progress.parents[at] else 0
        waiting.append(max(0, tasks))
    totals: Vector = {}
    for at, tasks in enumerate(waiting):
        if tasks:
            _add(totals, job.graph.stages[at].demand, tasks)
    for kind, amount in totals.items():
        if demand.measure.get(kind, 0):
            request = max(request, -(-amount * MILLIONTHS // demand.measure[kind]))
    if not request:
        return None
    return (min(job.job_class, len(demand.classes) - 1), request, *waiting)


def _shape_of_stage(demand: Demand, job: JobState) -> Shape | None:
    """The same for a job of one stage. A round that opens over a full cell may have to look at a million of them."""
    tasks, request = min(job.progress.left[0], job.graph.stages[0].width) - (job.held - job.extra), 0
    if tasks <= 0:
        return None
    for kind, amount in job.graph.stages[0].demand.items():
        have = demand.measure.get(kind, 0)
        if have:
            request = max(request, -(-amount * tasks * MILLIONTHS // have))
    return (min(job.job_class, len(demand.classes) - 1), request, tasks) if request else None


def _running(job: JobState, at: int) -> int:
    """How many tasks of a stage hold room."""
    granted = job.granted[at]
    if not job.held or not granted:
        return 0
    return sum([end - first for first, end, mark in marks(granted, 0, job.graph.tasks[at]) if is_held(mark)])


def _count(demand: Demand, job: JobState, shape: Shape, sign: int) -> None:
    tally = demand.classes[shape[0]]
    for at, tasks in enumerate(shape[2:]):
        if tasks:
            _add(tally.pending, job.graph.stages[at].demand, sign * tasks)
    request = shape[1]
    jobs = tally.jobs.get(request, 0) + sign
    if jobs and jobs == sign:
        insort(tally.ascending, request)
    if jobs:
        tally.jobs[request] = jobs
    else:
        del tally.jobs[request]
        del tally.ascending[bisect_left(tally.ascending, request)]


def _add(total: Vector, demand: Vector, tasks: int) -> None:
    for kind, amount in demand.items():
        total[kind] = total.get(kind, 0) + amount * tasks
