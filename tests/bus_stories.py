"""Writing by hand what a sequencer or a service would write: for tests that need a log with no service behind it."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from largesse.bus.memory import MemoryBus
from largesse.bus.port import Bus, Outgoing
from largesse.core import RULES
from largesse.ids import content_hash
from largesse.log.codec import encode, record_of
from largesse.log.decisions import messages_of
from largesse.log.reader import LogReader
from largesse.log.wanted import Wanted, answer, wanted_of
from largesse.log.writer import LogWriter, claim_message
from schemas import DecisionHash, Record, RoundAbandoned, RoundClosed, RoundOpened

READ_BACK_MS = 60_000
"""A guard against a standstill, and no measure."""


class Scribe:
    """Writes a cell's log under a claim of its own."""

    def __init__(self, bus: Bus, cell: str = "default") -> None:
        self.bus, self.cell = bus, cell
        self.time = 0
        self._log: LogWriter | None = None

    async def claim(self, token: str = "scribe") -> "Scribe":
        reader, writer = LogReader(self.bus), self.bus.writer()
        while await reader.read():
            pass
        await writer.send([claim_message(self.cell, 0, token, reader.order, self.time)])
        while await reader.read():
            pass
        self._log = LogWriter(self.bus, writer, reader, cell=self.cell, partition=0, token=token, name="scribe")
        return self

    async def write(self, *bodies: Any, cause: str = "", time: int | None = None) -> Record:
        """Appends records; returns the last."""
        if self._log is None:
            await self.claim()
        assert self._log is not None
        self.time = self.time if time is None else time
        records = [self._log.put(body, time=self.time, cause=cause) for body in bodies]
        await self._log.flush(READ_BACK_MS)
        return records[-1]

    async def open(self, shards: int = 1, rules: int = RULES) -> Record:
        """Opens a round."""
        if self._log is None:
            await self.claim()
        assert self._log is not None
        return await self.write(RoundOpened(rules, self._log.running.prefix, shards))

    async def close(
        self, opening: Record, *said: tuple[Wanted, bytes], hashes: list[DecisionHash] | None = None
    ) -> Record:
        """Closes the round with these answers (or these hashes)."""
        named = [DecisionHash(*wanted, content_hash(content)) for wanted, content in said]
        return await self.write(RoundClosed([], [], [], None, hashes or named), cause=opening.id)

    async def abandon(self) -> Record:
        """Abandons the round."""
        return await self.write(RoundAbandoned("operator"))

    async def say(self, opening: Record, topic: str, body: Any, shard: int = 0) -> tuple[Wanted, bytes]:
        """Publishes an answer as a service would."""
        wanted = wanted_of([topic], opening.body.shards)[shard]
        record, content = answer(opening, wanted, body)
        await self.bus.writer().send(messages_of(record, content, wanted, 0, "scribe"))
        return wanted, content


def story(test: Callable[[MemoryBus, Scribe], Awaitable[None]]) -> Callable[[], None]:
    """A test as a coroutine over a bus in memory and somebody who writes its log, on a loop of its own."""

    @wraps(test, updated=())
    def run() -> None:
        async def whole() -> None:
            bus = MemoryBus()
            await test(bus, Scribe(bus))

        asyncio.run(whole())

    del run.__wrapped__  # Or pytest would look for fixtures of these names.
    return run


async def settle() -> None:
    """Everything that can run without more messages has run: on a bus in memory nothing takes time."""
    for _ in range(100):
        await asyncio.sleep(0)


async def answers_in(bus: Bus, topic: str, partition: int = 0) -> list[bytes]:
    """Raw messages of a topic."""
    first, _ = await bus.bounds(topic, partition)
    return [message.value for message in await bus.fetch(topic, partition, first)]


async def append_raw(bus: Bus, topic: str, value: bytes) -> None:
    """Puts bytes into a topic."""
    await bus.writer().send([Outgoing(topic, 0, value)])


def bytes_of(body: Any) -> bytes:
    """Some record's content."""
    return encode(record_of(body, cell="default", seq=1, round_number=0, time=0, id_="x", cause=""))
