"""The table of rights: for each route the role that it needs at least. A route without an entry is refused."""

from dataclasses import dataclass

from schemas.access import RoleName


@dataclass(frozen=True, slots=True)
class Right:
    """What a route needs. `role`: at least; None: nothing, not even a token. `tries`: with `dry_run=true`; None: the
    same. `own`: a submitter gets what is its user's alone, in its queues. `local`: nothing from this machine itself.
    """

    role: RoleName | None
    tries: RoleName | None = None
    own: bool = False
    local: bool = False

    def least(self, *, dry_run: bool) -> RoleName | None:
        """The role that a request needs."""
        return self.tries if dry_run and self.tries is not None else self.role


_OPEN = Right(None)
_VIEWER = Right("viewer")
_OWN = Right("submitter", own=True)
_OPERATOR = Right("operator")
_ADMIN = Right("admin")

RIGHTS: dict[str, Right] = {
    "GET /": _OPEN,
    "GET /page/{path:path}": _OPEN,
    "GET /livez": _OPEN,
    "GET /readyz": _OPEN,
    "GET /openapi.json": _OPEN,
    "GET /v1/session": _OPEN,
    "POST /v1/session": _OPEN,
    "DELETE /v1/session": _OPEN,
    "GET /metrics": Right("viewer", local=True),
    # What there is, and why.
    "GET /v1/cells": _VIEWER,
    "GET /v1/jobs": _VIEWER,
    "GET /v1/jobs/{job}": _VIEWER,
    "GET /v1/jobs/{job}/attempts": _VIEWER,
    "GET /v1/jobs/{job}/events": _VIEWER,
    "GET /v1/jobs/{job}/spec": _VIEWER,
    "GET /v1/jobs/{job}/why": _VIEWER,
    "GET /v1/routes/{job}": _VIEWER,
    "GET /v1/queues": _VIEWER,
    "GET /v1/queues/{queue:path}/why": _VIEWER,
    "GET /v1/classes": _VIEWER,
    "GET /v1/ledger": _VIEWER,
    "GET /v1/nodes": _VIEWER,
    "GET /v1/node-map": _VIEWER,
    "GET /v1/room": _VIEWER,
    "GET /v1/nodes/{node}/attempts": _VIEWER,
    "GET /v1/nodes/{node}/why": _VIEWER,
    "GET /v1/reservations": _VIEWER,
    "GET /v1/reservations/{reservation}": _VIEWER,
    "GET /v1/reservations/{reservation}/why": _VIEWER,
    "GET /v1/series": _VIEWER,
    "GET /v1/series/{series}": _VIEWER,
    "GET /v1/why": _VIEWER,
    "GET /v1/reasons": _VIEWER,
    "GET /v1/records": _VIEWER,
    "GET /v1/rounds/{number}": _VIEWER,
    "GET /v1/changes": _VIEWER,
    "GET /v1/history": _VIEWER,
    "GET /v1/services": _VIEWER,
    "GET /v1/summary": _VIEWER,
    "GET /v1/config": _VIEWER,
    # What a user does, and what came of it.
    "POST /v1/jobs": _OWN,
    "POST /v1/routes": _OWN,
    "DELETE /v1/routes/{job}": _OWN,
    "PATCH /v1/jobs/{job}": _OWN,
    "DELETE /v1/jobs/{job}": _OWN,
    "POST /v1/jobs/{job}/rerun": _OWN,
    "GET /v1/jobs/{job}/logs": _OWN,
    "GET /v1/jobs/{job}/results": _OWN,
    "GET /v1/tasks/{job}/{stage}/{index}/logs": _OWN,
    "GET /v1/tasks/{job}/{stage}/{index}/results": _OWN,
    "POST /v1/reservations": _OWN,
    "PUT /v1/reservations/{reservation}": _OWN,
    "DELETE /v1/reservations/{reservation}": _OWN,
    "POST /v1/series": _OWN,
    "DELETE /v1/series/{series}": _OWN,
    # What keeps a cell running.
    "POST /v1/nodes/{node}/drain": _OPERATOR,
    "POST /v1/nodes/{node}/resume": _OPERATOR,
    "DELETE /v1/nodes/{node}": _OPERATOR,
    "POST /v1/rounds/{number}/abandon": _OPERATOR,
    "POST /v1/inputs/{topic}/{offset}/skip": _OPERATOR,
    "POST /v1/checkpoints": _OPERATOR,
    "POST /v1/what-if": _OPERATOR,
    "PUT /v1/config": Right("admin", tries="operator"),
    "GET /v1/tokens": _ADMIN,
    "POST /v1/tokens": _ADMIN,
    "DELETE /v1/tokens/{token}": _ADMIN,
}
"""By method and path of a route."""


def right_of(method: str, path: str) -> Right:
    """What a route needs. Raises KeyError for one that the table does not have."""
    return RIGHTS[f"{method} {path}"]
