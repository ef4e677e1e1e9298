"""A scripted cell whose agents are reached over MQTT, by bridges on the same loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from largesse.bus.memory import MemoryBus
from largesse.mqtt.memory import MemoryBroker
from largesse.mqtt.port import Broker
from largesse.settings import Settings
from services.agent.edge import EdgeBus
from services.agent.settings import NodeSettings
from services.agent.shell import run
from services.bridge import shell as bridge
from services.bridge.asking import Asking
from tests.live.agent_cell import GUARD_SECONDS, ScriptedCell, scripted_cell


async def ended(running: "asyncio.Task[None]") -> None:
    """Cuts a task off where it stands, as a kill does."""
    running.cancel()
    with suppress(asyncio.CancelledError):
        async with asyncio.timeout(GUARD_SECONDS):
            await running


@asynccontextmanager
async def bridge_on(
    cell: ScriptedCell, broker: Broker, name: str = "b1", asking: Asking | None = None
) -> AsyncIterator["asyncio.Task[None]"]:
    """A bridge, for the length of the story or until it is ended."""
    stop = asyncio.Event()
    asking = asking or Asking("default", name)
    running = asyncio.create_task(bridge.run(cell.bus, Settings(), broker, stop, asking))
    try:
        yield running
    finally:
        stop.set()
        with suppress(asyncio.CancelledError):
            async with asyncio.timeout(GUARD_SECONDS):
                await running


@asynccontextmanager
async def edge_agent_on(broker: Broker, node: NodeSettings) -> AsyncIterator["asyncio.Task[None]"]:
    """An agent that knows only the broker."""
    stop, bus = asyncio.Event(), EdgeBus(broker, "default")
    running = asyncio.create_task(run(bus, node, stop))
    try:
        yield running
    finally:
        stop.set()
        with suppress(Exception):
            async with asyncio.timeout(GUARD_SECONDS):
                await running
        await bus.close()


@asynccontextmanager
async def edge_cell(bus: MemoryBus | None = None) -> AsyncIterator[tuple[ScriptedCell, MemoryBroker]]:
    """A cell, and a broker in memory; bridges are the story's to start."""
    async with scripted_cell(bus) as cell:
        yield cell, MemoryBroker()
