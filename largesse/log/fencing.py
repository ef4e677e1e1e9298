"""Which records of the log count: the fencing rule as a fold over the log's partition (docs/concepts/log.md).

Each claim is accepted. Any other record counts only if its token is the latest claim's and its seq is the last accepted
plus one; all else is void, whatever its bytes are: the topic is open to every writer with access, and nothing of theirs
may stop its readers. A record in parts counts at its last part; a claim between them voids the parts so far.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import orjson

from largesse.ids import PREFIX_OF_NOTHING, chain, content_hash
from largesse.log.codec import SHARED_BYTES_MAX, SHARED_MAX, Undecodable, decode, header_of, heading, unwrap, wrap
from schemas import Header, Record, RoundAbandoned, RoundClosed, RoundOpened, SequencerAlive, SequencerClaimed

RECORD_BYTES_MAX = 900 * 1024
"""A content above this is written in parts of at most this many bytes."""

PARTS_MAX = 4_000
"""A record in more parts than this is none: at half of RECORD_BYTES_MAX each, 1.8 GB. Every part lists the sums of all:
80 kB for so many.
"""

_CLAIM = b'{"type":"SequencerClaimed"'
_PART = b'{"header":'
PIECE = b',"piece":'
"""Only messages that carry a part of a record have this."""


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
    sums = [sum_of(piece) for piece in pieces]
    messages = []
    for part, piece in enumerate(pieces):
        numbered = Header(header.token, header.topic, header.partition, header.offset, part, len(pieces))
        body = orjson.dumps({"seq": seq, "id": id_, "sums": sums, "text": piece.decode()})
        messages.append(b"".join((_PART, orjson.dumps(numbered), PIECE, body, b"}")))
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
    """One part of a record: the record's seq and id, its slice of the content's text, and the sums of all its parts, by
    which parts belong together whoever sent them (earlier versions wrote none).
    """

    header: Header
    seq: int
    id: str
    text: str
    sums: tuple[str, ...] = ()

    def check(self) -> None:
        """Raises Undecodable where the text is not what its sum says."""
        if self.sums and self.sums[self.header.part] != sum_of(self.text.encode()):
            raise Undecodable(f"part: number {self.header.part} is not what its sum says")


def sum_of(piece: bytes) -> str:
    """What recognises one part of a record."""
    return content_hash(piece)[:16]


def read_piece(message: bytes) -> Piece | None:
    """The part that a message carries, or None where it carries a whole record. Raises Undecodable."""
    at, whole = message.find(PIECE), message.find(b',"content":')
    if at < 0 or 0 <= whole < at:
        return None
    try:
        document = orjson.loads(message)
        header, piece = header_of(document["header"]), document["piece"]
        found = Piece(header, piece["seq"], piece["id"], piece["text"], tuple(piece.get("sums", ())))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise Undecodable(f"part: {str(error)[:200]}") from error
    if type(found.seq) is not int or type(found.id) is not str or type(found.text) is not str:
        raise Undecodable("part: its seq, id or text has another type")
    if not 0 <= header.part < header.of <= PARTS_MAX:
        raise Undecodable(f"part: number {header.part} of {header.of}; there are at most {PARTS_MAX}")
    if found.sums and (len(found.sums) != header.of or any(type(each) is not str for each in found.sums)):
        raise Undecodable("part: its sums are not one text for each part")
    return found


def advance(order: LogOrder, offset: int, message: bytes) -> Accepted | None:
    """Reads the message at `offset`; a record if one counts now, else None.

    Raises Undecodable for one with the valid token and the next seq that cannot be decoded: only the valid writer
    writes those.
    """
    assert offset >= order.offset, f"offset {offset} read after {order.offset - 1}"
    order.offset = offset + 1
    try:
        piece = read_piece(message)
        header, content = (piece.header, b"") if piece is not None else unwrap(message)
    except Undecodable:
        return _void(order)
    if content.startswith(_CLAIM):
        return _claim(order, header, content, offset)
    if not order.token or header.token != order.token:
        return _void(order)
    return _whole(order, header, content, offset) if piece is None else _part(order, piece, offset)


def _void(order: LogOrder) -> Accepted | None:
    order.void += 1
    return None


def _claim(order: LogOrder, header: Header, content: bytes, offset: int) -> Accepted | None:
    """A claim counts only if its header and its body carry the same token."""
    try:
        record = decode(content)
    except Undecodable:
        return _void(order)
    if not isinstance(record.body, SequencerClaimed) or record.seq != 0 or not header.token:
        return _void(order)
    if record.body.token != header.token:
        return _void(order)
    order.token, order.pieces, order.pieces_of = header.token, [], ""
    return Accepted(record, header, content, offset)


def _part(order: LogOrder, piece: Piece, offset: int) -> Accepted | None:
    if piece.seq != order.seq + 1:
        return _void(order)
    if piece.header.part == 0:
        order.pieces, order.pieces_of = [], piece.id
    if piece.id != order.pieces_of or piece.header.part != len(order.pieces):
        return _void(order)
    order.pieces.append(piece.text)
    if len(order.pieces) < piece.header.of:
        return None
    return _whole(order, piece.header, "".join(order.pieces).encode(), offset)


def _whole(order: LogOrder, header: Header, content: bytes, offset: int) -> Accepted | None:
    try:
        record = decode(content)
    except Undecodable as error:
        if _seq_of(content) != order.seq + 1:
            return _void(order)
        raise Undecodable(f"cluster.log, offset {offset}, seq {order.seq + 1} of the valid writer: {error}") from error
    if record.seq != order.seq + 1:
        return _void(order)
    note(order, record, header, content)
    return Accepted(record, header, content, offset)


def _seq_of(content: bytes) -> int:
    """The seq that a content claims, or -1."""
    try:
        return heading(content)[0]
    except Undecodable:
        return -1


@lru_cache(SHARED_MAX)
def _chained(prefix: str, content: bytes) -> str:
    """Of one record the same for every reader in a process."""
    return chain(bytes.fromhex(prefix), content).hex()


def note(order: LogOrder, record: Record, header: Header, content: bytes) -> None:
    """Moves the order on by a record that counts (a writer uses it for what it is about to write)."""
    assert record.time >= order.time, f"{record.id}: log time goes back from {order.time} to {record.time}"
    order.seq, order.time = record.seq, record.time
    order.prefix = (_chained if len(content) <= SHARED_BYTES_MAX else _chained.__wrapped__)(order.prefix, content)
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
