"""When waiting tasks will start, by what is expected of those that run. An estimate, not a promise.

`earliest`: nobody else takes what ends first: the moment at which running tasks have left room for one task (of a gang:
for all) on nodes that could run it. `likely`: of what comes free, queues get what brings them to what they are due, and
then their parts of it; a task starts once its queue has got enough for those before it. `latest`: all that waits in
other queues starts first, too. Amounts are of the resource that is scarcest for the task; what is taken comes free
again when as much time has passed as waiting tasks take in the mean. Tasks for which nothing is estimated take what
others of their stage took; where that is not known either, nothing is told. Running tasks that have outlived their
estimates are expected to run on for a part of the time that they have run.

What is told in the end is corrected by the last predictions that have been scored (predictions.py).
"""

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from largesse.lifecycle.slots import counted_demand, slots_of
from schemas import Stage, Vector
from schemas.presets import PRESETS
from schemas.quantities import SHARE_UNITS, SLOTS
from services.gateway.view.jobs import LiveJob
from services.gateway.view.pending import Pending
from services.gateway.view.predictions import Start, corrected, ratios_of
from services.gateway.view.room import free_of, has_labels, is_closed
from services.gateway.view.state import Allocation, State

UNFORESEEN = frozenset({"held", "no_node", "after", "running_limit", "promise_used", "failed_there", "spread"})
"""Reasons that ends of running tasks alone do not remove: no start is told."""
SURE = frozenset({"back_off", "next_round"})
"""Reasons that end at a known time."""
BY_WORK = ("srtf", "sjf")
OUTLIVED = 8
"""A running task that has outlived its estimate is expected to run on for this part of the time that it has run."""
ONE_LIST = ("fifo", "sjf", "srtf", "tetris", "tetris-fair")
"""By `sharing`: all jobs of the cell are one list."""


@dataclass(slots=True)
class _Release:
    """A running task gives its room back."""

    at_ms: int
    node: str
    hold: Allocation

    @property
    def demand(self) -> Vector:
        return self.hold.demand


class _Curve(NamedTuple):
    """What running tasks give back of one resource: when, and how much in all by then."""

    at_ms: list[int]
    total: list[int]

    def reach_ms(self, amount: int, cycle_ms: int) -> int | None:
        """When as much has come free, if what is taken comes free again after `cycle_ms`; None: never."""
        if not self.total:
            return None
        cycles, rest = divmod(max(0, amount - 1), self.total[-1])
        return self.at_ms[bisect_left(self.total, rest + 1)] + cycles * cycle_ms


def run_ms_of(job: LiveJob, at: int) -> int | None:
    """How long a task of a stage is expected to run; None: unknown."""
    used = job.used[at]
    if not used.attempts:
        return job.graph.stages[at].estimate_ms or None
    known = [ms for ms, attempt in zip(used.run_ms, used.attempts, strict=True) if attempt and ms >= 0]
    if known:
        return sum(known) // len(known)
    return job.graph.stages[at].estimate_ms or None


