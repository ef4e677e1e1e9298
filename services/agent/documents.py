"""The small files that an agent and its shims leave for each other in an attempt's folder.

A task can usually write there, so whatever lies in a document's place may be anything. Links are not followed, only
regular files of a limited size are read, and nothing waits for a pipe's other end. What a document says is checked by
whoever reads it (found.py).

Imported by every shim: only the standard library, and little of it.
"""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress

# typing and pathlib would be a quarter of all that a shim's start costs.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    AnyPath = str | os.PathLike[str]

TASK, CLAIM, CHILD, STOP, RESULT = "task.json", "claim.json", "child.json", "stop.json", "result.json"

DOCUMENT_BYTES_MAX = 4 << 20
"""Of a file that is read back: a task's command and environment fit several times."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# What open() says of something that is there but is no file that could be read.
_NO_FILE = (errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM)
_NOT_OURS = (errno.ELOOP, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENOENT)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


class Spoilt(OSError):
    """A folder below that of all jobs is none any more, or barred: tasks can usually write there."""


class BadDocument(Exception):
    """Something lies in a document's place that is none; says what is wrong with it."""


def read_document(path: AnyPath, *, dir_fd: int | None = None, most: int = DOCUMENT_BYTES_MAX) -> dict[str, Any] | None:
    """A file's document; None where nothing is there. Raises BadDocument, OSError.

    Links are not followed, only regular files of at most `most` bytes are read, and nothing is waited for.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        file = os.open(path, flags, dir_fd=dir_fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _NO_FILE:
            raise BadDocument(f"cannot be read as a file: {error.strerror}") from None
        raise
    try:
        about = os.fstat(file)
        if about.st_mode & 0o170000 != 0o100000:
            raise BadDocument("is not a regular file")
        if about.st_size > most:
            raise BadDocument(f"has {about.st_size} bytes, more than {most}")
        with open(file, "rb", closefd=False) as reader:
            text = reader.read(about.st_size + 1)  # Asked for as much as may be, it takes that much memory at once.
    finally:
        os.close(file)
    try:
        document = json.loads(text) if len(text) <= about.st_size else None  # Else it is growing.
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise BadDocument("is not a JSON object")
    return document


def read_json(path: AnyPath, *, most: int = DOCUMENT_BYTES_MAX) -> dict[str, Any] | None:
    """A file's document, or None where there is no such file or it is no whole document. Raises OSError."""
    try:
        return read_document(path, most=most)
    except BadDocument:
        return None


def write_json(path: AnyPath, document: dict[str, object], *, durable: bool = False, dir_fd: int | None = None) -> None:
    """Writes a document so that readers see all of it or nothing. Raises OSError."""
    draft = _draft(path, document, dir_fd, durable=durable)
    try:
        os.replace(draft, path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except OSError:
        os.unlink(draft, dir_fd=dir_fd)
        raise
    if durable:
        folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=dir_fd)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _draft(path: AnyPath, document: dict[str, object], dir_fd: int | None, *, durable: bool = False) -> str:
    draft = f"{os.fspath(path)}.{os.getpid()}.tmp"
    try:
        file = os.open(draft, _NEW, 0o600, dir_fd=dir_fd)
    except FileExistsError:  # Of a process of that number, which has been killed.
        os.unlink(draft, dir_fd=dir_fd)
        file = os.open(draft, _NEW, 0o600, dir_fd=dir_fd)
    try:
        try:
            _fill(file, document)
            if durable:
                os.fsync(file)
        finally:
            os.close(file)
    except OSError:
        with suppress(OSError):
            os.unlink(draft, dir_fd=dir_fd)
        raise
    return draft


def _made(place: str, document: dict[str, object], dir_fd: int | None) -> bool:
    """False where something is there."""
    try:
        file = os.open(place, _NEW, 0o600, dir_fd=dir_fd)
    except FileExistsError:
        return False
    try:
        _fill(file, document)
    finally:
        os.close(file)
    return True


def _fill(file: int, document: dict[str, object]) -> None:
    text = json.dumps(document).encode()
    while text:
        text = text[os.write(file, text) :]


def claim(folder: AnyPath, document: dict[str, object], *, dir_fd: int | None = None) -> bool:
    """Claims the attempt for the caller; False if it is claimed already. Raises OSError.

    A link is as exclusive as O_EXCL and never half written. Where the file system has no links, the file is made
    exclusively and written then: who reads half of it takes the claim for one of a process that is gone.
    """
    place = os.path.join(folder, CLAIM)
    draft = _draft(place, document, dir_fd)
    try:
        os.link(draft, place, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _made(place, document, dir_fd)
    finally:
        os.unlink(draft, dir_fd=dir_fd)
    return True


def open_folder(data: AnyPath, *parts: str, mode: int | None = None) -> int:
    """A descriptor of the folder DATA/PARTS, on the way to which there is no link. Raises OSError; Spoilt where tasks
    may have done that.

    `mode`: folders that are missing are made with it, the last one always; FileExistsError where that is there.
    """
    folder = os.open(data, _FOLDER & ~os.O_NOFOLLOW)  # Where the data folder lies is for the operator to say.
    for at, part in enumerate(parts, 1):
        try:
            if mode is not None:
                _make(part, folder, new=at == len(parts))
            inner = os.open(part, _FOLDER, dir_fd=folder)
        except OSError as error:
            if at > 1 and error.errno in _NOT_OURS and (mode is not None or error.errno != errno.ENOENT):
                raise Spoilt(error.errno, error.strerror, part) from None
            raise
        finally:
            os.close(folder)
        folder = inner
        if mode is not None:
            os.fchmod(folder, mode)
    return folder


def _make(name: str, folder: int, *, new: bool) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
    except FileExistsError:
        if new:
            raise
