"""What tests are written with: specs, inputs and facts by their names, with only what matters to a test.

Specs and inputs (`job`, `node`, `config`) go to a cell. Facts (`started("j1/map", at=0)`) are bodies as the log has
them, for one core's story: a task is named `job/stage` with `first` and `count`. Amounts are in base units.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from schemas import (
    ConfigChanged,
    Device,
    Grant,
    JobAdmitted,
    JobCancelled,
    JobEnd,
    JobEnded,
    JobSpec,
    KnownAttempt,
    NodeDrained,
    NodeLost,
    NodeRegistered,
    NodeReported,
    Policy,
    Queue,
    ReservationDeleted,
    ReservationRequested,
    ReservationUpdated,
    Revocable,
    Stage,
    TaskEnd,
    TaskFailed,
    TaskFailure,
    TaskFinished,
    TaskRange,
    TaskStarted,
)
from schemas.edge.read import ConfigPatch
from schemas.quantities import MILLIONTHS
from services.planner.rdl.document import read_document
from services.planner.rdl.times import clock

STAGE_FIELDS = {field.name for field in fields(Stage)}
EPOCH = "e1"


def stage(
    name: str = "map",
    tasks: int = 1,
    *,
    after: Sequence[str] = (),
    duration_ms: int = 1_000,
    demand: dict[str, int] | None = None,
    **more: Any,
) -> Stage:
    """Tasks that run for `duration_ms`, as the scheduler is told, and ask for one core beside what `more` says.

    `more`: amounts by resource (0: none of it) and other fields of a stage. `demand` stands for all amounts.
    """
    given = {key: more.pop(key) for key in sorted(STAGE_FIELDS & more.keys())}
    amounts = {"cpu": 1_000} | more if demand is None else demand
    given["demand"] = {resource: amount for resource, amount in sorted(amounts.items()) if amount}
    durations = {"estimate_ms": duration_ms, "durations_ms": [duration_ms]}
    return Stage(name, tasks, **{"after": list(after), **durations, **given})


def job(name: str, *stages: Stage, queue: str = "default", priority: int = 0, revocable: Revocable = "auto") -> JobSpec:
    """A job of these stages; without any it is one task of one core."""
    return JobSpec(name, queue, list(stages) or [stage()], priority, revocable=revocable)


def queue(name: str, weight: float = 1, *children: Queue | str, **limits: Any) -> Queue:
    """A queue of the tree; children as queues or names, `limits` as fields of a queue."""
    below = [child if isinstance(child, Queue) else Queue(child) for child in children]
    return Queue(name, int(weight * MILLIONTHS), below, **limits)


def tree(*children: Queue | str, **limits: Any) -> Queue:
    """The root with these queues below it."""
    return queue("root", 1, *children, **limits)


def config(queues: Queue | None = None, **knobs: Any) -> ConfigPatch:
    """An operator's change of the tree or of some knobs; the others stay as they are."""
    return ConfigPatch(knobs, queues)


def node(
    name: str = "n1",
    cpu: int = 4_000,
    memory: int = 16_384,
    *,
    epoch: str = EPOCH,
    gpu: int = 0,
    gpus: Sequence[int] = (),
    attempts: Sequence[KnownAttempt] = (),
    labels: dict[str, str] | None = None,
    **others: int,
) -> NodeRegistered:
    """A registration. `gpu`: milli-units without a list of devices; `gpus`: sizes of listed devices."""
    capacity = {"cpu": cpu, "memory": memory, **others} | ({"gpu": gpu or sum(gpus)} if gpu or gpus else {})
    devices = [Device(index, milli) for index, milli in enumerate(gpus)]
    return NodeRegistered(name, epoch, dict(sorted(capacity.items())), labels or {}, devices, list(attempts))


def report(
    name: str = "n1",
    cpu: int = 4_000,
    memory: int = 16_384,
    *,
    epoch: str = EPOCH,
    labels: dict[str, str] | None = None,
    devices: Sequence[Device] = (),
    **others: int,
) -> NodeReported:
    """What a node says of its capacity later on."""
    capacity = {"cpu": cpu, "memory": memory, **others}
    return NodeReported(name, epoch, dict(sorted(capacity.items())), labels or {}, list(devices))


def known(grant: Grant, state: Any = "running", **more: Any) -> KnownAttempt:
    """An attempt as a restarted agent tells of it."""
    more.setdefault("run_ms", [] if state == "running" else [1_000])
    return KnownAttempt(grant.job, grant.stage, grant.first, grant.count, grant.attempt, state, **more)


def single(grant: Grant, index: int) -> Grant:
    """The part of a grant that is one task."""
    devices = [grant.devices[index - grant.first]] if grant.devices else []
    return replace(grant, first=index, count=1, devices=devices)


