"""Facts by their names, with only what matters to a test: `started("j1/map", at=0)`. All else has a plain default.

A task is named `job/stage` with `first` and `count`; demands and capacities are keywords in base units.
"""

import json
from dataclasses import dataclass
from typing import Any

from schemas import (
    ConfigChanged,
    Grant,
    JobAdmitted,
    JobCancelled,
    JobEnd,
    JobEnded,
    JobSpec,
    NodeDrained,
    NodeLost,
    NodeRegistered,
    NodeReported,
    Policy,
    Queue,
    ReservationDeleted,
    ReservationRequested,
    ReservationUpdated,
    Stage,
    TaskEnd,
    TaskFailed,
    TaskFailure,
    TaskFinished,
    TaskRange,
    TaskStarted,
)
from services.planner.rdl.document import read_document
from services.planner.rdl.times import clock


@dataclass(frozen=True, slots=True)
class Fact:
    """A body and when it is sequenced; None: at the same time as the record before it."""

    body: Any
    at: int | None = None


MORE = ["gang", "retries", "labels", "prefer", "timeout_ms", "locality_wait_ms", "anti_affinity", "spread"]
"""Fields of a stage beside what it asks for."""


def stage(name: str, tasks: int = 1, *, after: tuple[str, ...] = (), lasts: int = 1_000, **demand: Any) -> Stage:
    """Tasks that ask for `demand` (1 core where nothing is said) and last `lasts` milliseconds.

    Fields of a stage (`MORE`) may be among the keywords.
    """
    more = {key: demand.pop(key) for key in MORE if key in demand}
    return Stage(
        stage=name,
        tasks=tasks,
        demand=dict(sorted(demand.items())) or {"cpu": 1_000},
        after=list(after),
        estimate_ms=lasts,
        durations_ms=[lasts],
        **more,
    )


def job(name: str, *stages: Stage, queue: str = "default", priority: int = 0) -> JobSpec:
    """A job of these stages; of one stage `s` with one task where none is given."""
    return JobSpec(name, queue, list(stages) or [stage("s")], priority)


def admitted(spec: JobSpec | str, at: int | None = None) -> Fact:
    """The cell took the job."""
    return Fact(JobAdmitted(job(spec) if isinstance(spec, str) else spec, 0), at)


def cancelled(name: str, at: int | None = None) -> Fact:
    """A user asked for the job's end."""
    return Fact(JobCancelled(name), at)


def ended(*names: str, at: int | None = None) -> Fact:
    """The jobs are over."""
    return Fact(JobEnded([JobEnd(name, "succeeded") for name in names]), at)


def registered(node: str, at: int | None = None, epoch: str = "e1", **capacity: int) -> Fact:
    """An agent takes charge of a node; of one with 4 cores where nothing is said."""
    return Fact(NodeRegistered(node, epoch, dict(sorted(capacity.items())) or {"cpu": 4_000}), at)


def reported(node: str, at: int | None = None, epoch: str = "e1", **capacity: int) -> Fact:
    """A node has another capacity."""
    return Fact(NodeReported(node, epoch, dict(sorted(capacity.items()))), at)


def drained(node: str, at: int | None = None) -> Fact:
    """No new placements on the node."""
    return Fact(NodeDrained(node, True), at)


def resumed(node: str, at: int | None = None) -> Fact:
    """Placements on the node again."""
    return Fact(NodeDrained(node, False), at)


def node_lost(node: str, *held: TaskRange, at: int | None = None, epoch: str = "e1") -> Fact:
    """The node's lease ran out with these attempts on it."""
    return Fact(NodeLost(node, epoch, list(held)), at)


def tasks(
    name: str, first: int = 0, count: int = 1, attempt: int = 1, node: str = "n1", epoch: str = "e1"
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
