"""Workload and cluster files of the contract -> jobs and nodes in base units, or the first line that is wrong.

A line that names no stages is a message of the reservations topic with a `submit_ms`; its RDL may also be text, of
which relative times count from then, all others from time 0.

Nothing is repaired or skipped: file and line, field and reason stand in the error, and nothing after it is read.
"""

from collections.abc import Callable, Iterator

from schemas import ReservationDeleted, ReservationRequested, ReservationUpdated
from schemas.edge.read import Cluster, Malformed, read_cluster, read_input, read_workload_line, warnings_of
from schemas.edge.strict_json import loads
from schemas.jobs import JobSpec
from schemas.quantities import QUANTITY_MAX
from services.planner.rdl.document import read_document
from services.planner.rdl.faults import BadDocument
from services.planner.rdl.times import clock
from services.simulator.workloads.files import LINE_BYTES_MAX, Damaged, read_bytes, read_lines

Arrival = JobSpec | ReservationRequested | ReservationUpdated | ReservationDeleted
"""What a workload brings: jobs, and what is asked of the planner."""

FORMS = ("request", "update", "delete")
"""Of a line about a reservation."""

Warn = Callable[[str], None]
"""Told, line by line, of what is allowed and most likely not meant."""


def read_workload(path: str, warn: Warn | None = None) -> Iterator[tuple[int, Arrival]]:
    """Submission time in ms and spec of every job, in the file's order, and what is asked of the planner; `-` is
    standard input, gzip is read as is.

    Raises Damaged for an invalid line, a job's name used twice, and a file without a job; OSError where it cannot read.
    """
    line_of: dict[str, int] = {}
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        try:
            document = loads(line, size_max=LINE_BYTES_MAX)
            if isinstance(document, dict):
                _check_single(document)
            if isinstance(document, dict) and any(form in document for form in FORMS):
                yield read_reservation_line(document)
                continue
            submit_ms, spec = read_workload_line(document)
        except Malformed as fault:
            raise Damaged(where, fault.field, fault.reason) from None
        if (first := line_of.setdefault(spec.job, number)) != number:
            raise Damaged(where, "job", f"is the name of the job in line {first} already")
        _warn(warn, where, document)
        yield submit_ms, spec
    if not line_of:
        raise Damaged(path, "", "has no job")


def _check_single(document: dict[str, object]) -> None:
    """Raises Malformed for a line about a series: only a live planner requests its occurrences."""
    for form in ("series", "end_series"):
        if form in document:
            raise Malformed(form, "does not count in simulations: write a `request` line for each occurrence")


def read_reservation_line(document: dict[str, object]) -> tuple[int, Arrival]:
    """A line about a reservation. Raises Malformed."""
    submit_ms = document.get("submit_ms")
    if isinstance(submit_ms, bool) or not isinstance(submit_ms, int) or not 0 <= submit_ms <= QUANTITY_MAX:
        raise Malformed("submit_ms", "has to be a whole number of milliseconds from 0 on")
    message = {key: value for key, value in document.items() if key != "submit_ms"}
    for form in FORMS:
        asked = message.get(form)
        if isinstance(asked, dict) and isinstance(asked.get("rdl"), str):
            try:
                rdl = read_document(asked["rdl"], clock(now_s=submit_ms // 1000))
            except BadDocument as fault:
                raise Malformed(f"{form}.rdl", str(fault)) from None
            message[form] = {**asked, "rdl": rdl}
    body = read_input("reservations", message, "simulation")
    assert isinstance(body, ReservationRequested | ReservationUpdated | ReservationDeleted)
    return submit_ms, body


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
