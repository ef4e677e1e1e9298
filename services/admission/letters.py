"""Dead letters that still have to be written: refusals in the log that the topic of dead letters does not have yet."""

from collections import deque

from largesse.bus.port import Bus, Writer
from largesse.log import dead_letters
from largesse.log.fencing import Accepted
from largesse.telemetry import DEAD_LETTERS

REFUSALS_KEPT = 1_000
"""A standby looks which dead letters have been written when it holds more refusals than these."""


class Letters:
    """Refusals in the order of the log. A leader writes a letter for each; a standby keeps them in case it leads."""

    def __init__(self, bus: Bus, partition: int) -> None:
        self._bus = bus
        self._partition = partition
        self._refusals: deque[dead_letters.Refusal] = deque()

    def __len__(self) -> int:
        return len(self._refusals)

    def note(self, accepted: Accepted) -> None:
        """A record has been read; it may be a refusal."""
        refusal = dead_letters.refusal_of(accepted)
        if refusal is not None:
            self._refusals.append(refusal)

    async def trim(self) -> None:
        """Keeps few refusals: beyond REFUSALS_KEPT those go of which the letters have been written."""
        if len(self._refusals) > REFUSALS_KEPT:
            await self.forget_written()

    async def forget_written(self) -> None:
        """Refusals up to the last dead letter need none any more."""
        if not self._refusals:
            return
        last = await dead_letters.written_up_to(self._bus, self._partition, self._refusals)
        while self._refusals and self._refusals[0].seq <= last:
            self._refusals.popleft()

    async def write(self, producer: Writer) -> None:
        """Writes a letter for each refusal."""
        while self._refusals:
            messages = await dead_letters.letter(self._bus, self._refusals[0], self._partition)
            await producer.send(messages, durable=False)
            DEAD_LETTERS.labels(self._refusals.popleft().header.topic).inc()

    def clear(self) -> None:
        """The log is read again from the start."""
        self._refusals.clear()
