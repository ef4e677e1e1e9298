"""What the log says must run on nodes, and what must stop: on one for its agent, on all for who speaks to many.

Folds   JobAdmitted, JobChanged, JobCancelled, JobEnded, NodeRegistered, NodeReported, NodeDrained, NodeLost,
        NodeForgotten, RoundClosed, the task facts, ConfigChanged, SequencerClaimed. Of every record the time: a drain
        may have a deadline.
Decides nothing by `decide`: `take` says what has changed for a node since it was last asked. What is held here is
exactly what the sequencer holds for the node, whatever the epoch, so a restarted agent can tell what is still wanted.

What the cell has is held once, whatever number of nodes is followed; a record costs what it says of those.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from largesse.lifecycle.handed import Handed, Past, handed_at_first, remember
from largesse.lifecycle.job_life import end_gang_attempt
from largesse.lifecycle.task_facts import SpareEnd, TaskFact, facts_of
from schemas import (
    ConfigChanged,
    DeviceShare,
    Grant,
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
    SequencerClaimed,
    Stage,
    TaskFailed,
    TaskFinished,
    TaskRange,
    TaskStarted,
    Vector,
)
from schemas.nodes import Device
from schemas.tasks import TaskEnd, TaskFailure

LAYOUT = 11
EPOCHS_MAX = 64
"""Registrations of a node that are remembered, to know one that comes again."""

StopReason = Literal["killed", "gang", "revoked", "superseded"]
Standing = Literal["new", "registered", "lost", "taken"]
"""Of an epoch: not in the log yet; in force; its lease ran out; another epoch followed it."""


@dataclass(slots=True)
class Job:
    """A job that has not ended. `run`: seq of its admission, which tells it from an earlier job of its name. `broken`:
    by gang stage, the last attempt that ended without success. `copied`: tasks that were granted copies, here or
    elsewhere, as "stage/index". `peers`: by gang stage that has started on a node that is followed, where the tasks of
    its last attempt are reached, in order, as HOST:PORT. `handed`: by stage of which others need the results, the tasks
    that succeeded. `counted`: by stage, what its tasks count for where they ask for more. `nodes`: those followed that
    were granted tasks of it. `queue`: that it is in now.
    """

    spec: JobSpec
    run: int
    over: bool = False
    broken: dict[str, int] = field(default_factory=dict)
    copied: dict[str, bool] = field(default_factory=dict)
    peers: dict[str, list[str]] = field(default_factory=dict)
    handed: dict[str, list[Handed]] = field(default_factory=dict)
    counted: dict[str, Vector] = field(default_factory=dict)
    nodes: dict[str, bool] = field(default_factory=dict)
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
class Registration:
    """Of one epoch, from its first registration on. `rival`: another epoch that has registered the node after it,
    whether or not it was lost by then. `unschedulable`: why the node takes no new tasks.
    """

    standing: Standing
    rival: str = ""
    unschedulable: str = ""


NOT_YET: Final = Registration("new")


@dataclass(slots=True)
class Offer:
    """What the log has of what a node offers, and under which epoch that was said."""

    epoch: str
    capacity: Vector
    labels: dict[str, str] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    unschedulable: str = ""


@dataclass(slots=True)
class NodeWork:
    """One node's part of a cell. `epoch`: that of which `take` starts attempts. `epochs`: the latest that were
    registered, the last one last. `held` by attempt_key, `held_of` the same keys by job. `changed`: keys to look at in
    the next `take`, of an agent. `runs`: by live job that has been granted room here, the seq of its admission.
    `offer`: None before the first registration.
    """

    node: str
    epoch: str
    epochs: dict[str, Registration] = field(default_factory=dict)
    held: dict[str, HeldAttempt] = field(default_factory=dict)
    held_of: dict[str, dict[str, bool]] = field(default_factory=dict)
    changed: dict[str, bool] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    offer: Offer | None = None

    @property
    def own(self) -> Registration:
        """What the log has of `epoch`."""
        return self.epochs.get(self.epoch, NOT_YET)

    @property
    def standing(self) -> Standing:
        return self.own.standing

    @property
    def rival(self) -> str:
        return self.own.rival

    @property
    def unschedulable(self) -> str:
        return self.own.unschedulable


@dataclass(slots=True)
class State:
    """A cell, and its nodes that are followed. `every`: each that registers, until the cell forgets it. `stirred`: of
    which something is new since somebody emptied it. `drains`: by node the log time at which all that it holds is
    revoked, as a drain asks for, and `drain_ms` the first of them; None: there is none. `hosts`: by node of the cell,
    where its tasks are reached; `addresses`: where its agent can be asked; "": nowhere. `past`: what jobs that have
    ended handed on. `beats`: the sequencer that leads hears signs of life.
    """

    nodes: dict[str, NodeWork] = field(default_factory=dict)
    every: bool = False
    stirred: dict[str, bool] = field(default_factory=dict)
    drains: dict[str, int] = field(default_factory=dict)
    drain_ms: int | None = None
    node_lease_ms: int = field(default_factory=lambda: Policy().node_lease_ms)
    revoke_grace_ms: int = field(default_factory=lambda: Policy().revoke_grace_ms)
    jobs: dict[str, Job] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    past: Past = field(default_factory=Past)
    beats: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """Run this attempt, once. `peers`: where the tasks of its gang are reached, in order; none where it is of none.
    `counted`: what it counts for in scheduling, by resource, where it asks for more. `queue`: of its job."""

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
    return State({node: NodeWork(node, epoch)})


def start_for_all() -> State:
    """The state before the first record, for whoever speaks to each node that registers."""
    return State(every=True)


def for_one(state: State, node: str, epoch: str) -> State:
    """Makes of the state of who follows all nodes that of an agent, which is about to register `node` under `epoch`."""
    work = state.nodes.get(node) or NodeWork(node, epoch)
    state.nodes, state.every, state.stirred = {node: work}, False, {}
    state.drains = {name: until_ms for name, until_ms in state.drains.items() if name == node}
    state.drain_ms = state.drains.get(node)
    for name, job in state.jobs.items():
        job.nodes = {node: True} if node in job.nodes else {}
        here = {work.held[key].stage: True for key in work.held_of.get(name, ())}
        job.peers = {stage: peers for stage, peers in job.peers.items() if stage in here}
    renew(work, epoch)
    return state


def renew(work: NodeWork, epoch: str) -> None:
    """Another epoch, about to be registered: the last one is lost, or an old message of ours came in after it."""
    work.epoch = epoch


def fold(state: State, record: Record) -> None:
    """Folds one log record; types that do not concern nodes are ignored."""
    learn = FOLDS.get(type(record.body))
    if learn is not None:
        learn(state, record)
    if state.drain_ms is not None and record.time >= state.drain_ms:
        for node in [node for node, until_ms in state.drains.items() if record.time >= until_ms]:
            _drain(state, node, None)
            work = state.nodes[node]
            for key in work.held:
                _stop(state, work, key, "revoked")


def has(state: State, said: NodeReported) -> bool:
    """Whether the log has just this of a registered node, and a sign of life says as much."""
    work = state.nodes.get(said.node)
    if work is None or not state.beats or work.epochs.get(said.epoch, NOT_YET).standing != "registered":
        return False
    return work.offer == _offer_of(said)


def _offer_of(body: NodeRegistered | NodeReported) -> Offer:
    return Offer(body.epoch, body.capacity, body.labels, body.devices, body.unschedulable)


def take(state: State, node: str, *, may_start: bool = True) -> list[Action]:
    """What has changed for the node since the last call, in the order of the log. Starts are kept for a later call
    where nothing may start yet.
    """
    actions: list[Action] = []
    waiting: dict[str, bool] = {}
    work = state.nodes[node]
    for key in work.changed:
        held = work.held.get(key)
        if held is None:
            actions.append(Over(key))
        elif held.stop is not None:
            actions.append(Stop(key, held, held.stop))
        elif held.begun:
            actions.append(Begun(key))
        elif held.epoch == work.epoch and not held.given:
            if may_start:
                held.given = True
                job = state.jobs[held.job]
                named = held.stage
                counted = job.counted.get(named, {})
                peers = job.peers.get(named, ())
                actions.append(Start(key, held, stage_of(job, named), peers, counted, job.queue))
            else:
                waiting[key] = True
    work.changed = waiting
    return actions


def look_again(work: NodeWork) -> None:
    """The next `take` speaks of everything held: for an agent that has read the log without acting on it."""
    work.changed = dict.fromkeys(work.held, True)


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
    body = record.body
    if body.queue is not None and (job := state.jobs.get(body.job)) is not None:
        job.queue = body.queue


def _cancelled(state: State, record: Record[JobCancelled]) -> None:
    body = record.body
    if (job := state.jobs.get(body.job)) is not None:
        job.over = True
        _stop_all(state, job)


def _ended(state: State, record: Record[JobEnded]) -> None:
    body = record.body
    for end in body.jobs:
        job = state.jobs.pop(end.job, None)
        if job is None:
            continue
        remember(state.past, end.job, job.handed)
        _stop_all(state, job)
        for work in _nodes_of(state, job):
            work.runs.pop(end.job, None)
            state.stirred[work.node] = True


def _nodes_of(state: State, job: Job) -> Iterable[NodeWork]:
    """Those followed that may hold attempts of a live job, or of one that has just ended."""
    return (state.nodes[node] for node in job.nodes if node in state.nodes)


def _stop_all(state: State, job: Job) -> None:
    for work in _nodes_of(state, job):
        for key in work.held_of.get(job.spec.job, ()):
            _stop(state, work, key, "killed")


def _stop(state: State, work: NodeWork, key: str, reason: StopReason) -> None:
    """The first reason stands: it is what the agent may have acted on already."""
    held = work.held[key]
    if held.stop is None:
        held.stop = reason
        _change(state, work, key)


def _change(state: State, work: NodeWork, key: str) -> None:
    if not state.every:
        work.changed[key] = True
    state.stirred[work.node] = True


def _closed(state: State, record: Record[RoundClosed]) -> None:
    body = record.body
    for grant in body.grants:
        is_copy = grant.why == "speculative"
        if is_copy:
            state.jobs[grant.job].copied[f"{grant.stage}/{grant.first}"] = True
        work = state.nodes.get(grant.node)
        if work is not None:
            _hold(state, work, grant, is_copy=is_copy)
    if body.ports:
        _note_peers(state, body)
    for revoked in body.revoked:
        work = state.nodes.get(revoked.node)
        if work is None:
            continue
        for key in _keys(revoked):
            held = work.held.get(key)
            if held is not None and held.stop is None:
                # Somebody waits for the room of a copy, and nothing is lost with it.
                held.grace_ms = 0 if held.copy else state.revoke_grace_ms
                _stop(state, work, key, "revoked")


def _hold(state: State, work: NodeWork, grant: Grant, *, is_copy: bool) -> None:
    """Attempts were granted to a node that is followed."""
    job = state.jobs[grant.job]
    job.peers.pop(grant.stage, None)
    job.nodes[work.node] = True
    work.runs[grant.job] = job.run
    for task in range(grant.count):
        devices = grant.devices[task] if grant.devices else []
        held = HeldAttempt(grant.job, grant.stage, grant.first + task, grant.attempt, job.run, grant.epoch, devices)
        held.copy = is_copy
        key = attempt_key(held.job, held.stage, held.index, held.attempt)
        work.held[key] = held
        work.held_of.setdefault(held.job, {})[key] = True
        _change(state, work, key)


def _note_peers(state: State, body: RoundClosed) -> None:
    """Gangs start, all tasks of each in one round."""
    here = {(grant.job, grant.stage): True for grant in body.grants if grant.node in state.nodes}
    ports = {(each.job, each.stage, each.first): each.ports for each in body.ports}
    found: dict[tuple[str, str], dict[int, str]] = {}
    for grant in body.grants:
        gang = grant.job, grant.stage
        if gang in here and (given := ports.get((*gang, grant.first))):
            host = state.hosts.get(grant.node) or grant.node
            found.setdefault(gang, {}).update({i: f"{host}:{port}" for i, port in enumerate(given, grant.first)})
    for (name, stage), peers in found.items():
        job = state.jobs[name]
        if len(peers) == stage_of(job, stage).tasks:  # Else a node of it offers no ports.
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
        elif (work := state.nodes.get(fact.node)) is not None:
            _run(state, work, fact)


def _run(state: State, work: NodeWork, tasks: TaskRange) -> None:
    """The log has attempts as running under this epoch."""
    for key in _keys(tasks):
        held = work.held[key]
        held.epoch, held.begun, held.given = tasks.epoch, True, True
        _change(state, work, key)


def _lost(state: State, record: Record[NodeLost]) -> None:
    body = record.body
    _tasks(state, record)
    work = state.nodes.get(body.node)
    if work is not None and (known := work.epochs.get(body.epoch)) is not None:
        known.standing = "lost"
        state.stirred[body.node] = True


def _registered(state: State, record: Record[NodeRegistered]) -> None:
    body = record.body
    node, epoch = body.node, body.epoch
    if state.every and node not in state.nodes:
        # It may have been forgotten, and have results of jobs that live.
        runs = {name: job.run for name, job in state.jobs.items() if node in job.nodes}
        state.nodes[node] = NodeWork(node, epoch, runs=runs)
    _tasks(state, record)
    moved = state.addresses.get(node, body.address) != body.address
    state.hosts[node], state.addresses[node] = body.host, body.address
    if moved and state.every:  # Whoever has yet to fetch results there has to know.
        state.stirred.update((other, True) for other, work in state.nodes.items() if work.held)
    if (work := state.nodes.get(node)) is None:
        return
    # An agent ends once another epoch has followed its own: an epoch that comes again is an old message of it.
    known = work.epochs.pop(epoch, None)
    for other in work.epochs.values():
        if other.standing == "registered":
            other.standing = "taken"
        if known is None:
            other.rival = epoch
    known = known or Registration("registered")
    known.standing, known.unschedulable = "registered", body.unschedulable
    work.offer = _offer_of(body)
    work.epochs[epoch] = known
    if len(work.epochs) > EPOCHS_MAX:
        del work.epochs[next(other for other in work.epochs if other != work.epoch)]
    if state.every:
        work.epoch = epoch
    state.stirred[node] = True


def _reported(state: State, record: Record[NodeReported]) -> None:
    body = record.body
    work = state.nodes.get(body.node)
    if work is not None and (known := work.epochs.get(body.epoch)) is not None:
        known.unschedulable = body.unschedulable
        work.offer = _offer_of(body)
        state.stirred[body.node] = True


def _over(state: State, ended: TaskEnd | TaskFailure | SpareEnd) -> None:
    work = state.nodes.get(ended.node)
    if work is None:
        return
    keys_of_job = work.held_of[ended.job]
    for key in _keys(ended):
        del work.held[key], keys_of_job[key]
        _change(state, work, key)
    if not keys_of_job:
        del work.held_of[ended.job]


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
    indexes = range(ended.first, ended.first + ended.count)
    copied = {index: True for index in indexes if f"{ended.stage}/{index}" in job.copied}
    if not copied:
        return
    for work in _nodes_of(state, job):
        for key in work.held_of.get(ended.job, ()):
            held = work.held[key]
            if held.stage == ended.stage and held.index in copied:
                _stop(state, work, key, "superseded")


def _break_gang(state: State, name: str, stage: str, attempt: int) -> None:
    """One task of a gang's attempt has ended without success, here or elsewhere: the others stop."""
    job = state.jobs.get(name)
    if job is None or not stage_of(job, stage).gang or not end_gang_attempt(job.broken, stage, attempt):
        return
    for work in _nodes_of(state, job):
        for key in work.held_of.get(name, ()):
            held = work.held[key]
            if held.stage == stage and held.attempt <= attempt:
                _stop(state, work, key, "gang")


