"""What attempts on this node have left in the folder in which they started, listed and read piece by piece.

Everything is opened by descriptor from the data folder down, no link is followed, and only regular files are read: a
task may have put anything anywhere. An agent that runs as root reads for others only what the task's own user can read.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from largesse.process.health import Page, Pages
from largesse.readers import Readers, ReadersBusy
from largesse.task_output import NUMBER_MAX, PIECE_BYTES_MAX, Wanted, folder_name, named
from largesse.task_results import (
    ENTRIES_MAX,
    LEVELS_MAX,
    LIST_BYTES_MAX,
    PATH_BYTES_MAX,
    Entry,
    FilePiece,
    Listed,
    WantedResults,
    names_in,
    order_of,
    page_of,
    wanted_of,
)
from services.agent.clearing import ENDED
from services.agent.folders import JOBS, WORK
from services.agent.found import AttemptFolder, Unsound, folders_in
from services.agent.task_output import attempt_with_output
from services.agent.trees import FOLDER

OWN_LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO)
"""Errors that say nothing of what is asked for."""
ENTRY_BYTES = 60
"""Of an entry in a list, beside its names."""


class TooMany(Exception):
    """There is more than may be listed."""


def results_beside(output: Pages, node: str, data: Path, most: int = PIECE_BYTES_MAX) -> Pages:
    """What an agent answers beside its health: results of its attempts, at most `most` bytes of a file at a time, and
    what `output` does."""
    readers = Readers()

    async def pages(path: str, query: dict[str, str]) -> Page | None:
        try:
            wanted = wanted_of(path, query)
        except ValueError as error:
            return Page("400 Bad Request", f"{error}\n".encode())
        if wanted is None:
            return await output(path, query)
        try:
            return page_of(node, await readers.read(lambda: read_results(data, wanted, most)))
        except ReadersBusy as error:
            return Page("503 Service Unavailable", f"{error}\n".encode(), headers=named(node))
        except OSError as error:
            text = f"it cannot be read at the moment: {error.strerror}\n"
            return Page("503 Service Unavailable", text.encode(), headers=named(node))

    return pages


def read_results(data: Path, wanted: WantedResults, most: int = PIECE_BYTES_MAX) -> Listed | FilePiece | None:
    """A page of the list, or a piece of a file of at most `most` bytes; None where nothing is kept of it. Blocks.
    Raises OSError where the disk or this process cannot read.
    """
    place = place_of(data, wanted)
    if place is None:
        return None
    try:
        with _opened(place) as work:
            if wanted.file is None:
                return _listed(place.attempt, work, wanted.after)
            return _piece(place.attempt, work, wanted.file, wanted.offset, most)
    except Unsound:
        return None  # It has just been cleared away, or lies behind a link.


def place_of(data: Path, wanted: WantedResults) -> AttemptFolder | None:
    """Where the attempt lives."""
    if wanted.admitted is None or wanted.attempt is None:
        about = Wanted(wanted.job, wanted.stage, wanted.index, attempt=wanted.attempt, admitted=wanted.admitted)
        return attempt_with_output(data, about)
    job, stage = folder_name(wanted.job), folder_name(wanted.stage)
    roots: list[tuple[str, ...]] = [(JOBS,)]
    roots += [(ENDED, shelf) for shelf in folders_in(data / ENDED)]
    for root in roots:
        for run in folders_in(data.joinpath(*root, job)):
            if run.partition("-")[0] == str(wanted.admitted):
                place = AttemptFolder(data, job, run, stage, wanted.index, wanted.attempt, root)
                if place.folder.is_dir():
                    return place
    return None


@contextmanager
def _opened(place: AttemptFolder) -> Iterator[int | None]:
    """The results folder of an attempt; None: it left nothing, or a link lies in its place. Raises Unsound, OSError."""
    work = None
    folder = place.open()
    try:
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            work = os.open(WORK, FOLDER, dir_fd=folder)
        yield work
    finally:
        os.close(folder)
        if work is not None:
            os.close(work)


# ---------------------------------------------------------------- lists
def _listed(attempt: int, work: int | None, after: str) -> Listed:
    if work is None:
        return Listed(attempt, ())
    found: list[Entry] = []
    try:
        left_out = _walk(work, "", found, _reader(work), LEVELS_MAX)
    except TooMany:
        return Listed(attempt, (), too_many=True)
    found.sort(key=lambda entry: order_of(entry.path))
    page: list[Entry] = []
    room, begin = LIST_BYTES_MAX, order_of(after)
    for entry in found:
        if after and order_of(entry.path) <= begin:
            continue
        # As JSON writes them, which is never shorter.
        room -= ENTRY_BYTES + 6 * (len(entry.path) + len(entry.target))
        if room < 0 and page:
            return Listed(attempt, tuple(page), more=True, left_out=left_out)
        page.append(entry)
    return Listed(attempt, tuple(page), left_out=left_out)


def _walk(folder: int, above: str, found: list[Entry], reader: int | None, levels: int) -> int:
    """Adds what lies in a folder, and below it; returns how much was left out. Raises TooMany."""
    left_out = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if len(found) + left_out >= ENTRIES_MAX:
                raise TooMany
            path = f"{above}{entry.name}"
            one = _entry(entry.name, path, folder, reader) if levels else None
            if one is None:
                left_out += 1
                continue
            found.append(one)
            if one.kind != "folder":
                continue
            try:
                inner = os.open(entry.name, FOLDER, dir_fd=folder)
            except OSError:
                found.pop()
                left_out += 1
                continue
            try:
                left_out += _walk(inner, f"{path}/", found, reader, levels - 1)
            finally:
                os.close(inner)
    return left_out


def _entry(name: str, path: str, folder: int, reader: int | None) -> Entry | None:
    """None: it is no file, folder or link, cannot be read, or its name cannot be sent."""
    try:
        if len(path.encode()) > PATH_BYTES_MAX:
            return None
        about = os.stat(name, dir_fd=folder, follow_symlinks=False)
        changed_ms = max(0, about.st_mtime_ns // 1_000_000)
        if stat.S_ISDIR(about.st_mode):
            return Entry(path, "folder", changed_ms=changed_ms)
        if stat.S_ISLNK(about.st_mode):
            target = os.readlink(name, dir_fd=folder)
            fits = len(target.encode()) <= PATH_BYTES_MAX
            return Entry(path, "link", changed_ms=changed_ms, target=target) if fits else None
        if not _may_read(about, reader) or not os.access(name, os.R_OK, dir_fd=folder):
            return None
        return Entry(path, "file", about.st_size, changed_ms, bool(about.st_mode & stat.S_IXUSR))
    except (OSError, UnicodeEncodeError):
        return None  # It has gone meanwhile, or its name is no text.


def _reader(work: int) -> int | None:
    """For which user files are read; None: for the agent's own."""
    owner = os.fstat(work).st_uid
    return None if owner == os.geteuid() else owner


