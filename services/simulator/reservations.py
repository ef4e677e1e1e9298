"""What became of the reservations of a simulated run: answers, moves, and whether deadlines were met."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas import (
    InputRefused,
    JobAdmitted,
    JobEnded,
    JobSpec,
    Plans,
    Record,
    ReservationDeleted,
    ReservationRequested,
    ReservationUpdated,
    SeriesEnded,
    SeriesRequested,
)
from schemas.edge.strict_json import loads
from services.simulator.result import ReservationRow

OUTCOMES = {
    "in time": "all its jobs succeeded by its deadline",
    "accepted": "promised, but no job ran under it, or it has no deadline",
    "late": "promised and kept, but its jobs did not all succeed by its deadline",
    "broken": "promised, and the promise was not kept",
    "refused": "not promised",
    "not answered": "the run ended first",
}
"""What may become of a reservation, and what that means."""
"""What `outcome_of` says, the best first."""


Asked = ReservationRequested | ReservationUpdated | ReservationDeleted | SeriesRequested | SeriesEnded
"""What a user says of reservations."""


@dataclass(slots=True)
class _Row:
    """`deadline_ms`: the end of the outermost window, if there is one. `open`: jobs of it that have not ended.
    `series`: of an occurrence, the series that it belongs to."""

    reservation: str
    queue: str
    submit_ms: int
    deadline_ms: int | None
    answered_ms: int | None = None
    accepted: bool = False
    reason: str = ""
    detail: str = ""
    moved: int = 0
    followed: int = 0
    broken: bool = False
    restored: int = 0
    jobs: int = 0
    succeeded: int = 0
    end_ms: int | None = None
    open: dict[str, bool] = field(default_factory=dict)
    series: str = ""


class Reservations:
    """Follows the log of a run."""

    def __init__(self) -> None:
        """Nothing was asked for."""
        self.rows: dict[str, _Row] = {}
        self.of_job: dict[str, str] = {}

    def observe(self, record: Record) -> None:
        """One record of the log."""
        body = record.body
        if isinstance(body, ReservationRequested):
            row = _Row(body.reservation, body.queue, record.time, _deadline_ms(body.rdl), series=body.series)
            self.of_job = {job: name for job, name in self.of_job.items() if name != body.reservation}
            self.rows[body.reservation] = row
        elif isinstance(body, ReservationUpdated):
            if (known := self.rows.get(body.reservation)) is not None:
                known.deadline_ms = _deadline_ms(body.rdl)
        elif isinstance(body, Plans):
            self._answers(body, record.time)
        elif isinstance(body, JobAdmitted) and body.spec.reservation in self.rows:
            row = self.rows[body.spec.reservation]
            row.jobs += 1
            row.open[body.spec.job] = True
            self.of_job[body.spec.job] = body.spec.reservation
        elif isinstance(body, JobEnded):
            for end in body.jobs:
                name = self.of_job.pop(end.job, None)
                if name is not None:
                    row = self.rows[name]
                    del row.open[end.job]
                    row.succeeded += end.outcome == "succeeded"
                    row.end_ms = record.time

    def begin(self) -> None:
        """Jobs that are over by now count no more."""
        for row in self.rows.values():
            row.jobs, row.succeeded, row.end_ms = len(row.open), 0, None

    def refused(self, body: Asked | JobSpec, to: Record) -> None:
        """Admission refused a request, an update or a deletion: it has a row of its own beside one of that name."""
        if isinstance(body, JobSpec):
            return
        reason = to.body.reason if isinstance(to.body, InputRefused) else ""
        name = body.series if isinstance(body, SeriesRequested | SeriesEnded) else body.reservation
        queue = "" if isinstance(body, ReservationDeleted | SeriesEnded) else body.queue
        # No name of a reservation has parentheses.
        self.rows[f"({len(self.rows)})"] = _Row(name, queue, to.time, None, to.time, False, "refused", reason)

    def _answers(self, body: Plans, time: int) -> None:
        for answer in body.answers:
            row = self.rows.get(answer.reservation)
            if row is None:
                continue  # It was over before this log begins.
            if answer.reason == "moved" and row.broken:
                row.broken, row.restored, row.detail = False, row.restored + 1, ""
            elif answer.reason == "moved":
                row.moved += 1
            elif answer.reason in ("ahead", "behind"):
                row.followed += 1
            elif answer.reason == "broken":
                row.broken, row.detail = True, answer.detail
            elif answer.reason != "deleted":
                row.answered_ms, row.accepted = time, row.accepted or answer.accepted
                row.reason, row.detail = answer.reason, answer.detail

    def result(self) -> list[ReservationRow]:
        """One entry a reservation, in the order of the requests. `met`: all its jobs succeeded by its deadline; null
        where it has none, or no job ran under it."""
        return [_document(row) for row in self.rows.values()]


def _document(row: _Row) -> ReservationRow:
    found: ReservationRow = {
        "reservation": row.reservation,
        "queue": row.queue,
        "submit_ms": row.submit_ms,
        "answered_ms": row.answered_ms,
        "accepted": row.accepted,
        "reason": row.reason,
        "detail": row.detail,
        "moved": row.moved,
        "followed": row.followed,
        "broken": row.broken,
        "deadline_ms": row.deadline_ms,
        "jobs": row.jobs,
        "end_ms": row.end_ms,
        "met": _met(row),
    }
    if row.restored:
        found["restored"] = row.restored
    if row.series:
        found["series"] = row.series
    return found


def outcome_of(reservation: ReservationRow) -> str:
    """What became of an entry of `result`: one of OUTCOMES."""
    if not reservation["accepted"]:
        return "refused" if reservation["reason"] else "not answered"
    if reservation["broken"]:
        return "broken"
    return {True: "in time", False: "late", None: "accepted"}[reservation["met"]]


def outcomes_text(reservations: Iterable[ReservationRow]) -> str:
    """`3: 1 in time, 2 refused`."""
    counts = Counter(map(outcome_of, reservations))
    text = ", ".join(f"{counts[outcome]:,} {outcome}" for outcome in OUTCOMES if counts[outcome])
    return f"{counts.total():,}: {text}" if text else "0"


def outcomes_legend(reservations: Iterable[ReservationRow]) -> str:
    """What the outcomes that occur mean, a line each."""
    found = set(map(outcome_of, reservations))
    return "".join(f"{outcome}: {meaning}\n" for outcome, meaning in OUTCOMES.items() if outcome in found)


def of_series(reservations: Iterable[ReservationRow]) -> dict[str, list[ReservationRow]]:
    """Entries of `result` by the series that they are occurrences of; those of none are left out."""
    found: dict[str, list[ReservationRow]] = {}
    for each in reservations:
        if name := each.get("series"):
            found.setdefault(name, []).append(each)
    return found


def _met(row: _Row) -> bool | None:
    if row.deadline_ms is None or row.end_ms is None:
        return None
    return row.succeeded == row.jobs and not row.open and row.end_ms <= row.deadline_ms


def _deadline_ms(rdl: str) -> int | None:
    document = loads(rdl.encode())
    return int(document["e"]) * 1000 if document["op"] == "window" else None
