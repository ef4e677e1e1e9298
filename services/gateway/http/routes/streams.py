"""GET /v1/changes: what changes in the cell, as a stream of server-sent events."""

from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, FastAPI, Header, Query
from fastapi.responses import Response

from largesse.task_output import NUMBER_MAX
from services.gateway.http.callers import Reader
from services.gateway.http.change_streams import GAP_MS, GAP_MS_MAX, GAP_MS_MIN
from services.gateway.http.openapi import Responses, answer, problems
from services.gateway.http.streams import EventStream

if TYPE_CHECKING:
    from services.gateway.http.api import Api

SEQ_CHARACTERS_MAX = 20
EVENTS_MAX = 1_000_000

_CHANGES: Responses = {
    200: answer(None, "server-sent events; `data` of those of type `changes` is a Changes"),
    **problems(422),
}


def add_change_stream(app: FastAPI, api: "Api") -> None:
    """The stream of changes."""

    @app.get(
        "/v1/changes",
        tags=["cluster"],
        dependencies=[Depends(api.is_ready)],
        response_class=EventStream,
        responses=_CHANGES,
    )
    async def follow_changes(
        reader: Reader,
        after: Annotated[
            int | None, Query(ge=0, le=NUMBER_MAX, description="the record up to which all is known already")
        ] = None,
        min_interval_ms: Annotated[
            int, Query(ge=GAP_MS_MIN, le=GAP_MS_MAX, description="least time between two events")
        ] = GAP_MS,
        limit: Annotated[int | None, Query(ge=1, le=EVENTS_MAX, description="ends after this number of events")] = None,
        last: Annotated[str, Header(alias="Last-Event-ID", max_length=SEQ_CHARACTERS_MAX)] = "",
    ) -> Response:
        """What has changed since the last event, by kind and name, as long as the client stays. With `Last-Event-ID`
        (or `after`, a record's seq) it goes on there; what lies too far back counts as changed altogether (`all`)."""
        if last.isascii() and last.isdecimal():
            after = int(last)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        with api.change_places.place() as place:
            events = api.door.lasting(reader, "viewer", api.changes.events(after, min_interval_ms / 1_000, limit))
            return place.streaming(events, media_type=EventStream.media_type, headers=headers)
