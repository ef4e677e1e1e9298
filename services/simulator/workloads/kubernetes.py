"""Kubernetes Jobs: manifests in YAML or JSON, or what `kubectl get jobs -o yaml` prints.

A Job is a job of one stage with a task for each completion; a task asks for what the containers of its pod ask for
together, extended resources such as nvidia.com/gpu as gpu; node selectors become labels. Finished Jobs have their own
times; others come at 0 and last --duration-ms. With --no-times the lines are job files for `largesse submit`, with
command, arguments and plain variables of a pod's only container. Images, volumes and the like are left out.
"""

from collections.abc import Hashable, Iterator
from fractions import Fraction

import yaml

from schemas.edge.base import TASKS_MAX
from schemas.quantities import Vector, add_amounts, parse_quantity, quantity_texts
from services.simulator.workloads.files import Damaged, read_bytes
from services.simulator.workloads.source import Leave, Line, Option, Row, require, unheard
from services.simulator.workloads.when import Names, clean_name, epoch_s

QUEUES = ("none", "namespace", "kueue")

OPTIONS = (
    Option("duration_ms", int, 60_000, "how long each task of a Job lasts that has not finished"),
    Option("times", bool, True, "writes submit_ms and duration_ms; without it the lines are job files for submit"),
    Option("queue", str, "none", "names queues by namespace, or by Kueue's label queue-name; none: no queues", QUEUES),
)

_GPUS = ("gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi")  # Whose names do not end in /gpu.
_OURS = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "disk"} | dict.fromkeys(_GPUS, "gpu")
_KUEUE = "kueue.x-k8s.io/queue-name"
_SPEC_KEPT = ("parallelism", "completions", "completionMode", "template", "backoffLimitPerIndex", "maxFailedIndexes",
              "backoffLimit", "selector", "manualSelector", "suspend", "ttlSecondsAfterFinished",
              "podReplacementPolicy")  # fmt: skip
_POD_KEPT = ("containers", "initContainers", "nodeSelector", "restartPolicy", "terminationGracePeriodSeconds",
             "dnsPolicy", "schedulerName", "securityContext")  # fmt: skip
_CONTAINER_KEPT = ("name", "image", "resources", "command", "args", "env", "workingDir", "imagePullPolicy",
                   "terminationMessagePath", "terminationMessagePolicy")  # fmt: skip


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
            line = _line(job, queue, leave)
            if line is None:
                continue
            (stage,) = line["stages"]
            if times:
                made_s = _made_s(job)
                line["submit_ms"] = 0 if made_s is None else (made_s - min(made)) * 1000
                stage["duration_ms"] = _duration_ms(job) or duration_ms
            else:
                stage |= _command(job.row("spec").row("template").row("spec"), leave)
                if "command" not in stage:
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
    stage: Line = {"stage": "pod", "after": [], "tasks": tasks, "demand": quantity_texts(_demand(pod, leave))}
    if parallelism < tasks:
        stage["running_max"] = parallelism
    if "backoffLimitPerIndex" in spec:
        stage["retries"] = spec.whole("backoffLimitPerIndex", most=1_000)
        stage |= _failures_of(spec, tasks, leave)
    elif "backoffLimit" in spec and spec.whole("backoffLimit"):
        leave("counts failures of the whole Job, retries those of a task", "backoffLimit")
    if "nodeSelector" in pod:
        selector = pod.row("nodeSelector")
        stage["labels"] = {name: selector.text(name) for name in selector.names()}
    containers = [(container, _CONTAINER_KEPT) for container in pod.rows("containers")]
    for row, kept in ((spec, _SPEC_KEPT), (pod, _POD_KEPT), *containers):
        for name in row.names():
            if name not in kept:
                leave(name[:60], "field")
    line: Line = {"job": meta.text("name" if "name" in meta else "generateName").rstrip("-")}
    line |= _queue(meta, queue)
    return line | {"stages": [stage]}


def _failures_of(spec: Row, tasks: int, leave: Leave) -> Line:
    """Where failures count by index, a failed one ends no others until more than `maxFailedIndexes` have failed."""
    if "maxFailedIndexes" not in spec:
        return {"on_failure": "continue"}
    leave("a Job with failed indexes fails, a stage with at most max_failed succeeds", "maxFailedIndexes")
    return {"max_failed": min(tasks, spec.whole("maxFailedIndexes"))}


def _queue(meta: Row, queue: str) -> Line:
    if queue == "namespace" and "namespace" in meta:
        return {"queue": clean_name(meta.text("namespace"))}
    if queue == "kueue" and "labels" in meta and _KUEUE in meta.row("labels"):
        return {"queue": clean_name(meta.row("labels").text(_KUEUE))}
    return {}


def _demand(pod: Row, leave: Leave) -> Vector:
    """What a pod holds: the sum of its containers, or its largest init container where that is more."""
    demand: Vector = {}
    for container in pod.rows("containers"):
        add_amounts(demand, _of_container(container, leave), 1)
    for container in pod.rows("initContainers") if "initContainers" in pod else []:
        for kind, amount in _of_container(container, leave).items():
            demand[kind] = max(amount, demand.get(kind, 0))
    if not demand:
        leave("no requests: taken as one core", "request")
    return demand or {"cpu": 1000}


def _of_container(container: Row, leave: Leave) -> Vector:
    demand: Vector = {}
    if "resources" not in container:
        return demand
    resources = container.row("resources")
    amounts: dict[str, tuple[Row, str]] = {}
    for field in ("limits", "requests"):  # What is not requested is requested as its limit.
        if field in resources:
            inner = resources.row(field)
            amounts |= {name: (inner, inner.text(name)) for name in inner.names()}
    for name, (inner, text) in amounts.items():
        kind = "gpu" if name.endswith("/gpu") else _OURS.get(name)
        if kind is None:
            leave(f"of {name[:60]}", "request")
            continue
        try:
            amount = _quantity(kind, text)
        except ValueError as fault:
            raise Damaged(inner.where, name, str(fault)) from None
        if amount:
            demand[kind] = demand.get(kind, 0) + amount
    return demand


def _quantity(kind: str, text: str) -> int:
    """Base units. Kubernetes takes exponents, and small amounts of bytes that ours take for a mistake."""
    if text.replace(".", "", 1).isdigit() and kind in ("memory", "disk"):
        return -(-Fraction(text) // (1 << 20))
    base, _, power = text.lower().partition("e")
    if power.lstrip("+-").isdigit() and base.replace(".", "", 1).isdigit() and len(power) < 4:
        return _quantity(kind, str(int(Fraction(base) * Fraction(10) ** int(power))))
    return parse_quantity(kind, text, round_up=True)


def _command(pod: Row, leave: Leave) -> Line:
    """The command of a pod's only container, its variables and folder."""
    containers = pod.rows("containers")
    if len(containers) > 1:
        leave("of pods with several containers", "command", len(containers))
        return {}
    (container,) = containers
    if "image" in container:
        leave("tasks are started as they are", "image")
    found: Line = {}
    if words := [word for field in ("command", "args") if field in container for word in container.texts(field)]:
        if "command" in container:
            found["command"] = words
        else:
            leave("without a command, which the image has", "argument", len(words))
    env: dict[str, str] = {}
    for variable in container.rows("env") if container.value("env") else []:
        if "valueFrom" in variable:
            leave("from the cluster", "variable")
        else:
            env[variable.text("name")] = str(variable.value("value") or "")
    if env:
        found["env"] = env
    return found | ({"cwd": container.text("workingDir")} if "workingDir" in container else {})


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