@dataclass(frozen=True, slots=True)
class Fact:
    """A body and when it is sequenced; None: at the same time as the record before it."""

    body: Any
    at: int | None = None


def admitted(spec: JobSpec | str, at: int | None = None) -> Fact:
    """The cell took the job."""
    return Fact(JobAdmitted(job(spec) if isinstance(spec, str) else spec, 0), at)


def cancelled(name: str, at: int | None = None) -> Fact:
    """A user asked for the job's end."""
    return Fact(JobCancelled(name), at)


def ended(*names: str, at: int | None = None) -> Fact:
    """The jobs are over."""
    return Fact(JobEnded([JobEnd(name, "succeeded") for name in names]), at)


def registered(node: str, at: int | None = None, epoch: str = EPOCH, **capacity: int) -> Fact:
    """An agent takes charge of a node; of one with 4 cores where nothing is said."""
    return Fact(NodeRegistered(node, epoch, dict(sorted(capacity.items())) or {"cpu": 4_000}), at)


def reported(node: str, at: int | None = None, epoch: str = EPOCH, **capacity: int) -> Fact:
    """A node has another capacity."""
    return Fact(NodeReported(node, epoch, dict(sorted(capacity.items()))), at)


def drained(node: str, at: int | None = None) -> Fact:
    """No new placements on the node."""
    return Fact(NodeDrained(node, True), at)


def resumed(node: str, at: int | None = None) -> Fact:
    """Placements on the node again."""
    return Fact(NodeDrained(node, False), at)


def node_lost(node: str, *held: TaskRange, at: int | None = None, epoch: str = EPOCH) -> Fact:
    """The node's lease ran out with these attempts on it."""
    return Fact(NodeLost(node, epoch, list(held)), at)


def tasks(
    name: str, first: int = 0, count: int = 1, attempt: int = 1, node: str = "n1", epoch: str = EPOCH
) -> TaskRange:
    """Attempts of a stage on a node."""
    job_name, stage_name = name.split("/")
    return TaskRange(job_name, stage_name, first, count, attempt, node, epoch)


def started(name: str, first: int = 0, count: int = 1, at: int | None = None, **more: Any) -> Fact:
    """Attempts began to run; further keywords as in `tasks`."""
    return Fact(TaskStarted([tasks(name, first, count, **more)]), at)


def finished(
    name: str, first: int = 0, count: int = 1, at: int | None = None, run_ms: int = 1_000, **more: Any
) -> Fact:
    """Attempts succeeded after `run_ms`; further keywords as in `tasks`."""
    of = tasks(name, first, count, **more)
    return Fact(TaskFinished([TaskEnd(of.job, of.stage, first, count, of.attempt, of.node, of.epoch, [run_ms])]), at)


def failed(
    name: str, first: int = 0, count: int = 1, at: int | None = None, reason: Any = "exit_code", **more: Any
) -> Fact:
    """Attempts ended without success; further keywords as in `tasks`."""
    of = tasks(name, first, count, **more)
    return Fact(TaskFailed([TaskFailure(of.job, of.stage, first, count, of.attempt, of.node, of.epoch, reason)]), at)


def configured(at: int | None = None, queues: Queue | None = None, **knobs: Any) -> Fact:
    """Another tree, or another policy (the whole of it: knobs not named have their defaults), or both."""
    return Fact(ConfigChanged(Policy(**knobs) if knobs else None, queues), at)


def grant(name: str, first: int = 0, count: int = 1, attempt: int = 1, node: str = "n1", **more: Any) -> Grant:
    """Tasks may start on a node."""
    of = tasks(name, first, count, attempt, node)
    return Grant(of.job, of.stage, first, count, attempt, node, of.epoch, **more)


def reservation(name: str, rdl: Any, user: str = "ann", queue: str = "default", at: int | None = None) -> Fact:
    """A request for capacity in time; `rdl` as parsed from JSON, or as text (seconds count from log time 0)."""
    return Fact(ReservationRequested(name, user, _canonical(rdl), queue=queue), at)


def reservation_update(name: str, rdl: Any, user: str = "ann", queue: str = "default", at: int | None = None) -> Fact:
    """Other terms for a reservation."""
    return Fact(ReservationUpdated(name, user, _canonical(rdl), queue=queue), at)


def reservation_delete(name: str, user: str = "ann", at: int | None = None) -> Fact:
    """A reservation is given back."""
    return Fact(ReservationDeleted(name, user), at)


def _canonical(rdl: Any) -> str:
    return json.dumps(read_document(rdl, clock()) if isinstance(rdl, str) else rdl)
