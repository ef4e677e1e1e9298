"""What becomes of what agents say of attempts: reports on `tasks`, and what a registration says that they still know.

A message speaks of ranges, and ranges are compared with ranges: that costs what the message says in bytes and what the
log holds of its tasks, never what its counts come to.
"""

from dataclasses import dataclass
from typing import Literal

from largesse.lifecycle.task_facts import part_of
from largesse.lifecycle.task_keys import task_key
from schemas import InputRefused, TaskFailed, TaskFinished, TaskRange, TaskStarted
from schemas.nodes import KnownAttempt
from schemas.tasks import TaskEnd, TaskFailure
from services.admission.core.copies import copied_in, spare_among
from services.admission.core.granted import attempt_of, is_held, marks
from services.admission.core.keys import seen_key
from services.admission.core.state import Allocation, State

Item = TaskRange | TaskEnd | TaskFailure | KnownAttempt

ReportCheck = Literal["good", "stale", "foreign"]
"""Of a reported attempt. good: the report counts; stale: it was folded already, or is superseded; foreign: the log
holds no such attempt of this node and epoch."""


@dataclass(slots=True)
class _Adding:
    """What is being judged: an item of a message, who speaks, and the mark of the tasks that are looked at. `runs`:
    what came of it so far; `unknown`: what comes of attempts that were never granted."""

    runs: list[tuple[int, int, ReportCheck]]
    state: State
    item: Item
    node: str
    epoch: str
    starting: bool
    seen: dict[str, bool]
    unknown: ReportCheck
    mark: int

    def __init__(
        self,
        runs: list[tuple[int, int, ReportCheck]],
        state: State,
        item: Item,
        node: str,
        epoch: str,
        starting: bool,
        seen: dict[str, bool],
        unknown: ReportCheck,
        mark: int,
    ) -> None:
        self.runs = runs
        self.state = state
        self.item = item
        self.node = node
        self.epoch = epoch
        self.starting = starting
        self.seen = seen
        self.unknown = unknown
        self.mark = mark


def judge_report(
    state: State, body: TaskStarted | TaskFinished | TaskFailed, author: str
) -> TaskStarted | TaskFinished | TaskFailed | InputRefused | None:
    """The record that a report becomes, with what in it counts and what was never granted; None where nothing does."""
    starting = isinstance(body, TaskStarted)
    good: list[Item] = []
    refused: list[TaskRange] = []
    seen: dict[str, bool] = {}
    whole = True
    for item in body.items:
        node, epoch = item.node, item.epoch
        if item.count == 1 and _of_single(state, item, node, epoch, starting, seen) == "good":
            good.append(item)
            continue
        parts = _verdicts(state, item, node, epoch, starting, seen)
        if len(parts) == 1 and parts[0][2] == "good":
            good.append(item)
            continue
        whole = False
        for first, end, verdict in parts:
            if verdict == "good":
                good.append(part_of(item, first, end))
            elif verdict == "foreign":
                refused.append(TaskRange(item.job, item.stage, first, end - first, item.attempt, item.node, item.epoch))
    if not good:
        return _refusal(refused[0], author) if refused else None
    report = body
    if not whole:
        kind: type = type(body)
        report = kind(good, refused, body.author)
    if state.copied and not isinstance(report, TaskStarted):
        report.spare = spare_among(state, good, succeeded=isinstance(report, TaskFinished))
    return report


def _refusal(r: TaskRange, author: str) -> InputRefused:
    tasks = f"{r.job}/{r.stage}/{r.first}" + (f" to {r.first + r.count - 1}" if r.count > 1 else "")
    what = f"{tasks} attempt {r.attempt} was never granted to {r.node} under epoch {r.epoch}"
    return InputRefused("tasks", what, "items", 0, "", author)


def known_parts(state: State, node: str, known: KnownAttempt, seen: dict[str, bool]) -> list[KnownAttempt]:
    """The parts of what an agent knows that the log holds on its node, under whatever epoch. `seen`: attempts, by
    task_key, that were named before; what is reported twice counts as it was reported first.
    """
    parts = _verdicts(state, known, node, "", False, seen)
    return [part_of(known, first, end) for first, end, verdict in parts if verdict == "good"]


