"""Answers to the question why, as models; see cell.py."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from schemas.reasons import Reason
from services.gateway.documents import Document
from services.gateway.documents.models.cell import Count, Ms


class At(BaseModel):
    """The record up to which the log was read, and its time."""

    seq: int
    time: Ms


class ReasonRow(BaseModel):
    """One reason: in words, the numbers behind it, and what would remove it."""

    reason: Reason
    text: str
    numbers: Document
    unblocks: list[str]


class Accuracy(BaseModel):
    """Of the last jobs, at most 100, that waited: what was told of their starts when their first round was over."""

    jobs: Count
    error_ms: Annotated[Count, Field(description="half of those predictions were off by this at the most")]
    error_permille: Annotated[Count, Field(description="the same in thousandths of what was waited from then on")]
    inside: Annotated[Count, Field(description="how many jobs started between `earliest_ms` and `latest_ms`")]


class Start(BaseModel):
    """When the next task starts, by what is expected of those that run; null: not known."""

    earliest_ms: Ms
    likely_ms: Ms | None
    latest_ms: Ms | None
    accuracy: Accuracy | None


class EndedBy(BaseModel):
    """The record that ended a job."""

    seq: int
    text: str


class Why(BaseModel):
    """Why something is as it is: the main reason first."""

    id: str
    kind: Literal["job", "stage", "task", "reservation", "queue", "node"]
    at: At
    state: str
    reasons: list[ReasonRow]
    start: Start | None
    waited: Annotated[
        dict[str, Count] | None,
        Field(description="of a job: what its time went to, by reason, in ms; null of everything else"),
    ]
    waited_beside: Annotated[
        dict[str, Count] | None,
        Field(description="of a job: what further tasks waited for while some ran; no part of `waited`"),
    ] = None
    ended_by: EndedBy | None = None


class ReasonEntry(BaseModel):
    """A word of the vocabulary. `pending`: tasks may wait for it."""

    reason: Reason
    means: str
    action: str
    pending: bool


class Reasons(BaseModel):
    reasons: list[ReasonEntry]
