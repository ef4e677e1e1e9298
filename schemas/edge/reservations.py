"""The reservations topic: requests for capacity in time, in RDL as JSON (docs/reservations.md).

An atom asks for units of `b`: from `g` (least in parallel) to `h` (most), each lease at least `l` seconds, `w`
unit-seconds in all. A window `[s, e)` bounds what it holds, in seconds. Whether it can be met is the planner's to say.
"""

import re
from typing import Annotated

from pydantic import Field

from schemas.edge.base import (
    NAME_MAX,
    NAME_PATTERN,
    NEW_NAME_PATTERN,
    Input,
    Malformed,
    Name,
    Whole,
    author_of,
    check_one_form,
)
from schemas.edge.jobs import QueuePath, queue_path
from schemas.edge.rdl import Positive, Rdl, Several, Units, Window, rdl_text
from schemas.edge.validated import validated
from schemas.plans import PlanProposed, ProposedLease, ProposedPlan
from schemas.queue_tree import QUEUE_DEFAULT
from schemas.reservations import (
    WEIGHT_MAX,
    ReservationDeleted,
    ReservationRequested,
    ReservationUpdated,
    SeriesEnded,
    SeriesRequested,
)

RDL_PATH_MAX = 64  # Characters of an atom's path: twelve levels of up to four digits.
PROPOSED_PLANS_MAX = 256
PROPOSED_LEASES_MAX = 4_096  # Of all plans of a proposal together.
MOMENT_S_MAX = 253_402_300_799  # The end of the year 9999: what has a date in a name.
SERIES_NAME_MAX = NAME_MAX - len(".20261124T060000Z")
EVERY_MAX = 200
ZONE_MAX = 64

CRON_PATTERN = r"^[0-9A-Za-z*,/#?-]+( [0-9A-Za-z*,/#?-]+){4}$"
ZONE_PATTERN = r"^[A-Za-z][A-Za-z0-9_+/-]*$"

Moment = Annotated[int, Field(ge=0, le=MOMENT_S_MAX)]


Window.model_rebuild()
Several.model_rebuild()


class ReservationTerms(Input):
    """What is asked for, and by whom. `queue`: the path of the queue that it serves; left out, it is `default`, and
    that of the promise where terms change. Times are seconds of log time, which live is Unix time. `weight`: what it
    counts beside others where not all promises can be kept.
    """

    user: Name
    queue: QueuePath | None = None
    rdl: Rdl
    weight: Annotated[int, Field(ge=1, le=WEIGHT_MAX)] = 1


class ReservationRequest(ReservationTerms):
    """A request, or other terms for one, by its owner."""

    reservation: Name


class NewReservationRequest(ReservationRequest):
    """A request. `series` and `occurrence_s` are the planner's: the request is the occurrence of a series that begins
    then, and `reservation` is named after both. `series_seq`: of the record of that series, since another of its name
    may have taken its place."""

    series: Annotated[str, Field(min_length=1, max_length=SERIES_NAME_MAX, pattern=NAME_PATTERN)] | None = None
    series_seq: Positive | None = None
    occurrence_s: Moment | None = None


class SeriesRequest(ReservationTerms):
    """A reservation that recurs. `rdl`: a window whose times count from each occurrence. `every`: a period in seconds,
    or a cron expression of five fields, which counts in `zone`. `start_s`: with a period the first occurrence, with a
    cron expression the earliest moment that counts."""

    series: Annotated[str, Field(min_length=1, max_length=SERIES_NAME_MAX, pattern=NEW_NAME_PATTERN)]
    every: Positive | Annotated[str, Field(max_length=EVERY_MAX)]
    start_s: Moment
    zone: Annotated[str, Field(max_length=ZONE_MAX)] = "UTC"


class SeriesEnding(Input):
    """Its owner ends a series: the occurrences that have not begun are given back, too."""

    series: Name
    user: Name


class ReservationDeletion(Input):
    """Its owner gives a reservation back."""

    reservation: Name
    user: Name


class LeaseProposal(Input):
    """As `schemas.plans.ProposedLease`."""

    atom: Annotated[str, Field(max_length=RDL_PATH_MAX)]
    from_ms: Whole
    to_ms: Whole
    units: Units


class PlanProposal(Input):
    """Other leases for a reservation: all of them."""

    reservation: Name
    leases: Annotated[list[LeaseProposal], Field(min_length=1, max_length=PROPOSED_LEASES_MAX)]


class Proposal(Input):
    """Other plans for promises, from the planner's solver. `after`: seq of the plan that they start from."""

    after: Whole
    plans: Annotated[list[PlanProposal], Field(min_length=1, max_length=PROPOSED_PLANS_MAX)]


class ReservationInput(Input):
    """A message of the reservations topic: exactly one of its fields."""

    request: NewReservationRequest | None = None
    update: ReservationRequest | None = None
    delete: ReservationDeletion | None = None
    series: SeriesRequest | None = None
    end_series: SeriesEnding | None = None
    propose: Proposal | None = None


