"""What counts as an answer in a decision topic, and the first answers of each name, until they are forgotten.

A message is judged whole when it is read: its pieces, its header, its name, its envelope and the types in its body.
What does not decode, or is not where or what its name says, is no answer. So every reader comes to the same answers,
whatever lies between them, wherever it begins to read, and none is stopped by what others wrote.

The name of an answer is `topic/shard-of/opening`, and an opening's id holds its seq and round. Messages whose name and
seq differ are no answers either, or readers that have forgotten different seqs would see different ones.
"""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from largesse.bus.port import Message
from largesse.log.codec import Undecodable, decode, has_large_numbers, heading, unwrap
from largesse.log.fencing import Piece, read_piece
from schemas import Asks, Record
from schemas.policy import SHARDS_MAX
from schemas.topics import BY_NAME, SHARDED

PIECES_BYTES_MAX = 256 << 20
"""Parts of unfinished answers that are kept of one partition; beyond it, those that were added to longest ago go."""

_PIECE_BYTES = 400
"""What a part in memory costs beside its text, about."""

_NAME = re.compile(r"(\w+)/(\d{1,3})-(\d{1,3})/((.*)/(\d{1,18})/r(\d{1,18})/[^/]*)", re.DOTALL)


class Name(NamedTuple):
    """What the id of a decision says: topic, shard and how many; of the opening its id, cell, seq and round."""

    topic: str
    shard: int
    of: int
    opening: str
    cell: str
    seq: int
    round: int


def name_of(id_: str) -> Name:
    """The parts of a decision's id. Raises Undecodable."""
    found = _NAME.fullmatch(id_)
    if found is None:
        raise Undecodable("its id names no round and topic")
    topic, shard, of, opening, cell, seq, round_number = found.groups()
    return Name(topic, int(shard), int(of), opening, cell, int(seq), int(round_number))


def fits(name: Name, message: Message, seq: int) -> None:
    """Raises Undecodable where a message of this name and seq cannot stand in its topic and partition."""
    if name.topic != message.topic or name.seq != seq:
        raise Undecodable(f"its id names topic {name.topic} and seq {name.seq}; it says {seq}")
    if message.topic in SHARDED:
        right = name.shard == message.partition % SHARDS_MAX and name.shard < name.of <= SHARDS_MAX
    else:
        right = (name.shard, name.of) == (0, 1)
    if not right:
        raise Undecodable(f"its id names shard {name.shard} of {name.of} in partition {message.partition}")


def judged(name: Name, id_: str, content: bytes) -> Record:
    """The record of an answer's content. Raises Undecodable."""
    record = decode(content)
    body = record.body
    if record.type not in BY_NAME[name.topic].bodies:
        raise Undecodable(f"content: {record.type} does not answer in {name.topic}")
    envelope = (record.id, record.cause, record.cell, record.seq, record.round)
    if envelope != (id_, name.opening, name.cell, name.seq, name.round):
        raise Undecodable("content: its envelope is not what its id says")
    if isinstance(body, Asks) and (body.shard, body.of) != (name.shard, name.of):
        raise Undecodable(f"content: asks of shard {body.shard} of {body.of}")
    if has_large_numbers(content, record):
        raise Undecodable("content: a number above 64 bits")
    return record


@dataclass(slots=True)
class Found:
    """An answer with its content's bytes. `offset`: of its last message; `since`: of its first."""

    seq: int
    record: Record
    content: bytes
    offset: int
    since: int


@dataclass(slots=True)
class _Pieces:
    """Parts that belong together: equal in id, number of parts, and what the hash of each has to be."""

    seq: int
    id: str
    since: int
    size: int = 0
    texts: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class Shelf:
    """The answers of one partition, the first of each name, until they are forgotten. `position` comes next."""

    position: int
    found: dict[str, Found] = field(default_factory=dict)
    _pieces: dict[tuple[str, int, tuple[str, ...]], _Pieces] = field(default_factory=dict)
    _pieces_bytes: int = 0

    def take(self, message: Message, forgotten: int) -> str | None:
        """The id of the answer that this message makes whole, or None. Raises Undecodable where it is no answer."""
        self.position = message.offset + 1
        piece = read_piece(message.value)
        if piece is not None:
            return self._take_piece(piece, message, forgotten)
        _, content = unwrap(message.value)
        seq, id_ = heading(content)
        name = name_of(id_)
        fits(name, message, seq)
        if not self._is_new(seq, id_, forgotten):
            return None
        self.found[id_] = Found(seq, judged(name, id_, content), content, message.offset, message.offset)
        return id_

    def _take_piece(self, piece: Piece, message: Message, forgotten: int) -> str | None:
        name = name_of(piece.id)
        fits(name, message, piece.seq)
        piece.check()
        if not self._is_new(piece.seq, piece.id, forgotten):
            return None
        key = (piece.id, piece.header.of, piece.sums)
        kept = self._pieces.pop(key, None) or _Pieces(piece.seq, piece.id, message.offset)
        self._pieces[key] = kept  # The one added to last stands last.
        if piece.header.part not in kept.texts:
            kept.texts[piece.header.part] = piece.text
            kept.size += len(piece.text) + _PIECE_BYTES
            self._pieces_bytes += len(piece.text) + _PIECE_BYTES
        if len(kept.texts) < piece.header.of:
            self._limit()
            return None
        self._drop(key)
        content = "".join(text for _, text in sorted(kept.texts.items())).encode()
        record = judged(name, piece.id, content)
        self.found[piece.id] = Found(piece.seq, record, content, message.offset, kept.since)
        for other in [key for key in self._pieces if key[0] == piece.id]:
            self._drop(other)
        return piece.id

    def _is_new(self, seq: int, id_: str, forgotten: int) -> bool:
        return seq > forgotten and id_ not in self.found

    def _limit(self) -> None:
        while self._pieces_bytes > PIECES_BYTES_MAX:
            self._drop(next(iter(self._pieces)))

    def _drop(self, key: tuple[str, int, tuple[str, ...]]) -> None:
        self._pieces_bytes -= self._pieces.pop(key).size

    def forget(self, seq: int) -> None:
        """Drops answers to openings up to `seq`; one that came behind an answer to a later opening goes with it."""
        while self.found:
            first = next(iter(self.found))
            if self.found[first].seq > seq:
                break
            del self.found[first]
        for key in [key for key, pieces in self._pieces.items() if pieces.seq <= seq]:
            self._drop(key)

    def beyond(self, seq: int) -> list[str]:
        """Ids of what is kept, whole or not, of openings after `seq`."""
        pieces = [each.id for each in self._pieces.values() if each.seq > seq]
        return [id_ for id_, found in self.found.items() if found.seq > seq] + pieces

    def drop(self, id_: str) -> None:
        """Drops what is kept of one name, whole or not."""
        self.found.pop(id_, None)
        for key in [key for key in self._pieces if key[0] == id_]:
            self._drop(key)

    @property
    def needed(self) -> int:
        """The offset from which a reader that starts again finds everything that is kept here."""
        found = (each.since for each in self.found.values())
        pieces = (each.since for each in self._pieces.values())
        return min((*found, *pieces), default=self.position)
