"""Foreign JSON: the elements of a long array one after the other, and documents with what our own reader refuses.

Our own reader refuses numbers that other programs write (NaN, more digits than any quantity has); in a trace they may
stand in fields that nobody reads, so here they are read, and refused only by whoever asks a `Row` for them.
"""

import json
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

from services.simulator.workloads.files import LINE_BYTES_MAX, Damaged, read_chunks
from services.simulator.workloads.source import Row

_MARK = re.compile(rb'["\\{}]')
_EXPONENT_MAX = 60


def foreign_row(text: bytes, where: str) -> Row:
    """One JSON object of another program. Raises Damaged."""
    try:
        return Row(
            json.loads(text, parse_float=_decimal, parse_constant=lambda _: None, object_pairs_hook=_once), where
        )
    except _Twice as twice:
        raise Damaged(where, str(twice), "stands twice") from None
    except UnicodeDecodeError as error:
        raise Damaged(where, "", f"is not valid UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise Damaged(where, "", f"is no JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    except (RecursionError, ValueError):
        raise Damaged(where, "", "is no JSON that can be read: nested too deep, or a number too long") from None


class _Twice(Exception):
    """A key that stands twice in an object."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Twice(key[:40])
            seen.add(key)
    return document


def _decimal(text: str) -> Decimal | None:
    """None, as if it were no number, where its power of ten would take all memory."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if abs(number.adjusted()) <= _EXPONENT_MAX else None


def json_elements(path: str) -> Iterator[Row]:
    """The objects of an array, or one after the other, on however many lines, with no more than one in memory.

    Raises Damaged at the line where an object begins.
    """
    cutter = _Cutter(path)
    for chunk in read_chunks(path):
        yield from cutter.cut(chunk)
    if cutter.depth:
        raise Damaged(f"{path}:{cutter.begun}", "", "is no JSON: the file ends within it")


class _Cutter:
    """Where the objects begin and end in a text that comes in pieces."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.depth = 0  # Of braces; those within texts do not count.
        self.begun = 1  # The line where the open object begins.
        self._within = False  # Of a text.
        self._skipped = -1  # Where a character stands that a backslash has made plain.
        self._offset = 0  # Of the piece at hand.
        self._line = 1  # Where it begins.
        self._parts: list[bytes] = []
        self._size = 0

    def cut(self, chunk: bytes) -> Iterator[Row]:
        """The objects that end in this piece."""
        at = 0  # From where on nothing has been taken yet.
        for mark in _MARK.finditer(chunk):
            sign, position = mark[0], mark.start()
            if self._offset + position == self._skipped:
                continue
            if sign == b"\\":
                self._skipped = self._offset + position + 1
            elif sign == b'"':
                self._within = not self._within
            elif not self._within and sign == b"{":
                if not self.depth:
                    self._check_between(chunk, at, position)
                    at, self.begun = position, self._line + chunk.count(b"\n", 0, position)
                self.depth += 1
            elif not self._within and self.depth:
                self.depth -= 1
                if not self.depth:
                    yield foreign_row(b"".join([*self._parts, chunk[at : position + 1]]), f"{self.path}:{self.begun}")
                    self._parts, self._size = [], 0
                    at = position + 1
        if self.depth:
            self._parts.append(chunk[at:])
            self._size += len(chunk) - at
            if self._size > LINE_BYTES_MAX:
                raise Damaged(f"{self.path}:{self.begun}", "", f"is too long: at most {LINE_BYTES_MAX} bytes")
        else:
            self._check_between(chunk, at, len(chunk))
        self._offset += len(chunk)
        self._line += chunk.count(b"\n")

    def _check_between(self, chunk: bytes, begin: int, end: int) -> None:
        if chunk[begin:end].strip(b" \t\r\n,[]"):
            line = self._line + chunk.count(b"\n", 0, begin)
            raise Damaged(f"{self.path}:{line}", "", "is no list of JSON objects")
