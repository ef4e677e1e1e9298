"""How far the work of a reservation has come, and whether its plan still fits what is left of it.

Work is measured in unit-time: a task counts as many units as its demand holds of an atom's unit (the most over all
resources), for as long as it runs. Two measures are compared with the leases from now on:

- what its jobs are expected to need still: tasks that have not ended, by the mean of those of their stage that have,
  else by their estimates, less what running ones have behind them;
- what the terms still ask for: the work asked for less what was done. A task that has succeeded has done what was
  estimated for it, whatever it took, and a running one no more than that: so a job that is slower than estimated does
  not use up what was reserved for another, and one that is faster does not leave its part of the promise behind.

A plan with less than the first is behind; one with more than both is ahead. Nobody knows how long a task goes on that
has run for longer than was estimated: what it holds is not given back meanwhile, and leases that would end before it
are lengthened by a step at a time. What was done for a job that fails counts
no more. The work of a job counts for the atoms of its part that have leases, in order of those; where it could be for
several, only for those whose window holds now, so that a repetition of a job does not use up the next one's.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

from largesse.lifecycle.dag import graph_of, resumed
from largesse.lifecycle.job_life import fail, give_up, succeed
from largesse.lifecycle.promises import serves
from largesse.lifecycle.run_times import Seen
from largesse.lifecycle.task_facts import SpareEnd, TaskRecord, facts_of
from largesse.lifecycle.task_keys import position_of
from schemas import JobEnd, JobSpec, Stage, Vector
from schemas.edge.strict_json import loads
from schemas.estimates import duration_ms, total_ms
from schemas.tasks import TaskEnd, TaskFailure
from services.planner.core.promises import Promise, Terms
from services.planner.core.state import Job, State
from services.planner.core.waiting import Follow, Need

LOOKS_MAX = 16
"""So many reservations are compared with their jobs in a round at most; the others follow in the next."""

TOLERANCE_PERMILLE = 50
"""A plan follows once it is off by so much of the work of an atom ..."""

TOLERANCE_MS = 5_000
"""... and by what the most units that it has at a time do in so many milliseconds."""

GROWTH_MAX = 2
"""A plan grows up to so many times the work that was asked for: more has to be asked for."""

MILLIONTHS = 1_000_000


# ---------------------------------------------------------------- what jobs do
def admit(state: State, spec: JobSpec, kept: list[str]) -> None:
    """A job comes, perhaps of a reservation; stages that are `kept` are done."""
    if spec.reservation is None:
        return
    graph = graph_of(spec)
    state.jobs[spec.job] = Job(graph, resumed(graph, kept), spec.reservation, spec.reservation_atom)
    state.reserving.setdefault(spec.reservation, {})[spec.job] = True
    state.active[spec.reservation] = True


def end(state: State, ended: JobEnd, now_ms: int) -> None:
    """A job is over."""
    job = state.jobs.pop(ended.job, None)
    if job is None:
        return
    promise = state.promises.get(job.reservation)
    if promise is not None:
        if ended.outcome == "succeeded":
            _credit(state, promise, job, now_ms)
        else:
            _take_back(promise, job)
        state.active[job.reservation] = True
    elif job.reservation in state.broken and ended.outcome != "succeeded":
        _take_back(state.broken[job.reservation].promise, job)
    names = state.reserving[job.reservation]
    del names[ended.job]
    if not names:
        del state.reserving[job.reservation]


def _take_back(promise: Promise, job: Job) -> None:
    """What was done for a job that fails counts no more."""
    for path, amount in job.credited.items():
        promise.done[path] -= amount


def learn(state: State, body: TaskRecord, time: int) -> None:
    """Attempts began or ended."""
    if not state.jobs:
        return
    for fact in facts_of(body):
        job = state.jobs.get(fact.job)
        if job is None:
            continue
        at = job.graph.position[fact.stage]
        if isinstance(fact, TaskEnd):
            _succeed(job, at, fact)
        elif isinstance(fact, TaskFailure):
            for index in range(fact.first, fact.first + fact.count):
                job.running.pop(f"{at}/{index}", None)
                if fail(job, at, index, fact.attempt, fact.reason, fact.exit_code) == "given_up":
                    give_up(job, at)
        elif isinstance(fact, SpareEnd):
            if fact.reason == "superseded":  # Its task has succeeded; else another attempt of it runs.
                job.running.pop(f"{at}/{fact.first}", None)
        else:
            for index in range(fact.first, fact.first + fact.count):
                job.running.setdefault(f"{at}/{index}", time)
        state.active[job.reservation] = True


def _succeed(job: Job, at: int, fact: TaskEnd) -> None:
    for index in range(fact.first, fact.first + fact.count):
        job.running.pop(f"{at}/{index}", None)
    if succeed(job, at, fact.count, fact.attempt) is None:
        return
    ran_ms = total_ms(fact.run_ms, fact.count) if fact.run_ms else 0
    if fact.run_ms:
        seen = job.seen.setdefault(at, Seen(0, 0))
        seen.tasks += fact.count
        seen.ran_ms += ran_ms
    stage = job.graph.stages[at]
    if not stage.gang:
        job.earned[at] = job.earned.get(at, 0) + (stage.estimate_ms * fact.count or ran_ms)
    elif not job.progress.left[at]:  # One failure would have undone what the others had done.
        known = job.seen.get(at)
        lasts_ms = stage.estimate_ms or duration_ms(0, known.tasks if known else 0, known.ran_ms if known else 0)
        job.earned[at] = lasts_ms * stage.tasks


# ---------------------------------------------------------------- which plans are to follow
def look(state: State, now_ms: int, *, new_step: bool) -> bool:
    """A round opens: compares the next plans with their jobs. Returns whether there are any that are to follow now.
    `new_step`: all plans whose jobs are active are to be compared again.
    """
    if new_step:
        state.looks = []
        _list_due(state)
    if state.looks or not state.due:
        return False
    for name in list(state.due)[:LOOKS_MAX]:
        del state.due[name]
        needs = _needs(state, name, now_ms, again=state.retry)
        if needs:
            state.looks.append(Follow(name, needs))
    return bool(state.looks)


def _list_due(state: State) -> None:
    state.active = {name: True for name in state.active if name in state.promises}
    for name in state.reserving:
        if name in state.promises and _holds(state, state.promises[name]):
            state.active[name] = True
    state.due = dict(state.active) if _is_on(state) else {}
    state.retry, state.freed = state.freed, False


def _is_on(state: State) -> bool:
    return state.policy.reservations == "on" and state.policy.reservation_progress == "on"


def _holds(state: State, promise: Promise) -> bool:
    """Whether a lease holds in this step or begins with the next: then tasks may start without another round."""
    return any(lease.begin <= state.first and lease.end >= state.first for lease in promise.leases)


def follows(state: State) -> bool:
    """Whether plans are to be compared with their jobs again in the next step."""
    return _is_on(state) and any(name in state.promises for name in state.active)


def _needs(state: State, name: str, now_ms: int, *, again: bool) -> list[Need]:
    """What atoms of a promise need, where its plan is off. `again`: room was given back, so that what found none before
    may find some."""
    promise = state.promises.get(name)
    if promise is None:
        return []
    jobs = [state.jobs[each] for each in state.reserving.get(name, ())]
    for job in jobs:
        _credit(state, promise, job, now_ms)
    if not any(job.running for job in jobs) and not (jobs and _holds(state, promise)):
        state.active.pop(name, None)  # Until a task begins or ends.
    atoms = planned_atoms(state, promise)
    expected: dict[str, int] = {}  # Of jobs that have begun, in 10^-6 unit-milliseconds; `every`: of all jobs.
    every: dict[str, int] = {}
    done = dict(promise.done)
    late: dict[str, int] = {}  # Units of tasks that have overrun, in 10^-6.
    for job in jobs:
        begun = bool(job.running) or job.progress.left != job.graph.tasks
        for at, left_ms, is_known in _left(job, now_ms):
            parts = _shared_out(job, job.graph.stages[at], left_ms, atoms, promise.done, every, now_ms)
            for path, amount in parts.items():
                every[path] = every.get(path, 0) + amount
                if begun and is_known:
                    expected[path] = expected.get(path, 0) + amount
        for path, amount in _under_way(job, atoms, now_ms):
            done[path] = done.get(path, 0) + amount
        for path, amount in _overrunning(job, atoms, now_ms):
            late[path] = late.get(path, 0) + amount
    needs, off = [], []
    for terms in atoms:
        path = terms.atom
        lacks, keeps = _held_by_late(state, promise, terms, now_ms, late.get(path, 0))
        amounts = [expected.get(path, 0), max(every.get(path, 0), keeps * MILLIONTHS), done.get(path, 0)]
        need = _need(state, promise, terms, now_ms, amounts, lacks)
        needs.append(need)
        if _is_off(promise, need, terms, again=again) or lacks > max(0, promise.missing.get(path, 0)):
            off.append(need)
    if not off and not any(need.left for need in needs):
        spare = sum(need.planned for need in needs)
        return needs if spare > max(_tolerance(promise, terms) for terms in atoms) else []
    return off


def _is_off(promise: Promise, need: Need, terms: Terms, *, again: bool) -> bool:
    """Whether a plan is off by more than was said of it, and than is tolerated."""
    gap, said = need.left - need.planned, promise.missing.get(need.atom, 0)
    tolerance = _tolerance(promise, terms)
    return gap > (0 if again else max(0, said)) + tolerance or gap < min(0, said) - tolerance


def _tolerance(promise: Promise, terms: Terms) -> int:
    widest = max(lease.gangs * terms.gang for lease in promise.leases if lease.atom == terms.atom)
    return max(terms.work * TOLERANCE_PERMILLE // 1_000, widest * TOLERANCE_MS)


def _held_by_late(state: State, promise: Promise, terms: Terms, now_ms: int, late: int) -> tuple[int, int]:
    """What tasks that have overrun have by leases that hold now, or end now, but lack in the next step that can be
    planned; and what they may hold from now on, as far as leases are as wide: in unit-milliseconds. `late`: their
    units, in 10^-6."""
    if not late:
        return 0, 0
    now, units_late = state.first - 1, -(-late // MILLIONTHS)
    mine = [lease for lease in promise.leases if lease.atom == terms.atom]
    edges = sorted({at for lease in mine for at in (lease.begin, lease.end)})
    keeps = 0
    for begin, end in pairwise(edges):
        width = sum(each.gangs for each in mine if each.begin <= begin < each.end) * terms.gang
        keeps += min(width, units_late) * max(0, end * state.step_ms - max(begin * state.step_ms, now_ms))
    width = sum(each.gangs for each in mine if each.begin <= now <= each.end) * terms.gang
    width_next = sum(each.gangs for each in mine if each.begin <= state.first < each.end) * terms.gang
    return max(0, min(width, units_late) - width_next) * state.step_ms, keeps


def _need(state: State, promise: Promise, terms: Terms, now_ms: int, amounts: list[int], lacks: int) -> Need:
    """`amounts`: expected, in all and done; `lacks`: what tasks that have overrun lack whatever the work."""
    expected, every, done = (-(-amount // MILLIONTHS) for amount in amounts)
    planned = past = 0
    for lease in promise.leases:
        if lease.atom == terms.atom:
            begin_ms, end_ms = lease.begin * state.step_ms, lease.end * state.step_ms
            width = lease.gangs * terms.gang
            planned += width * max(0, end_ms - max(begin_ms, now_ms))
            past += width * max(0, min(end_ms, now_ms) - begin_ms)
    left = planned
    if expected > planned:
        left = expected
    elif done > 0:
        left = min(planned, max(every, terms.work - done))
    if lacks:
        left = max(left, planned + lacks)
    return Need(terms.atom, now_ms, left, planned, max(planned + past, GROWTH_MAX * terms.work))


# ---------------------------------------------------------------- work
def _left(job: Job, now_ms: int) -> Iterator[tuple[int, int, bool]]:
    """By stage position, the task-milliseconds that a job is expected to need still, and whether anything was estimated
    or seen of that."""
    elapsed: dict[int, list[int]] = {}
    for key, start_ms in job.running.items():
        elapsed.setdefault(position_of(key), []).append(now_ms - start_ms)
    for at, left in enumerate(job.progress.left):
        if not left:
            continue
        stage, seen, running = job.graph.stages[at], job.seen.get(at), elapsed.get(at, [])
        if seen is not None:
            lasts_ms = duration_ms(0, seen.tasks, seen.ran_ms)
        else:
            lasts_ms = max([duration_ms(stage.estimate_ms, 0, 0), *running])
        total = lasts_ms * max(0, left - len(running))
        for ran_ms in running:
            # One that has overrun is expected to run on for as long again as it is late.
            total += lasts_ms - ran_ms if ran_ms < lasts_ms else max(ran_ms - lasts_ms, lasts_ms // 10)
        yield at, total, seen is not None or stage.estimate_ms > 0


def _overrunning(job: Job, atoms: list[Terms], now_ms: int) -> Iterator[tuple[str, int]]:
    """By atom, the units of running tasks that have lasted as long as was estimated, and as the others of their stage,
    in 10^-6."""
    for key, start_ms in job.running.items():
        at = position_of(key)
        stage, seen = job.graph.stages[at], job.seen.get(at)
        expected_ms = max(stage.estimate_ms, duration_ms(0, seen.tasks, seen.ran_ms) if seen is not None else 0)
        if expected_ms and now_ms - start_ms >= expected_ms:
            for terms in _atoms_of(job, stage, atoms, now_ms)[:1]:
                yield terms.atom, units(stage.demand, terms.unit)


def overruns(state: State, name: str, now_ms: int) -> bool:
    """Whether tasks of a promise whose last lease ends now run for longer than was estimated, and there may be room for
    longer leases in its window."""
    promise = state.promises[name]
    if not _is_on(state) or max(lease.end for lease in promise.leases) < state.first - 1:
        return False
    jobs = [state.jobs[each] for each in state.reserving.get(name, ())]
    atoms = planned_atoms(state, promise)
    late = {path: True for job in jobs for path, _ in _overrunning(job, atoms, now_ms)}
    return any(
        each.atom in late
        and each.end_ms > state.first * state.step_ms
        and (state.freed or promise.missing.get(each.atom, 0) <= 0)
        for each in atoms
    )


def _under_way(job: Job, atoms: list[Terms], now_ms: int) -> Iterator[tuple[str, int]]:
    """By atom, what running tasks have done of what was estimated for them, in 10^-6 unit-milliseconds."""
    for key, start_ms in job.running.items():
        stage = job.graph.stages[position_of(key)]
        ran_ms = now_ms - start_ms
        ran_ms = min(ran_ms, stage.estimate_ms) if stage.estimate_ms else ran_ms
        for terms in _atoms_of(job, stage, atoms, now_ms)[:1]:
            yield terms.atom, ran_ms * units(stage.demand, terms.unit)


def _credit(state: State, promise: Promise, job: Job, now_ms: int) -> None:
    """Counts for the atoms of a promise what a job has done since."""
    if not job.earned:
        return
    atoms = planned_atoms(state, promise)
    for at, earned_ms in job.earned.items():
        parts = _shared_out(job, job.graph.stages[at], earned_ms, atoms, promise.done, {}, now_ms)
        for path, amount in parts.items():
            promise.done[path] = promise.done.get(path, 0) + amount
            job.credited[path] = job.credited.get(path, 0) + amount
    job.earned = {}


def _shared_out(
    job: Job,
    stage: Stage,
    task_ms: int,
    atoms: list[Terms],
    done: dict[str, int],
    more: dict[str, int],
    now_ms: int,
) -> dict[str, int]:
    """What work of a stage comes to in the atoms that it may be for, each up to what is left of it beside what is done
    and more, the last without limit. In 10^-6 unit-milliseconds."""
    found: dict[str, int] = {}
    candidates = _atoms_of(job, stage, atoms, now_ms)
    for terms in candidates:
        each = units(stage.demand, terms.unit)
        path = terms.atom
        room = max(0, terms.work * MILLIONTHS - done.get(path, 0) - more.get(path, 0))
        part_ms = task_ms if terms is candidates[-1] else min(task_ms, -(-room // each))
        if part_ms:
            found[path] = part_ms * each
            task_ms -= part_ms
    return found


def _atoms_of(job: Job, stage: Stage, atoms: list[Terms], now_ms: int) -> list[Terms]:
    """The atoms that tasks of a stage may be for, in order of their leases."""
    found = [each for each in atoms if serves(each.atom, job.part) and units(stage.demand, each.unit)]
    if len(found) > 1:
        found = [each for each in found if each.begin_ms <= now_ms < each.end_ms]
    return found


def units(demand: Vector, unit: Vector) -> int:
    """How many units of an atom a task takes, in 10^-6, rounded up; 0 if it asks for what a unit has not got."""
    most = 0
    for kind, amount in demand.items():
        if amount:
            have = unit.get(kind, 0)
            if not have:
                return 0
            most = max(most, -(-amount * MILLIONTHS // have))
    return most


# ---------------------------------------------------------------- terms
def planned_atoms(state: State, promise: Promise) -> list[Terms]:
    """The atoms that have leases, those that begin first before the others."""
    begins: dict[str, int] = {}
    for lease in promise.leases:
        begins[lease.atom] = min(lease.begin, begins.get(lease.atom, lease.begin))
    terms: dict[str, Terms] | None = promise.terms
    if terms is None:
        terms = promise.terms = _terms_of(state, promise.rdl)
    return [terms[path] for path in sorted(begins, key=lambda path: (begins[path], path))]


def _terms_of(state: State, rdl: str) -> dict[str, Terms]:
    from services.planner.planning.read_rdl import Grid, read_rdl  # With numpy: not before something is promised.
    from services.planner.planning.request import atoms
    from services.planner.planning.residual import FOR_EVER

    kinds = list(state.capacity)
    positions = {kind: i for i, kind in enumerate(kinds)}
    grid = Grid(Fraction(state.step_ms, 1_000), FOR_EVER, positions, [0] * len(kinds), [1] * len(kinds), True)
    found = {}
    for atom in atoms(read_rdl(loads(rdl.encode()), grid).node()):
        unit = {kind: amount for kind, amount in zip(kinds, atom.unit, strict=True) if amount}
        work = atom.work * atom.gang * state.step_ms
        window = atom.begin * state.step_ms, atom.end * state.step_ms
        found[atom.path] = Terms(atom.path, unit, atom.gang, work, *window)
    return found
