"""Serves an app on a bound socket until it is stopped. Signals are handled by the process that calls it."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from largesse.descriptors import ACCEPTED_AT_ONCE, connections_within
from services.gateway.http.connections import CONNECTIONS_MAX, Door, Limits

LAST_WORDS_S = 2
"""Seconds that open requests have once the gateway shuts down."""

BACKLOG = 128
"""Connections that the kernel keeps until they are accepted."""

HEAD_BYTES_MAX = 16 << 10
"""A request line and its headers."""


class PortTaken(OSError):
    """The address is in use, or listening there is not permitted: names address and port."""


class _Server(uvicorn.Server):
    """Leaves signals to the host, and looks after connections."""

    def __init__(self, config: uvicorn.Config, door: Door) -> None:
        super().__init__(config)
        self._door = door

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """asyncio's `backlog` is both, how many connections wait in the kernel and how many are accepted in one turn of
        the loop, before any of them is looked at."""
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(BACKLOG)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        self._door.look()
        return await super().on_tick(counter)


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens on host and port (0: any free one). Raises PortTaken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY where the protocol is said, and connections inherit it. Without it, what follows the head
    # of an answer waits until the client has acknowledged the head, which it puts off for 40 ms.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise PortTaken(f"{host}:{port}: {error.strerror or error}") from None
    return found


async def serve(
    app: ASGIApp,
    listening: socket.socket,
    stop: asyncio.Event,
    door: Door | None = None,
    *,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Until `stop` is set; then open requests get LAST_WORDS_S seconds. `door`: by default one with as many connections
    as the limit of open files allows, CONNECTIONS_MAX at most, over `tls` where there is one."""
    if door is None:
        limits = Limits(connections=connections_within(CONNECTIONS_MAX))
        door = Door(limits, asyncio.get_running_loop().time, tls)
    # Errors of clients are answered, not logged: otherwise anybody could fill the disk with log lines.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    config = uvicorn.Config(
        app,
        http=door.protocol(),
        ws="none",
        backlog=ACCEPTED_AT_ONCE,
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=door.limits.idle_s,  # type: ignore[arg-type]  # It goes to call_later as it is.
        timeout_graceful_shutdown=LAST_WORDS_S,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
    )
    server = _Server(config, door)
    serving = asyncio.ensure_future(server.serve([listening]))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        door.read_no_more()
        server.should_exit = True
        await serving
    finally:
        stopping.cancel()
        listening.close()
        door.close()
