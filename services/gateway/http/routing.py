"""Requests that name no cell, where a router chooses one: a job is submitted to it, and found where it has sent it."""

from starlette.types import Scope

from services.gateway.http.cell_choice import Unnamed
from services.gateway.routed import Routed

JOBS, ROUTES, OF_JOBS = "/v1/jobs", "/v1/routes", ("/v1/jobs/", "/v1/tasks/")
DRY = b"dry_run="


def by_routes(routed: Routed) -> Unnamed:
    """Where to: by what the router's log says."""

    def unnamed(scope: Scope) -> tuple[str, str]:
        method, path = scope["method"], scope["path"]
        if method == "POST" and path == JOBS and DRY not in scope.get("query_string", b""):
            return "", ROUTES
        if not path.startswith(OF_JOBS):
            return "", path
        job, _, rest = path.split("/", 3)[3].partition("/")
        row = routed.rows.get(job)
        if method == "DELETE" and not rest and row is not None and row.state not in ("ended", "declined"):
            return "", f"{ROUTES}/{job}"
        if method == "GET" and not rest and row is not None and not routed.cell_of(job):
            return "", f"{ROUTES}/{job}"
        return routed.cell_of(job), path

    return unnamed
