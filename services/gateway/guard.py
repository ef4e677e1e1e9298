"""What every request passes before it reaches a route, and every unknown address too: see largesse/hosts.py."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from largesse.hosts import Hosts
from services.gateway.problems import Problem, response


class Guard:
    """An app behind a check of where requests come from."""

    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as ASGI has it."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            if why := self._hosts.refusal(
                _only(headers, "host"), _only(headers, "origin"), headers.get("sec-fetch-site")
            ):
                await response(Problem(403, "origin", why))(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _only(headers: Headers, name: str) -> str | None:
    """A header's value; of one that is said twice both, so that neither passes for it."""
    values = headers.getlist(name)
    return ", ".join(values) if values else None
