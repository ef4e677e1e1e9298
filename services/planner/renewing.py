"""Requests the occurrences of recurring reservations as the horizon moves, beside the loop of the planner's core.

The core and the sequencer know the latest occurrence that was requested, so each is requested once, by whichever
instance is active. Occurrences of a series that has ended are given back unless they have begun (occurrences.py).
"""

import asyncio
import time
from collections.abc import Callable

from largesse.bus.port import Bus, BusError, BusRefused, Writer
from largesse.log.reader import publish_input
from largesse.settings import Settings
from largesse.shell import Shell
from largesse.telemetry import logger
from largesse.waiting import is_set_within
from services.planner import core
from services.planner.core.state import State
from services.planner.occurrences import Document, Occurrences, has_series

LOOK_S = 1.0
"""How often it is looked whether occurrences are to be requested."""


class Renewer:
    """Keeps the series of a planner's shell supplied. `now_s`: the time, in seconds of Unix time."""

    def __init__(
        self, shell: Shell[State], bus: Bus, settings: Settings, now_s: Callable[[], float] = time.time
    ) -> None:
        self._shell = shell
        self._bus = bus
        self._settings = settings
        self._said = logger(service=shell.name)
        self._occurrences = Occurrences(now_s, self._warn)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. What the bus does not take is logged, and tried again at the next time."""
        while not stop.is_set():
            try:
                if self._is_active() and has_series(self._shell.state) and await self._shell.has_caught_up():
                    await self.renew()
            except BusRefused:
                raise
            except (BusError, ValueError) as error:
                self._said.warning("series", failed=str(error))
            await is_set_within(stop, LOOK_S)

    async def renew(self) -> None:
        """Sends what is due once. Raises BusError."""
        messages = self.due()
        if not messages:
            return
        writer: Writer = self._bus.writer()
        try:
            for message in messages:
                await publish_input(writer, "reservations", message, core.NAME, self._settings.partition)
                self._occurrences.note(message)
        finally:
            await writer.drop()
        self._said.info("series", sent=len(messages))

    def due(self) -> list[Document]:
        """The requests and deletions that are to be sent now."""
        return self._occurrences.due(self._shell.state)

    def _is_active(self) -> bool:
        return self._shell.active is None or self._shell.active.is_set()

    def _warn(self, series: str, failed: str) -> None:
        self._said.warning("series", series=series, failed=failed)
