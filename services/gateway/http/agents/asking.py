"""Fetches output or results of a task from the agent of a node: one request, one answer of limited size and time.

A node over MQTT is asked by a bridge: any of those that the gateway knows will do.

An answer counts only under the node's own name, and nothing of it is believed that `largesse.task_output` and
`largesse.task_results` do not say.
"""

import asyncio
import ssl
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import httpx

from largesse.agents_http import ended_text, plain_fault
from largesse.task_output import ATTEMPT, CUT, END, FROM, NODE, PIECE_BYTES_MAX, PREFIX, START, Piece, Wanted, cut_of
from largesse.task_results import BadAnswer, FilePiece, Listed, WantedResults, answer_of, path_of
from largesse.tls import Peers
from schemas.edge.nodes import HTTPS

CONNECT_SECONDS = 3
ANSWER_SECONDS = 10


class Unanswered(Exception):
    """The agent did not answer, or something else did: says why."""


class NoConnection(Unanswered):
    """Nothing is there to answer, so another one may be asked."""


@dataclass(frozen=True, slots=True)
class Way:
    """Where to ask for a node: its agent at `[https://]HOST:PORT`, or with `by_bridge` any bridge of these. `peers`:
    the gateway's TLS among agents."""

    addresses: tuple[str, ...]
    by_bridge: bool = False
    peers: Peers | None = None

    def __str__(self) -> str:
        return f"by bridge {', '.join(self.addresses)}" if self.by_bridge else ", ".join(self.addresses)


async def ask(way: Way, node: str, wanted: Wanted) -> Piece | None:
    """Asks the agent of a node. None: it has no such output. Raises Unanswered."""
    found = await _asked(way, node, _path_of(wanted))
    return None if found is None else _piece_of(*found)


async def ask_results(way: Way, node: str, wanted: WantedResults) -> Listed | FilePiece | None:
    """The same of what a task has left."""
    found = await _asked(way, node, path_of(wanted))
    if found is None:
        return None
    try:
        return answer_of(wanted, lambda name: str(found[0].get(name, "")), found[1])
    except BadAnswer as why:
        raise Unanswered(f"no answer that could be read ({why})") from None


async def _asked(way: Way, node: str, path: str) -> tuple[httpx.Headers, bytes] | None:
    """Headers and body; None: it has no such thing. Raises Unanswered."""
    if way.by_bridge:
        path = f"/v1/nodes/{_encoded(node)}/{path.removeprefix('/v1/')}"
    for address in way.addresses[:-1]:
        try:
            return await _asked_at(address, node, path, way)
        except NoConnection:
            pass
    return await _asked_at(way.addresses[-1], node, path, way)


async def _asked_at(address: str, node: str, path: str, way: Way) -> tuple[httpx.Headers, bytes] | None:
    if fault := plain_fault(address, way.peers):
        raise NoConnection(fault)
    try:
        async with asyncio.timeout(CONNECT_SECONDS + ANSWER_SECONDS):
            status, headers, body = await _answer(address, path, way.peers)
    except httpx.ConnectTimeout:
        raise NoConnection(f"no connection within {CONNECT_SECONDS} s") from None
    except (TimeoutError, httpx.TimeoutException):
        raise Unanswered(f"no answer within {ANSWER_SECONDS} s") from None
    except httpx.ConnectError as error:
        raise NoConnection(_why_not(error)) from None
    except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError) as error:
        text = ended_text(address) or f"no answer that could be read ({str(error) or type(error).__name__})"
        raise Unanswered(text) from None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise Unanswered(f"no answer that could be read ({str(error) or type(error).__name__})") from None
    speaker = headers.get(NODE)
    if speaker is None and way.by_bridge and status != 200:
        raise (NoConnection if status == 503 else Unanswered)(_status_text(status, body))
    if speaker is None:
        raise Unanswered("what answers there shows no output: an agent of an older version, or something else")
    if speaker != quote(node, safe=""):
        raise Unanswered("the agent of another node answers there")
    if status == 404:
        return None
    if status != 200:
        raise Unanswered(_status_text(status, body))
    return headers, body


def _status_text(status: int, body: bytes) -> str:
    return f"it answers {status}: {body[:200].decode(errors='replace').strip()}"


async def _answer(address: str, path: str, peers: Peers | None) -> tuple[int, httpx.Headers, bytes]:
    """Status, headers and body. Raises httpx.HTTPError, httpx.InvalidURL; ValueError if there is no valid length."""
    times = httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
    # Agents are asked directly: no proxy. Where that is in plain text, no certificates are read for each request.
    if not address.startswith(HTTPS):
        url, tls = f"http://{address}{path}", ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    else:
        url, tls = address + path, ssl.create_default_context() if peers is None else peers.client.context()
    named = {"sni_hostname": peers.name} if peers is not None and peers.name else {}
    async with (
        httpx.AsyncClient(timeout=times, trust_env=False, verify=tls) as client,
        client.stream("GET", url, headers={"Accept-Encoding": "identity"}, extensions=named) as response,
    ):
        size = response.headers.get("content-length", "")
        chunked = "transfer-encoding" in response.headers
        if chunked or not size.isdecimal() or int(size) > PIECE_BYTES_MAX:
            raise ValueError("its length is missing, or too large")
        body = b"".join([chunk async for chunk in response.aiter_raw()])
        return response.status_code, response.headers, body


def _encoded(name: str) -> str:
    # Dots too are encoded: a name that is `..` leads nowhere else.
    return quote(name, safe="").replace(".", "%2E")


def _path_of(wanted: Wanted) -> str:
    names = "/".join(_encoded(part) for part in (wanted.job, wanted.stage, str(wanted.index)))
    query = {"stream": wanted.stream, "offset": wanted.offset, "attempt": wanted.attempt, "admitted": wanted.admitted}
    query["since_ms"] = wanted.since_ms
    return f"{PREFIX}{names}?{urlencode({name: value for name, value in query.items() if value is not None})}"


def _why_not(error: BaseException) -> str:
    """Why there is no connection, in the operating system's words."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(error) or "no connection"


def _piece_of(headers: httpx.Headers, body: bytes) -> Piece:
    numbers = [headers.get(name, "") for name in (ATTEMPT, START, END)]
    if not all(text.isdecimal() for text in numbers):
        raise Unanswered(_status_text(200, body))
    asked = headers.get(FROM, "")
    cut = cut_of(headers.get(CUT, ""))
    return Piece(
        int(numbers[0]), int(numbers[1]), int(numbers[2]), body, cut, int(asked) if asked.isdecimal() else None
    )
