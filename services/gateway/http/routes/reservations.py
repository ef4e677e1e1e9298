"""Routes of reservations: requests for capacity in time, and the planner's answers to them."""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote

from fastapi import Depends, FastAPI, Request
from fastapi.responses import Response

from largesse.lifecycle.reservation_limits import series_unchanged, series_undeleted
from schemas import InputRepeated, PlanAnswer, ReservationRequested, ReservationUpdated
from schemas.edge.read import Malformed, read_input
from services.gateway.access.callers import Caller
from services.gateway.answers import Answer
from services.gateway.documents import Document
from services.gateway.documents.models.reservations import Reservation, Reservations
from services.gateway.documents.reservations import dry_document, reservation_document, reservation_documents
from services.gateway.http.api import as_of
from services.gateway.http.callers import Asker, check_own, check_queue_of, owner_of, user_for
from services.gateway.http.dry_runs.reservations import would_answer
from services.gateway.http.openapi import At, Owner, Responses, answer, problems
from services.gateway.http.problems import Problem, as_json, dumped, malformed
from services.gateway.http.reading import message_of
from services.gateway.view.state import ReservationRow, State

if TYPE_CHECKING:
    from services.gateway.http.api import Api

Checked = tuple[Document, ReservationRequested | ReservationUpdated]
"""A request as it came, and as it was read."""

_ONE = "/v1/reservations/{reservation}"

_UNANSWERED = "the planner has not answered within 10 s"
_RESERVED: Responses = {
    201: answer(Reservation, "accepted", Location="where the reservation is"),
    200: answer(Reservation, "the cell has the same request already, or the answer of a dry run"),
    202: answer(Reservation, _UNANSWERED),
    **problems(409, 413, 422),
}
_CHANGED: Responses = {
    200: answer(Reservation, "the new terms are accepted"),
    202: answer(Reservation, _UNANSWERED),
    **problems(404, 409, 413, 422),
}
_DELETED: Responses = {
    200: answer(Reservation, "the reservation as it was"),
    202: answer(Reservation, _UNANSWERED),
    **problems(404, 409, 422),
}
_FOUND: Responses = {200: answer(Reservation, "the reservation"), **problems(404)}
_LISTED: Responses = {200: answer(Reservations, "all that are not over, and the latest of those that are")}


def add_reservations(app: FastAPI, api: "Api") -> None:
    """Requests, new terms, deletion, lists."""
    _add_reading(app, api)
    _add_asking(app, api)
    _add_changing(app, api)


def _add_reading(app: FastAPI, api: "Api") -> None:
    ready = [Depends(api.is_ready)]

    @app.get("/v1/reservations", tags=["reservations"], dependencies=ready, responses=_LISTED)
    async def list_reservations(at: At = None) -> Response:
        """Reservations in the order of their requests, with what the planner answered and promised."""
        view = await api.view(at)
        return as_json(as_of({"reservations": reservation_documents(view)}, view, at))

    @app.get(_ONE, tags=["reservations"], dependencies=ready, responses=_FOUND)
    async def get_reservation(reservation: str, at: At = None) -> Response:
        """One reservation: its terms, the planner's last answer, and its plan."""
        view = await api.view(at)
        return as_json(as_of(reservation_document(_row(view, reservation)), view, at))


def _add_asking(app: FastAPI, api: "Api") -> None:
    ready = [Depends(api.is_ready)]

    @app.post("/v1/reservations", tags=["reservations"], status_code=201, dependencies=ready, responses=_RESERVED)
    async def request_reservation(request: Request, asker: Asker, dry_run: bool = False) -> Response:
        """Asks for capacity in time, and waits for the planner's answer. 409 of type `refused:...`: the answer is no;
        `answer` says why, and which window or size would be accepted. `dry_run`: only asks what the answer would be
        (200), as if the request came now."""
        document, body = await _document(api, request, "request", {}, asker)
        check_queue_of(asker, body.queue)
        if dry_run:
            return await _tried(api, body)
        found = await api.send("reservations", message_of({"request": document}), asker.user)
        asked = ReservationRow(body.reservation, body.user, body.queue, body.rdl, 0)
        return await _answered(api, asked, found, 200 if _is_repeat(found) else 201)


