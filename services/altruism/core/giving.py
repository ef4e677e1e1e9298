"""How a job's plan comes about, and what follows from it: which of its tasks must start now (CARBYNE, section 3.2).

A job is planned when it comes, when a stage of it has ended or a task of it failed, when what it is entitled to has
moved by more than a tolerance, and when tasks have missed their latest start; not for every task that ends. A plan that
would end the job later than the one it has is not taken while the job is in time by that and its share is no smaller.
"""

from collections.abc import Iterable, Mapping

from largesse.core import OpenRound
from largesse.ids import draw
from largesse.lifecycle.entitlements import key_of, shares_said
from largesse.lifecycle.promises import divisible
from largesse.lifecycle.remaining import direction_of, set_of, share_vector, work_of
from largesse.lifecycle.run_times import expected_ms, source_of
from largesse.lifecycle.state import Span
from schemas import Entitlement, JobPlan, LateStart, StageAsk, StageEstimate, Vector
from schemas.asks import AskKind
from schemas.estimates import end_ms
from schemas.policy import JobOrder
from schemas.presets import PRESETS
from schemas.queue_tree import upwards
from services.altruism.core.late_starts import due_by, late_of, next_need
from services.altruism.core.ledger import note_held
from services.altruism.core.state import NOTHING_STARTED, Job, Planned, Started, State
from services.altruism.core.waits import first_of, may_start, waiting
from services.altruism.planning.orders import Scores
from services.altruism.planning.plan import completed, forward
from services.altruism.planning.work import Amounts, Running, Work

PERMILLE = 1_000

LIMITS_MAX = 16
"""A plan keeps within `running_max` of so many stages, the first in the order of the graph, each as a resource of its
own: cost follows the number of resources. What it says of others is too early, so they are late and planned again."""

STEPS_A_ROUND = 1_000
"""No job is planned *again* in a round in which planning has taken this many steps (instants that a packing looks at);
the next rounds go on. One job is always planned again, so its plan may exceed this. Meanwhile the plans that jobs have
stay in force: their latest starts hold, and tasks without one are required. A job's first plan waits for nothing, but
counts."""


# ---------------------------------------------------------------- entitlements
def moved_jobs(state: State, said: list[Entitlement], entitled: Mapping[str, int]) -> list[str]:
    """Planned jobs that are entitled to something else since that was said, by more than the tolerance."""
    keys = shares_said(said)
    if not keys:
        return []
    tolerance_permille, moved = state.policy.share_tolerance_permille, list[str]()
    for name, job in state.jobs.items():
        planned = job.plan
        if planned is not None and planned.key in keys:
            before = planned.share
            if abs(entitled.get(planned.key, 0) - before) * PERMILLE > before * tolerance_permille:
                moved.append(name)
    return moved


# ---------------------------------------------------------------- plans
def plan_of(
    state: State, job: Job, name: str, entitled: Mapping[str, int], opened: OpenRound
) -> tuple[JobPlan | None, int]:
    """A plan for a job at an opening, None where the one it has stays or nothing is known to plan by; and how many
    steps that took (at least one)."""
    now_ms = opened.record.time
    direction = direction_of(work_of(job.graph, job.progress, job.seen), state.capacity)
    share = entitled.get(key_of(job.queue, set_of(direction)), 0)
    if not share:
        return None, 1
    kinds = sorted(state.capacity)
    vector = share_vector(direction, state.capacity, share)
    limits = _limits_of(job)
    work = work_left(job, kinds, now_ms, limits)
    begun = forward(work, [*[vector.get(kind, 0) for kind in kinds], *limits.values()], _job_order(state))
    deadline_ms = now_ms + begun.packing.makespan_ms
    before = job.plan
    if before is not None and deadline_ms >= before.deadline_ms and not job.derailed and share >= before.share:
        if not is_late(job, now_ms):
            return None, max(1, begun.packing.steps)
    found = completed(work, begun)
    late = [
        LateStart(
            job.graph.stages[at].stage,
            now_ms + each.at_ms,
            each.count,
            each.waves,
            work.lasts_ms[at] if each.waves > 1 else 0,
        )
        for at, stage in enumerate(found.late)
        for each in stage
    ]
    chance = draw(state.policy.seed, opened.record.round, "altruism", name) % PERMILLE
    gives = chance < permille_of(state, job)
    return JobPlan(deadline_ms, share, late, found.turned, gives, _estimates_of(job)), found.steps


def _job_order(state: State) -> JobOrder:
    return state.policy.job_order if PRESETS[state.policy.preset].keeps_job_order else "dagps"


