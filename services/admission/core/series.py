"""Reservations that recur, as the sequencer knows them: which may be asked for, and which occurrences count."""

from largesse.ids import content_hash
from largesse.lifecycle.queue_rules import queue_problem
from largesse.lifecycle.reservation_limits import ceiling_problem, series_problem
from schemas import InputRefused, InputRepeated, Record, ReservationRequested, SeriesEnded, SeriesRequested
from services.admission.core.state import SeriesKnown, State


# ---------------------------------------------------------------- inputs
def judge_series(state: State, body: SeriesRequested, author: str) -> SeriesRequested | InputRepeated | InputRefused:
    """A new series; the same once more changes nothing."""
    name = body.series
    known = state.series.get(name)
    if known is not None:
        if (known.user, known.queue, known.terms) == (body.user, body.queue, _digest(body)):
            return InputRepeated("", author, name)
        return _refused(f'"{name}" names another series; delete it, or choose a new name', "series.series", author)
    if name in state.reservations:
        return _refused(f'"{name}" names a reservation; choose a new name', "series.series", author)
    if any(each.series == name for each in state.reservations.values()):
        detail = f'occurrences of "{name}", which was deleted, are still promised; choose a new name'
        return _refused(detail, "series.series", author)
    if limit := series_problem([each.user for each in state.series.values()], body.user):
        return _refused(limit[1], f"series.{limit[0]}", author)
    if problem := queue_problem(state.leaves, state.submitters, body.queue, body.user):
        return _refused(problem[2], f"series.{problem[1]}", author)
    if detail := ceiling_problem(state.ceilings, body.queue, body.rdl):
        return _refused(detail, "series.rdl", author)
    return body


def judge_end(state: State, body: SeriesEnded, author: str) -> SeriesEnded | InputRefused:
    """Its owner ends a series."""
    known = state.series.get(body.series)
    if known is None:
        detail = f'series "{body.series}" is not known here: it was never accepted, or was deleted'
        return _refused(detail, "end_series.series", author)
    if known.user != body.user:
        return _refused(f'series "{body.series}" belongs to another user', "end_series.series", author)
    return body


def judge_occurrence(state: State, body: ReservationRequested, author: str) -> InputRepeated | InputRefused | None:
    """Why a request for an occurrence does not count; None where it does. Each occurrence is requested once."""
    known = state.series.get(body.series)
    if known is None:
        detail = f'series "{body.series}" is not known here: it was never accepted, or was deleted'
        return _refused(detail, "request.series", author)
    if (known.user, known.queue) != (body.user, body.queue):
        detail = f'series "{body.series}" has another owner or queue'
        return _refused(detail, "request.series", author)
    if body.series_seq not in (0, known.seq):
        detail = f'series "{body.series}" was deleted, and another of that name has been requested since'
        return _refused(detail, "request.series_seq", author)
    if body.occurrence_s <= known.asked_s:
        return InputRepeated("", author, body.reservation)
    return None


def _refused(reason: str, field: str, author: str) -> InputRefused:
    return InputRefused("reservations", reason, field, 0, "", author)


def _digest(body: SeriesRequested) -> str:
    """With a cron expression `start_s` is only when it was asked for: sending it again later asks for the same."""
    start = body.start_s if body.every.isdecimal() else 0
    weight = "" if body.weight == 1 else f"\n{body.weight}"
    return content_hash(f"{body.rdl}\n{body.every}\n{body.zone}\n{start}{weight}".encode())[:32]


# ---------------------------------------------------------------- what the log says
def fold_series(state: State, record: Record[SeriesRequested]) -> None:
    """A series begins."""
    body = record.body
    state.series[body.series] = SeriesKnown(body.user, body.queue, _digest(body), record.seq)


def fold_series_end(state: State, record: Record[SeriesEnded]) -> None:
    """A series ends; the planner's shell gives its occurrences back."""
    del state.series[record.body.series]


def note_occurrence(state: State, body: ReservationRequested) -> None:
    """An occurrence was requested."""
    if body.series in state.series:
        state.series[body.series].asked_s = body.occurrence_s
