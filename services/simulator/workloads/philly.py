"""Microsoft's Philly jobs of 2017 (`cluster_job_log`): deep learning on GPUs, by virtual cluster.

A job is a gang of as many tasks as machines held its last attempt, with the GPUs that it had on each; where those
differ, of one task a GPU. It lasts as long as all its attempts together, or its last one. Virtual clusters are queues.
The trace knows of no CPU and memory; jobs without GPUs ask for one core a machine. Jobs without an attempt that began
and ended are left out.
"""

from collections.abc import Iterator
from fractions import Fraction

from schemas.quantities import quantity_texts
from services.simulator.workloads.elements import json_elements
from services.simulator.workloads.source import Leave, Line, Option, Row, require, unheard
from services.simulator.workloads.when import START, Names, check_start, clean_name, start_of, submit_ms, time_of

ATTEMPTS = ("sum", "last")

OPTIONS = (
    START,
    Option("compress", Fraction, Fraction(1), "divides the time since the start: a heavier load"),
    Option("attempts", str, "sum", "which attempts a job lasts: all of them together, or the last", ATTEMPTS),
    Option("queues", bool, True, "makes a queue of each virtual cluster"),
    Option("gang", bool, True, "all tasks of a job start together"),
)

_GPU_MILLI = 1000


def convert(
    path: str,
    *,
    start: str = "",
    compress: Fraction = Fraction(1),
    attempts: str = "sum",
    queues: bool = True,
    gang: bool = True,
    leave: Leave = unheard,
) -> Iterator[Line]:
    """Workload lines in the log's order. Raises ValueError for a wrong option and Damaged for a damaged job."""
    check_start(start, path)
    require("compress", compress > 0, "above 0", compress)
    require("attempts", attempts in ATTEMPTS, f"one of {', '.join(ATTEMPTS)}", attempts)

    def lines() -> Iterator[Line]:
        first_s = start_of(start, (at_s for row in json_elements(path) if (at_s := _submitted(row)) is not None))
        names = Names()
        for row in json_elements(path):
            spans, at_ms = _spans(row, leave), submit_ms(_submitted(row), first_s, compress, leave)
            if at_ms is None:
                continue
            if not spans:
                leave("no attempt that began and ended")
                continue
            seconds = sum(span for span, _ in spans) if attempts == "sum" else spans[-1][0]
            stage = _stage(spans[-1][1])
            stage |= {"duration_ms": max(1, seconds * 1000), "gang": gang}
            line: Line = {
                "job": names.of(row.text("jobid")),
                "submit_ms": at_ms,
                "stages": [stage],
            }
            if queues and "vc" in row:
                line["queue"] = clean_name(row.text("vc"))
            if "user" in row:
                line["user"] = row.text("user")
            yield line

    return lines()


def _submitted(row: Row) -> int | None:
    return time_of(row, "submitted_time")


def _spans(row: Row, leave: Leave) -> list[tuple[int, list[int]]]:
    """Of each attempt that began and ended: its seconds, and the GPUs it had on each machine."""
    spans: list[tuple[int, list[int]]] = []
    for attempt in row.rows("attempts") if row.items("attempts") else []:
        begun_s, ended_s = time_of(attempt, "start_time"), time_of(attempt, "end_time")
        if begun_s is None or ended_s is None or ended_s < begun_s:
            leave("without a beginning and an end", "attempt")
            continue
        machines = [len(one.items("gpus")) for one in attempt.rows("detail")] if attempt.items("detail") else []
        spans.append((ended_s - begun_s, machines))
    return spans


def _stage(machines: list[int]) -> Line:
    stage: Line = {"stage": "train", "after": []}
    if not any(machines):
        return stage | {"tasks": max(1, len(machines)), "demand": quantity_texts({"cpu": 1000})}
    if len(set(machines)) == 1:
        return stage | {"tasks": len(machines), "demand": quantity_texts({"gpu": machines[0] * _GPU_MILLI})}
    return stage | {"tasks": sum(machines), "demand": quantity_texts({"gpu": _GPU_MILLI})}
