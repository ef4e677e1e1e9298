"""A cell at one record of its log: how much there is, what waits for what, and the queue tree."""

from dataclasses import asdict

from schemas.edge.strict_json import loads
from schemas.quantities import quantity_texts
from services.gateway.documents import Document
from services.gateway.documents.cell import standing_document
from services.gateway.documents.queues import queue_document
from services.gateway.documents.tally import Counts
from services.gateway.view.state import State


def summary_document(state: State, counts: Counts) -> Document:
    """`counts`: of the same state. `capacity`, `used`: of nodes that are there; `waiting`: by queue and reason, most
    tasks first; `queues`: the tree as it is shown by itself. `open_since_ms`: of a round that is open; `refused`:
    inputs that were refused for good; `late`: jobs that run on behind the window of their reservation.
    """
    waiting = sorted(counts.waiting.items(), key=lambda each: (-each[1].tasks, each[0]))
    return {
        **standing_document(state),
        "preset": state.policy.preset,
        "jobs": dict(sorted(counts.jobs.items())),
        "nodes": dict(sorted(counts.nodes.items())),
        "capacity": quantity_texts(counts.capacity),
        "used": quantity_texts({kind: counts.used.get(kind, 0) for kind in counts.capacity}),
        "waiting": [
            {"queue": queue, "reason": reason, "tasks": found.tasks, "since_ms": found.since_ms}
            for (queue, reason), found in waiting
            if found.tasks
        ],
        "queues": queue_document(state),
        "open_since_ms": state.opened_ms if state.open else None,
        "refused": {"count": state.refused_count, "latest": [asdict(row) for row in reversed(state.refused)]},
        "late": late_jobs(state),
    }


LATE_MAX = 20


def late_jobs(state: State) -> list[Document]:
    """Jobs that have not ended although the outermost window of their reservation has, at most LATE_MAX of them."""
    found: list[Document] = []
    for name, jobs in state.reserving.items():
        row = state.reservations.get(name)
        if row is None or not jobs or row.state not in ("accepted", "ended"):
            continue
        terms = loads(row.rdl.encode())
        end_ms = int(terms["e"]) * 1_000 if terms.get("op") == "window" else None
        if end_ms is not None and end_ms < state.time:
            found += [{"reservation": name, "job": job, "since_ms": end_ms} for job in jobs]
            if len(found) >= LATE_MAX:
                break
    return found[:LATE_MAX]
