"""All cells of a deployment as the router follows them, and what is new there of the jobs that it sent.

A cell whose log cannot be read or folded is left alone, and the others go on: it gets no jobs until it can be again.
"""

from collections.abc import Callable

from largesse.bus.port import Bus, BusError
from largesse.known_cells import Cell, CellList
from largesse.log.beats import Hearing
from largesse.settings import Settings
from largesse.telemetry import logger
from schemas.edge.beats import SequencerBeat
from schemas.routes import Bid, CellHeard, CellProblem, CellsHeard, HeardState
from services.router.core import NAME
from services.router.core.state import Route, State
from services.router.core.watch import Fact, fact_of
from services.router.following import CellView

LIST_EVERY_MS = 1_000
"""So often the list of cells is looked at."""
SILENT_MS = 10_000
"""A cell whose sequencer has been silent for so long gets no jobs: one that is there says so every second or two."""
RETRY_MS = 10_000
"""After so long a cell is followed again whose log could not be folded."""


class Cells:
    """`has_read`: whether the last `read` brought anything."""

    def __init__(self, bus: Bus, settings: Settings, steady: Callable[[], int]) -> None:
        self.has_read = False
        self._bus, self._settings, self._steady = bus, settings, steady
        self._list = CellList(bus)
        self._listed_ms: int | None = None
        self._views: dict[str, CellView] = {}
        self._heard_ms: dict[str, int] = {}
        self._beats: dict[str, Hearing] = {}
        self._time_ms: dict[str, int] = {}  # The latest log time that a sequencer has said.
        self._broken_ms: dict[str, int] = {}
        self._look_at: dict[str, bool] = {}
        self._lapsing: dict[str, bool] = {}
        self._said = logger(service=NAME)

    @property
    def positions(self) -> dict[tuple[str, int], int]:
        """What to hand to `wait_any`."""
        return {place: offset for view in self._views.values() for place, offset in view.position.items()}

    def partition_of(self, cell: str) -> int | None:
        """See Places."""
        found = self._list.cells.get(cell)
        return None if found is None else found.partition

    def has_begun(self, route: Route, name: str) -> bool:
        """Whether something of a job was started in its cell, as far as that is known."""
        view = self._views.get(route.cell)
        return view is None or view.seen(name).has_begun

    def bids(self, route: Route) -> list[Bid]:
        """What the cells say of a job that it may go to, and the one that has it, in order."""
        names = sorted(route.cells or self._list.cells)
        if route.cell and route.cell not in names:
            names.append(route.cell)
        return [self._bid(name, route) for name in names]

    def heard(self) -> CellsHeard:
        """Which cells of the list are heard now."""
        return CellsHeard([CellHeard(name, self._hears(name)) for name in sorted(self._list.cells)])

    def look_at_all(self, state: State) -> None:
        """All jobs are compared with what their cells say: what was new since may have been missed."""
        self._look_at = dict.fromkeys(state.jobs, True)
        self._lapsing = dict(state.sent)

    def expect(self, name: str) -> None:
        """A job is on its way to a cell."""
        self._lapsing[name] = True
        self._look_at[name] = True

    async def read_list(self) -> None:
        """Learns of cells that were added, and of those that were removed. Raises BusError."""
        await self._list.read()
        self._listed_ms = self._steady()
        for name, view in list(self._views.items()):
            if self._list.cells.get(name) != view.cell:
                self._let_go(name)
        for name, cell in self._list.cells.items():
            if name not in self._views and self._steady() - self._broken_ms.get(name, -RETRY_MS) >= RETRY_MS:
                self._follow(cell)

    async def follow(self, state: State) -> None:
        """Reads on in all logs. Raises BusError."""
        now = self._steady()
        is_due = self._listed_ms is None or now - self._listed_ms >= LIST_EVERY_MS
        if is_due:
            await self.read_list()
        self.has_read = False
        for name in list(self._views):
            await self._read_one(name, state)
        if is_due:
            for name, view in self._views.items():
                await self._hear(name, view)

    def facts(self, state: State) -> list[Fact]:
        """What is new of jobs, one for each: what follows from it is there at the next call."""
        found = [(job, self._fact(state, job)) for job in self._due_looks(state)]
        facts = []
        for job, fact in found:
            if fact is not None:
                self._look_at[job] = True
                facts.append(fact)
        return facts

    async def _read_one(self, name: str, state: State) -> None:
        view = self._views[name]
        was_read = view.is_read
        try:
            named = await view.read()
        except BusError:
            raise
        except Exception as error:
            # Whatever it is, its own services stop at it too, and an operator is told there.
            self._said.error("cell_unread", cell=name, reason=f"{type(error).__name__}: {error}")
            del self._views[name]
            self._broken_ms[name] = self._steady()
            return
        if view.is_read and not was_read:
            # What was new before it was followed is found by looking at every job there.
            self._look_at.update({job: True for job, route in state.jobs.items() if route.cell == name})
        if named is None:
            return
        self.has_read = True
        self._heard_ms[name] = self._steady()
        self._look_at.update({job: True for job in named if job in state.jobs})

    async def _hear(self, name: str, view: CellView) -> None:
        """Whether the sequencer of a cell says that it lives, where it has nothing to write. Raises BusError."""
        beats = await self._beats[name].read(with_nodes=False)
        if beats is None:
            self._heard_ms[name] = self._steady()
            return
        for beat in beats:
            if isinstance(beat, SequencerBeat) and beat.token == view.order.token:
                self._heard_ms[name] = self._steady()
                self._time_ms[name] = max(beat.time, self._time_ms.get(name, 0))

    def _due_looks(self, state: State) -> list[str]:
        """Jobs that may be elsewhere in their cell by now: those that a log has named, and those not taken in time."""
        for job in list(self._lapsing):
            route = state.jobs.get(job)
            if route is None or route.phase != "sent":
                del self._lapsing[job]
            elif (view := self._views.get(route.cell)) is not None and view.order.time > route.before_ms:
                self._look_at[job] = True
        names, self._look_at = list(self._look_at), {}
        return names

    def _fact(self, state: State, job: str) -> Fact | None:
        route = state.jobs.get(job)
        view = self._views.get(route.cell) if route is not None and route.cell else None
        if route is None or view is None or not view.is_read:
            return None
        return fact_of(job, route, view.seen(job))

    def _follow(self, cell: Cell) -> None:
        self._views[cell.name] = CellView(self._bus, self._settings, cell)
        self._heard_ms[cell.name] = self._steady()
        self._beats[cell.name] = Hearing(self._bus, cell.partition)
        self._said.info("cell_followed", cell=cell.name, partition=cell.partition)

    def _hears(self, name: str) -> HeardState:
        view = self._views.get(name)
        if view is None or not view.is_read:
            return "unread"
        return "silent" if self._steady() - self._heard_ms[name] >= SILENT_MS else "heard"

    def _let_go(self, name: str) -> None:
        """What it has is kept where it is: nobody says any more what becomes of it."""
        for known in (self._views, self._beats, self._heard_ms, self._time_ms, self._broken_ms):
            known.pop(name, None)
        self._said.info("cell_left", cell=name)

    def _bid(self, name: str, route: Route) -> Bid:
        view = self._views.get(name)
        if view is None:
            if name in self._list.cells:
                return Bid(name, 0, 0)
            problem = CellProblem(name, "unknown_cell", "cells", f"there is no cell {name[:100]!r}")
            return Bid(name, 0, 0, problem)
        bid = view.bid(route.spec, route.author)
        # The last record of a cell that has nothing to do may be a minute old, and the job has a lease from now on.
        bid.time_ms = max(bid.time_ms, self._time_ms.get(name, 0))
        if self._steady() - self._heard_ms[name] >= SILENT_MS:
            bid.is_able = False
        return bid
