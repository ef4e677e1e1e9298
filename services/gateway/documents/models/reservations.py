"""Answers about reservations and about what jobs gave and received as models; see cell.py."""

from typing import Any

from pydantic import BaseModel

from services.gateway.documents.models.cell import At, Count, Ms, Quantities, ReservationAnswer
from services.gateway.view.state import ReservationState


class PromisedStep(BaseModel):
    from_ms: int
    to_ms: int
    usage: Quantities
    unit: Quantities
    units: int
    gang: int
    atom: str


class Reservation(BaseModel):
    reservation: str
    user: str
    queue: str
    state: ReservationState
    requested_ms: Ms
    answered_ms: Ms | None
    answer: ReservationAnswer | None
    update_refused: bool
    unanswered: Count
    moved: Count
    moved_why: str
    ahead: Count
    behind: Count
    progress: str
    retry_until_ms: Ms | None
    restored: Count
    series: str
    weight: int
    rdl: dict[str, Any]
    steps: list[PromisedStep]
    at: At = None


class Reservations(BaseModel):
    reservations: list[Reservation]
    at: At = None


class Series(BaseModel):
    """A reservation that recurs. `start_s`, `asked_s` (the latest occurrence that was requested): Unix time."""

    series: str
    user: str
    queue: str
    every: str
    zone: str
    start_s: int
    requested_ms: Ms
    occurrences: Count
    asked_s: int | None
    weight: int
    rdl: dict[str, object]
    at: At = None


class UnreadSeries(BaseModel):
    """A series that the log has not read yet: ask for it later."""

    series: str


class SeriesList(BaseModel):
    series: list[Series]
    at: At = None


class QueueAccount(BaseModel):
    """What the jobs of a queue have given away and received, in resource-time: 120 of `cpu` is 120 cores for a
    second. `waited`: what they were entitled to and did not hold while tasks that had to start waited for room.
    `lost_ms`: how much later they ended, all together, than by their own plans alone.
    """

    queue: str
    jobs: int
    donated: Quantities
    received: Quantities
    waited: Quantities
    lost_ms: int


class JobAccount(BaseModel):
    """The same of one job. Of a live one `lost_ms` is what is expected."""

    job: str
    queue: str
    over: bool
    donated: Quantities
    received: Quantities
    waited: Quantities
    lost_ms: int


class Ledger(BaseModel):
    queues: list[QueueAccount]
    jobs: list[JobAccount]
    at: At = None
