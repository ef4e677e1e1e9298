"""A job's graph of stages and how far it has come. Shared words of every core that follows jobs."""

from functools import lru_cache

from largesse.lifecycle.state import Graph, Progress
from schemas.estimates import duration_ms
from schemas.jobs import JobSpec

LONE_KEPT = 1_024
"""Shapes of jobs with one stage that are remembered."""

_last: list[tuple[JobSpec, Graph]] = []
"""The spec asked for last, with its graph: the cores of one process meet each admission one after the other."""


def graph_of(spec: JobSpec) -> Graph:
    """The graph of an admitted job, whose stage names are unique and whose parents exist. Nobody changes it."""
    if _last and _last[0][0] is spec:
        return _last[0][1]
    graph = _graph_of(spec)
    _last[:] = [(spec, graph)]
    return graph


def _graph_of(spec: JobSpec) -> Graph:
    if len(spec.stages) == 1:
        return Graph(spec.stages, *_lone(spec.stages[0].stage, spec.stages[0].tasks))
    position = {stage.stage: i for i, stage in enumerate(spec.stages)}
    children: list[list[int]] = [[] for _ in spec.stages]
    for i, stage in enumerate(spec.stages):
        for parent in stage.after:
            children[position[parent]].append(i)
    parents = [len(stage.after) for stage in spec.stages]
    roots = [i for i, count in enumerate(parents) if count == 0]
    return Graph(spec.stages, position, children, [stage.tasks for stage in spec.stages], parents, roots)


@lru_cache(LONE_KEPT)
def _lone(stage: str, tasks: int) -> tuple[dict[str, int], list[list[int]], list[int], list[int], list[int]]:
    """What follows the stages in the graph of a job with one stage: jobs of one shape share it."""
    return {stage: 0}, [[]], [tasks], [0], [0]


def progress_of(graph: Graph) -> Progress:
    """Nothing has ended yet. Without edges nobody counts parents down, so those stay the graph's."""
    return Progress(graph.tasks.copy(), graph.parents.copy() if len(graph.tasks) > 1 else graph.parents)


def end_tasks(graph: Graph, progress: Progress, at: int, count: int) -> list[int]:
    """`count` tasks of stage `at` have succeeded: positions of the stages that may run from now on."""
    left = progress.left[at] = progress.left[at] - count
    assert left >= 0, f"{graph.stages[at].stage}: more tasks ended than it has"
    if left:
        return []
    ready = []
    for child in graph.children[at]:
        progress.parents[child] -= 1
        if progress.parents[child] == 0:
            ready.append(child)
    return ready


def critical_path_ms(graph: Graph) -> int:
    """How long a job takes at least, by what it was told of its stages: the longest sum of run times along its graph.
    A stage of which nothing was told counts as `duration_ms` has it.
    """
    begins, parents = [0] * len(graph.stages), graph.parents.copy()
    longest, order = 0, graph.roots.copy()
    for at in order:
        end = begins[at] + duration_ms(graph.stages[at].estimate_ms, 0, 0)
        longest = max(longest, end)
        for child in graph.children[at]:
            begins[child] = max(begins[child], end)
            parents[child] -= 1
            if not parents[child]:
                order.append(child)
    return longest
