"""What every request passes before it reaches a route: where it comes from (largesse/hosts.py), and what it holds.

Bodies are counted while they come in and until their request is answered, all together: a limit of one body says little
where there are thousands of connections.
"""

from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from largesse.hosts import Hosts
from services.gateway.problems import Problem, response

BODIES_BYTES_MAX = 32 << 20
"""Bytes of the bodies of all requests that are not answered yet. What would go beyond is told to come again."""


@dataclass(slots=True)
class Budget:
    """Bytes held of bodies, by all requests together."""

    most: int = BODIES_BYTES_MAX
    held: int = 0


class Guard:
    """An app behind checks of its requests."""

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
            await response(Problem(403, "origin", why))(scope, receive, send)
            return
        budget, mine = self._budget, 0

        async def counted() -> Message:
            nonlocal mine
            message = await receive()
            size = len(message.get("body", b""))
            if budget.held + size > budget.most:
                raise Problem(503, "busy", f"the bodies of requests hold {budget.most} bytes together: try again", "")
            budget.held += size
            mine += size
            return message

        try:
            # No other method has a route that reads a body.
            await self._app(scope, counted if scope["method"] in ("POST", "PUT") else receive, send)
        finally:
            budget.held -= mine


def _only(headers: Headers, name: str) -> str | None:
    """A header's value; of one that is said twice both, so that neither passes for it."""
    values = headers.getlist(name)
    return ", ".join(values) if values else None
