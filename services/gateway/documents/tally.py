"""Counts over all jobs and nodes of a cell, kept up to date: a look at them costs what has changed since the last one.

The view notes the names of jobs and nodes that change (`Touched`). A look subtracts what each of them counted as
before, and adds what it counts as now.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from heapq import heappop, heappush

from largesse.lifecycle.job_classes import class_names
from schemas import Stage, Vector
from schemas.jobs import UNJUDGED
from services.gateway.documents.counting import added
from services.gateway.documents.jobs import state_of
from services.gateway.documents.nodes import state_of_node
from services.gateway.documents.promised_waits import NEED_ROOM
from services.gateway.documents.queueing import Queueing
from services.gateway.documents.reserved_waits import ReservedWaits
from services.gateway.documents.user_limits import beyond, width_of
from services.gateway.view.jobs import LiveJob, held_in, waiting_of
from services.gateway.view.state import State, Touched, said_of, stage_class_key
from services.gateway.view.user_tasks import counts_for

LOOKED_AT_ONCE = 200
"""Jobs, nodes or sums that are processed before other tasks get a turn: some milliseconds."""

Key = tuple[str, str, str]
"""Leaf queue; why its tasks wait ("asked": as their class does, "asked/USER": so, where only so many of that user run;
"running": they do not wait); class of the tasks."""
Keys = dict[Key, tuple[int, Stage | None]]
"""By key, the number of tasks and, if the key has a class, a stage of that class."""


@dataclass(slots=True)
class Waiting:
    """Tasks that wait for one reason. `since_ms`: when the oldest job among them was submitted."""

    tasks: int = 0
    since_ms: int | None = None

    def take(self, tasks: int, since_ms: int | None) -> None:
        """Adds tasks."""
        self.tasks += tasks
        if since_ms is not None and (self.since_ms is None or since_ms < self.since_ms):
            self.since_ms = since_ms


@dataclass(slots=True)
class OfClass:
    """Live jobs of a class, those that have started a task and the others, and what their tasks hold."""

    running: int = 0
    waiting: int = 0
    held: Vector = field(default_factory=dict)

    def add(self, other: "OfClass", sign: int = 1) -> None:
        """Counts as many more, or with `sign` -1 fewer."""
        self.running += sign * other.running
        self.waiting += sign * other.waiting
        added(self.held, {kind: sign * amount for kind, amount in other.held.items()})


@dataclass(slots=True)
class Counts:
    """What a look found. `waiting`: by leaf queue and reason; `running`: tasks by leaf queue; `capacity`, `used`,
    `devices` by state: of the nodes that are there; `classes`: by name, as the policy has them."""

    waiting: dict[tuple[str, str], Waiting] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)
    capacity: Vector = field(default_factory=dict)
    used: Vector = field(default_factory=dict)
    devices: dict[str, int] = field(default_factory=dict)
    classes: dict[str, OfClass] = field(default_factory=dict)


@dataclass(slots=True)
class _Sum:
    """Tasks with one key, and the jobs that they belong to: by name, (submitted, seq of admission). `stage`: one of
    those with a class, which stands for all."""

    stage: Stage | None = None
    tasks: int = 0
    jobs: dict[str, tuple[int, int]] = field(default_factory=dict)
    oldest: list[tuple[int, int, str]] = field(default_factory=list)

    def put(self, name: str, job: LiveJob, tasks: int) -> None:
        self.tasks += tasks
        self.jobs[name] = job.submitted_ms, job.admitted
        heappush(self.oldest, (job.submitted_ms, job.admitted, name))

    def remove(self, name: str, tasks: int) -> None:
        self.tasks -= tasks
        del self.jobs[name]
        # Outdated entries are dropped when they come first, or when they are more than half.
        if len(self.oldest) > 2 * len(self.jobs) + 16:
            self.oldest = sorted((*rank, job) for job, rank in self.jobs.items())

    def since_ms(self) -> int | None:
        while self.oldest:
            submitted, order, name = self.oldest[0]
            if self.jobs.get(name) == (submitted, order):
                return submitted
            heappop(self.oldest)
        return None


class Tally:
    """The counts of one cell. Belongs to one event loop."""

    def __init__(self) -> None:
        self.looked_at = 0
        """Jobs and nodes that were counted so far, as a measure of cost."""
        self._turn = asyncio.Lock()
        self._clear()

    def _clear(self) -> None:
        self._touched = Touched()
        self._again: dict[str, bool] = {}
        self._sums: dict[Key, _Sum] = {}
        self._jobs: dict[str, tuple[str, Keys]] = {}
        self._nodes: dict[str, tuple[str, Vector, Vector, dict[str, int]]] = {}
        self._devices: dict[str, int] = {}
        self._job_states: Counter[str] = Counter()
        self._class_of: dict[str, tuple[int, OfClass]] = {}
        self._classes: dict[int, OfClass] = {}
        self._node_states: Counter[str] = Counter()
        self._capacity: Vector = {}
        self._used: Vector = {}

    async def look(self, state: State) -> Counts:
        """The present counts. Other tasks get turns; what they change after it was counted, the next look counts."""
        async with self._turn:
            touched = self._touched
            if state.touched is touched:
                jobs, nodes = touched.jobs | self._again, touched.nodes
                touched.jobs, touched.nodes = {}, {}
            else:
                self._clear()
                jobs, nodes = dict.fromkeys([*state.jobs, *state.ended], True), dict.fromkeys(state.nodes, True)
                state.touched = self._touched
            self._again = {}
            try:
                await self._count(state, jobs, nodes)
                return await self._counts(state)
            except BaseException:
                state.touched = None  # It is not known which changes were counted, so the next look counts everything.
                raise

    async def _count(self, state: State, jobs: dict[str, bool], nodes: dict[str, bool]) -> None:
        for number, name in enumerate(nodes):
            self._count_node(state, name)
            await _turn(number)
        reserved = ReservedWaits(state)
        for number, name in enumerate(jobs):
            if self._count_job(state, reserved, name):
                self._again[name] = True
            await _turn(number)

    # ---------------------------------------------------------------- one job, one node
    def _count_job(self, state: State, reserved: ReservedWaits, name: str) -> bool:
        """Counts a job as it is now. True if its counts change with time alone."""
        self.looked_at += 1
        before, keys = self._jobs.pop(name, ("", {}))
        self._job_states[before] -= 1
        for key, (tasks, _) in keys.items():
            found = self._sums[key]
            found.remove(name, tasks)
            if not found.jobs:
                del self._sums[key]
        now = state_of(state, name)
        if now is None:
            self._count_class(name, None)
            return False
        self._job_states[now] += 1
        job = state.jobs.get(name)
        self._count_class(name, job)
        self._jobs[name] = now, {}
        if job is None:
            return False
        self._jobs[name] = now, (keys := _keys_of(state, reserved, job))
        for key, (tasks, stage) in keys.items():
            self._sums.setdefault(key, _Sum(stage)).put(name, job, tasks)
        if job.spec.reservation is not None and any(job.asked):
            return True  # It may begin its lease, or another job of its reservation may start.
        return any(reason == "back_off" for _, reason, _ in keys)

    def _count_class(self, name: str, job: LiveJob | None) -> None:
        if name in self._class_of:
            index, before = self._class_of.pop(name)
            self._classes[index].add(before, -1)
        if job is None or job.job_class == UNJUDGED:
            return
        held: Vector = {}
        for stage, running, starting in zip(job.graph.stages, job.running, job.starting, strict=True):
            if running + starting:
                added(held, {kind: amount * (running + starting) for kind, amount in stage.demand.items()})
        now = OfClass(int(job.started_ms is not None), int(job.started_ms is None), held)
        self._class_of[name] = job.job_class, now
        self._classes.setdefault(job.job_class, OfClass()).add(now)

    def _count_node(self, state: State, name: str) -> None:
        self.looked_at += 1
        before, capacity, used, devices = self._nodes.pop(name, ("", {}, {}, {}))
        self._node_states[before] -= 1
        added(self._capacity, {kind: -amount for kind, amount in capacity.items()})
        added(self._used, {kind: -amount for kind, amount in used.items()})
        added(self._devices, {kind: -amount for kind, amount in devices.items()})
        node = state.nodes.get(name)
        if node is None:
            return
        listed = {} if node.lost else {"ready": len(node.devices), "out": len(node.out)}
        now = state_of_node(node), {} if node.lost else node.capacity, {} if node.lost else dict(node.used), listed
        self._nodes[name] = now
        self._node_states[now[0]] += 1
        added(self._capacity, now[1])
        added(self._used, now[2])
        added(self._devices, now[3])

    # ---------------------------------------------------------------- all
    async def _counts(self, state: State) -> Counts:
        counts = Counts(
            jobs={name: count for name, count in self._job_states.items() if name and count},
            nodes={name: count for name, count in self._node_states.items() if name and count},
            capacity={kind: amount for kind, amount in self._capacity.items() if amount},
            used={kind: amount for kind, amount in self._used.items() if amount},
            devices={kind: amount for kind, amount in self._devices.items() if amount},
        )
        names = class_names(state.policy)
        counts.classes = {name: OfClass() for name in names}
        for index, of_class in self._classes.items():
            counts.classes[names[min(index, len(names) - 1)]].add(of_class)
        queueing, ceilings = Queueing(state), state.ceilings
        for number, (key, found) in enumerate(self._sums.items()):
            (leaf, reason, kind), tasks = key, found.tasks
            if reason == "running":
                counts.running[leaf] = counts.running.get(leaf, 0) + found.tasks
                continue
            if found.stage is not None:
                if state.ceilings is not ceilings:  # Another tree is in force.
                    queueing, ceilings = Queueing(state), state.ceilings
                _, of_user, user = reason.partition("/")
                limit = queueing.users.of(leaf, user) if of_user else None
                if limit is not None and (held_back := beyond(limit, tasks, width_of(found.stage))):
                    counts.waiting.setdefault((leaf, "user_running_max"), Waiting()).take(held_back, found.since_ms())
                    tasks -= held_back
                held = queueing.at_max(leaf, found.stage)
                reason = "queue_max" if held else said_of(state, kind) or "next_round"
                if reason in NEED_ROOM and queueing.promised.text(found.stage):
                    reason = "promised"
            if tasks:
                counts.waiting.setdefault((leaf, reason), Waiting()).take(tasks, found.since_ms())
            await _turn(number)
        return counts


def _keys_of(state: State, reserved: ReservedWaits, job: LiveJob) -> Keys:
    """What the tasks of a job count as. Follows `documents`, which says in words why tasks wait."""
    keys: Keys = {}
    for at, stage in enumerate(job.graph.stages):
        working = job.running[at] + job.starting[at]
        waiting = waiting_of(job, at)
        asked = held = 0
        if job.progress.parents[at]:
            reason = "after"
        elif job.hold is not None:
            reason = "held"
        elif not job.began:
            reason = "running_limit"
        else:
            asked, held = min(waiting, job.asked[at]), held_in(job, at, waiting)
            reason = "back_off" if job.retry_ms[at] > state.time else "next_round"
        waits = reserved.why(job, at) if asked else None
        if waits is not None:
            _put(keys, (job.spec.queue, waits[0], ""), asked)
        elif asked and f"{job.spec.job}/{stage.stage}" in state.promised:
            _put(keys, (job.spec.queue, "promised", ""), asked)
        elif asked:
            why = f"asked/{job.spec.user}" if counts_for(state, job) else "asked"
            _put(keys, (job.spec.queue, why, stage_class_key(job.spec, stage)), asked, stage)
        _put(keys, (job.spec.queue, "running_max", ""), held)
        _put(keys, (job.spec.queue, reason, ""), waiting - asked - held)
        _put(keys, (job.spec.queue, "running", ""), working)
    return keys


def _put(keys: Keys, key: Key, tasks: int, stage: Stage | None = None) -> None:
    if tasks:
        keys[key] = keys.get(key, (0, None))[0] + tasks, stage


async def _turn(number: int) -> None:
    """Gives other tasks a turn from time to time."""
    if number % LOOKED_AT_ONCE == LOOKED_AT_ONCE - 1:
        await asyncio.sleep(0)
