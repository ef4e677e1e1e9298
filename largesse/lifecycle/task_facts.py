"""What has become of attempts, from whatever record says so: one shape for the reports of agents, for what ends with a
lost node, and for what a registration brings with it. Every core that follows tasks folds these facts, in this order.
"""

from dataclasses import dataclass, replace
from typing import TypeVar, cast

from schemas import NodeLost, NodeRegistered, TaskFailed, TaskFinished, TaskStarted
from schemas.nodes import KnownAttempt
from schemas.tasks import Failure, SpareAttempt, TaskEnd, TaskFailure, TaskRange

PER_TASK = ("run_ms", "peak_mib", "cpu_ms")
"""Fields of an item that may say something of each of its tasks."""


@dataclass
class SpareEnd:
    """One attempt has ended, and its task has not: another attempt of it still holds room, or has succeeded before
    (then this one ends `superseded`, even where it succeeded too). What it held is free; nothing else follows from it.
    """

    job: str
    stage: str
    first: int
    count: int
    attempt: int
    node: str
    epoch: str
    reason: Failure
    exit_code: int | None
    detail: str
    run_ms: list[int]


TaskFact = TaskRange | TaskEnd | TaskFailure | SpareEnd
"""Attempts that run, have succeeded, or have ended without success, with their task or without it."""

TaskRecord = TaskStarted | TaskFinished | TaskFailed | NodeLost | NodeRegistered
"""Bodies that say what has become of attempts."""


_REPORTS = (TaskFinished, TaskFailed)  # A union in `isinstance` would be built at every call.


def facts_of(body: TaskRecord) -> list[TaskFact]:
    """The facts of a record, in order. When a node is lost, so are its attempts; a registration ends those that its
    agent does not know (`lost`), then says of the others that they run or how they ended. Callers do not change what it
    returns.
    """
    if isinstance(body, TaskStarted):
        return cast(list[TaskFact], body.items)
    if body.spare:
        return _apart(_facts_of(body), body.spare)
    return _facts_of(body)


def run_ms_of(ended: TaskEnd | TaskFailure | SpareEnd, place: int) -> int | None:
    """How long the task at a place of a range ran: a range says it of each, or once for all; None: it does not."""
    if not ended.run_ms:
        return None
    return ended.run_ms[place] if len(ended.run_ms) == ended.count else ended.run_ms[0]


def _facts_of(body: TaskFinished | TaskFailed | NodeLost | NodeRegistered) -> list[TaskFact]:
    if isinstance(body, _REPORTS):
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


def _apart(facts: list[TaskFact], spare: list[SpareAttempt]) -> list[TaskFact]:
    """The facts, with the ends of spare attempts taken out of their ranges."""
    named = {(each.job, each.stage, each.index, each.attempt): True for each in spare}
    found: list[TaskFact] = []
    for fact in facts:
        if not isinstance(fact, TaskEnd | TaskFailure):
            found.append(fact)
            continue
        first, end = fact.first, fact.first + fact.count
        for index in range(first, end):
            if (fact.job, fact.stage, index, fact.attempt) in named:
                if first < index:
                    found.append(part_of(fact, first, index))
                found.append(_spare_end(part_of(fact, index, index + 1)))
                first = index + 1
        if first < end:
            found.append(part_of(fact, first, end))
    return found


def _spare_end(ended: TaskEnd | TaskFailure) -> SpareEnd:
    reason: Failure = "superseded"
    exit_code, detail = None, ""
    if isinstance(ended, TaskFailure):
        reason, exit_code, detail = ended.reason, ended.exit_code, ended.detail
    job, stage, first, attempt = ended.job, ended.stage, ended.first, ended.attempt
    return SpareEnd(job, stage, first, 1, attempt, ended.node, ended.epoch, reason, exit_code, detail, ended.run_ms)


_Item = TaskRange | TaskEnd | TaskFailure | KnownAttempt
ItemT = TypeVar("ItemT", bound=_Item)


def part_of(item: ItemT, first: int, end: int) -> ItemT:
    """An item's tasks `first` .. `end - 1`, with the run times and measurements that are theirs."""
    if first == item.first and end == item.first + item.count:
        return item
    part = replace(item, first=first, count=end - first)
    for field in PER_TASK:
        listed = getattr(item, field, None)
        if listed and len(listed) == item.count:
            setattr(part, field, listed[first - item.first : end - item.first])
    return part