def _may_read(about: os.stat_result, reader: int | None) -> bool:
    own = reader in (None, about.st_uid) or bool(about.st_mode & stat.S_IROTH)
    return stat.S_ISREG(about.st_mode) and own


# ---------------------------------------------------------------- files
@contextmanager
def holding_folder(data: Path, wanted: WantedResults, path: str) -> Iterator[tuple[int, str]]:
    """A descriptor of the folder in which a file of an attempt's results lies, and its name. Raises OSError where there
    is none, and Unsound.
    """
    place = place_of(data, wanted)
    if place is None:
        raise FileNotFoundError
    with _opened(place) as work:
        if work is None:
            raise FileNotFoundError
        with _parent(work, path) as found:
            yield found


@contextmanager
def _parent(work: int, path: str) -> Iterator[tuple[int, str]]:
    names = names_in(path)
    if names is None:
        raise FileNotFoundError
    folder = os.dup(work)
    try:
        for name in names[:-1]:
            inner = os.open(name, FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder, names[-1]
    finally:
        os.close(folder)


def _piece(attempt: int, work: int | None, path: str, offset: int, most: int) -> FilePiece | None:
    if work is None:
        return None
    try:
        with _parent(work, path) as (folder, name):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
            file = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in OWN_LIMITS:
            raise
        return None
    try:
        about = os.fstat(file)
        if not _may_read(about, _reader(work)) or offset > about.st_size:
            return None
        data = os.pread(file, most, offset)
        size = min(max(about.st_size, offset + len(data)), NUMBER_MAX)
        return FilePiece(attempt, offset, size, max(0, about.st_mtime_ns // 1_000_000), data)
    finally:
        os.close(file)
