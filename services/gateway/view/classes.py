"""Classes of jobs in the gateway's view: their pools over time, and what is forecast for them."""

from schemas import Record, RoundOpened
from services.gateway.view.state import POOLS_KEPT, PoolsRow, State


def fold_pools(state: State, record: Record) -> None:
    """The pools that an opening says, where they are others than before."""
    body: RoundOpened = record.body
    before = state.pools[-1].pools_ppm if state.pools else []
    if body.pools_ppm != before:
        state.pools = [*state.pools, PoolsRow(record.time, body.pools_ppm)][-POOLS_KEPT:]


def fold_forecast(state: State, record: Record) -> None:
    """The forecast in force."""
    state.forecast = record.body
