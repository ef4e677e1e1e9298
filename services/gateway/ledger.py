"""What jobs and queues have given away and received, as JSON documents.

Amounts are resource-time: "120" of `cpu` is 120 cores for one second, "64Gi" of memory 64 GiB for one second.
"""

from collections.abc import Iterator
from itertools import islice

from schemas import Asks, LedgerEntry, Vector
from schemas.quantities import quantity_texts
from services.gateway.document import Document
from services.gateway.view_state import LedgerSum, State

LEDGER_JOBS_MAX = 10_000
"""So many jobs have an account here; beyond, those are forgotten whose account was published longest ago. What ended
jobs came to stays in the account of their queue."""

LISTED_MAX = 1_000
"""A document lists so many jobs, those published last."""


def fold_ledger(state: State, asks: Asks) -> None:
    """Accounts as altruism has published them."""
    ledger = state.ledger
    for entry in asks.ledger:
        ledger.pop(entry.job, None)
        ledger[entry.job] = entry
        if entry.over:
            _add(state.ledger_sums.setdefault(entry.queue, LedgerSum()), entry)
    while len(ledger) > LEDGER_JOBS_MAX:
        del ledger[next(iter(ledger))]


def _add(total: LedgerSum, entry: LedgerEntry) -> None:
    total.jobs += 1
    total.lost_ms += entry.lost_ms
    for sums, amounts in ((total.donated, entry.donated), (total.received, entry.received)):
        for kind, amount in amounts.items():
            sums[kind] = sums.get(kind, 0) + amount


def ledger_document(state: State) -> Document:
    """Queues by path with all of their jobs, those that are over too; then jobs, the one published last first."""
    sums: dict[str, LedgerSum] = {}
    for queue, known in state.ledger_sums.items():
        sums[queue] = LedgerSum(known.jobs, dict(known.donated), dict(known.received), known.lost_ms)
    for entry in state.ledger.values():
        if not entry.over:
            _add(sums.setdefault(entry.queue, LedgerSum()), entry)
    queues = [
        {"queue": queue, "jobs": total.jobs, **_amounts(total.donated, total.received), "lost_ms": total.lost_ms}
        for queue, total in sorted(sums.items())
    ]
    return {"queues": queues, "jobs": list(_jobs(state))}


def _jobs(state: State) -> Iterator[Document]:
    for entry in islice(reversed(state.ledger.values()), LISTED_MAX):
        amounts = _amounts(entry.donated, entry.received)
        yield {"job": entry.job, "queue": entry.queue, "over": entry.over, **amounts, "lost_ms": entry.lost_ms}


def _amounts(donated: Vector, received: Vector) -> Document:
    return {"donated": quantity_texts(donated), "received": quantity_texts(received)}
