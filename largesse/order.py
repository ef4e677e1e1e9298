"""Which records of the log count: the fencing rule as a fold over the log's partition (architecture.md, "The
sequencer", 3).

Each claim is accepted. Any other record counts only if its token is the latest claim's and its seq is the last accepted
plus one; all else is void. A record in parts counts at its last part; a claim between them voids the parts so far.
"""

from dataclasses import dataclass, field

import orjson

from largesse.codec import Undecodable, decode, unwrap, wrap
from largesse.ids import PREFIX_OF_NOTHING, chain
from schemas import Header, Record, RoundAbandoned, RoundClosed, RoundOpened, SequencerAlive, SequencerClaimed

RECORD_BYTES_MAX = 900 * 1024
"""A content above this is written in parts of at most this many bytes."""

_PART = b'{"header":'
_PIECE = b',"piece":'


@dataclass(slots=True)
class Accepted:
    """A record that counts, with the bytes that the hashes run over and the offset of its last message."""

    record: Record
    header: Header
    content: bytes
    offset: int


@dataclass(slots=True)
class LogOrder:
    """Where a reader stands after some prefix of the partition. Plain data: it is part of every snapshot.

    `positions`: "topic/partition" -> the last offset that the log has taken. `round`: the last one opened; `open`: its
    opening's id while it is not closed. `prefix`: hex of the hash chain.
    """

    offset: int = 0
    token: str = ""
    seq: int = 0
    prefix: str = PREFIX_OF_NOTHING.hex()
    time: int = 0
    round: int = 0
    open: str = ""
    void: int = 0
    positions: dict[str, int] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    pieces_of: str = ""


def split(header: Header, content: bytes, *, id_: str, seq: int) -> list[bytes]:
    """The messages that carry one record: itself, or its parts where it is above RECORD_BYTES_MAX."""
    if len(content) <= RECORD_BYTES_MAX:
        return [wrap(header, content)]
    pieces = list(_cut(content))
    messages = []
    for part, piece in enumerate(pieces):
        numbered = Header(header.token, header.topic, header.partition, header.offset, part, len(pieces))
        body = orjson.dumps({"seq": seq, "id": id_, "text": piece.decode()})
        messages.append(b"".join((_PART, orjson.dumps(numbered), _PIECE, body, b"}")))
    return messages


def _cut(content: bytes) -> list[bytes]:
    """Pieces of whole characters. Half the limit each, since quotes double when a piece becomes a JSON string."""
    pieces, start = [], 0
    while start < len(content):
        end = min(len(content), start + RECORD_BYTES_MAX // 2)
        while end < len(content) and content[end] & 0xC0 == 0x80:
            end -= 1
        pieces.append(content[start:end])
        start = end
    return pieces


@dataclass(slots=True)
class Piece:
    """One part of a record: the record's seq and id, and its slice of the content's text."""

    header: Header
    seq: int
    id: str
    text: str


def read_piece(message: bytes) -> Piece | None:
    """The part that a message carries, or None where it carries a whole record. Raises Undecodable."""
    at, whole = message.find(_PIECE), message.find(b',"content":')
    if at < 0 or 0 <= whole < at:
        return None
    try:
        document = orjson.loads(message)
        piece = document["piece"]
        return Piece(Header(**document["header"]), piece["seq"], piece["id"], piece["text"])
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise Undecodable(f"part: {str(error)[:200]}") from error


def advance(order: LogOrder, offset: int, message: bytes) -> Accepted | None:
    """Reads the message at `offset`; a record if one counts now, else None. Raises Undecodable: nobody else writes
    there.
    """
    assert offset >= order.offset, f"offset {offset} read after {order.offset - 1}"
    order.offset = offset + 1
    piece = read_piece(message)
    if piece is None:
        header, content = unwrap(message)
        return _whole(order, header, content, offset)
    if piece.header.token != order.token or piece.seq != order.seq + 1:
        order.void += 1
        return None
    if piece.header.part == 0:
        order.pieces, order.pieces_of = [], piece.id
    if piece.id != order.pieces_of or piece.header.part != len(order.pieces):
        order.void += 1
        return None
    order.pieces.append(piece.text)
    if len(order.pieces) < piece.header.of:
        return None
    return _whole(order, piece.header, "".join(order.pieces).encode(), offset)


def _whole(order: LogOrder, header: Header, content: bytes, offset: int) -> Accepted | None:
    record = decode(content)
    if isinstance(record.body, SequencerClaimed):
        order.token, order.pieces, order.pieces_of = header.token, [], ""
        return Accepted(record, header, content, offset)
    if header.token != order.token or record.seq != order.seq + 1:
        order.void += 1
        return None
    note(order, record, header, content)
    return Accepted(record, header, content, offset)


def note(order: LogOrder, record: Record, header: Header, content: bytes) -> None:
    """Moves the order on by a record that counts (a writer uses it for what it is about to write)."""
    assert record.time >= order.time, f"{record.id}: log time goes back from {order.time} to {record.time}"
    order.seq, order.time = record.seq, record.time
    order.prefix = chain(bytes.fromhex(order.prefix), content).hex()
    order.pieces, order.pieces_of = [], ""
    if header.topic:
        key = f"{header.topic}/{header.partition}"
        order.positions[key] = max(header.offset, order.positions.get(key, -1))
    body = record.body
    if isinstance(body, SequencerAlive):
        for position in body.positions:
            key = f"{position.topic}/{position.partition}"
            order.positions[key] = max(position.offset, order.positions.get(key, -1))
    elif isinstance(body, RoundOpened):
        order.round, order.open = record.round, record.id
    elif isinstance(body, (RoundClosed, RoundAbandoned)):
        order.open = ""
