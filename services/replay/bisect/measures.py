"""What can be asked of a cell after a record, by the words of the gateway's documents, and what it is then.

A value is looked up again only where a record may have changed it: jobs by the names that the view notes as touched,
what queues hold at records that start or end tasks or change nodes and queues.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from schemas import (
    ConfigChanged,
    JobEnded,
    NodeForgotten,
    NodeLost,
    NodeRegistered,
    NodeRemoved,
    NodeReported,
    Record,
    RoundClosed,
    TaskFailed,
    TaskFinished,
)
from schemas.quantities import SHARE_UNITS
from schemas.queue_tree import walk
from services.gateway.documents.jobs import state_of
from services.gateway.documents.nodes import state_of_node
from services.gateway.documents.queues import held_shares
from services.gateway.view.jobs import LiveJob, waiting_of
from services.gateway.view.state import State, Touched

Kind = Literal["share", "time", "count", "quantities", "quantity", "text"]
"""A share of the cell, a span of time in ms, a number, quantities by resource, one of them, a word."""

Value = Fraction | str | dict[str, int]

SUBJECTS: dict[str, dict[str, Kind]] = {
    "queue": {
        "held": "share",
        "due": "share",
        "fair": "share",
        "guaranteed": "share",
        "lent": "share",
        "used": "quantities",
        "running": "count",
        "pending": "count",
        "jobs": "count",
    },
    "job": {
        "waiting": "time",
        "age": "time",
        "running": "count",
        "pending": "count",
        "failed": "count",
        "state": "text",
    },
    "node": {"used": "quantities", "capacity": "quantities", "running": "count", "state": "text"},
}
"""By what is asked about, what may be asked of it."""
STATES = {
    "job": ("waiting", "running", "succeeded", "failed", "cancelled", "rejected"),
    "node": ("ready", "draining", "unschedulable", "lost", "left"),
}
"""By what is asked about, the words of its `state`."""
OF_CELL: dict[str, Kind] = {"pending": "count", "running": "count", "jobs": "count", "nodes": "count"}

_HELD_CHANGES = (
    *(RoundClosed, TaskFinished, TaskFailed, JobEnded, ConfigChanged),
    *(NodeRegistered, NodeReported, NodeLost, NodeRemoved, NodeForgotten),
)
"""Records that may change what tasks hold, or of how much."""


@dataclass(frozen=True, slots=True)
class Measure:
    """`subject`: queue, job, node, or empty for the whole cell; `name`: which one; `part`: what of it; `resource`: of
    quantities, one of them, else empty."""

    subject: str
    name: str
    part: str
    resource: str = ""

    @property
    def kind(self) -> Kind:
        """What it is measured in."""
        if self.resource:
            return "quantity"
        return SUBJECTS[self.subject][self.part] if self.subject else OF_CELL[self.part]

    def changes_with_time(self) -> bool:
        """Whether it does without any record."""
        return self.kind == "time"


@dataclass(slots=True)
class _Sums:
    """Of the jobs of a leaf."""

    jobs: int = 0
    running: int = 0
    pending: int = 0


@dataclass(slots=True)
class World:
    """A cell as the view shows it. `time`: now, in ms of log time. `seen`: what was there at some time, by kind."""

    state: State
    time: int = 0
    seen: dict[tuple[str, str], bool] = field(default_factory=dict)
    _touched: Touched = field(default_factory=Touched)
    _jobs: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    _leaves: dict[str, _Sums] = field(default_factory=dict)
    _held: dict[str, int] = field(default_factory=dict)

    def learn(self, record: Record) -> None:
        """A record was folded."""
        self.time = record.time
        if isinstance(record.body, _HELD_CHANGES):
            self._held = {}
        self.catch_up()

    def catch_up(self) -> None:
        """Counts the jobs that have changed."""
        if self.state.touched is self._touched:
            names = list(self._touched.jobs)
        else:  # The first time, or too much has changed for the view to note it.
            names = [*self.state.jobs, *self._jobs]
        self.state.touched = self._touched = Touched()
        for name in names:
            self._count(name, self.state.jobs.get(name))

    def _count(self, name: str, job: LiveJob | None) -> None:
        before = self._jobs.pop(name, None)
        if before is not None:
            sums = self._leaves[before[0]]
            sums.jobs, sums.running, sums.pending = sums.jobs - 1, sums.running - before[1], sums.pending - before[2]
        if job is not None:
            queue, running, pending = job.spec.queue, running_of(job), pending_of(job)
            self._jobs[name] = queue, running, pending
            sums = self._leaves.setdefault(queue, _Sums())
            sums.jobs, sums.running, sums.pending = sums.jobs + 1, sums.running + running, sums.pending + pending

    def value(self, measure: Measure) -> Value | None:
        """What it is; None: what it is asked of is not there."""
        if measure.subject == "queue":
            found = self._of_queue(measure.name, measure.part)
        elif measure.subject == "job":
            found = self._of_job(measure.name, measure.part)
        elif measure.subject == "node":
            found = self._of_node(measure.name, measure.part)
        elif measure.part == "nodes":
            return Fraction(sum(state_of_node(node) == "ready" for node in self.state.nodes.values()))
        else:
            return Fraction(sum(getattr(sums, measure.part) for sums in self._leaves.values()))
        asked = measure.subject, measure.name
        if found is not None and asked not in self.seen and (asked[0] != "queue" or is_queue(self.state, asked[1])):
            self.seen[asked] = True
        if measure.resource and isinstance(found, dict):
            return Fraction(found.get(measure.resource, 0))
        return found

    # ---------------------------------------------------------------- queues, jobs, nodes
    def _of_queue(self, path: str, part: str) -> Value | None:
        state = self.state
        if part == "held":
            if path not in self._held:
                self._held[path] = held_shares(state, [path])[path]
            return Fraction(self._held[path], SHARE_UNITS)
        if part == "due":
            return Fraction(due_units(state, path), SHARE_UNITS)
        if part in ("fair", "guaranteed", "lent"):
            share = state.shares.get(path)
            return Fraction(getattr(share, part), SHARE_UNITS) if share is not None else None
        if part == "used":
            used: dict[str, int] = {}
            for leaf, amounts in state.used.items():
                if is_below(leaf, path):
                    for resource, amount in amounts.items():
                        used[resource] = used.get(resource, 0) + amount
            return used
        return Fraction(sum(getattr(sums, part) for leaf, sums in self._leaves.items() if is_below(leaf, path)))

    def _of_job(self, name: str, part: str) -> Value | None:
        state = self.state
        if part == "state":
            return state_of(state, name)
        job, ended = state.jobs.get(name), state.ended.get(name)
        found = job or ended
        if found is None:
            return None
        if part in ("waiting", "age"):
            until_ms = self.time if ended is None or job is not None else ended.ended_ms
            if part == "waiting" and found.started_ms is not None:
                until_ms = found.started_ms
            return Fraction(until_ms - found.submitted_ms)
        return Fraction(_COUNTS[part](job) if job is not None else 0)

    def _of_node(self, name: str, part: str) -> Value | None:
        node = self.state.nodes.get(name)
        if node is None:
            return None
        if part == "state":
            return state_of_node(node)
        if part == "running":
            return Fraction(node.holds)
        return dict(node.used if part == "used" else node.capacity)


def is_queue(state: State, path: str) -> bool:
    """Whether the cell has a queue of that path; the empty path is the root."""
    return not path or (state.queues is not None and any(path == each for each, _ in walk(state.queues)))


def due_units(state: State, path: str) -> int:
    """What a queue is entitled to, in share units: its level, or where others lie below it the sum of theirs."""
    level = state.levels.get(path)
    return sum(each for leaf, each in state.levels.items() if is_below(leaf, path)) if level is None else level


def is_below(leaf: str, path: str) -> bool:
    """Whether a leaf is the queue of a path, or lies below it; the empty path is the root."""
    return not path or leaf == path or leaf.startswith(f"{path}/")


def running_of(job: LiveJob) -> int:
    """Tasks that run, or were granted and have not begun."""
    return sum(job.running) + sum(job.starting)


def pending_of(job: LiveJob) -> int:
    """Tasks that wait, and not for another stage of their job."""
    return sum(waiting_of(job, at) for at in range(len(job.running)) if not job.progress.parents[at])


_COUNTS: dict[str, Callable[[LiveJob], int]] = {
    "running": running_of,
    "pending": pending_of,
    "failed": lambda job: sum(job.failed),
}
