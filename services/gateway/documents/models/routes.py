"""Answers about jobs that name no cell."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from services.gateway.documents.models.cell import Count

RouteState = Literal["waiting", "sent", "taken", "moving", "ended", "declined"]


class CellProblemRow(BaseModel):
    """Why a cell does not take the job. `field`: of the spec."""

    cell: str
    reason: str
    field: str
    detail: str


class CellLoadRow(BaseModel):
    """How full a cell would have been with the job, in millionths: against all that it has, and against the part of the
    job's queue; the smaller counts."""

    cell: str
    cell_ppm: Count
    queue_ppm: Count


class RouteStatus(BaseModel):
    """A job that came by way of the router. `cell`: the one that has it, or had it last; null: none yet. `to`: where it
    moves to. `why`: why it went there; `loads`: of the cells that could have run it then."""

    job: str
    state: RouteState
    cell: str | None
    to: str | None
    user: str
    queue: str
    number: Annotated[int, Field(ge=0, description="how often it was sent to a cell")]
    why: str | None
    outcome: str | None
    problems: list[CellProblemRow]
    loads: list[CellLoadRow]
    warnings: Annotated[list[str] | None, Field(description="of a submission")] = None
