"""Kubernetes Jobs, also of Kueue and Volcano: manifests in YAML or JSON, or what `kubectl get jobs -o yaml` prints.

A Job is a job of one stage with a task for each completion; a task asks for what the containers of its pod ask for
together, extended resources such as nvidia.com/gpu as gpu; node selectors become labels. Finished Jobs have their own
times; others come at 0 and last --duration-ms. Of a Volcano Job each task group is a stage, and a gang where all of its
pods have to start together. With --no-times the lines are job files for `largesse submit`, with
command, arguments and plain variables of a pod's only container. Images, volumes and the like are left out.
"""

from collections.abc import Hashable, Iterator

import yaml

from schemas.edge.base import TASKS_MAX
from schemas.quantities import quantity_texts
from services.simulator.workloads.files import Damaged, read_bytes
from services.simulator.workloads.pods import command_of, demand_of, labels_of, leave_pod
from services.simulator.workloads.source import Leave, Line, Option, Row, require, unheard
from services.simulator.workloads.volcano import is_volcano, line_of, pods_of
from services.simulator.workloads.when import Names, clean_name, epoch_s

QUEUES = ("none", "namespace", "kueue", "volcano")

OPTIONS = (
    Option("duration_ms", int, 60_000, "how long each task of a Job lasts that has not finished"),
    Option("times", bool, True, "writes submit_ms and duration_ms; without it the lines are job files for submit"),
    Option(
        "queue", str, "none", "names queues by namespace, Kueue's label or Volcano's field; none: no queues", QUEUES
    ),
)

_KUEUE = "kueue.x-k8s.io/queue-name"
_SPEC_KEPT = ("parallelism", "completions", "completionMode", "template", "backoffLimitPerIndex", "maxFailedIndexes",
              "backoffLimit", "selector", "manualSelector", "suspend", "ttlSecondsAfterFinished",
              "podReplacementPolicy")  # fmt: skip


class _Loader(yaml.BaseLoader):
    """Every scalar stays the text that it is, and no key stands twice. In Python, as libyaml's parser overflows the
    stack on deep nesting."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen: dict[str, None] = {}
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} stands twice", key.start_mark)
            seen[str(key.value)] = None
        return super().construct_mapping(node, deep)


def convert(
    path: str,
    *,
    duration_ms: int = 60_000,
    times: bool = True,
    queue: str = "none",
    leave: Leave = unheard,
) -> Iterator[Line]:
    """Workload lines in the file's order. Raises ValueError for a wrong option and Damaged for a damaged manifest."""
    require("duration_ms", duration_ms >= 1, "at least 1", duration_ms)
    require("queue", queue in QUEUES, f"one of {', '.join(QUEUES)}", queue)

    def lines() -> Iterator[Line]:
        names = Names()
        jobs = [job for job in _manifests(path) if _is_job(job, leave)]
        made = [at_s for job in jobs if (at_s := _made_s(job)) is not None]
        for job in jobs:
            line = line_of(job, queue, leave) if is_volcano(job) else _line(job, queue, leave)
            if line is None:
                continue
            if times:
                made_s = _made_s(job)
                line["submit_ms"] = 0 if made_s is None else (made_s - min(made)) * 1000
                for stage in line["stages"]:
                    stage["duration_ms"] = (0 if is_volcano(job) else _duration_ms(job)) or duration_ms
            else:
                for stage, pod in zip(line["stages"], _pods(job), strict=True):
                    stage |= command_of(pod, leave)
                if not all("command" in stage for stage in line["stages"]):
                    leave("without a command that could be started")
                    continue
            yield line | {"job": names.of(line["job"])}

    return lines()


def _manifests(path: str) -> Iterator[Row]:
    """Every object of the file's documents; of a list, its items."""
    try:
        for number, document in enumerate(yaml.load_all(read_bytes(path), Loader=_Loader)):
            if document == "" or document is None:
                continue
            row = Row(document, f"{path}: document {number + 1}", cells=True)
            if "items" in row and row.text("kind").endswith("List"):
                yield from row.rows("items") if row.items("items") else []
            else:
                yield row
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else path
        raise Damaged(where, "", f"is no YAML: {getattr(error, 'problem', None) or error}") from None
    except RecursionError:
        raise Damaged(path, "", "is nested too deep") from None


