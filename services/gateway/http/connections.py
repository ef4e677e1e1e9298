"""Limits on connections of the gateway: their number, the time that each may take, and the memory that all may use.

uvicorn limits the size of a request's head and the time between two requests. This adds limits on the time for head and
body of a request, on clients that do not read their answers, on pipelined requests, and on the number of connections.
When there is no room for a new connection, the one that has waited longest for the rest of a request is closed; if none
waits, the new one is answered with 503.
"""

import asyncio
import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from services.gateway.http.handshakes import Handshake

CONNECTIONS_MAX = 2_048
"""Less where the limit of open files is low: see largesse/descriptors.py."""
HEAD_SECONDS = 10
"""For a request's head, from the opening of the connection or the end of the previous answer."""
BODY_GRACE_SECONDS = 2
"""A body that has begun to arrive is not cut off earlier than this to make room for another connection."""
BODY_SECONDS = 30
"""For a request's body, from the end of its head: a body of the largest size at 30 kB/s."""
IDLE_SECONDS = 5
"""Between an answer and the first byte of the next request."""
STALL_SECONDS = 20
"""A client that reads nothing of its answer for so long is disconnected."""
UNSENT_BYTES_MAX = 64 << 20
"""Bytes of answers that all clients together have not read yet. Beyond it, those that have read nothing for longest are
disconnected."""
PIPELINED_BYTES_MAX = 16 << 10
"""Bytes that a client may send before its previous request is answered."""
TURNED_AWAY_MAX = 64
"""Connections beyond the limit that wait to be answered with 503; with more, the oldest is closed without an answer."""
TURNED_AWAY_SECONDS = 1
LINGER_SECONDS = 2
"""An answer that came before the end of its request stays readable for so long: what the client still sends is thrown
away. If the connection were closed at once, it would be reset, and the answer lost."""
LOOK_SECONDS = 0.5

Phase = Literal["head", "body", "answer"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one server; seconds and bytes."""

    connections: int = CONNECTIONS_MAX
    head_s: float = HEAD_SECONDS
    body_s: float = BODY_SECONDS
    body_grace_s: float = BODY_GRACE_SECONDS
    idle_s: float = IDLE_SECONDS
    stall_s: float = STALL_SECONDS
    unsent_bytes: int = UNSENT_BYTES_MAX


@dataclass(slots=True)
class Door:
    """All connections of one server. `heads`, `bodies`: those that have yet to send the rest of a request's head, or of
    its body, longest first. `tls`: with which every connection begins; None: with none. `shaking`: those that do."""

    limits: Limits
    clock: Callable[[], float]
    tls: ssl.SSLContext | None = None
    shaking: dict[Handshake, None] = field(default_factory=dict)
    open: dict["Connection", None] = field(default_factory=dict)
    heads: dict["Connection", None] = field(default_factory=dict)
    bodies: dict["Connection", None] = field(default_factory=dict)
    turned_away: dict["Connection", None] = field(default_factory=dict)
    looked: float = 0

    def protocol(self) -> type[asyncio.Protocol]:
        """What uvicorn makes a protocol of each connection with."""

        def make(
            config: Config,
            server_state: ServerState,
            app_state: dict[str, Any],
            _loop: asyncio.AbstractEventLoop | None = None,
        ) -> Connection | Handshake:
            def connection() -> Connection:
                return Connection(self, config, server_state, app_state, _loop)

            return connection() if self.tls is None else Handshake(self, self.tls, connection)

        return cast("type[asyncio.Protocol]", make)

    def has_room(self) -> bool:
        """Whether there is room for one more, if need be by ending one that keeps its request waiting."""
        if len(self.open) < self.limits.connections:
            return True
        oldest = next(iter(self.heads), None)
        if oldest is None:
            oldest = next(iter(self.bodies), None)
            if oldest is None or self.clock() - oldest.since < self.limits.body_grace_s:
                return False
        self.leave(oldest)
        oldest.transport.abort()
        return True

    def leave(self, connection: "Connection") -> None:
        """The connection has ended, or is about to."""
        for each in (self.open, self.heads, self.bodies, self.turned_away):
            each.pop(connection, None)

    def look(self) -> None:
        """Ends what has taken too long, or holds too much. To be called every now and then."""
        now = self.clock()
        if now - self.looked < LOOK_SECONDS:
            return
        self.looked = now
        unsent = 0
        for connection in list(self.open):
            unsent += connection.look(now)
        if unsent <= self.limits.unsent_bytes:
            return
        slow = [each for each in self.open if each.unsent]
        for connection in sorted(slow, key=lambda each: (each.taken_at, -each.unsent)):
            if unsent <= self.limits.unsent_bytes:
                break
            unsent -= connection.unsent
            connection.transport.abort()

    def read_no_more(self) -> None:
        """The server is to end: a request that has not come whole by now is not waited for."""
        for handshake in self.shaking:
            handshake.transport.abort()
        for connection in list(self.bodies):
            connection.end(503, "ending", "the gateway is shutting down")

    def close(self) -> None:
        """Ends every connection, taken or not what was sent."""
        for transport in [each.transport for found in (self.open, self.turned_away) for each in found]:
            transport.abort()
        for handshake in self.shaking:
            handshake.transport.abort()


class _Ending:
    """A transport whose `close` leaves the client time to read an answer that came before the end of its request."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self._transport = transport
        self.close = close

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)


