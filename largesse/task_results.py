"""What a task has left in its results folder, on its way from its node's agent to the reader: what is wanted, a page of
the list of it, and a piece of a file.

An agent answers at `/v1/results/JOB/STAGE/INDEX` beside its health: with a page of the list, or for `file` with a piece
of that file. Its name comes with every answer, as with output. Paths are relative, with `/` between names.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import quote, unquote_to_bytes, urlencode

from largesse.process.health import OCTETS, Page
from largesse.task_output import ATTEMPT, END, NUMBER_MAX, START, named, whole

Kind = Literal["file", "folder", "link"]

PREFIX = "/v1/results/"
ENTRIES_MAX = 10_000
"""Files and folders of one task; results with more are not shown, and have to be packed into an archive."""
LIST_BYTES_MAX = 128 << 10
"""A page of a list has no more."""
PATH_BYTES_MAX = 1_024
"""Of a path, as UTF-8; what has a longer one is left out, and so are names that are no UTF-8."""
LEVELS_MAX = 50
"""What lies deeper is left out."""
CHANGED = "Largesse-Result-Changed"


@dataclass(frozen=True, slots=True)
class WantedResults:
    """The list of a task's results behind the path `after`, or, of `file`, what follows byte `offset`. `attempt` None:
    the last. `admitted`: as of output (largesse/task_output.py).
    """

    job: str
    stage: str
    index: int
    attempt: int | None = None
    admitted: int | None = None
    after: str = ""
    file: str | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, folder or link. `target`: of a link, which nobody follows on the way. `changed_ms`: Unix ms."""

    path: str
    kind: Kind
    size: int = 0
    changed_ms: int = 0
    executable: bool = False
    target: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of a list, in order. `more`: others follow. `left_out`: how many of all are none of these, or have names
    that cannot be sent. `too_many`: more than ENTRIES_MAX, so that none is listed."""

    attempt: int
    entries: tuple[Entry, ...]
    more: bool = False
    left_out: int = 0
    too_many: bool = False


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Bytes of a file from `start` on; it has `size` in all."""

    attempt: int
    start: int
    size: int
    changed_ms: int
    data: bytes


class BadAnswer(ValueError):
    """An agent's answer that cannot be believed: says why."""


def names_in(path: str) -> list[str] | None:
    """The names of a relative path; None where it could lead elsewhere, or nowhere."""
    names = path.split("/")
    fits = len(path.encode(errors="replace")) <= PATH_BYTES_MAX and len(names) <= LEVELS_MAX
    return names if fits and not any(name in ("", ".", "..") or "\0" in name for name in names) else None


def stays_inside(path: str, target: str) -> bool:
    """Whether a link at `path` with this target leads nowhere out of the folder that the path begins in. Only first
    names may be `..`: whatever follows a name may be behind another link.
    """
    names = target.split("/")
    up = next((at for at, name in enumerate(names) if name != ".."), len(names))
    rest = names[up:]
    return (
        up <= path.count("/") and len(target) <= PATH_BYTES_MAX and (not rest or names_in("/".join(rest)) is not None)
    )


def path_of(wanted: WantedResults) -> str:
    """Path and query of the request for it."""
    # Dots too are encoded: a name that is `..` leads nowhere else.
    each = (wanted.job, wanted.stage, str(wanted.index))
    names = "/".join(quote(part, safe="").replace(".", "%2E") for part in each)
    query = {"attempt": wanted.attempt, "admitted": wanted.admitted, "after": wanted.after or None}
    query |= {"file": wanted.file, "offset": wanted.offset or None}
    return f"{PREFIX}{names}?{urlencode({name: value for name, value in query.items() if value is not None})}"


def wanted_of(path: str, query: Mapping[str, str]) -> WantedResults | None:
    """What a request asks for, `path` as it was sent; None for any other path. Raises ValueError, which says what is
    wrong.
    """
    parts = path.removeprefix(PREFIX).split("/")
    if not path.startswith(PREFIX) or len(parts) != 3:
        return None
    job, stage, index = (unquote_to_bytes(part).decode() for part in parts)
    attempt, admitted = (whole(name, query[name]) if name in query else None for name in ("attempt", "admitted"))
    offset, file = whole("offset", query.get("offset", "0")), query.get("file")
    if file is not None and names_in(file) is None:
        raise ValueError("file: has to be a path as the list has it")
    return WantedResults(job, stage, whole("index", index), attempt, admitted, query.get("after", ""), file, offset)


def page_of(node: str, found: Listed | FilePiece | None) -> Page:
    """The agent's answer; None: nothing is kept of it."""
    headers = named(node)
    if found is None:
        return Page("404 Not Found", b"nothing is kept of it\n", headers=headers)
    headers[ATTEMPT] = str(found.attempt)
    if isinstance(found, FilePiece):
        headers |= {START: str(found.start), END: str(found.size), CHANGED: str(found.changed_ms)}
        return Page("200 OK", found.data, OCTETS, headers)
    rows = [_row(entry) for entry in found.entries]
    document = {"entries": rows, "more": found.more, "left_out": found.left_out, "too_many": found.too_many}
    return Page("200 OK", json.dumps(document).encode(), "application/json", headers)


def answer_of(wanted: WantedResults, header: Callable[[str], str], body: bytes) -> Listed | FilePiece:
    """What `page_of` wrote, checked: an agent may be anything. `header`: says what a header has. Raises BadAnswer."""
    try:
        attempt = whole(ATTEMPT, header(ATTEMPT))
        if wanted.file is not None:
            start, size, changed_ms = (whole(name, header(name)) for name in (START, END, CHANGED))
            if start != wanted.offset or start + len(body) > size or (not body and start < size):
                raise BadAnswer("a piece of a file that is not the one asked for")
            return FilePiece(attempt, start, size, changed_ms, body)
        document = json.loads(body)
        entries = tuple(_entries(document["entries"]))
        left_out = whole("left_out", str(document["left_out"]))
        more, too_many = document["more"] is True, document["too_many"] is True
    except BadAnswer:
        raise
    except (ValueError, TypeError, KeyError, RecursionError):
        raise BadAnswer("an answer that is no list of results") from None
    if more and (not entries or order_of(entries[-1].path) <= order_of(wanted.after)):
        raise BadAnswer("a list that does not end")
    return Listed(attempt, entries, more, left_out, too_many)


def order_of(path: str) -> list[str]:
    """The key by which lists are in order: folders before what they hold."""
    return path.split("/") if path else []


def _row(entry: Entry) -> list[object]:
    return [entry.path, entry.kind, entry.size, entry.changed_ms, entry.executable, entry.target]


def _entries(rows: object) -> Iterator[Entry]:
    if not isinstance(rows, list) or len(rows) > ENTRIES_MAX:
        raise BadAnswer("a list that is too long")
    for path, kind, size, changed_ms, executable, target in rows:
        texts = isinstance(path, str) and isinstance(target, str)
        numbers = type(size) is int and type(changed_ms) is int and 0 <= size <= NUMBER_MAX
        if not (texts and numbers and kind in get_args(Kind) and names_in(path) is not None):
            raise BadAnswer("a list with a strange entry")
        yield Entry(path, kind, size, changed_ms, executable is True, target)
