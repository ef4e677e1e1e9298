"""What jobs and queues have given away and received, as the view keeps it and as JSON documents."""

from collections.abc import Iterator
from itertools import islice

from largesse.lifecycle import ledger
from schemas import Asks
from services.gateway.document import Document
from services.gateway.view_state import State

LEDGER_JOBS_MAX = 10_000
"""So many jobs have an account here; beyond, those are forgotten whose account was published longest ago. What ended
jobs came to stays in the account of their queue."""

LISTED_MAX = 1_000
"""A document lists so many jobs, those published last."""


def fold_ledger(state: State, asks: Asks) -> None:
    """Accounts as altruism has published them."""
    ledger.fold_ledger(state.ledger, state.ledger_sums, asks.ledger)
    while len(state.ledger) > LEDGER_JOBS_MAX:
        del state.ledger[next(iter(state.ledger))]


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
