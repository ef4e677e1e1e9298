"""The tasks topic: what agents say of attempts, in batches of one kind."""

from typing import Annotated

from pydantic import Field

from schemas.edge.base import BATCH_MAX, Amounts, Epoch, Input, Name, author_of, check_one_form
from schemas.edge.known_attempts import DETAIL_MAX, Attempt, Count, ExitCode, First, Measured, RunMs
from schemas.edge.task_checks import check_measured, check_range, check_run_ms, check_tasks, peak_of
from schemas.edge.validated import validated
from schemas.tasks import Failure, TaskEnd, TaskFailed, TaskFailure, TaskFinished, TaskRange, TaskStarted


class StartedItem(Input):
    """Attempts of tasks `first` .. `first + count - 1` of a stage, all on one node under one agent epoch."""

    job: Name
    stage: Name
    first: First
    count: Count
    attempt: Attempt
    node: Name
    epoch: Epoch


class FinishedItem(StartedItem):
    """Attempts that succeeded, with how long they ran and the most that any of them used."""

    run_ms: RunMs
    peak: Amounts = {}
    peak_mib: Measured = []
    cpu_ms: Measured = []


class FailedItem(StartedItem):
    """Attempts that ended without success, and why."""

    reason: Failure
    exit_code: ExitCode | None = None
    detail: str = ""
    run_ms: RunMs = []
    peak: Amounts = {}
    peak_mib: Measured = []
    cpu_ms: Measured = []


class StartedBatch(Input):
    """Attempts that began to run."""

    items: Annotated[list[StartedItem], Field(min_length=1, max_length=BATCH_MAX, fail_fast=True)]


class FinishedBatch(Input):
    """Attempts that succeeded."""

    items: Annotated[list[FinishedItem], Field(min_length=1, max_length=BATCH_MAX, fail_fast=True)]


class FailedBatch(Input):
    """Attempts that ended without success."""

    items: Annotated[list[FailedItem], Field(min_length=1, max_length=BATCH_MAX, fail_fast=True)]


class TaskInput(Input):
    """A message of the tasks topic: exactly one of its fields."""

    started: StartedBatch | None = None
    finished: FinishedBatch | None = None
    failed: FailedBatch | None = None


def read_task(document: object, author: str) -> TaskStarted | TaskFinished | TaskFailed:
    """A message of the tasks topic. Raises Malformed."""
    message = validated(TaskInput, document)
    check_one_form(message)
    author = author_of(author)
    batch = message.started or message.finished or message.failed
    assert batch is not None
    form = next(form for form in TaskInput.model_fields if getattr(message, form) is batch)
    check_tasks((item.count for item in batch.items), f"{form}.items")
    if message.started is not None:
        return TaskStarted(
            [_started(item, f"started.items[{i}]") for i, item in enumerate(message.started.items)], author=author
        )
    if message.finished is not None:
        return TaskFinished(
            [_finished(item, f"finished.items[{i}]") for i, item in enumerate(message.finished.items)], author=author
        )
    assert message.failed is not None
    return TaskFailed(
        [_failed(item, f"failed.items[{i}]") for i, item in enumerate(message.failed.items)], author=author
    )


def _started(item: StartedItem, parent: str) -> TaskRange:
    check_range(item.first, item.count, parent)
    return TaskRange(item.job, item.stage, item.first, item.count, item.attempt, item.node, item.epoch)


def _finished(item: FinishedItem, parent: str) -> TaskEnd:
    check_range(item.first, item.count, parent)
    check_run_ms(item.run_ms, item.count, parent, needed=True)
    check_measured(item, parent)
    return TaskEnd(
        job=item.job,
        stage=item.stage,
        first=item.first,
        count=item.count,
        attempt=item.attempt,
        node=item.node,
        epoch=item.epoch,
        run_ms=item.run_ms,
        peak=peak_of(item.peak, parent),
        peak_mib=item.peak_mib,
        cpu_ms=item.cpu_ms,
    )


def _failed(item: FailedItem, parent: str) -> TaskFailure:
    check_range(item.first, item.count, parent)
    check_run_ms(item.run_ms, item.count, parent, needed=False)
    check_measured(item, parent)
    return TaskFailure(
        job=item.job,
        stage=item.stage,
        first=item.first,
        count=item.count,
        attempt=item.attempt,
        node=item.node,
        epoch=item.epoch,
        reason=item.reason,
        exit_code=item.exit_code,
        detail=item.detail[:DETAIL_MAX],
        run_ms=item.run_ms,
        peak=peak_of(item.peak, parent),
        peak_mib=item.peak_mib,
        cpu_ms=item.cpu_ms,
    )