def _drained(state: State, record: Record[NodeDrained]) -> None:
    body = record.body
    if body.node in state.nodes:
        _drain(state, body.node, None if body.within_ms is None else record.time + body.within_ms)


def _drain(state: State, node: str, until_ms: int | None) -> None:
    if until_ms is not None:
        state.drains[node] = until_ms
    elif state.drains.pop(node, None) is None:
        return
    state.drain_ms = min(state.drains.values(), default=None)


def _forgotten(state: State, record: Record[NodeForgotten]) -> None:
    body = record.body
    state.hosts.pop(body.node, None)
    state.addresses.pop(body.node, None)
    _drain(state, body.node, None)
    if state.every and state.nodes.pop(body.node, None) is not None:
        state.stirred[body.node] = True


def _configured(state: State, record: Record[ConfigChanged]) -> None:
    body = record.body
    if body.policy is not None:
        state.node_lease_ms = body.policy.node_lease_ms
        state.revoke_grace_ms = body.policy.revoke_grace_ms
        state.stirred.update(dict.fromkeys(state.nodes, True))


def _claimed(state: State, record: Record[SequencerClaimed]) -> None:
    state.beats = record.body.beats


def _keys(tasks: TaskFact | Revocation) -> Iterable[str]:
    job, stage, attempt = tasks.job, tasks.stage, tasks.attempt
    return (attempt_key(job, stage, index, attempt) for index in range(tasks.first, tasks.first + tasks.count))


def stage_of(job: Job, name: str) -> Stage:
    """One of a job's stages, by name."""
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
    SequencerClaimed: _claimed,
}
