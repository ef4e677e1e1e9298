"""Accounts of what jobs give away, receive and wait for, as altruism publishes them, and their sums by queue.

A live cell's gateway and a simulation fold them alike. Amounts are resource-time, in base units x seconds; in documents
"120" of `cpu` is 120 cores for one second, "64Gi" of memory 64 GiB for one second.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas import LedgerEntry, Vector
from schemas.quantities import quantity_texts


@dataclass(slots=True)
class LedgerSum:
    """What jobs of a queue have given away, received and waited for together, by kind in base units x seconds."""

    jobs: int = 0
    donated: Vector = field(default_factory=dict)
    received: Vector = field(default_factory=dict)
    lost_ms: int = 0
    waited: Vector = field(default_factory=dict)


def fold_ledger(accounts: dict[str, LedgerEntry], over: dict[str, LedgerSum], entries: Iterable[LedgerEntry]) -> None:
    """Accounts as they are published. `accounts`: by job, the one published last at the end; `over`: by queue, the sums
    of its jobs that are over.
    """
    for entry in entries:
        accounts.pop(entry.job, None)
        accounts[entry.job] = entry
        if entry.over:
            _add(over.setdefault(entry.queue, LedgerSum()), entry)


def sums_by_queue(accounts: dict[str, LedgerEntry], over: dict[str, LedgerSum]) -> list[tuple[str, LedgerSum]]:
    """Queues by path with all of their jobs, live or over."""
    sums: dict[str, LedgerSum] = {}
    for queue, known in over.items():
        sums[queue] = LedgerSum(
            known.jobs, dict(known.donated), dict(known.received), known.lost_ms, dict(known.waited)
        )
    for entry in accounts.values():
        if not entry.over:
            _add(sums.setdefault(entry.queue, LedgerSum()), entry)
    return sorted(sums.items())


def account_document(account: LedgerEntry | LedgerSum) -> dict[str, object]:
    """What documents show of a job's account, or of a queue's."""
    return {
        "donated": quantity_texts(account.donated),
        "received": quantity_texts(account.received),
        "waited": quantity_texts(account.waited),
        "lost_ms": account.lost_ms,
    }


def _add(total: LedgerSum, entry: LedgerEntry) -> None:
    total.jobs += 1
    total.lost_ms += entry.lost_ms
    for sums, amounts in (
        (total.donated, entry.donated),
        (total.received, entry.received),
        (total.waited, entry.waited),
    ):
        for kind, amount in amounts.items():
            sums[kind] = sums.get(kind, 0) + amount
