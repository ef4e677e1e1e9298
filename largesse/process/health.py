"""What a service answers to who watches over it, over HTTP: /livez, /readyz, /metrics, and what it adds. No framework.

/livez: 200 as long as the process's loop turns. /readyz: 200 once what the log had at the start has been folded, while
the bus answers and the process is not ending, else 503 with the reason. /metrics: counters for Prometheus.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from largesse.bus.port import Bus, BusError
from largesse.descriptors import ACCEPTED_AT_ONCE
from largesse.hosts import Hosts, hosts_of
from largesse.telemetry import PORT_REFUSED, behind, exposition
from schemas.topics import LOG

REQUEST_BYTES_MAX = 8_192
REQUEST_SECONDS = 5
CONNECTIONS_MAX = 64
"""Connections at once; beyond them the oldest gives way. They are out of the reserve of largesse/descriptors.py."""
SENT_SECONDS = 0.01
"""Between two looks whether an answer has been sent."""
READY_SECONDS = 2
"""So long may the bus take before it counts as silent."""


class AddressTaken(OSError):
    """The address is in use, or may not be bound: names address and port."""


WhyNot = Callable[[], Awaitable[str]]
"""Says why a process is not ready; "" where it is."""

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

TEXT, OCTETS = "text/plain; charset=utf-8", "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Page:
    """One answer. `status`: code and phrase."""

    status: str
    body: bytes
    kind: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)


Metrics = Callable[[], Awaitable[tuple[str, bytes]]]

Pages = Callable[[str, dict[str, str]], Awaitable[Page | None]]
"""(path as it was sent, query) -> what a service answers there beside its health; None: there is nothing."""


def readiness(bus: Bus, partition: int, stop: asyncio.Event) -> WhyNot:
    """Ready: the bus tells where the cell's log ends, all has caught up, and the process has not been asked to end."""

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
async def served(
    host: str,
    port: int,
    why_not_ready: WhyNot,
    pages: Pages | None = None,
    hosts: Hosts | None = None,
    *,
    seconds: float = REQUEST_SECONDS,
    tls: ssl.SSLContext | None = None,
    metrics: Metrics | None = None,
) -> AsyncIterator[int]:
    """Answers on host and port while the context is open; yields the port (0: any free one). Raises AddressTaken.

    `pages`: what a service answers besides. `hosts`: the names that it answers to; by default those of `host`.
    `seconds`: for one request and its answer. `tls`: with which it is served; who does not get through the handshake
    gets nothing. `metrics`: what /metrics has; by default this process's counters.
    """
    names = hosts or hosts_of(host)

    open_now: dict[asyncio.WriteTransport, None] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(open_now) >= CONNECTIONS_MAX:
            next(iter(open_now)).abort()  # It has had the longest time.
        wire = writer.transport
        open_now[wire] = None
        # Nothing is left to be sent once `drain` returns, so a client that does not read cannot block this.
        wire.set_write_buffer_limits(0)
        try:
            async with asyncio.timeout(seconds):
                if tls is not None:
                    reader, writer = await _counted(_secured(wire, tls))
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await _response(head, names, why_not_ready, pages, metrics or own_metrics))
                await writer.drain()
                while wire.get_write_buffer_size():  # noqa: ASYNC110 - under TLS nothing else says so
                    await asyncio.sleep(SENT_SECONDS)
            writer.close()
            wire.close()  # Under TLS: without waiting for the client's goodbye.
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # The client has gone, or asks for something else.
        finally:
            del open_now[wire]
            if not wire.is_closing():
                wire.abort()

    try:
        server = await asyncio.start_server(answer, host, port, limit=REQUEST_BYTES_MAX, backlog=ACCEPTED_AT_ONCE)
    except OSError as error:
        raise AddressTaken(f"{host}:{port}: {error.strerror or error}") from None
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _counted(secured: Awaitable[_Streams]) -> _Streams:
    """A handshake; one that fails is counted. Raises OSError."""
    try:
        return await secured
    except OSError:
        PORT_REFUSED.labels("handshake").inc()
        raise


async def _secured(wire: asyncio.WriteTransport, tls: ssl.SSLContext) -> _Streams:
    """What is read from and written to once the handshake is done. Before it, nothing may be read. Raises OSError."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(REQUEST_BYTES_MAX, loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport = await loop.start_tls(wire, protocol, tls, server_side=True)
    if transport is None:
        raise ConnectionResetError
    protocol.connection_made(transport)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def own_metrics() -> tuple[str, bytes]:
    """This process's counters: content type and text."""
    return exposition()


async def _response(head: bytes, hosts: Hosts, why_not_ready: WhyNot, pages: Pages | None, metrics: Metrics) -> bytes:
    line, _, rest = head.partition(b"\r\n")
    words = line.split(b" ")
    method, target = (words[0], words[1]) if len(words) == 3 else (b"", b"")
    if method not in (b"GET", b"HEAD"):
        return _written(method, Page("405 Method Not Allowed", b"only GET and HEAD\n"))
    said = _fields(rest)
    if why := hosts.refusal(said.get("host"), said.get("origin"), said.get("sec-fetch-site")):
        PORT_REFUSED.labels("origin").inc()
        return _written(method, Page("403 Forbidden", f"{why}\n".encode()))
    return _written(method, await _page(target, why_not_ready, pages, metrics))


def _fields(lines: bytes) -> dict[str, str]:
    """Header fields by lower-case name. One that is said twice has both values, so that neither passes for it."""
    fields: dict[str, str] = {}
    for line in lines.decode("latin-1").split("\r\n"):
        name, colon, value = line.partition(":")
        if colon:
            name = name.strip().lower()
            fields[name] = f"{fields[name]}, {value.strip()}" if name in fields else value.strip()
    return fields


async def _page(target: bytes, why_not_ready: WhyNot, pages: Pages | None, metrics: Metrics) -> Page:
    path, _, query = target.decode("latin-1").partition("?")
    match path:
        case "/livez":
            return Page("200 OK", b"live\n")
        case "/readyz":
            why_not = await why_not_ready()
            return Page("503 Service Unavailable" if why_not else "200 OK", f"{why_not or 'ready'}\n".encode())
        case "/metrics":
            kind, body = await metrics()
            return Page("200 OK", body, kind)
    page = await pages(path, dict(parse_qsl(query))) if pages is not None else None
    return page or Page("404 Not Found", b"/livez, /readyz or /metrics\n")


def _written(method: bytes, page: Page) -> bytes:
    fields = {"Content-Type": page.kind, "Content-Length": str(len(page.body)), **page.headers, "Connection": "close"}
    head = f"HTTP/1.1 {page.status}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return head.encode() + b"\r\n" + (b"" if method == b"HEAD" else page.body)
