"""When waiting tasks will start, by what is expected of those that run. An estimate, not a promise.

`earliest`: nobody else takes what ends first: the moment at which running tasks have left room for one task (of a gang:
for all) on nodes that could run it. `likely`: of what comes free, queues get what brings them to what they are due, and
then their parts of it; a task starts once its queue has got enough for those before it. `latest`: all that waits in
other queues starts first, too. Amounts are of the resource that is scarcest for the task; what is taken comes free
again when as much time has passed as waiting tasks take in the mean. Tasks for which nothing is estimated take what
others of their stage took; where that is not known either, nothing is told. Running tasks that have outlived their
estimates are expected to run on for a part of the time that they have run. Limits that tasks count for, beside room,
are in start_limits.py: a task starts when both let it.

What is told in the end is corrected by the last predictions that have been scored (predictions.py).
"""

from largesse.lifecycle.slots import counted_demand, slots_of
from schemas import Stage, Vector
from schemas.presets import PRESETS
from schemas.quantities import SHARE_UNITS, SLOTS
from schemas.queue_tree import is_below
from services.gateway.view.jobs import LiveJob
from services.gateway.view.pending import Pending, Row
from services.gateway.view.predictions import Start, corrected, ratios_of
from services.gateway.view.releases import Curve, Releases, curve_of, run_ms_of
from services.gateway.view.room import free_of, has_labels, is_closed
from services.gateway.view.start_limits import ONE_LIST, LimitStarts, latest_of
from services.gateway.view.state import State

UNFORESEEN = frozenset({"held", "no_node", "after", "promise_used", "failed_there", "spread"})
"""Reasons that ends of running tasks alone do not remove: no start is told."""
LIMITS = frozenset({"queue_max", "user_running_max", "running_max", "running_limit", "lease"})
"""Reasons for which tasks wait where there may be room."""
SURE = frozenset({"back_off", "next_round"})
"""Reasons that end at a known time."""
BY_WORK = ("srtf", "sjf")


class Starts:
    """Estimates about one state of the view, which must not change while this is in use."""

    def __init__(self, state: State, pending: Pending | None = None) -> None:
        self._state = state
        self._pending = pending or Pending(state)
        self._releases = Releases(state)
        self._limits = LimitStarts(state, self._pending, self._releases, self._ahead, self._cycle_ms)
        self._known: dict[tuple[str, int, str], Start | None] = {}
        self._curves: dict[tuple[str, ...], Curve] = {}
        self._work: dict[str, int] = {}
        self._cycles: dict[str, int] = {}
        self._ahead_of: tuple[tuple[str, int], list[Row]] = ("", 0), []
        self._waits: dict[tuple[str, str], int] = {}
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
        now_ms = self._state.time
        if reason in UNFORESEEN:
            return None
        if reason == "back_off":
            back_ms = max(now_ms, job.retry_ms[at])
            return Start(back_ms, back_ms, back_ms)
        if reason == "next_round":
            return Start(now_ms, now_ms, now_ms)
        kind = self._kind(job.graph.stages[at])
        limits = self._limits.of(job, at, reason, kind)
        room = None if limits is None else self._room(job, at, kind, reason in LIMITS)
        return None if limits is None or room is None else latest_of((limits, room))

    def _room(self, job: LiveJob, at: int, kind: str, is_limited: bool) -> Start | None:
        """When there is room for the next task of a stage; what is free now counts where a limit holds it back."""
        stage = job.graph.stages[at]
        earliest_ms = self._earliest(stage)
        if earliest_ms is None:
            return None
        curve, cycle_ms = self._curve(stage, kind), self._cycle_ms(kind)
        own, others = self._before(job, at, kind)
        needed = own + self._amount(stage, kind) * (stage.tasks if stage.gang else 1)
        free = self._free(stage, kind) if is_limited and earliest_ms <= self._state.time else 0
        likely_ms, latest_ms = (
            self._state.time if amount <= free else curve.reach_ms(amount - free, cycle_ms)
            for amount in (self._share_of(job.spec.queue, kind, needed), needed + others)
        )
        if likely_ms is None or latest_ms is None:
            return Start(earliest_ms, None, None)
        likely_ms = max(earliest_ms, likely_ms)
        return Start(earliest_ms, likely_ms, max(likely_ms, latest_ms))

    def ends(self, queue: str) -> list[int]:
        """When running tasks of a queue and those below it are expected to end."""
        return [each.at_ms for each in self._releases.all() if is_below(each.hold.queue, queue)]

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
        for release in self._releases.all():
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

    def _curve(self, stage: Stage, kind: str) -> Curve:
        """What comes free of a resource on nodes that could run a stage."""
        key = (kind, *(text for pair in sorted(stage.labels.items()) for text in pair))
        if key not in self._curves:
            able = {name: not is_closed(node) and has_labels(node, stage) for name, node in self._state.nodes.items()}
            self._curves[key] = curve_of(
                (release.at_ms, 1 if kind == SLOTS else release.demand.get(kind, 0))
                for release in self._releases.all()
                if able[release.node]
            )
        return self._curves[key]

    def _free(self, stage: Stage, kind: str) -> int:
        """What is free of a resource on nodes that could run a stage."""
        policy, nodes = self._state.policy, self._state.nodes.values()
        able = [node for node in nodes if not is_closed(node) and has_labels(node, stage)]
        return sum(max(0, free_of(policy, node).get(kind, 0)) for node in able)

    def _cycle_ms(self, kind: str) -> int:
        """How long tasks that wait will hold a resource, in the mean."""
        if kind in self._cycles:
            return self._cycles[kind]
        amounts = times = 0
        for rows in self._pending.leaves.values():
            for job, at, waits in rows:
                amount, run_ms = waits * self._amount(job.graph.stages[at], kind), run_ms_of(job, at)
                if run_ms is not None:
                    amounts += amount
                    times += amount * run_ms
        self._cycles[kind] = times // amounts if amounts else 0
        return self._cycles[kind]

    def _before(self, job: LiveJob, at: int, kind: str) -> tuple[int, int]:
        """How much of a resource waits before a stage in its queue, and in other queues."""
        own = sum(waits * self._amount(row.graph.stages[index], kind) for row, index, waits in self._ahead(job, at))
        if PRESETS[self._state.policy.preset].sharing in ONE_LIST:
            return own, 0
        return own, sum(self._waiting(leaf, kind) for leaf in self._pending.leaves if leaf != job.spec.queue)

    def _ahead(self, job: LiveJob, at: int) -> list[Row]:
        """What waits before a stage in its queue, or in the one list of all jobs."""
        key = job.spec.job, at
        if self._ahead_of[0] != key:
            place, one_list = self._place(job), PRESETS[self._state.policy.preset].sharing in ONE_LIST
            rows: list[Row] = []
            for leaf, found in self._pending.leaves.items():
                if one_list or leaf == job.spec.queue:
                    rows += [row for row in found if (row[1] < at if row[0] is job else self._place(row[0]) < place)]
            self._ahead_of = key, rows
        return self._ahead_of[1]

    def _waiting(self, leaf: str, kind: str) -> int:
        """How much of a resource waits in a queue."""
        key = leaf, kind
        if key not in self._waits:
            rows = self._pending.leaves[leaf]
            self._waits[key] = sum(waits * self._amount(job.graph.stages[at], kind) for job, at, waits in rows)
        return self._waits[key]

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
