"""Dead letters: what was refused, why, and the original bytes. Written from the log, so that none is forgotten.

A message is `{"header":{...},"content":{...}}` as in the log, in parts where it is large. The content's `seq` is the
refusal's, by which a repeat is recognised; `original` is base64, null where the input topic no longer has it.
"""

from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import orjson

from largesse.bus.port import Bus, Message, Outgoing, PositionGap
from largesse.ids import content_hash
from largesse.log.codec import Undecodable, unwrap
from largesse.log.fencing import Accepted, read_piece, split
from schemas import Header, InputRefused, JobRejected
from schemas.topics import DEADLETTER

LOOKED_AT = 1_000
"""Messages among which the last dead letter is looked for."""

STEP_BACK = 16


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


async def written_up_to(bus: Bus, partition: int, refusals: Sequence[Refusal]) -> int:
    """Seq of the last of these refusals, given in order, whose letter is whole, or one before them; 0 where none is
    found. Raises BusError.

    Letters are written in the order of refusals, so one is enough. Foreign messages behind the last one, up to
    LOOKED_AT messages, is passed over; behind more of them letters are written again, and recognised by their seq.
    """
    first, end = await bus.bounds(DEADLETTER, partition)
    by_seq = {refusal.seq: refusal for refusal in refusals}
    earlier = refusals[0].seq if refusals else 0
    stop = max(first, end - LOOKED_AT)
    while end > stop:
        start = max(stop, end - STEP_BACK)
        for message in reversed(await _messages(bus, partition, start, end)):
            seq = _seq_of(message.value, by_seq, earlier)
            if seq:
                return seq
        end = start
    return 0


async def _messages(bus: Bus, partition: int, at: int, end: int) -> list[Message]:
    found: list[Message] = []
    while at < end:
        fetched = await bus.fetch(DEADLETTER, partition, at, most=end - at)
        found += [message for message in fetched if message.offset < end]
        at = max(fetched.position, at + 1)
    return found


def _seq_of(message: bytes, refusals: dict[int, Refusal], earlier: int) -> int:
    """Seq of the refusal that a message shows to have a whole letter; 0 where it shows none.

    It has to be one of these, of the same input, or an earlier one than all: a seq alone may be anybody's.
    """
    try:
        piece = read_piece(message)
        if piece is not None:
            header, seq = piece.header, piece.seq
            whole = header.part == header.of - 1
        else:
            header, content = unwrap(message)
            document, whole = orjson.loads(content), True
            seq = document["seq"] if isinstance(document, dict) and type(document.get("seq")) is int else 0
    except (Undecodable, orjson.JSONDecodeError):
        return 0
    if 0 < seq < earlier:
        return seq
    refusal = refusals.get(seq)
    source = refusal.header if refusal is not None else None
    if source is None or (source.topic, source.partition, source.offset) != (
        header.topic,
        header.partition,
        header.offset,
    ):
        return 0
    return seq if whole else seq - 1


def read_letter(message: bytes) -> dict[str, object]:
    """What a dead letter that came in one message says. Raises Undecodable."""
    try:
        document: dict[str, object] = orjson.loads(unwrap(message)[1])
    except orjson.JSONDecodeError as error:
        raise Undecodable(f"dead letter: {error}") from error
    return document
