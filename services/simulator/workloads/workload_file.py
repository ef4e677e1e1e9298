"""Workload and cluster files of the contract -> jobs and nodes in base units, or the first line that is wrong.

A line that names no stages is a message of the reservations topic with a `submit_ms`; its RDL may also be text, of
which relative times count from then, all others from time 0.

Nothing is repaired or skipped: file and line, field and reason stand in the error, and nothing after it is read.
"""

import json
from collections.abc import Callable, Iterator

from schemas import (
    ReservationDeleted,
    ReservationRequested,
    ReservationUpdated,
    SeriesEnded,
    SeriesRequested,
)
from schemas.edge.read import Cluster, Malformed, read_cluster, read_input, read_workload_line, warnings_of
from schemas.edge.strict_json import loads
from schemas.jobs import JobSpec
from schemas.quantities import QUANTITY_MAX
from services.planner.rdl.document import read_document
from services.planner.rdl.faults import BadDocument
from services.planner.rdl.recurrence import occurrences, series_of, when_of
from services.planner.rdl.times import Clock, clock
from services.simulator.workloads.files import LINE_BYTES_MAX, Damaged, read_bytes, read_lines

Arrival = JobSpec | ReservationRequested | ReservationUpdated | ReservationDeleted | SeriesRequested | SeriesEnded
"""What a workload brings: jobs, and what is asked of the planner."""

FORMS = ("request", "update", "delete", "series", "end_series")
"""Of a line about a reservation."""

Warn = Callable[[str], None]
"""Told, line by line, of what is allowed and most likely not meant."""


def read_workload(
    path: str, warn: Warn | None = None, reservations: str | None = None
) -> Iterator[tuple[int, Arrival]]:
    """Submission time in ms and spec of every job, in the file's order, and what is asked of the planner; `-` is
    standard input, gzip is read as is. What stands in a file of its own, `reservations`, comes first.

    Raises Damaged for an invalid line, a job's name used twice, and a file without a job; OSError where it cannot read.
    """
    place_of: dict[str, str] = {}
    if reservations is not None:
        yield from _read_lines(reservations, warn, place_of)
    before = len(place_of)
    yield from _read_lines(path, warn, place_of)
    if len(place_of) == before:
        raise Damaged(path, "", "has no job")


def _read_lines(path: str, warn: Warn | None, place_of: dict[str, str]) -> Iterator[tuple[int, Arrival]]:
    """`place_of`: where each job was named first."""
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        try:
            document = loads(line, size_max=LINE_BYTES_MAX)
            if isinstance(document, dict) and any(form in document for form in FORMS):
                yield read_reservation_line(document)
                continue
            submit_ms, spec = read_workload_line(document)
        except Malformed as fault:
            raise Damaged(where, fault.field, fault.reason) from None
        if (first := place_of.setdefault(spec.job, where)) != where:
            place = f"line {first.removeprefix(f'{path}:')}" if first.startswith(f"{path}:") else first
            raise Damaged(where, "job", f"is the name of the job in {place} already")
        _warn(warn, where, document)
        yield submit_ms, spec


def read_reservation_line(document: dict[str, object]) -> tuple[int, Arrival]:
    """A line about a reservation. Raises Malformed."""
    submit_ms = document.get("submit_ms")
    if isinstance(submit_ms, bool) or not isinstance(submit_ms, int) or not 0 <= submit_ms <= QUANTITY_MAX:
        raise Malformed("submit_ms", "has to be a whole number of milliseconds from 0 on")
    message = {key: value for key, value in document.items() if key != "submit_ms"}
    for form in FORMS:
        asked = message.get(form)
        if not isinstance(asked, dict):
            continue
        if form == "series" and "start_s" not in asked:
            message[form] = _series(asked, submit_ms // 1000)
        elif isinstance(asked.get("rdl"), str):
            message[form] = {**asked, "rdl": _rdl(form, asked["rdl"], clock(now_s=submit_ms // 1000))}
    body = read_input("reservations", message, "simulation")
    assert isinstance(
        body, ReservationRequested | ReservationUpdated | ReservationDeleted | SeriesRequested | SeriesEnded
    )
    if isinstance(body, SeriesRequested):
        _check_comes(body)
    return submit_ms, body


def _check_comes(series: SeriesRequested) -> None:
    """Raises Malformed where its occurrences cannot be evaluated, or there are none."""
    try:
        clock(zone=series.zone)
    except ValueError as error:
        raise Malformed("series.zone", str(error)) from None
    try:
        comes = next(iter(occurrences(series.every, series.start_s, 0, series.zone)), None) is not None
    except ValueError as error:
        raise Malformed("series.every", str(error)) from None
    if not comes:
        raise Malformed("series.every", f'"{series.every}" never comes')


def _series(asked: dict[str, object], now_s: int) -> dict[str, object]:
    """A series as `largesse reserve submit --every` takes it: of a period, the window is the first occurrence, and of a
    cron expression its times count from each. Raises Malformed."""
    every, zone, rdl = asked.get("every"), asked.get("zone", "UTC"), asked.get("rdl")
    if rdl is None or isinstance(every, bool) or not isinstance(every, str | int) or not isinstance(zone, str):
        return asked  # What is wrong with it is reported where it is read.
    try:
        known = clock(now_s=now_s, zone=zone)
    except ValueError as error:
        raise Malformed("series.zone", str(error)) from None
    document = _rdl("series", rdl if isinstance(rdl, str) else json.dumps(rdl), known)
    try:
        when = when_of(str(every))
        window, start_s = series_of(document, when, known)
    except ValueError as error:
        raise Malformed("series.every", str(error)) from None
    return {**asked, "every": when, "rdl": window, "start_s": start_s}


def _rdl(form: str, text: str, known: Clock) -> object:
    try:
        return read_document(text, known)
    except BadDocument as fault:
        raise Malformed(f"{form}.rdl", str(fault)) from None


def read_cluster_file(path: str, warn: Warn | None = None) -> Cluster:
    """Nodes, queue tree and knobs of a cluster file. Raises Damaged, and OSError where it cannot read."""
    try:
        document = loads(read_bytes(path), size_max=LINE_BYTES_MAX)
        cluster = read_cluster(document)
    except Malformed as fault:
        raise Damaged(path, fault.field, fault.reason) from None
    _warn(warn, path, document)
    return cluster


def _warn(warn: Warn | None, where: str, document: dict[str, object]) -> None:
    if warn is not None:
        for warning in warnings_of(document):
            warn(f"{where}: {warning}")
