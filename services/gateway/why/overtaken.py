"""Which jobs a task has overtaken: submitted before its job, not begun when it was granted, and waiting still."""

from itertools import islice
from typing import NamedTuple

from schemas import Stage
from schemas.presets import PRESETS
from schemas.reasons import Reason
from schemas.wording import plural
from services.gateway.documents import Document
from services.gateway.documents.queueing import named
from services.gateway.view.jobs import LiveJob, waiting_of
from services.gateway.view.scoring import reason_of
from services.gateway.view.state import State

SHOWN_MAX = 3
LIMITED = ("running_limit", "queue_max", "user_running_max", "pool", "lease", "promised", "promise_used", "back_off")
"""Reasons that keep a job from starting whoever comes behind it."""


class Ahead(NamedTuple):
    """A task that was granted room: of a job admitted by record `admitted`. `why`: of its grant."""

    admitted: int
    priority: int
    queue: str
    stage: Stage
    why: str


def overtaken(state: State, task: Ahead) -> list[Document]:
    """By job, its queue and the rule by which it was overtaken, the earliest job first."""
    if task.why == "speculative":
        return []
    rows: list[Document] = []
    for other in state.jobs.values():
        if other.admitted >= task.admitted:
            continue
        waiting = next((at for at in range(len(other.graph.stages)) if waiting_of(other, at)), None)
        if waiting is None or other.started_ms is not None or any(other.starting) or other.hold is not None:
            continue
        rule, why = _rule(state, task, other, other.graph.stages[waiting])
        rows.append({"job": other.spec.job, "queue": other.spec.queue, "rule": rule, "why": why})
    return rows


def _rule(state: State, task: Ahead, other: LiveJob, wanted: Stage) -> tuple[str, str]:
    reason: Reason | str = reason_of(state, other)
    stage = task.stage
    if task.why == "reserved":
        return "reservation", "room was promised to the reservation of this one"
    if reason in LIMITED:
        return "limit", f"waits for {reason}"
    if task.priority > other.spec.priority and task.queue == other.spec.queue:
        return "priority", f"has priority {other.spec.priority} beside {task.priority}"
    more = [kind for kind, amount in sorted(wanted.demand.items()) if amount > stage.demand.get(kind, 0)]
    if wanted.gang and not stage.gang:
        return "room", f"needs room for {plural(wanted.tasks, 'task')} at once"
    if more:
        return "room", f"asks for more {' and '.join(more)}"
    if wanted.labels != stage.labels:
        return "room", "asks for other labels"
    if task.queue != other.spec.queue:
        return "share", f"is in {named(other.spec.queue)}, whose turn it was not"
    if PRESETS[state.policy.preset].has_shadow:
        return "order", "comes later by the work and the time left"
    return "order", "comes later in the order of the queue"


def overtaken_text(rows: list[Document]) -> str:
    """As the end of a sentence; empty: none."""
    if not rows:
        return ""
    names = [f"{row['job']} ({row['why']})" for row in islice(rows, SHOWN_MAX)]
    more = f" and {len(rows) - SHOWN_MAX} more" if len(rows) > SHOWN_MAX else ""
    jobs = f"{plural(len(rows), 'job')} submitted before it that {'waits' if len(rows) == 1 else 'wait'} still"
    return f"; it went before {jobs}: {', '.join(names)}{more}"
