"""Jobs of Volcano (`batch.volcano.sh`): a stage for each group of tasks, a gang where all of a group start together."""

from schemas.edge.base import TASKS_MAX
from schemas.quantities import quantity_texts
from services.simulator.workloads.files import Damaged
from services.simulator.workloads.pods import demand_of, labels_of, leave_pod
from services.simulator.workloads.source import Leave, Line, Row
from services.simulator.workloads.when import Names, clean_name

_SPEC_KEPT = ("minAvailable", "tasks", "queue", "schedulerName", "ttlSecondsAfterFinished", "maxRetry", "plugins",
              "policies")  # fmt: skip
_TASK_KEPT = ("name", "replicas", "minAvailable", "template", "maxRetry", "dependsOn", "policies")


def is_volcano(job: Row) -> bool:
    """Whether a Job is Volcano's."""
    return "apiVersion" in job and job.text("apiVersion").startswith("batch.volcano.sh/")


def pods_of(job: Row) -> list[Row]:
    """The pod of each group of tasks that has any."""
    return [group.row("template").row("spec") for group in _groups(job)]


def line_of(job: Row, queue: str, leave: Leave) -> Line | None:
    """One job without times and commands; None where it has no tasks."""
    meta, spec = job.row("metadata"), job.row("spec")
    groups = _groups(job)
    if not groups:
        leave("no tasks")
        return None
    names = Names()
    together = _together(spec, groups, leave)
    stages = [_stage(group, names, together, leave) for group in groups]
    if together and len(groups) > 1:
        leave("of all its groups of tasks: each of them is one by itself", "gang")
    for name in spec.row("plugins").names() if spec.value("plugins") else ():
        leave(name[:60], "plugin")
    if spec.value("policies"):
        leave("of the Job", "policy", len(spec.items("policies")))
    if "maxRetry" in spec:
        leave("counts restarts of the whole Job, retries those of a task", "maxRetry")
    _leave_fields(spec, _SPEC_KEPT, leave)
    line: Line = {"job": meta.text("name" if "name" in meta else "generateName").rstrip("-")}
    if queue == "namespace" and "namespace" in meta:
        line["queue"] = clean_name(meta.text("namespace"))
    if queue == "volcano" and "queue" in spec:
        line["queue"] = clean_name(spec.text("queue"))
    return line | {"stages": stages}


def _groups(job: Row) -> list[Row]:
    return [group for group in job.row("spec").rows("tasks") if _replicas(group)]


def _replicas(group: Row) -> int:
    return group.whole("replicas", most=TASKS_MAX) if "replicas" in group else 1


def _together(spec: Row, groups: list[Row], leave: Leave) -> bool:
    """Whether all tasks of the Job have to start together, which is so where nothing else is said."""
    total = sum(map(_replicas, groups))
    if "minAvailable" not in spec:
        return total > 1
    least = spec.whole("minAvailable")
    if least > total:
        raise Damaged(spec.where, "minAvailable", f"has to be at most the number of tasks, {total}, is {least}")
    if 1 < least < total:
        leave("of a part of the tasks: all start as they find room", "gang")
    return 1 < least == total


def _stage(group: Row, names: Names, together: bool, leave: Leave) -> Line:
    """One group. Alone it is a gang where all of its own tasks have to start together."""
    tasks, pod = _replicas(group), group.row("template").row("spec")
    name = names.of(clean_name(group.text("name")) if "name" in group else "pod")
    stage: Line = {"stage": name, "after": [], "tasks": tasks, "demand": quantity_texts(demand_of(pod, leave))}
    if tasks > 1 and (together or ("minAvailable" in group and group.whole("minAvailable") == tasks)):
        stage["gang"] = True
    if "maxRetry" in group:
        stage["retries"] = group.whole("maxRetry", most=1_000)
    if "dependsOn" in group:
        leave("waits until others run, `after` until they have ended", "dependsOn")
    if group.value("policies"):
        leave("of a group of tasks", "policy", len(group.items("policies")))
    _leave_fields(group, _TASK_KEPT, leave)
    leave_pod(pod, leave)
    return stage | labels_of(pod)


def _leave_fields(row: Row, kept: tuple[str, ...], leave: Leave) -> None:
    for name in row.names():
        if name not in kept:
            leave(name[:60], "field")
