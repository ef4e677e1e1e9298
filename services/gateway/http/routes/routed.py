"""Jobs that name no cell: submitted to the router, shown as it has them, and cancelled by way of it."""

from dataclasses import asdict
from typing import TYPE_CHECKING
from urllib.parse import quote

from fastapi import Depends, FastAPI, Request
from fastapi.responses import Response

from schemas import InputRefused, InputRepeated, JobRejected
from schemas.edge.base import author_of
from schemas.edge.read import warnings_of
from schemas.topics import ROUTER_JOBS
from services.gateway.documents import Document
from services.gateway.documents.models.routes import RouteStatus
from services.gateway.http.callers import Asker, check_own, check_queue_of, user_for
from services.gateway.http.openapi import Responses, answer, problems
from services.gateway.http.problems import Problem, as_json, dumped
from services.gateway.http.reading import message_of
from services.gateway.routed import Routed, RouteRow

if TYPE_CHECKING:
    from services.gateway.http.api import Api

PROBLEMS_SHOWN = 10

_SUBMITTED: Responses = {
    201: answer(RouteStatus, "a cell has it", Location="where the job is"),
    200: answer(RouteStatus, "the router has the same job already"),
    202: answer(RouteStatus, "no cell has it within 10 s: it waits for one"),
    **problems(409, 413, 422),
}
_ROUTE: Responses = {200: answer(RouteStatus, "where it is"), **problems(404)}
_CANCELLED: Responses = {
    200: answer(RouteStatus, "it has ended"),
    202: answer(RouteStatus, "the log has not said so within 10 s"),
    **problems(404, 409),
}


def add_routes(app: FastAPI, api: "Api", wait_s: float) -> None:
    """`wait_s`: for so long answers of the router are waited for."""
    ready = [Depends(api.is_ready)]

    @app.post("/v1/routes", tags=["jobs"], status_code=201, dependencies=ready, responses=_SUBMITTED)
    async def route_job(request: Request, asker: Asker) -> Response:
        """Submits a job spec (JSON, or YAML by content type) for which the router chooses the cell: of those in which
        the token may submit to the job's queue, and of `cells`, if the spec names any."""
        routed = _routed(api)
        document, asked = await api.body(request, ROUTER_JOBS)
        user_for(asker, document)
        check_queue_of(asker, asked.spec.queue)
        document["cells"] = _cells(api.may_go(asker, asked.spec.queue), asked.cells)
        said = await routed.send(message_of(document), author_of(asker.user or api.author), wait_s)
        name = asked.spec.job or getattr(getattr(said, "spec", None), "job", "")
        if isinstance(said, InputRefused | JobRejected):
            raise _refusal(said, name)
        await routed.until(lambda: _is_placed(routed, name), wait_s)
        row = routed.rows.get(name)
        if row is None:
            raise Problem(503, "not_ready", "the router has not answered: ask for the job, or submit it again")
        if row.state == "declined":
            raise _declined(name, row)
        status = 200 if isinstance(said, InputRepeated) else 202 if row.state == "waiting" else 201
        where = f"/cells/{quote(row.cell, safe='')}/v1/jobs/{quote(name, safe='')}" if row.cell else ""
        location = {"Location": where or f"/v1/routes/{quote(name, safe='')}"}
        return as_json({**_document(name, row), "warnings": warnings_of(document)}, status, **location)

    @app.get("/v1/routes/{job}", tags=["jobs"], dependencies=ready, responses=_ROUTE)
    async def get_route(job: str) -> Response:
        """Which cell has a job that named none, and why it went there; or why no cell has it."""
        return as_json(_document(job, _row(_routed(api), job)))

    @app.delete("/v1/routes/{job}", tags=["jobs"], dependencies=ready, responses=_CANCELLED)
    async def cancel_route(job: str, asker: Asker) -> Response:
        """Cancels a job that named no cell, wherever it is. 409: it had ended before."""
        routed = _routed(api)
        row = _row(routed, job)
        check_own(asker, f'job "{job}"', row.user or row.author, row.queue)
        said = await routed.send(dumped({"cancel": job}), author_of(asker.user or api.author), wait_s)
        if isinstance(said, InputRefused):
            raise Problem(409, "refused:input", said.reason, said.field, reason=said.reason)
        over = await routed.until(lambda: routed.rows[job].state in ("ended", "declined"), wait_s)
        return as_json(_document(job, routed.rows[job]), 200 if over else 202)


def _routed(api: "Api") -> Routed:
    if api.routed is None or not api.routed.ready:
        text = "no router chooses cells here: name a cell (`--cell`, or the header Largesse-Cell)"
        raise Problem(503, "no_router", text)
    return api.routed


def _row(routed: Routed, job: str) -> RouteRow:
    row = routed.rows.get(job)
    if row is None:
        raise Problem(404, "unknown_job", f'job "{job}" did not come by way of the router, or has long ended')
    return row


def _cells(may: list[str], asked: list[str]) -> list[str]:
    """The cells that a job may go to. Raises Problem where there is none."""
    found = [name for name in may if name in asked] if asked else may
    if not found:
        raise Problem(403, "forbidden", f"none of the cells that the job may go to is for this token: {asked}", "cells")
    return found


def _is_placed(routed: Routed, name: str) -> bool:
    row = routed.rows.get(name)
    return row is not None and row.state not in ("waiting", "sent")


def _refusal(said: InputRefused | JobRejected, name: str) -> Problem:
    if isinstance(said, InputRefused):
        return Problem(422, "malformed", said.reason, said.field, reason=said.reason)
    status = {"name_taken": 409, "too_many_jobs": 503}.get(said.reason, 422)
    return Problem(status, f"refused:{said.reason}", said.detail, said.field, reason=said.reason, job=name)


def _declined(name: str, row: RouteRow) -> Problem:
    each = [f"{problem.cell}: {problem.detail}" for problem in row.problems[:PROBLEMS_SHOWN]]
    more = len(row.problems) - len(each)
    detail = "no cell can run it: " + "; ".join(each) + (f"; and {more} cells more" if more else "")
    field = row.problems[0].field if row.problems else ""
    reason = row.problems[0].reason if row.problems else "no_cell"
    return Problem(422, "refused:no_cell", detail, field, reason=reason, job=name)


def _document(name: str, row: RouteRow) -> Document:
    return {
        "job": name,
        "state": row.state,
        "cell": row.cell or None,
        "to": row.to or None,
        "user": row.user,
        "queue": row.queue,
        "number": row.number,
        "why": row.why or None,
        "outcome": row.outcome or None,
        "problems": [asdict(problem) for problem in row.problems],
        "loads": [asdict(load) for load in row.loads],
    }