def read_reservation(
    document: object, author: str
) -> ReservationRequested | ReservationUpdated | ReservationDeleted | SeriesRequested | SeriesEnded | PlanProposed:
    """A message of the reservations topic. Raises Malformed."""
    message = validated(ReservationInput, document)
    check_one_form(message)
    author = author_of(author)
    if message.request is not None:
        return _request(message.request, author)
    if message.update is not None:
        asked = message.update
        queue = "" if asked.queue is None else queue_path(asked.queue, "update.queue")
        text = rdl_text(asked.rdl, "update.rdl")
        return ReservationUpdated(asked.reservation, asked.user, text, author, queue, asked.weight)
    if message.series is not None:
        return _series(message.series, author)
    if message.end_series is not None:
        return SeriesEnded(message.end_series.series, message.end_series.user, author)
    if message.propose is not None:
        return _proposal(message.propose, author)
    assert message.delete is not None
    return ReservationDeleted(message.delete.reservation, message.delete.user, author)


def _request(asked: NewReservationRequest, author: str) -> ReservationRequested:
    queue = QUEUE_DEFAULT if asked.queue is None else queue_path(asked.queue, "request.queue")
    body = ReservationRequested(asked.reservation, asked.user, rdl_text(asked.rdl, "request.rdl"), author, queue)
    body.weight = asked.weight
    if asked.series is None:
        for field in ("occurrence_s", "series_seq"):
            if getattr(asked, field) is not None:
                raise Malformed(f"request.{field}", "is only for an occurrence: name its `series`, or leave it out")
        return body
    if asked.occurrence_s is None:
        raise Malformed("request.occurrence_s", "is missing: an occurrence of a series says when it begins")
    name = occurrence_name(asked.series, asked.occurrence_s)
    if asked.reservation != name:
        raise Malformed("request.reservation", f'has to be "{name}": an occurrence is named after its series')
    body.series, body.occurrence_s, body.series_seq = asked.series, asked.occurrence_s, asked.series_seq or 0
    return body


def occurrence_name(series: str, at_s: int) -> str:
    """The name of the occurrence of a series that begins at `at_s` (seconds of Unix time, up to MOMENT_S_MAX): its
    moment in UTC follows, as in `backup.20261124T060000Z`."""
    days, second = divmod(at_s, 86_400)
    year, month, day = _date_of(days)
    hour, minute = divmod(second // 60, 60)
    return f"{series}.{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second % 60:02}Z"


def _date_of(days: int) -> tuple[int, int, int]:
    """The date that is `days` days after 1970-01-01 (Hinnant, chrono-compatible low-level date algorithms)."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153  # Months from March on, so that February ends the year.
    month = shifted + 3 if shifted < 10 else shifted - 9
    return era * 400 + year_of_era + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def _series(asked: SeriesRequest, author: str) -> SeriesRequested:
    """What time zones and cron expressions mean is looked up outside the cores: only their form is checked here."""
    queue = QUEUE_DEFAULT if asked.queue is None else queue_path(asked.queue, "series.queue")
    if not isinstance(asked.rdl, Window):
        raise Malformed("series.rdl", "has to be a window, so that each occurrence has an end")
    if re.fullmatch(ZONE_PATTERN, asked.zone) is None:
        raise Malformed("series.zone", "is no time zone like Europe/Berlin or UTC")
    every = asked.every
    if isinstance(every, str) and re.fullmatch(CRON_PATTERN, every) is None:
        raise Malformed("series.every", 'is neither a whole number of seconds nor a cron expression like "0 6 * * 1-5"')
    length = asked.rdl.e - asked.rdl.s
    if isinstance(every, int) and every < length:
        raise Malformed("series.every", f"is {every} s, and the window has {length} s: occurrences may not overlap")
    text = rdl_text(asked.rdl, "series.rdl")
    terms = (asked.series, asked.user, text, str(every), asked.start_s, asked.zone, author, queue)
    return SeriesRequested(*terms, asked.weight)


def _proposal(asked: Proposal, author: str) -> PlanProposed:
    plans: list[ProposedPlan] = []
    names: dict[str, bool] = {}
    for i, plan in enumerate(asked.plans):
        path = f"propose.plans[{i}]"
        if plan.reservation in names:
            raise Malformed(f"{path}.reservation", f'"{plan.reservation}" stands there twice: one plan each')
        names[plan.reservation] = True
        for k, lease in enumerate(plan.leases):
            if lease.from_ms >= lease.to_ms:
                text = f"is {lease.to_ms}: a lease has to end after its start ({lease.from_ms})"
                raise Malformed(f"{path}.leases[{k}].to_ms", text)
        leases = [ProposedLease(each.atom, each.from_ms, each.to_ms, each.units) for each in plan.leases]
        plans.append(ProposedPlan(plan.reservation, leases))
    total = sum(len(plan.leases) for plan in plans)
    if total > PROPOSED_LEASES_MAX:
        raise Malformed("propose.plans", f"have {total} leases together: at most {PROPOSED_LEASES_MAX}")
    return PlanProposed(asked.after, plans, author)
