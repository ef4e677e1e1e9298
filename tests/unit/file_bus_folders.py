"""Folders with journals in them, for the tests of the file bus."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from largesse.bus.file.bus import FileBus
from largesse.bus.file.head import Head, write_head
from largesse.bus.file.reading import read_journal
from largesse.bus.port import Bus, Message, Outgoing

Result = TypeVar("Result")


def out(value: bytes | str, topic: str = "jobs", partition: int = 0, **rest) -> Outgoing:
    return Outgoing(topic, partition, value.encode() if isinstance(value, str) else value, **rest)


def with_bus(folder: Path, story: Callable[[FileBus], Awaitable[Result]], **options) -> Result:
    """Opens a bus in the folder, runs the story on it, and closes it."""

    async def run() -> Result:
        bus = FileBus(folder, **options)
        try:
            return await story(bus)
        finally:
            await bus.close()

    return asyncio.run(run())


def written(folder: Path, lines: int, **options) -> Path:
    """A closed journal of so many lines, one message each; values are `{"n":0}`, `{"n":1}` and so on."""

    async def story(bus: FileBus) -> None:
        writer = bus.writer()
        for number in range(lines):
            await writer.send([out(f'{{"n":{number}}}')], durable=False)

    with_bus(folder, story, **options)
    return folder


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("journal-*.jsonl"))


def crashed(folder: Path) -> Path:
    """As a killed process leaves it: the newest segment is remembered, and not how far the journal went."""
    newest = int(segments(folder)[-1].stem.removeprefix("journal-"))
    write_head(folder, Head(segment=newest))
    return folder


def values(folder: Path) -> list[bytes]:
    return [message.value for message in read_journal(folder)]


async def everything(bus: Bus, topic: str = "jobs", partition: int = 0) -> list[Message]:
    """All that readers of a partition can see."""
    first, end = await bus.bounds(topic, partition)
    found: list[Message] = []
    while first + len(found) < end:
        found += await bus.fetch(topic, partition, first + len(found))
    return found
