"""An instance of a service beside others: which shards it runs follows from the assignment, while it lasts.

A service without shards always runs, and holds its answers back while the service is another instance's (a hot
standby). Of a sharded one an instance runs the shards that are its own and in use; of those that are not in use it runs
one, so that it hears when their number is changed.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from largesse.assignment import Assignment, assignment_of
from largesse.bus import Bus
from largesse.core import Core
from largesse.decisions import SHARDED
from largesse.settings import Settings
from largesse.shell import Shell, drive, run


async def run_assigned(core: Core, bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Runs a core as far as it is this instance's own, until `stop`. Raises as `shell.run` does."""
    if core.TOPIC not in SHARDED:
        settings = replace(settings, shard=None)
    assignment = assignment_of(bus, settings, core.NAME)
    try:
        if core.TOPIC in SHARDED:
            await _Shards(core, bus, settings, assignment).run(stop)
        else:
            await run(core, bus, settings, stop=stop, active=assignment.active(0))
    finally:
        await assignment.close()


def in_use(own: Iterable[int], of: int) -> list[int]:
    """Which of its own shards an instance runs where `of` are in use. There is always one, if it has any."""
    shards = sorted(own)
    return [shard for shard in shards if shard < of] or shards[:1]


class _Running:
    """One shard at work."""

    def __init__(self, core: Core, bus: Bus, settings: Settings, shard: int) -> None:
        self.stop = asyncio.Event()
        self.shell = Shell(core, bus, settings, shard=shard, stop=self.stop)
        self.task = asyncio.create_task(drive(self.shell, bus, settings, self.stop))

    async def end(self) -> None:
        self.stop.set()
        await asyncio.wait([self.task])
        self.task.result()


class _Shards:
    """The shards of a service that are this instance's own."""

    def __init__(self, core: Core, bus: Bus, settings: Settings, assignment: Assignment) -> None:
        self._core = core
        self._bus = bus
        self._settings = settings
        self._assignment = assignment
        self._running: dict[int, _Running] = {}

    async def run(self, stop: asyncio.Event) -> None:
        try:
            while not stop.is_set():
                self._assignment.changed.clear()
                await self._follow()
                await self._wait(stop)
        finally:
            await self._end(list(self._running))

    async def _follow(self) -> None:
        # Whoever has folded furthest knows best how many are in use.
        newest = max(
            (each.shell for each in self._running.values()), key=lambda shell: shell.log.order.seq, default=None
        )
        wanted = in_use(self._assignment.shards(), newest.of if newest is not None else 1)
        await self._end([shard for shard in self._running if shard not in wanted])
        for shard in wanted:
            if shard not in self._running:
                self._running[shard] = _Running(self._core, self._bus, self._settings, shard)

    async def _wait(self, stop: asyncio.Event) -> None:
        """Until something changes; the number in use is looked at again after `wait_ms`. Raises what a shard raised."""
        waits = [asyncio.ensure_future(event.wait()) for event in (stop, self._assignment.changed)]
        tasks = [each.task for each in self._running.values()]
        try:
            await asyncio.wait(
                (*waits, *tasks), timeout=self._settings.wait_ms / 1_000, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for wait in waits:
                wait.cancel()
        for task in tasks:
            if task.done():
                task.result()

    async def _end(self, shards: list[int]) -> None:
        ended = [self._running.pop(shard) for shard in shards]
        await asyncio.gather(*(each.end() for each in ended))
