"""What a task printed, on its way from its node's agent to who asks: what is wanted, a piece of it, and the asking.

An agent answers at `/v1/output/JOB/STAGE/INDEX` beside its health (health.py), piece by piece; offsets count what the
task printed, kept or not. Its name comes with every answer, so that an address that was given away is noticed.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import quote, unquote_to_bytes, urlencode

from largesse.health import OCTETS, Page

Stream = Literal["stdout", "stderr"]

PREFIX = "/v1/output/"
PIECE_BYTES_MAX = 256 << 10
"""An answer carries at most so much."""
NUMBER_MAX = 2**63 - 1
HEAD_BYTES_MAX = 16_384
CONNECT_SECONDS = 3
ANSWER_SECONDS = 10

NODE, ATTEMPT, START, END = "Largesse-Node", "Largesse-Output-Attempt", "Largesse-Output-Start", "Largesse-Output-End"


class Unanswered(Exception):
    """An agent could not be asked, or what answered is not the agent: says why."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A task's output from byte `offset` on. `attempt` None: the last. `admitted`: the seq of the job's admission, None
    for the latest job of that name.
    """

    job: str
    stage: str
    index: int
    stream: Stream = "stdout"
    attempt: int | None = None
    offset: int = 0
    admitted: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """What an attempt printed from byte `start` on, or a first part of it. `end`: how much it has printed so far.

    `start` lies behind what was asked for where that was not kept.
    """

    attempt: int
    start: int
    end: int
    data: bytes


def rendered(piece: Piece, offset: int) -> bytes:
    """The piece as it follows what was printed before `offset`: a line in brackets stands for what was not kept."""
    gap = piece.start - offset
    return (b"\n[%d bytes were not kept]\n" % gap if gap > 0 and piece.data else b"") + piece.data


# ---------------------------------------------------------------- the agent's side
def wanted_of(path: str, query: Mapping[str, str]) -> Wanted | None:
    """What a request asks for, `path` as it was sent; None for any other path. Raises ValueError, which says what is
    wrong.
    """
    parts = path.removeprefix(PREFIX).split("/")
    if not path.startswith(PREFIX) or len(parts) != 3:
        return None
    job, stage, index = (unquote_to_bytes(part).decode() for part in parts)
    stream = query.get("stream", "stdout")
    if stream not in get_args(Stream):
        raise ValueError(f"stream: has to be one of {', '.join(get_args(Stream))}")
    number, offset = _whole("index", index), _whole("offset", query.get("offset", "0"))
    attempt, admitted = (_whole(name, query[name]) if name in query else None for name in ("attempt", "admitted"))
    return Wanted(job, stage, number, stream, attempt, offset, admitted)  # type: ignore[arg-type]


def _whole(name: str, text: str) -> int:
    if re.fullmatch("[0-9]{1,19}", text) is None or int(text) > NUMBER_MAX:
        raise ValueError(f"{name}: has to be a whole number")
    return int(text)


def page_of(node: str, piece: Piece | None) -> Page:
    """The agent's answer: a piece, or that nothing is kept."""
    headers = {NODE: quote(node, safe="")}
    if piece is None:
        return Page("404 Not Found", b"nothing is kept of it\n", headers=headers)
    headers |= {ATTEMPT: str(piece.attempt), START: str(piece.start), END: str(piece.end)}
    return Page("200 OK", piece.data, OCTETS, headers)


# ---------------------------------------------------------------- who asks
async def ask(address: str, node: str, wanted: Wanted) -> Piece | None:
    """Asks the agent of a node at `HOST:PORT`. None: it keeps nothing of it. Raises Unanswered."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), limit=HEAD_BYTES_MAX)
    except TimeoutError:
        raise Unanswered(f"no connection within {CONNECT_SECONDS} s") from None
    except ConnectionRefusedError:
        raise Unanswered("connection refused") from None
    except OSError as error:
        raise Unanswered(error.strerror or str(error) or "no connection") from None
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            writer.write(f"GET {_path_of(wanted)} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            status, headers = _head_of(head)
            size = _size_of(headers)
            body = await reader.readexactly(size)
    except TimeoutError:
        raise Unanswered(f"no answer within {ANSWER_SECONDS} s") from None
    except (OSError, EOFError, asyncio.LimitOverrunError, ValueError) as error:
        raise Unanswered(f"no answer that could be read ({str(error) or type(error).__name__})") from None
    finally:
        writer.close()
    return _piece_of(node, status, headers, body)


def _path_of(wanted: Wanted) -> str:
    names = "/".join(quote(part, safe="") for part in (wanted.job, wanted.stage, str(wanted.index)))
    query = {"stream": wanted.stream, "offset": wanted.offset, "attempt": wanted.attempt, "admitted": wanted.admitted}
    return f"{PREFIX}{names}?{urlencode({name: value for name, value in query.items() if value is not None})}"


def _head_of(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    match = re.fullmatch(r"HTTP/1\.[01] ([0-9]{3})( .*)?", first)
    if match is None:
        raise ValueError("it is no HTTP")
    fields = (line.partition(":") for line in lines if line)
    return int(match[1]), {name.strip().lower(): value.strip() for name, _, value in fields}


def _size_of(headers: Mapping[str, str]) -> int:
    size = headers.get("content-length", "")
    if not size.isdecimal() or int(size) > PIECE_BYTES_MAX:
        raise ValueError("its length is not told, or too large")
    return int(size)


def _piece_of(node: str, status: int, headers: Mapping[str, str], body: bytes) -> Piece | None:
    speaker = headers.get(NODE.lower())
    if speaker is None:
        raise Unanswered("what answers there shows no output: an agent of an older version, or something else")
    if speaker != quote(node, safe=""):
        raise Unanswered("the agent of another node answers there")
    if status == 404:
        return None
    told = [headers.get(name.lower(), "") for name in (ATTEMPT, START, END)]
    if status != 200 or not all(text.isdecimal() for text in told):
        raise Unanswered(f"it answers {status}: {body[:200].decode(errors='replace').strip()}")
    return Piece(int(told[0]), int(told[1]), int(told[2]), body)