class Connection(H11Protocol):
    """One connection. `since`: when it came to where it stands. `unsent`: bytes that its client had not taken at the
    last look; `taken_at`: when it last took any. `wire`: with TLS, the transport below that."""

    wire: asyncio.Transport | None = None

    def __init__(
        self,
        door: Door,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        super().__init__(config, server_state, app_state, loop)
        self._door = door
        self._refused = False
        self._lingers = False
        self._phase: Phase = "head"
        self.since = door.clock()
        self.unsent = 0
        self.taken_at = self.since

    # ---------------------------------------------------------------- what asyncio calls
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accepts the connection, or turns it away."""
        if self._door.has_room():
            self._door.open[self] = None
            self._door.heads[self] = None
            self._under = transport
            super().connection_made(cast("asyncio.Transport", _Ending(transport, self._close)))
            return
        self._refused = True
        self.transport = transport
        turned_away = self._door.turned_away
        if len(turned_away) >= TURNED_AWAY_MAX:
            oldest = next(iter(turned_away))
            self._door.leave(oldest)
            oldest.transport.abort()
        turned_away[self] = None
        # If it were closed before the request is read, the connection would be reset and the answer lost.
        self.loop.call_later(TURNED_AWAY_SECONDS, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        self._door.leave(self)
        if not self._refused:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Part of a request, or of several."""
        if self._refused:
            self._say(503, "busy", "too many connections: try again")
            self.transport.close()
            return
        if self._lingers:
            return
        super().data_received(data)
        self._note()
        if self.flow.read_paused and self._phase == "answer":
            ahead, _ = self.conn.trailing_data
            if len(ahead) > PIPELINED_BYTES_MAX:
                self.transport.abort()

    def on_response_complete(self) -> None:
        """The next request may come."""
        super().on_response_complete()
        self.since = self._door.clock()
        self._note()

    def timeout_keep_alive_handler(self) -> None:
        """No further request has come."""
        if self._lingers:
            return
        if self.unsent_bytes():
            return  # `look` ends it once it stands still.
        super().timeout_keep_alive_handler()

    def _close(self) -> None:
        """Ends the connection once what was written is sent; of a request that has not come whole, not at once."""
        if self._lingers or self._under.is_closing():
            return
        if self.conn.their_state is not h11.SEND_BODY:
            self._under.close()
            return
        self._lingers = True
        if self._under.can_write_eof():  # TLS cannot end one direction alone.
            self._under.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(LINGER_SECONDS, self._under.abort)

    # ---------------------------------------------------------------- time and memory
    def look(self, now: float) -> int:
        """Ends the connection if it has taken too long. Returns how many bytes its client has not taken yet."""
        limits = self._door.limits
        self._note()
        before, self.unsent = self.unsent, self.unsent_bytes()
        if not self.unsent or not before or self.unsent < before:
            self.taken_at = now
        elif now - self.taken_at >= limits.stall_s:
            self.transport.abort()
            return 0
        if self._phase == "head" and now - self.since >= limits.head_s and not self.unsent:
            self.end(408, "too_slow", f"the head of a request must arrive within {limits.head_s:g} s")
        elif self._phase == "body" and now - self.since >= limits.body_s:
            self.end(408, "too_slow", f"the body of a request must arrive within {limits.body_s:g} s")
        return self.unsent

    def unsent_bytes(self) -> int:
        """What waits to be sent: under TLS also what is encrypted already."""
        return self.transport.get_write_buffer_size() + (self.wire.get_write_buffer_size() if self.wire else 0)

    def _note(self) -> None:
        """Where the connection stands, and since when."""
        theirs = self.conn.their_state
        phase: Phase = "head" if theirs is h11.IDLE else "body" if theirs is h11.SEND_BODY else "answer"
        if phase != self._phase:
            self._phase, self.since = phase, self._door.clock()
        door, here = self._door, self in self._door.open
        for name, kept in (("head", door.heads), ("body", door.bodies)):
            if phase == name and here:
                kept.setdefault(self)
            else:
                kept.pop(self, None)

    def end(self, status: Literal[408, 503], kind: str, detail: str) -> None:
        """Ends the connection before its request has come whole; says why, where an answer has not begun."""
        asked = self._phase == "body" or bool(self.conn.trailing_data[0])
        started = self._phase == "body" and self.cycle.response_started
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._door.leave(self)
        if asked and not started:
            self._say(status, kind, detail)
        self.transport.close()
        self.loop.call_later(TURNED_AWAY_SECONDS, self.transport.abort)

    def _say(self, status: Literal[408, 503], kind: str, detail: str) -> None:
        """Writes a problem document where no request has reached the app."""
        title = {408: "The request took too long", 503: "Temporarily unavailable"}[status]
        document = {"type": f"urn:largesse:{kind}", "title": title, "status": status, "detail": detail}
        body = json.dumps(document).encode()
        head = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "content-type: application/problem+json"]
        head += [f"content-length: {len(body)}", "connection: close", "retry-after: 1", "", ""]
        self.transport.write("\r\n".join(head).encode() + body)
