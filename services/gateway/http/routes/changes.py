"""PATCH and DELETE /v1/jobs/{job}: a live job is held, released, gets another priority or queue, or is cancelled."""

from typing import TYPE_CHECKING

from fastapi import Depends, FastAPI, Request
from fastapi.responses import Response

from schemas import JobChanged
from schemas.edge.job_document import job_document
from schemas.edge.jobs import JobRerunRequest
from schemas.edge.read import Malformed, read_input
from schemas.edge.validated import validated
from services.gateway.access.callers import Caller
from services.gateway.documents.models.jobs import Job, Submitted
from services.gateway.documents.specs import kept_spec
from services.gateway.http.callers import Asker, check_queue_of
from services.gateway.http.openapi import Responses, answer, problems
from services.gateway.http.problems import Problem, as_json, dumped, malformed
from services.gateway.http.reading import message_of

if TYPE_CHECKING:
    from services.gateway.http.api import Api

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

_RERUN: Responses = {
    201: answer(Submitted, "it runs again"),
    202: answer(Submitted, "the log has not answered within 10 s"),
    **problems(404, 409, 413, 422),
}


def add_changes(app: FastAPI, api: "Api") -> None:
    """Changes of live jobs, and further runs of others."""
    ready = [Depends(api.is_ready)]

    @app.patch("/v1/jobs/{job}", tags=["jobs"], dependencies=ready, responses=_CHANGED)
    async def change_job(job: str, request: Request, asker: Asker) -> Response:
        """Holds a live job (`hold`: no task of it starts, what runs goes on), releases it (`hold` false), gives it
        another `priority`, or, while nothing of it runs, another `queue`. 409: the cell refuses it, or it has ended."""
        _check_live(api, job, asker)
        document = await api.document(request)
        if not isinstance(document, dict):
            raise malformed(Malformed("", 'has to be an object, like {"hold": true}'))
        if "change" in document:
            raise malformed(Malformed("change", "unknown field; the address names the job"))
        message = {"change": job, **document}
        try:
            changed = read_input("jobs", message, "")
        except Malformed as fault:
            raise malformed(fault) from None
        if isinstance(changed, JobChanged) and changed.queue is not None:
            check_queue_of(asker, changed.queue)
        found = await api.send("jobs", message_of(message), asker.user)
        return as_json(api.job(job), 200 if found.answered else 202)

    @app.delete("/v1/jobs/{job}", tags=["jobs"], dependencies=ready, responses=_CANCELLED)
    async def cancel_job(job: str, asker: Asker) -> Response:
        """Cancels a job. 409: it had ended before."""
        _check_live(api, job, asker)
        found = await api.send("jobs", dumped({"cancel": job}), asker.user)
        over = found.answered and await api.until(lambda view: job not in view.jobs)
        return as_json(api.job(job), 200 if over else 202)

    @app.post("/v1/jobs/{job}/rerun", tags=["jobs"], status_code=201, dependencies=ready, responses=_RERUN)
    async def rerun_job(job: str, request: Request, asker: Asker) -> Response:
        """Runs a job that has ended again, as it was submitted: all of it, or `from_stage` and what comes after that,
        while the other stages stay as they succeeded. 409: it has not ended, or the cell refuses it."""
        before = api.job(job)
        api.check_job(asker, job)
        document = await api.document(request)
        try:
            asked = validated(JobRerunRequest, document)
            spec = kept_spec(api.follower.state, job)
            if before["ended_ms"] is None:
                raise Problem(409, "refused:live", f'job "{job}" has not ended: cancel it first, or wait', "job")
            if spec is None:
                text = f'what job "{job}" was submitted with is not kept here: submit it again with "rerun": true'
                raise Problem(409, "refused:forgotten", text, "job")
            message = {**job_document(spec), "rerun": True, "from_stage": asked.from_stage}
            read_input("jobs", message, "")
        except Malformed as fault:
            raise malformed(fault) from None
        found = await api.send("jobs", message_of(message), asker.user)
        state = "waiting" if found.answered else "unanswered"
        return as_json({"job": job, "state": state, "warnings": []}, 201 if found.answered else 202)


def _check_live(api: "Api", job: str, asker: Caller) -> None:
    """Raises Problem for a job that has ended, or that nobody knows, or that is not for the one who asks."""
    before = api.job(job)
    api.check_job(asker, job)
    if before["ended_ms"] is not None:
        raise Problem(409, "refused:ended", f'job "{job}" has ended: {before["state"]}', "job")
