"""What a service answers to who watches over it, over HTTP: /livez, /readyz, /metrics. Nothing else, and no framework.

/livez: 200 as long as the process's loop turns. /readyz: 200 once what the log had at the start has been folded, while
the bus answers and the process is not ending, else 503 with the reason. /metrics: counters for Prometheus.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from largesse.bus import Bus, BusError
from largesse.telemetry import behind, exposition
from schemas.topics import LOG

REQUEST_BYTES_MAX = 8_192
REQUEST_SECONDS = 5
READY_SECONDS = 2
"""So long may the bus take before it counts as silent."""


class AddressTaken(OSError):
    """Somebody else listens there, or it may not be listened to: names address and port."""


WhyNot = Callable[[], Awaitable[str]]
"""Says why a process is not ready; "" where it is."""

_TEXT = "text/plain; charset=utf-8"


def readiness(bus: Bus, partition: int, stop: asyncio.Event) -> WhyNot:
    """Ready: the bus tells where the cell's log ends, all has caught up, and nobody has asked the process to end."""

    async def why_not() -> str:
        if stop.is_set():
            return "ending"
        try:
            async with asyncio.timeout(READY_SECONDS):
                await bus.bounds(LOG, partition)
        except TimeoutError:
            return f"the bus has not answered within {READY_SECONDS} s"
        except BusError as error:
            return str(error)
        left = behind()
        return f"catching up: {', '.join(left)}" if left else ""

    return why_not


@asynccontextmanager
async def served(host: str, port: int, why_not_ready: WhyNot) -> AsyncIterator[int]:
    """Answers on host and port while the context is open; yields the port (0: any free one). Raises
    AddressTaken.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await _response(head, why_not_ready))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # Whoever asked has gone, or asks for something else than this.
            pass
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(answer, host, port, limit=REQUEST_BYTES_MAX)
    except OSError as error:
        raise AddressTaken(f"{host}:{port}: {error.strerror or error}") from None
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _response(head: bytes, why_not_ready: WhyNot) -> bytes:
    words = head.partition(b"\r\n")[0].split(b" ")
    method, path = (words[0], words[1].partition(b"?")[0]) if len(words) == 3 else (b"", b"")
    if method not in (b"GET", b"HEAD"):
        return _written(method, "405 Method Not Allowed", _TEXT, b"only GET and HEAD\n")
    match path:
        case b"/livez":
            return _written(method, "200 OK", _TEXT, b"live\n")
        case b"/readyz":
            why_not = await why_not_ready()
            status = "503 Service Unavailable" if why_not else "200 OK"
            return _written(method, status, _TEXT, f"{why_not or 'ready'}\n".encode())
        case b"/metrics":
            return _written(method, "200 OK", *exposition())
        case _:
            return _written(method, "404 Not Found", _TEXT, b"/livez, /readyz or /metrics\n")


def _written(method: bytes, status: str, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (b"" if method == b"HEAD" else body)
