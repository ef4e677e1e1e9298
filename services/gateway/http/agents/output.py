"""Output of tasks: which agent has it, and what to answer where none can be asked.

Agents announce their addresses when they register. A writer of the topic `nodes` chooses which address is asked, but
only for one fixed path, and an answer counts only under the node's own name. Nodes over MQTT are asked by the bridges
that the gateway was told of.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from largesse.task_output import NUMBER_MAX, PIECE_BYTES_MAX, Piece, Wanted, rendered
from largesse.task_results import WantedResults
from schemas.wording import plural
from services.gateway.http.agents.asking import Unanswered, Way, ask
from services.gateway.http.problems import Problem
from services.gateway.view.places import OutputPlace, place_of
from services.gateway.view.state import State

AnyWanted = Wanted | WantedResults
T = TypeVar("T")

ReadOutput = Callable[[Wanted], Awaitable[Piece | None]]
"""The next piece of a task's output; None if there is none. Raises Problem."""


def check_task(state: State, wanted: AnyWanted) -> None:
    """Raises Problem if the job is in view and has no such task."""
    if (tasks := tasks_of(state, wanted.job)) is None:
        return
    if wanted.stage not in tasks:
        text = f'job "{wanted.job}" has no stage "{wanted.stage}"; it has {", ".join(tasks)}'
        raise Problem(404, "unknown_stage", text, "stage")
    if not 0 <= wanted.index < tasks[wanted.stage]:
        last = tasks[wanted.stage] - 1
        text = f'stage "{wanted.stage}" has {f"tasks 0 to {last}" if last else "one task, index 0"}'
        raise Problem(404, "unknown_task", text, "index")


def tasks_of(state: State, name: str) -> dict[str, int] | None:
    """How many tasks each stage of a job has; None where the job is not in view."""
    if (live := state.jobs.get(name)) is not None:
        return {stage.stage: stage.tasks for stage in live.spec.stages}
    ended = state.ended.get(name)
    return None if ended is None else {stage.stage: stage.tasks for stage in ended.stages}


WayTo = Callable[[str, str], Way | None]
"""(node, address that its agent has announced) -> where to ask for it; None: nowhere."""


async def fetch_output(state: State, wanted: Wanted, way_to: WayTo) -> Piece | None:
    """A piece of output from the agent of the node where the task ran. The job must be in view. Raises Problem."""

    async def asked(way: Way, place: OutputPlace) -> Piece | None:
        return await ask(way, place.node, replace(wanted, admitted=place.admitted))

    return await from_agent(state, wanted, "output", way_to, asked)


async def from_agent(
    state: State, wanted: AnyWanted, what: str, way_to: WayTo, asked: Callable[[Way, OutputPlace], Awaitable[T | None]]
) -> T | None:
    """What the agent of the node where a task ran answers; None: it ran nowhere yet, or nothing is kept. `what`:
    "output" or "results". Raises Problem.
    """
    place = place_of(state, wanted.job, wanted.stage, wanted.index, wanted.attempt)
    if place is None:
        return None
    node = state.nodes.get(place.node)
    if node is None:
        raise Problem(404, f"no_{what}", f'it ran on node "{place.node}", which did not come back and is forgotten')
    way = way_to(place.node, node.address)
    if way is None:
        text = f'its agent does not serve {what}: LARGESSE_METRICS_PORT is not set on "{place.node}", and no bridge is '
        text += "known that could ask it (LARGESSE_BRIDGES)"
        raise Problem(404, f"no_{what}", text, node=place.node)
    try:
        return await asked(way, place)
    except Unanswered as why:
        is_or_are = "are" if what == "results" else "is"
        state_text = "has left" if node.left else "is lost" if node.lost else "does not answer"
        text = f'its {what} {is_or_are} on node "{place.node}", which {state_text} ({way}: {why})'
        live = wanted.job in state.jobs
        raise Problem(503, "node_unreachable", text, node=place.node, live=live) from None


async def why_nothing(read: ReadOutput, wanted: Wanted) -> str:
    """Why there is no such output; for an attempt that never existed, which ones there were. Raises Problem."""
    task = f"{wanted.job}/{wanted.stage}/{wanted.index}"
    last = None if wanted.attempt is None else await read(replace(wanted, attempt=None, offset=0))
    if last is None:
        return f"there is no output of {task}: it has not started, or its output was removed"
    if wanted.attempt is not None and wanted.attempt < last.attempt:
        return f"there is no output of attempt {wanted.attempt} of {task}; the last attempt is {last.attempt}"
    return f"there is no attempt {wanted.attempt} of {task}: it has had {plural(last.attempt, 'attempt')}"


async def first_of(read: ReadOutput, wanted: Wanted, tail: int | None) -> tuple[Wanted, Piece | None]:
    """The first piece, of the last `tail` lines where that is given, and what was wanted by it. Raises Problem."""
    first = await read(wanted)
    if first is None or tail is None:
        return wanted, first
    begin = first.start if first.asked is None else first.asked
    wanted = await tail_of(read, replace(wanted, offset=begin), tail)
    return wanted, await read(wanted)


async def tail_of(read: ReadOutput, wanted: Wanted, lines: int, *, step: int = PIECE_BYTES_MAX) -> Wanted:
    """The same from where its last `lines` lines begin. What was not kept counts as nothing.

    `step`: how many bytes are asked for at once. Raises Problem.
    """
    last = await read(replace(wanted, offset=NUMBER_MAX, since_ms=None))
    if last is None:
        return wanted
    wanted = replace(wanted, attempt=last.attempt)
    at, ends = last.end, 0
    while at > wanted.offset:
        if last.cut is not None and at == last.cut[1]:
            at = last.cut[0]
        low = max(wanted.offset, at - step)
        if last.cut is not None and last.cut[0] < at:
            low = max(low, last.cut[1])
        piece = await read(replace(wanted, offset=low, since_ms=None))
        if piece is None or piece.start != low or piece.start + len(piece.data) < at:
            break  # It makes room for what is printed now, or is cleared away.
        data = piece.data[: at - low]
        end = len(data)
        while (end := data.rfind(b"\n", 0, end)) >= 0:
            # The end of the last line begins no line.
            ends += low + end + 1 < last.end
            if ends == lines:
                return replace(wanted, offset=low + end + 1, since_ms=None)
        at = low
    return replace(wanted, offset=at, since_ms=None)


async def printed(read: ReadOutput, wanted: Wanted, first: Piece) -> AsyncGenerator[bytes, None]:
    """The output, piece by piece, up to its end at the time when `first` was read. Raises Problem."""
    piece, at = first, wanted.offset if first.asked is None else first.asked
    while at < first.end and piece.data:
        text = rendered(piece, at)
        beyond = piece.start + len(piece.data) - first.end
        yield text[: len(text) - beyond] if beyond > 0 else text
        at = piece.start + len(piece.data)
        if at < first.end:
            following = await read(replace(wanted, attempt=first.attempt, offset=at, since_ms=None))
            if following is None:
                return  # Cleared away meanwhile.
            piece = following
