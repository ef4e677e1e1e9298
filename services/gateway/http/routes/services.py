"""The route of the services that serve the cell."""

from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.responses import Response

from services.gateway.documents.models.cell import Services
from services.gateway.http.openapi import Responses, answer
from services.gateway.http.problems import as_json

if TYPE_CHECKING:
    from services.gateway.http.api import Api

_SERVICES: Responses = {200: answer(Services, "the services")}


def add_services(app: FastAPI, api: "Api") -> None:
    """Who takes part in the cell."""

    @app.get("/v1/services", tags=["cluster"], responses=_SERVICES)
    async def list_services() -> Response:
        """The services that answer rounds, with the instances of each that take part now, as Kafka tells it: those that
        serve a shard, and those that stand by. An instance takes part once it has caught up with the log; one that is
        gone is told for some 10 s more. Of a cell in one process there is nothing to tell (`alone`)."""
        return as_json(await api.instances.document())
