"""Times and names of traces that have dates: time 0 of a workload, spans as Slurm writes them, names used once.

Dates without a zone are read as UTC; only differences between them are used.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from fractions import Fraction

from schemas.edge.base import NAME_MAX
from services.simulator.workloads.files import Damaged
from services.simulator.workloads.source import Leave, Option, Row, require

START = Option(
    "start", str, "", "time 0, like 2020-04-01T00:00:00; left out: the earliest submission, and the file is read twice"
)

NEVER = ("", "None", "NONE", "none", "Unknown", "UNKNOWN", "N/A", "(null)")
"""What traces write where a time is not known."""

_SPAN = re.compile(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,2}))?(?::(\d{1,2}))?(?:\.\d+)?")
_SHOWN_MAX = 40


def epoch_s(text: str) -> int | None:
    """Seconds since 1970 of a date with time, or of such seconds themselves; None where it is neither."""
    if text.isascii() and text.isdigit() and len(text) < 12:
        return int(text)
    if len(text) < len("2020-04-01"):
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())


def time_of(row: Row, name: str, least_s: int = 0) -> int | None:
    """A time of a row, in seconds since 1970; None where the trace says that it is not known. Raises Damaged."""
    if name not in row or (text := row.text(name)) in NEVER:
        return None
    seconds = epoch_s(text)
    if seconds is None or seconds < least_s:
        raise Damaged(row.where, name, f"has to be a date and time, like 2020-04-01T12:00:00, is {text[:_SHOWN_MAX]!r}")
    return seconds


def check_start(start: str, path: str) -> None:
    """Raises ValueError for a `start` that is no time, or lacks where the trace cannot be read twice."""
    require("start", not start or epoch_s(start) is not None, "a date and time like 2020-04-01T00:00:00", start)
    require("start", bool(start) or path != "-", "given where the trace comes from standard input", "missing")


def start_of(start: str, submissions: Iterable[int]) -> int:
    """Time 0 in seconds since 1970: as it was asked for, or the earliest of the submissions."""
    given = epoch_s(start) if start else None
    return min(submissions, default=0) if given is None else given


def span_s(text: str, *, minutes: bool = False) -> int | None:
    """Seconds of `[days-]hours:minutes:seconds`; None where it is none. `minutes`: as sbatch reads it, where a lone
    number is minutes, two are minutes and seconds, and what follows days begins with hours."""
    match = _SPAN.fullmatch(text)
    if match is None:
        return None
    days, *rest = match.groups()
    numbers = [int(number) for number in rest if number is not None]
    if days is not None:
        numbers += [0] * (3 - len(numbers))
    elif minutes and len(numbers) < 3:
        numbers = [0, *numbers] + [0] * (2 - len(numbers))
    else:
        numbers = [0] * (3 - len(numbers)) + numbers
    hours, mins, seconds = numbers
    return ((int(days or 0) * 24 + hours) * 60 + mins) * 60 + seconds


def submit_ms(submitted_s: int | None, start_s: int, compress: Fraction, leave: Leave) -> int | None:
    """When a job that was submitted so long after 1970 is submitted in the workload; None: it is left out."""
    if submitted_s is None or submitted_s < start_s:
        leave("submission not known" if submitted_s is None else "submitted before the start (--start)")
        return None
    return int((submitted_s - start_s) * 1000 / compress)


class Names:
    """Names of jobs as a workload file takes them, each used once: the second `a` is `a.2`."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def of(self, name: str) -> str:
        """The name that this job gets."""
        clean = clean_name(name)
        fresh = clean
        while fresh in self._used:
            self._used[clean] += 1
            fresh = f"{clean}.{self._used[clean]}"
        self._used[fresh] = 1
        return fresh


def clean_name(name: str) -> str:
    """A text that can name a job, a stage or a queue: without slashes and control characters, no dash in front."""
    clean = "".join(c if c.isprintable() and c != "/" else "_" for c in name.strip())[: NAME_MAX - 12]
    return f"_{clean}" if not clean or clean[0] == "-" else clean
