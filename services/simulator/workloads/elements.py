"""Foreign JSON: the elements of a long array one after the other, and documents with what our own reader refuses.

Our own reader refuses numbers that other programs write (NaN, more digits than any quantity has); in a trace they may
stand in fields that nobody reads, so here they are read, and refused only by whoever asks a `Row` for them.
"""

import codecs
import json
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

from services.simulator.workloads.files import LINE_BYTES_MAX, Damaged, read_chunks
from services.simulator.workloads.source import Row

_BETWEEN = " \t\r\n,[]"
"""What may stand between the objects of an array."""

_EXPONENT_MAX = 60


def foreign_row(text: bytes, where: str) -> Row:
    """One JSON object of another program. Raises Damaged."""
    try:
        return Row(_DECODER.decode(text.decode()), where)
    except UnicodeDecodeError as error:
        raise Damaged(where, "", f"is not valid UTF-8 at byte {error.start}") from None
    except (_Twice, RecursionError, ValueError) as error:
        raise _damaged(where, error) from None


def _damaged(where: str, error: Exception) -> Damaged:
    if isinstance(error, _Twice):
        return Damaged(where, str(error), "stands twice")
    if isinstance(error, json.JSONDecodeError):
        return Damaged(where, "", f"is no JSON: {error.msg} at line {error.lineno} column {error.colno}")
    return Damaged(where, "", "is no JSON that can be read: nested too deep, or a number too long")


class _Twice(Exception):
    """A key that stands twice in an object."""


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
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


_DECODER = json.JSONDecoder(parse_float=_decimal, parse_constant=lambda _: None, object_pairs_hook=_once)


def json_elements(path: str) -> Iterator[Row]:
    """The objects of an array, or one after the other, on however many lines, with few of them in memory at a time.

    Raises Damaged at the line where an object begins.
    """
    texts = _texts(path)
    text, at, line = "", 0, 1
    while True:
        begin = at
        while begin < len(text) and text[begin] in _BETWEEN:
            begin += 1
        line += text.count("\n", at, begin)
        if begin == len(text):
            text, at = next(texts, ""), 0
            if not text:
                return
            continue
        where = f"{path}:{line}"
        if text[begin] != "{":
            raise Damaged(where, "", "is no list of JSON objects")
        document, text, begin, end = _decoded(text, begin, texts, where)
        yield Row(document, where)
        line += text.count("\n", begin, end)
        at = end


def _decoded(text: str, begin: int, texts: Iterator[str], where: str) -> tuple[object, str, int, int]:
    """The object that begins there, and the text with as much more of the file as it needs, and where it stands."""
    while True:
        try:
            document, end = _DECODER.raw_decode(text, begin)
        except (_Twice, RecursionError) as error:
            raise _damaged(where, error) from None
        except ValueError as error:
            text, begin = text[begin:], 0
            wanted = 2 * len(text)  # Twice as much each time: what is read again is never more than what is read.
            while len(text) < wanted and (more := next(texts, "")):
                text += more
            if len(text) > LINE_BYTES_MAX:
                raise Damaged(where, "", f"is no JSON, or longer than {LINE_BYTES_MAX} characters") from None
            if len(text) * 2 == wanted:
                if isinstance(error, json.JSONDecodeError) and error.pos >= len(text.rstrip()):
                    raise Damaged(where, "", "is no JSON: the file ends within it") from None
                raise _damaged(where, error) from None
            continue
        return document, text, begin, end


def _texts(path: str) -> Iterator[str]:
    """The file in pieces of text. Raises Damaged where it is none."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for chunk in read_chunks(path):
            if text := decoder.decode(chunk):
                yield text
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise Damaged(path, "", f"is not valid UTF-8: {error.reason}") from None
