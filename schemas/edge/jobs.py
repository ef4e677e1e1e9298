"""The jobs topic and the workload file: job specs as people write them, made into normalised specs.

A stage says what a task lasts (simulated: `duration_ms` or `durations_ms`) or what it runs (`command`), one of them.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from schemas.edge.base import (
    DURATION_MS_MAX,
    NO_NUL_PATTERN,
    QUEUE_TEXT_PATTERN,
    TASKS_MAX,
    Amounts,
    DurationMs,
    Input,
    LabelKey,
    Labels,
    Malformed,
    Name,
    NewName,
    Tasks,
    Text,
    Whole,
    asked_for,
    at_key,
    author_of,
    joined,
    shown,
    sorted_map,
)
from schemas.edge.containers import ContainerInput, container_of, labels_with
from schemas.edge.failures import MaxFailed, most_failed
from schemas.edge.retries import RULES_MAX, RetryInput, rules_of
from schemas.edge.short_forms import ArrayText, EnvName, EnvValue, Matrix, Secrets, array_of, check_variable, matrix_of
from schemas.edge.stage_graph import check_graph, no_stage
from schemas.edge.validated import validated
from schemas.jobs import (
    AntiAffinity,
    Axis,
    DependencyOn,
    JobCancelled,
    JobChanged,
    JobDependency,
    JobRerun,
    JobSpec,
    OnFailure,
    OnUnmet,
    Revocable,
    Spread,
    Stage,
)
from schemas.policy import JOB_TASKS_MAX
from schemas.quantities import QUANTITY_MAX, Vector
from schemas.queue_tree import QUEUE_DEFAULT
from schemas.wording import plural

STAGES_MAX = 1_000
RETRIES_MAX = 1_000
AFTER_JOBS_MAX = 100
GRACE_MS_MAX = 24 * 3_600 * 1_000
PRIORITY_MAX = 1_000
COMMAND_MAX = 1_024  # Words of a command line.
COMMAND_WORD_MAX = 32_768  # Characters of one; the kernel takes 128 KiB.
ENV_MAX = 256
CWD_MAX = 4_096
SEGMENT_MAX = 63  # Characters of a queue's own name.
QUEUE_DEPTH_MAX = 16
WARNINGS_MAX = 20
CORES_MEANT_MAX = 256  # A larger bare number of cores or GPUs was most likely meant in thousandths.
MIB_MEANT_MAX = 1 << 16  # A larger number was hardly meant in MiB.

ATOM_PATH_PATTERN = r"^([0-9]{1,4}(\.[0-9]{1,4})*)?$"
ATOM_PATH_MAX = 60  # Characters: as deep as a request may be nested.

QueuePath = Annotated[str, Field(max_length=QUEUE_DEPTH_MAX * (SEGMENT_MAX + 1), pattern=QUEUE_TEXT_PATTERN)]
Priority = Annotated[int, Field(ge=-PRIORITY_MAX, le=PRIORITY_MAX)]
Word = Annotated[str, Field(min_length=1, max_length=COMMAND_WORD_MAX, pattern=NO_NUL_PATTERN)]
Durations = Annotated[list[DurationMs], Field(min_length=1, max_length=TASKS_MAX, fail_fast=True)]


class AntiAffinityInput(Input):
    """At most one task on a node: of the stage, or of all stages with the same `group` in jobs of the same queue."""

    group: Name | None = None
    required: bool = True


class SpreadInput(Input):
    """Running tasks of the stage are spread evenly over the values of a node label."""

    label: LabelKey
    max_skew: Annotated[int, Field(ge=1, le=TASKS_MAX)] = 1
    required: bool = True


class StageSubmission(Input):
    """Tasks alike. Needs `demand`, and one of `duration_ms`, `durations_ms` (one a task) and `command`. `needs` is
    `after` in short, `array` says `tasks` and `running_max` (`"0-99%8"`), `matrix` says `tasks`.

    null means left out.
    """

    stage: Name
    demand: Amounts
    after: Annotated[list[Name], Field(max_length=STAGES_MAX)] = []
    tasks: Tasks | None = None
    duration_ms: DurationMs | None = None
    durations_ms: Durations | None = None
    estimate_ms: DurationMs | None = None
    estimate_demand: Amounts | None = None
    gang: bool = False
    retries: Annotated[int, Field(ge=0, le=RETRIES_MAX)] = 0
    timeout_ms: Annotated[int, Field(ge=1, le=DURATION_MS_MAX)] | None = None
    labels: Labels = {}
    prefer: Labels = {}
    command: Annotated[list[Word], Field(min_length=1, max_length=COMMAND_MAX)] | None = None
    env: Annotated[dict[EnvName, EnvValue], Field(max_length=ENV_MAX)] = {}
    cwd: Annotated[str, Field(min_length=1, max_length=CWD_MAX, pattern=NO_NUL_PATTERN)] | None = None
    locality_wait_ms: DurationMs | None = None
    anti_affinity: AntiAffinityInput | None = None
    spread: SpreadInput | None = None
    speculative: bool = True
    max_failed: MaxFailed = None
    on_failure: OnFailure = "fail"
    running_max: Annotated[int, Field(ge=1, le=TASKS_MAX)] | None = None
    inputs: Annotated[list[Name], Field(max_length=STAGES_MAX)] = []
    needs: Annotated[list[Name], Field(max_length=STAGES_MAX)] = []
    array: ArrayText | None = None
    matrix: Matrix | None = None
    secrets: Secrets = {}
    grace_ms: Annotated[int, Field(ge=0, le=GRACE_MS_MAX)] | None = None
    retry: Annotated[list[RetryInput], Field(max_length=RULES_MAX)] = []
    container: ContainerInput | None = None


class DependencyInput(Input):
    """A job that has to end before this one starts."""

    job: Name
    on: DependencyOn = "success"


class JobSubmission(Input):
    """A job spec. Without `job` the cell makes the name; `queue` is a path without `root`, `default` where left out."""

    job: NewName | None = None
    queue: QueuePath | None = None
    submit_ms: Whole | None = None
    priority: Priority = 0
    user: Text = ""
    stages: Annotated[list[StageSubmission], Field(min_length=1, max_length=STAGES_MAX)]
    reservation: Name | None = None
    altruism_permille: Annotated[int, Field(ge=0, le=1_000)] | None = None
    reservation_atom: Annotated[str, Field(max_length=ATOM_PATH_MAX, pattern=ATOM_PATH_PATTERN)] = ""
    revocable: Revocable = "auto"
    hold: bool = False
    rerun: bool = False
    from_stage: Name | None = None
    after_jobs: Annotated[list[DependencyInput], Field(max_length=AFTER_JOBS_MAX)] = []
    on_unmet: OnUnmet = "cancel"


class WorkloadLine(JobSubmission):
    """One line of a workload file: a job spec that says its name and when it comes."""

    job: NewName
    submit_ms: Whole


class JobCancellation(Input):
    """A user asks for a job's end; with `if_unstarted` only if no attempt of it was ever granted, and only of the job
    whose admission has the seq `admitted`, where that is said. `moved_to`: the cell that it goes to.
    """

    cancel: Name
    if_unstarted: bool = False
    admitted: Annotated[int, Field(ge=1, le=QUANTITY_MAX)] | None = None
    moved_to: Name | None = None


class JobRouting(Input):
    """A router sends a job, which has a name, to this cell: it may be admitted up to log time `before_ms`."""

    route: JobSubmission
    before_ms: Whole


@dataclass(slots=True)
class RoutedJob:
    """A job that a router has sent, as it was read."""

    spec: JobSpec
    before_ms: int


class JobPatch(Input):
    """What a user changes of a live job; what is left out stays as it is."""

    hold: bool | None = None
    priority: Priority | None = None
    queue: QueuePath | None = None


class JobRerunRequest(Input):
    """Which part of a job that has ended runs again: a stage and what comes after it; left out: all of it."""

    from_stage: Name | None = None


class JobChange(JobPatch):
    """A user holds a live job, releases it, or changes its priority or its queue; what is left out stays as it is."""

    change: Name


def read_job(document: object, author: str) -> JobSpec | RoutedJob | JobRerun | JobCancelled | JobChanged:
    """A message of the jobs topic. Raises Malformed."""
    if isinstance(document, dict) and "cancel" in document:
        return _cancellation(validated(JobCancellation, document), author)
    if isinstance(document, dict) and "route" in document:
        return _routed(validated(JobRouting, document))
    if isinstance(document, dict) and "change" in document:
        return _change(validated(JobChange, document), author)
    submitted = validated(JobSubmission, document)
    if submitted.rerun or submitted.from_stage is not None:
        return _rerun(submitted)
    return spec_of(submitted)


def _cancellation(asked: JobCancellation, author: str) -> JobCancelled:
    for field in ("admitted", "moved_to"):
        if getattr(asked, field) is not None and not asked.if_unstarted:
            raise Malformed(field, 'is for a job that has not started: write "if_unstarted": true, too')
    more = asked.if_unstarted, asked.admitted or 0, asked.moved_to or ""
    return JobCancelled(asked.cancel, author_of(author), *more)


def _routed(asked: JobRouting) -> RoutedJob:
    if asked.route.job is None:
        raise Malformed("route.job", "is missing: sent twice, it would be two jobs")
    if asked.route.rerun or asked.route.from_stage is not None:
        raise Malformed("route.rerun", "a job runs again in the cell that it has run in: send it there")
    if asked.route.after_jobs:
        raise Malformed("route.after_jobs", "names jobs of one cell: send the job there")
    try:
        return RoutedJob(spec_of(asked.route), asked.before_ms)
    except Malformed as fault:
        raise fault.under("route") from None


def _rerun(submitted: JobSubmission) -> JobRerun:
    if not submitted.rerun:
        raise Malformed("from_stage", 'is of a job that runs again: write "rerun": true, too')
    if submitted.job is None:
        raise Malformed("job", "is missing: name the job that is to run again")
    spec = spec_of(submitted)
    names = [stage.stage for stage in spec.stages]
    if submitted.from_stage is not None and submitted.from_stage not in names:
        raise Malformed("from_stage", no_stage(submitted.from_stage, names))
    return JobRerun(spec, submitted.from_stage or "")


def read_workload_line(document: object) -> tuple[int, JobSpec]:
    """When the job is submitted, in milliseconds, and the job. Raises Malformed."""
    line = validated(WorkloadLine, document)
    if line.hold:
        raise Malformed("hold", "nobody releases a job in a simulation: leave it out")
    if line.rerun or line.from_stage is not None:
        raise Malformed("rerun" if line.rerun else "from_stage", "a workload has each job once: leave it out")
    if line.after_jobs:
        raise Malformed("after_jobs", 'jobs of a workload come when "submit_ms" says: leave it out')
    for i, stage in enumerate(line.stages):
        if stage.command is not None:
            raise Malformed(
                f"stages[{i}].command", 'a workload line is simulated: write "duration_ms" or "durations_ms"'
            )
    return line.submit_ms, spec_of(line)


def _change(asked: JobChange, author: str) -> JobChanged:
    if asked.hold is None and asked.priority is None and asked.queue is None:
        raise Malformed("", 'changes nothing: write "hold" (true or false), "priority" or "queue"')
    queue = None if asked.queue is None else queue_path(asked.queue)
    return JobChanged(asked.change, asked.hold, asked.priority, queue, author=author_of(author))


def spec_of(job: JobSubmission) -> JobSpec:
    """The normalised spec. Raises Malformed."""
    stages = []
    for i, submitted in enumerate(job.stages):
        try:
            stages.append(_stage(submitted))
        except Malformed as fault:
            raise fault.under(f"stages[{i}]") from None
    check_graph(stages)
    if sum(stage.tasks for stage in stages) > JOB_TASKS_MAX:
        raise Malformed("stages", f"a job has at most {JOB_TASKS_MAX} tasks, this one has more: split it")
    queue = QUEUE_DEFAULT if job.queue is None else queue_path(job.queue)
    reserved = job.reservation, job.reservation_atom
    optional = job.altruism_permille, job.revocable
    after = _after_jobs(job)
    spec = JobSpec(job.job or "", queue, stages, job.priority, job.user, *reserved, *optional)
    spec.hold, spec.after_jobs, spec.on_unmet = job.hold, after, job.on_unmet
    return spec


def _after_jobs(job: JobSubmission) -> list[JobDependency]:
    named: dict[str, bool] = {}
    for i, after in enumerate(job.after_jobs):
        if after.job == job.job:
            raise Malformed(f"after_jobs[{i}].job", "is this job itself")
        if after.job in named:
            raise Malformed(f"after_jobs[{i}].job", f"{shown(after.job)} is named twice")
        named[after.job] = True
    return [JobDependency(after.job, after.on) for after in job.after_jobs]


def _stage(stage: StageSubmission) -> Stage:
    durations = [stage.duration_ms] if stage.duration_ms is not None else stage.durations_ms or []
    demand, true_demand = _demands(stage)
    for name in stage.env:
        check_variable(joined("env", at_key(name)), name)
    apart, spread = stage.anti_affinity, stage.spread
    array, axes, many = _many(stage)
    tasks = _tasks(stage, many)
    container = container_of(stage.container, stage.command, stage.cwd)
    return Stage(
        stage=stage.stage,
        tasks=tasks,
        demand=demand,
        after=_after(stage),
        estimate_ms=_estimate_ms(stage, durations),
        durations_ms=durations[:1]
        if durations.count(durations[0] if durations else 0) == len(durations)
        else durations,
        gang=stage.gang,
        retries=stage.retries,
        timeout_ms=stage.timeout_ms,
        labels=labels_with(sorted_map(stage.labels), container),
        prefer=sorted_map(stage.prefer),
        command=stage.command or [],
        env=sorted_map(stage.env),
        cwd=stage.cwd,
        true_demand=true_demand,
        locality_wait_ms=_locality_wait_ms(stage),
        anti_affinity=None if apart is None else AntiAffinity(apart.group or "", apart.required),
        spread=None if spread is None else Spread(spread.label, spread.max_skew, spread.required),
        speculative=stage.speculative,
        max_failed=most_failed(stage.max_failed, tasks, gang=stage.gang),
        on_failure=stage.on_failure,
        running_max=_running_max(stage, tasks),
        inputs=_inputs(stage),
        array=array,
        matrix=axes,
        secrets=_secrets(stage),
        grace_ms=_grace_ms(stage),
        retry=rules_of(stage.retry),
        container=container,
    )


def _after(stage: StageSubmission) -> list[str]:
    if stage.after and stage.needs:
        raise Malformed("needs", 'is "after" in short: use only one of them')
    return stage.after or stage.needs


def _many(stage: StageSubmission) -> tuple[str, list[Axis], int | None]:
    """What the stage keeps of its array and of its matrix, and how many tasks these say that it has."""
    if stage.array is not None:
        if stage.matrix is not None:
            raise Malformed("matrix", '"array" is given too: use only one of them')
        array, tasks, _ = array_of(stage.array)
        return array, [], tasks
    if stage.matrix is None:
        return "", [], None
    return "", *matrix_of(stage.matrix, stage.env)


def _grace_ms(stage: StageSubmission) -> int | None:
    if stage.grace_ms is not None and stage.timeout_ms is None:
        raise Malformed("grace_ms", 'needs "timeout_ms": the time after which a task is asked to end')
    return stage.grace_ms


def _secrets(stage: StageSubmission) -> dict[str, str]:
    if stage.secrets and stage.command is None:
        raise Malformed("secrets", 'needs "command": a simulated task reads nothing')
    for name in stage.secrets:
        check_variable(joined("secrets", at_key(name)), name, stage.env, stage.matrix or {})
    return sorted_map(stage.secrets)


def _running_max(stage: StageSubmission, tasks: int) -> int | None:
    most = stage.running_max
    limit = None if stage.array is None else array_of(stage.array)[2]
    if most is not None and limit is not None and most != limit:
        raise Malformed("running_max", f'is {most}, but "array" ends in %{limit}: leave one of them out')
    most = limit if most is None else most
    if most is not None and stage.gang and most < tasks:
        raise Malformed("running_max", f"is {most}, but all {tasks} tasks of a gang run together: leave it out")
    return most


def _inputs(stage: StageSubmission) -> list[str]:
    """The stages whose results the tasks find."""
    if stage.inputs and stage.command is None:
        raise Malformed("inputs", 'needs "command": a simulated task reads nothing')
    after = set(_after(stage))
    for k, name in enumerate(stage.inputs):
        if name not in after:
            raise Malformed(f"inputs[{k}]", f'{shown(name)} is not in "after": name it there, too')
        if name in stage.inputs[:k]:
            raise Malformed(f"inputs[{k}]", f"{shown(name)} is named twice")
    return stage.inputs


def _locality_wait_ms(stage: StageSubmission) -> int | None:
    if stage.locality_wait_ms and not stage.prefer:
        raise Malformed("locality_wait_ms", 'needs "prefer": the labels of the nodes that a task waits for')
    return stage.locality_wait_ms


def _tasks(stage: StageSubmission, many: int | None) -> int:
    """How many tasks the stage has, once what a task does is said exactly once. `many`: as its array or matrix says."""
    said = [field for field in ("command", "duration_ms", "durations_ms") if getattr(stage, field) is not None]
    if not said:
        raise Malformed("", 'needs "command" (what a task runs), or "duration_ms" or "durations_ms" (what it lasts)')
    if len(said) > 1:
        raise Malformed(said[1], f'"{said[0]}" is given too: use only one of them')
    if many is not None:
        field = "array" if stage.array is not None else "matrix"
        for other, count in (("tasks", stage.tasks), ("durations_ms", len(stage.durations_ms or []) or None)):
            if count is not None and count != many:
                raise Malformed(other, f'is for {plural(count, "task")}, but "{field}" has {many:,}')
        return many
    if stage.durations_ms is None:
        if stage.tasks is None:
            raise Malformed("tasks", 'is missing: write how many tasks the stage has, or "durations_ms"')
        return stage.tasks
    if stage.tasks is not None and stage.tasks != len(stage.durations_ms):
        there = plural(len(stage.durations_ms), "duration")
        raise Malformed("tasks", f'is {stage.tasks}, but durations_ms has {there}: leave it out, or say "duration_ms"')
    return len(stage.durations_ms)


def _estimate_ms(stage: StageSubmission, durations: list[int]) -> int:
    """What the scheduler is told of one task: the mean at best, never a task's own duration."""
    if stage.estimate_ms is not None:
        return stage.estimate_ms
    if durations:
        return -(-sum(durations) // len(durations))
    return stage.timeout_ms or 0


def _demands(stage: StageSubmission) -> tuple[Vector, Vector]:
    """What is asked for, and what is used in truth where the submitter says that they differ."""
    demand = asked_for(stage.demand, "demand", "a task")
    if stage.estimate_demand is None:
        return demand, {}
    estimated = asked_for(stage.estimate_demand, "estimate_demand", "a task")
    for resource in demand:
        # A task without an estimate of what it uses would run for ever.
        if resource not in estimated:
            raise Malformed(f"estimate_demand.{resource}", 'is missing: "demand" asks for it, so an estimate has to')
    return estimated, demand


def queue_path(path: str, field: str = "queue") -> str:
    segments = path.split("/")
    if segments[0] == "root":
        rest = "/".join(segments[1:])
        raise Malformed(field, f'leave "root" out: write {shown(rest) if rest else "a queue below it"}')
    if "" in segments:
        raise Malformed(
            field, f'has an empty name in it: write names joined by "/", like "ads/prod", not {shown(path)}'
        )
    if len(segments) > QUEUE_DEPTH_MAX:
        raise Malformed(field, f"is too deep: at most {QUEUE_DEPTH_MAX} names")
    for segment in segments:
        if len(segment) > SEGMENT_MAX:
            raise Malformed(field, f"{shown(segment)} is too long: at most {SEGMENT_MAX} characters a name")
    return path
