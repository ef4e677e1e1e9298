"""The page at `/`: which cell answers here, and where to go on. No scripts, and nothing from elsewhere."""

from html import escape
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response

from largesse.release import VERSION

if TYPE_CHECKING:
    from services.gateway.http.api import Api

LINKS = (
    ("/v1/jobs", "jobs"),
    ("/v1/queues", "queues with their shares"),
    ("/v1/nodes", "nodes"),
    ("/v1/classes", "classes of jobs"),
    ("/v1/reservations", "reservations"),
    ("/v1/series", "reservations that recur"),
    ("/v1/ledger", "what queues and jobs have given away and received"),
    ("/v1/config", "queues and policy in force"),
    ("/livez", "health: whether the process answers"),
    ("/readyz", "health: whether the log has been read"),
    ("/metrics", "metrics for Prometheus"),
    ("/openapi.json", "every request and answer (OpenAPI 3.1)"),
)
"""Addresses that a browser can follow, and what is there."""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Largesse: cell {cell}</title></head>
<body>
<h1>Largesse: cell {cell}</h1>
<p>This is the HTTP API of the cell, version {version}. The command <code>largesse</code> uses it, and
<code>largesse --help</code> lists its commands. The documentation is in the folder <code>docs</code> of the project;
its page on this API is <code>docs/http.md</code>.</p>
<ul>
{links}
</ul>
</body>
</html>
"""


def add_front_page(app: FastAPI, api: "Api") -> None:
    """Adds the page. It answers before the log has been read, too."""
    links = "\n".join(f'<li><a href="{path}">{path}</a>: {about}</li>' for path, about in LINKS)
    page = _PAGE.format(cell=escape(api.follower.cell), version=escape(VERSION), links=links)

    async def get_front_page(_: Request) -> Response:
        return HTMLResponse(page)

    app.add_route("/", get_front_page, methods=["GET"])  # For people: no part of the API that OpenAPI describes.