def permille_of(state: State, job: Job) -> int:
    """In how many of a thousand plans a job gives: as it says itself, else its queue or the nearest one above that says
    so, else the policy."""
    if job.altruism_permille is not None:
        return job.altruism_permille
    if state.queues_permille:
        for path in upwards(job.queue):
            if path in state.queues_permille:
                return state.queues_permille[path]
    return state.policy.altruism_permille


def _estimates_of(job: Job) -> list[StageEstimate]:
    """What is expected of the stages that are not over, where it does not come from the spec."""
    found = []
    for at, stage in enumerate(job.graph.stages):
        if job.progress.left[at]:
            source = source_of(stage, at, job.from_history, job.seen)
            if source != "spec":
                found.append(StageEstimate(stage.stage, expected_ms(stage, job.seen), source))
    return found


def _limits_of(job: Job) -> dict[int, int]:
    """By position of a stage that has more tasks left than may run at a time, how many that are."""
    limits: dict[int, int] = {}
    for at, stage in enumerate(job.graph.stages):
        if stage.running_max is not None and stage.running_max < job.progress.left[at] and len(limits) < LIMITS_MAX:
            limits[at] = stage.running_max
    return limits


def work_left(job: Job, kinds: list[str], now_ms: int, limits: Iterable[int] = ()) -> Work:
    """A job's work as the planner takes it: stages that have ended have none. Behind the kinds of resources stands what
    a task counts for against the limit of each of these stages."""
    demand: list[Amounts] = []
    lasts, waiting, running = [], [], []
    for at, stage in enumerate(job.graph.stages):
        lasts_ms = expected_ms(stage, job.seen)
        groups = [
            Running(each.count, max(1, end_ms(each.start_ms, lasts_ms, now_ms) - now_ms))
            for each in job.started.get(at, ())
        ]
        demand.append([*[stage.demand.get(kind, 0) for kind in kinds], *[int(at == limited) for limited in limits]])
        lasts.append(lasts_ms)
        running.append(groups)
        waiting.append(max(0, job.progress.left[at] - sum([each.count for each in groups])))
    return Work(demand, lasts, waiting, running, job.graph.children)


def planned_of(state: State, job: Job, said: JobPlan) -> Planned:
    """A plan as it is kept."""
    planned = Planned(said.deadline_ms, said.share, said.gives)
    direction = direction_of(work_of(job.graph, job.progress, job.seen), state.capacity)
    planned.key = key_of(job.queue, set_of(direction))
    planned.vector = share_vector(direction, state.capacity, said.share)
    for late in said.late:
        at = job.graph.position[late.stage]
        planned.late.setdefault(at, []).append(late_of(late))
        planned.waiting[at] = planned.waiting.get(at, 0) + late.count * late.waves
    return planned


# ---------------------------------------------------------------- what follows
def required_of(job: Job, planned: Planned, at: int, spans: list[Span], now_ms: int) -> int:
    """How many of the waiting tasks of a stage, `spans`, have to start now. Those that started since the plan come off
    the earliest latest starts; a gang is needed as a whole."""
    waits = sum([span.count for span in spans])
    if at not in planned.waiting:
        return waits
    started = planned.waiting[at] - waits
    due = max(0, min(waits, due_by(planned.late[at], now_ms) - started))
    return waits if due and job.graph.stages[at].gang else due


def is_late(job: Job, now_ms: int) -> bool:
    """Whether tasks wait that had to start before this moment."""
    planned = job.plan
    if planned is None:
        return False
    return any(required_of(job, planned, at, spans, now_ms - 1) for at, spans in waiting(job).items())


def next_due(job: Job, now_ms: int) -> int | None:
    """When the next of the tasks that could start now has to; None where all have to already, or none is planned."""
    planned = job.plan
    found = None
    if planned is None or not planned.gives:
        return None
    for at, spans in waiting(job).items():
        started = planned.waiting.get(at, 0) - sum([span.count for span in spans])
        at_ms = next_need(planned.late.get(at, []), started, now_ms)
        if at_ms is not None:
            found = at_ms if found is None else min(found, at_ms)
    return found


