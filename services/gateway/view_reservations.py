"""Reservations in the gateway's view: what was asked for, and what the planner has promised."""

from schemas import Plans, Record, ReservationDeleted, ReservationRequested, ReservationUpdated
from services.gateway.view_state import ReservationRow, State


def fold_reserved(state: State, record: Record) -> None:
    """A reservation was requested, or changed."""
    body: ReservationRequested | ReservationUpdated = record.body
    before = state.reservations.get(body.reservation)
    row = ReservationRow(body.reservation, body.user, body.rdl, record.time)
    row.steps = before.steps if before is not None else []
    state.reservations[body.reservation] = row


def fold_given_back(state: State, record: Record) -> None:
    """A reservation was given back."""
    body: ReservationDeleted = record.body
    state.reservations.pop(body.reservation, None)


def fold_planned(state: State, record: Record) -> None:
    """The planner promised something, or something else."""
    body: Plans = record.body
    for profile in body.profiles:
        row = state.reservations.get(profile.reservation)
        if row is not None:
            row.steps = profile.steps
    for name in body.gone:
        row = state.reservations.get(name)
        if row is not None:
            row.steps = []
