"""A cell at one record of its log: how much there is, what waits for what, and the queue tree."""

from schemas.quantities import quantity_texts
from services.gateway.documents import Document
from services.gateway.documents.cell import standing_document
from services.gateway.documents.queues import queue_document
from services.gateway.documents.tally import Counts
from services.gateway.view.state import State


def summary_document(state: State, counts: Counts) -> Document:
    """`counts`: of the same state. `capacity`, `used`: of nodes that are there; `waiting`: by queue and reason, most
    tasks first; `queues`: the tree as it is shown by itself.
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
    }
