"""When each node was last heard, and by which way, and when the sequencer was: from the topics `nodes` and `beats`,
since most of what is said there leaves no record.

Known only of what came since this gateway began to read; a node that lives speaks within its lease.
"""

import asyncio
import time
from contextlib import suppress
from time import monotonic
from typing import Literal

from largesse.bus.port import Bus, BusError, BusRefused, Message, PositionGap
from largesse.telemetry import logger
from schemas.edge.base import Malformed
from schemas.edge.beats import SequencerBeat, read_beat
from schemas.edge.strict_json import loads
from schemas.topics import BEATS

NODES = "nodes"
AGENT = "agent:"
"""In front of a node's name in the header `author`."""
NODES_MAX = 100_000
READ_WAIT_MS, RETRY_S = 10_000, 1

Way = Literal["direct", "bridge"]


class HeardNodes:
    """What was heard of the nodes of one cell, and of its sequencer."""

    def __init__(self, bus: Bus, partition: int) -> None:
        self._reading: dict[str, bool] = {}
        self._sequencer = ("", 0.0)
        self._bus, self._partition = bus, partition
        self._last: dict[str, tuple[Way, int]] = {}

    @property
    def is_reading(self) -> bool:
        """Whether what comes from now on is noticed."""
        return len(self._reading) == 2

    def of(self, node: str) -> tuple[Way, int] | None:
        """By which way a node was last heard, and when by the gateway's clock (Unix ms); None: not yet."""
        return self._last.get(node)

    def sequencer_s(self, token: str) -> float:
        """When the holder of a claim last gave a sign of life, by the monotonic clock; 0: it has not."""
        return self._sequencer[1] if self._sequencer[0] == token else 0.0

    async def follow(self) -> None:
        """Reads for ever; a bus that fails for a while is waited for, and one that refuses it is not asked again."""
        await asyncio.gather(self._follow(NODES), self._follow(BEATS))

    async def _follow(self, topic: str) -> None:
        position: int | None = None
        while True:
            try:
                if position is None:
                    position = (await self._bus.bounds(topic, self._partition))[1]
                    self._reading[topic] = True
                found = await self._bus.fetch(topic, self._partition, position, wait_ms=READ_WAIT_MS)
                position = found.position
            except PositionGap:
                position = None
                continue
            except BusRefused as error:
                logger().warning("nodes_not_heard", topic=topic, reason=str(error))
                self._reading.pop(topic, None)
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
            self._take_sequencer(message)
            return
        node = author.removeprefix(AGENT)
        self._last.pop(node, None)
        self._last[node] = "bridge" if message.headers.get("via") == "bridge" else "direct", now_ms
        if len(self._last) > NODES_MAX:
            del self._last[next(iter(self._last))]

    def _take_sequencer(self, message: Message) -> None:
        if message.topic != BEATS:
            return
        with suppress(Malformed):
            beat = read_beat(loads(message.value))
            if isinstance(beat, SequencerBeat):
                self._sequencer = beat.token, monotonic()
