"""The gateway's answer about the cell over time, as a model: /openapi.json is made from it."""

from typing import Annotated

from pydantic import BaseModel, Field

from services.gateway.documents.models.cell import At, Count, Ms

Ppb = Annotated[int, Field(ge=0, description="in 10^-9 of the cell")]


class ResourceSeries(BaseModel):
    """Amounts of a resource, a number for each time. `unit`: what 1 stands for, as a quantity. `capacity`: of nodes
    that were not lost; `held`: by tasks there; `promised`: to reservations, used or not."""

    unit: Annotated[str, Field(examples=["1m", "1Mi"])]
    capacity: list[Count]
    held: list[Count]
    promised: list[Count]


class QueueSeries(BaseModel):
    """Shares of a queue right below the root, a number for each time. `held`: null: not kept, since others held more;
    `entitled`: it, or those below it together; null: it asked for nothing. `guaranteed`: by its weight among the
    siblings that ask, or by its guarantee; null: it had no share of its own, or it is not kept."""

    held: list[Ppb | None]
    entitled: list[Ppb | None]
    guaranteed: list[Ppb | None]


class History(BaseModel):
    """The cell as of record `seq`, at log time `time_ms`, over the time before. `times_ms`: multiples of `interval_ms`,
    and the moment itself where it lies in the span; `kept_ms`: how far apart the times are that are kept.
    `waiting`: tasks; `running`: attempts that hold room; `jobs`: those that had not ended. `queues_left_out`: how many
    more held something, or were entitled to it, at a time."""

    seq: Count
    time_ms: Ms
    interval_ms: Count
    kept_ms: Count
    times_ms: list[Ms]
    resources: dict[str, ResourceSeries]
    jobs: list[Count]
    waiting: list[Count]
    running: list[Count]
    queues: dict[str, QueueSeries]
    queues_left_out: Count
    at: At = None
