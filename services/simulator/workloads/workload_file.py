"""Workload and cluster files of the contract -> jobs and nodes in base units, or the first line that is wrong.

Nothing is repaired or skipped: file and line, field and reason stand in the error, and nothing after it is read.
"""

from collections.abc import Callable, Iterator

from schemas.edge.read import Cluster, Malformed, read_cluster, read_workload_line, warnings_of
from schemas.edge.strict_json import loads
from schemas.jobs import JobSpec
from services.simulator.workloads.files import LINE_BYTES_MAX, Damaged, read_bytes, read_lines

Warn = Callable[[str], None]
"""Told, line by line, of what is allowed and most likely not meant."""


def read_workload(path: str, warn: Warn | None = None) -> Iterator[tuple[int, JobSpec]]:
    """Submission time in ms and spec of every job, in the file's order; `-` is standard input, gzip is read as is.

    Raises Damaged for an invalid line, a job's name used twice, and a file without a job; OSError where it cannot read.
    """
    line_of: dict[str, int] = {}
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        try:
            document = loads(line, size_max=LINE_BYTES_MAX)
            submit_ms, spec = read_workload_line(document)
        except Malformed as fault:
            raise Damaged(where, fault.field, fault.reason) from None
        if (first := line_of.setdefault(spec.job, number)) != number:
            raise Damaged(where, "job", f"is the name of the job in line {first} already")
        _warn(warn, where, document)
        yield submit_ms, spec
    if not line_of:
        raise Damaged(path, "", "has no job")


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
