"""PATCH /v1/jobs/{job}: a live job is held, released, or gets another priority or queue."""

from typing import TYPE_CHECKING

from fastapi import Depends, FastAPI, Request
from fastapi.responses import Response

from schemas.edge.read import Malformed, read_input
from services.gateway.job_models import Job
from services.gateway.openapi import Asker, Responses, answer, problems
from services.gateway.problems import Problem, as_json, malformed
from services.gateway.reading import message_of

if TYPE_CHECKING:
    from services.gateway.api import Api

_CHANGED: Responses = {
    200: answer(Job, "the job as it is now"),
    202: answer(Job, "the log has not answered within 10 s"),
    **problems(404, 409, 413, 422),
}


def add_changes(app: FastAPI, api: "Api") -> None:
    """Changes of live jobs."""
    ready = [Depends(api.is_ready)]

    @app.patch("/v1/jobs/{job}", tags=["jobs"], dependencies=ready, responses=_CHANGED)
    async def change_job(job: str, request: Request, asker: Asker = "") -> Response:
        """Holds a live job (`hold`: no task of it starts, what runs goes on), releases it (`hold` false), gives it
        another `priority`, or, while nothing of it runs, another `queue`. 409: the cell refuses it, or it has ended."""
        before = api.job(job)
        if before["ended_ms"] is not None:
            raise Problem(409, "refused:ended", f'job "{job}" has ended: {before["state"]}', "job")
        document = await api.document(request)
        if not isinstance(document, dict):
            raise malformed(Malformed("", 'has to be an object, like {"hold": true}'))
        if "change" in document:
            raise malformed(Malformed("change", "unknown field; the address names the job"))
        message = {"change": job, **document}
        try:
            read_input("jobs", message, "")
        except Malformed as fault:
            raise malformed(fault) from None
        found = await api.send("jobs", message_of(message), asker)
        return as_json(api.job(job), 200 if found.answered else 202)
