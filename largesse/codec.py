"""Bytes <-> records. Canonical: orjson, keys in model order, whole numbers and strings, never floats.

A stored log or decision message is `{"header":{...},"content":{...}}`. Hashes run over the content's bytes exactly as
they stand there, so they are cut out of the message and never encoded again.
"""

from functools import cache
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from schemas.envelope import Header, Record
from schemas.history import lift
from schemas.registry import NEWEST, VERSION_OF

_OPEN = b'{"header":'
_BETWEEN = b',"content":'


class Undecodable(Exception):
    """Bytes that are no record of ours: what is wrong with them, for whoever has to look."""


def record_of(body: Any, *, cell: str, seq: int, round_number: int, time: int, id_: str, cause: str) -> Record:
    """A record around `body`, at the newest version of its type."""
    kind = type(body)
    return Record(kind.__name__, VERSION_OF[kind], cell, seq, round_number, time, id_, cause, body)


def encode(record: Record) -> bytes:
    """The content's bytes. The same record always gives the same bytes."""
    return orjson.dumps(record)


def wrap(header: Header, content: bytes) -> bytes:
    """A message as it is stored: header first, content last and untouched."""
    return b"".join((_OPEN, orjson.dumps(header), _BETWEEN, content, b"}"))


def unwrap(message: bytes) -> tuple[Header, bytes]:
    """Header and content bytes of a stored message. Raises Undecodable."""
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
    """The record of some content bytes, its body lifted to the newest version. Raises Undecodable."""
    try:
        document = orjson.loads(content)
        body = lift(document["type"], document["version"], document["body"])
        model = NEWEST[document["type"]].model
        document["body"] = _adapter(model).validate_python(body)
        return Record(**document)
    except (orjson.JSONDecodeError, ValidationError, KeyError, TypeError) as error:
        raise Undecodable(f"content: {str(error)[:300]}") from error


@cache
def _adapter(model: type) -> TypeAdapter[Any]:
    return TypeAdapter(model)
