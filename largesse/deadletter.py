"""Dead letters: what was refused, why, and the original bytes. Written from the log, so that none is forgotten.

A message is `{"header":{...},"content":{...}}` as in the log, in parts where it is large. The content's `seq` is the
refusal's, by which a repeat is recognised; `original` is base64, null where the input topic no longer has it.
"""

from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from largesse.bus import Bus, Outgoing, PositionGap
from largesse.codec import Undecodable, unwrap
from largesse.ids import content_hash
from largesse.order import Accepted, read_piece, split
from schemas import Header, InputRefused, JobRejected
from schemas.topics import DEADLETTER


@dataclass(slots=True)
class Refusal:
    """A refusal in the log: what a letter needs beside the original bytes."""

    seq: int
    id: str
    kind: str
    header: Header
    reason: str
    field: str
    detail: str
    author: str


def refusal_of(accepted: Accepted) -> Refusal | None:
    """The refusal that a record is, or None."""
    record, body = accepted.record, accepted.record.body
    if not isinstance(body, InputRefused | JobRejected) or not accepted.header.topic:
        return None
    detail = body.detail if isinstance(body, JobRejected) else ""
    return Refusal(record.seq, record.id, record.type, accepted.header, body.reason, body.field, detail, body.author)


async def letter(bus: Bus, refusal: Refusal, partition: int) -> list[Outgoing]:
    """The messages of a dead letter. Raises BusError."""
    source = refusal.header
    original = None
    with suppress(PositionGap):
        for message in await bus.fetch(source.topic, source.partition, source.offset, most=1):
            original = message.value if message.offset == source.offset else None
    content = orjson.dumps(
        {
            "seq": refusal.seq,
            "type": refusal.kind,
            "topic": source.topic,
            "partition": source.partition,
            "offset": source.offset,
            "reason": refusal.reason,
            "field": refusal.field,
            "detail": refusal.detail,
            "author": refusal.author,
            "size": len(original) if original is not None else None,
            "hash": content_hash(original) if original is not None else None,
            "original": b64encode(original).decode() if original is not None else None,
        }
    )
    header = Header("", source.topic, source.partition, source.offset)
    return [
        Outgoing(DEADLETTER, partition, message)
        for message in split(header, content, id_=f"{refusal.id}/deadletter", seq=refusal.seq)
    ]


async def last_seq(bus: Bus, partition: int) -> int:
    """Seq of the last refusal whose letter is whole; 0 where there is none. Raises BusError."""
    first, end = await bus.bounds(DEADLETTER, partition)
    if first == end:
        return 0
    message = (await bus.fetch(DEADLETTER, partition, end - 1, most=1))[0]
    piece = read_piece(message.value)
    if piece is not None:
        return piece.seq if piece.header.part == piece.header.of - 1 else piece.seq - 1
    seq: int = read_letter(message.value)["seq"]
    return seq


def read_letter(message: bytes) -> dict[str, Any]:
    """What a dead letter that came in one message says. Raises Undecodable."""
    try:
        document: dict[str, Any] = orjson.loads(unwrap(message)[1])
    except orjson.JSONDecodeError as error:
        raise Undecodable(f"dead letter: {error}") from error
    return document
