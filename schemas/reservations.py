"""Reservations: requests for capacity in time. The planner that answers them reads these bodies."""

from dataclasses import dataclass


@dataclass(slots=True)
class ReservationRequested:
    """A request in RDL, as its JSON text in canonical form. `queue`: the path of the queue that it serves."""

    reservation: str
    user: str
    rdl: str
    author: str = "unknown"
    queue: str = "default"


@dataclass(slots=True)
class ReservationUpdated:
    """Its owner asks for other terms. `queue`: as above; before it is judged, empty where it stays the same."""

    reservation: str
    user: str
    rdl: str
    author: str = "unknown"
    queue: str = "default"


@dataclass(slots=True)
class ReservationDeleted:
    """Its owner gives it back."""

    reservation: str
    user: str
    author: str = "unknown"
