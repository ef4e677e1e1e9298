"""The bus of another process, for reading: each question goes out as a line of JSON, and its answer comes back.

The process that has the bus (gateway/http/dry_runs/lending.py) started this one. It may have any bus, and this process
needs neither its address nor a place in its folder.
"""

import asyncio
import json
from typing import BinaryIO

from largesse.bus.port import BusError, Fetched, Message, PositionGap, Writer
from services.gateway.documents import Document

LOOK_MS = 20
"""So often is looked again for what is waited for: nobody tells this process that something came."""


class LentBus:
    """A Bus that asks by `out` and hears by `into`. Nothing can be written to it."""

    def __init__(self, into: BinaryIO, out: BinaryIO) -> None:
        self._into, self._out = into, out

    def writer(self) -> Writer:
        """Raises BusError."""
        raise BusError("this bus is lent for reading")

    async def fetch(self, topic: str, partition: int, offset: int, *, wait_ms: int = 0, most: int = 1_000) -> Fetched:
        """See the port; waits for nothing."""
        head = self._asked({"fetch": [topic, partition, offset, most]})
        messages = [
            Message(topic, partition, at, self._into.read(size), headers) for at, size, headers in head["messages"]
        ]
        return Fetched(messages, head["position"])

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """See the port."""
        first, end = self._asked({"bounds": [topic, partition]})["bounds"]
        return first, end

    async def wait_any(self, positions: dict[tuple[str, int], int], wait_ms: int) -> bool:
        """Says after a moment that there may be more."""
        await asyncio.sleep(min(wait_ms, LOOK_MS) / 1_000)
        return True

    async def close(self) -> None:
        """Nothing to let go of."""

    def _asked(self, question: Document) -> Document:
        self._out.write(json.dumps(question).encode() + b"\n")
        self._out.flush()
        line = self._into.readline()
        if not line:
            raise BusError("the process that lent its bus has ended")
        answer: Document = json.loads(line)
        if "gap" in answer:
            raise PositionGap(answer["gap"])
        return answer
