"""What tasks have left in their results folders: lists of it as lines of JSON, and files, from the agents that have it.

No link is followed on the way, and nothing is shown by a browser: files are for saving.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from largesse.task_results import ENTRIES_MAX, Entry, FilePiece, Listed, WantedResults
from services.gateway.documents import Document
from services.gateway.http.agents.asking import Way, ask_results
from services.gateway.http.agents.output import WayTo, check_task, from_agent, tasks_of
from services.gateway.http.agents.stage_logs import in_order
from services.gateway.http.problems import Problem, dumped
from services.gateway.view.places import OutputPlace
from services.gateway.view.state import State

ReadResults = Callable[[WantedResults], Awaitable[Listed | FilePiece | None]]
"""A page of a task's list, or a piece of a file; None if there is none. Raises Problem."""


@dataclass(frozen=True, slots=True)
class _Found:
    wanted: WantedResults
    first: Listed | None = None
    problem: Problem | None = None


async def fetch_results(state: State, wanted: WantedResults, way_to: WayTo) -> Listed | FilePiece | None:
    """From the agent of the node where the task ran. Raises Problem."""

    async def asked(way: Way, place: OutputPlace) -> Listed | FilePiece | None:
        return await ask_results(way, place.node, replace(wanted, admitted=place.admitted))

    if tasks_of(state, wanted.job) is None:
        return None
    return await from_agent(state, wanted, "results", way_to, asked)


def listed_of_job(state: State, job: str, stage: str | None, index: int | None) -> list[WantedResults]:
    """What to list, in order. The job has to be in view. Raises Problem for a stage or task that it has not got."""
    tasks = tasks_of(state, job)
    assert tasks is not None
    if stage is not None:
        check_task(state, WantedResults(job, stage, index or 0))
    elif index is not None:
        raise Problem(422, "malformed", "index: needs the stage, too", "index")
    return [
        WantedResults(job, each, at)
        for each, count in tasks.items()
        if stage in (None, each)
        for at in (range(count) if index is None else (index,))
    ]


async def result_rows(
    read: ReadResults, wanted: list[WantedResults], node_of: Callable[[WantedResults], str]
) -> AsyncGenerator[bytes, None]:
    """The lines of a list. A node that does not answer once is not asked again."""
    silent: dict[str, Problem] = {}

    async def find(one: WantedResults) -> _Found:
        node = node_of(one)
        if node in silent:
            return _Found(one, problem=silent[node])
        try:
            first = await read(one)
        except Problem as problem:
            if problem.document["type"].endswith(":node_unreachable") and node:
                silent[node] = problem
            return _Found(one, problem=problem)
        assert not isinstance(first, FilePiece)
        return _Found(one, first)

    async with aclosing(in_order(wanted, find)) as each:
        async for found in each:
            async for row in _rows(read, found):
                yield dumped(row) + b"\n"


async def _rows(read: ReadResults, found: _Found) -> AsyncGenerator[Document, None]:
    wanted, page = found.wanted, found.first
    task: Document = {"stage": wanted.stage, "index": wanted.index}
    if found.problem is not None:
        if found.problem.status != 404:  # Else nothing is kept of it.
            yield task | {"problem": found.problem.document}
        return
    if page is None:
        return
    if page.too_many:
        text = f"it has left more than {ENTRIES_MAX} files and folders: have it pack them into an archive"
        yield task | {"problem": Problem(413, "too_many", text).document}
        return
    yield task | {"attempt": page.attempt, "left_out": page.left_out}
    while True:
        for entry in page.entries:
            yield task | row_of(entry)
        if not page.more:
            return
        try:
            following = await read(replace(wanted, attempt=page.attempt, after=page.entries[-1].path))
        except Problem as problem:
            yield task | {"problem": problem.document}
            return
        if not isinstance(following, Listed):
            return  # Cleared away meanwhile.
        page = following


def row_of(entry: Entry) -> Document:
    """A file, folder or link as the list has it."""
    row: Document = {"path": entry.path, "kind": entry.kind, "changed_ms": entry.changed_ms}
    if entry.kind == "file":
        row |= {"size": entry.size, "executable": entry.executable}
    if entry.kind == "link":
        row["target"] = entry.target
    return row


async def contents(read: ReadResults, wanted: WantedResults, first: FilePiece) -> AsyncGenerator[bytes, None]:
    """The file from `wanted.offset` on, as long as it was when `first` was read. Raises Problem where it has become
    shorter or has gone.
    """
    piece, at = first, first.start
    while True:
        data = piece.data[: first.size - at]
        yield data
        at += len(data)
        if at >= first.size:
            return
        following = await read(replace(wanted, attempt=first.attempt, offset=at))
        if not isinstance(following, FilePiece) or not following.data:
            raise Problem(503, "changed", f"{wanted.file} has changed while it was read")
        piece = following
