"""What the router sends to the jobs of cells, as far as it has no answer yet. Each may be sent any number of times.

A submission names the job, and up to when it may be admitted; the cell takes a name once. A cancellation for a move
names the admission that it means. So what comes late, or again, changes nothing.
"""

import json
from typing import Protocol

from largesse.bus.port import Outgoing
from schemas import JobCancelled
from schemas.edge.job_document import job_document
from schemas.routes import JobRouted, MoveAsked
from services.router.core import NAME
from services.router.core.state import State

JOBS = "jobs"


class Places(Protocol):
    """Where cells lie."""

    def partition_of(self, cell: str) -> int | None:
        """In every topic; None: there is no such cell."""


def owed_by(state: State, body: object, places: Places) -> list[Outgoing]:
    """What has to be sent after a record, if it still counts."""
    match body:
        case JobRouted() | MoveAsked() | JobCancelled():
            return owed(state, body.job, places)
    return []


def owed(state: State, name: str, places: Places) -> list[Outgoing]:
    """What a job has to be sent for now, in order."""
    route = state.jobs.get(name)
    partition = None if route is None else places.partition_of(route.cell)
    if route is None or partition is None:
        return []
    documents: list[tuple[str, object]] = []
    if route.phase == "sent":
        documents.append((route.author, {"route": job_document(route.spec), "before_ms": route.before_ms}))
    if route.phase == "moving":
        asked = {"cancel": name, "if_unstarted": True, "admitted": route.admitted, "moved_to": route.to}
        documents.append((NAME, asked))
    if route.is_cancelled:
        documents.append((route.author, {"cancel": name}))
    return [
        Outgoing(JOBS, partition, json.dumps(each, ensure_ascii=False).encode(), headers={"author": who})
        for who, each in documents
    ]
