"""How the planner folds records: `FOLDS` maps each type to its function."""

from largesse.core import Folds
from schemas import (
    ConfigChanged,
    JobAdmitted,
    JobEnded,
    NodeDrained,
    NodeForgotten,
    NodeLost,
    NodeRegistered,
    NodeReported,
    PlanProfile,
    PlanProposed,
    Plans,
    Record,
    ReservationDeleted,
    ReservationRequested,
    ReservationUpdated,
    RoundOpened,
    SeriesEnded,
    SeriesRequested,
    TaskFailed,
    TaskFinished,
    TaskStarted,
)
from schemas.plans import UNASKED
from schemas.queue_tree import walk
from services.planner.core.broken import fold_retries, forget_broken, keep_broken, list_retries, restored
from services.planner.core.nodes import Node, counted
from services.planner.core.progress import admit, end, learn, look, overruns
from services.planner.core.promises import Lease, Promise
from services.planner.core.state import Series, State
from services.planner.core.turns import answered, begin_anew, step, take, turn
from services.planner.core.waiting import Proposal, Request


def start(shard: int = 0, of: int = 1) -> State:
    """An empty cell."""
    return State()


def fold(state: State, record: Record) -> None:
    """Folds one log record."""
    FOLDS[type(record.body)](state, record)


# ---------------------------------------------------------------- requests
def _requested(state: State, record: Record[ReservationRequested]) -> None:
    body = record.body
    forget_broken(state, body.reservation)
    asked = Request("request", body.reservation, body.user, body.queue, body.rdl, record.seq, series=body.series)
    asked.weight = body.weight
    take(state, asked)
    if body.series in state.series:
        state.series[body.series].asked_s = body.occurrence_s


def _updated(state: State, record: Record[ReservationUpdated]) -> None:
    body = record.body
    broken = state.broken.get(body.reservation)
    asked = Request("update", body.reservation, body.user, body.queue, body.rdl, record.seq, weight=body.weight)
    if broken is not None:  # Nothing is promised to it that other terms could take the place of.
        asked.kind, asked.series = "request", broken.promise.series
    take(state, asked)


def _deleted(state: State, record: Record[ReservationDeleted]) -> None:
    body = record.body
    if body.reservation in state.broken:
        forget_broken(state, body.reservation)
        begin_anew(state)
    take(state, Request("delete", body.reservation, body.user, "", "", record.seq))


def _series(state: State, record: Record[SeriesRequested]) -> None:
    body = record.body
    terms = (body.user, body.queue, body.rdl, body.every, body.zone, body.start_s)
    state.series[body.series] = Series(*terms, record.seq, weight=body.weight)


def _series_ended(state: State, record: Record[SeriesEnded]) -> None:
    del state.series[record.body.series]


def _proposed(state: State, record: Record[PlanProposed]) -> None:
    take(state, Proposal(record.seq, record.body.plans))


# ---------------------------------------------------------------- capacity
def _config(state: State, record: Record[ConfigChanged]) -> None:
    body = record.body
    if body.queues is not None:
        ceilings = {path: queue.max for path, queue in walk(body.queues) if queue.max}
        if ceilings != state.ceilings:
            state.ceilings, state.rounds, state.plan, state.returned = ceilings, 0, None, True
    if body.policy is None or body.policy == state.policy:
        return
    state.policy = body.policy
    state.returned = True
    state.rounds = 0
    state.plan = None
    _take_step(state)


def _take_step(state: State) -> None:
    """The length of a step, once nothing is planned in steps of another."""
    if not (state.promises or state.broken) and state.step_ms != state.policy.reservation_step_ms:
        state.step_ms = state.policy.reservation_step_ms
        state.plan = None


def _registered(state: State, record: Record[NodeRegistered | NodeReported]) -> None:
    body = record.body
    before = state.nodes.get(body.node)
    draining = before is not None and before.draining
    _set_node(state, body.node, Node(dict(body.capacity), True, draining, bool(body.unschedulable)))
    if isinstance(body, NodeRegistered):
        learn(state, body, record.time)


def _drained(state: State, record: Record[NodeDrained]) -> None:
    body = record.body
    node = state.nodes[body.node]
    _set_node(state, body.node, Node(node.capacity, node.up, body.draining, node.unschedulable))


def _lost(state: State, record: Record[NodeLost]) -> None:
    node = state.nodes[record.body.node]
    _set_node(state, record.body.node, Node(node.capacity, False, node.draining, node.unschedulable))
    learn(state, record.body, record.time)


def _forgotten(state: State, record: Record[NodeForgotten]) -> None:
    state.nodes.pop(record.body.node, None)


def _set_node(state: State, name: str, node: Node) -> None:
    before = state.nodes.get(name)
    state.nodes[name] = node
    old = counted(before) if before is not None else {}
    new = counted(node)
    if old == new:
        return
    for resource, amount in old.items():
        state.capacity[resource] -= amount
    for resource, amount in new.items():
        state.capacity[resource] = state.capacity.get(resource, 0) + amount
    if any(new.get(resource, 0) < amount for resource, amount in old.items()):
        state.rounds = 0
    if any(old.get(resource, 0) < amount for resource, amount in new.items()):
        state.freed = state.returned = True
    if state.plan is not None and not state.plan.resize(state.nodes, state.capacity):
        state.plan = None


