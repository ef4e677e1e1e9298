"""What a node has to do, as the document that it is told: written from the fold of the log, and read into one again.

All of it each time, so that a node that comes back needs no history. What an attempt is started with stands there once
a stage, and only of those that are still to be started.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from itertools import islice

from pydantic import TypeAdapter, ValidationError

from largesse.lifecycle.handed import Handed
from largesse.lifecycle.node_work import (
    HeldAttempt,
    Job,
    NodeWork,
    Registration,
    Standing,
    State,
    attempt_key,
    stage_of,
)
from schemas import JobSpec, Stage, Vector
from schemas.edge.base import Malformed

ADDRESSES_MAX = 10_000
"""Nodes of which an agent remembers where they can be asked."""
EPOCHS_TOLD = 8
"""A node is told of this many registrations, the latest, beside that of the agent that has spoken last."""


@dataclass(slots=True)
class EpochTold:
    """What the log has of one epoch of the node."""

    epoch: str
    standing: Standing
    rival: str = ""
    unschedulable: str = ""


@dataclass(slots=True)
class StageTold:
    """What attempts of one stage are started with. `run`: seq of the job's admission. `queue`: of the job."""

    job: str
    run: int
    stage: Stage
    peers: list[str] = field(default_factory=list)
    counted: Vector = field(default_factory=dict)
    handed: list[Handed] = field(default_factory=list)
    queue: str = ""


@dataclass(slots=True)
class Work:
    """`epochs`: the last one registered at the end. `addresses`: by node that handed something on, where its agent can
    be asked; None: the cell does not know it. `runs`: by live job that has run here, the seq of its admission.
    """

    node_lease_ms: int
    epochs: list[EpochTold] = field(default_factory=list)
    held: list[HeldAttempt] = field(default_factory=list)
    stages: list[StageTold] = field(default_factory=list)
    addresses: dict[str, str | None] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)


_WORK = TypeAdapter(Work)


def work_of(state: State, node: str, speaker: str = "") -> Work:
    """What a node has to do by the log so far. `speaker`: the epoch of the agent that has spoken last."""
    known = state.nodes.get(node) or NodeWork(node, "")
    work = Work(state.node_lease_ms, _epochs(known, speaker), list(known.held.values()), runs=known.runs)
    told: dict[tuple[str, str], bool] = {}
    for held in known.held.values():
        if held.begun or held.stop is not None or (held.job, held.stage) in told:
            continue
        told[held.job, held.stage] = True
        job = state.jobs[held.job]
        stage = stage_of(job, held.stage)
        handed = [tasks for name in stage.inputs for tasks in job.handed[name]]
        peers, counted = job.peers.get(held.stage, []), job.counted.get(held.stage, {})
        work.stages.append(StageTold(held.job, held.run, stage, peers, counted, handed, job.queue))
        work.addresses.update((tasks.node, state.addresses.get(tasks.node)) for tasks in handed)
    return work


def _epochs(known: NodeWork, speaker: str) -> list[EpochTold]:
    newest = dict(islice(reversed(known.epochs.items()), EPOCHS_TOLD))
    if speaker in known.epochs:
        newest.setdefault(speaker, known.epochs[speaker])
    told = [EpochTold(epoch, of.standing, of.rival, of.unschedulable) for epoch, of in newest.items()]
    told.reverse()
    return told


def content_of(work: Work) -> dict[str, object]:
    """The content of a NodeDown; dataclasses are written as they are."""
    return {name.name: getattr(work, name.name) for name in fields(work)}


def read_work(content: dict[str, object]) -> Work:
    """What stands in a NodeDown. Raises Malformed."""
    try:
        return _WORK.validate_python(content)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise Malformed(".".join(["work", *map(str, fault["loc"])]), str(fault["msg"])) from None


def take_in(state: State, node: str, work: Work) -> None:
    """Puts what a node is told in place of what its agent knew; what has changed is noted for the next `take`."""
    own = state.nodes[node]
    _take_in_epochs(own, work.epochs)
    before, own.held, own.held_of = own.held, {}, {}
    for held in work.held:
        key = attempt_key(held.job, held.stage, held.index, held.attempt)
        own.held[key] = held
        own.held_of.setdefault(held.job, {})[key] = True
        known = before.pop(key, None)
        held.given = held.begun
        if known is not None and (known.run, known.epoch) == (held.run, held.epoch):
            held.given = known.given or held.begun
            if (known.begun, known.stop) == (held.begun, held.stop):
                continue
        own.changed[key] = True
    own.changed.update(dict.fromkeys(before, True))
    own.runs = work.runs
    state.node_lease_ms = work.node_lease_ms
    state.jobs = _jobs(work.stages)
    _take_in_addresses(state, work.addresses)


def _take_in_addresses(state: State, told: dict[str, str | None]) -> None:
    """What is not told any more may still be fetched: an attempt whose inputs are on the way when its node is
    registered again counts as begun from then on."""
    for other, address in told.items():
        state.addresses.pop(other, None)
        if address is not None:
            state.addresses[other] = address
    while len(state.addresses) > ADDRESSES_MAX:
        del state.addresses[next(iter(state.addresses))]


def _take_in_epochs(own: NodeWork, told: Iterable[EpochTold]) -> None:
    known = own.own
    own.epochs = {each.epoch: Registration(each.standing, each.rival, each.unschedulable) for each in told}
    if own.epoch not in own.epochs and known.standing != "new":
        # The cell has forgotten it, or its node, and has others since then or none.
        last = next(reversed(own.epochs), "")
        own.epochs[own.epoch] = Registration("taken" if last else "lost", last)


def _jobs(stages: Iterable[StageTold]) -> dict[str, Job]:
    jobs: dict[str, Job] = {}
    for told in stages:
        name = told.stage.stage
        job = jobs.setdefault(told.job, Job(JobSpec(told.job, "", []), told.run, queue=told.queue))
        job.spec.stages.append(told.stage)
        job.peers[name], job.counted[name] = told.peers, told.counted
        for source in told.stage.inputs:
            job.handed[source] = [tasks for tasks in told.handed if tasks.stage == source]
    return jobs
