"""Asks the agent of a node over HTTP, or a bridge in its place: one request, one answer of limited size and time.

An answer counts only under the node's own name. Blocks: made for threads.
"""

import ssl
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import quote

from largesse.task_output import NODE, PIECE_BYTES_MAX
from largesse.task_results import BadAnswer
from largesse.tls import Peers
from schemas.edge.nodes import HTTPS

ANSWER_SECONDS = 5
NOT_FOUND, OK = 404, 200
CERT_VARIABLE, CA_VARIABLE = "LARGESSE_PEER_CERT_FILE", "LARGESSE_PEER_CA_FILE"


class NoAnswer(Exception):
    """No answer, or none that counts: says why."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What an agent has answered: OK or NOT_FOUND."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def asked(
    address: str, node: str, path: str, peers: Peers | None = None, *, seconds: float = ANSWER_SECONDS
) -> Answered:
    """What is answered at `address` for the node. `peers`: TLS of this process. Raises NoAnswer."""
    try:
        return _asked(address, node, path, peers, seconds)
    except (ConnectionResetError, BrokenPipeError) as error:
        raise NoAnswer(f"{address}: {ended_text(address) or error.strerror or error}") from None
    except (OSError, HTTPException, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise NoAnswer(f"{address}: {why}") from None


def plain_fault(address: str, peers: Peers | None) -> str:
    """Why an address is not asked as it is; "": it is. Somebody between could say what they like over plain HTTP."""
    if peers is not None and peers.is_mutual and not address.startswith(HTTPS):
        return f"it speaks no TLS, and nobody is believed here without a certificate ({CA_VARIABLE})"
    return ""


def ended_text(address: str) -> str:
    """What to say of a connection that was ended without an answer; "" without TLS."""
    if not address.startswith(HTTPS):
        return ""
    return f"it ended the connection: most likely it asks for a certificate that is not shown ({CERT_VARIABLE})"


def _asked(address: str, node: str, path: str, peers: Peers | None, seconds: float) -> Answered:
    """Raises OSError, HTTPException, ValueError."""
    if fault := plain_fault(address, peers):
        raise BadAnswer(fault)
    with closing(_connection(address, peers, seconds)) as connection:
        connection.request("GET", path, headers={"Accept-Encoding": "identity"})
        response = connection.getresponse()
        body = _body(response)
    speaker = response.headers.get(NODE)
    if speaker is None and response.status == OK:
        raise BadAnswer("what answers there shows no results: an agent of an older version, or something else")
    if speaker not in (None, quote(node, safe="")):
        raise BadAnswer("the agent of another node answers there")
    if response.status != OK and (response.status != NOT_FOUND or speaker is None):
        raise BadAnswer(f"it answers {response.status}: {body[:200].decode(errors='replace').strip()}")
    return Answered(response.status, dict(response.headers.items()), body)


def _connection(address: str, peers: Peers | None, seconds: float) -> HTTPConnection:
    host, _, port = address.removeprefix(HTTPS).rpartition(":")
    if not address.startswith(HTTPS):
        return HTTPConnection(host.strip("[]"), int(port), timeout=seconds)
    if peers is None:
        return HTTPSConnection(host.strip("[]"), int(port), timeout=seconds)
    return _Named(host.strip("[]"), int(port), seconds, peers.client.context(), peers.name)


class _Named(HTTPSConnection):
    """Asks for a certificate of a name that need not be the host's. `name`: "": the host's."""

    def __init__(self, host: str, port: int, seconds: float, tls: ssl.SSLContext, name: str) -> None:
        super().__init__(host, port, timeout=seconds, context=tls)
        self._tls, self._name = tls, name or host

    def connect(self) -> None:
        """As HTTPSConnection does."""
        HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)


def _body(response: HTTPResponse) -> bytes:
    size = response.headers.get("Content-Length", "")
    if response.chunked or not size.isdecimal() or int(size) > PIECE_BYTES_MAX:
        raise BadAnswer("the length of its answer is missing, or too large")
    return response.read(PIECE_BYTES_MAX)
