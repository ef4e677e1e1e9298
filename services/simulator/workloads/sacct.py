"""What `sacct --parsable2` prints of a Slurm cluster: its accounting of jobs, with the columns of any `--format`.

A job is a gang of as many tasks as it had nodes, each with its part of cores, memory and GPUs, rounded up; it lasts as
long as it ran, however it ended, and its time limit is its estimate. Needed are JobID, Submit, and Elapsed (or
ElapsedRaw, or Start and End); AllocTRES (or ReqTRES), NCPUS, NNodes, ReqMem, Timelimit, User and Partition are used
where they are there. Jobs that wait, run, or never ran are left out, and steps, which are parts of their jobs
(`sacct -X` prints none).
"""

import re
from collections.abc import Iterator
from fractions import Fraction

from schemas.edge.base import TASKS_MAX
from schemas.quantities import MIB, Vector, quantity_texts
from services.simulator.workloads.files import Damaged
from services.simulator.workloads.source import Leave, Line, Option, Row, require, table_rows, unheard, up
from services.simulator.workloads.when import (
    NEVER,
    START,
    Names,
    check_start,
    clean_name,
    span_s,
    start_of,
    submit_ms,
    time_of,
)

QUEUES = ("none", "Partition", "Account", "QOS", "User", "Group")

OPTIONS = (
    START,
    Option("compress", Fraction, Fraction(1), "divides the time since the start: a heavier load"),
    Option("queue", str, "none", "names queues by this column; none: no queues", QUEUES),
    Option("gang", bool, True, "all tasks of a job start together"),
)

_UNENDED = ("PENDING", "RUNNING", "REQUEUED", "RESIZING", "SUSPENDED", "CONFIGURING", "COMPLETING")
_SHORT = {"PD": "PENDING", "R": "RUNNING", "RQ": "REQUEUED", "RS": "RESIZING", "S": "SUSPENDED"}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)([cn]?)")
_UNITS = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_GPU_MILLI = 1000


def convert(
    path: str,
    *,
    start: str = "",
    compress: Fraction = Fraction(1),
    queue: str = "none",
    gang: bool = True,
    leave: Leave = unheard,
) -> Iterator[Line]:
    """Workload lines in the order printed. Raises ValueError for a wrong option and Damaged for a damaged line."""
    check_start(start, path)
    require("compress", compress > 0, "above 0", compress)
    require("queue", queue in QUEUES, f"one of {', '.join(QUEUES)}", queue)

    def lines() -> Iterator[Line]:
        first_s = start_of(start, (at_s for row in _rows(path) if (at_s := _submitted(row)) is not None))
        names = Names()
        for row in _rows(path):
            if "." in row.text("JobID"):
                leave("parts of jobs", "step")
                continue
            seconds = _ran_s(row, leave)
            if seconds is None:
                continue
            at_ms = submit_ms(time_of(row, "Submit"), first_s, compress, leave)
            if at_ms is None:
                continue
            tasks, demand = _shape(row)
            if tasks > TASKS_MAX:
                leave(f"more than {TASKS_MAX:,} nodes")
                continue
            stage: Line = {"stage": "run", "after": [], "tasks": tasks, "demand": quantity_texts(demand)}
            stage |= {"duration_ms": max(1, seconds * 1000), "gang": gang}
            if limit_s := _limit_s(row):
                stage["estimate_ms"] = limit_s * 1000
            line: Line = {
                "job": names.of(row.text("JobID")),
                "submit_ms": at_ms,
                "stages": [stage],
            }
            if queue in row:
                line["queue"] = clean_name(row.text(queue))
            yield line | ({"user": row.text("User")} if "User" in row else {})

    return lines()


def _rows(path: str) -> Iterator[Row]:
    for row in table_rows(path, "|", needed=("JobID", "Submit")):
        columns = row.names()
        if not {"Elapsed", "ElapsedRaw"} & set(columns) and not {"Start", "End"} <= set(columns):
            raise Damaged(
                row.where, "", "has to have a column Elapsed, ElapsedRaw, or Start and End: add it to --format"
            )
        yield row


