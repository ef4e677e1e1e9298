"""Where jobs are that came by way of the router, from its log, and what it has answered to messages.

Only the router's log is read: what a cell says of a job is shown by the app of that cell.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from largesse.bus.port import Bus, BusError, Outgoing, Writer
from largesse.log.fencing import Accepted
from largesse.log.reader import LogReader, wait_for_more
from largesse.telemetry import ROUTER_SEQ, logger
from schemas import InputRefused, InputRepeated, JobCancelled, JobRejected
from schemas.routes import (
    CellLoad,
    CellProblem,
    CellsHeard,
    CellsJudged,
    HeardState,
    JobRouted,
    MoveAnswered,
    MoveAsked,
    RouteAsked,
    RouteDeclined,
    RouteEnded,
    RouteLapsed,
    RouteTaken,
)
from schemas.topics import ROUTER_JOBS, ROUTER_LOG

RouteState = Literal["waiting", "sent", "taken", "moving", "ended", "declined"]
OVER_MAX = 200_000
"""Routes of jobs that are over and still known; beyond it the oldest go."""
ANSWERS_MAX = 10_000
"""Answers that are kept for senders that do not know the offset of their message yet."""
RETRY_S = 1.0
LIVE: tuple[RouteState, ...] = ("waiting", "sent", "taken", "moving")
"""Of jobs that are not over."""


@dataclass(slots=True)
class RouteRow:
    """One job. `cell`: where it is, or was last; empty: nowhere yet. `to`: where it moves to. `problems`: why cells do
    not take it; `loads`: of those that could, when it was last sent to one, and `why` it was that one."""

    user: str
    author: str
    queue: str
    state: RouteState = "waiting"
    cell: str = ""
    to: str = ""
    why: str = ""
    number: int = 0
    outcome: str = ""
    problems: list[CellProblem] = field(default_factory=list)
    loads: list[CellLoad] = field(default_factory=list)


RouteAnswer = RouteAsked | JobRejected | JobCancelled | InputRepeated | InputRefused


class Routed:
    """All routes that the log has. `run` follows it; `ready`: it has been read up to what it had, and a router has
    written to it. `heard`: which cells that hears. Belongs to one event loop."""

    def __init__(self, bus: Bus, wait_ms: int) -> None:
        self.rows: dict[str, RouteRow] = {}
        self.ready = False
        self.heard: dict[str, HeardState] = {}
        self._bus, self._wait_ms = bus, wait_ms
        self._taken = -1  # The offset of the last message that the router's log has.
        self._said_s: float | None = None
        self._over: dict[str, bool] = {}
        self._answers: dict[int, RouteAnswer] = {}
        self._writer: Writer | None = None
        self._turn: asyncio.Future[None] | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`. Without a bus it tries again."""
        reader = LogReader(self._bus, topic=ROUTER_LOG)
        try:
            while not stop.is_set():
                try:
                    read = await reader.read()
                    for accepted in read:
                        self.take(accepted)
                    if read:
                        ROUTER_SEQ.set(reader.order.seq)
                        self._said_s = asyncio.get_running_loop().time()
                        self._tell()
                        await asyncio.sleep(0)
                    else:
                        if bool(reader.order.token) and not self.ready:
                            self.ready = True
                            self._tell()
                        await wait_for_more(self._bus, reader.position, self._wait_ms, stop)
                except BusError as error:
                    logger(service="gateway").warning("routes_unread", reason=str(error))
                    await asyncio.sleep(RETRY_S)
        finally:
            if self._writer is not None:
                await self._writer.drop()

    async def send(self, data: bytes, author: str, wait_s: float) -> RouteAnswer | None:
        """Publishes a message to the router; what it becomes, None where that is not known in time. Raises BusError."""
        if self._writer is None:
            self._writer = self._bus.writer()
        try:
            sent = [Outgoing(ROUTER_JOBS, 0, data, headers={"author": author})]
            (offset,) = await self._writer.send(sent, durable=True)
        except BusError:
            writer, self._writer = self._writer, None
            if writer is not None:
                await writer.drop()
            raise
        await self.until(lambda: offset in self._answers, wait_s)
        return self._answers.get(offset)

    async def until(self, holds: Callable[[], bool], wait_s: float) -> bool:
        """Waits until the rows show what is asked for; False once the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while not holds():
            left_s = deadline - loop.time()
            if left_s <= 0:
                return False
            if self._turn is None:
                self._turn = loop.create_future()
            await asyncio.wait((self._turn,), timeout=left_s)
        return True

    async def standing(self) -> dict[str, object] | None:
        """What is to be said of the router; None: there has never been one. Raises BusError."""
        if not self.ready or self._said_s is None:
            return None
        _, end = await self._bus.bounds(ROUTER_JOBS, 0)
        silent_s = asyncio.get_running_loop().time() - self._said_s
        counts = Counter(row.state for row in self.rows.values() if row.state not in ("ended", "declined"))
        return {
            "silent_ms": int(silent_s * 1_000),
            "behind": max(0, end - 1 - self._taken),
            "jobs": {state: counts[state] for state in LIVE},
            "cells": [{"cell": cell, "state": state} for cell, state in self.heard.items()],
        }

    def cell_of(self, job: str) -> str:
        """The cell that has a job, or had it last; empty: none that is known."""
        row = self.rows.get(job)
        return "" if row is None or row.state in ("waiting", "declined") else row.cell

    def take(self, accepted: Accepted) -> None:
        """One record of the router's log."""
        header, body = accepted.header, accepted.record.body
        if isinstance(body, CellsHeard):
            self.heard = {each.cell: each.state for each in body.cells}
        if header.topic == ROUTER_JOBS:
            self._taken = max(self._taken, header.offset)
            self._answers[header.offset] = body
            if len(self._answers) > ANSWERS_MAX:
                del self._answers[next(iter(self._answers))]
        if isinstance(body, RouteAsked):
            spec = body.spec
            self._over.pop(spec.job, None)
            self.rows[spec.job] = RouteRow(spec.user, body.author, spec.queue)
            return
        row = self.rows.get(getattr(body, "job", ""))
        if row is not None:
            self._change(row, body)

    def _change(self, row: RouteRow, body: object) -> None:
        match body:
            case CellsJudged() if body.considering == "placing":
                row.problems = [bid.problem for bid in body.bids if bid.problem is not None]
            case JobRouted():
                row.state, row.cell, row.to, row.why = "sent", body.cell, "", body.why
                row.number, row.loads = body.number, body.loads
            case RouteTaken():
                row.state = "taken"
            case RouteLapsed():
                row.state, row.cell = "waiting", ""
            case MoveAsked():
                row.state, row.to = "moving", body.to
            case MoveAnswered():
                row.state, row.cell = ("waiting", "") if body.is_free else ("taken", row.cell)
                row.to = row.to if body.is_free else ""
            case RouteDeclined():
                row.state, row.problems = "declined", body.problems
                self._end(body.job)
            case RouteEnded():
                row.state, row.cell, row.outcome, row.to = "ended", body.cell, body.outcome, ""
                self._end(body.job)

    def _end(self, job: str) -> None:
        self._over[job] = True
        while len(self._over) > OVER_MAX:
            oldest = next(iter(self._over))
            del self._over[oldest], self.rows[oldest]

    def _tell(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None and not turn.done():
            turn.set_result(None)
