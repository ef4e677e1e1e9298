"""When each node was last heard, and by which way: from the topic `nodes`, since most reports leave no record.

Known only of what came since this gateway began to read; a node that lives reports within its lease.
"""

import asyncio
import time
from typing import Literal

from largesse.bus.port import Bus, BusError, BusRefused, Message, PositionGap
from largesse.telemetry import logger

TOPIC = "nodes"
AGENT = "agent:"
"""In front of a node's name in the header `author`."""
NODES_MAX = 100_000
READ_WAIT_MS, RETRY_S = 1_000, 1

Way = Literal["direct", "bridge"]


class HeardNodes:
    """What was heard of the nodes of one cell. `is_reading`: what comes from now on is noticed."""

    def __init__(self, bus: Bus, partition: int) -> None:
        self.is_reading = False
        self._bus, self._partition = bus, partition
        self._last: dict[str, tuple[Way, int]] = {}

    def of(self, node: str) -> tuple[Way, int] | None:
        """By which way a node was last heard, and when by the gateway's clock (Unix ms); None: not yet."""
        return self._last.get(node)

    async def follow(self) -> None:
        """Reads for ever; a bus that fails for a while is waited for, and one that refuses it is not asked again."""
        position: int | None = None
        while True:
            try:
                if position is None:
                    position = (await self._bus.bounds(TOPIC, self._partition))[1]
                    self.is_reading = True
                found = await self._bus.fetch(TOPIC, self._partition, position, wait_ms=READ_WAIT_MS)
                position = found.position
            except PositionGap:
                position = None
                continue
            except BusRefused as error:
                logger().warning("nodes_not_heard", reason=str(error))
                self.is_reading = False
                return
            except BusError:
                await asyncio.sleep(RETRY_S)
                continue
            now_ms = time.time_ns() // 1_000_000
            for message in found:
                self._take(message, now_ms)

    def _take(self, message: Message, now_ms: int) -> None:
        author = message.headers.get("author", "")
        if not author.startswith(AGENT):
            return
        node = author.removeprefix(AGENT)
        self._last.pop(node, None)
        self._last[node] = "bridge" if message.headers.get("via") == "bridge" else "direct", now_ms
        if len(self._last) > NODES_MAX:
            del self._last[next(iter(self._last))]
