"""A job's graph of stages and how far it has come. Shared by every core that follows jobs."""

from collections.abc import Callable
from dataclasses import fields, replace
from operator import attrgetter
from typing import Final

from largesse.lifecycle.state import Graph, Progress
from schemas.estimates import duration_ms
from schemas.jobs import Axis, JobSpec, Stage

SHAPES_STAGES_MAX: Final = 16_384
"""Graphs are cached, and shared by equal jobs, until they have more stages than this together; the oldest are evicted
first."""

RUN_BY = ("durations_ms", "command", "env", "cwd", "true_demand", "array", "matrix", "secrets", "grace_ms", "container")
"""Fields of a stage that say how its tasks run, and that no core reads."""

_Shape = tuple[tuple[object, ...], ...]
_read: Callable[[Stage], tuple[object, ...]] = attrgetter(*[f.name for f in fields(Stage) if f.name not in RUN_BY])

_SPEC_FIELDS = [f.name for f in fields(JobSpec)]
_STAGES = _SPEC_FIELDS.index("stages")
_read_spec: Callable[[JobSpec], tuple[object, ...]] = attrgetter(*_SPEC_FIELDS)
_new_spec: Callable[..., JobSpec] = JobSpec

_shapes: dict[_Shape, Graph] = {}
_stages_kept = 0

_last: list[tuple[JobSpec, Graph]] = []
"""The spec of the last call, with its graph: the cores of one process fold each admission one after the other."""


def graph_of(spec: JobSpec) -> Graph:
    """The graph of an admitted job, whose stage names are unique and whose parents exist. It is immutable: jobs alike
    share one. Its stages hold what a scheduler goes by; commands, environments and true durations are in the spec.
    """
    global _stages_kept
    if _last and _last[0][0] is spec:
        return _last[0][1]
    shape = tuple([_shape(stage) for stage in spec.stages])
    graph = _shapes.get(shape)
    if graph is None:
        graph = _shapes[shape] = _graph_of([_bare(stage) for stage in spec.stages])
        _stages_kept += len(shape)
        while _stages_kept > SHAPES_STAGES_MAX and len(_shapes) > 1:
            oldest = next(iter(_shapes))
            del _shapes[oldest]
            _stages_kept -= len(oldest)
    _last[:] = [(spec, graph)]
    return graph


def _shape(stage: Stage) -> tuple[object, ...]:
    """A hashable key of everything that `_bare` keeps."""
    return tuple([_frozen(value) for value in _read(stage)])


def _frozen(value: object) -> object:
    if isinstance(value, dict):
        return tuple(value.items())
    return tuple(value) if isinstance(value, list) else value


_NO_TIMES: list[int] = []
_NO_WORDS: list[str] = []
_NO_ENV: dict[str, str] = {}
_NO_AMOUNTS: dict[str, int] = {}
_NO_AXES: list[Axis] = []
_NO_SECRETS: dict[str, str] = {}


def _bare(stage: Stage) -> Stage:
    """A stage without the fields that no core reads."""
    return replace(
        stage,
        durations_ms=_NO_TIMES,
        command=_NO_WORDS,
        env=_NO_ENV,
        cwd=None,
        true_demand=_NO_AMOUNTS,
        array="",
        matrix=_NO_AXES,
        secrets=_NO_SECRETS,
        grace_ms=None,
        container=None,
    )


def lean(spec: JobSpec, graph: Graph) -> JobSpec:
    """An equal spec, perhaps the same, that shares with the graph and so with jobs alike what they have in common."""
    stages, shared, is_bare = graph.stages, True, True
    for at, stage in enumerate(spec.stages):
        shared = shared and stage.demand is stages[at].demand
        is_bare = is_bare and _is_bare(stage)
    if shared:
        return spec
    if not is_bare:
        stages = [_with_rest(bare, stage) for bare, stage in zip(stages, spec.stages, strict=True)]
    values = list(_read_spec(spec))
    values[_STAGES] = stages
    return _new_spec(*values)  # As `replace` does, which takes three times as long.