def _is_job(row: Row, leave: Leave) -> bool:
    kind = row.text("kind")
    if kind != "Job":
        leave(f"of kind {kind[:40]}", "object")
    return kind == "Job"


def _line(job: Row, queue: str, leave: Leave) -> Line | None:
    meta, spec = job.row("metadata"), job.row("spec")
    pod = spec.row("template").row("spec")
    parallelism = spec.whole("parallelism") if "parallelism" in spec else 1
    tasks = spec.whole("completions") if "completions" in spec else parallelism
    if not tasks or not parallelism:
        leave("no completions, or none at a time")
        return None
    if tasks > TASKS_MAX:
        raise Damaged(spec.where, "completions", f"has to be at most {TASKS_MAX}, is {tasks}")
    stage: Line = {"stage": "pod", "after": [], "tasks": tasks, "demand": quantity_texts(demand_of(pod, leave))}
    if parallelism < tasks:
        stage["running_max"] = parallelism
    if "backoffLimitPerIndex" in spec:
        stage["retries"] = spec.whole("backoffLimitPerIndex", most=1_000)
        stage |= _failures_of(spec, tasks, leave)
    elif "backoffLimit" in spec and spec.whole("backoffLimit"):
        leave("counts failures of the whole Job, retries those of a task", "backoffLimit")
    stage |= labels_of(pod)
    for name in spec.names():
        if name not in _SPEC_KEPT:
            leave(name[:60], "field")
    leave_pod(pod, leave)
    line: Line = {"job": meta.text("name" if "name" in meta else "generateName").rstrip("-")}
    line |= _queue(meta, queue)
    return line | {"stages": [stage]}


def _failures_of(spec: Row, tasks: int, leave: Leave) -> Line:
    """Where failures count by index, a failed one ends no others until more than `maxFailedIndexes` have failed."""
    if "maxFailedIndexes" not in spec:
        return {"on_failure": "continue"}
    leave("a Job with failed indexes fails, a stage with at most max_failed succeeds", "maxFailedIndexes")
    return {"max_failed": min(tasks, spec.whole("maxFailedIndexes"))}


def _pods(job: Row) -> list[Row]:
    """What the tasks of each stage run."""
    return pods_of(job) if is_volcano(job) else [job.row("spec").row("template").row("spec")]


def _queue(meta: Row, queue: str) -> Line:
    if queue == "namespace" and "namespace" in meta:
        return {"queue": clean_name(meta.text("namespace"))}
    if queue == "kueue" and "labels" in meta and _KUEUE in meta.row("labels"):
        return {"queue": clean_name(meta.row("labels").text(_KUEUE))}
    return {}


def _made_s(job: Row) -> int | None:
    return _time(job.row("metadata"), "creationTimestamp")


def _duration_ms(job: Row) -> int | None:
    """Of a task of a Job that has finished: its span, shared by the rounds in which its tasks ran."""
    status = job.row("status") if job.value("status") else None
    begun_s, ended_s = (_time(status, name) if status else None for name in ("startTime", "completionTime"))
    if begun_s is None or ended_s is None or ended_s < begun_s:
        return None
    spec = job.row("spec")
    parallelism = spec.whole("parallelism", 1) if "parallelism" in spec else 1
    tasks = spec.whole("completions", 1) if "completions" in spec else parallelism
    return max(1, (ended_s - begun_s) * 1000 // -(-tasks // min(parallelism, tasks)))


def _time(row: Row, name: str) -> int | None:
    if name not in row or row.text(name) == "null":
        return None
    seconds = epoch_s(row.text(name))
    if seconds is None:
        raise Damaged(row.where, name, f"has to be a date and time, is {row.text(name)[:40]!r}")
    return seconds
