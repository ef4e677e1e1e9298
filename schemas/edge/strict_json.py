"""Bytes from outside -> a document, or a refusal that says where.

Python's own reader is too kind: it takes the last of two equal keys, NaN, half characters, and numbers that other
readers round. Here whole numbers become int, numbers with a point or an exponent Decimal, and no float appears.
Raises `schemas.edge.read.Malformed`.
"""

import re
from decimal import Decimal
from fractions import Fraction
from json import JSONDecodeError, JSONDecoder
from typing import Any

from schemas.edge.base import Malformed, at_key, joined, shown
from schemas.quantities import QUANTITY_MAX

INPUT_BYTES_MAX = 900 * 1024
DEPTH_MAX = 32
NUMBER_TEXT_MAX = 40  # Characters of a number with a point or an exponent.
EXPONENT_MAX = 30
_LONG_RUN = b"0" * len(str(QUANTITY_MAX))  # Fewer digits than these are within QUANTITY_MAX.

_DIGITS = bytes.maketrans(b"0123456789", b"0" * 10)
_NO_BRACKET = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_TEXT_FAULT = re.compile("[\ud800-\udfff]")


class _Fault:
    """Stands in a document where something must not be."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class _Suspect(Exception):
    """The quick reading met something that the careful one has to place."""


def loads(data: bytes, *, size_max: int = INPUT_BYTES_MAX, depth_max: int = DEPTH_MAX) -> Any:
    """The JSON document that `data` is. Raises Malformed with the path of the first fault ("": the whole document)."""
    if len(data) > size_max:
        raise Malformed("", f"is too large: at most {size_max} bytes, has {len(data)}")
    _check_depth(data, depth_max)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Malformed("", f"is not valid UTF-8 at byte {error.start}") from None
    if not text or text.isspace():
        raise Malformed("", "is empty")
    careful = _LONG_RUN in data.translate(_DIGITS) or _HALF.search(data) is not None
    try:
        if not careful:
            try:
                return _QUICK.decode(text)
            except _Suspect:
                pass
        document = _CAREFUL.decode(text)
    except JSONDecodeError as error:
        raise Malformed("", f"is no JSON: {error.msg[:100]} at line {error.lineno} column {error.colno}") from None
    _check_faults(document)
    return document


def loads_exact(text: str) -> object:
    """The JSON document of an offline problem: numbers of any size, those with a point or an exponent as Fractions.
    Raises Malformed with the path of the first fault, ValueError where it is no JSON, RecursionError."""
    document: object = _EXACT.decode(text)
    _check_faults(document)
    return document


def _check_depth(data: bytes, depth_max: int) -> None:
    """Before anything recurses. Strings are cut out first: brackets in them open nothing."""
    if data.count(b"[") + data.count(b"{") <= depth_max:
        return
    if b"\\" in data:
        data = _ESCAPE.sub(b"", data)
    depth = 0
    for byte in b"".join(data.translate(None, _NO_BRACKET).split(b'"')[::2]):
        depth += 1 if byte in b"[{" else -1
        if depth > depth_max:
            raise Malformed("", f"is nested too deep: at most {depth_max} levels")


def _check_faults(document: object) -> None:
    """Raises Malformed for the first fault in the document's order."""
    waiting: list[tuple[str, object]] = [("", document)]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node, _Fault):
            raise Malformed(path, node.reason)
        if isinstance(node, str) and _TEXT_FAULT.search(node):
            raise Malformed(path, "holds half a character: a surrogate without its other half")
        children: list[tuple[str, object]] = []
        if isinstance(node, dict):
            for key, value in node.items():
                if _TEXT_FAULT.search(key):
                    raise Malformed(path, f"has a key with half a character in it: {shown(key)}")
                children.append((joined(path, at_key(key)), value))
        elif isinstance(node, list):
            children = [(f"{path}[{i}]", value) for i, value in enumerate(node) if not isinstance(value, int)]
        waiting.extend(reversed(children))


def _object_quick(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise _Suspect
    return document


def _object_careful(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document: dict[str, object] = {}
    for key, value in pairs:
        document[key] = _Fault("is given twice: remove one of them") if key in document else value
    return document


def _fraction_quick(text: str) -> Decimal:
    number = _fraction_careful(text)
    if isinstance(number, _Fault):
        raise _Suspect
    return number


def _fraction_careful(text: str) -> Decimal | _Fault:
    if len(text) > NUMBER_TEXT_MAX:
        return _Fault(f"has too many digits: at most {NUMBER_TEXT_MAX}")
    exponent = text.lower().partition("e")[2].lstrip("+-")
    if len(exponent) > 2 or (exponent and int(exponent) > EXPONENT_MAX):
        return _Fault(f"has too large an exponent: at most {EXPONENT_MAX}")
    return Decimal(text)


def _fraction_exact(text: str) -> Fraction | _Fault:
    """A decimal as it is written, not as a float would keep it."""
    exponent = text.lower().partition("e")[2].lstrip("+-")
    if len(exponent) > 2:
        return _Fault(f"has too large an exponent: at most 99, is {text}")
    return Fraction(text)


def _whole_careful(text: str) -> int | _Fault:
    if len(text) > len(str(QUANTITY_MAX)) + 1 or abs(number := int(text)) > QUANTITY_MAX:
        return _Fault(f"is too large: whole numbers go up to {QUANTITY_MAX} (2^53 - 1)")
    return number


def _constant_quick(text: str) -> object:
    raise _Suspect


def _constant_careful(text: str) -> _Fault:
    return _Fault(f"is {text}, which is no number in JSON")


_QUICK = JSONDecoder(object_pairs_hook=_object_quick, parse_float=_fraction_quick, parse_constant=_constant_quick)
_CAREFUL = JSONDecoder(
    object_pairs_hook=_object_careful,
    parse_float=_fraction_careful,
    parse_int=_whole_careful,
    parse_constant=_constant_careful,
)
_EXACT = JSONDecoder(object_pairs_hook=_object_careful, parse_float=_fraction_exact, parse_constant=_constant_careful)
