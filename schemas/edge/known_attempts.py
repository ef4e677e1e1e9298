"""The attempts that an agent names when it registers."""

from typing import Annotated, Literal

from pydantic import Field

from schemas.edge.base import (
    BATCH_MAX,
    TASKS_MAX,
    Amounts,
    DurationMs,
    Epoch,
    Input,
    Malformed,
    Name,
    Tasks,
    Whole,
)
from schemas.edge.task_checks import check_measured, check_range, check_run_ms, peak_of
from schemas.nodes import (
    KnownAttempt,
)
from schemas.quantities import QUANTITY_MAX
from schemas.tasks import Failure

DETAIL_MAX = 500  # Characters of an agent's own words that are kept; a fact is not refused for a long story.

EXIT_CODE_MAX = 2**31 - 1

KNOWN_PARTS_MAX = 1_000
"""Messages in which an agent may name the attempts that it still knows, before its registration."""

RunMs = Annotated[list[DurationMs], Field(max_length=TASKS_MAX, fail_fast=True)]

Measured = Annotated[list[Whole], Field(max_length=TASKS_MAX, fail_fast=True)]

Count = Tasks

First = Annotated[int, Field(ge=0, lt=TASKS_MAX)]

Attempt = Annotated[int, Field(ge=1, le=QUANTITY_MAX)]

ExitCode = Annotated[int, Field(ge=-EXIT_CODE_MAX, le=EXIT_CODE_MAX)]


class KnownAttemptInput(Input):
    """Attempts of tasks `first` .. `first + count - 1` of a stage that an agent still knows after a restart."""

    job: Name
    stage: Name
    first: First
    count: Count
    attempt: Attempt
    state: Literal["running", "succeeded", "failed"]
    run_ms: RunMs = []
    reason: Failure | None = None
    exit_code: ExitCode | None = None
    detail: str = ""
    peak: Amounts = {}
    peak_mib: Measured = []
    cpu_ms: Measured = []


class KnownMessage(Input):
    """Attempts that an agent still knows and that its registration has no room for: message `part` (from 0) of those
    that precede the registration of `node` under `epoch`.
    """

    node: Name
    epoch: Epoch
    part: Annotated[int, Field(ge=0, lt=KNOWN_PARTS_MAX)]
    attempts: Annotated[list[KnownAttemptInput], Field(max_length=BATCH_MAX, fail_fast=True)]


def known_attempt(attempt: KnownAttemptInput, parent: str) -> KnownAttempt:
    check_range(attempt.first, attempt.count, parent)
    check_run_ms(attempt.run_ms, attempt.count, parent, needed=attempt.state == "succeeded")
    check_measured(attempt, parent)
    if (attempt.state == "failed") != (attempt.reason is not None):
        raise Malformed(f"{parent}.reason", "belongs to an attempt that failed, and only to one")
    return KnownAttempt(
        job=attempt.job,
        stage=attempt.stage,
        first=attempt.first,
        count=attempt.count,
        attempt=attempt.attempt,
        state=attempt.state,
        run_ms=attempt.run_ms,
        reason=attempt.reason,
        exit_code=attempt.exit_code,
        detail=attempt.detail[:DETAIL_MAX],
        peak=peak_of(attempt.peak, parent),
        peak_mib=attempt.peak_mib,
        cpu_ms=attempt.cpu_ms,
    )