# ---------------------------------------------------------------- jobs of reservations
def _admitted(state: State, record: Record[JobAdmitted]) -> None:
    admit(state, record.body.spec, record.body.kept)


def _ended(state: State, record: Record[JobEnded]) -> None:
    for ended in record.body.jobs:
        end(state, ended, record.time)


def _tasks(state: State, record: Record[TaskStarted | TaskFinished | TaskFailed]) -> None:
    learn(state, record.body, record.time)


# ---------------------------------------------------------------- rounds and answers
def _opened(state: State, record: Record[RoundOpened]) -> None:
    if not (state.waiting or state.promises or state.broken or state.ended):
        return
    now = record.time // state.step_ms
    new_step = now + 1 != state.first
    if new_step:
        step(state)
        state.first = now + 1
        state.rounds = 0
    if state.wake_ms is not None and state.wake_ms <= record.time:
        state.wake_ms = None
        _end_promises(state, now, record.time)
    is_new = look(state, record.time, new_step=new_step)
    if list_retries(state) or is_new:
        begin_anew(state)  # What is to follow, or tried again, comes before what was searched for so far.
    state.rounds += 1
    turn(state)


def _end_promises(state: State, now: int, now_ms: int) -> None:
    """Forgets the promises whose last lease ends by the beginning of step `now`, unless they may get longer ones."""
    for name, promise in list(state.promises.items()):
        if max(lease.end for lease in promise.leases) <= now and not overruns(state, name, now_ms):
            del state.promises[name]
            state.ended[name] = True
            state.freed = state.returned = True
            if state.plan is not None:
                state.plan.end(name)
    for name, broken in list(state.broken.items()):
        if broken.until_ms <= now_ms:
            forget_broken(state, name)
            state.ended[name] = True
    _take_step(state)


def _planned(state: State, record: Record[Plans]) -> None:
    body = record.body
    state.plan_seq, state.wake_ms = record.seq, body.wake_ms
    if not (body.answers or body.profiles or body.gone or body.proposals):
        return  # Planning goes on.
    state.rounds = 0
    answers = [answer for answer in body.answers if answer.reason not in UNASKED]
    done = answered(state, [each.reservation for each in answers], [each.seq for each in body.proposals])
    asked = {
        one.reservation: one
        for one, answer in zip(done, answers, strict=False)
        if answer.accepted and one.kind != "delete"
    }
    for answer in body.answers:
        if answer.reason == "broken" and answer.retry_until_ms is not None and answer.reservation in state.promises:
            keep_broken(state, answer.reservation, answer.retry_until_ms, answer.detail)
        elif answer.reason == "deleted":
            forget_broken(state, answer.reservation)
    for name in body.gone:
        if state.promises.pop(name, None) is not None and name not in state.broken:
            state.returned = True
        state.ended.pop(name, None)
        state.freed = True
    for profile in body.profiles:
        one_asked = asked.get(profile.reservation)
        if one_asked is not None:
            before = state.promises.get(profile.reservation)
            series = one_asked.series or (before.series if before is not None else "")
            forget_broken(state, profile.reservation)
            promise = Promise(one_asked.user, one_asked.queue, one_asked.rdl, one_asked.seq, series=series)
            promise.weight = one_asked.weight
            state.promises[profile.reservation] = promise
            if profile.reservation in state.reserving:
                state.active[profile.reservation] = True
        if profile.reservation in state.broken:
            restored(state, profile.reservation)
        promise = state.promises[profile.reservation]
        promise.leases = [
            Lease(step.atom, step.from_ms // state.step_ms, step.to_ms // state.step_ms, step.units // step.gang)
            for step in profile.steps
        ]
        _followed(state, promise, profile)
    reported = {profile.reservation: True for profile in body.profiles if profile.progress}
    state.looks = [
        each for each in state.looks if each.reservation in state.promises and each.reservation not in reported
    ]
    fold_retries(state, body)
    if state.plan is not None and not state.plan.confirm(body):
        state.plan = None
    _take_step(state)


def _followed(state: State, promise: Promise, profile: PlanProfile) -> None:
    """What a plan says of the progress of its atoms."""
    if not profile.progress:
        return
    gangs = {step.atom: step.gang for step in profile.steps}
    for each in profile.progress:
        promise.works[each.atom] = each.work_ms // (gangs.get(each.atom, 1) * state.step_ms)
        promise.missing[each.atom] = each.missing_ms
        if each.missing_ms <= 0:
            state.freed = True


FOLDS: Folds[State] = {
    ReservationRequested: _requested,
    ReservationUpdated: _updated,
    ReservationDeleted: _deleted,
    SeriesRequested: _series,
    SeriesEnded: _series_ended,
    PlanProposed: _proposed,
    ConfigChanged: _config,
    NodeRegistered: _registered,
    NodeReported: _registered,
    NodeDrained: _drained,
    NodeLost: _lost,
    NodeForgotten: _forgotten,
    JobAdmitted: _admitted,
    JobEnded: _ended,
    TaskStarted: _tasks,
    TaskFinished: _tasks,
    TaskFailed: _tasks,
    RoundOpened: _opened,
    Plans: _planned,
}
