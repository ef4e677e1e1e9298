"""PATCH and DELETE /v1/jobs/{job}: a live job is held, released, gets another priority or queue, or is cancelled."""

from typing import TYPE_CHECKING

from fastapi import Depends, FastAPI, Request
from fastapi.responses import Response

from schemas.edge.read import Malformed, read_input
from services.gateway.job_models import Job
from services.gateway.openapi import Asker, Responses, answer, problems
from services.gateway.problems import Problem, as_json, dumped, malformed
from services.gateway.reading import message_of

if TYPE_CHECKING:
    from services.gateway.api import Api

_CHANGED: Responses = {
    200: answer(Job, "the job as it is now"),
    202: answer(Job, "the log has not answered within 10 s"),
    **problems(404, 409, 413, 422),
}

_CANCELLED: Responses = {
    200: answer(Job, "the job has ended"),
    202: answer(Job, "the log has not said so within 10 s"),
    **problems(404, 409),
}


def add_changes(app: FastAPI, api: "Api") -> None:
    """Changes of live jobs."""
    ready = [Depends(api.is_ready)]

    @app.patch("/v1/jobs/{job}", tags=["jobs"], dependencies=ready, responses=_CHANGED)
    async def change_job(job: str, request: Request, asker: Asker = "") -> Response:
        """Holds a live job (`hold`: no task of it starts, what runs goes on), releases it (`hold` false), gives it
        another `priority`, or, while nothing of it runs, another `queue`. 409: the cell refuses it, or it has ended."""
        _check_live(api, job)
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

    @app.delete("/v1/jobs/{job}", tags=["jobs"], dependencies=ready, responses=_CANCELLED)
    async def cancel_job(job: str, asker: Asker = "") -> Response:
        """Cancels a job. 409: it had ended before."""
        _check_live(api, job)
        found = await api.send("jobs", dumped({"cancel": job}), asker)
        over = found.answered and await api.until(lambda view: job not in view.jobs)
        return as_json(api.job(job), 200 if over else 202)


def _check_live(api: "Api", job: str) -> None:
    """Raises Problem for a job that has ended, or that nobody knows."""
    before = api.job(job)
    if before["ended_ms"] is not None:
        raise Problem(409, "refused:ended", f'job "{job}" has ended: {before["state"]}', "job")
