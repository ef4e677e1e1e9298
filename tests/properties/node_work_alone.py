"""What the log says must run on one node, folded for that node alone: the plain reference of lifecycle/node_work.py.

Folds   JobAdmitted, JobChanged, JobCancelled, JobEnded, NodeRegistered, NodeReported, NodeDrained, NodeLost,
        NodeForgotten, RoundClosed, the task facts, ConfigChanged. Of every record the time: a drain may have a
        deadline.
Decides nothing by `decide`: `take` says what has changed for the node since it was last asked. What is held here is
exactly what the sequencer holds for the node, whatever the epoch, so a restarted agent can tell what is still wanted.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from largesse.lifecycle.handed import Handed, Past, handed_at_first, remember
from largesse.lifecycle.job_life import end_gang_attempt
from largesse.lifecycle.task_facts import SpareEnd, TaskFact, facts_of
from schemas import (
    ConfigChanged,
    DeviceShare,
    JobAdmitted,
    JobCancelled,
    JobChanged,
    JobEnded,
    JobSpec,
    NodeDrained,
    NodeForgotten,
    NodeLost,
    NodeRegistered,
    NodeReported,
    Policy,
    Record,
    Revocation,
    RoundClosed,
    Stage,
    TaskFailed,
    TaskFinished,
    TaskRange,
    TaskStarted,
    Vector,
)
from schemas.tasks import TaskEnd, TaskFailure

LAYOUT = 8
EPOCHS_MAX = 64
"""Registrations of a node that its agent remembers, to know one that comes again."""

StopReason = Literal["killed", "gang", "revoked", "superseded"]
Standing = Literal["new", "registered", "lost", "taken"]
"""Of this agent's epoch: not in the log yet; in force; its lease ran out; another epoch followed it."""


@dataclass(slots=True)
class Job:
    """A job that has not ended. `run`: seq of its admission, which tells it from an earlier job of its name. `broken`:
    by gang stage, the last attempt that ended without success. `copied`: tasks that were granted copies, here or
    elsewhere, as "stage/index". `peers`: by gang stage that has started here, where the tasks of its last attempt are
    reached, in order, as HOST:PORT. `handed`: by stage of which others need the results, the tasks that succeeded.
    `counted`: by stage, what its tasks count for where they ask for more."""

    spec: JobSpec
    run: int
    over: bool = False
    broken: dict[str, int] = field(default_factory=dict)
    copied: dict[str, bool] = field(default_factory=dict)
    peers: dict[str, list[str]] = field(default_factory=dict)
    handed: dict[str, list[Handed]] = field(default_factory=dict)
    counted: dict[str, Vector] = field(default_factory=dict)
    queue: str = ""


@dataclass(slots=True)
class HeldAttempt:
    """An attempt that the log says the node holds. `begun`: the log has its start. `given`: `take` has said to start
    it. `grace_ms`: once a closing has taken it back, how long it has to end by itself. `copy`: another attempt of the
    task ran when it was granted.
    """

    job: str
    stage: str
    index: int
    attempt: int
    run: int
    epoch: str
    devices: list[DeviceShare] = field(default_factory=list)
    begun: bool = False
    given: bool = False
    stop: StopReason | None = None
    grace_ms: int | None = None
    copy: bool = False


@dataclass(slots=True)
class State:
    """One node's part of a cell. `held` by attempt_key, `held_of` the same keys by job. `changed`: keys to look at
    in the next `take`. `rival`: the epoch of another agent that has registered this node after ours, whether or not
    ours was lost by then. `epochs`: the latest that were registered, the last one last. `unschedulable`: why the
    node takes no new tasks, as the log has it of our epoch. `drain_until_ms`: the log time at which all that is
    held is revoked, as a drain asks for; None: it is not. `hosts`: by node of the cell, where its tasks are reached;
    `addresses`: where its agent can be asked; "": nowhere. `past`: what jobs that have ended
    handed on.
    """

    node: str
    epoch: str
    standing: Standing = "new"
    rival: str = ""
    epochs: dict[str, bool] = field(default_factory=dict)
    unschedulable: str = ""
    drain_until_ms: int | None = None
    node_lease_ms: int = field(default_factory=lambda: Policy().node_lease_ms)
    revoke_grace_ms: int = field(default_factory=lambda: Policy().revoke_grace_ms)
    jobs: dict[str, Job] = field(default_factory=dict)
    held: dict[str, HeldAttempt] = field(default_factory=dict)
    held_of: dict[str, dict[str, bool]] = field(default_factory=dict)
    changed: dict[str, bool] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    past: Past = field(default_factory=Past)


