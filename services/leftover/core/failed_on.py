"""On which nodes a task that is tried again has failed: its next attempt goes to another node, where one could run it.

Counted are failures that may be the task's own (COUNTED): what is lost with its node says nothing of that node's like.
Kept by task, of a gang as a whole, until it succeeds or its job is over. Whether another node could run it is judged by
empty nodes: it rather waits for room there than fails again where it has failed; where there is none, it goes back.
"""

from typing import Final

from largesse.lifecycle.job_life import COUNTED
from schemas import PlacementRule, Stage
from schemas.placement_rules import rules_of
from schemas.tasks import TaskFailure
from services.leftover.core.job import Job
from services.leftover.core.state import State

NODES_MAX: Final = 8
"""Nodes on which a task has failed that are kept: the last ones."""


def note(state: State, job: Job, failed: TaskFailure) -> None:
    """Attempts of a live job have failed."""
    if failed.reason not in COUNTED:
        return
    at = job.graph.position[failed.stage]
    tasks = state.failed_on.setdefault(failed.job, {})
    for index in range(failed.first, failed.first + failed.count):
        nodes = tasks.setdefault(_task(job, at, index), [])
        if failed.node in nodes:
            nodes.remove(failed.node)
        nodes.append(failed.node)
        del nodes[:-NODES_MAX]


def succeeded(state: State, name: str, job: Job, at: int, first: int, count: int) -> None:
    """Tasks of a live job have ended well."""
    tasks = state.failed_on.get(name)
    if tasks is None or job.graph.stages[at].gang:
        return
    for index in range(first, first + count):
        tasks.pop(_task(job, at, index), None)
    if not tasks:
        del state.failed_on[name]


def forget(state: State, name: str) -> None:
    """The job is over."""
    state.failed_on.pop(name, None)


def parts_of(state: State, name: str, job: Job, at: int, first: int, count: int) -> list[tuple[int, int]]:
    """A run of tasks that wait, as (first, count), cut so that all tasks of a part have failed on the same nodes."""
    tasks = state.failed_on.get(name)
    if tasks is None or job.graph.stages[at].gang:
        return [(first, count)]
    found: list[tuple[int, int]] = []
    before: list[str] | None = None
    for index in range(first, first + count):
        nodes = tasks.get(_task(job, at, index), _NOWHERE)
        if nodes == before:
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((index, 1))
        before = nodes
    return found


def rules_for(state: State, name: str, job: Job, stage: Stage, index: int) -> list[PlacementRule]:
    """What placement has to know of a task beside its stage's demand: the rules of the stage, and where it has failed.
    To be read only.
    """
    rules = rules_of(name, job.queue, stage)
    tasks = state.failed_on.get(name)
    if tasks is None:
        return rules
    nodes = tasks.get(_task(job, job.graph.position[stage.stage], index))
    return [*rules, PlacementRule("", nodes=sorted(nodes))] if nodes else rules


_NOWHERE: list[str] = []


def _task(job: Job, at: int, index: int) -> str:
    return f"{at}/{0 if job.graph.stages[at].gang else index}"