def _submitted(row: Row) -> int | None:
    return None if "." in row.text("JobID") else time_of(row, "Submit")


def _ran_s(row: Row, leave: Leave) -> int | None:
    """How long a job ran that has ended; None where it is left out."""
    state = row.text("State").split()[0] if "State" in row else ""
    state = _SHORT.get(state, state)
    if state in _UNENDED:
        leave(f"{state.lower()} when the list was made")
        return None
    if "Start" in row.names() and time_of(row, "Start") is None:
        leave("never started")
        return None
    if "ElapsedRaw" in row:
        return row.whole("ElapsedRaw")
    if "Elapsed" in row:
        seconds = span_s(row.text("Elapsed"))
        if seconds is None:
            raise Damaged(row.where, "Elapsed", f"has to be like 1-02:03:04, is {row.text('Elapsed')[:40]!r}")
        return seconds
    begun_s, ended_s = time_of(row, "Start"), time_of(row, "End")
    if begun_s is None or ended_s is None or ended_s < begun_s:
        leave("run time not known")
        return None
    return ended_s - begun_s


def _limit_s(row: Row) -> int | None:
    """The time limit; None where there is none, as for UNLIMITED and Partition_Limit."""
    if "TimelimitRaw" in row and row.text("TimelimitRaw").isdigit():
        return row.whole("TimelimitRaw") * 60
    return span_s(row.text("Timelimit")) if "Timelimit" in row else None


def _shape(row: Row) -> tuple[int, Vector]:
    """How many tasks, one a node, and what each of them holds."""
    tres = _tres(row)
    nodes = _count(row, tres, "node", "NNodes", "AllocNodes", "ReqNodes")
    cpus = _count(row, tres, "cpu", "NCPUS", "AllocCPUS", "ReqCPUS")
    demand = {"cpu": -(-cpus * 1000 // nodes)}
    if mib := _memory_mib(row, tres, nodes, cpus):
        demand["memory"] = mib
    of_models = sum(number for name, number in tres.items() if name.startswith("gres/gpu:"))
    if gpus := int(tres.get("gres/gpu") or of_models):
        demand["gpu"] = -(-gpus // nodes) * _GPU_MILLI
    return nodes, demand


def _tres(row: Row) -> dict[str, Fraction]:
    """Trackable resources by name, memory in bytes; what was allocated, or else asked for."""
    for column in ("AllocTRES", "ReqTRES"):
        if column not in row or row.text(column) in NEVER:
            continue
        found: dict[str, Fraction] = {}
        for part in row.text(column).split(","):
            name, _, text = part.partition("=")
            if name in ("cpu", "node", "mem", "gres/gpu") or name.startswith("gres/gpu:"):
                found[name] = _amount(row, column, text)[0] if name == "mem" else _plain(row, column, text)
        return found
    return {}


def _plain(row: Row, column: str, text: str) -> Fraction:
    if not text.isdigit():
        raise Damaged(row.where, column, f"has to be like cpu=4,mem=8G,node=1, has {text[:40]!r}")
    return Fraction(int(text))


def _amount(row: Row, column: str, text: str) -> tuple[Fraction, str]:
    """Bytes, and of what: `c` a core, `n` a node, empty for the whole job."""
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise Damaged(row.where, column, f"has to be an amount like 4000M, has {text[:40]!r}")
    return Fraction(match[1]) * _UNITS[match[2]], match[3]


def _count(row: Row, tres: dict[str, Fraction], name: str, *columns: str) -> int:
    if tres.get(name):
        return int(tres[name])
    return max(1, next((row.whole(column) for column in columns if column in row), 1))


def _memory_mib(row: Row, tres: dict[str, Fraction], nodes: int, cpus: int) -> int:
    """MiB of a task."""
    if "mem" in tres:
        return up(tres["mem"] / nodes / MIB)
    if "ReqMem" not in row or row.text("ReqMem") in NEVER:
        return 0
    amount, of = _amount(row, "ReqMem", row.text("ReqMem"))
    return up(amount * {"c": Fraction(cpus, nodes), "n": Fraction(1), "": Fraction(1, nodes)}[of] / MIB)
