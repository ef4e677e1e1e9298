"""Reservations: requests for capacity in time. The planner that answers them reads these bodies."""

from dataclasses import dataclass

WEIGHT_MAX = 1_000
"""A reservation weighs from 1 to so much."""


@dataclass(slots=True)
class ReservationRequested:
    """A request in RDL, as its JSON text in canonical form. `queue`: the path of the queue that it serves. `series`:
    of an occurrence, the series that it belongs to, else empty; `series_seq`: of that series' record, 0 where it is not
    named; `occurrence_s`: when the occurrence begins, in seconds of log time. `weight`: what it counts beside others.
    """

    reservation: str
    user: str
    rdl: str
    author: str = "unknown"
    queue: str = "default"
    series: str = ""
    occurrence_s: int = 0
    series_seq: int = 0
    weight: int = 1


@dataclass(slots=True)
class ReservationUpdated:
    """Its owner asks for other terms. `queue`, `weight`: as above; the queue is empty before it is judged, where it
    stays the same.
    """

    reservation: str
    user: str
    rdl: str
    author: str = "unknown"
    queue: str = "default"
    weight: int = 1


@dataclass(slots=True)
class ReservationDeleted:
    """Its owner gives it back."""

    reservation: str
    user: str
    author: str = "unknown"


@dataclass(slots=True)
class SeriesRequested:
    """A reservation that recurs. Each occurrence is requested as a reservation of its own as the horizon moves.

    `rdl`: a window as canonical JSON, whose times count from each occurrence, in seconds. `every`: a period in
    seconds, or a cron expression, which is read in the time zone `zone`. `start_s`: with a period the first occurrence,
    with a cron expression the earliest moment that counts, in seconds of log time. `weight`: of each occurrence.
    """

    series: str
    user: str
    rdl: str
    every: str
    start_s: int
    zone: str = "UTC"
    author: str = "unknown"
    queue: str = "default"
    weight: int = 1


@dataclass(slots=True)
class SeriesEnded:
    """Its owner ends a series: no further occurrence is requested, and those that have not begun are given back."""

    series: str
    user: str
    author: str = "unknown"
