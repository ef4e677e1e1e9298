"""Checks before a request reaches a route: whether its origin is allowed (largesse/hosts.py), and whether there is
memory for its body.

Bytes of bodies are counted for all requests together, from their arrival until the request is answered: a limit for a
single body would say little with thousands of connections.

Over TLS, what has a host name to itself asks browsers to come by TLS alone (HSTS). They apply that to every port of the
name, and other servers on those may have no TLS: so it is said only where the request names no port.
"""

from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from largesse.hosts import Hosts, is_host_name
from largesse.telemetry import HTTP_REFUSED
from services.gateway.http.problems import Problem, response

BODIES_BYTES_MAX = 32 << 20
"""Most bytes of bodies of all requests that are not answered yet; a request beyond it is answered with 503."""

HSTS = (b"strict-transport-security", b"max-age=31536000")


@dataclass(slots=True)
class Budget:
    """Bytes of bodies that all requests hold together."""

    most: int = BODIES_BYTES_MAX
    held: int = 0


class Guard:
    """ASGI middleware with these checks."""

    def __init__(self, app: ASGIApp, hosts: Hosts, budget: Budget) -> None:
        self._app = app
        self._hosts = hosts
        self._budget = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as ASGI has it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if why := self._hosts.refusal(_only(headers, "host"), _only(headers, "origin"), headers.get("sec-fetch-site")):
            HTTP_REFUSED.labels("origin").inc()
            await response(Problem(403, "origin", why))(scope, receive, send)
            return
        if scope.get("scheme") == "https" and is_host_name(headers.get("host", "")):
            send = _with_hsts(send)
        budget, mine = self._budget, 0

        async def counted() -> Message:
            nonlocal mine
            message = await receive()
            size = len(message.get("body", b""))
            if budget.held + size > budget.most:
                raise Problem(503, "busy", f"requests in progress already hold {budget.most} bytes: try again", "")
            budget.held += size
            mine += size
            return message

        try:
            # No other method has a route that reads a body.
            await self._app(scope, counted if scope["method"] in ("POST", "PUT") else receive, send)
        finally:
            budget.held -= mine


def _with_hsts(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), HSTS]
        await send(message)

    return sent


def _only(headers: Headers, name: str) -> str | None:
    """A header's value; if it is given twice, both values joined, so that neither is mistaken for the only one."""
    values = headers.getlist(name)
    return ", ".join(values) if values else None
