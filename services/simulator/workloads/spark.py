"""Spark event logs: each job of an application, with its stages, their order and every task's duration.

A Spark job is a job with those of its stages that ran; a stage waits for its parents among them, and one whose result
was there already is left out. A task asks for `spark.task.cpus` cores and, where the log has the executors' memory and
cores, its part of the memory. Each partition counts once, with the attempt that succeeded; the others are left out.
Jobs come as they were submitted, counted from the first. Compressed logs have to be unpacked, gzip apart.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from schemas.edge.base import TASKS_MAX
from schemas.edge.jobs import STAGES_MAX
from schemas.quantities import MIB, Vector, quantity_texts
from services.simulator.workloads.elements import foreign_row
from services.simulator.workloads.files import Damaged, read_lines
from services.simulator.workloads.source import Leave, Line, Option, Row, require, unheard, up
from services.simulator.workloads.when import Names, clean_name

OPTIONS = (
    Option("compress", Fraction, Fraction(1), "divides the time since the first job: a heavier load"),
    Option("queue", str, "", "the queue of all jobs; left out: none"),
    Option("memory", bool, True, "asks for a task's part of its executor's memory"),
)

_EVENT = re.compile(rb'"Event" *: *"([^"]*)"')
_WANTED = ("ApplicationStart", "EnvironmentUpdate", "JobStart", "JobEnd", "StageSubmitted", "StageCompleted", "TaskEnd")
_EVENTS = {f"SparkListener{name}".encode(): name for name in _WANTED}
_BYTES = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d+)([bkmgt]?)b?")


@dataclass(slots=True)
class Stage:
    """A stage of a job that has not ended: whom it waits for, and the durations of its partitions."""

    parents: list[int]
    durations_ms: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Job:
    """A job that has not ended."""

    number: int
    submitted_ms: int
    stages: dict[int, Stage]


@dataclass(slots=True)
class Application:
    """What a log has told so far. Holds the jobs that have not ended, no others."""

    name: str = "spark"
    user: str = ""
    demand: Vector = field(default_factory=lambda: {"cpu": 1000})
    first_ms: int | None = None
    jobs: dict[int, Job] = field(default_factory=dict)


def convert(
    path: str,
    *,
    compress: Fraction = Fraction(1),
    queue: str = "",
    memory: bool = True,
    leave: Leave = unheard,
) -> Iterator[Line]:
    """Workload lines in the order in which jobs ended. Raises ValueError for a wrong option, Damaged for a bad line."""
    require("compress", compress > 0, "above 0", compress)

    def lines() -> Iterator[Line]:
        application = Application()
        names = Names()
        for kind, row in _events(path):
            job = _learn(application, kind, row, memory, leave)
            line = _line(application, job, names, compress, leave) if job else None
            if line:
                yield line | ({"queue": queue} if queue else {})
        if application.jobs:
            leave("had not ended with the log", count=len(application.jobs))

    return lines()


def _events(path: str) -> Iterator[tuple[str, Row]]:
    """The events that matter; of all others the name alone is read."""
    some = False
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        match = _EVENT.search(line)
        if match is None:
            raise Damaged(where, "Event", "has to be there: this is no line of a Spark event log")
        some = True
        if (kind := _EVENTS.get(match[1])) is not None:
            yield kind, foreign_row(line, where)
    if not some:
        raise Damaged(path, "", "is empty")


def _learn(application: Application, kind: str, row: Row, memory: bool, leave: Leave) -> Job | None:
    """Takes in one event; returns the job that it ends."""
    match kind:
        case "ApplicationStart":
            application.name = row.text("App ID") if "App ID" in row else row.text("App Name")
            application.user = row.text("User") if "User" in row else ""
        case "EnvironmentUpdate":
            application.demand = _demand(row.row("Spark Properties"), memory)
        case "JobStart":
            _begin(application, row)
        case "StageSubmitted" | "StageCompleted":
            info = row.row("Stage Info")
            if (stage := _stage(application, info.whole("Stage ID"))) is not None and "Parent IDs" in info:
                stage.parents = info.wholes("Parent IDs")
        case "TaskEnd":
            _end_task(application, row, leave)
        case "JobEnd":
            return application.jobs.pop(row.whole("Job ID"), None)
    return None


def _begin(application: Application, row: Row) -> None:
    infos = row.rows("Stage Infos") if row.items("Stage Infos") else []
    stages = {
        info.whole("Stage ID"): Stage(info.wholes("Parent IDs") if "Parent IDs" in info else []) for info in infos
    }
    if not infos and "Stage IDs" in row:
        stages = {number: Stage([]) for number in row.wholes("Stage IDs")}
    number, submitted_ms = row.whole("Job ID"), row.whole("Submission Time")
    if application.first_ms is None:
        application.first_ms = submitted_ms
    application.jobs[number] = Job(number, submitted_ms, stages)


def _stage(application: Application, number: int) -> Stage | None:
    """The stage, of the first of the jobs that wait for it."""
    return next((job.stages[number] for job in application.jobs.values() if number in job.stages), None)


def _end_task(application: Application, row: Row, leave: Leave) -> None:
    stage = _stage(application, row.whole("Stage ID"))
    if stage is None:
        leave("of a stage whose job had ended", "attempt")
        return
    info = row.row("Task Info")
    reason = row.row("Task End Reason").text("Reason") if "Task End Reason" in row else "Success"
    if reason != "Success" or info.value("Failed") is True or info.value("Killed") is True:
        leave(f"ended in {reason}" if reason != "Success" else "failed or was killed", "attempt")
        return
    duration_ms = info.whole("Finish Time") - info.whole("Launch Time")
    if duration_ms < 0:
        raise Damaged(info.where, "Finish Time", "is before Launch Time")
    if info.whole("Index") in stage.durations_ms:
        leave("of a partition that was computed again", "attempt")
    stage.durations_ms[info.whole("Index")] = max(1, duration_ms)


def _line(application: Application, job: Job, names: Names, compress: Fraction, leave: Leave) -> Line | None:
    ran = {number: stage for number, stage in sorted(job.stages.items()) if stage.durations_ms}
    if skipped := len(job.stages) - len(ran):
        leave("without a task that succeeded: their results were there, or they failed", "stage", skipped)
    if not ran:
        leave("no task succeeded")
        return None
    if len(ran) > STAGES_MAX or any(len(stage.durations_ms) > TASKS_MAX for stage in ran.values()):
        leave(f"more than {STAGES_MAX:,} stages, or {TASKS_MAX:,} tasks of one")
        return None
    assert application.first_ms is not None, "a job began"
    line: Line = {
        "job": names.of(f"{application.name}.{job.number}"),
        "submit_ms": int(max(0, job.submitted_ms - application.first_ms) / compress),
        "stages": [
            {
                "stage": f"s{number}",
                "after": [f"s{parent}" for parent in _ancestors(stage, job.stages)],
                "demand": quantity_texts(application.demand),
                "durations_ms": [duration_ms for _, duration_ms in sorted(stage.durations_ms.items())],
            }
            for number, stage in ran.items()
        ],
    }
    return line | ({"user": clean_name(application.user)} if application.user else {})


def _ancestors(stage: Stage, stages: dict[int, Stage]) -> list[int]:
    """The nearest stages before this one that ran: through those that were skipped."""
    found: list[int] = []
    walk, seen = list(stage.parents), dict.fromkeys(stage.parents)
    while walk:
        number = walk.pop()
        if number not in stages:
            continue
        if stages[number].durations_ms:
            found.append(number)
            continue
        fresh = [parent for parent in stages[number].parents if parent not in seen]
        seen |= dict.fromkeys(fresh)
        walk += fresh
    return sorted(found)


def _demand(properties: Row, memory: bool) -> Vector:
    cpus = _setting(properties, "spark.task.cpus", 1)
    demand = {"cpu": cpus * 1000}
    if memory and "spark.executor.memory" in properties and "spark.executor.cores" in properties:
        match = _SIZE.fullmatch(properties.text("spark.executor.memory").lower())
        if match is None:
            raise Damaged(properties.where, "spark.executor.memory", "has to be an amount like 4g")
        cores = max(1, _setting(properties, "spark.executor.cores", 1))
        demand["memory"] = up(Fraction(int(match[1]) * _BYTES[match[2] or "m"] * cpus, cores) / MIB)
    gpus = properties.value("spark.task.resource.gpu.amount")
    if isinstance(gpus, str) and re.fullmatch(r"\d{1,6}(\.\d{1,6})?", gpus) and (milli := up(Fraction(gpus) * 1000)):
        demand["gpu"] = milli
    return demand


def _setting(properties: Row, name: str, default: int) -> int:
    if name not in properties:
        return default
    text = properties.text(name)
    if not text.isdigit():
        raise Damaged(properties.where, name, f"has to be a whole number, is {text[:40]!r}")
    return int(text)
