"""On which nodes tasks ran, whose agents keep their output."""

from dataclasses import dataclass

from services.gateway.view.jobs import LiveJob, StageUse
from services.gateway.view.state import PLACES_KEPT_MAX, State, note
from services.gateway.view.used import use_text


@dataclass(frozen=True, slots=True)
class OutputPlace:
    """A node, and the seq of the job's admission, which distinguishes it from an earlier job of the same name."""

    node: str
    admitted: int


def keep_places(state: State, name: str, places: list[list[str]], used: list[StageUse]) -> None:
    """A job has ended; where its tasks ran, and what they used, is remembered for a while."""
    state.places[name] = places
    state.used_by[name] = [use_text(each) for each in used]
    state.places_kept += sum(len(tasks) for tasks in places)
    while state.places_kept > PLACES_KEPT_MAX:
        forget_places(state, next(iter(state.places)))


def forget_places(state: State, name: str) -> None:
    """The ended job has left the view, or there are too many."""
    state.places_kept -= sum(len(tasks) for tasks in state.places.pop(name, ()))
    if state.used_by.pop(name, None) is not None:
        note(state, "jobs", name)


def place(places: list[str], first: int, count: int, node: str) -> None:
    """Tasks of a stage were granted to a node. The list is as long as the highest index that was ever granted."""
    end = first + count
    if len(places) < end:
        places.extend([""] * (end - len(places)))
    places[first:end] = [node] * count


def move(nodes: dict[str, int], node: str, tasks: int) -> None:
    """Adds `tasks`, which may be negative, to the count of a node; a node without tasks is left out."""
    nodes[node] = nodes.get(node, 0) + tasks
    if not nodes[node]:
        del nodes[node]


def indexes_of(state: State, job: LiveJob, at: int) -> dict[str, list[int]]:
    """Indexes of the tasks of a stage by node. Takes time in proportion to the highest index ever granted."""
    stage = job.spec.stages[at]
    found: dict[str, list[int]] = {}
    if not job.nodes[at]:
        return found
    for index in range(len(job.places[at])):
        key = f"{job.spec.job}/{stage.stage}/{index}"
        hold = state.holds.get(key)
        if hold is not None:
            found.setdefault(hold.node, []).append(index)
        for copy in state.copies.get(key, ()):
            found.setdefault(copy.node, []).append(index)
    return found


def admitted_of(state: State, name: str, stage: str) -> int | None:
    """The seq of the admission by which a stage of a job ran last; None where the job is not in view, or has no such
    stage."""
    live, ended = state.jobs.get(name), state.ended.get(name)
    if live is not None:
        at = live.graph.position.get(stage)
        return None if at is None else live.kept.get(at, live.admitted)
    if ended is None:
        return None
    at = next((at for at, each in enumerate(ended.stages) if each.stage == stage), None)
    return None if at is None else ended.kept.get(at, ended.admitted)


def place_of(state: State, name: str, stage: str, index: int, attempt: int | None) -> OutputPlace | None:
    """Where an attempt of a task ran, by default the last; None where it never did, or that is not known any more.

    The job has to be in view, and to have that task. Of an attempt that is neither the last, nor a copy that runs, nor
    among the failures that are shown, the last one's node is as good as any.
    """
    live = state.jobs.get(name)
    if live is not None:
        admitted, failures, places = live.admitted, live.failures, live.places
        at, kept = live.graph.position[stage], live.kept
    else:
        ended = state.ended[name]
        admitted, failures, places = ended.admitted, ended.failures, state.places.get(name, [])
        at, kept = next(at for at, each in enumerate(ended.stages) if each.stage == stage), ended.kept
    if at in kept:
        admitted, failures = kept[at], []
    for copy in state.copies.get(f"{name}/{stage}/{index}", ()):
        if copy.attempt == attempt:
            return OutputPlace(copy.node, admitted)
    for failed in reversed(failures):
        if (failed.stage, failed.index, failed.attempt) == (stage, index, attempt):
            return OutputPlace(failed.node, admitted)
    node = places[at][index] if places and index < len(places[at]) else ""
    return OutputPlace(node, admitted) if node else None
