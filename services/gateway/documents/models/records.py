"""Answers of the gateway about its log, as models: /openapi.json is made from them."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from services.gateway.documents.models.cell import Count, Ms


class LogRecord(BaseModel):
    """`line`: what it says, in words. `record`: as it was written, where that was asked for."""

    seq: Count
    time_ms: Ms
    round: Count
    type: str
    line: str
    record: dict[str, object] | None = None


class LogRecords(BaseModel):
    """`next`: at which record the next page begins; null: there is none. `end`: the last record of the log."""

    records: list[LogRecord]
    next: Count | None
    end: Count


class RoundDecision(BaseModel):
    """What a service decided, as the closing names it; `record` is null where it is kept no longer."""

    topic: str
    shard: Count
    of: Count
    hash: str
    record: dict[str, object] | None


class Round(BaseModel):
    """`records`: from the opening to the end; these two have the `record` as it was written."""

    round: Count
    state: Literal["open", "closed", "abandoned"]
    opened_ms: Ms
    ended_ms: Annotated[Ms | None, Field(description="null: it is open")]
    records: list[LogRecord]
    decisions: list[RoundDecision]
