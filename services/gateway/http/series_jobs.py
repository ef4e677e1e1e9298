"""A job that names a series runs under one of its occurrences: that whose window holds its submission, else the next.

The gateway says which when the job is submitted, and what it sends names the occurrence, so that the log and whoever
reads it know of nothing else. A simulation chooses in the same way (simulator/series.py).
"""

import json

from schemas.edge.reservations import occurrence_name
from services.gateway.documents import Document
from services.gateway.http.dry_runs.reservations import is_live
from services.gateway.http.problems import Problem
from services.gateway.view.state import ReservationRow, SeriesRow, State

FIELD = "reservation"


def bind(state: State, document: Document, now_ms: int) -> Document:
    """Has a job name the occurrence that it runs under, where it names a series; returns what the answer says of it.
    Raises Problem.
    """
    named, job = document.get(FIELD), document.get("job") or ""
    bound = occurrence_for(state, job, named, now_ms) if named else None
    if bound is None:
        return {}
    document[FIELD] = bound
    return {FIELD: bound}


def occurrence_for(state: State, job: str, named: str, now_ms: int) -> str | None:
    """The occurrence that a job runs under which names `named`; None where that is no series. A job that the cell has
    already keeps its own, so that it can be sent again. Raises Problem where there is none to run under.
    """
    rows = [row for row in state.reservations.values() if row.series == named]
    series = state.series.get(named)
    if series is None:
        if not rows or named in state.reservations:
            return None
        raise _refused(f'series "{named}" has ended{_still_there(rows, now_ms)}')
    rows = [row for row in rows if row.at_ms >= series.at_ms]  # Others are of an earlier series of that name.
    before = _reservation_of(state, job)
    if before is not None and any(row.reservation == before for row in rows):
        return before
    ahead = sorted((_ends_ms(row), row.reservation) for row in rows if _ends_ms(row) > now_ms)
    if not ahead:
        raise _refused(_none_ahead(state, series))
    following = state.reservations[ahead[0][1]]
    if is_live(following):
        return following.reservation
    later = next((name for _, name in ahead if is_live(state.reservations[name])), None)
    text = f'"{following.reservation}", the next occurrence of series "{named}", {_fate(following)}'
    raise _refused(text + (f'; a later one is "{later}"' if later else ""))


def _refused(text: str) -> Problem:
    return Problem(422, "refused:unknown_reservation", f"{FIELD}: {text}", FIELD, reason="unknown_reservation")


def _reservation_of(state: State, job: str) -> str | None:
    live, ended = state.jobs.get(job), state.ended.get(job)
    if live is not None:
        return live.spec.reservation
    return None if ended is None else ended.reservation


def _ends_ms(row: ReservationRow) -> int:
    """When the window of an occurrence ends."""
    return int(json.loads(row.rdl)["e"]) * 1_000


def _still_there(rows: list[ReservationRow], now_ms: int) -> str:
    names = [f'"{row.reservation}"' for row in rows if is_live(row) and _ends_ms(row) > now_ms]
    return f"; what is left of it can be named: {', '.join(names[:3])}" if names else ""


def _none_ahead(state: State, series: SeriesRow) -> str:
    last = "" if series.asked_s is None else f' after "{occurrence_name(series.series, series.asked_s)}"'
    days = state.policy.reservation_horizon_ms / 86_400_000
    text = f'no occurrence of series "{series.series}" is requested{last}: each is'
    return f"{text} once it ends within the {days:g} days that are planned (largesse reserve why {series.series})"


def _fate(row: ReservationRow) -> str:
    """What became of an occurrence that is promised no more."""
    if row.state == "rejected" and row.answer is not None and row.answer.detail:
        return f"was rejected: {row.answer.detail}"
    return {"ended": "is over", "deleted": "was given back"}.get(row.state, f"was {row.state}")
