"""Errors as RFC 9457 problem documents: what is wrong, in which field, and for programs a type that is permanent."""

import json
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match

from largesse.bus.port import MESSAGE_BYTES_MAX, BusError, BusRefused, MessageTooLarge
from schemas.edge.read import Malformed
from schemas.edge.validated import parameter_reason

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1
"""Sent as Retry-After with 503."""

TITLES = {
    400: "The request cannot be read",
    401: "Not known who asks",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "The request took too long",
    409: "Conflict with the current state",
    413: "The request is too large",
    422: "The request cannot be accepted",
    429: "Too many failed attempts",
    500: "Internal error",
    503: "Temporarily unavailable",
}
"""Titles of problems, by status."""


class Problem(Exception):
    """Ends a request with a problem document. `kind`: the end of its type, like `refused:unknown_queue`. `field`: the
    path of what is wrong in the request. `more`: further members. `challenge`: how to prove who asks, with 401."""

    challenge = ""

    def __init__(self, status: int, kind: str, detail: str, field: str | None = None, **more: Any) -> None:
        self.status = status
        self.document: dict[str, Any] = {
            "type": f"urn:largesse:{kind}",
            "title": TITLES[status],
            "status": status,
            "detail": detail,
        }
        if field is not None:
            self.document["field"] = field
        self.document |= more
        super().__init__(detail)


def malformed(fault: Malformed, status: int = 422) -> Problem:
    """The problem for an input that is not valid."""
    return Problem(status, "malformed", str(fault), fault.field, reason=fault.reason)


def dumped(document: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """A document as compact JSON. `default`: converts values that JSON does not know."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False, default=default).encode()


def as_json(document: Any, status: int = 200, **headers: str) -> Response:
    """An answer with a JSON document."""
    return Response(dumped(document), status_code=status, headers=headers, media_type="application/json")


def install(app: FastAPI) -> None:
    """Has every error of the app and of the framework answered with a problem document."""

    @app.exception_handler(Problem)
    async def ours(request: Request, problem: Problem) -> Response:
        return response(problem)

    @app.exception_handler(HTTPException)
    async def framework(request: Request, error: HTTPException) -> Response:
        status = error.status_code
        text = f"{request.method} {request.url.path}: {error.detail}"
        kind = {404: "not_found", 405: "method"}.get(status, "request")
        # The framework names the methods of one route, and there may be several for a path.
        headers = {"Allow": allowed(request)} if status == 405 else error.headers
        return response(Problem(status if status in TITLES else 400, kind, text), headers)

    @app.exception_handler(RequestValidationError)
    async def parameters(request: Request, error: RequestValidationError) -> Response:
        fault = error.errors()[0]
        field = str(fault["loc"][-1])
        reason = parameter_reason(fault["type"], fault.get("ctx", {}), fault.get("input")) or fault["msg"]
        return response(Problem(422, "malformed", f"{field}: {reason}", field))

    @app.exception_handler(MessageTooLarge)
    async def message(request: Request, error: MessageTooLarge) -> Response:
        return response(Problem(413, "too_large", str(error), "", limit=MESSAGE_BYTES_MAX))

    @app.exception_handler(BusError)
    async def bus(request: Request, error: BusError) -> Response:
        if isinstance(error, BusRefused):
            return response(Problem(503, "bus", f"the bus does not take it from this gateway: {error}"))
        return response(Problem(503, "bus", f"the bus did not accept the message, or may not have: {error}"))

    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, error: ClientDisconnect) -> Response:
        return response(
            Problem(408, "too_slow", "the connection was closed before the body was complete")
        )  # It is never read.

    @app.exception_handler(Exception)
    async def internal(request: Request, error: Exception) -> Response:
        return response(Problem(500, "internal", f"{type(error).__name__}; see the gateway's log"))


def allowed(request: Request) -> str:
    """The methods that the path of a request takes, as the header `Allow` lists them."""
    routes: list[BaseRoute] = request.app.routes
    here = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return ", ".join(sorted({method for route in here for method in getattr(route, "methods", None) or ()}))


def response(problem: Problem, headers: Any = None) -> Response:
    """An answer with the problem document; with 429 and 503 it says when to try again."""
    body = dumped(problem.document)
    after = problem.document.get("retry_after_s", RETRY_SECONDS)
    again = {"Retry-After": str(after)} if problem.status in (429, 503) else {}
    if problem.challenge:
        again["WWW-Authenticate"] = problem.challenge
    return Response(body, status_code=problem.status, headers=again | dict(headers or {}), media_type=MEDIA_TYPE)
