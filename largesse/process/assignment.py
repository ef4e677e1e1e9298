"""Which shards of a service this instance serves: set by LARGESSE_SHARD, or dealt out by the bus.

On Kafka the instances of one service of one cell form a consumer group over the topic `shards`: nothing is written
there and no offset is kept, its partitions stand for shards. An instance joins once it has caught up with the log.
While a group rebalances, every member goes on with the shards it had: answers do not depend on the instance, and the
first counts. On a bus of one process everything is its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, runtime_checkable

import structlog

from largesse.bus.kafka.rights import group_of
from largesse.bus.port import Bus, BusError, BusRefused
from largesse.settings import Settings
from schemas.policy import SHARDS_MAX

REJOIN_MS = 1_000
"""How long an instance that was thrown out waits before it asks again."""

SHARDS_SHOWN = 8
"""Shards that a line of the log names: those in use are the first."""

Join = Callable[[str, Callable[[list[int]], None]], Awaitable[None]]
CaughtUp = Callable[[], Awaitable[None]]

_log = structlog.get_logger(__name__)


@runtime_checkable
class GroupBus(Protocol):
    """A bus that deals out shards among the instances of a service."""

    async def join(self, group: str, on_assigned: Callable[[list[int]], None]) -> None:
        """Takes part until it is cancelled, and calls `on_assigned` with all that is its own, every time it is
        dealt out. Raises BusError.
        """


class Assignment(Protocol):
    """What is this instance's own now. `changed` is set by every change, and cleared by who has looked."""

    changed: asyncio.Event

    def is_mine(self, shard: int) -> bool:
        """Whether this instance is to answer for a shard."""

    def shards(self) -> tuple[int, ...]:
        """All of them, in order."""

    def active(self, shard: int) -> asyncio.Event:
        """Set as long as the shard is this instance's own."""

    async def refused(self) -> None:
        """Waits for as long as it takes part. Raises BusRefused: it is not let."""

    async def close(self) -> None:
        """Gives everything back."""


def assignment_of(bus: Bus, settings: Settings, service: str, caught_up: CaughtUp) -> Assignment:
    """The assignment for one service: LARGESSE_SHARD's where it is set, else what the bus says.

    `caught_up` returns once this instance can answer: before that it takes no part where shards are dealt out.
    """
    if settings.shard is not None:
        return StaticAssignment([settings.shard])
    if settings.is_alone:
        return StaticAssignment(range(SHARDS_MAX))
    assert isinstance(bus, GroupBus), f"no group assigns shards on {settings.bus}"
    return GroupAssignment(bus.join, group_of(service, settings.cell), caught_up)


class StaticAssignment:
    """Always the same shards."""

    def __init__(self, shards: Iterable[int]) -> None:
        self.changed = asyncio.Event()
        self._events: dict[int, asyncio.Event] = {}
        self._mine: tuple[int, ...] = ()
        self._set(shards)

    def is_mine(self, shard: int) -> bool:
        """See Assignment."""
        return shard in self._mine

    def shards(self) -> tuple[int, ...]:
        """See Assignment."""
        return self._mine

    def active(self, shard: int) -> asyncio.Event:
        """See Assignment."""
        event = self._events.setdefault(shard, asyncio.Event())
        if shard in self._mine:
            event.set()
        return event

    async def refused(self) -> None:
        """See Assignment."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """See Assignment."""
        self._set(())

    def _set(self, shards: Iterable[int]) -> None:
        self._mine = tuple(sorted(shards))
        for shard, event in self._events.items():
            if shard in self._mine:
                event.set()
            else:
                event.clear()
        self.changed.set()


class GroupAssignment(StaticAssignment):
    """What a consumer group deals out. `join(group, on_assigned)` takes part in it until it is cancelled or raises
    BusError, and calls `on_assigned` with all shards that are this instance's own, every time they are dealt out. It
    joins once `caught_up` returns, each time: a shard that it is assigned is given up by another instance.
    """

    def __init__(self, join: Join, group: str, caught_up: CaughtUp) -> None:
        super().__init__(())
        self._group = group
        self._caught_up = caught_up
        self._task = asyncio.create_task(self._take_part(join))

    async def refused(self) -> None:
        """See Assignment."""
        await asyncio.shield(self._task)

    async def close(self) -> None:
        """See Assignment."""
        self._task.cancel()
        await asyncio.wait([self._task])
        self._set(())

    async def _take_part(self, join: Join) -> None:
        while True:
            try:
                await self._caught_up()
                await join(self._group, self._on_assigned)
            except BusRefused:
                raise
            except BusError as error:
                _log.warning("group_left", group=self._group, reason=str(error))
            except Exception:
                # Nobody waits for this task but for a refusal: an error that ended it would leave this instance as it
                # is, for good.
                _log.exception("group_failed", group=self._group, again_after_ms=REJOIN_MS)
            # Who is in no group serves nothing: the others have been dealt what was its own.
            self._set(())
            await asyncio.sleep(REJOIN_MS / 1_000)

    def _on_assigned(self, shards: list[int]) -> None:
        _log.info("shards_dealt", group=self._group, count=len(shards), first=sorted(shards)[:SHARDS_SHOWN])
        self._set(shards)
