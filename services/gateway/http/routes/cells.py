"""The route of the cells that this gateway serves."""

from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.responses import Response

from services.gateway.documents.models.cell import Cells
from services.gateway.http.openapi import Responses, answer
from services.gateway.http.problems import as_json

if TYPE_CHECKING:
    from services.gateway.http.api import Api

_CELLS: Responses = {200: answer(Cells, "the cells")}


def add_cells(app: FastAPI, api: "Api") -> None:
    """Which cells there are."""

    @app.get("/v1/cells", tags=["cluster"], responses=_CELLS)
    async def list_cells() -> Response:
        """The cells that this gateway serves, in the order of their names. A request is for `cell`, unless it chooses
        another by the header `Largesse-Cell: NAME`, or by its path: `/cells/NAME/v1/jobs` for `/v1/jobs`."""
        router = None if api.routed is None else await api.routed.standing()
        return as_json({"cell": api.follower.cell, "cells": api.cells(), "router": router})
