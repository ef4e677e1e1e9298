"""Virtual time: from one moment at which something happens in a cell to the next, until nothing is left to happen."""

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import cast

from mypy_extensions import mypyc_attr

from schemas import (
    InputRefused,
    JobSpec,
    Record,
    ReservationDeleted,
    ReservationRequested,
    ReservationUpdated,
    SeriesEnded,
    SeriesRequested,
)
from services.admission.core.judge import lose
from services.planner.core import NAME as PLANNER
from services.simulator.cluster import AUTHOR, SimCluster
from services.simulator.engine import Cell
from services.simulator.outages import FAILS, RETURNS, Outages
from services.simulator.series import SeriesInTime

Arrival = JobSpec | ReservationRequested | ReservationUpdated | ReservationDeleted | SeriesRequested | SeriesEnded
"""What a user submits."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Drive:
    """A cell, its agents and what is still to be submitted, as (submit_ms, body) in that order. `waiting` is used up:
    nothing in it is kept for longer than the cell keeps it.
    """

    def __init__(
        self,
        cell: Cell,
        agents: SimCluster,
        waiting: list[tuple[int, Arrival]],
        progress: Callable[[int, int], None] | None,
        refused: Callable[[Arrival, Record], None] | None = None,
        outages: Outages | None = None,
    ) -> None:
        self.outages = outages
        self.cell, self.agents, self.progress, self.refused = cell, agents, progress, refused
        self.series = SeriesInTime(cell)
        self.total = sum(isinstance(body, JobSpec) for _, body in waiting)
        self.arrivals: groupby[int, tuple[int, object]] = groupby(_used_up(waiting), key=lambda job: job[0])
        self.arrival = next(self.arrivals, None)

    def run(self) -> None:
        """Until nothing is left to happen."""
        cell, agents = self.cell, self.agents
        submitted = 0
        while (moment := self._next_ms()) is not None:
            cell.advance(max(moment, cell.time))
            agents.end_until(cell.time)
            if self.outages is not None:
                self._change_nodes(self.outages)
            if cell.time >= cell.earliest_opening_ms():
                agents.report_ends()
                self._report()
            while self.arrival is not None and self.arrival[0] <= cell.time:
                for _, body in self.arrival[1]:
                    self._submit(body)
                    submitted += isinstance(body, JobSpec)
                self.arrival = next(self.arrivals, None)
            self._request_occurrences()
            while cell.settle() is not None or agents.reports:
                self._report()
            if self.progress is not None:
                self.progress(submitted - len(agents.jobs), self.total)

    def _submit(self, body: object) -> None:
        if isinstance(body, JobSpec):
            self._take(self.series.bound(body))
            return
        self._take(body)
        if isinstance(body, SeriesRequested):
            self.series.has_any = True
            self._request_occurrences()  # A job that is submitted at the same moment may name it.

    def _take(self, body: object, author: str = AUTHOR) -> None:
        record = self.cell.take(body, author)
        if self.refused is not None and record is not None and isinstance(record.body, InputRefused):
            self.refused(cast(Arrival, body), record)

    def _request_occurrences(self) -> None:
        if self.series.has_any and self.series.next_ms() is not None and self._goes_on():
            for body in self.series.due():
                self._take(body, PLANNER)

    def _goes_on(self) -> bool:
        """Whether further occurrences could serve a job: series have no end, and a simulation has one."""
        return self.arrival is not None or self.agents.next_end_ms() is not None

    def _change_nodes(self, outages: Outages) -> None:
        """What happens to nodes by now. What has ended until then is reported first: it has not been lost."""
        cell, agents = self.cell, self.agents
        while (change := outages.take(cell.time, cell.admission.policy.node_lease_ms)) is not None:
            kind, name = change
            if kind == FAILS:
                agents.fail(name, cell.time)
                continue
            agents.report_ends()
            self._report()
            if kind == RETURNS:
                cell.take(outages.registration(name, AUTHOR), AUTHOR)
            elif (body := lose(cell.admission, name)) is not None:
                cell.put(body)

    def _report(self) -> None:
        reports = self.agents.reports
        while reports:
            self.cell.take(reports.pop(0), AUTHOR)

    def _next_ms(self) -> int | None:
        """The next moment. Agents report ends in batches: not before a round could open and do something about them."""
        due_ms, end_ms = self.cell.next_due_ms(), self.agents.next_end_ms()
        if self.agents.has_ends:
            end_ms = self.cell.earliest_opening_ms()
        elif end_ms is not None:
            end_ms = max(end_ms, self.cell.earliest_opening_ms())
        moment = self.arrival[0] if self.arrival is not None else None
        if self.outages is not None and (moment is not None or self.agents.jobs):  # Else no task is there to be hit.
            change_ms = self.outages.next_ms()
            moment = change_ms if moment is None or (change_ms is not None and change_ms < moment) else moment
        series_ms = self.series.next_ms() if self.series.has_any else None
        if series_ms is not None and (moment is None or series_ms < moment) and self._goes_on():
            moment = series_ms
        if due_ms is not None and (moment is None or due_ms < moment):
            moment = due_ms
        if end_ms is not None and (moment is None or end_ms < moment):
            moment = end_ms
        return moment


def _used_up(waiting: list[tuple[int, Arrival]]) -> Iterator[tuple[int, object]]:
    waiting.reverse()
    while waiting:
        yield waiting.pop()