@dataclass(frozen=True, slots=True)
class Start:
    """Run this attempt, once. `peers`: where the tasks of its gang are reached, in order; none where it is of none.
    `counted`: what it counts for in scheduling, by resource, where it asks for more."""

    key: str
    held: HeldAttempt
    stage: Stage
    peers: Sequence[str] = ()
    counted: Vector = field(default_factory=dict)
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """End this attempt and report it `failed` with `reason`; one that never started is reported so at once."""

    key: str
    held: HeldAttempt
    reason: StopReason


@dataclass(frozen=True, slots=True)
class Begun:
    """The log has the attempt's start."""

    key: str


@dataclass(frozen=True, slots=True)
class Over:
    """The log has the attempt's end: nothing of it is to be reported, and nothing may run on."""

    key: str


Action = Start | Stop | Begun | Over


def attempt_key(job: str, stage: str, index: int, attempt: int) -> str:
    """Names one attempt; unambiguous because no name contains a slash."""
    return f"{job}/{stage}/{index}/{attempt}"


def start(node: str, epoch: str) -> State:
    """The state before the first record, for an agent that is about to register `node` under `epoch`."""
    return State(node, epoch)


def renew(state: State, epoch: str) -> None:
    """Another epoch, about to be registered: the last one is lost, or an old message of ours came in after it."""
    state.epoch, state.standing, state.rival, state.unschedulable = epoch, "new", "", ""


def fold(state: State, record: Record) -> None:
    """Folds one log record; types that do not concern an agent are ignored."""
    learn = FOLDS.get(type(record.body))
    if learn is not None:
        learn(state, record)
    if state.drain_until_ms is not None and record.time >= state.drain_until_ms:
        state.drain_until_ms = None
        for key in state.held:
            _stop(state, key, "revoked")


def take(state: State, *, may_start: bool = True) -> list[Action]:
    """What has changed for the node since the last call, in the order of the log. Starts are kept for a later call
    where nothing may start yet.
    """
    actions: list[Action] = []
    waiting: dict[str, bool] = {}
    for key in state.changed:
        held = state.held.get(key)
        if held is None:
            actions.append(Over(key))
        elif held.stop is not None:
            actions.append(Stop(key, held, held.stop))
        elif held.begun:
            actions.append(Begun(key))
        elif held.epoch == state.epoch and not held.given:
            if may_start:
                held.given = True
                job = state.jobs[held.job]
                named = held.stage
                counted = job.counted.get(named, {})
                actions.append(Start(key, held, _stage_of(job, named), job.peers.get(named, ()), counted, job.queue))
            else:
                waiting[key] = True
    state.changed = waiting
    return actions


def look_again(state: State) -> None:
    """The next `take` speaks of everything held: for an agent that has read the log without acting on it."""
    state.changed = dict.fromkeys(state.held, True)


def handed_to(state: State, start: Start) -> list[Handed]:
    """What earlier stages have left for an attempt."""
    handed = state.jobs[start.held.job].handed
    return [tasks for stage in start.stage.inputs for tasks in handed[stage]]


def _admitted(state: State, record: Record[JobAdmitted]) -> None:
    body = record.body
    handed = handed_at_first(state.past, record)
    counted = {each.stage: each.demand for each in body.counted}
    state.jobs[body.spec.job] = Job(body.spec, record.seq, handed=handed, counted=counted, queue=body.spec.queue)


def _changed(state: State, record: Record[JobChanged]) -> None:
    if record.body.queue is not None and record.body.job in state.jobs:
        state.jobs[record.body.job].queue = record.body.queue


