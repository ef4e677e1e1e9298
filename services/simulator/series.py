"""Recurring reservations in virtual time: requests their occurrences, as the active planner's shell does in a cell, and
says under which occurrence a job runs that names a series."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace

from schemas import JobSpec, ReservationDeleted, ReservationRequested
from schemas.edge.read import read_input
from schemas.edge.strict_json import loads
from services.planner.core import NAME
from services.planner.occurrences import Occurrences, has_series
from services.simulator.engine import Cell

MS_A_SECOND = 1_000


class SeriesInTime:
    """The series of a simulated cell."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._occurrences = Occurrences(lambda: cell.time // MS_A_SECOND, _fail)
        self.has_any = False
        """Whether one has been asked for in this run: without any, looking costs nothing."""
        self._seen: tuple[int, int] | None = None  # What the planner knew when it was looked last.
        self._next_ms: int | None = None
        self._requested: dict[int, list[tuple[int, str]]] = {}  # By seq of the series: ends of windows in s, and names.

    def next_ms(self) -> int | None:
        """When it has to be looked next: now, if the planner has learned something since; None if not again."""
        if not self.has_any or not has_series(self._cell.planner):
            return None
        return self._cell.time if self._seen != self._known() else self._next_ms

    def due(self) -> Iterator[ReservationRequested | ReservationDeleted]:
        """What is to be requested and given back now. Each has to be in the log before the next is taken."""
        planner = self._cell.planner
        at_ms = self.next_ms()
        if at_ms is None or at_ms > self._cell.time:
            return
        while messages := self._occurrences.due(planner):
            for message in messages:
                body = read_input("reservations", message, NAME)
                assert isinstance(body, ReservationRequested | ReservationDeleted)
                self._occurrences.note(message)
                if isinstance(body, ReservationRequested):
                    ends = int(loads(body.rdl.encode())["e"])
                    self._requested.setdefault(body.series_seq, []).append((ends, body.reservation))
                yield body
        self._seen = self._known()
        next_s = self._occurrences.next_s(planner)
        self._next_ms = next_s * MS_A_SECOND if next_s is not None else None

    def bound(self, spec: JobSpec) -> JobSpec:
        """A job that names a series runs under the occurrence whose window holds its submission, else under the next
        one; where that one was rejected, is over, or was not requested, it runs without a reservation."""
        known = self._cell.admission
        if spec.reservation is None or spec.reservation not in known.series:
            return spec
        requested = self._requested.get(known.series[spec.reservation].seq, [])
        at = bisect_right(requested, self._cell.time // MS_A_SECOND, key=lambda each: each[0])
        name = requested[at][1] if at < len(requested) else ""
        standing = known.reservations.get(name)
        if standing is None or standing.deleting:
            return replace(spec, reservation=None, reservation_atom="")
        return replace(spec, reservation=name)

    def _known(self) -> tuple[int, int]:
        planner = self._cell.planner
        return planner.plan_seq, len(planner.series)


def _fail(series: str, failed: str) -> None:
    raise AssertionError(f"series {series}: {failed}")  # Workloads are refused that hold such a series.
