"""Routes of series: reservations that recur, whose occurrences the planner requests as the horizon moves."""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from fastapi import Depends, FastAPI, Request
from fastapi.responses import Response

from largesse.lifecycle.reservation_limits import ceiling_problem, series_problem
from schemas import InputRepeated, SeriesRequested
from schemas.edge.read import Malformed, read_input
from services.gateway.documents import Document
from services.gateway.documents.models.reservations import Series, SeriesList, UnreadSeries
from services.gateway.documents.reservations import series_document
from services.gateway.http.api import as_of
from services.gateway.http.callers import Asker, check_own, check_queue_of, owner_of, user_for
from services.gateway.http.dry_runs.queue_rules import check_queue
from services.gateway.http.dry_runs.reservations import is_live
from services.gateway.http.openapi import At, Owner, Responses, answer, problems
from services.gateway.http.problems import Problem, as_json, dumped, malformed
from services.gateway.http.reading import message_of
from services.gateway.view.state import SeriesRow, State

if TYPE_CHECKING:
    from services.gateway.http.api import Api

_ONE = "/v1/series/{series}"
_UNREAD = "the log has not read it within 10 s"
_MADE: Responses = {
    201: answer(Series, "the series is kept", Location="where the series is"),
    200: answer(Series, "the cell has the same series already, or would take this one: a dry run"),
    202: answer(UnreadSeries, _UNREAD),
    **problems(409, 413, 422),
}
_ENDED: Responses = {
    200: answer(Series, "the series as it was"),
    202: answer(Series, _UNREAD),
    **problems(404, 409, 422),
}
_FOUND: Responses = {200: answer(Series, "the series"), **problems(404)}
_LISTED: Responses = {200: answer(SeriesList, "all that have not ended")}


def add_series(app: FastAPI, api: "Api") -> None:
    """Requests, lists, the end of a series."""
    ready = [Depends(api.is_ready)]

    @app.get("/v1/series", tags=["reservations"], dependencies=ready, responses=_LISTED)
    async def list_series(at: At = None) -> Response:
        """Reservations that recur, in the order of their requests."""
        view = await api.view(at)
        return as_json(as_of({"series": [series_document(row) for row in view.series.values()]}, view, at))

    @app.get(_ONE, tags=["reservations"], dependencies=ready, responses=_FOUND)
    async def get_series(series: str, at: At = None) -> Response:
        """One reservation that recurs. Its occurrences are reservations."""
        view = await api.view(at)
        return as_json(as_of(series_document(_row(view, series)), view, at))

    @app.post("/v1/series", tags=["reservations"], status_code=201, dependencies=ready, responses=_MADE)
    async def request_series(request: Request, asker: Asker, dry_run: bool = False) -> Response:
        """Asks for a reservation that recurs. Each occurrence is requested, and answered, as a reservation of its own
        as soon as it lies within the time that can be planned. `dry_run`: only asks whether the series would be kept
        (200)."""
        document = await api.document(request)
        if not isinstance(document, dict):
            raise malformed(Malformed("", "has to be an object"))
        user_for(asker, document, always=True)
        body = _check("series", document)
        assert isinstance(body, SeriesRequested)
        check_queue_of(asker, body.queue)
        _check_times(document, api.follower.state.policy.reservation_horizon_ms // 1_000)
        if dry_run:
            return as_json(series_document(_would_be(api.follower.state, body, int(time.time() * 1000))))
        found = await api.send("reservations", message_of({"series": document}), asker.user)
        name = document["series"]
        row = api.follower.state.series.get(name)
        if not found.answered or row is None:
            return as_json({"series": name}, 202)
        repeated = found.record is not None and isinstance(found.record.body, InputRepeated)
        location = {} if repeated else {"Location": f"/v1/series/{quote(name, safe='')}"}
        return as_json(series_document(row), 200 if repeated else 201, **location)

    @app.delete(_ONE, tags=["reservations"], dependencies=ready, responses=_ENDED)
    async def delete_series(series: str, asker: Asker, user: Owner = None) -> Response:
        """Ends a series, as its owner. Its occurrences that have not begun are given back."""
        row = _row(api.follower.state, series)
        check_own(asker, f'series "{series}"', row.user, row.queue)
        before = series_document(row)
        document: Document = {"series": series, **owner_of(user, asker)}
        _check("end_series", document)
        found = await api.send("reservations", dumped({"end_series": document}), asker.user)
        return as_json(before, 200 if found.answered else 202)


def _row(view: State, name: str) -> SeriesRow:
    found = view.series.get(name)
    if found is None:
        raise Problem(404, "unknown_series", f'series "{name}" is not known here', "series")
    return found


def _would_be(state: State, body: SeriesRequested, now_ms: int) -> SeriesRow:
    """The series that the log would keep, or has already. Raises Problem where it would refuse it."""
    row = SeriesRow(body.series, body.user, body.queue, body.rdl, body.every, body.zone, body.start_s, now_ms)
    row.weight = body.weight
    known = state.series.get(body.series)
    text = ""
    if known is not None:
        start_s = body.start_s if body.every.isdecimal() else known.start_s
        terms = (body.user, body.queue, body.rdl, body.every, body.zone, start_s, body.weight)
        if terms == (known.user, known.queue, known.rdl, known.every, known.zone, known.start_s, known.weight):
            return known
        text = f'"{body.series}" names another series; delete it, or choose a new name'
    elif _is_live(state, body.series):
        text = f'"{body.series}" names a reservation; choose a new name'
    elif any(row.series == body.series and _is_live(state, name) for name, row in state.reservations.items()):
        text = f'occurrences of "{body.series}", which was deleted, are still promised; choose a new name'
    if text:
        raise Problem(409, "refused:input", text, "series.series", reason=text)
    if limit := series_problem([each.user for each in state.series.values()], body.user):
        raise Problem(409, "refused:input", limit[1], f"series.{limit[0]}", reason=limit[1])
    check_queue(state, body.queue, body.user, "series")
    if text := ceiling_problem(state.ceilings, body.queue, body.rdl):
        raise Problem(409, "refused:input", text, "series.rdl", reason=text)
    return row


def _is_live(state: State, reservation: str) -> bool:
    row = state.reservations.get(reservation)
    return row is not None and is_live(row)


def _check(form: str, document: Document) -> object:
    """The message of the topic. Raises Problem."""
    try:
        return read_input("reservations", {form: document}, "")
    except Malformed as fault:
        raise malformed(Malformed(fault.field.removeprefix(f"{form}."), fault.reason)) from None


def _check_times(document: Document, horizon_s: int) -> None:
    """What the edge cannot know: whether the planner will be able to evaluate the series, and whether an occurrence
    can ever lie inside the horizon. Raises Problem."""
    zone, every, rdl = document.get("zone", "UTC"), document["every"], document["rdl"]
    try:
        ZoneInfo(zone)
    except (OSError, ValueError, KeyError):
        raise malformed(Malformed("zone", f'"{zone}" is no time zone like Europe/Berlin or UTC')) from None
    if isinstance(every, str):
        try:
            comes = next(CronSim(every, datetime.now(UTC)), None)
        except CronSimError as error:
            text = f'"{every}" is no cron expression like "0 6 * * 1-5": {error}'
            raise malformed(Malformed("every", text)) from None
        if comes is None:
            raise malformed(Malformed("every", f'"{every}" never comes'))
    if rdl["e"] > horizon_s:
        text = f"an occurrence ends {rdl['e']} s after it begins, and {horizon_s} s can be planned"
        raise malformed(Malformed("rdl", f"{text} (knob reservation_horizon_ms)"))
