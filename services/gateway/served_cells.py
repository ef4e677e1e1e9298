"""The cells of one gateway: each is followed by itself, and what ends one leaves the others as they are."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from fastapi import FastAPI

from largesse.bus.port import Bus
from largesse.known_cells import Cell
from largesse.process.cells import CellKeeper
from largesse.settings import Settings
from largesse.waiting import until_first_ends
from services.gateway.documents import Document
from services.gateway.follow import Follower

SERVICE = "gateway"


class ServedCells:
    """All cells of a deployment. `admit`: waits until a cell may be served, or raises why not. `make`: its app."""

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        admit: Callable[[Follower], Awaitable[None]],
        make: Callable[[Follower], FastAPI],
    ) -> None:
        self._bus, self._settings = bus, settings
        self._admit, self._make = admit, make
        self._apps: dict[str, FastAPI] = {}
        self._followers: dict[str, Follower] = {}
        self._keeper = CellKeeper(bus, SERVICE, None, self._run)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. Raises BusError where the list of cells cannot be read at the start."""
        await self._keeper.run(stop)

    def app_of(self, name: str) -> FastAPI | None:
        """The app of a cell; None: it is not served now."""
        return self._apps.get(name)

    def apps(self) -> dict[str, FastAPI]:
        """The apps of all cells that are served now."""
        return dict(self._apps)

    def known(self) -> list[str]:
        """The names of all cells, in order."""
        return self._keeper.cells

    def document(self) -> list[Document]:
        """All cells, as GET /v1/cells has them."""
        return [{"cell": name, "ready": name in self._apps and self._followers[name].ready} for name in self.known()]

    async def _run(self, cell: Cell, stop: asyncio.Event) -> None:
        settings = replace(self._settings, cell=cell.name, partition=cell.partition, cells="")
        follower = Follower(self._bus, settings, stop=stop, name=f"{SERVICE}@{cell.name}")
        self._followers[cell.name] = follower
        try:
            await until_first_ends([follower.run(), self._serve(cell.name, follower)])
        finally:
            del self._followers[cell.name]
            self._apps.pop(cell.name, None)

    async def _serve(self, name: str, follower: Follower) -> None:
        await self._admit(follower)
        self._apps[name] = self._make(follower)
        await follower.stop.wait()
        # The follower ends by itself, in order.
        await asyncio.Event().wait()
