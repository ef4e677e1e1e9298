"""What a sequencer says of itself on the topic `beats`."""

import asyncio
import json

from largesse.bus.port import Bus, BusError, BusFull, BusRefused, Outgoing, Writer
from schemas.edge.beats import SequencerBeat, document_of
from schemas.topics import BEATS

AUTHOR = "sequencer"


class Speaking:
    """A sequencer that leads says so. A producer of its own: a sign of life that fails is no doubt about the log."""

    def __init__(self, bus: Bus, partition: int) -> None:
        self._bus, self._partition = bus, partition
        self._writer: Writer | None = None

    async def say(self, beat: SequencerBeat, within_ms: int) -> bool:
        """False: nobody may have heard it. Raises BusFull, BusRefused."""
        self._writer = self._writer or self._bus.writer()
        message = Outgoing(BEATS, self._partition, json.dumps(document_of(beat)).encode(), headers={"author": AUTHOR})
        try:
            async with asyncio.timeout(within_ms / 1_000):
                await self._writer.send([message], durable=False)
        except (BusFull, BusRefused):
            raise
        except (BusError, TimeoutError):
            await self.close()
            return False
        return True

    async def close(self) -> None:
        """Gives the producer up."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.drop()
