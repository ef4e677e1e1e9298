"""Reservations in the gateway's view: what was asked for, what the planner answered, and what it has promised."""

from largesse.core import Folds
from schemas import (
    JobSpec,
    PlanAnswer,
    Plans,
    Record,
    ReservationDeleted,
    ReservationRequested,
    ReservationUpdated,
    SeriesEnded,
    SeriesRequested,
)
from services.gateway.view.jobs import EndedJob
from services.gateway.view.state import (
    RESERVATIONS_KEPT_BYTES_MAX,
    RESERVATIONS_KEPT_MAX,
    STEP_BYTES,
    ReservationRow,
    ReservationState,
    SeriesRow,
    State,
    note,
)


def fold_requested(state: State, record: Record) -> None:
    """A reservation was requested."""
    body: ReservationRequested = record.body
    state.reservations_over.pop(body.reservation, None)
    state.reservations.pop(body.reservation, None)  # One of that name that is over: the new one comes last.
    row = ReservationRow(body.reservation, body.user, body.queue, body.rdl, record.time, series=body.series)
    row.weight = body.weight
    state.reservations[body.reservation] = row
    note(state, "reservations", body.reservation)
    of = state.series.get(body.series)
    if of is not None:
        note(state, "series", body.series)
        of.occurrences, of.asked_s = of.occurrences + 1, body.occurrence_s


def fold_series(state: State, record: Record) -> None:
    """A reservation that recurs was asked for."""
    body: SeriesRequested = record.body
    terms = (body.series, body.user, body.queue, body.rdl, body.every, body.zone, body.start_s)
    state.series[body.series] = SeriesRow(*terms, record.time, weight=body.weight)
    note(state, "series", body.series)


def fold_series_end(state: State, record: Record) -> None:
    """Its owner ends a series."""
    body: SeriesEnded = record.body
    del state.series[body.series]
    note(state, "series", body.series)


def fold_updated(state: State, record: Record) -> None:
    """Its owner asked for other terms."""
    body: ReservationUpdated = record.body
    row = state.reservations[body.reservation]
    row.asked_rdl, row.asked_queue, row.asked_ms, row.asked_weight = body.rdl, body.queue, record.time, body.weight
    row.unanswered += 1
    note(state, "reservations", body.reservation)


def fold_given_back(state: State, record: Record) -> None:
    """Its owner gives it back."""
    body: ReservationDeleted = record.body
    state.reservations[body.reservation].unanswered += 1
    note(state, "reservations", body.reservation)


def note_job(state: State, spec: JobSpec) -> None:
    """A job comes, perhaps of a reservation."""
    if spec.reservation is not None:
        state.reserving.setdefault(spec.reservation, {})[spec.job] = True


def name_reservation(job: EndedJob, spec: JobSpec) -> EndedJob:
    """The same job that is over, with the reservation that it named."""
    job.reservation, job.reservation_atom = spec.reservation, spec.reservation_atom
    return job


def forget_job(state: State, spec: JobSpec) -> None:
    """A job has ended."""
    jobs = state.reserving.get(spec.reservation or "", {})
    jobs.pop(spec.job, None)
    if not jobs:
        state.reserving.pop(spec.reservation or "", None)


def fold_planned(state: State, record: Record) -> None:
    """The planner answered, promised something, or something else."""
    body: Plans = record.body
    broken = {each.reservation: True for each in body.answers if each.reason == "broken"}
    named = [each.reservation for each in body.answers] + [each.reservation for each in body.profiles]
    for name in dict.fromkeys([*named, *body.gone]):
        note(state, "reservations", name)
    for answer in body.answers:
        row = state.reservations.get(answer.reservation)
        if row is not None:
            _answered(state, row, answer, record.time)
    for profile in body.profiles:
        row = state.reservations.get(profile.reservation)
        if row is not None:
            row.steps, row.order = profile.steps, profile.order
            row.works.update({each.atom: each.work_ms for each in profile.progress})
    for name in body.gone:
        row = state.reservations.get(name)
        if row is not None and row.state == "accepted":
            _over(state, row, "ended")
        elif row is not None and row.retry_until_ms is not None and name not in broken:
            row.retry_until_ms = None
            _over(state, row, "broken")


def _answered(state: State, row: ReservationRow, answer: PlanAnswer, time: int) -> None:
    if answer.reason == "moved" and row.retry_until_ms is not None:
        row.state, row.answer, row.answered_ms, row.retry_until_ms = "accepted", answer, time, None
        row.restored += 1
        return
    if answer.reason == "moved":
        row.moved, row.moved_why = row.moved + 1, answer.detail
        return
    if answer.reason in ("ahead", "behind"):
        _followed(row, answer)
        return
    row.answer, row.answered_ms = answer, time
    if answer.reason == "broken":
        row.retry_until_ms = answer.retry_until_ms
        if row.retry_until_ms is None:
            _over(state, row, "broken")
        else:
            row.state = "broken"
        return
    row.unanswered -= 1
    if answer.reason == "deleted":
        row.retry_until_ms = None
        _over(state, row, "deleted")
    elif answer.accepted:
        row.retry_until_ms = None
        row.state = "accepted"
        row.weight = row.asked_weight if row.asked_rdl else row.weight
        row.rdl, row.queue = row.asked_rdl or row.rdl, row.asked_queue or row.queue
        row.at_ms = row.asked_ms or row.at_ms
        row.works, row.progress = {}, ""
    elif row.state == "requested":
        _over(state, row, "rejected")
    row.asked_rdl, row.asked_queue, row.asked_ms = "", "", 0


def _followed(row: ReservationRow, answer: PlanAnswer) -> None:
    """The plan was compared with the progress of jobs."""
    row.progress = answer.detail
    if answer.reason == "ahead":
        row.ahead += 1
    else:
        row.behind += 1


def _over(state: State, row: ReservationRow, how: ReservationState) -> None:
    row.state = how
    state.reservations_over[row.reservation] = True
    row.order = []
    kept = {name: _bytes(state.reservations[name]) for name in state.reservations_over}
    total = sum(kept.values())
    for oldest, size in kept.items():
        if len(state.reservations_over) <= RESERVATIONS_KEPT_MAX and total <= RESERVATIONS_KEPT_BYTES_MAX:
            break
        total -= size
        del state.reservations_over[oldest], state.reservations[oldest]
        note(state, "reservations", oldest)


def _bytes(row: ReservationRow) -> int:
    return len(row.rdl) + len(row.asked_rdl) + STEP_BYTES * len(row.steps)


RESERVATION_FOLDS: Folds[State] = {
    ReservationRequested: fold_requested,
    ReservationUpdated: fold_updated,
    ReservationDeleted: fold_given_back,
    SeriesRequested: fold_series,
    SeriesEnded: fold_series_end,
    Plans: fold_planned,
}
