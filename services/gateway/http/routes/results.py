"""Routes of what tasks have left: lists for a job, a stage or a task, and files."""

from typing import Annotated

from fastapi import Depends, FastAPI, Query
from fastapi.responses import Response

from largesse.task_output import ATTEMPT, END, NUMBER_MAX
from largesse.task_results import FilePiece, WantedResults, names_in
from services.gateway.http.agents.output import check_task
from services.gateway.http.agents.results import contents, listed_of_job, result_rows
from services.gateway.http.agents.stage_logs import JsonLines, node_in
from services.gateway.http.api import Api
from services.gateway.http.callers import Reader
from services.gateway.http.openapi import Responses, answer, problems
from services.gateway.http.problems import Problem

OCTETS = "application/octet-stream"

_LIST: Responses = {
    200: answer(
        None,
        "lines of JSON. The first one of a task has `stage`, `index`, `attempt` and `left_out` (how much is no file,"
        " folder or link, or has a name that cannot be sent); each further one an entry: `path`, `kind` (`file`,"
        " `folder`, `link`), `changed_ms`, of a file `size` and `executable`, of a link `target`. `problem`: why the"
        " task's results cannot be listed",
    ),
    **problems(404, 422),
}
_FILE: Responses = {
    200: answer(
        None,
        "the file",
        Largesse_Output_Attempt="the number of the attempt",
        Largesse_Output_End="the size of the file in bytes",
    ),
    **problems(404, 422),
}


class Octets(Response):
    """Tells FastAPI the media type of a route."""

    media_type = OCTETS


def add_results(app: FastAPI, api: Api) -> None:
    """Adds these routes."""
    ready = [Depends(api.is_ready)]

    @app.get("/v1/jobs/{job}/results", tags=["jobs"], dependencies=ready, response_class=JsonLines, responses=_LIST)
    async def get_job_results(
        job: str,
        reader: Reader,
        stage: str | None = None,
        index: Annotated[int | None, Query(ge=0, le=NUMBER_MAX)] = None,
    ) -> Response:
        """What tasks of a job, of one stage, or one task, have left in their results folders: of each the last attempt,
        in order. Tasks that have not started, or of which nothing is kept, are left out."""
        api.job(job)
        api.check_job(reader, job)
        wanted = listed_of_job(api.follower.state, job, stage, index)
        with api.stage_outputs.place() as place:
            rows = result_rows(api.read_results, wanted, node_in(lambda: api.follower.state))
            return place.streaming(api.door.lasting(reader, "submitter", rows), media_type=JsonLines.media_type)

    @app.get(
        "/v1/tasks/{job}/{stage}/{index}/results",
        tags=["jobs"],
        dependencies=ready,
        response_class=Octets,
        responses=_FILE,
    )
    async def get_task_result(
        job: str,
        stage: str,
        index: int,
        reader: Reader,
        file: Annotated[str, Query(description="its path, as the list has it")],
        attempt: Annotated[int | None, Query(ge=1, le=NUMBER_MAX)] = None,
        offset: Annotated[int, Query(ge=0, le=NUMBER_MAX)] = 0,
    ) -> Response:
        """A file that a task has left, from a byte on. Without `attempt` the last one. The answer is as long as the
        file was when it began; where the connection breaks off before, ask again from there on."""
        api.job(job)
        api.check_job(reader, job)
        wanted = WantedResults(job, stage, index, attempt, file=file, offset=offset)
        check_task(api.follower.state, wanted)
        if names_in(file) is None:
            raise Problem(422, "malformed", "file: has to be a path as the list has it, like out/part.csv", "file")
        with api.outputs.place() as place:
            first = await api.read_results(wanted)
            if not isinstance(first, FilePiece):
                text = f"there is no such file of {job}/{stage}/{index}: it was not left there, or was removed"
                raise Problem(404, "no_results", text, "file", live=job in api.follower.state.jobs)
            headers = {ATTEMPT: str(first.attempt), END: str(first.size)}
            headers |= {"Content-Length": str(first.size - first.start)}
            # A browser would else show what a task wrote as a page of the gateway.
            headers |= {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
            pieces = api.door.lasting(reader, "submitter", contents(api.read_results, wanted, first))
            return place.streaming(pieces, media_type=OCTETS, headers=headers)
