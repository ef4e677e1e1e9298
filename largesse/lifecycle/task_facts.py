"""What has become of attempts, from whatever record says so: one shape for the reports of agents, for what ends with a
lost node, and for what a registration brings with it. Every core that follows tasks folds these facts, in this order.
"""

from typing import cast

from schemas import NodeLost, NodeRegistered, TaskFailed, TaskFinished, TaskStarted
from schemas.nodes import KnownAttempt
from schemas.tasks import TaskEnd, TaskFailure, TaskRange

TaskFact = TaskRange | TaskEnd | TaskFailure
"""Attempts that run, have succeeded, or have ended without success."""

TaskRecord = TaskStarted | TaskFinished | TaskFailed | NodeLost | NodeRegistered
"""Bodies that say what has become of attempts."""


def facts_of(body: TaskRecord) -> list[TaskFact]:
    """The facts of a record, in order. With a node its attempts are lost; a registration ends those that its agent does
    not know (`lost`), then says of the others that they run or how they ended. Nobody changes what it returns.
    """
    if isinstance(body, TaskStarted | TaskFinished | TaskFailed):
        return cast(list[TaskFact], body.items)
    facts: list[TaskFact] = [_lost(each) for each in body.lost]
    if isinstance(body, NodeRegistered):
        for known in body.attempts:
            facts.append(_known(body, known))
    return facts


def _lost(tasks: TaskRange) -> TaskFailure:
    return TaskFailure(
        tasks.job,
        tasks.stage,
        tasks.first,
        tasks.count,
        tasks.attempt,
        tasks.node,
        tasks.epoch,
        "lost",
        detail=f"node {tasks.node}",
    )


def _known(body: NodeRegistered, known: KnownAttempt) -> TaskFact:
    job, stage, first, count, attempt = known.job, known.stage, known.first, known.count, known.attempt
    if known.state == "running":
        return TaskRange(job, stage, first, count, attempt, body.node, body.epoch)
    used = known.peak, known.peak_mib, known.cpu_ms
    if known.state == "succeeded":
        return TaskEnd(job, stage, first, count, attempt, body.node, body.epoch, known.run_ms, *used)
    return TaskFailure(
        job,
        stage,
        first,
        count,
        attempt,
        body.node,
        body.epoch,
        known.reason or "exit_code",
        known.exit_code,
        known.detail,
        known.run_ms,
        *used,
    )
