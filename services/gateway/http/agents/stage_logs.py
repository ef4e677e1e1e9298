"""What all tasks of a job, or of a stage, printed, as one answer: lines of JSON, a line for each piece.

Tasks come in order. One that printed nothing has a line, too; one that never started, or of which nothing is kept, has
none. The next few tasks are read while a client takes what one printed.
"""

import asyncio
from base64 import b64encode
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from starlette.responses import Response

from largesse.task_output import Piece, Stream, Wanted
from services.gateway.documents import Document
from services.gateway.http.agents.output import AnyWanted, ReadOutput, first_of, printed, tasks_of
from services.gateway.http.problems import Problem, dumped
from services.gateway.view.places import place_of
from services.gateway.view.state import State

W = TypeVar("W")
F = TypeVar("F")

AHEAD = 8
"""Tasks that are read at once; of each up to a piece is in memory."""
ANSWERS_MAX = 16
"""Such answers at a time."""


class JsonLines(Response):
    """Tells FastAPI the media type of a route."""

    media_type = "application/jsonl"


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found of one task: its first piece (None: there is none), or why it cannot be read."""

    wanted: Wanted
    first: Piece | None = None
    problem: Problem | None = None


def wanted_of_job(state: State, job: str, stage: str | None, stream: Stream, since_ms: int | None) -> list[Wanted]:
    """What to read: every task that is known to have started, in order. The job has to be in view. Raises Problem for
    a stage that it has not got."""
    tasks = tasks_of(state, job)
    assert tasks is not None
    if stage is not None and stage not in tasks:
        text = f'job "{job}" has no stage "{stage}"; it has {", ".join(tasks)}'
        raise Problem(404, "unknown_stage", text, "stage")
    return [
        Wanted(job, each, index, stream, since_ms=since_ms)
        for each, count in tasks.items()
        if stage in (None, each)
        for index in range(count)
    ]


def node_in(view: Callable[[], State]) -> Callable[[AnyWanted], str]:
    """Says on which node a task ran last; "" where that is not known."""

    def node(wanted: AnyWanted) -> str:
        state = view()
        if tasks_of(state, wanted.job) is None:
            return ""
        place = place_of(state, wanted.job, wanted.stage, wanted.index, None)
        return "" if place is None else place.node

    return node


async def output_rows(
    read: ReadOutput, wanted: list[Wanted], tail: int | None, node_of: Callable[[Wanted], str]
) -> AsyncGenerator[bytes, None]:
    """The lines of the answer. A node that does not answer once is not asked again."""
    silent: dict[str, Problem] = {}
    async with aclosing(in_order(wanted, lambda one: _find(read, one, tail, node_of, silent))) as each:
        async for found in each:
            async for row in _rows(read, found):
                yield dumped(row) + b"\n"


async def in_order(wanted: list[W], find: Callable[[W], Coroutine[None, None, F]]) -> AsyncGenerator[F, None]:
    """What is found of each, in order; the next AHEAD are looked for meanwhile."""
    each = iter(wanted)
    ahead: deque[asyncio.Task[F]] = deque()
    try:
        while True:
            ahead.extend(asyncio.create_task(find(one)) for one in islice(each, AHEAD - len(ahead)))
            if not ahead:
                return
            yield await ahead.popleft()
    finally:
        for task in ahead:
            task.cancel()
        await asyncio.gather(*ahead, return_exceptions=True)


async def _find(
    read: ReadOutput, wanted: Wanted, tail: int | None, node_of: Callable[[Wanted], str], silent: dict[str, Problem]
) -> _Found:
    node = node_of(wanted)
    if node in silent:
        return _Found(wanted, problem=silent[node])
    try:
        return _Found(*await first_of(read, wanted, tail))
    except Problem as problem:
        if problem.document["type"].endswith(":node_unreachable") and node:
            silent[node] = problem
        return _Found(wanted, problem=problem)


async def _rows(read: ReadOutput, found: _Found) -> AsyncGenerator[Document, None]:
    wanted, first = found.wanted, found.first
    task: Document = {"stage": wanted.stage, "index": wanted.index}
    if found.problem is not None:
        if found.problem.status != 404:  # Else nothing is kept of it.
            yield task | {"problem": found.problem.document}
        return
    if first is None:
        return
    head: Document = task | {"attempt": first.attempt, "end": first.end}
    if first.cut is not None:
        head["cut"] = list(first.cut)
    empty = True
    try:
        async for data in printed(read, replace(wanted, attempt=first.attempt), first):
            yield (head if empty else task) | _text(data)
            empty = False
    except Problem as problem:
        yield task | {"problem": problem.document}
        return
    if empty:
        yield head | {"output": ""}


def _text(data: bytes) -> Document:
    try:
        return {"output": data.decode()}
    except UnicodeDecodeError:
        return {"output_base64": b64encode(data).decode()}
