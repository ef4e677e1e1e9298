"""Attempts that are about to give their room back."""

from services.leftover.core.reservations.runs import lent_of
from services.leftover.core.state import Allocation, State


def is_ending(state: State, node: str, key: str, held: Allocation) -> bool:
    """Whether an attempt is being taken back, or is killed as its job is over."""
    lent = lent_of(state, node, key)
    return (lent is not None and lent.taken) or held.job not in state.jobs