def _cancelled(state: State, record: Record[JobCancelled]) -> None:
    body = record.body
    if (job := state.jobs.get(body.job)) is not None:
        job.over = True
    _stop_all(state, body.job)


def _ended(state: State, record: Record[JobEnded]) -> None:
    body = record.body
    for end in body.jobs:
        if (job := state.jobs.pop(end.job, None)) is not None:
            remember(state.past, end.job, job.handed)
        _stop_all(state, end.job)


def _stop_all(state: State, job: str) -> None:
    for key in state.held_of.get(job, ()):
        _stop(state, key, "killed")


def _stop(state: State, key: str, reason: StopReason) -> None:
    """The first reason stands: it is what the agent may have acted on already."""
    held = state.held[key]
    if held.stop is None:
        held.stop = reason
        state.changed[key] = True


def _closed(state: State, record: Record[RoundClosed]) -> None:
    body = record.body
    for grant in body.grants:
        is_copy = grant.why == "speculative"
        if is_copy:
            state.jobs[grant.job].copied[f"{grant.stage}/{grant.first}"] = True
        if grant.node != state.node:
            continue
        job = state.jobs[grant.job]
        job.peers.pop(grant.stage, None)
        for task in range(grant.count):
            devices = grant.devices[task] if grant.devices else []
            held = HeldAttempt(grant.job, grant.stage, grant.first + task, grant.attempt, job.run, grant.epoch, devices)
            held.copy = is_copy
            key = attempt_key(held.job, held.stage, held.index, held.attempt)
            state.held[key] = held
            state.held_of.setdefault(held.job, {})[key] = True
            state.changed[key] = True
    if body.ports:
        _note_peers(state, body)
    for revoked in body.revoked:
        if revoked.node == state.node:
            for key in _keys(revoked):
                if key in state.held and state.held[key].stop is None:
                    # Somebody waits for the room of a copy, and nothing is lost with it.
                    state.held[key].grace_ms = 0 if state.held[key].copy else state.revoke_grace_ms
                    _stop(state, key, "revoked")


def _note_peers(state: State, body: RoundClosed) -> None:
    """Gangs start, all tasks of each in one round."""
    here = {(grant.job, grant.stage): True for grant in body.grants if grant.node == state.node}
    ports = {(each.job, each.stage, each.first): each.ports for each in body.ports}
    found: dict[tuple[str, str], dict[int, str]] = {}
    for grant in body.grants:
        gang = grant.job, grant.stage
        if gang in here and (given := ports.get((*gang, grant.first))):
            host = state.hosts.get(grant.node) or grant.node
            found.setdefault(gang, {}).update({i: f"{host}:{port}" for i, port in enumerate(given, grant.first)})
    for (name, stage), peers in found.items():
        job = state.jobs[name]
        if len(peers) == _stage_of(job, stage).tasks:  # Else a node of it offers no ports.
            job.peers[stage] = [peers[index] for index in sorted(peers)]


def _tasks(state: State, record: Record) -> None:
    for fact in facts_of(record.body):
        if isinstance(fact, TaskEnd):
            _over(state, fact)
            _supersede(state, fact)
            _hand_on(state, fact)
        elif isinstance(fact, TaskFailure):
            _over(state, fact)
            _break_gang(state, fact.job, fact.stage, fact.attempt)
        elif isinstance(fact, SpareEnd):
            _over(state, fact)
        elif fact.node == state.node:
            _run(state, fact)


def _run(state: State, tasks: TaskRange) -> None:
    """The log has attempts as running under this epoch."""
    for key in _keys(tasks):
        held = state.held[key]
        held.epoch, held.begun, held.given = tasks.epoch, True, True
        state.changed[key] = True


def _lost(state: State, record: Record[NodeLost]) -> None:
    body = record.body
    _tasks(state, record)
    if body.node == state.node and body.epoch == state.epoch:
        state.standing = "lost"


