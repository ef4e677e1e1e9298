"""The route that says what the cell would have done otherwise."""

from typing import TYPE_CHECKING

from fastapi import Depends, FastAPI, Request
from fastapi.responses import Response

from schemas.edge.read import Malformed
from schemas.edge.what_ifs import read_what_if
from services.gateway.http.agents.stage_logs import JsonLines
from services.gateway.http.callers import Reader
from services.gateway.http.dry_runs.what_ifs import lines, location_of
from services.gateway.http.openapi import Responses, answer, problems
from services.gateway.http.problems import malformed

if TYPE_CHECKING:
    from services.gateway.http.api import Api

_ANSWERED: Responses = {
    200: answer(
        None,
        "lines of JSON: `progress` (`done` of `of` records, null: unknown) again and again, and at the end `answer`, as"
        " `largesse replay LOG --what-if --json` prints it, or `problem`, which says why there is none",
    ),
    **problems(413, 422),
}


def add_what_ifs(app: FastAPI, api: "Api") -> None:
    """What-ifs over the log of the cell."""
    ready = [Depends(api.is_ready)]

    @app.post("/v1/what-if", tags=["why"], dependencies=ready, response_class=JsonLines, responses=_ANSWERED)
    async def what_if(request: Request, reader: Reader) -> Response:
        """What the cell would have done, had something been different: its log decided again, in a process of its own,
        one at a time. Closing the connection ends it."""
        document = await api.document(request)
        try:
            read_what_if(document)
        except Malformed as fault:
            raise malformed(fault) from None
        location_of(api.follower, api.log)  # Before the answer begins.
        with api.what_ifs.place() as place:
            answered = api.door.lasting(reader, "operator", lines(api.follower, document, api.log))
            return place.streaming(answered, media_type=JsonLines.media_type)
