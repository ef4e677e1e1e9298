"""Errors as RFC 9457 problem documents: what is wrong, in which field, and for programs a type that is permanent."""

import json
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from largesse.bus.port import MESSAGE_BYTES_MAX, BusError, MessageTooLarge
from schemas.edge.read import Malformed

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1
"""After what is refused for the moment."""

_TITLES = {
    400: "The request cannot be read",
    403: "Not from here",
    404: "There is no such thing",
    405: "Not done to this",
    408: "The request did not come",
    409: "It does not go with what is there",
    413: "The request is too large",
    422: "The request cannot be taken",
    500: "Internal error",
    503: "Not now",
}


class Problem(Exception):
    """Ends a request. `kind`: how the type ends, like `refused:unknown_queue`. `field`: the path of what is wrong."""

    def __init__(self, status: int, kind: str, detail: str, field: str | None = None, **more: Any) -> None:
        self.status = status
        self.document: dict[str, Any] = {
            "type": f"urn:largesse:{kind}",
            "title": _TITLES[status],
            "status": status,
            "detail": detail,
        }
        if field is not None:
            self.document["field"] = field
        self.document |= more
        super().__init__(detail)


def malformed(fault: Malformed, status: int = 422) -> Problem:
    """A document that the edge refuses."""
    return Problem(status, "malformed", str(fault), fault.field, reason=fault.reason)


def dumped(document: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """A document's JSON. `default`: what to write for what JSON does not know."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False, default=default).encode()


def install(app: FastAPI) -> None:
    """Every error of the app, its own and the framework's, becomes a problem document."""

    @app.exception_handler(Problem)
    async def ours(request: Request, problem: Problem) -> Response:
        return response(problem)

    @app.exception_handler(HTTPException)
    async def framework(request: Request, error: HTTPException) -> Response:
        status = error.status_code
        told = f"{request.method} {request.url.path}: {error.detail}"
        kind = {404: "not_found", 405: "method"}.get(status, "request")
        return response(Problem(status if status in _TITLES else 400, kind, told), error.headers)

    @app.exception_handler(RequestValidationError)
    async def parameters(request: Request, error: RequestValidationError) -> Response:
        fault = error.errors()[0]
        field = str(fault["loc"][-1])
        return response(Problem(422, "malformed", f"{field}: {fault['msg']}", field))

    @app.exception_handler(MessageTooLarge)
    async def message(request: Request, error: MessageTooLarge) -> Response:
        return response(Problem(413, "too_large", str(error), "", limit=MESSAGE_BYTES_MAX))

    @app.exception_handler(BusError)
    async def bus(request: Request, error: BusError) -> Response:
        return response(Problem(503, "bus", f"the bus did not take it, or may not have: {error}"))

    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, error: ClientDisconnect) -> Response:
        return response(Problem(408, "too_slow", "the request ended before its body did"))  # Nobody reads it.

    @app.exception_handler(Exception)
    async def internal(request: Request, error: Exception) -> Response:
        return response(Problem(500, "internal", f"{type(error).__name__}; the gateway's log has more"))


def response(problem: Problem, headers: Any = None) -> Response:
    """The problem document. What is a matter of time says when to try again."""
    body = dumped(problem.document)
    again = {"Retry-After": str(RETRY_SECONDS)} if problem.status == 503 else {}
    return Response(body, status_code=problem.status, headers=again | dict(headers or {}), media_type=MEDIA_TYPE)
