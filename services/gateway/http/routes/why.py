"""Routes that tell why something is as it is."""

from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, FastAPI, Query
from fastapi.responses import Response

from schemas.reasons import reasons_document
from services.gateway.documents.models.why import Reasons, Why
from services.gateway.http.openapi import At, answer, problems
from services.gateway.http.problems import Problem, as_json
from services.gateway.why.find import Kind, UnknownId, why_document

if TYPE_CHECKING:
    from services.gateway.http.api import Api

_SAID = {200: answer(Why, "the main reason first"), **problems(404)}
_UNKNOWN: dict[Kind | None, str] = {
    "job": "unknown_job",
    "reservation": "unknown_reservation",
    "queue": "unknown_queue",
    "node": "unknown_node",
}


def add_why(app: FastAPI, api: "Api") -> None:
    """Why jobs wait, run or ended, and why reservations, queues and nodes are as they are."""
    ready = [Depends(api.is_ready)]

    async def said(name: str, kind: Kind | None, at: str | None) -> Response:
        view = await api.view(at)
        try:
            return as_json(why_document(view, name, kind))
        except UnknownId as fault:
            raise Problem(404, _UNKNOWN.get(kind, "unknown_id"), str(fault)) from None

    @app.get("/v1/why", tags=["why"], dependencies=ready, responses=_SAID)
    async def get_why(
        of: Annotated[str, Query(alias="id", description="JOB[/STAGE[/INDEX]], or the name of something else")],
        kind: Kind | None = None,
        at: At = None,
    ) -> Response:
        """Why something is as it is. Without `kind` a name is looked for among jobs, reservations, queues and nodes."""
        return await said(of, kind, at)

    @app.get("/v1/reasons", tags=["why"], responses={200: answer(Reasons, "every word")})
    async def get_reasons() -> Response:
        """The vocabulary of reasons: what each means, and what helps."""
        return as_json(reasons_document())

    @app.get("/v1/jobs/{job}/why", tags=["why"], dependencies=ready, responses=_SAID)
    async def why_job(
        job: str, stage: str = "", index: Annotated[int | None, Query(ge=0)] = None, at: At = None
    ) -> Response:
        """Why a job waits, runs or ended as it did; or one `stage` of it, or the task `index` of that."""
        rest = [] if not stage else [stage] if index is None else [stage, str(index)]
        return await said("/".join([job, *rest]), "job", at)

    @app.get("/v1/reservations/{reservation}/why", tags=["why"], dependencies=ready, responses=_SAID)
    async def why_reservation(reservation: str, at: At = None) -> Response:
        """Why a reservation is as it is."""
        return await said(reservation, "reservation", at)

    @app.get("/v1/nodes/{node}/why", tags=["why"], dependencies=ready, responses=_SAID)
    async def why_node(node: str, at: At = None) -> Response:
        """What runs on a node, and why nothing new does."""
        return await said(node, "node", at)

    @app.get("/v1/queues/{queue:path}/why", tags=["why"], dependencies=ready, responses=_SAID)
    async def why_queue(queue: str, at: At = None) -> Response:
        """What a queue holds and is due, and why it has more or less than each sibling; `root` is the cell."""
        return await said(queue, "queue", at)
