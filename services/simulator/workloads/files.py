"""Bytes and lines of files, plain or gzipped, from disk or standard input; errors say where one is damaged."""

import gzip
import sys
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from io import BufferedReader
from pathlib import Path
from typing import IO, cast

LINE_BYTES_MAX = 64 << 20  # A job of a million tasks, each with a duration of its own, has 10 MB.
CHUNK_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"


class Damaged(ValueError):
    """A line that cannot be read: `where` is file and line, `field` the path inside it (empty for the whole line)."""

    def __init__(self, where: str, field: str, reason: str) -> None:
        self.where, self.field, self.reason = where, field, reason
        super().__init__(": ".join(part for part in (where, field, reason) if part))


def read_lines(path: str) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers from 1. `-` is standard input; gzip is seen by its first bytes, and
    a byte order mark, which some editors write, is left out.

    Raises Damaged for a broken archive or a line that is too long, OSError where the file cannot be read.
    """
    number = 0
    with _opened(path) as file:
        while line := _readable(file.readline, f"{path}:{number + 1}"):
            number += 1
            if number == 1:
                line = line.removeprefix(BOM_UTF8)
            if not line.isspace():
                yield number, line


def read_bytes(path: str) -> bytes:
    """A whole small file, as `read_lines` reads it."""
    with _opened(path) as file:
        return _readable(file.read, path).removeprefix(BOM_UTF8)


def read_chunks(path: str) -> Iterator[bytes]:
    """A file of any size in pieces, as `read_lines` reads it."""
    first = True
    with _opened(path) as file:
        while chunk := _readable(lambda _: file.read(CHUNK_BYTES), path):
            yield chunk.removeprefix(BOM_UTF8) if first else chunk
            first = False


def _readable(read: Callable[[int], bytes], where: str) -> bytes:
    try:
        data = read(LINE_BYTES_MAX + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Damaged(where, "", f"is a broken gzip archive from here on: {error}") from None
    if len(data) > LINE_BYTES_MAX:
        raise Damaged(where, "", f"is too long: at most {LINE_BYTES_MAX} bytes")
    return data


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as raw:
        source = cast(BufferedReader, raw)
        if source.peek(len(_GZIP))[: len(_GZIP)] == _GZIP:
            with gzip.GzipFile(fileobj=source, mode="rb") as archive:
                yield cast(IO[bytes], archive)
        else:
            yield source
