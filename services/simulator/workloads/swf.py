"""Logs in the Standard Workload Format (Parallel Workloads Archive): rigid parallel jobs.

A job is one gang: as many tasks of one core as it had processors, all at once or not at all. Known memory and requested
time are kept. Jobs that never ran are left out: runtime or processors unknown, or cancelled after no time at all; other
jobs of 0 s were shorter than the log's clock and last 1 ms. Logs are read as they are found: columns beyond the 18th,
comments after `;` or `#` anywhere, a line that names the columns, blank fields between tabs, lines in any order. Where
submissions are dates (seconds since 1970), time 0 is the earliest one.
"""

from collections.abc import Iterator
from fractions import Fraction

from schemas.edge.base import TASKS_MAX
from schemas.quantities import QUANTITY_MAX, quantity_texts
from services.simulator.workloads.files import Damaged, read_lines
from services.simulator.workloads.source import Leave, Line, Option, Row, nearest, require, unheard, up
from services.simulator.workloads.when import Names

FIELDS = (
    "job", "submit", "wait", "runtime", "processors", "cpu_time", "memory_kb", "processors_asked", "time_asked",
    "memory_kb_asked", "status", "user", "group", "application", "queue", "partition", "preceding", "think_time",
)  # fmt: skip
QUEUES = ("none", "queue", "partition", "user", "group")
MEMORY = ("processor", "job", "none")

OPTIONS = (
    Option("compress", Fraction, Fraction(1), "divides submit times: a heavier load"),
    Option("queue", str, "none", "names queues by this field of the log, like queue-1; none: no queues", QUEUES),
    Option("gang", bool, True, "all tasks of a job start together; without it they are independent"),
    Option("memory", str, "processor", "whose memory the log gives: some give a whole job's; none: ignored", MEMORY),
    Option("start_s", int, -1, "time 0 in the log's seconds; -1: the log's own 0, or the first job if it has a date"),
)

_UNKNOWN = -1
_CANCELLED = 5  # Of `status`.
_PARTIAL = (
    2,
    3,
    4,
)  # Of `status`: parts of a job that was checkpointed or swapped out; the whole has a line of its own.
_DATE_S = 10**8  # From here on seconds are counted from 1970: no log is three years long before its first job.
_LEAST = -QUANTITY_MAX


def convert(
    path: str,
    *,
    compress: Fraction = Fraction(1),
    queue: str = "none",
    gang: bool = True,
    memory: str = "processor",
    start_s: int = -1,
    leave: Leave = unheard,
) -> Iterator[Line]:
    """Workload lines in the log's order. Raises ValueError for a wrong option and Damaged for a damaged line."""
    require("compress", compress > 0, "above 0", compress)
    require("queue", queue in QUEUES, f"one of {', '.join(QUEUES)}", queue)
    require("memory", memory in MEMORY, f"one of {', '.join(MEMORY)}", memory)
    require("start_s", start_s >= -1, "at least -1", start_s)

    def lines() -> Iterator[Line]:
        names = Names()
        first = None if start_s < 0 else Fraction(start_s)
        for row in _rows(path, leave):
            if first is None:
                first = _start(path, row.number("submit", _LEAST))
            line = _line(row, queue, leave)
            if line is None:
                continue
            since_s = row.number("submit", _LEAST) - first
            if since_s < 0:
                leave(f"submitted before second {nearest(first):,}")
                continue
            stage = line["stages"][0]
            stage["demand"] = _demand(row, memory, stage["tasks"])
            stage["gang"] = gang
            if asked_s := _known(row, "time_asked"):
                stage["estimate_ms"] = nearest(asked_s * 1000)
            yield line | {"job": names.of(line["job"]), "submit_ms": int(since_s * 1000 / compress)}

    return lines()


def _line(row: Row, queue: str, leave: Leave) -> Line | None:
    """The job of a line as far as it says who it is and how long it ran; None where it is left out."""
    runtime_s, status = row.number("runtime", _LEAST), row.number("status", _LEAST)
    processors = _known(row, "processors", "processors_asked")
    if status in _PARTIAL:
        leave("parts of jobs that have a line as a whole")
    elif runtime_s < 0:
        leave("runtime not known")
    elif processors is None:
        leave("number of processors not known")
    elif runtime_s == 0 and status == _CANCELLED:
        leave("cancelled before they ran")
    elif processors > TASKS_MAX:
        leave(f"more than {TASKS_MAX:,} processors")
    else:
        if processors.denominator != 1:
            raise Damaged(row.where, "processors", f"has to be a whole number, is {float(processors)}")
        line: Line = {"job": f"job-{row.whole('job')}", "submit_ms": 0}
        if queue != "none" and row.number(queue, _LEAST) >= 0:
            line["queue"] = f"{queue}-{row.whole(queue)}"
        if row.number("user", _LEAST) >= 0:
            line["user"] = f"user-{row.whole('user')}"
        stage: Line = {"stage": "run", "after": [], "tasks": processors.numerator, "demand": {}}
        return line | {"stages": [stage | {"duration_ms": max(1, nearest(runtime_s * 1000))}]}
    return None


def _start(path: str, first_s: Fraction) -> Fraction:
    """Time 0: the log's own, or the earliest submission where the first one is a date, in a second reading."""
    if first_s < _DATE_S:
        return Fraction(0)
    require("start_s", path != "-", "given where dates come from standard input", "missing")
    return min(row.number("submit", _LEAST) for row in _rows(path, unheard))


def _rows(path: str, leave: Leave) -> Iterator[Row]:
    further = 0
    named = False
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        text = line.decode("latin-1").split(";")[0].split("#")[0]  # Comments hold people's names.
        cells = _cells(text)
        if not cells:
            continue
        if not named and _is_header(cells):
            named = True
            continue
        named = True
        if len(cells) < len(FIELDS):
            raise Damaged(where, "", f"has to have {len(FIELDS)} fields, has {len(cells)}")
        if len(cells) > len(FIELDS) + further:
            leave(f"beyond the {len(FIELDS)}th", "column", len(cells) - len(FIELDS) - further)
            further = len(cells) - len(FIELDS)
        yield Row({name: cell or str(_UNKNOWN) for name, cell in zip(FIELDS, cells, strict=False)}, where, cells=True)


def _cells(text: str) -> list[str]:
    """The fields of a line: between tabs, where that gives enough of them, as only then one may be blank."""
    tabbed = [cell.strip() for cell in text.rstrip("\r\n").split("\t")]
    one_each = len(tabbed) >= len(FIELDS) and not any(len(cell.split()) > 1 for cell in tabbed)
    return tabbed if one_each else text.split()


def _is_header(cells: list[str]) -> bool:
    return not any(character.isdigit() for character in "".join(cells[: len(FIELDS)]))


def _known(row: Row, *names: str) -> Fraction | None:
    """The first of the fields that is known and above 0."""
    return next((value for name in names if (value := row.number(name, _LEAST)) > 0), None)


def _demand(row: Row, memory: str, tasks: int) -> Line:
    """One core, and the memory in use or asked for, KB a processor or a job in the log."""
    memory_kb = _known(row, "memory_kb_asked", "memory_kb") if memory != "none" else None
    if memory_kb is None:
        return quantity_texts({"cpu": 1000})
    return quantity_texts({"cpu": 1000, "memory": up(memory_kb / (tasks if memory == "job" else 1) / 1024)})
