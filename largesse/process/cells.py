"""Which cells an instance of a service runs: those of the list that its group deals it, each by itself.

What is dealt is only a hint: the log's fencing decides who writes, and the first of equal answers counts. So two
instances run a cell at the same time for a while when it moves, and a group that is lost takes nothing away. On a bus
that deals nothing out, all cells are run.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from largesse.bus.kafka.rights import group_of
from largesse.bus.port import Bus, BusError
from largesse.known_cells import Cell, CellList
from largesse.settings import PREFIX, Settings, SettingWrong
from largesse.telemetry import CELLS_FAILED, CELLS_RUN, logger
from largesse.waiting import is_set_within, until_first_ends

LIST_WAIT_MS = 1_000
"""How long a look at the list of cells waits for a new one."""
REJOIN_SECONDS = 1.0
LINGER_SECONDS = 10.0
"""A cell that was dealt to other instances runs on here for so long: they may have the log to fold."""
RETRY_SECONDS, RETRY_SECONDS_MAX = 1.0, 60.0
"""A cell that has ended with an error is run again after so long; twice as long each time, up to the second."""
CALM_SECONDS = 60.0
"""Of a cell that has run for so long, earlier errors count no more."""

RunCell = Callable[[Cell, asyncio.Event], Awaitable[None]]
"""Runs one cell until the event is set. Raises what ended it before that."""


@runtime_checkable
class DealingBus(Protocol):
    """A bus that deals out cells among the instances of a service."""

    async def join_cells(self, group: str, copies: int, on_dealt: Callable[[list[int]], None]) -> None:
        """Takes part until it is cancelled, and calls `on_dealt` with the partitions of all cells that are its own,
        every time they are dealt out. Raises BusError.
        """


@dataclass(slots=True)
class _Running:
    """A cell at work. `left_at`: when it was dealt to others, by the loop's clock; None: it is this instance's."""

    cell: Cell
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    left_at: float | None = None


class CellKeeper:
    """Runs the cells of one instance. `copies`: how many instances run each cell; None: all run all, and there is no
    group. `run_cell`: runs one of them."""

    def __init__(
        self, bus: Bus, service: str, copies: int | None, run_cell: RunCell, *, linger_s: float = LINGER_SECONDS
    ) -> None:
        self._dealing = bus if copies is not None and isinstance(bus, DealingBus) else None
        self._group = group_of(service, ".cells")  # No cell has such a name.
        self._copies = copies or 0
        self._run_cell = run_cell
        self._linger_s = linger_s
        self._list = CellList(bus)
        self._mine: list[int] | None = None
        self._changed = asyncio.Event()
        self._running: dict[str, _Running] = {}
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._said = logger(service=service)

    @property
    def cells(self) -> list[str]:
        """The names of those that run here."""
        return sorted(self._running)

    @property
    def is_dealt(self) -> bool:
        """Whether it is known what is this instance's own."""
        return self._mine is not None or self._dealing is None

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. Raises BusError where the list of cells cannot be read at the start."""
        await self._list.read()
        try:
            await until_first_ends([self._read_list(), self._take_part(), self._follow(), stop.wait()])
        finally:
            for each in self._running.values():
                each.stop.set()
            if self._tasks:
                await asyncio.wait(self._tasks)
            CELLS_RUN.set(0)

    async def _read_list(self) -> None:
        while True:
            try:
                if await self._list.read(LIST_WAIT_MS):
                    self._changed.set()
            except BusError as error:
                self._said.warning("cell_list_unread", reason=str(error))
                await asyncio.sleep(REJOIN_SECONDS)

    async def _take_part(self) -> None:
        while self._dealing is not None:
            try:
                await self._dealing.join_cells(self._group, self._copies, self._take)
            except BusError as error:
                # What was dealt stays: it may be that nobody else has been dealt it.
                self._said.warning("group_left", group=self._group, reason=str(error))
            await asyncio.sleep(REJOIN_SECONDS)
        await asyncio.Event().wait()

    def _take(self, partitions: list[int]) -> None:
        self._mine = sorted(partitions)
        self._said.info("cells_dealt", group=self._group, partitions=self._mine)
        self._changed.set()

    async def _follow(self) -> None:
        """Starts and ends cells as the list and the group say, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            for name, running in self._running.items():
                if self._list.cells.get(name) != running.cell:
                    running.stop.set()  # It was removed: nobody else takes it over.
            wanted = self._wanted()
            for name, cell in wanted.items():
                running = self._running.get(name) or self._start(cell)
                running.left_at = None
            ends = []
            for name, running in self._running.items():
                if name not in wanted:
                    running.left_at = running.left_at or loop.time()
                    ends.append(running.left_at + self._linger_s)
                    if ends[-1] <= loop.time():
                        running.stop.set()
            waiting = [end - loop.time() for end in ends if end > loop.time()]
            await is_set_within(self._changed, min(waiting, default=None))

    def _wanted(self) -> dict[str, Cell]:
        cells = self._list.cells
        if self._dealing is None:
            return dict(cells)
        mine = self._mine or ()
        return {name: cell for name, cell in cells.items() if cell.partition in mine}

    def _start(self, cell: Cell) -> _Running:
        running = self._running[cell.name] = _Running(cell)
        task = asyncio.create_task(self._keep(running))
        self._tasks[task] = cell.name
        task.add_done_callback(self._tasks.pop)
        CELLS_RUN.set(len(self._running))
        return running

    async def _keep(self, running: _Running) -> None:
        """Runs a cell, again and again where an error ends it: others that run here do not notice."""
        loop, retry_s, name = asyncio.get_running_loop(), RETRY_SECONDS, running.cell.name
        self._said.info("cell_begins", cell=name, partition=running.cell.partition)
        while not running.stop.is_set():
            begun = loop.time()
            try:
                await self._run_cell(running.cell, running.stop)
            except Exception as error:
                retry_s = RETRY_SECONDS if loop.time() - begun > CALM_SECONDS else retry_s
                CELLS_FAILED.labels(name).inc()
                self._said.error("cell_failed", cell=name, reason=str(error), again_after_s=retry_s)
            await is_set_within(running.stop, retry_s)
            retry_s = min(2 * retry_s, RETRY_SECONDS_MAX)
        self._said.info("cell_ends", cell=name)
        del self._running[name]
        CELLS_RUN.set(len(self._running))
        # It may have been dealt to this instance again meanwhile.
        self._changed.set()


async def placed_by_list(bus: Bus, settings: Settings) -> Settings:
    """These settings, with the partition that the list has for their cell. Raises SettingWrong, BusError."""
    listed = CellList(bus)
    await listed.read()
    cell = listed.cells.get(settings.cell)
    if cell is None:
        add = f"`largesse cell add {settings.cell} --bus {settings.bus}` adds it"
        raise SettingWrong(f"{PREFIX}CELL={settings.cell}: there is no such cell; {add}")
    return replace(settings, partition=cell.partition)
