"""Bytes <-> records. Canonical: orjson, keys in model order, whole numbers and strings, never floats.

A stored log or decision message is `{"header":{...},"content":{...}}`. Hashes run over the content's bytes exactly as
they stand there, so they are cut out of the message and never encoded again.
"""

import re
from dataclasses import asdict
from functools import cache, lru_cache
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from schemas.envelope import Header, Record
from schemas.grants import Grants
from schemas.history import lift
from schemas.jobs import JobCancelled
from schemas.nodes import NodeRegistered, NodeReported
from schemas.registry import NEWEST, VERSION_OF
from schemas.rounds import RoundClosed

_OPEN = b'{"header":'
_BETWEEN = b',"content":'

_HEADING = re.compile(
    rb'\{"type":"\w+","version":\d+,"cell":"(?:[^"\\]|\\.)*+","seq":(\d{1,18}),"round":\d+,"time":-?\d+,'
    rb'"id":("(?:[^"\\]|\\.)*+")'
)


_DIGITS_AS_ZEROS = bytes(ord("0") if chr(byte).isascii() and chr(byte).isdigit() else byte for byte in range(256))
_LONG_NUMBER = b"0" * 19
"""No shorter number is above 64 bits. Looked for in the bytes, since walking every record would cost as much as reading
it.
"""

SHARED_MAX, SHARED_BYTES_MAX = 128, 64 * 1024
"""Records that are kept for the next reader of the same bytes, and the longest content of one."""

_ENVELOPE = ("type", "version", "cell", "seq", "round", "time", "id", "cause")
_ENVELOPE_TYPES = (str, int, str, int, int, int, str, str)


class Undecodable(Exception):
    """Bytes that are no record of ours: what is wrong with them, for an operator."""


def record_of(body: object, *, cell: str, seq: int, round_number: int, time: int, id_: str, cause: str) -> Record:
    """A record around `body`, at the newest version of its type."""
    kind = type(body)
    return Record(kind.__name__, VERSION_OF[kind], cell, seq, round_number, time, id_, cause, body)


_DEVICE = b',"memory_mib":0,"numa":null,"link":"","uuid":"","out":""'
_CLAIM = b',"claim":null'
_LATER: dict[type, tuple[bytes, ...]] = {
    Grants: (_CLAIM,),
    RoundClosed: (_CLAIM,),
    JobCancelled: (b',"if_unstarted":false,"admitted":0,"moved_to":""',),
    NodeRegistered: (_DEVICE,),
    NodeReported: (_DEVICE,),
}
"""Fields that were added to a type after logs of it were written, as they are encoded where they say nothing. They are
left out then, so that what was decided before comes out again to the byte. They stand behind other fields, and no
string of JSON has a quote in it that is not escaped: so nothing else looks like them.
"""


def encode(record: Record) -> bytes:
    """The content's bytes. The same record always gives the same bytes."""
    return _without_later(orjson.dumps(record), type(record.body))


def encode_body(body: object) -> bytes:
    """The bytes of a body alone."""
    return _without_later(orjson.dumps(body), type(body))


def _without_later(content: bytes, kind: type) -> bytes:
    for nothing in _LATER.get(kind, ()):
        content = content.replace(nothing, b"")
    return content


def wrap(header: Header, content: bytes) -> bytes:
    """A message as it is stored: header first, content last and untouched."""
    return b"".join((_OPEN, orjson.dumps(header), _BETWEEN, content, b"}"))


def unwrap(message: bytes) -> tuple[Header, bytes]:
    """Header and content bytes of a stored message, shared as the record of `decode` is. Raises Undecodable."""
    return _unwrapped(message) if len(message) <= SHARED_BYTES_MAX else _unwrapped.__wrapped__(message)


@lru_cache(SHARED_MAX)
def _unwrapped(message: bytes) -> tuple[Header, bytes]:
    # A quote inside a JSON string is escaped, so the separator cannot occur inside the header.
    split = message.find(_BETWEEN)
    if split < 0 or not message.startswith(_OPEN) or not message.endswith(b"}"):
        raise Undecodable("no header and content")
    try:
        header = _adapter(Header).validate_json(message[len(_OPEN) : split])
    except ValidationError as error:
        raise Undecodable(f"header: {error.errors()[0]['msg']}") from error
    return header, message[split + len(_BETWEEN) : -1]


def decode(content: bytes) -> Record:
    """The record of some content bytes, its body lifted to the newest version. Raises Undecodable: they are no JSON,
    the envelope or the body has wrong types, or type or version are unknown.

    Equal bytes may give the same record again: all readers in a process fold one, and nobody may change it.
    """
    return _decoded(content) if len(content) <= SHARED_BYTES_MAX else _decoded.__wrapped__(content)


@lru_cache(SHARED_MAX)
def _decoded(content: bytes) -> Record:
    try:
        document = orjson.loads(content)
        if tuple(map(type, map(document.__getitem__, _ENVELOPE))) != _ENVELOPE_TYPES:
            raise TypeError("a field of its envelope has another type")
        body = lift(document["type"], document["version"], document["body"])
        model = NEWEST[document["type"]].model
        document["body"] = _adapter(model).validate_python(body)
        return Record(**document)
    except (orjson.JSONDecodeError, ValidationError, KeyError, TypeError, AttributeError) as error:
        raise Undecodable(f"content: {str(error)[:300]}") from error


def heading(content: bytes) -> tuple[int, str]:
    """Seq and id of a record, without decoding the rest. Raises Undecodable."""
    found = _HEADING.match(content)
    if found is None:
        raise Undecodable("content: no record of ours")
    try:
        return int(found[1]), orjson.loads(found[2])
    except orjson.JSONDecodeError as error:
        raise Undecodable(f"content: its id is no text: {error}") from error


def has_large_numbers(content: bytes, record: Record) -> bool:
    """Whether a record holds a whole number that 64 bits with a sign cannot. Python has them, kernels have not."""
    if _LONG_NUMBER not in content.translate(_DIGITS_AS_ZEROS):
        return False
    waiting: list[object] = [asdict(record)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            return True
    return False


def header_of(document: object) -> Header:
    """The header that a JSON value is. Raises Undecodable."""
    try:
        header: Header = _adapter(Header).validate_python(document)
    except ValidationError as error:
        raise Undecodable(f"header: {error.errors()[0]['msg']}") from error
    return header


@cache
def _adapter(model: type) -> TypeAdapter[Any]:
    return TypeAdapter(model)
