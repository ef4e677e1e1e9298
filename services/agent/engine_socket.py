"""The container engine, asked over its socket by whoever guards a container: HTTP as Docker's Engine API has it.

Few requests, each on a connection of its own. What an agent asks of its engine beside that goes through docker-py
(engine.py). Imported by shims: only the standard library, and little of it.
"""

from __future__ import annotations

import json
import socket

# As in shim.py.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from services.agent.becoming import Document

API = "v1.40"
"""Engines from 19.03 on, and Podman's compatible socket from 3.0 on."""
ANSWER_S = 60.0
"""An engine that says nothing for so long is given up."""
HEAD_BYTES_MAX = 65_536
BODY_BYTES_MAX = 16 << 20
NOT_FOUND, CONFLICT, NOT_CHANGED = 404, 409, 304


class EngineSilent(OSError):
    """The engine cannot be reached, or its answer is none."""


class EngineRefused(Exception):
    """The engine does not do what it was asked to: its status, and its words."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Line:
    """The engine whose socket lies at `path`."""

    def __init__(self, path: str) -> None:
        self._path = path

    def ask(
        self, method: str, what: str, document: Document | None = None, wait_s: float | None = ANSWER_S
    ) -> Document:
        """The answer; empty where it has none. Raises EngineRefused, EngineSilent."""
        connection, status, headers, rest = self._asked(method, what, document, wait_s, {})
        try:
            text = _body(connection, headers, rest)
        except (OSError, ValueError) as error:
            raise EngineSilent(0, f"the container engine broke off: {error}") from None
        finally:
            connection.close()
        try:
            found = json.loads(text) if text.strip() else {}
        except ValueError:
            found = {}
        if not isinstance(found, dict):
            found = {}
        if status >= 400:
            said = found.get("message") or text[:200].decode(errors="replace") or f"status {status}"
            raise EngineRefused(status, str(said))
        return found

    def opened(self, what: str) -> tuple[socket.socket, bytes]:
        """A stream of both ways that a POST turns into, and what came of it already. Raises as `ask` does."""
        more = {"Connection": "Upgrade", "Upgrade": "tcp"}
        connection, status, headers, rest = self._asked("POST", what, None, ANSWER_S, more)
        if status >= 400:
            with connection:
                raise EngineRefused(status, _body(connection, headers, rest).decode(errors="replace"))
        connection.settimeout(None)
        return connection, rest

    def _asked(
        self, method: str, what: str, document: Document | None, wait_s: float | None, more: dict[str, str]
    ) -> tuple[socket.socket, int, dict[str, str], bytes]:
        body = b"" if document is None else json.dumps(document).encode()
        headers = {"Host": "engine", "Content-Type": "application/json", "Content-Length": str(len(body)), **more}
        if "Connection" not in more:
            headers["Connection"] = "close"
        lines = [f"{method} /{API}{what} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            connection.settimeout(wait_s)
            connection.connect(self._path)
            connection.sendall("\r\n".join(lines).encode() + body)
            status, found, rest = _head(connection)
        except (OSError, ValueError) as error:
            connection.close()
            why = getattr(error, "strerror", None) or error
            raise EngineSilent(0, f"the container engine cannot be reached: {why}") from None
        return connection, status, found, rest


def _head(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Status, headers, and what of the body has come. Raises OSError, ValueError."""
    text = b""
    while b"\r\n\r\n" not in text:
        part = connection.recv(65_536)
        if not part or len(text) > HEAD_BYTES_MAX:
            raise ValueError("its answer is none")
        text += part
    head, _, rest = text.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = [line.partition(":") for line in lines]
    status = first.split(" ")[1:2]
    if not status or not first.startswith("HTTP/1."):
        raise ValueError("its answer is none")
    return int(status[0]), {name.strip().lower(): value.strip() for name, _, value in pairs}, rest


def _body(connection: socket.socket, headers: dict[str, str], text: bytes) -> bytes:
    """The whole body. Raises OSError, ValueError."""
    length = headers.get("content-length")
    chunked = "chunked" in headers.get("transfer-encoding", "")
    while True:
        if length is not None and len(text) >= int(length):
            return text[: int(length)]
        if chunked and (whole := _unchunked(text)) is not None:
            return whole
        part = connection.recv(65_536)
        if not part:
            if chunked or length is not None:
                raise ValueError("its answer ends early")
            return text
        text += part
        if len(text) > BODY_BYTES_MAX:
            raise ValueError("its answer is too long")


def _unchunked(text: bytes) -> bytes | None:
    """The parts of a body put together; None: there is more to come. Raises ValueError."""
    whole = b""
    while True:
        size, found, text = text.partition(b"\r\n")
        if not found:
            return None
        count = int(size.split(b";")[0], 16)
        if count == 0:
            return whole
        if len(text) < count + 2:
            return None
        whole, text = whole + text[:count], text[count + 2 :]