def _in_share(state: State, job: Job, planned: Planned, may: dict[int, int]) -> dict[int, int]:
    """How many waiting tasks of each stage a job that gives nothing asks for: in the order of the graph, what fits into
    its share beside what it runs; at most as many as `may` start."""
    vector = share_vector(
        direction_of(work_of(job.graph, job.progress, job.seen), state.capacity), state.capacity, planned.share
    )
    for at in may:
        for kind, amount in job.graph.stages[at].demand.items():
            vector[kind] = max(vector.get(kind, 0), amount)
    for at, groups in job.started.items():
        for kind, amount in job.graph.stages[at].demand.items():
            vector[kind] = vector.get(kind, 0) - amount * sum([each.count for each in groups])
    found = {}
    for at in sorted(may):
        stage = job.graph.stages[at]
        demand = [(kind, amount) for kind, amount in stage.demand.items() if amount]
        count = min([may[at], *[vector[kind] // amount for kind, amount in demand]])
        found[at] = count = 0 if count < (stage.tasks if stage.gang else 1) else count
        for kind, amount in demand:
            vector[kind] -= amount * count
    return found


def asks_of(state: State, name: str, job: Job, planned: Planned | None, now_ms: int) -> list[StageAsk]:
    """What could start now, tasks of a stage that come back first: all that has to start, stage by stage in the order
    of the graph, then the rest."""
    asks: dict[AskKind, list[StageAsk]] = {"required": [], "optional": []}
    later, waits = state.backing_off.get(name, ()), waiting(job)
    may = {at: may_start(job, at, spans, later) for at, spans in waits.items()}
    fits = _in_share(state, job, planned, may) if planned is not None and not planned.gives else {}
    for at, spans in sorted(waits.items()):
        stage = job.graph.stages[at].stage
        need = None if planned is None else fits[at] if fits else required_of(job, planned, at, spans, now_ms)
        for span in first_of(spans, may[at]):
            first = span.count if need is None else min(need, span.count)
            if need is not None:
                need -= first
            if first:
                asks["required"].append(StageAsk(stage, span.first, first, span.attempt, span.since_ms))
            if rest := span.count - first:
                ask = StageAsk(stage, span.first + first, rest, span.attempt, span.since_ms, "optional")
                asks["optional"].append(ask)
    return asks["required"] + _ordered(state, job, asks["optional"], now_ms)


def _ordered(state: State, job: Job, asks: list[StageAsk], now_ms: int) -> list[StageAsk]:
    """Optional asks in the order in which leftover serves them: breadth first (CARBYNE, section 4) or, where
    `job_order` says so, by the longest way to the end; under `dagps` in the order of the graph."""
    order = _job_order(state)
    if len(asks) < 2 or order == "dagps":
        return asks
    order = "critical_path" if order == "critical_path" else "breadth_first"
    scores = Scores(order, work_left(job, [], now_ms), [])
    return sorted(asks, key=lambda ask: -scores.of(job.graph.position[ask.stage], []))


# ---------------------------------------------------------------- what runs
def start_tasks(job: Job, at: int, count: int, time: int) -> None:
    """Tasks of a stage have been granted."""
    note_held(job, at, count, time)
    if job.started is NOTHING_STARTED:
        job.started = {}
    groups = job.started.setdefault(at, [])
    if groups and groups[-1].start_ms == time:
        groups[-1].count += count
    else:
        groups.append(Started(time, count))


def stop_tasks(job: Job, at: int, count: int, time: int) -> None:
    """Tasks of a stage have ended. Which does not matter: those that started first are taken to have."""
    note_held(job, at, -count, time)
    groups = job.started.get(at)
    if groups is None:
        return
    while count and groups:
        ended = min(count, groups[0].count)
        groups[0].count -= ended
        count -= ended
        if not groups[0].count:
            del groups[0]
    if not groups:
        del job.started[at]


def running_now(job: Job, later: Mapping[int, int], time: int) -> dict[int, list[Started]]:
    """What runs of a job whose starts were not noted, as if it had started now; `later`: by stage, tasks that wait
    out a back-off."""
    found: dict[int, list[Started]] = {}
    waits = waiting(job)
    for at, left in enumerate(job.progress.left):
        if not job.progress.parents[at]:
            count = left - sum([span.count for span in waits.get(at, ())]) - later.get(at, 0)
            if count > 0:
                found[at] = [Started(time, count)]
    return found or NOTHING_STARTED


def count_capacity(state: State, node: str, capacity: Vector | None) -> None:
    """A node has this much, or is gone."""
    for vector, sign in ((state.nodes.pop(node, {}), -1), (capacity or {}, 1)):
        for kind, amount in vector.items():
            state.whole[kind] = state.whole.get(kind, 0) + sign * amount
            if not state.whole[kind]:
                del state.whole[kind]
    if capacity is not None:
        state.nodes[node] = capacity
    state.capacity = divisible(state.whole, state.promises.amount)
