"""The route of what is free, and for whom."""

from typing import TYPE_CHECKING

from fastapi import Depends, FastAPI
from fastapi.responses import Response

from services.gateway.documents import Document
from services.gateway.documents.models.room import Room
from services.gateway.http.api import as_of
from services.gateway.http.openapi import At, Behind, Responses, answer
from services.gateway.http.problems import as_json
from services.gateway.view.state import State
from services.gateway.why.fitting import fitting_document

if TYPE_CHECKING:
    from services.gateway.http.api import Api

_ROOM: Responses = {200: answer(Room, "free room")}


def add_room(app: FastAPI, api: "Api") -> None:
    """How much of what is free the tasks that wait could use."""

    @app.get("/v1/room", tags=["cluster"], dependencies=[Depends(api.is_ready)], responses=_ROOM)
    async def get_room(at: At = None, behind: Behind = None) -> Response:
        """What is free of the nodes that take tasks, and for how many of the tasks that wait there is room: by class of
        tasks alike, those of most tasks first. `in_one` more than `fits`: the rest is free in pieces too small."""

        async def make(state: State) -> Document:
            return fitting_document(state)

        if at is None:
            return await api.shared_answer("room", behind, make)
        view = await api.view(at)
        return as_json(as_of(fitting_document(view), view, at))