def _registered(state: State, record: Record[NodeRegistered]) -> None:
    body = record.body
    _tasks(state, record)
    state.hosts[body.node], state.addresses[body.node] = body.host, body.address
    if body.node != state.node:
        return
    # An agent ends once another epoch has followed its own: an epoch that comes again is an old message of it.
    is_late = body.epoch in state.epochs
    state.epochs.pop(body.epoch, None)
    state.epochs[body.epoch] = True
    if len(state.epochs) > EPOCHS_MAX:
        del state.epochs[next(iter(state.epochs))]
    if body.epoch == state.epoch:
        state.standing, state.unschedulable = "registered", body.unschedulable
        return
    if state.standing == "registered":
        state.standing = "taken"
    if state.standing != "new" and not is_late:
        state.rival = body.epoch


def _reported(state: State, record: Record[NodeReported]) -> None:
    body = record.body
    if (body.node, body.epoch) == (state.node, state.epoch):
        state.unschedulable = body.unschedulable


def _over(state: State, ended: TaskEnd | TaskFailure | SpareEnd) -> None:
    if ended.node != state.node:
        return
    keys_of_job = state.held_of[ended.job]
    for key in _keys(ended):
        del state.held[key], keys_of_job[key]
        state.changed[key] = True
    if not keys_of_job:
        del state.held_of[ended.job]


def _hand_on(state: State, ended: TaskEnd) -> None:
    job = state.jobs.get(ended.job)
    if job is not None and ended.stage in job.handed:
        job.handed[ended.stage].append(
            Handed(ended.stage, ended.first, ended.count, ended.attempt, ended.node, job.run)
        )


def _supersede(state: State, ended: TaskEnd) -> None:
    """Tasks have succeeded: other attempts of them stop."""
    job = state.jobs.get(ended.job)
    if job is None or not job.copied:
        return
    for key in state.held_of.get(ended.job, ()):
        held = state.held[key]
        if held.stage == ended.stage and ended.first <= held.index < ended.first + ended.count:
            _stop(state, key, "superseded")


def _break_gang(state: State, name: str, stage: str, attempt: int) -> None:
    """One task of a gang's attempt has ended without success, here or elsewhere: the others stop."""
    job = state.jobs.get(name)
    if job is None or not _stage_of(job, stage).gang or not end_gang_attempt(job.broken, stage, attempt):
        return
    for key in state.held_of.get(name, ()):
        held = state.held[key]
        if held.stage == stage and held.attempt <= attempt:
            _stop(state, key, "gang")


def _drained(state: State, record: Record[NodeDrained]) -> None:
    body = record.body
    if body.node == state.node:
        state.drain_until_ms = None if body.within_ms is None else record.time + body.within_ms


def _forgotten(state: State, record: Record[NodeForgotten]) -> None:
    body = record.body
    state.hosts.pop(body.node, None)
    state.addresses.pop(body.node, None)
    if body.node == state.node:
        state.drain_until_ms = None


def _configured(state: State, record: Record[ConfigChanged]) -> None:
    body = record.body
    if body.policy is not None:
        state.node_lease_ms = body.policy.node_lease_ms
        state.revoke_grace_ms = body.policy.revoke_grace_ms


def _keys(tasks: TaskFact | Revocation) -> Iterable[str]:
    job, stage, attempt = tasks.job, tasks.stage, tasks.attempt
    return (attempt_key(job, stage, index, attempt) for index in range(tasks.first, tasks.first + tasks.count))


def _stage_of(job: Job, name: str) -> Stage:
    return next(stage for stage in job.spec.stages if stage.stage == name)


FOLDS: dict[type, Callable[[State, Record], None]] = {
    JobAdmitted: _admitted,
    JobChanged: _changed,
    JobCancelled: _cancelled,
    JobEnded: _ended,
    NodeRegistered: _registered,
    NodeReported: _reported,
    NodeDrained: _drained,
    NodeLost: _lost,
    NodeForgotten: _forgotten,
    RoundClosed: _closed,
    TaskStarted: _tasks,
    TaskFinished: _tasks,
    TaskFailed: _tasks,
    ConfigChanged: _configured,
}
