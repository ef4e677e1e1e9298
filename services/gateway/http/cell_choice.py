"""Which cell of a gateway a request is for: `/cells/NAME/...`, else the header Largesse-Cell, else the gateway's own.

Each cell has an app of its own, which knows nothing of the others.
"""

from collections.abc import Callable, Iterable
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.gateway.http.problems import Problem, response

PREFIX = "/cells/"
CELL_HEADER = "Largesse-Cell"

AppOf = Callable[[str], ASGIApp | None]
"""The app of a cell; None: it is not served now."""


Unnamed = Callable[[Scope], tuple[str, str]]
"""Of a request that names no cell: the cell that it is for, empty for the gateway's own, and the path there."""


class CellChoice:
    """ASGI app. `app_of`: by name. `known`: the names of all cells there are. `own`: the cell of requests that name
    none. `unnamed`: what else they may be for."""

    def __init__(
        self, app_of: AppOf, known: Callable[[], Iterable[str]], own: str, unnamed: Unnamed | None = None
    ) -> None:
        self._app_of, self._known, self._own, self._unnamed = app_of, known, own, unnamed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as ASGI has it."""
        if scope["type"] != "http":
            return
        name, root = self._own, ""
        if scope["path"].startswith(PREFIX):
            name, slash, _ = scope["path"].removeprefix(PREFIX).partition("/")
            root = PREFIX + name
            if not slash:
                await response(Problem(404, "not_found", f"cells are below {PREFIX}: write {root[:100]}/"))(
                    scope, receive, send
                )
                return
        elif (said := Headers(scope=scope).get(CELL_HEADER)) is not None:
            name = said
        elif self._unnamed is not None:
            name, path = self._unnamed(scope)
            scope = {**scope, "path": path}
        name = name or self._own
        app = self._app_of(name)
        if app is None:
            await response(self._problem(name))(scope, receive, send)
            return
        await app({**scope, "root_path": root} if root else scope, receive, _placed(send, root) if root else send)

    def _problem(self, name: str) -> Problem:
        if name in self._known():
            return Problem(503, "not_ready", f"cell {name} is not served here at the moment: try again")
        return no_cell(name)


def no_cell(name: str) -> Problem:
    """What is answered to a request for a cell that is not served here."""
    return Problem(404, "unknown_cell", f"no cell {name[:100]!r} is served here; GET /v1/cells has those that are")


def _placed(send: Send, root: str) -> Send:
    """Places that an answer names lie below the cell's own."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            if headers.get("location", "").startswith("/"):
                headers["location"] = quote(root) + headers["location"]
        await send(message)

    return sending