def _is_bare(stage: Stage) -> bool:
    """Whether a stage has nothing that a graph leaves out."""
    told = stage.command or stage.env or stage.array or stage.matrix or stage.secrets
    if told or stage.durations_ms or stage.true_demand:
        return False
    return stage.cwd is None and stage.grace_ms is None and stage.container is None


def _with_rest(bare: Stage, stage: Stage) -> Stage:
    return replace(
        bare,
        durations_ms=stage.durations_ms or _NO_TIMES,
        command=stage.command or _NO_WORDS,
        env=stage.env or _NO_ENV,
        cwd=stage.cwd,
        true_demand=stage.true_demand or _NO_AMOUNTS,
        array=stage.array,
        matrix=stage.matrix or _NO_AXES,
        secrets=stage.secrets or _NO_SECRETS,
        grace_ms=stage.grace_ms,
        container=stage.container,
    )


def _graph_of(stages: list[Stage]) -> Graph:
    position = {stage.stage: i for i, stage in enumerate(stages)}
    children: list[list[int]] = [[] for _ in stages]
    for i, stage in enumerate(stages):
        for parent in stage.after:
            children[position[parent]].append(i)
    parents = [len(stage.after) for stage in stages]
    roots = [i for i, count in enumerate(parents) if count == 0]
    return Graph(stages, position, children, [stage.tasks for stage in stages], parents, roots)


def progress_of(graph: Graph) -> Progress:
    """The progress of a job with nothing ended. Shared by all such jobs, which are many: see `own`."""
    untouched: Progress | None = graph.untouched
    if untouched is None:
        untouched = graph.untouched = Progress(graph.tasks, graph.parents)
    return untouched


def resumed(graph: Graph, kept: list[str]) -> Progress:
    """The progress of a job that comes again, with stages that stay as they were."""
    progress = progress_of(graph)
    for name in kept:
        at = graph.position[name]
        progress = own(graph, progress)
        end_tasks(graph, progress, at, graph.tasks[at])
    return progress


def own(graph: Graph, progress: Progress) -> Progress:
    """A copy of a shared progress, for a job that is about to change it."""
    if progress is not graph.untouched:
        return progress
    return Progress(graph.tasks.copy(), graph.parents.copy() if len(graph.tasks) > 1 else graph.parents)


def end_tasks(graph: Graph, progress: Progress, at: int, count: int) -> list[int]:
    """`count` tasks of stage `at` have succeeded: positions of the stages that may run from now on. The progress is the
    job's `own`.
    """
    assert progress is not graph.untouched, "it is shared with other jobs"
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


def skip_after(graph: Graph, progress: Progress, at: int) -> None:
    """Stage `at` has failed: the stages that come after it, directly or not, have nothing left to do."""
    to_skip = graph.children[at].copy()
    for child in to_skip:
        if progress.left[child]:
            progress.left[child] = 0
            to_skip += graph.children[child]


def critical_path_ms(graph: Graph) -> int:
    """How long a job takes at least, by the estimates of its stages: the longest sum of run times along its graph.
    A stage without an estimate counts as `duration_ms` has it, one with a `running_max` as often as it takes waves.
    """
    begins, parents = [0] * len(graph.stages), graph.parents.copy()
    longest, order = 0, graph.roots.copy()
    for at in order:
        stage = graph.stages[at]
        end = begins[at] + waves_of(stage, stage.tasks) * duration_ms(stage.estimate_ms, 0, 0)
        longest = max(longest, end)
        for child in graph.children[at]:
            begins[child] = max(begins[child], end)
            parents[child] -= 1
            if not parents[child]:
                order.append(child)
    return longest


def waves_of(stage: Stage, tasks: int) -> int:
    """How many waves of tasks so many of a stage take at least, one after the other: more than one where it has a
    `running_max`.
    """
    return 1 if stage.running_max is None or not tasks else -(-tasks // stage.width)
