"""The page over results that were computed elsewhere: of a comparison of presets, or of a what-if. No cell, no log."""

from collections.abc import Mapping

from fastapi import FastAPI
from fastapi.responses import Response

from largesse.hosts import Hosts
from services.gateway.documents import Document
from services.gateway.http.front_page import add_front_page
from services.gateway.http.guard import Budget, Guard
from services.gateway.http.problems import as_json, install

PARTS = ("presets", "answers", "decided")
"""What results have, one of them: runs of presets, what-ifs by name, or one what-if."""


def are_results(document: object) -> bool:
    """Whether a document is what `largesse compare --json`, `replay --what-if --json` or `whatif --json` prints."""
    return isinstance(document, Mapping) and any(isinstance(document.get(part), Mapping) for part in PARTS)


def results_app(name: str, document: Document, hosts: Hosts) -> FastAPI:
    """Serves the page, and the results under `/v1/results`."""
    app = FastAPI(title="Largesse", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_middleware(Guard, hosts=hosts, budget=Budget())
    install(app)
    add_front_page(app)

    @app.get("/livez")
    async def get_livez() -> Response:
        return as_json({"status": "live"})

    @app.get("/readyz")
    async def get_readyz() -> Response:
        ready = {"status": "ready", "cell": name, "seq": 0, "round": 0, "time": 0, "silent_ms": 0}
        return as_json({**ready, "recorded": True, "results": True})

    @app.get("/v1/session")
    async def get_session() -> Response:
        return as_json({"open": True, "user": None, "role": "viewer", "roles": ["viewer"], "token": None})

    @app.get("/v1/cells")
    async def get_cells() -> Response:
        return as_json({"cells": [{"cell": name, "ready": True}]})

    @app.get("/v1/results")
    async def get_results() -> Response:
        return as_json({"name": name, "document": document})

    return app
