"""A TCP proxy in front of an MQTT broker that cuts, freezes and slows the connections of single clients."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

CHUNK_BYTES = 64 * 1024


@dataclass(eq=False)
class _Link:
    client: str
    writers: list[asyncio.StreamWriter]
    open: asyncio.Event = field(default_factory=asyncio.Event)


class Proxy:
    """Stands between clients and the broker at `port`. `delay`: seconds for which every chunk is held back. `barred`:
    beginnings of the ids of clients that are not let through."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self.delay = 0.0
        self._target = port
        self.barred: dict[str, bool] = {}
        self._links: list[_Link] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Proxy"]:
        """Listens meanwhile."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def clients(self) -> list[str]:
        """Ids of those who are connected."""
        return [link.client for link in self._links]

    def cut(self, client: str | None = None) -> int:
        """Resets the connections of a client, or of all; returns how many."""
        found = self._of(client)
        for link in found:
            self._links.remove(link)
            for writer in link.writers:
                writer.transport.abort()
        return len(found)

    def freeze(self, client: str | None = None) -> int:
        """Lets nothing more through on the connections of a client, or of all, and leaves them open."""
        found = self._of(client)
        for link in found:
            link.open.clear()
        return len(found)

    def thaw(self, client: str | None = None) -> None:
        """What was held back comes through."""
        for link in self._of(client):
            link.open.set()

    def _of(self, client: str | None) -> list[_Link]:
        return [link for link in self._links if client in (None, link.client)]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first = await reader.read(CHUNK_BYTES)
            broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(_client_of(first), [writer, broker_writer])
        if any(link.client.startswith(each) for each in self.barred):
            for each in link.writers:
                each.transport.abort()
            return
        link.open.set()
        self._links.append(link)
        broker_writer.write(first)
        for source, target in ((reader, broker_writer), (broker_reader, writer)):
            task = asyncio.create_task(self._pass_on(link, source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, link: _Link, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(CHUNK_BYTES):
                if self.delay:
                    await asyncio.sleep(self.delay)
                await link.open.wait()
                target.write(chunk)
                await target.drain()
            await link.open.wait()
        target.close()
        if link in self._links:
            self._links.remove(link)


def _client_of(packet: bytes) -> str:
    """The client id in a CONNECT packet of MQTT 5; "" where it is none."""
    try:
        _, at = _varint(packet, 1)
        at += 2 + int.from_bytes(packet[at : at + 2]) + 4  # Protocol name, version, flags, keep-alive.
        size, at = _varint(packet, at)
        at += size
        return packet[at + 2 : at + 2 + int.from_bytes(packet[at : at + 2])].decode()
    except (IndexError, UnicodeDecodeError):
        return ""


def _varint(packet: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = packet[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
