"""SenseTime's Helios jobs of 2020 (`cluster_log.csv`): GPU jobs under Slurm, by virtual cluster.

A job is a gang of as many tasks as it had nodes, each with its part of the cores and GPUs, rounded up; it lasts as long
as it ran, however it ended. Virtual clusters are queues. Jobs that never ran, or asked for nothing, are left out.
"""

from collections.abc import Iterator
from fractions import Fraction

from schemas.quantities import Vector, quantity_texts
from services.simulator.workloads.source import Leave, Line, Option, Row, require, table_rows, unheard
from services.simulator.workloads.when import NEVER, START, Names, check_start, clean_name, start_of, submit_ms, time_of

OPTIONS = (
    START,
    Option("compress", Fraction, Fraction(1), "divides the time since the start: a heavier load"),
    Option("queues", bool, True, "makes a queue of each virtual cluster"),
    Option("gang", bool, True, "all tasks of a job start together"),
)

_NEEDED = ("job_id", "gpu_num", "cpu_num", "node_num", "submit_time", "start_time", "end_time")
_GPU_MILLI = 1000


def convert(
    path: str,
    *,
    start: str = "",
    compress: Fraction = Fraction(1),
    queues: bool = True,
    gang: bool = True,
    leave: Leave = unheard,
) -> Iterator[Line]:
    """Workload lines in the log's order. Raises ValueError for a wrong option and Damaged for a damaged line."""
    check_start(start, path)
    require("compress", compress > 0, "above 0", compress)

    def lines() -> Iterator[Line]:
        first_s = start_of(start, (at_s for row in _rows(path) if (at_s := time_of(row, "submit_time")) is not None))
        names = Names()
        for row in _rows(path):
            seconds, demand = _seconds(row), _demand(row)
            at_ms = submit_ms(time_of(row, "submit_time"), first_s, compress, leave)
            if at_ms is None:
                continue
            if seconds is None or seconds < 0:
                leave("never ran" if seconds is None else "ended before they began")
            elif not demand:
                leave("asked for neither cores nor GPUs")
            else:
                stage: Line = {"stage": "run", "after": [], "tasks": _nodes(row), "demand": quantity_texts(demand)}
                line: Line = {
                    "job": names.of(row.text("job_id")),
                    "submit_ms": at_ms,
                    "stages": [stage | {"duration_ms": max(1, seconds * 1000), "gang": gang}],
                }
                if queues and "vc" in row:
                    line["queue"] = clean_name(row.text("vc"))
                yield line | ({"user": row.text("user")} if "user" in row else {})

    return lines()


def _rows(path: str) -> Iterator[Row]:
    return table_rows(path, ",", needed=_NEEDED)


def _nodes(row: Row) -> int:
    return max(1, row.whole("node_num"))


def _seconds(row: Row) -> int | None:
    """How long the job ran: as the log says, or from its beginning to its end."""
    begun_s, ended_s = time_of(row, "start_time"), time_of(row, "end_time")
    if begun_s is None or ended_s is None:
        return None
    if "duration" in row and row.text("duration") not in NEVER:
        return row.whole("duration")
    return ended_s - begun_s


def _demand(row: Row) -> Vector:
    """Of a task: its part of the cores and the GPUs."""
    nodes = _nodes(row)
    parts = {"cpu": -(-row.whole("cpu_num") * 1000 // nodes), "gpu": -(-row.whole("gpu_num") // nodes) * _GPU_MILLI}
    return {kind: amount for kind, amount in parts.items() if amount}