def _add_changing(app: FastAPI, api: "Api") -> None:
    ready = [Depends(api.is_ready)]

    @app.put(_ONE, tags=["reservations"], dependencies=ready, responses=_CHANGED)
    async def update_reservation(reservation: str, request: Request, asker: Asker, dry_run: bool = False) -> Response:
        """Asks for other terms, as its owner. Where they are refused, the old ones stay in force. `dry_run`: only asks
        what the answer would be."""
        if reservation in api.follower.state.series:
            detail = series_unchanged(reservation)
            raise Problem(409, "refused:input", detail, "reservation", reason=detail)
        mine = _row(api.follower.state, reservation)
        check_own(asker, f'reservation "{reservation}"', mine.user, mine.queue)
        document, body = await _document(api, request, "update", {"reservation": reservation}, asker)
        check_queue_of(asker, body.queue or mine.queue)
        if dry_run:
            return await _tried(api, body)
        found = await api.send("reservations", message_of({"update": document}), asker.user)
        return await _answered(api, mine, found, 200)

    @app.delete(_ONE, tags=["reservations"], dependencies=ready, responses=_DELETED)
    async def delete_reservation(reservation: str, asker: Asker, user: Owner = None) -> Response:
        """Gives a reservation back, as its owner. Its jobs go on without it."""
        if reservation in api.follower.state.series:
            detail = series_undeleted(reservation)
            raise Problem(409, "refused:input", detail, "reservation", reason=detail)
        mine = _row(api.follower.state, reservation)
        check_own(asker, f'reservation "{reservation}"', mine.user, mine.queue)
        document = {"delete": {"reservation": reservation, **owner_of(user, asker)}}
        try:
            read_input("reservations", document, "")
        except Malformed as fault:
            raise malformed(Malformed(fault.field.removeprefix("delete."), fault.reason)) from None
        found = await api.send("reservations", dumped(document), asker.user)
        return await _answered(api, mine, found, 200)


def _row(view: State, name: str) -> ReservationRow:
    found = view.reservations.get(name)
    if found is None and name in view.series:
        text = f'"{name}" is a series, not a reservation: look at /v1/series/{name} (largesse reserve why {name})'
        raise Problem(404, "unknown_reservation", text, "reservation")
    if found is None:
        raise Problem(404, "unknown_reservation", f'reservation "{name}" is not known here', "reservation")
    return found


async def _answered(api: "Api", mine: ReservationRow, found: Answer, status: int) -> Response:
    """The planner's answer to what was sent. `mine`: the reservation before that. Raises Problem where it is no."""
    name = mine.reservation
    answered = found.answered and await api.until(lambda view: not view.reservations.get(name, mine).unanswered)
    mine = api.follower.state.reservations.get(name, mine)
    last = mine.answer
    if answered and not _is_repeat(found) and last is not None and not last.accepted:
        document = reservation_document(mine)
        kind, detail = f"refused:{last.reason}", _no(name, last)
        if document["update_refused"]:
            detail += "; the terms accepted before stay in force"
        raise Problem(
            409,
            kind,
            detail,
            "rdl",
            reason=last.reason,
            answer=document["answer"],
            update_refused=document["update_refused"],
        )
    location = {"Location": f"/v1/reservations/{quote(name, safe='')}"} if status == 201 else {}
    return as_json(reservation_document(mine), status if answered else 202, **location)


async def _tried(api: "Api", body: ReservationRequested | ReservationUpdated) -> Response:
    """What the planner would answer now."""
    async with api.dry_runs:
        now_ms = int(time.time() * 1000)
        found = await would_answer(api.follower.state, body, now_ms)
    return as_json(dry_document(body, found, now_ms))


async def _document(api: "Api", request: Request, form: str, more: Document, asker: Caller) -> Checked:
    """The body of a request with what the path says, and as a message of the topic; where it names no user, it is for
    the one who asks. Raises Problem."""
    document = await api.document(request)
    if not isinstance(document, dict):
        raise malformed(Malformed("", "has to be an object"))
    user_for(asker, document, always=True)
    for name, value in more.items():
        if document.setdefault(name, value) != value:
            raise malformed(Malformed(name, f"is {document[name]}, and the address names {value}"))
    try:
        body = read_input("reservations", {form: document}, "")
    except Malformed as fault:
        raise malformed(Malformed(fault.field.removeprefix(f"{form}."), fault.reason)) from None
    assert isinstance(body, ReservationRequested | ReservationUpdated)
    return document, body


def _is_repeat(found: Answer) -> bool:
    return found.record is not None and isinstance(found.record.body, InputRepeated)


def _no(name: str, answer: PlanAnswer) -> str:
    """The planner's no, with what would be accepted."""
    text = f"{name} is not accepted: {answer.detail}"
    if answer.offer_from_ms is not None and answer.offer_to_ms is not None:
        text += f"; it would be accepted from {_moment(answer.offer_from_ms)} to {_moment(answer.offer_to_ms)}"
    return text


def _moment(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
