"""What a node has to say of its attempts: kept, repeated until the log has it, and worded as messages of `tasks`.

Pure: times come in. Nothing is said twice without need; the sequencer drops what it has already.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas import Vector
from schemas.edge.base import BATCH_MAX
from schemas.edge.known_attempts import DETAIL_MAX
from schemas.quantities import quantity_texts
from schemas.tasks import Failure

REPORT_BYTES_MAX = 256 * 1024
"""Items of one message come to at most this much: well below what the edge takes."""
RANGE_MAX = 1_000  # Tasks that one item speaks of: each has a run time of its own.
REPEAT_MS = 2_000
REPEAT_MS_MAX = 60_000


@dataclass(frozen=True, slots=True)
class Result:
    """How an attempt ended. `reason` None: it succeeded. `cpu_ms` None: what it used was not measured."""

    reason: Failure | None
    run_ms: int = 0
    exit_code: int | None = None
    detail: str = ""
    peak: Vector = field(default_factory=dict)
    cpu_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Name:
    """Which attempt."""

    job: str
    stage: str
    index: int
    attempt: int


@dataclass(slots=True)
class Due:
    """When a report is to be sent next, and how long after that again."""

    at_ms: int
    repeat_ms: int = REPEAT_MS


@dataclass(slots=True)
class Unreported:
    """What of one attempt the log has not confirmed: its start, its end, or both."""

    name: Name
    start: Due | None = None
    end: Due | None = None
    result: Result | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """Part of a report: that the attempt began, how it ended, or both."""

    key: str
    name: Name
    start: bool
    result: Result | None


@dataclass(slots=True)
class Outbox:
    """Unconfirmed reports by attempt key. `awaited`: those of which the log has not shown what was said last."""

    unreported: dict[str, Unreported] = field(default_factory=dict)
    awaited: dict[str, bool] = field(default_factory=dict)

    def started(self, key: str, name: Name, now_ms: int) -> None:
        """The attempt runs."""
        self.unreported.setdefault(key, Unreported(name, start=Due(now_ms)))

    def ended(self, key: str, name: Name, result: Result, now_ms: int) -> None:
        """The attempt has ended; the first result stands."""
        known = self.unreported.setdefault(key, Unreported(name))
        if known.result is None:
            known.result, known.end = result, Due(now_ms)

    def begun(self, key: str) -> None:
        """The log has the start."""
        self.awaited.pop(key, None)
        known = self.unreported.get(key)
        if known is not None:
            known.start = None
            if known.end is None:
                del self.unreported[key]

    def over(self, key: str) -> None:
        """The log has the end: nothing is left to say."""
        self.awaited.pop(key, None)
        self.unreported.pop(key, None)

    def again(self, now_ms: int) -> None:
        """Everything is said again, as after a registration."""
        for known in self.unreported.values():
            known.start = known.start and Due(now_ms)
            known.end = known.end and Due(now_ms)

    def due(self, now_ms: int) -> list[Said]:
        """What is to be said now."""
        found = []
        for key, known in self.unreported.items():
            start = known.start is not None and known.start.at_ms <= now_ms
            end = known.end is not None and known.end.at_ms <= now_ms
            if start or end:
                found.append(Said(key, known.name, start, known.result if end else None))
        return found

    def due_ms(self) -> int | None:
        """When something is to be said next."""
        dues = (due for known in self.unreported.values() for due in (known.start, known.end))
        return min((due.at_ms for due in dues if due is not None), default=None)

    def sent(self, said: Iterable[Said], now_ms: int) -> None:
        """The bus has it. It is said again, ever more seldom, if the log does not show it, which it may do already."""
        self.awaited.clear()
        for part in said:
            known = self.unreported.get(part.key)
            if known is None:
                continue
            if part.start and known.start is not None:
                known.start = _later(known.start, now_ms)
                self.awaited[part.key] = True
            if part.result is not None and known.end is not None:
                known.end = _later(known.end, now_ms)
                self.awaited[part.key] = True


def _later(due: Due, now_ms: int) -> Due:
    return Due(now_ms + due.repeat_ms, min(2 * due.repeat_ms, REPEAT_MS_MAX))


def messages(said: Iterable[Said], node: str, epoch: str) -> list[dict[str, object]]:
    """Messages for the topic `tasks` that say it: starts before ends, tasks alike as ranges."""
    listed = sorted(said, key=lambda n: (n.name.job, n.name.stage, n.name.attempt, n.name.index))
    where = {"node": node, "epoch": epoch}
    started = [{**_range(group), **where} for group in _groups((n.name, None) for n in listed if n.start)]
    ended = [(n.name, n.result) for n in listed if n.result is not None]
    finished = [_end(group, where) for group in _groups(e for e in ended if e[1].reason is None)]
    failed = [_failure(group, where) for group in _groups(e for e in ended if e[1].reason is not None)]
    return [
        {form: {"items": batch}}
        for form, items in (("started", started), ("finished", finished), ("failed", failed))
        for batch in batches(items)
    ]


def known_attempts(running: Iterable[Name], ended: Iterable[tuple[Name, Result]]) -> list[list[dict[str, object]]]:
    """What a registration says of attempts, those that run before those that ended: a list a message, one at least."""

    def by_name(pair: tuple[Name, Result | None]) -> tuple[str, str, int, int]:
        return pair[0].job, pair[0].stage, pair[0].attempt, pair[0].index

    items: list[dict[str, object]] = []
    for group in _groups(sorted(((name, None) for name in running), key=by_name)):
        items.append({**_range(group), "state": "running"})
    for group in _groups(sorted(ended, key=by_name)):
        result = group[0][1]
        assert result is not None
        said = _end(group, {}) if result.reason is None else _failure(group, {})
        items.append({**said, "state": "succeeded" if result.reason is None else "failed"})
    return batches(items) or [[]]


def batches(items: list[dict[str, object]]) -> list[list[dict[str, object]]]:
    """Items in their order, cut so that no message is refused for its size."""
    cut: list[list[dict[str, object]]] = []
    room = 0
    for item in items:
        size = len(json.dumps(item)) + 2
        if size > room or len(cut[-1]) == BATCH_MAX:
            cut.append([])
            room = REPORT_BYTES_MAX
        cut[-1].append(item)
        room -= size
    return cut


_Pair = tuple[Name, Result | None]


def _groups(pairs: Iterable[_Pair]) -> list[list[_Pair]]:
    """Neighbours that one item can speak of: indexes in a row, and ends alike but for their run times."""
    groups: list[list[_Pair]] = []
    for pair in pairs:
        if groups and len(groups[-1]) < RANGE_MAX and _follows(groups[-1][-1], pair):
            groups[-1].append(pair)
        else:
            groups.append([pair])
    return groups


def _follows(before: _Pair, pair: _Pair) -> bool:
    (a, ended), (b, result) = before, pair
    if (a.job, a.stage, a.attempt, a.index + 1) != (b.job, b.stage, b.attempt, b.index):
        return False
    if ended is None or result is None:
        return ended is result
    if (ended.cpu_ms is None, "cpu" in ended.peak) != (result.cpu_ms is None, "cpu" in result.peak):
        return False
    return (ended.reason, ended.exit_code, ended.detail) == (result.reason, result.exit_code, result.detail)


def _range(group: list[_Pair]) -> dict[str, object]:
    name = group[0][0]
    return {"job": name.job, "stage": name.stage, "first": name.index, "count": len(group), "attempt": name.attempt}


def _end(group: list[_Pair], where: dict[str, str]) -> dict[str, object]:
    results = [result for _, result in group if result is not None]
    peak: Vector = {}
    for result in results:
        for resource, amount in result.peak.items():
            peak[resource] = max(amount, peak.get(resource, 0))
    said = {**_range(group), **where, "run_ms": [result.run_ms for result in results], "peak": quantity_texts(peak)}
    measured = [(result.peak.get("memory", 0), result.cpu_ms) for result in results if result.cpu_ms is not None]
    if len(measured) == len(results):
        said["peak_mib"], said["cpu_ms"] = [mib for mib, _ in measured], [cpu_ms for _, cpu_ms in measured]
    return said


def _failure(group: list[_Pair], where: dict[str, str]) -> dict[str, object]:
    result = group[0][1]
    assert result is not None
    said = {"reason": result.reason, "exit_code": result.exit_code, "detail": result.detail[:DETAIL_MAX]}
    return {**_end(group, where), **said}
