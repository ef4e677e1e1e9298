"""Logs in the Standard Workload Format (Parallel Workloads Archive): rigid parallel jobs.

A job is one gang: as many tasks of one core as it had processors, all at once or not at all. Known memory and requested
time are kept. Jobs that never ran are left out: runtime or processors unknown, or cancelled after no time at all; other
jobs of 0 s were shorter than the log's clock and last 1 ms.
"""

from collections.abc import Iterator
from fractions import Fraction

from schemas.quantities import quantity_texts
from services.simulator.workloads.files import Damaged, read_lines
from services.simulator.workloads.source import Leave, Line, Option, Row, require, unheard

FIELDS = (
    "job", "submit", "wait", "runtime", "processors", "cpu_time", "memory_kb", "processors_asked", "time_asked",
    "memory_kb_asked", "status", "user", "group", "application", "queue", "partition", "preceding", "think_time",
)  # fmt: skip
QUEUES = ("none", "queue", "partition", "user", "group")

OPTIONS = (
    Option("compress", Fraction, Fraction(1), "divides submit times: a heavier load"),
    Option("queue", str, "none", "names queues by this field of the log, like queue-1; none: no queues", QUEUES),
    Option("gang", bool, True, "all tasks of a job start together; without it they are independent"),
)

_UNKNOWN = -1
_CANCELLED = 5  # Of `status`.


def convert(
    path: str,
    *,
    compress: Fraction = Fraction(1),
    queue: str = "none",
    gang: bool = True,
    leave: Leave = unheard,
) -> Iterator[Line]:
    """Workload lines in the log's order. Raises ValueError for a wrong option and Damaged for a damaged line."""
    require("compress", compress > 0, "above 0", compress)
    require("queue", queue in QUEUES, f"one of {', '.join(QUEUES)}", queue)

    def lines() -> Iterator[Line]:
        for row in _rows(path):
            runtime_s = row.whole("runtime", _UNKNOWN)
            processors = _known(row, "processors", "processors_asked")
            cancelled = runtime_s == 0 and row.whole("status", _UNKNOWN) == _CANCELLED
            if runtime_s < 0 or processors is None or cancelled:
                unknown = "runtime" if runtime_s < 0 else "number of processors"
                leave("cancelled before they ran" if cancelled else f"{unknown} not known")
                continue
            line: Line = {"job": f"job-{row.whole('job', 1)}", "submit_ms": int(row.whole("submit") * 1000 / compress)}
            if queue != "none" and row.whole(queue, _UNKNOWN) >= 0:
                line["queue"] = f"{queue}-{row.whole(queue, _UNKNOWN)}"
            if row.whole("user", _UNKNOWN) >= 0:
                line["user"] = f"user-{row.whole('user')}"
            stage: Line = {"stage": "run", "after": [], "tasks": processors, "demand": _demand(row)}
            stage |= {"duration_ms": max(1, runtime_s * 1000), "gang": gang}
            if asked_s := _known(row, "time_asked"):
                stage["estimate_ms"] = asked_s * 1000
            yield line | {"stages": [stage]}

    return lines()


def _rows(path: str) -> Iterator[Row]:
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        cells = line.decode("latin-1").split()  # Comments hold people's names.
        if cells[0].startswith(";"):
            continue
        if len(cells) != len(FIELDS):
            raise Damaged(where, "", f"has to have {len(FIELDS)} fields, has {len(cells)}")
        yield Row(dict(zip(FIELDS, cells, strict=True)), where, cells=True)


def _known(row: Row, *names: str) -> int | None:
    """The first of the fields that is known and above 0."""
    return next((value for name in names if (value := row.whole(name, _UNKNOWN)) > 0), None)


def _demand(row: Row) -> Line:
    """One core, and the memory in use or asked for, KB a processor in the log."""
    memory_kb = _known(row, "memory_kb_asked", "memory_kb")
    return quantity_texts({"cpu": 1000} | ({"memory": -(-memory_kb // 1024)} if memory_kb else {}))
