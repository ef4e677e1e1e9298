"""What jobs and queues have given away and received, in the gateway's view."""

from largesse.lifecycle import ledger
from schemas import Asks
from services.gateway.view.state import State, note

LEDGER_JOBS_MAX = 10_000
"""So many jobs have an account here; beyond, those are forgotten whose account was published longest ago. What ended
jobs came to stays in the account of their queue."""


def fold_ledger(state: State, asks: Asks) -> None:
    """Accounts as altruism has published them."""
    if asks.ledger:
        note(state, "ledger")
    for entry in asks.ledger:
        note(state, "jobs", entry.job)  # A job's document has its account.
    ledger.fold_ledger(state.ledger, state.ledger_sums, asks.ledger)
    while len(state.ledger) > LEDGER_JOBS_MAX:
        gone = next(iter(state.ledger))
        del state.ledger[gone]
        note(state, "jobs", gone)
