"""What attempts on this node printed, read piece by piece from where their shims keep it, and shown over HTTP.

Only regular files of attempts are read: names become folders as they did when the attempt began (folders.py), so no
name leads elsewhere, and what a task put in the place of its output is not followed.
"""

import asyncio
import os
import re
import stat
from pathlib import Path

from largesse.health import Page, Pages
from largesse.output import PIECE_BYTES_MAX, Piece, Wanted, page_of, wanted_of
from services.agent.folders import JOBS, encoded
from services.agent.shim import TASK

READERS_MAX = 4
"""Pieces that are read at once for who asks over HTTP; more wait."""
LOOKS_MAX = 3
"""A segment may go while it is looked for: the middle of a long output makes room for its end."""


def pages_of(node: str, data: Path) -> Pages:
    """What an agent answers beside its health: the output of its attempts."""
    reading = asyncio.Semaphore(READERS_MAX)

    async def pages(path: str, query: dict[str, str]) -> Page | None:
        try:
            wanted = wanted_of(path, query)
        except ValueError as error:
            return Page("400 Bad Request", f"{error}\n".encode())
        if wanted is None:
            return None
        async with reading:
            return page_of(node, await asyncio.to_thread(read_piece, data, wanted))

    return pages


def read_piece(data: Path, wanted: Wanted, most: int = PIECE_BYTES_MAX) -> Piece | None:
    """The next piece of what is wanted, of at most `most` bytes; None where nothing is kept of it.

    Attempt None is the last one that began. Blocks.
    """
    folder = attempt_with_output(data, wanted)
    if folder is None:
        return None
    number = int(folder.name.partition(".")[2])
    for _ in range(LOOKS_MAX):
        piece = _piece(number, _segments(folder, wanted.stream), wanted.offset, most)
        if piece is not None:
            return piece
    return Piece(number, wanted.offset, wanted.offset, b"")


def attempt_with_output(data: Path, wanted: Wanted) -> Path | None:
    """The folder of the attempt; of two jobs that had the same name, of the later, unless `admitted` says which."""
    run = "*" if wanted.admitted is None else f"{wanted.admitted}-*"
    number = "*" if wanted.attempt is None else str(wanted.attempt)
    stages = (data / JOBS / encoded(wanted.job)).glob(f"{run}/{encoded(wanted.stage)}")
    found = [folder for stage in stages for folder in stage.glob(f"{wanted.index}.{number}")]
    return max(found, key=lambda folder: (made_ns(folder), int(folder.name.partition(".")[2])), default=None)


def made_ns(attempt: Path) -> int:
    """When an attempt's folder was made; 0: it is half made, or being cleared away."""
    try:
        return (attempt / TASK).stat().st_mtime_ns
    except OSError:
        return 0


def _segments(folder: Path, stream: str) -> list[tuple[int, int, Path]]:
    """(offset at which it starts, size, file) of each that there is, in order."""
    found = []
    for path in (folder / stream, *folder.glob(f"{stream}.*")):
        match = re.fullmatch(rf"{stream}(?:\.([0-9]{{1,18}}))?", path.name)
        try:
            about = path.lstat()
        except OSError:
            continue  # Not made yet, or overtaken by what was printed later.
        if match is not None and stat.S_ISREG(about.st_mode):
            found.append((int(match[1] or 0), about.st_size, path))
    return sorted(found)


def _piece(number: int, segments: list[tuple[int, int, Path]], offset: int, most: int) -> Piece | None:
    """What lies in a row from the first byte that is kept at or behind `offset`; None: it has gone meanwhile."""
    end = max((first + size for first, size, _ in segments), default=0)
    data, start = b"", min(offset, end)
    for first, size, path in segments:
        if not data and first + size > offset:
            start = max(offset, first)
        at = start + len(data)
        if not first <= at < first + size or len(data) == most:
            continue
        part = _read(path, at - first, min(most - len(data), first + size - at))
        if part is None:
            return None
        data += part
    return Piece(number, start, max(end, start + len(data)), data)


def _read(path: Path, at: int, most: int) -> bytes | None:
    """Bytes of a regular file; None where there is none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.pread(file, most, at) if stat.S_ISREG(os.fstat(file).st_mode) else None
    finally:
        os.close(file)
