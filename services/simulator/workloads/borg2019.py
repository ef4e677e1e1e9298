"""Google's Borg cells of May 2019: the table `instance_events` as JSON lines or CSV, in order of time or not.

A collection of tasks is a job; its instances with one request are a stage. It is submitted with its first instance, and
a task lasts as long as its last run, whatever ended it: earlier runs were evicted or failed. Requests are fractions of
the largest machine, so --machine-cores and --machine-memory-mib say what that has; both defaults are ours, Google names
neither. Left out are alloc sets, instances that never ran, had begun before the trace, or had not ended with it.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from schemas.edge.base import TASKS_MAX
from schemas.edge.jobs import STAGES_MAX
from schemas.quantities import QUANTITY_MAX, Vector, quantity_texts
from services.simulator.workloads.elements import foreign_row
from services.simulator.workloads.files import Damaged, read_lines
from services.simulator.workloads.source import Leave, Line, Option, Row, nearest, require, unheard, up

OPTIONS = (
    Option("machine_cores", int, 64, "cores of the largest machine, of which requests are fractions"),
    Option("machine_memory_mib", int, 262_144, "memory of the largest machine, MiB"),
    Option("compress", Fraction, Fraction(1), "divides the time since the first submission: a heavier load"),
    Option("priorities", bool, True, "makes a queue of each tier: free, best-effort, mid, production, monitoring"),
)

INSTANCES_MAX = 4_000_000
"""Instances of one file: events come in any order, so all are held until its end. One day of a cell has fewer."""

_TYPES = ("SUBMIT", "QUEUE", "ENABLE", "SCHEDULE", "EVICT", "FAIL", "FINISH", "KILL", "LOST", "UPDATE_PENDING",
          "UPDATE_RUNNING")  # fmt: skip
_SUBMIT, _SCHEDULE, _ENDS = 0, 3, (4, 5, 6, 7, 8)
_TIERS = ((99, "free"), (115, "best-effort"), (119, "mid"), (359, "production"))
_ALLOC_SET = ("1", "ALLOC_SET")
_PART = re.compile(r"'(cpus|memory)': *([0-9.eE+-]+)")
_NUMBER = re.compile(r"[+-]?\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,2})?")


@dataclass(slots=True)
class Instance:
    """One task of a collection: its request in fractions of a machine, and its events that matter, in microseconds."""

    request: tuple[Fraction, Fraction] | None = None
    submitted_us: int | None = None
    starts_us: list[int] = field(default_factory=list)
    ends_us: list[int] = field(default_factory=list)
    priority: int = 0


Collections = dict[str, dict[int, Instance]]


def convert(
    path: str,
    *,
    machine_cores: int = 64,
    machine_memory_mib: int = 262_144,
    compress: Fraction = Fraction(1),
    priorities: bool = True,
    leave: Leave = unheard,
) -> Iterator[Line]:
    """Workload lines by time of submission. Raises ValueError for a wrong option and Damaged for a damaged event."""
    require("machine_cores", machine_cores >= 1, "at least 1", machine_cores)
    require("machine_memory_mib", machine_memory_mib >= 1, "at least 1", machine_memory_mib)
    require("compress", compress > 0, "above 0", compress)

    def lines() -> Iterator[Line]:
        collections = _collected(path, leave)
        kept: list[tuple[int, str, Line]] = []
        for name, instances in collections.items():
            stages = _stages(instances, machine_cores, machine_memory_mib, leave)
            if not stages:
                leave("no instance of known length")
                continue
            if len(stages) > STAGES_MAX or any(len(stage["durations_ms"]) > TASKS_MAX for stage in stages):
                leave(f"more than {STAGES_MAX:,} kinds of instances, or {TASKS_MAX:,} of one")
                continue
            submitted_us = min(one.submitted_us for one in instances.values() if one.submitted_us)
            line: Line = {"job": f"c-{name}", "submit_ms": 0, "stages": stages}
            if priorities:
                line["queue"] = _tier(max(one.priority for one in instances.values()))
            kept.append((submitted_us, name, line))
        kept.sort(key=lambda found: found[:2])
        for submitted_us, _, line in kept:
            yield line | {"submit_ms": int(Fraction(submitted_us - kept[0][0], 1000) / compress)}

    return lines()


def _collected(path: str, leave: Leave) -> Collections:
    collections: Collections = {}
    alloc_sets: dict[str, None] = {}
    count = 0
    for row in _rows(path):
        name = str(_whole(row, "collection_id"))
        if "collection_type" in row and str(row.value("collection_type")) in _ALLOC_SET:
            alloc_sets[name] = None
            continue
        instances = collections.setdefault(name, {})
        index = _whole(row, "instance_index")
        instance = instances.get(index)
        if instance is None:
            count += 1
            if count > INSTANCES_MAX:
                raise Damaged(row.where, "", f"is beyond {INSTANCES_MAX:,} instances: cut the table by time")
            instance = instances[index] = Instance()
        _learn(instance, row)
    if alloc_sets:
        leave("hold room for other collections and run nothing", "alloc set", len(alloc_sets))
    return collections


def _learn(instance: Instance, row: Row) -> None:
    at_us, kind = _whole(row, "time"), _kind(row)
    if kind == _SUBMIT:
        instance.submitted_us = at_us if instance.submitted_us is None else min(at_us, instance.submitted_us)
    elif kind == _SCHEDULE:
        instance.starts_us.append(at_us)
    elif kind in _ENDS:
        instance.ends_us.append(at_us)
    if "priority" in row:
        instance.priority = _whole(row, "priority")
    request = _request(row)
    if request is not None and (instance.request is None or kind == _SUBMIT):
        instance.request = request


def _stages(instances: dict[int, Instance], cores: int, memory_mib: int, leave: Leave) -> list[Line]:
    found: dict[tuple[Fraction, Fraction], list[int]] = {}
    for _, instance in sorted(instances.items()):
        duration_ms = _duration_ms(instance, leave)
        if duration_ms is None:
            continue
        if instance.request is None:
            leave("without a request", "instance")
            continue
        found.setdefault(instance.request, []).append(duration_ms)
    stages: list[Line] = []
    for number, ((cpus, memory), durations) in enumerate(found.items()):
        demand: Vector = {"cpu": max(1, up(cpus * cores * 1000))}
        if mib := up(memory * memory_mib):
            demand["memory"] = mib
        stages.append({
            "stage": f"run-{number + 1}" if len(found) > 1 else "run",
            "after": [], "demand": quantity_texts(demand), "durations_ms": durations,
        })  # fmt: skip
    return stages


def _duration_ms(instance: Instance, leave: Leave) -> int | None:
    """The length of the last run; None where it is not known."""
    if not instance.submitted_us or 0 in instance.starts_us:
        leave("submitted before the trace began", "instance")
    elif not instance.starts_us:
        leave("never ran", "instance")
    elif not (ends := [end for end in instance.ends_us if end >= max(instance.starts_us)]):
        leave("had not ended with the trace", "instance")
    else:
        if runs := len(instance.starts_us) - 1:
            leave("earlier ones of instances that ran again", "run", runs)
        return max(1, nearest(Fraction(min(ends) - max(instance.starts_us), 1000)))
    return None


def _tier(priority: int) -> str:
    return next((name for most, name in _TIERS if priority <= most), "monitoring")


def _rows(path: str) -> Iterator[Row]:
    """Events of JSON lines, or of a table whose first line names its columns."""
    lines = read_lines(path)
    first = next(lines, None)
    if first is None:
        raise Damaged(path, "", "is empty")
    if first[1].lstrip().startswith(b"{"):
        yield foreign_row(first[1], f"{path}:{first[0]}")
        for number, line in lines:
            yield foreign_row(line, f"{path}:{number}")
        return
    columns = next(csv.reader([first[1].decode("utf-8", "replace")]))
    if missing := [name for name in ("time", "type", "collection_id", "instance_index") if name not in columns]:
        said = f"has to name the columns of the table, or be JSON; missing: {', '.join(missing)}"
        raise Damaged(f"{path}:{first[0]}", "", said)
    for number, line in lines:
        cells = next(csv.reader([line.decode("utf-8", "replace")]))
        if len(cells) != len(columns):
            raise Damaged(f"{path}:{number}", "", f"has to have {len(columns)} columns, has {len(cells)}")
        yield Row(dict(zip(columns, cells, strict=True)), f"{path}:{number}")


def _exact(row: Row, name: str) -> Fraction:
    """A number, which BigQuery writes as text where it is a long one."""
    text = str(row.value(name)) if name in row else ""
    try:
        number = Fraction(Decimal(text)) if _NUMBER.fullmatch(text) else None
    except InvalidOperation:
        number = None
    if number is None or number < 0:
        raise Damaged(row.where, name, f"has to be a number of at least 0, is {text[:40]!r}")
    return number


def _whole(row: Row, name: str) -> int:
    value = row.value(name)
    if type(value) is int and value >= 0:
        return value
    if isinstance(value, str) and len(value) < len(str(QUANTITY_MAX)) and value.isascii() and value.isdigit():
        return int(value)  # As nearly all are.
    number = _exact(row, name)
    if number.denominator != 1:
        raise Damaged(row.where, name, f"has to be a whole number, is {row.value(name)}")
    return number.numerator


def _kind(row: Row) -> int:
    kind = str(row.value("type")) if "type" in row else ""
    if kind in _TYPES:
        return _TYPES.index(kind)
    if not kind.isdigit() or int(kind) >= len(_TYPES):
        raise Damaged(row.where, "type", f"has to be from 0 to 10, or one of {', '.join(_TYPES)}, is {kind[:40]!r}")
    return int(kind)


def _request(row: Row) -> tuple[Fraction, Fraction] | None:
    """Cores and memory as fractions of a machine; None where the event has none."""
    if "resource_request" in row:
        value = row.value("resource_request")
        if isinstance(value, str):
            value = {name: Decimal(number) for name, number in _PART.findall(value) if _NUMBER.fullmatch(number)}
        inner = Row(value, f"{row.where}: resource_request")
        return _pair(inner, "cpus", "memory")
    for prefix in ("resource_request.", "resource_request_", ""):
        if f"{prefix}cpus" in row.names():
            return _pair(row, f"{prefix}cpus", f"{prefix}memory")
    return None


def _pair(row: Row, cpus: str, memory: str) -> tuple[Fraction, Fraction] | None:
    if cpus not in row and memory not in row:
        return None
    return (_exact(row, cpus) if cpus in row else Fraction(0), _exact(row, memory) if memory in row else Fraction(0))