class Starts:
    """Estimates about one state of the view, which must not change while this is in use."""

    def __init__(self, state: State, pending: Pending | None = None) -> None:
        self._state = state
        self._pending = pending or Pending(state)
        self._releases: list[_Release] | None = None
        self._known: dict[tuple[str, int, str], Start | None] = {}
        self._curves: dict[tuple[str, ...], _Curve] = {}
        self._work: dict[str, int] = {}
        self._total: Vector | None = None
        facts = PRESETS[state.policy.preset]
        self._is_by_work = facts.has_shadow or facts.sharing in BY_WORK
        self._ratios = ratios_of(state.predictions.scores)

    def of(self, job: LiveJob, at: int, reason: str) -> Start | None:
        """When the next task of a stage starts; None: it cannot be told."""
        key = job.spec.job, at, reason
        if key not in self._known:
            plain = self.plain(job, at, reason)
            if plain is not None and reason not in SURE:
                plain = corrected(plain, self._state.time, self._ratios)
            self._known[key] = plain
        return self._known[key]

    def plain(self, job: LiveJob, at: int, reason: str) -> Start | None:
        """The same, not corrected by what came of others."""
        state, stage = self._state, job.graph.stages[at]
        now_ms = state.time
        if reason in UNFORESEEN:
            return None
        if reason == "back_off":
            back_ms = max(now_ms, job.retry_ms[at])
            return Start(back_ms, back_ms, back_ms)
        if reason == "next_round":
            return Start(now_ms, now_ms, now_ms)
        earliest_ms = self._earliest(stage)
        if earliest_ms is None:
            return None
        kind = self._kind(stage)
        curve, cycle_ms = self._curve(stage, kind), self._cycle_ms(kind)
        own, others = self._before(job, at, kind)
        needed = own + self._amount(stage, kind) * (stage.tasks if stage.gang else 1)
        likely_ms = curve.reach_ms(self._share_of(job.spec.queue, kind, needed), cycle_ms)
        latest_ms = curve.reach_ms(needed + others, cycle_ms)
        if likely_ms is None or latest_ms is None:
            return Start(earliest_ms, None, None)
        likely_ms = max(earliest_ms, likely_ms)
        return Start(earliest_ms, likely_ms, max(likely_ms, latest_ms))

    def ends(self, queue: str) -> list[int]:
        """When running tasks of a queue and those below it are expected to end."""
        state = self._state
        found = []
        for key, hold in state.holds.items():
            if not queue or hold.queue == queue or hold.queue.startswith(f"{queue}/"):
                end_ms = self._end_of(key)
                if end_ms is not None:
                    found.append(end_ms)
        return sorted(found)

    def _end_of(self, key: str) -> int | None:
        state = self._state
        name, _, rest = key.partition("/")
        job = state.jobs.get(name)
        if job is None:
            return state.time
        hold = state.holds[key]
        run_ms = run_ms_of(job, job.graph.position[rest.rpartition("/")[0]])
        if run_ms is None:
            return None
        return self._end_ms(hold, run_ms)

    def _end_ms(self, hold: Allocation, run_ms: int) -> int:
        """When an attempt ends: one that has outlived its estimate runs on for a part of the time that it has run."""
        since_ms = hold.started_ms if hold.started_ms is not None else self._state.time
        ran_ms = self._state.time - since_ms
        return self._state.time + max(run_ms - ran_ms, ran_ms // OUTLIVED)

    def _all(self) -> list[_Release]:
        if self._releases is None:
            self._releases = []
            expected: dict[str, int | None] = {}
            state = self._state
            for key, hold in state.holds.items():
                stage_key = key.rpartition("/")[0]
                if stage_key not in expected:
                    name, _, stage = stage_key.partition("/")
                    job = state.jobs.get(name)
                    expected[stage_key] = 0 if job is None else run_ms_of(job, job.graph.position[stage])
                run_ms = expected[stage_key]
                if run_ms is not None:
                    self._releases.append(_Release(self._end_ms(hold, run_ms), hold.node, hold))
            self._releases.sort(key=lambda release: (release.at_ms, release.node))
        return self._releases

    def _earliest(self, stage: Stage) -> int | None:
        state, policy = self._state, self._state.policy
        demand = {kind: amount for kind, amount in counted_demand(policy, stage.demand).items() if amount}
        slots = bool(slots_of(policy))
        needed = stage.tasks if stage.gang else 1
        free = {
            name: free_of(policy, node)
            for name, node in state.nodes.items()
            if not is_closed(node) and has_labels(node, stage)
        }
        rooms = {name: _fits(demand, amounts, stage.tasks) for name, amounts in free.items()}
        total = sum(rooms.values())
        if total >= needed:
            return state.time
        for release in self._all():
            amounts = free.get(release.node)
            if amounts is None:
                continue
            for kind, amount in {SLOTS: 1}.items() if slots else release.demand.items():
                if kind in amounts:
                    amounts[kind] += amount
            room = _fits(demand, amounts, stage.tasks)
            total += room - rooms[release.node]
            rooms[release.node] = room
            if total >= needed:
                return release.at_ms
        return None

    # ---------------------------------------------------------------- work
    def _kind(self, stage: Stage) -> str:
        """The resource that a task asks for the largest part of, by what the nodes that could run it have."""
        demand = counted_demand(self._state.policy, stage.demand)
        capacity = self._capacity(stage)
        kinds = [kind for kind in sorted(demand) if demand[kind] and capacity.get(kind)]
        return max(kinds, key=lambda kind: demand[kind] * 10**9 // capacity[kind], default="")

    def _amount(self, stage: Stage, kind: str) -> int:
        return 1 if kind == SLOTS else stage.demand.get(kind, 0)

    def _capacity(self, stage: Stage | None) -> Vector:
        total: Vector = {}
        for node in self._state.nodes.values():
            if not is_closed(node) and (stage is None or has_labels(node, stage)):
                for kind, amount in node.capacity.items():
                    total[kind] = total.get(kind, 0) + amount
        if slots := slots_of(self._state.policy):
            total[SLOTS] = slots * len(self._state.nodes)
        return total

    def _curve(self, stage: Stage, kind: str) -> _Curve:
        """What comes free of a resource on nodes that could run a stage."""
        key = (kind, *(text for pair in sorted(stage.labels.items()) for text in pair))
        if key not in self._curves:
            able = {name: not is_closed(node) and has_labels(node, stage) for name, node in self._state.nodes.items()}
            found = [
                (release.at_ms, amount)
                for release in self._all()
                if able[release.node] and (amount := 1 if kind == SLOTS else release.demand.get(kind, 0))
            ]
            totals = list(accumulate(amount for _, amount in found))
            self._curves[key] = _Curve([at_ms for at_ms, _ in found], totals)
        return self._curves[key]

    def _cycle_ms(self, kind: str) -> int:
        """How long tasks that wait will hold a resource, in the mean."""
        amounts = times = 0
        for rows in self._pending.leaves.values():
            for job, at, waits in rows:
                amount, run_ms = waits * self._amount(job.graph.stages[at], kind), run_ms_of(job, at)
                if run_ms is not None:
                    amounts += amount
                    times += amount * run_ms
        return times // amounts if amounts else 0

    def _before(self, job: LiveJob, at: int, kind: str) -> tuple[int, int]:
        """How much of a resource waits before a stage in its queue, and in other queues."""
        spec, place = job.spec, self._place(job)
        one_list = PRESETS[self._state.policy.preset].sharing in ONE_LIST
        own = others = 0
        is_slots, place_of = kind == SLOTS, self._place
        for leaf, rows in self._pending.leaves.items():
            same = one_list or leaf == spec.queue
            for other, index, waits in rows:
                amount = waits if is_slots else waits * other.graph.stages[index].demand.get(kind, 0)
                if other is job:
                    own += amount if index < at else 0
                elif not same:
                    others += amount
                elif place_of(other) < place:
                    own += amount
        return own, others

    def _place(self, job: LiveJob) -> tuple[int, int, int]:
        """Where a job stands among those of its queue: the least goes first."""
        work = self._work_of(job) if self._is_by_work else 0
        return -job.spec.priority, work, job.admitted

    def _work_of(self, job: LiveJob) -> int:
        """How much of the cell, for how long, is left of a job."""
        work = self._work.get(job.spec.job)
        if work is None:
            capacity, work = self._capacity_all(), 0
            for at, left in enumerate(job.progress.left):
                if left:
                    share = 0
                    for kind, amount in job.graph.stages[at].demand.items():
                        of = capacity.get(kind)
                        if of and amount * SHARE_UNITS // of > share:
                            share = amount * SHARE_UNITS // of
                    work += left * share * (run_ms_of(job, at) or 0)
            self._work[job.spec.job] = work
        return work

    def _share_of(self, queue: str, kind: str, needed: int) -> int:
        """How much has to come free until a queue has got `needed` of it: first what brings queues to what they are
        due, then by what they are due.
        """
        state, waiting = self._state, self._pending.leaves
        capacity = self._capacity_all().get(kind, 0)
        due = {leaf: state.shares[leaf].fair for leaf in waiting if leaf in state.shares}
        part, of = due.get(queue, 0), sum(due.values())
        if PRESETS[state.policy.preset].sharing in ONE_LIST or not part:
            return needed
        short = {leaf: max(0, fair * capacity // SHARE_UNITS - self._held(leaf, kind)) for leaf, fair in due.items()}
        own, total = short[queue], sum(short.values())
        if needed <= own:
            return needed * total // own
        return total + (needed - own) * of // part

    def _held(self, leaf: str, kind: str) -> int:
        return self._state.tasks.get(leaf, 0) if kind == SLOTS else self._state.used.get(leaf, {}).get(kind, 0)

    def _capacity_all(self) -> Vector:
        if self._total is None:
            self._total = self._capacity(None)
        return self._total


def _fits(demand: Vector, free: Vector, most: int) -> int:
    return min([most, *[max(0, free.get(kind, 0)) // amount for kind, amount in demand.items()]])
