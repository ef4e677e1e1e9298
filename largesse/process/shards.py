"""An instance of a service beside others: which shards it runs follows from the assignment, while it lasts.

It takes part in the assignment once it has caught up with the log. A service without shards always runs; while it is
another instance's it is a hot standby, which answers a round only if no other instance does (shell.py). Of a sharded
one an instance runs the shards that are its own and in use; one that has none of these is a hot standby for a shard
that is in use. A shard that is dealt to another instance runs on as a standby until another instance has answered for
it: the new owner may have the whole log to fold.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Generic

from largesse.bus.port import Bus
from largesse.core import Core, S
from largesse.process.assignment import assignment_of
from largesse.settings import Settings
from largesse.shell import Shell, drive
from largesse.waiting import until_first_ends
from schemas.topics import SHARDED

LOOK_MS = 200
"""How often an instance that waits until it has caught up asks where the log ends."""


Drive = Callable[[Shell[S], Bus, Settings, asyncio.Event], Coroutine[object, object, None]]
"""What steps a shell until the end: `shell.drive`, or that and what a service does beside it."""


async def run_assigned(
    core: Core[S], bus: Bus, settings: Settings, *, stop: asyncio.Event, drive: Drive[S] = drive
) -> None:
    """Runs a core as far as it is this instance's own, until `stop`. `drive`: of a service without shards. Raises as
    `shell.run` does."""
    if core.TOPIC in SHARDED:
        await _Shards(core, bus, settings).run(stop)
        return
    settings = replace(settings, shard=None)
    shell = Shell(core, bus, settings, stop=stop)
    assignment = assignment_of(bus, settings, core.NAME, lambda: _until_caught_up(lambda: [shell]))
    shell.active = assignment.active(0)
    try:
        await until_first_ends([drive(shell, bus, settings, stop), assignment.refused()])
    finally:
        await assignment.close()


async def _until_caught_up(shells: Callable[[], list[Shell[S]]]) -> None:
    """Returns once all that run now have caught up: at once, if they have."""
    while True:
        running = shells()
        if running and all([await shell.has_caught_up() for shell in running]):
            return
        await asyncio.sleep(LOOK_MS / 1_000)


def shared(own: Iterable[int], of: int) -> list[int]:
    """Which shards an instance runs where `of` are in use: its own among them, else one as a standby."""
    shards = sorted(own)
    return [shard for shard in shards if shard < of] or [shards[0] % of if shards else 0]


class _Running(Generic[S]):
    """One shard at work. `left_after`: how many rounds others had answered when it was dealt away; None: it was not."""

    def __init__(self, core: Core[S], bus: Bus, settings: Settings, shard: int, active: asyncio.Event) -> None:
        self.stop = asyncio.Event()
        self.shell = Shell(core, bus, settings, shard=shard, stop=self.stop, active=active)
        self.left_after: int | None = None
        self.task = asyncio.create_task(drive(self.shell, bus, settings, self.stop))

    def is_over(self) -> bool:
        """Whether another instance has answered since it was reassigned."""
        if self.left_after is None:
            self.left_after = self.shell.left_to_others
        return self.shell.left_to_others > self.left_after

    async def end(self) -> None:
        self.stop.set()
        await asyncio.wait([self.task])
        self.task.result()


class _Shards(Generic[S]):
    """The shards of a service that this instance runs."""

    def __init__(self, core: Core[S], bus: Bus, settings: Settings) -> None:
        self._core = core
        self._bus = bus
        self._settings = settings
        self._running: dict[int, _Running[S]] = {}
        self._assignment = assignment_of(bus, settings, core.NAME, lambda: _until_caught_up(self._shells))

    async def run(self, stop: asyncio.Event) -> None:
        try:
            await until_first_ends([self._run(stop), self._assignment.refused()])
        finally:
            await self._assignment.close()
            await self._end(list(self._running))

    async def _run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self._assignment.changed.clear()
            await self._follow()
            await self._wait(stop)

    def _shells(self) -> list[Shell[S]]:
        return [each.shell for each in self._running.values()]

    async def _follow(self) -> None:
        # The instance that has folded furthest knows best how many are in use.
        newest = max(
            (each.shell for each in self._running.values()), key=lambda shell: shell.log.order.seq, default=None
        )
        of = newest.of if newest is not None else 1
        wanted = shared(self._assignment.shards(), of)
        for shard in wanted:
            if shard not in self._running:
                active = self._assignment.active(shard)
                self._running[shard] = _Running(self._core, self._bus, self._settings, shard, active)
            self._running[shard].left_after = None
        others = [shard for shard in self._running if shard not in wanted]
        await self._end([shard for shard in others if shard >= of or self._running[shard].is_over()])

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
