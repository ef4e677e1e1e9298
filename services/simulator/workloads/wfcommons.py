"""Scientific workflows with measured runtimes, CPU, memory and I/O: WfFormat 1.0 to 1.6, or neutral JSON lines.

Every task is a stage of its own, or, grouped, a stage is the tasks of one program at one depth of the graph; a group
asks for the most that any of its tasks used, and waits for whole groups. A task asks for its mean CPU, its memory, and
the disk bandwidth that its reads and writes came to; one core where its CPU is not known. Documents before 1.5 name
parents by task name or id and have their own names of fields, those before 1.4 other units; tasks without a runtime
last 1 ms, as others may wait for them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from schemas.edge.cycles import find_cycle
from schemas.edge.jobs import STAGES_MAX
from schemas.quantities import MIB, Vector, quantity_texts
from services.simulator.workloads.draws import arrivals_ms
from services.simulator.workloads.files import Damaged, read_lines
from services.simulator.workloads.source import Leave, Line, Option, Row, json_row, milliseconds, require, unheard, up

OPTIONS = (
    Option("group", bool, False, "makes one stage of the tasks of one program and depth"),
    Option("disk_io", bool, True, "asks for disk bandwidth: bytes read and written over the runtime"),
    Option(
        "disk_io_max", int, 4_000, "asks for at most this much, Mbit/s: a short task reads from a cache; 0: no limit"
    ),
    Option("mean_gap_ms", int, 0, "Poisson arrivals with this mean gap; 0: all at once"),
    Option("seed", int, 0, "of the arrivals"),
)

VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6")
_SPLIT = ("1.5", "1.6")  # Have what was asked for and what was run in two places.
CPU_MIN = 10  # Millicores: below one percent of a core the measurements are noise.

# Names of CPU (percent of a core), cores, memory, bytes read and written, runtime in seconds.
_DOCUMENT = ("avgCPU", "coreCount", "memoryInBytes", "readBytes", "writtenBytes", "runtimeInSeconds")
_DOCUMENT_1_4 = ("avgCPU", "cores", "memoryInBytes", "readBytes", "writtenBytes", "runtimeInSeconds")
_DOCUMENT_1_0 = ("avgCPU", "cores", "memory", "bytesRead", "bytesWritten", "runtime")
_SUFFIX = re.compile(r"_ID\d+$")
_KB = 1000  # Of the amounts before 1.4, as the format's own migration has it.
_NEUTRAL = ("avg_cpu_pct", "cores", "mem_bytes", "read_bytes", "written_bytes", "runtime_s")


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a workflow, in base units."""

    name: str
    parents: list[str]
    duration_ms: int
    demand: Vector


def convert(
    path: str,
    *,
    group: bool = False,
    disk_io: bool = True,
    disk_io_max: int = 4_000,
    mean_gap_ms: int = 0,
    seed: int = 0,
    leave: Leave = unheard,
) -> Iterator[Line]:
    """Workload lines, a workflow each. Raises ValueError for a wrong option and Damaged for a damaged file."""
    require("disk_io_max", disk_io_max >= 0, "at least 0", disk_io_max)
    require("mean_gap_ms", mean_gap_ms >= 0, "at least 0", mean_gap_ms)
    workflows = list(_workflows(path, disk_io, disk_io_max, leave))

    def lines() -> Iterator[Line]:
        arrivals = arrivals_ms(mean_gap_ms, len(workflows), seed, "wfcommons.gap")
        for (where, name, tasks), at_ms in zip(workflows, arrivals, strict=True):
            stages = _stages(tasks, where, group)
            if len(stages) > STAGES_MAX:
                more = "" if group else ": group them"
                raise Damaged(
                    where, "tasks", f"{len(stages)} stages are too many, a job has at most {STAGES_MAX}{more}"
                )
            yield {"job": name.replace("/", "_"), "submit_ms": at_ms, "stages": stages}

    return lines()


def _workflows(path: str, disk_io: bool, most: int, leave: Leave) -> Iterator[tuple[str, str, dict[str, Task]]]:
    """Where each stands, its name, its tasks by id."""
    for row in _documents(path):
        if "schemaVersion" in row:
            yield row.where, row.text("name"), _of_document(row, disk_io, most, leave)
        else:
            yield row.where, row.text("workflow"), _of_neutral(row, disk_io, most)


def _documents(path: str) -> Iterator[Row]:
    """A document a line, or one over many lines: then the first line alone is none."""
    lines = list(read_lines(path))
    if not lines:
        raise Damaged(path, "", "is empty")
    try:
        first = json_row(lines[0][1], f"{path}:{lines[0][0]}")
    except Damaged:
        yield json_row(b"".join(line for _, line in lines), path)
        return
    yield first
    for number, line in lines[1:]:
        yield json_row(line, f"{path}:{number}")


def _of_neutral(row: Row, disk_io: bool, most: int) -> dict[str, Task]:
    tasks: dict[str, Task] = {}
    for task in row.rows("tasks"):
        _add(tasks, f"t{task.whole('id')}", task, Task(
            name=task.text("name"),
            parents=[f"t{parent}" for parent in task.wholes("parents")],
            duration_ms=milliseconds(task.number("runtime_s")),
            demand=_demand(task, _NEUTRAL, disk_io, most),
        ))  # fmt: skip
    return tasks


