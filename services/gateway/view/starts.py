"""When waiting tasks will start, by what is expected of those that run. An estimate, not a promise.

`earliest`: nobody else takes what ends first: the moment at which running tasks have left room for one task (of a gang:
for all) on nodes that could run it. `likely`: the tasks before it in its queue start first, and its queue has its fair
part, by what queues that wait are due, of all that comes free. `latest`: all that waits in other queues starts first,
too. What waits has to run in the room that it finds: work is counted as resource-time of the resource that is
scarcest for the task. Tasks for which nothing is estimated take what others of their stage took; where that is not
known either, nothing is told. Running tasks that have outlived their estimates are expected to end at once.
"""

from dataclasses import dataclass

from largesse.lifecycle.slots import counted_demand, slots_of
from schemas import Stage, Vector
from schemas.quantities import SLOTS
from services.gateway.view.jobs import LiveJob
from services.gateway.view.pending import Pending
from services.gateway.view.room import free_of, has_labels, is_closed
from services.gateway.view.state import State

UNFORESEEN = frozenset(
    {"held", "no_node", "labels", "after", "running_limit", "promise_used", "failed_there", "spread", "kept"}
)
"""Reasons that ends of running tasks alone do not remove: no start is told."""


@dataclass(slots=True)
class _Release:
    """A running task gives its room back."""

    at_ms: int
    node: str
    demand: Vector


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
        self._known: dict[tuple[str, int, str], dict[str, int | None] | None] = {}

    def of(self, job: LiveJob, at: int, reason: str) -> dict[str, int | None] | None:
        """When the next task of a stage starts; None: it cannot be told."""
        key = job.spec.job, at, reason
        if key not in self._known:
            self._known[key] = self._of(job, at, reason)
        return self._known[key]

    def _of(self, job: LiveJob, at: int, reason: str) -> dict[str, int | None] | None:
        state, stage = self._state, job.graph.stages[at]
        now_ms = state.time
        if reason in UNFORESEEN:
            return None
        if reason == "back_off":
            back_ms = max(now_ms, job.retry_ms[at])
            return _span(back_ms, back_ms, back_ms)
        if reason == "next_round":
            return _span(now_ms, now_ms, now_ms)
        earliest_ms = self._earliest(stage)
        if earliest_ms is None:
            return None
        own, others = self._work_before(job, at)
        rate = self._rate(stage)
        if own is None or others is None or rate is None:
            return _span(earliest_ms, None, None)
        capacity, running = rate
        part, of = self._part(job.spec.queue)
        likely_ms = now_ms + (running + own * of // max(1, part)) // capacity if own else earliest_ms
        latest_ms = now_ms + (running + own + others) // capacity
        likely_ms = max(earliest_ms, likely_ms)
        return _span(earliest_ms, likely_ms, max(likely_ms, latest_ms))

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
        return max(state.time, (hold.started_ms if hold.started_ms is not None else state.time) + run_ms)

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
                    since_ms = hold.started_ms if hold.started_ms is not None else state.time
                    self._releases.append(_Release(max(state.time, since_ms + run_ms), hold.node, hold.demand))
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

    def _capacity(self, stage: Stage) -> Vector:
        total: Vector = {}
        for node in self._state.nodes.values():
            if not is_closed(node) and has_labels(node, stage):
                for kind, amount in node.capacity.items():
                    total[kind] = total.get(kind, 0) + amount
        if slots := slots_of(self._state.policy):
            total[SLOTS] = slots * len(self._state.nodes)
        return total

    def _rate(self, stage: Stage) -> tuple[int, int] | None:
        """How much there is of the scarcest resource, and how much of it, times how long, runs still."""
        state, kind = self._state, self._kind(stage)
        capacity = self._capacity(stage).get(kind, 0)
        if not capacity:
            return None
        running = 0
        able = {name: has_labels(node, stage) for name, node in state.nodes.items()}
        for release in self._all():
            if able[release.node]:
                amount = 1 if kind == SLOTS else release.demand.get(kind, 0)
                running += (release.at_ms - state.time) * amount
        return capacity, running

    def _work_before(self, job: LiveJob, at: int) -> tuple[int | None, int | None]:
        """What waits before a stage in its queue, and in other queues, that could run on its nodes: amounts of the
        scarcest resource times how long; None: not known of all."""
        spec, kind = job.spec, self._kind(job.graph.stages[at])
        place = (-spec.priority, job.admitted)
        sums: list[int | None] = [0, 0]
        for leaf, rows in self._pending.leaves.items():
            same = leaf == spec.queue
            for other, index, waits in rows:
                if same and ((-other.spec.priority, other.admitted) > place or (other is job and index >= at)):
                    continue
                amount = 1 if kind == SLOTS else other.graph.stages[index].demand.get(kind, 0)
                before = sums[not same]
                if amount and before is not None:
                    run_ms = run_ms_of(other, index)
                    sums[not same] = None if run_ms is None else before + waits * amount * run_ms
        return sums[0], sums[1]

    def _part(self, queue: str) -> tuple[int, int]:
        """What a queue is due among the leaves that wait, and what they are due together."""
        state = self._state
        waiting = self._pending.leaves
        due = {leaf: state.shares[leaf].fair for leaf in waiting if leaf in state.shares}
        own = due.get(queue, 0)
        return (own, sum(due.values())) if own else (1, max(1, len(waiting)))


def _fits(demand: Vector, free: Vector, most: int) -> int:
    return min([most, *[max(0, free.get(kind, 0)) // amount for kind, amount in demand.items()]])


def _span(earliest_ms: int, likely_ms: int | None, latest_ms: int | None) -> dict[str, int | None]:
    return {"earliest_ms": earliest_ms, "likely_ms": likely_ms, "latest_ms": latest_ms}
