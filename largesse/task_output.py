"""What a task printed, on its way from its node's agent to the reader: what is wanted, and a piece of it.

An agent answers at `/v1/output/JOB/STAGE/INDEX` beside its health, piece by piece; offsets count what the
task printed, kept or not. Its name comes with every answer, so that an address that was given away is noticed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, get_args
from urllib.parse import quote, unquote_to_bytes

from largesse.process.health import OCTETS, Page

Stream = Literal["stdout", "stderr"]

PREFIX = "/v1/output/"
PIECE_BYTES_MAX = 256 << 10
"""An answer carries at most so much."""
NUMBER_MAX = 2**63 - 1
FOLDER_NAME_MAX = 120  # Characters of a folder's name; a longer one ends in a hash. File systems take 255 bytes.

NODE, ATTEMPT, START, END = "Largesse-Node", "Largesse-Output-Attempt", "Largesse-Output-Start", "Largesse-Output-End"
FROM, CUT = "Largesse-Output-From", "Largesse-Output-Cut"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A task's output from byte `offset` on. `attempt` None: the last. `admitted`: the seq of the job's admission, None
    for the latest job of that name. `since_ms`: nothing of what was printed before that time (Unix milliseconds), as
    far as its node knows when what was printed: to a second in the first hour, to a thousandth or so of the time since
    then.
    """

    job: str
    stage: str
    index: int
    stream: Stream = "stdout"
    attempt: int | None = None
    offset: int = 0
    admitted: int | None = None
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """What an attempt printed from byte `start` on, or a first part of it. `end`: how much it has printed so far.

    `start` lies behind what was asked for where that was not kept. `cut`: first byte that was not kept, and the first
    one behind it that was; None: all was. `asked`: the first byte that was asked for, where `since_ms` decided it.
    """

    attempt: int
    start: int
    end: int
    data: bytes
    cut: tuple[int, int] | None = None
    asked: int | None = None


def rendered(piece: Piece, offset: int) -> bytes:
    """The piece as it follows what was printed before `offset`: a line in brackets stands for what was not kept."""
    gap = piece.start - offset
    return (b"\n[%d bytes were not kept]\n" % gap if gap > 0 and piece.data else b"") + piece.data


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
    number, offset = whole("index", index), whole("offset", query.get("offset", "0"))
    numbers = [whole(name, query[name]) if name in query else None for name in ("attempt", "admitted", "since_ms")]
    attempt, admitted, since_ms = numbers
    return Wanted(job, stage, number, stream, attempt, offset, admitted, since_ms)  # type: ignore[arg-type]


def whole(name: str, text: str) -> int:
    """A number of a request or an answer. Raises ValueError, which names it."""
    if re.fullmatch("[0-9]{1,19}", text) is None or int(text) > NUMBER_MAX:
        raise ValueError(f"{name}: has to be a whole number")
    return int(text)


def cut_text(cut: tuple[int, int]) -> str:
    """The header that says what was not kept: `FIRST-END`."""
    return f"{cut[0]}-{cut[1]}"


def cut_of(text: str) -> tuple[int, int] | None:
    """What `cut_text` wrote; None for anything else."""
    match = re.fullmatch("([0-9]{1,19})-([0-9]{1,19})", text)
    return None if match is None else (int(match[1]), int(match[2]))


def named(node: str) -> dict[str, str]:
    """The header that says whose answer it is."""
    return {NODE: quote(node, safe="")}


def page_of(node: str, piece: Piece | None) -> Page:
    """The agent's answer: a piece, or that nothing is kept."""
    headers = named(node)
    if piece is None:
        return Page("404 Not Found", b"nothing is kept of it\n", headers=headers)
    headers |= {ATTEMPT: str(piece.attempt), START: str(piece.start), END: str(piece.end)}
    if piece.cut is not None:
        headers[CUT] = cut_text(piece.cut)
    if piece.asked is not None:
        headers[FROM] = str(piece.asked)
    return Page("200 OK", piece.data, OCTETS, headers)


def folder_name(name: str) -> str:
    """A folder's name for any job or stage name: different for different names, readable where that is possible."""
    text = quote(name, safe=" +,=@^").replace("~", "%7E")
    if text.startswith("."):
        text = "%2E" + text[1:]
    if len(text) <= FOLDER_NAME_MAX:
        return text
    digest = blake2b(name.encode(), digest_size=16).hexdigest()
    return f"{text[: FOLDER_NAME_MAX - 33]}~{digest}"
