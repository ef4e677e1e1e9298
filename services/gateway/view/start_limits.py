"""When limits let waiting tasks start: as tasks, or jobs, that count for the same limit end.

A `max` of a queue, the tasks that a user may run, and the pool of a class give way as those that count for them end;
who waits before a task for the same limit goes first, as in `starts.py`. `running_jobs_max` gives way as jobs end: one
that runs is expected to take as long as its work left takes, as many tasks at a time as it runs now.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from largesse.lifecycle.queue_policy import ignored_of_max
from largesse.lifecycle.running_limit import queue_at_limit
from largesse.lifecycle.slots import counted_demand
from schemas import Stage
from schemas.plans import PlanStep
from schemas.presets import PRESETS
from schemas.quantities import SLOTS
from schemas.queue_tree import is_below, upwards
from services.gateway.view.jobs import LiveJob, waiting_of
from services.gateway.view.pending import Pending, Row
from services.gateway.view.predictions import Start
from services.gateway.view.releases import Curve, Releases, curve_of, run_ms_of
from services.gateway.view.state import State
from services.gateway.view.user_tasks import counts_for, runs_of_user

ONE_LIST = ("fifo", "sjf", "srtf", "tetris", "tetris-fair")
"""By `sharing`: all jobs of the cell are one list."""


@dataclass(slots=True)
class _Limit:
    """`free`: what is left of it; `wanted`: what the task takes of it, of a gang all; `own`, `others`: what waits
    before it in its queue, and in the other queues that count for the limit; `curve`: what comes back of it.
    """

    free: int
    wanted: int
    own: int
    others: int
    curve: Curve
    cycle_ms: int


class LimitStarts:
    """Estimates about one state of the view, which must not change while this is in use. `ahead` says what waits before
    a stage in its queue, `cycle_ms` how long what waits for a resource will hold it.
    """

    def __init__(
        self,
        state: State,
        pending: Pending,
        releases: Releases,
        ahead: Callable[[LiveJob, int], list[Row]],
        cycle_ms: Callable[[str], int],
    ) -> None:
        self._state, self._pending, self._releases = state, pending, releases
        self._ahead, self._cycle_ms = ahead, cycle_ms
        self._waits: dict[tuple[str, ...], int] = {}
        self._curves: dict[tuple[str, str, str], Curve] = {}
        self._job_ends: dict[str, list[tuple[int, int]]] = {}
        self._ended_by: dict[str, int] | None = None

    def of(self, job: LiveJob, at: int, reason: str, kind: str) -> Start | None:
        """From when on no limit keeps the next task of a stage back; None: that cannot be told. `kind`: the resource
        that is scarcest for it.
        """
        now_ms = self._state.time
        if reason == "running_limit":
            return self._turn(job)
        if reason == "running_max":
            name = f"{job.spec.job}/{job.graph.stages[at].stage}"
            end_ms = next((each.at_ms for each in self._releases.all() if each.stage == name), None)
            return None if end_ms is None else Start(end_ms, end_ms, end_ms)
        if reason == "lease":
            return self._lease(job)
        found = [Start(now_ms, now_ms, now_ms)]
        if reason == "promised" and (wait := self._state.promised.get(f"{job.spec.job}/{job.spec.stages[at].stage}")):
            fits_ms = wait.until_ms if wait.fits_ms is None else wait.fits_ms
            found.append(Start(*[max(now_ms, fits_ms)] * 3))
        for limit in self._limits(job, at, reason, kind):
            if (start := self._start(job.spec.queue, limit)) is not None:
                found.append(start)
        return latest_of(found)

    def _start(self, queue: str, limit: _Limit) -> Start | None:
        """None: nothing that counts for it is known to end."""
        before = limit.own + limit.wanted
        in_all = before + limit.others
        part, of = self._parts(queue) if limit.others else (1, 1)
        likely = min(in_all, before * of // part)
        moments = [self._reach(limit, amount) for amount in (limit.wanted, likely, in_all)]
        earliest_ms, likely_ms, latest_ms = moments
        if earliest_ms is None or likely_ms is None or latest_ms is None:
            return None
        likely_ms = max(earliest_ms, likely_ms)
        return Start(earliest_ms, likely_ms, max(likely_ms, latest_ms))

    def _reach(self, limit: _Limit, amount: int) -> int | None:
        if amount <= limit.free:
            return self._state.time
        return limit.curve.reach_ms(amount - limit.free, limit.cycle_ms)

    def _parts(self, queue: str) -> tuple[int, int]:
        """What a queue is due, beside what all are due in which something waits."""
        shares = self._state.shares
        due = {leaf: shares[leaf].fair for leaf in self._pending.leaves if leaf in shares}
        return (due.get(queue, 0), sum(due.values())) if due.get(queue, 0) else (1, 1)

    # ---------------------------------------------------------------- limits that tasks count for
    def _limits(self, job: LiveJob, at: int, reason: str, kind: str) -> Iterable[_Limit]:
        state, spec, stage = self._state, job.spec, job.graph.stages[at]
        tasks = stage.tasks if stage.gang else 1
        demand = counted_demand(state.policy, stage.demand) if state.ceilings else {}
        for path in upwards(spec.queue):
            ceiling = state.ceilings.get(path, {})
            ignored = ignored_of_max(state.policy.preset, ceiling)
            for resource, most in ceiling.items():
                if resource not in ignored and demand.get(resource):
                    yield self._max(job, at, path, resource, most, demand[resource] * tasks)
        if state.user_running_max and counts_for(state, job):
            for path in upwards(spec.queue):
                if path in state.user_running_max:
                    yield self._of_user(job, at, path, tasks, kind)
        if reason == "pool" and kind and state.pools and job.job_class < len(state.pools[-1].pools_ppm):
            yield self._pool(job, at, kind, _amount(stage, kind) * tasks)

    def _max(self, job: LiveJob, at: int, path: str, resource: str, most: int, wanted: int) -> _Limit:
        held = sum(used.get(resource, 0) for leaf, used in self._state.used.items() if is_below(leaf, path))
        key = "max", path, resource
        if key not in self._curves:
            self._curves[key] = curve_of(
                (each.at_ms, each.demand.get(resource, 0))
                for each in self._releases.all()
                if is_below(each.hold.queue, path)
            )
        what = "max", resource
        own, others = self._before(
            job, at, path, what, lambda row: _amount(row[0].graph.stages[row[1]], resource) * row[2]
        )
        return _Limit(most - held, wanted, own, others, self._curves[key], self._cycle_ms(resource))

    def _of_user(self, job: LiveJob, at: int, path: str, tasks: int, kind: str) -> _Limit:
        state, user = self._state, job.spec.user
        key = "user", path, user
        if key not in self._curves:
            self._curves[key] = curve_of(
                (each.at_ms, 1)
                for each in self._releases.all()
                if each.hold.user == user and is_below(each.hold.queue, path)
            )
        own, others = self._before(job, at, path, ("user", user), lambda row: row[2] if row[0].spec.user == user else 0)
        free = state.user_running_max[path] - runs_of_user(state, path, user)
        return _Limit(free, tasks, own, others, self._curves[key], self._cycle_ms(kind))

    def _pool(self, job: LiveJob, at: int, kind: str, wanted: int) -> _Limit:
        state, jobs, index = self._state, self._state.jobs, job.job_class
        key = "pool", str(index), kind
        if key not in self._curves:
            self._curves[key] = curve_of(
                (each.at_ms, 1 if kind == SLOTS else each.demand.get(kind, 0))
                for each in self._releases.all()
                if (name := each.stage.partition("/")[0]) in jobs and jobs[name].job_class == index
            )
        curve = self._curves[key]
        capacity = sum(node.capacity.get(kind, 0) for node in state.nodes.values() if not node.lost)
        pool = capacity * state.pools[-1].pools_ppm[index] // 1_000_000
        own, others = self._before(
            job,
            at,
            "",
            key,
            lambda row: _amount(row[0].graph.stages[row[1]], kind) * row[2] * (row[0].job_class == index),
        )
        held = curve.total[-1] if curve.total else 0
        return _Limit(max(0, pool - held), wanted, own, others, curve, self._cycle_ms(kind))

    def _before(
        self, job: LiveJob, at: int, path: str, what: tuple[str, ...], amount_of: Callable[[Row], int]
    ) -> tuple[int, int]:
        """What waits before a stage in its queue, and in the other queues below a path. `what` names the amounts."""
        own = sum(amount_of(row) for row in self._ahead(job, at) if is_below(row[0].spec.queue, path))
        others = 0
        if PRESETS[self._state.policy.preset].sharing not in ONE_LIST:
            for leaf, rows in self._pending.leaves.items():
                if leaf != job.spec.queue and is_below(leaf, path):
                    key = (leaf, *what)
                    if key not in self._waits:
                        self._waits[key] = sum(map(amount_of, rows))
                    others += self._waits[key]
        return own, others

    # ---------------------------------------------------------------- jobs, and leases
    def _turn(self, job: LiveJob) -> Start | None:
        """When enough jobs have ended for one that `running_jobs_max` holds back."""
        running = self._state.running_limits
        full = queue_at_limit(running, job.spec.queue)
        if full is None or job.spec.job not in running.leaf:
            return None
        if full not in self._job_ends:
            self._job_ends[full] = sorted(self._ends_below(full))
        ends = self._job_ends[full]
        if not ends:
            return None
        place = -job.spec.priority, job.admitted
        ahead = sum(
            (-each.priority, each.admitted) < place
            for leaf, parked in running.parked.items()
            if is_below(leaf, full)
            for each in parked
        )
        took_ms = sum(took_ms for _, took_ms in ends) // len(ends)
        cycles, rest = divmod(ahead, len(ends))
        end_ms = ends[rest][0] + cycles * took_ms
        return Start(ends[min(ahead, len(ends) - 1)][0], end_ms, max(end_ms, ends[-1][0] + cycles * took_ms))

    def _ends_below(self, full: str) -> Iterable[tuple[int, int]]:
        """Of the jobs that may run: when each is expected to end, and how long it will have taken then."""
        for job in self._state.jobs.values():
            if job.began and is_below(job.spec.queue, full):
                end_ms = self._end_of(job)
                if end_ms is not None:
                    since_ms = job.started_ms if job.started_ms is not None else self._state.time
                    yield end_ms, end_ms - since_ms

    def _end_of(self, job: LiveJob) -> int | None:
        if self._ended_by is None:
            self._ended_by = {each.stage.partition("/")[0]: each.at_ms for each in self._releases.all()}
        left_ms = 0
        for at in range(len(job.graph.stages)):
            if waiting := waiting_of(job, at):
                run_ms = run_ms_of(job, at)
                if run_ms is None:
                    return None
                left_ms += waiting * run_ms
        width = max(1, sum(job.running) + sum(job.starting))
        return self._ended_by.get(job.spec.job, self._state.time) + left_ms // width

    def _lease(self, job: LiveJob) -> Start | None:
        """When the next lease of its reservation begins."""
        row = self._state.reservations.get(job.spec.reservation or "")
        steps: list[PlanStep] = [] if row is None else row.steps
        coming = min((step.from_ms for step in steps if step.from_ms > self._state.time), default=None)
        return None if coming is None else Start(coming, coming, coming)


def latest_of(starts: Iterable[Start]) -> Start:
    """When the last of several has come true; one that is not known makes that unknown."""
    earliest, likely, latest = zip(*starts, strict=True)
    return Start(max(earliest), _last(likely), _last(latest))


def _last(moments: tuple[int | None, ...]) -> int | None:
    known = [each for each in moments if each is not None]
    return max(known) if len(known) == len(moments) else None


def _amount(stage: Stage, kind: str) -> int:
    return 1 if kind == SLOTS else stage.demand.get(kind, 0)
