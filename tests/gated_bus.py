"""A bus whose every call waits until a test lets it through: so a test chooses how several processes interleave."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from largesse.bus.port import Bus, Fetched, Outgoing, Writer


class GatedBus:
    """A Bus before another one."""

    def __init__(self, behind: Bus) -> None:
        self._behind = behind
        self._gate: asyncio.Future[None] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether a call stands at the gate."""
        return self._gate is not None and not self._gate.done()

    def let_through(self) -> None:
        """Lets the call at the gate go on."""
        assert self._gate is not None
        gate, self._gate = self._gate, None
        gate.set_result(None)

    async def pass_gate(self) -> None:
        """Waits at the gate."""
        self._gate = asyncio.get_running_loop().create_future()
        await self._gate

    def writer(self) -> Writer:
        return _GatedWriter(self, self._behind.writer())

    async def fetch(self, topic: str, partition: int, offset: int, *, wait_ms: int = 0, most: int = 1_000) -> Fetched:
        await self.pass_gate()
        return await self._behind.fetch(topic, partition, offset, most=most)

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        await self.pass_gate()
        return await self._behind.bounds(topic, partition)

    async def wait_any(self, positions: dict[tuple[str, int], int], wait_ms: int) -> bool:
        await self.pass_gate()
        return await self._behind.wait_any(positions, 0)

    async def close(self) -> None:
        pass


class _GatedWriter:
    def __init__(self, bus: GatedBus, behind: Writer) -> None:
        self._bus = bus
        self._behind = behind

    async def send(self, batch: list[Outgoing], *, durable: bool = True) -> list[int]:
        await self._bus.pass_gate()
        return await self._behind.send(batch, durable=durable)

    async def drop(self) -> None:
        await self._behind.drop()


class Actor:
    """Something that makes one step after another on a gated bus, and can be killed at any call."""

    def __init__(self, bus: GatedBus) -> None:
        self.bus = bus
        self.task: asyncio.Task[Any] | None = None

    async def nudge(self, step: Coroutine[Any, Any, Any] | None) -> bool:
        """Begins a step, or lets the one that stands at the gate through; returns whether the step is done.

        Hand over a new step where none is under way. Raises what the step raises.
        """
        if self.task is None:
            assert step is not None
            self.task = asyncio.ensure_future(step)
        elif self.bus.is_waiting:
            self.bus.let_through()
        # Nothing else runs on this loop, so the step is on its way to one or the other.
        while not self.task.done() and not self.bus.is_waiting:  # noqa: ASYNC110
            await asyncio.sleep(0)
        if not self.task.done():
            return False
        task, self.task = self.task, None
        task.result()
        return True

    async def kill(self) -> None:
        """Ends the step that is under way, wherever it stands."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
            self.task = None
