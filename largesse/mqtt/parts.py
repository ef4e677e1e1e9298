"""Documents on MQTT as the messages that carry them, in parts where one has no room, and together again.

Pure. Parts may be lost, repeated, mixed and out of order: a document comes together once all its parts have come, and
never of parts of two. The SHA-256 of the text that was cut tells them apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from typing import Generic

import orjson

from largesse.mqtt.port import PAYLOAD_BYTES_MAX
from schemas.edge.base import Malformed
from schemas.edge.mqtt import CONTENT, PARTS_MAX, NodeDocument, checked
from schemas.edge.strict_json import loads

GATHERED_MAX = 2
"""Unfinished documents of one sender that are kept: the one that comes, and one whose parts came in between."""


class DocumentTooLarge(ValueError):
    """A document of more than PARTS_MAX parts: says of how many bytes."""


def payloads_of(document: NodeDocument, *, bytes_max: int = PAYLOAD_BYTES_MAX) -> list[bytes]:
    """The messages that carry a whole document, none above `bytes_max`. Raises DocumentTooLarge."""
    content = CONTENT[type(document)]
    whole = _encoded(document, 0, 1)
    if len(whole) <= bytes_max:
        return [whole]
    text = dumps(getattr(document, content)).decode()
    digest = sha256(text.encode()).hexdigest()
    around = len(_encoded(document, PARTS_MAX, PARTS_MAX, "", digest))
    if around + 12 > bytes_max:  # The longest character in JSON is a pair of escapes.
        raise DocumentTooLarge(f"what stands around the document's content has {around} bytes: {bytes_max} at most")
    pieces = list(_pieces(text, bytes_max - around))
    if len(pieces) > PARTS_MAX:
        raise DocumentTooLarge(f"a document of {len(whole)} bytes: {PARTS_MAX} parts of {bytes_max} at most")
    return [_encoded(document, i, len(pieces), piece, digest) for i, piece in enumerate(pieces)]


def dumps(value: object) -> bytes:
    """JSON of what was read strictly; numbers with a fraction are written as they stood there."""
    return orjson.dumps(value, default=_fraction)


@dataclass(slots=True)
class _Gathered:
    pieces: dict[int, str]
    whole: int


class Gathering(Generic[NodeDocument]):
    """Puts the documents of one sender together of their parts."""

    def __init__(self) -> None:
        self._gathered: dict[tuple[str, int, str, int], _Gathered] = {}

    def take(self, part: NodeDocument) -> NodeDocument | None:
        """The document that this part makes whole, at once where it has one part; None: others are still to come. The
        fields around it are those of this part. Raises Malformed where the pieces make no document.
        """
        if part.parts == 1:
            return part
        assert part.text is not None
        assert part.digest is not None
        key = (part.epoch, part.number, part.digest, part.parts)
        gathered = self._gathered.pop(key, None) or _Gathered({}, part.parts)
        gathered.pieces[part.part] = part.text
        if len(gathered.pieces) < gathered.whole:
            self._gathered[key] = gathered  # The last of them, in order: it was heard of last.
            while len(self._gathered) > GATHERED_MAX:
                del self._gathered[next(iter(self._gathered))]
            return None
        return _joined(part, "".join(gathered.pieces[i] for i in range(gathered.whole)))


def _joined(part: NodeDocument, text: str) -> NodeDocument:
    data = text.encode()
    if sha256(data).hexdigest() != part.digest:
        raise Malformed("digest", "is not the SHA-256 of the texts of all parts, one after another")
    fields = part.model_dump(exclude={"part", "parts", "text", "digest"}, exclude_none=True)
    content = CONTENT[type(part)]
    try:
        fields[content] = loads(data, size_max=PARTS_MAX * PAYLOAD_BYTES_MAX)
    except Malformed as fault:
        raise fault.under(content) from None
    return checked(type(part), fields)


def _encoded(
    document: NodeDocument, part: int, parts: int, text: str | None = None, digest: str | None = None
) -> bytes:
    """One message: the fields around the content, and that or a piece of it."""
    content = CONTENT[type(document)]
    own = (content, "part", "parts", "text", "digest")
    fields: dict[str, object] = {
        name: getattr(document, name) for name in type(document).model_fields if name not in own
    }
    fields.update(part=part, parts=parts)
    fields.update({content: getattr(document, content)} if text is None else {"text": text, "digest": digest})
    return dumps(fields)


def _pieces(text: str, room: int) -> Iterator[str]:
    """The text in pieces, each as long as its JSON, without quotes, fits into `room` bytes."""
    start = 0
    while start < len(text):
        end = min(start + room, len(text))  # A character has one byte at least.
        while (size := len(orjson.dumps(text[start:end])) - 2) > room:
            end = start + max(1, (end - start) * room // size - 1)
        yield text[start:end]
        start = end


def _fraction(value: object) -> object:
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    if hasattr(value, "model_dump"):
        return value.model_dump()
    raise TypeError(f"{type(value).__name__} is not JSON")