def _verdicts(
    state: State, item: Item, node: str, epoch: str, starting: bool, seen: dict[str, bool]
) -> list[tuple[int, int, ReportCheck]]:
    """What comes of each of an item's tasks, in runs from an index to one before another. `epoch`: the speaker's;
    empty: any will do. What is good is noted as `seen`.
    """
    first: int = item.first
    end: int = first + item.count
    if item.count == 1 and (verdict := _of_single(state, item, node, epoch, starting, seen)) is not None:
        return [(first, end, verdict)]
    job = state.jobs.get(item.job)
    unknown: ReportCheck = "foreign"  # What comes of tasks of which the log knows no such attempt.
    if job is None:
        ended = state.ended.get(item.job)
        if ended is None:
            return [(first, end, "foreign")]
        job, unknown = ended.job, "stale"
    at = job.graph.position.get(item.stage) if job is not None else None
    if job is None or at is None:
        return [(first, end, unknown)]
    runs: list[tuple[int, int, ReportCheck]] = []
    tasks = job.graph.tasks[at]
    for low, high, mark in marks(job.granted[at], first, min(end, tasks)):
        copied = copied_in(state, item.job, item.stage, low, high) if state.copied else []
        add = _Adding(runs, state, item, node, epoch, starting, seen, unknown, mark)
        begin = low
        for index in copied:
            if begin < index:
                _add_marked(add, begin, index)
            _add_copied(add, index)
            begin = index + 1
        if begin < high:
            _add_marked(add, begin, high)
    if end > tasks:
        _add(runs, max(first, tasks), end, unknown)
    return runs


def _of_single(
    state: State, item: Item, node: str, epoch: str, starting: bool, seen: dict[str, bool]
) -> ReportCheck | None:
    """What comes of an item of one task, where its attempt holds room as the speaker says; None: it does not. Most
    reports are of single tasks, and true.
    """
    there = state.nodes.get(node)
    if there is None:
        return None
    key = task_key(item.job, item.stage, item.first)
    hold = there.holds.get(key)
    if hold is None or hold.attempt != item.attempt or (epoch and hold.epoch != epoch):
        return None
    return _of_held(state, hold, key, starting, seen)


def _add_marked(add: _Adding, low: int, high: int) -> None:
    """Tasks of one mark, each with at most one attempt that holds room."""
    attempt = attempt_of(add.mark)
    if attempt == add.item.attempt and is_held(add.mark):
        _add_held(add, low, high)
    else:
        _add(add.runs, low, high, add.unknown if attempt < add.item.attempt else "stale")


def _add_held(add: _Adding, low: int, high: int) -> None:
    """Tasks whose attempt holds room somewhere: here, and under this epoch?"""
    there = add.state.nodes.get(add.node)
    if there is None or not there.holds:
        _add(add.runs, low, high, "foreign")
        return
    for index in range(low, high):
        key = task_key(add.item.job, add.item.stage, index)
        hold: Allocation | None = there.holds.get(key)
        if hold is None or (add.epoch and hold.epoch != add.epoch):
            _add(add.runs, index, index + 1, "foreign")
        else:
            _add(add.runs, index, index + 1, _of_held(add.state, hold, key, add.starting, add.seen))


def _add_copied(add: _Adding, index: int) -> None:
    """A task that may hold room in several attempts, each on a node of its own."""
    item, there = add.item, add.state.nodes.get(add.node)
    key = task_key(item.job, item.stage, index)
    hold: Allocation | None = there.holds.get(key) if there is not None else None
    if hold is not None and hold.attempt == item.attempt and (not add.epoch or hold.epoch == add.epoch):
        _add(add.runs, index, index + 1, _of_held(add.state, hold, key, add.starting, add.seen))
    else:
        _add(add.runs, index, index + 1, add.unknown if item.attempt > attempt_of(add.mark) else "stale")


def _of_held(state: State, hold: Allocation, key: str, starting: bool, seen: dict[str, bool]) -> ReportCheck:
    """Of an attempt that holds room where its speaker says: does this count, or was it said before?"""
    key = seen_key(state, key, hold.attempt)
    if (starting and hold.started) or key in seen:
        return "stale"
    seen[key] = True
    return "good"


def _add(runs: list[tuple[int, int, ReportCheck]], low: int, high: int, verdict: ReportCheck) -> None:
    if runs and runs[-1][2] == verdict:
        runs[-1] = (runs[-1][0], high, verdict)
    else:
        runs.append((low, high, verdict))
