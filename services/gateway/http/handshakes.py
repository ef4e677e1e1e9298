"""Handshakes of TLS: limited in time and number, as the connections are that come of them."""

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from largesse.telemetry import HTTP_REFUSED

if TYPE_CHECKING:
    from services.gateway.http.connections import Connection, Door

SHARE = 4
"""There may be one handshake for this number of connections. Beyond it the oldest ends."""
SHUTDOWN_SECONDS = 2
"""How long a client may take for its goodbye."""


class Handshake(asyncio.Protocol):
    """One connection until it is secured; what it says then is for the protocol that `make` makes."""

    transport: asyncio.Transport

    def __init__(self, door: "Door", tls: ssl.SSLContext, make: Callable[[], "Connection"]) -> None:
        self._door, self._tls, self._make = door, tls, make
        self._doing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins it, at the cost of the one that has taken longest where there are too many."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.pause_reading()  # What comes is for TLS.
        shaking = self._door.shaking
        if len(shaking) >= max(1, self._door.limits.connections // SHARE):
            oldest = next(iter(shaking))
            del shaking[oldest]
            oldest.transport.abort()
        shaking[self] = None
        self._doing = asyncio.get_running_loop().create_task(self._shake(self.transport))

    async def _shake(self, transport: asyncio.Transport) -> None:
        early, loop = _Early(), asyncio.get_running_loop()
        try:
            secured = await loop.start_tls(
                transport,
                early,
                self._tls,
                server_side=True,
                ssl_handshake_timeout=self._door.limits.head_s,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
        except OSError:  # It does not speak TLS, or none that counts, or has gone.
            HTTP_REFUSED.labels("handshake").inc()
            transport.abort()
            return
        finally:
            self._door.shaking.pop(self, None)
        if secured is not None and not early.is_lost:
            early.hand_over(secured, transport, self._make())


class _Early(asyncio.Protocol):
    """Keeps what comes right behind the handshake until there is a protocol for it."""

    def __init__(self) -> None:
        self.is_lost = False
        self._data: list[bytes] = []
        self._is_over = False

    def data_received(self, data: bytes) -> None:
        """The beginning of a request."""
        self._data.append(data)

    def eof_received(self) -> None:
        """There will be no more."""
        self._is_over = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Before it began."""
        self.is_lost = True

    def hand_over(self, secured: asyncio.Transport, under: asyncio.Transport, connection: "Connection") -> None:
        """Says to a connection all that asyncio would have said."""
        connection.wire = under
        secured.set_protocol(connection)
        connection.connection_made(secured)
        if self._data:
            connection.data_received(b"".join(self._data))
        if self._is_over:
            connection.eof_received()
