"""Answers about the config of a cell as models; see cell.py."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from schemas.edge.config import Knobs
from schemas.policy import KnobValue
from services.gateway.documents.models.cell import At, Quantities, QueueLimits, Share


class QueueConfig(BaseModel):
    """A queue as `PUT /v1/config` takes it back. What it does not set is left out."""

    name: str
    weight: float = 1
    children: list["QueueConfig"] = []
    policy: str | None = None
    guaranteed: Quantities | None = None
    max: Quantities | None = None
    running_jobs_max: int | None = None
    user_jobs_max: int | None = None
    user_running_max: int | None = None
    submitters: list[str] | None = None


class Config(BaseModel):
    """Knobs and queue tree in force; `queues` is null where there is no tree."""

    set: Knobs
    queues: QueueConfig | None
    at: At = None


class ConfigApplied(Config):
    """`notes`: what the cell takes and yet may not be meant."""

    changed: bool
    warnings: list[str]
    notes: list[str]


class KnobChange(BaseModel):
    before: KnobValue
    after: KnobValue


class QueueSide(BaseModel):
    """A queue before or after a change."""

    weight: float
    policy: str | None
    limits: QueueLimits
    guaranteed: Share | None
    fair: Share | None
    allocated: Share | None
    lent: Share | None
    borrowed: Share | None


class QueueChange(BaseModel):
    """`set`: its own settings change; `moved`: only its share does."""

    queue: str
    change: Literal["new", "gone", "set", "moved"]
    before: QueueSide | None
    after: QueueSide | None


class DryRun(BaseModel):
    """What a config would change."""

    dry_run: Literal[True]
    changed: bool
    set: dict[str, KnobChange]
    queues: list[QueueChange]
    notes: list[str]
    warnings: list[str]
    replay: Annotated[
        dict[str, object] | None,
        Field(description="with `replay_ms`: both worlds side by side, as the answer of `/v1/what-if`"),
    ] = None
