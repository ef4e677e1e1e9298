"""Attempts of tasks as the log tells of them: on which node each ran, from when to when, and what came of it.

Read from the log, of one job from its admission on, or of one node from a moment on, and kept for a while: who asks
again only waits for what has come since.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from largesse.lifecycle.task_facts import SpareEnd, facts_of
from schemas import NodeLost, NodeRegistered, Record, RoundClosed, TaskFailed, TaskFinished, TaskStarted
from schemas.tasks import TaskEnd, TaskFailure
from services.gateway.log_places import LogPlaces

LOOKED_AT_MAX = 20_000
"""Records that are looked at for one answer; who asks again gets those behind them, too."""

ATTEMPTS_MAX = 20_000
"""Attempts that are kept of one job or node, those that were granted first."""

TABLES_KEPT = 16
"""Jobs and nodes whose attempts are kept, those asked for last."""

_TASKS = (TaskStarted, TaskFinished, TaskFailed, NodeLost, NodeRegistered)

Key = tuple[str, str, int, int]
"""Job, stage, index, and number of the attempt."""


@dataclass(slots=True)
class Attempt:
    """One attempt. Of what it went through, the log time and the record that says so; None: that has not come, or came
    before the attempts were looked at.
    """

    node: str
    granted_ms: int | None = None
    granted: int = 0
    started_ms: int | None = None
    started: int = 0
    ended_ms: int | None = None
    ended: int = 0
    outcome: str = ""


class AttemptTable:
    """Attempts of those jobs and nodes that `has` says. `read`: the record up to which the log was read. `left_out`:
    there are more than are kept. `whole`: what was granted before is of no interest, like attempts of an earlier run.
    """

    def __init__(self, has: Callable[[str, str], bool], read: int, *, whole: bool) -> None:
        self.rows: dict[Key, Attempt] = {}
        self.read = read
        self.left_out = False
        self._has, self._whole = has, whole

    def learn(self, record: Record) -> None:
        """The next record."""
        body = record.body
        if isinstance(body, RoundClosed):
            for grant in body.grants:
                for key in self._keys(grant.job, grant.stage, grant.first, grant.count, grant.attempt, grant.node):
                    self._put(key, Attempt(grant.node, record.time, record.seq))
        elif isinstance(body, _TASKS):
            for fact in facts_of(body):
                for key in self._keys(fact.job, fact.stage, fact.first, fact.count, fact.attempt, fact.node):
                    row = self.rows.get(key)
                    if row is None and self._whole:
                        continue
                    if row is None:
                        row = self._put(key, Attempt(fact.node))
                    if isinstance(fact, TaskEnd):
                        row.ended_ms, row.ended, row.outcome = record.time, record.seq, "succeeded"
                    elif isinstance(fact, TaskFailure | SpareEnd):
                        row.ended_ms, row.ended, row.outcome = record.time, record.seq, fact.reason
                    elif row.started_ms is None:
                        row.started_ms, row.started = record.time, record.seq
        self.read = record.seq

    def _keys(self, job: str, stage: str, first: int, count: int, attempt: int, node: str) -> Iterable[Key]:
        if not self._has(job, node):
            return ()
        return [(job, stage, index, attempt) for index in range(first, first + count)]

    def _put(self, key: Key, row: Attempt) -> Attempt:
        if len(self.rows) < ATTEMPTS_MAX:
            self.rows[key] = row
        else:
            self.left_out = True
        return row

    def at(self, seq: int) -> Iterator[tuple[Key, Attempt]]:
        """The attempts as they were behind a record."""
        for key, row in self.rows.items():
            if row.granted > seq:
                continue
            if row.ended > seq or row.started > seq:
                is_started = 0 < row.started <= seq
                row = Attempt(
                    row.node,
                    row.granted_ms,
                    row.granted,
                    row.started_ms if is_started else None,
                    row.started if is_started else 0,
                )
            yield key, row


class AttemptTables:
    """Tables that were asked for, read on from the log of one cell. Belongs to one event loop."""

    def __init__(self, places: Callable[[], LogPlaces]) -> None:
        self._places = places
        self._kept: OrderedDict[tuple[str, str, int], AttemptTable] = OrderedDict()
        self._turn = asyncio.Lock()

    async def of_job(self, name: str, admitted: int, last: int) -> AttemptTable:
        """Of the job that was admitted by a record, as far as the log is read in one go towards `last`."""
        return await self._read("job", name, AttemptTable(lambda job, _: job == name, admitted, whole=True), last)

    async def of_node(self, name: str, behind: int, last: int) -> AttemptTable:
        """Of a node behind a record."""
        return await self._read("node", name, AttemptTable(lambda _, node: node == name, behind, whole=False), last)

    async def _read(self, kind: str, name: str, empty: AttemptTable, last: int) -> AttemptTable:
        async with self._turn:
            key = kind, name, empty.read
            table = self._kept.setdefault(key, empty)
            self._kept.move_to_end(key)
            while len(self._kept) > TABLES_KEPT:
                self._kept.popitem(last=False)
            if table.read < last:
                places, begun = self._places(), table.read
                place = await places.before(lambda order: order.seq <= begun)
                end = min(last, begun + LOOKED_AT_MAX)
                async for accepted in places.records(place, end, (name,)):
                    if accepted.record.seq > begun:
                        table.learn(accepted.record)
                table.read = end
            return table
