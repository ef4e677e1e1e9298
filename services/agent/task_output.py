"""What attempts on this node printed, read piece by piece from where their shims keep it, and shown over HTTP.

Only regular files of attempts are read: names become folders as they did when the attempt began (folders.py), so no
name leads elsewhere, and no link is followed that a task put in the place of its output or of a folder above it.
"""

import os
import re
import stat
from dataclasses import replace
from pathlib import Path

from largesse.process.health import Page, Pages
from largesse.readers import Readers, ReadersBusy
from largesse.task_output import NUMBER_MAX, PIECE_BYTES_MAX, Piece, Wanted, named, page_of, wanted_of
from services.agent.documents import TASK
from services.agent.found import AttemptFolder, Unsound, places
from services.agent.streams import TIMES, space_ms

LOOKS_MAX = 3
"""A segment may go while it is looked for: the middle of a long output makes room for its end."""
TIMES_BYTES_MAX = 16 << 20
"""Of a stream's index of times: several times what a shim writes in a year."""
TIME = re.compile(rb"^([0-9]{1,18}) ([0-9]{1,18})$", re.MULTILINE)
ENTRIES_MAX = 1_000
"""Files of an attempt that are looked at: its shim leaves a dozen; a task may have left any number."""


def pages_of(node: str, data: Path, most: int = PIECE_BYTES_MAX) -> Pages:
    """What an agent answers beside its health: the output of its attempts, at most `most` bytes at a time."""
    readers = Readers()

    async def pages(path: str, query: dict[str, str]) -> Page | None:
        try:
            wanted = wanted_of(path, query)
        except ValueError as error:
            return Page("400 Bad Request", f"{error}\n".encode())
        if wanted is None:
            return None
        try:
            return page_of(node, await readers.read(lambda: read_piece(data, wanted, most)))
        except ReadersBusy as error:
            return Page("503 Service Unavailable", f"{error}\n".encode(), headers=named(node))
        except OSError as error:
            return Page("503 Service Unavailable", f"it cannot be read at the moment: {error.strerror}\n".encode())

    return pages


def read_piece(data: Path, wanted: Wanted, most: int = PIECE_BYTES_MAX) -> Piece | None:
    """The next piece of what is wanted, of at most `most` bytes; None where nothing is kept of it.

    Attempt None is the last one that began. Blocks. Raises OSError where the disk or this process cannot read.
    """
    place = attempt_with_output(data, wanted)
    if place is None:
        return None
    try:
        folder = place.open()
    except Unsound:
        return None  # It has just been cleared away, or lies behind a link.
    try:
        asked = None if wanted.since_ms is None else _offset_since(folder, wanted.stream, wanted.since_ms)
        offset = wanted.offset if asked is None else max(asked, wanted.offset)
        for _ in range(LOOKS_MAX):
            segments = _segments(folder, wanted.stream)
            piece = _piece(place.attempt, folder, segments, offset, most)
            if piece is not None:
                return replace(piece, cut=_cut_in(segments), asked=None if asked is None else min(offset, piece.end))
    finally:
        os.close(folder)
    return Piece(place.attempt, wanted.offset, wanted.offset, b"")


def _cut_in(segments: list[tuple[int, int, str]]) -> tuple[int, int] | None:
    """What was not kept between segments."""
    end = 0
    for first, size, _ in segments:
        if first > end:
            return end, first
        end = max(end, first + size)
    return None


def _offset_since(folder: int, stream: str, since_ms: int) -> int:
    """The first byte that may have been printed at that time or later; 0 where that is not known, all of it where
    everything was printed before.
    """
    text = _read(folder, stream + TIMES, 0, TIMES_BYTES_MAX)
    if text is None:
        return 0
    times = [(int(match[1]), int(match[2])) for match in TIME.finditer(text)]
    first_ms = times[0][0] if times else 0
    # What follows a noted byte, up to the next one, may have been printed for as long as nothing is noted.
    before = [i for i, (at_ms, _) in enumerate(times) if at_ms + space_ms(first_ms, at_ms) <= since_ms]
    if not before:
        return 0
    following = times[before[-1] + 1 :]
    return following[0][1] if following else NUMBER_MAX


def attempt_with_output(data: Path, wanted: Wanted) -> AttemptFolder | None:
    """Where the attempt lives; of two jobs that had the same name, of the later, unless `admitted` says which."""
    found = [
        place
        for place in places(data, wanted.job, wanted.stage, wanted.index, ended=True)
        if wanted.admitted in (None, place.admitted) and wanted.attempt in (None, place.attempt)
    ]

    def order(place: AttemptFolder) -> tuple[int, int]:
        # Of one job the numbers say which is later, also where the wall clock was set back between two attempts.
        made = made_ns(place)
        return (made, place.attempt) if wanted.admitted is None else (place.attempt, made)

    return max(found, key=order, default=None)


def made_ns(place: AttemptFolder) -> int:
    """When an attempt's folder was made; 0: it is half made, or being cleared away."""
    try:
        folder = place.open()
    except (Unsound, OSError):
        return 0
    try:
        return os.stat(TASK, dir_fd=folder, follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0
    finally:
        os.close(folder)


def _segments(folder: int, stream: str) -> list[tuple[int, int, str]]:
    """(offset at which it starts, size, file) of each that there is, in order."""
    found = []
    with os.scandir(folder) as entries:
        names = [entry.name for entry, _ in zip(entries, range(ENTRIES_MAX), strict=False)]
    for name in names:
        match = re.fullmatch(rf"{stream}(?:\.([0-9]{{1,18}}))?", name)
        if match is None:
            continue
        try:
            about = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue  # Overtaken by what was printed later.
        first = int(match[1] or 0)
        if stat.S_ISREG(about.st_mode):
            found.append((first, min(about.st_size, NUMBER_MAX - first), name))
    return sorted(found)


def _piece(number: int, folder: int, segments: list[tuple[int, int, str]], offset: int, most: int) -> Piece | None:
    """What lies in a row from the first byte that is kept at or behind `offset`; None: it has gone meanwhile."""
    end = max((first + size for first, size, _ in segments), default=0)
    data, start = b"", min(offset, end)
    for first, size, name in segments:
        if not data and first + size > offset:
            start = max(offset, first)
        at = start + len(data)
        if not first <= at < first + size or len(data) == most:
            continue
        part = _read(folder, name, at - first, min(most - len(data), first + size - at))
        if part is None:
            return None
        data += part
    return Piece(number, start, max(end, start + len(data)), data)


def _read(folder: int, name: str, at: int, most: int) -> bytes | None:
    """Bytes of a regular file; None where there is none."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        file = os.open(name, flags, dir_fd=folder)
    except OSError:
        return None
    try:
        return os.pread(file, most, at) if stat.S_ISREG(os.fstat(file).st_mode) else None
    finally:
        os.close(file)