def _of_document(row: Row, disk_io: bool, most: int, leave: Leave) -> dict[str, Task]:
    version = row.text("schemaVersion")
    if version not in VERSIONS:
        raise Damaged(row.where, "schemaVersion", f"has to be one of {', '.join(VERSIONS)}, is {version[:40]}")
    workflow = row.row("workflow")
    if version in _SPLIT:
        fields, units = _DOCUMENT, 1
        written = workflow.row("specification").rows("tasks")
        runs = {run.text("id"): run for run in workflow.row("execution").rows("tasks")}
    else:
        fields, units = (_DOCUMENT_1_4, 1) if version == "1.4" else (_DOCUMENT_1_0, _KB)
        written = workflow.rows("tasks" if "tasks" in workflow else "jobs")
        runs = None
    ids = _ids(written)
    tasks: dict[str, Task] = {}
    for task, name in zip(written, ids, strict=True):
        run = task if runs is None else runs.get(name)
        if run is None:
            raise Damaged(task.where, "id", f"{name[:40]} has no entry in workflow.execution.tasks")
        if fields[-1] not in run:
            leave("not known: their tasks last 1 ms", "runtime")
        _add(tasks, name, task, Task(
            name=_program(task),
            parents=[],
            duration_ms=milliseconds(run.number(fields[-1])) if fields[-1] in run else 1,
            demand=_demand(run, fields, disk_io, most, units),
        ))  # fmt: skip
    _join(tasks, written, ids)
    return tasks


def _program(task: Row) -> str:
    """What groups name: the task's category, or its name without the id that some writers add to it."""
    return task.text("category") if "category" in task else _SUFFIX.sub("", task.text("name")) or task.text("name")


def _ids(written: list[Row]) -> list[str]:
    """What tells the tasks apart: their ids, or their names where any has no id."""
    return [task.text("id" if all("id" in one for one in written) else "name") for task in written]


def _join(tasks: dict[str, Task], written: list[Row], ids: list[str]) -> None:
    """Fills in who waits for whom. Writers name tasks by id or by name, and some only the children."""
    named: dict[str, list[str]] = {}
    for task, name in zip(written, ids, strict=True):
        named.setdefault(task.text("name"), []).append(name)

    def found(task: Row, field: str, text: str) -> str:
        if text in tasks:
            return text
        meant = named.get(text, [])
        if len(meant) > 1:
            raise Damaged(task.where, field, f"{text[:40]} is the name of {len(meant)} tasks: ids are needed")
        return meant[0] if meant else text

    for task, name in zip(written, ids, strict=True):
        for field, downward in (("parents", False), ("children", True)):
            for text in task.texts(field) if field in task else []:
                other = found(task, field, text)
                if other not in tasks:
                    raise Damaged(task.where, field, f"{name[:40]} names {other[:40]}, which does not exist")
                child, parent = (other, name) if downward else (name, other)
                if parent not in tasks[child].parents:
                    tasks[child].parents.append(parent)


def _add(tasks: dict[str, Task], name: str, row: Row, task: Task) -> None:
    if name in tasks:
        raise Damaged(row.where, "id", "is the id of another task already")
    tasks[name] = task


def _demand(row: Row, fields: tuple[str, ...], disk_io: bool, most: int, units: int = 1) -> Vector:
    """`units`: bytes in one of memory, bytes read and written."""
    cpu, cores, memory, read, written, runtime = fields
    if cpu in row:
        demand = {"cpu": max(CPU_MIN, up(row.number(cpu) * 10))}
    else:
        demand = {"cpu": up(row.number(cores) * 1000) if cores in row else 1000}
    if memory in row and (mib := up(row.number(memory) * units / MIB)):
        demand["memory"] = mib
    moved = sum((row.number(name) for name in (read, written) if name in row), Fraction(0)) * units
    if disk_io and moved and runtime in row and (seconds := row.number(runtime)):
        mbit_s = up(moved * 8 / 1_000_000 / seconds)
        demand["disk_io"] = min(mbit_s, most) if most else mbit_s
    return demand


def _stages(tasks: dict[str, Task], where: str, group: bool) -> list[Line]:
    depths = _depths(tasks, where)
    stage_of = {
        name: f"{task.name.replace('/', '_')}.{depths[name]}" if group else name.replace("/", "_")
        for name, task in tasks.items()
    }
    stages: dict[str, Line] = {}
    for name, task in tasks.items():
        stage = stages.setdefault(
            stage_of[name], {"stage": stage_of[name], "after": [], "demand": {}, "durations_ms": []}
        )
        stage["durations_ms"].append(task.duration_ms)
        stage["after"] += [stage_of[parent] for parent in task.parents]
        stage["demand"] = {
            kind: max(task.demand.get(kind, 0), stage["demand"].get(kind, 0))
            for kind in sorted(task.demand | stage["demand"])
        }
    for stage in stages.values():
        stage["after"] = list(dict.fromkeys(stage["after"]))
        stage["demand"] = quantity_texts(stage["demand"])
    return list(stages.values())


def _depths(tasks: dict[str, Task], where: str) -> dict[str, int]:
    """How many tasks lie before each one on its longest path. Raises Damaged where the graph is none."""
    for name, task in tasks.items():
        if missing := [parent for parent in task.parents if parent not in tasks]:
            raise Damaged(where, "tasks", f"{name[:40]} waits for {missing[0][:40]}, which does not exist")
    if cycle := find_cycle({name: task.parents for name, task in tasks.items()}):
        raise Damaged(where, "tasks", f"wait for each other: {' -> '.join(cycle[:8])}")
    depths: dict[str, int] = {}
    for root in tasks:
        walk = [root]
        while walk:
            waiting = [parent for parent in tasks[walk[-1]].parents if parent not in depths]
            if waiting:
                walk += waiting
            else:
                name = walk.pop()
                depths[name] = max((depths[parent] + 1 for parent in tasks[name].parents), default=0)
    return depths
