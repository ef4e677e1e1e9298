"""A bus for other processes, over a socket: one call a line, one connection a call."""

import asyncio
import base64
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from largesse.bus.memory import MemoryBus
from largesse.bus.port import BusError, Fetched, Message, Outgoing


async def serve_bus(bus: MemoryBus, path: Path) -> asyncio.Server:
    """The bus for another process: one call a line, one connection a client."""

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, BusError, asyncio.CancelledError):
            while line := await reader.readline():
                call = json.loads(line)
                writer.write(json.dumps(await _answer(bus, call)).encode() + b"\n")
                await writer.drain()
        writer.close()

    return await asyncio.start_unix_server(client, path, limit=1 << 24)


async def _answer(bus: MemoryBus, call: dict[str, Any]) -> Any:
    match call:
        case {"fetch": [topic, offset, wait_ms, most]}:
            found = await bus.fetch(topic, 0, offset, wait_ms=wait_ms, most=most)
            messages = [[m.offset, base64.b64encode(m.value).decode(), m.headers] for m in found]
            return [messages, found.position]
        case {"bounds": topic}:
            return await bus.bounds(topic, 0)
        case {"wait": [positions, wait_ms]}:
            return await bus.wait_any({(topic, 0): offset for topic, offset in positions}, wait_ms)
        case {"send": batch}:
            sent = [Outgoing(t, 0, base64.b64decode(value), headers=headers) for t, value, headers in batch]
            return await bus.writer().send(sent)
    raise AssertionError(call)


class SocketBus:
    """The client's side: as much of the Bus port as an agent needs."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def fetch(self, topic: str, partition: int, offset: int, *, wait_ms: int = 0, most: int = 1_000) -> Fetched:
        found, position = await self._call({"fetch": [topic, offset, wait_ms, most]})
        messages = [Message(topic, 0, at, base64.b64decode(value), headers) for at, value, headers in found]
        return Fetched(messages, position)

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        first, end = await self._call({"bounds": topic})
        return first, end

    def writer(self) -> "SocketBus":
        return self

    async def send(self, batch: list[Outgoing], *, durable: bool = True) -> list[int]:
        sent = [[out.topic, base64.b64encode(out.value).decode(), out.headers] for out in batch]
        offsets: list[int] = await self._call({"send": sent})
        return offsets

    async def wait_any(self, positions: dict[tuple[str, int], int], wait_ms: int) -> bool:
        reached: bool = await self._call({"wait": [[[topic, at] for (topic, _), at in positions.items()], wait_ms]})
        return reached

    async def drop(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def _call(self, call: dict[str, Any]) -> Any:
        try:
            reader, writer = await asyncio.open_unix_connection(self._path, limit=1 << 24)
            writer.write(json.dumps(call).encode() + b"\n")
            line = await reader.readline()
            writer.close()
        except OSError as error:
            raise BusError(str(error)) from error
        if not line:
            raise BusError("the bus is gone")
        return json.loads(line)
