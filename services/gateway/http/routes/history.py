"""The route of the cell's history."""

from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, FastAPI, Query
from fastapi.responses import Response

from largesse.task_output import NUMBER_MAX
from services.gateway.documents.history import history_document
from services.gateway.documents.models.history import History
from services.gateway.http.api import as_of
from services.gateway.http.openapi import At, Responses, answer, problems
from services.gateway.http.problems import as_json

if TYPE_CHECKING:
    from services.gateway.http.api import Api

POINTS_MAX = 1_000
POINTS_DEFAULT = 240

_HISTORY: Responses = {200: answer(History, "the cell over time"), **problems(422)}


def add_history(app: FastAPI, api: "Api") -> None:
    """How the cell was."""

    @app.get("/v1/history", tags=["cluster"], dependencies=[Depends(api.is_ready)], responses=_HISTORY)
    async def get_history(
        from_ms: Annotated[int, Query(ge=0, le=NUMBER_MAX, description="by default where the log begins")] = 0,
        to_ms: Annotated[int, Query(ge=0, le=NUMBER_MAX, description="by default now, in log time")] = NUMBER_MAX,
        points: Annotated[int, Query(ge=2, le=POINTS_MAX)] = POINTS_DEFAULT,
        at: At = None,
    ) -> Response:
        """Series of the cell over log time, `points` times of a span at most: resources, tasks, and queues right below
        the root, those that held most. Each number is what the other documents said at that time. It is kept for 720
        times of the whole log at most: each minute at first, then each second one, each fourth, and so on."""
        view = await api.view(at)
        return as_json(as_of(history_document(view, from_ms, to_ms, points), view, at))
