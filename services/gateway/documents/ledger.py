"""What jobs and queues have given away and received, as a JSON document."""

from collections.abc import Iterator
from itertools import islice

from largesse.lifecycle import ledger
from services.gateway.documents import Document
from services.gateway.view.state import State

LISTED_MAX = 1_000
"""Jobs that a document lists: those published last."""


def ledger_document(state: State) -> Document:
    """Queues by path with all of their jobs, those that are over too; then jobs, the one published last first."""
    queues = [
        {"queue": queue, "jobs": total.jobs, **ledger.account_document(total)}
        for queue, total in ledger.sums_by_queue(state.ledger, state.ledger_sums)
    ]
    return {"queues": queues, "jobs": list(_jobs(state))}


def _jobs(state: State) -> Iterator[Document]:
    for entry in islice(reversed(state.ledger.values()), LISTED_MAX):
        yield {"job": entry.job, "queue": entry.queue, "over": entry.over, **ledger.account_document(entry)}
