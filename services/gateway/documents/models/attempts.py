"""Answers of the gateway about attempts, as models: /openapi.json is made from them."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from schemas.tasks import Failure
from services.gateway.documents.models.cell import At, Count, Ms


class AttemptRow(BaseModel):
    """One attempt of a task. `granted_ms`: from when on it held room; `start_ms`: when it began; null: it has not, or,
    of attempts on a node, before the log was looked at. `outcome`: of one that has ended `succeeded`, or why it did."""

    job: str
    stage: str
    index: Count
    attempt: Count
    node: str
    granted_ms: Ms | None
    start_ms: Ms | None
    end_ms: Annotated[Ms | None, Field(description="null: it has not ended")]
    outcome: Literal["starting", "running", "succeeded"] | Failure


class JobAttempts(BaseModel):
    """As of record `seq`, at log time `time_ms`. `truncated`: some are missing."""

    job: str
    seq: Count
    time_ms: Ms
    attempts: list[AttemptRow]
    truncated: bool
    at: At = None


class NodeAttempts(BaseModel):
    """Those that held room at or after `since_ms`, as of record `seq`: the moment that was asked for, or, where that
    lies too far back, a later one. `truncated`: some are missing."""

    node: str
    since_ms: Ms
    seq: Count
    time_ms: Ms
    attempts: list[AttemptRow]
    truncated: bool
    at: At = None
