"""A segment: a slice of an export (largesse/log/export.py), from behind one end of a round to another, packed.

All segments of an archive, unpacked and one behind the other, are the export of its log but for the last line, so each
of their lines hangs on the one before across segments, too: `zstdcat segments/*` shows it.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from largesse.archive.manifest import ArchiveDamaged, Edge, Manifest, SegmentFile, segment_name
from largesse.ids import chain, content_hash, decision_id, log_id
from largesse.log.codec import Undecodable, decode, heading
from largesse.log.export import ExportDamaged, Exported, Lines
from largesse.log.fencing import Accepted
from schemas import RoundAbandoned, RoundClosed, RoundOpened
from schemas.topics import LOG

ZstdError = zstd.ZstdError

LEVEL = 9
"""Of zstd."""

UNPACKED_BYTES_MAX = 4 << 30
"""No segment is longer; what claims to be is not unpacked."""

_ROUND = (b'{"type":"RoundOpened"', b'{"type":"RoundClosed"', b'{"type":"RoundAbandoned"')
_OPTIONS = {int(zstd.CompressionParameter.compression_level): LEVEL, int(zstd.CompressionParameter.checksum_flag): 1}


@dataclass(slots=True)
class Folded:
    """What the records of a segment come to, one after the other: the same for who writes it and who reads it."""

    cell: str
    seq: int
    prefix: str
    time: int
    first_ms: int | None = None
    round: int = 0
    open: str = ""
    shards: int = 1
    rules: set[int] = field(default_factory=set)
    decisions: dict[str, str] = field(default_factory=dict)

    def learn(self, topic: str, content: bytes) -> None:
        """One record, as the export has it. Raises Undecodable: it is none, or not the one that belongs here."""
        seq, id_ = heading(content)
        if topic != LOG:
            self.decisions[id_] = content_hash(content)
            return
        if seq != self.seq + 1:
            raise Undecodable(f"record {seq} where record {self.seq + 1} belongs")
        if content.startswith(_ROUND):
            self._learn_round(content)
        elif id_ != log_id(self.cell, seq):
            raise Undecodable(f"record {id_} is not of cell {self.cell!r}")
        self.seq, self.prefix = seq, chain(bytes.fromhex(self.prefix), content).hex()

    def _learn_round(self, content: bytes) -> None:
        record = decode(content)
        body = record.body
        if record.cell != self.cell:
            raise Undecodable(f"record {record.id} is not of cell {self.cell!r}")
        if isinstance(body, RoundOpened):
            if body.prefix != self.prefix:
                raise Undecodable(f"{record.id} was opened behind other records than those before it here")
            self.open = record.id
            self.rules.add(body.rules)
            self.shards = max(self.shards, body.shards)
            return
        if isinstance(body, RoundClosed):
            for named in body.hashes:
                id_ = decision_id(named.topic, named.shard, named.of, record.cause)
                if self.decisions.get(id_) != named.hash:
                    raise Undecodable(f"{id_}, which record {record.seq} names, is not before it")
        self.round, self.open = record.round, ""
        self.decisions.clear()


def is_end(accepted: Accepted) -> bool:
    """Whether a segment may end with this record: with it a round is over."""
    return isinstance(accepted.record.body, RoundClosed | RoundAbandoned)


class SegmentWriter:
    """Packs records as they come, from `start` on. `size`: bytes of lines so far."""

    def __init__(self, cell: str, start: Edge) -> None:
        self.start, self.size = start, 0
        self.folded = Folded(cell, start.seq, start.prefix, start.time)
        self._lines = Lines(start.lines, start.sum)
        self._packer = zstd.ZstdCompressor(options=_OPTIONS)
        self._sum = sha256()
        self._packed = bytearray()
        if not start.sum:
            self._add(self._lines.first())

    @property
    def records(self) -> int:
        """Records of the log so far."""
        return self.folded.seq - self.start.seq

    def add(self, accepted: Accepted, winners: Iterable[tuple[str, bytes]]) -> None:
        """One record of the log; with a closing the decisions that won. Raises Undecodable."""
        for topic, content in winners:
            self.folded.learn(topic, content)
            self._add(self._lines.record(topic, None, content))
        self.folded.learn(LOG, accepted.content)
        self.folded.time = accepted.record.time
        if self.folded.first_ms is None:
            self.folded.first_ms = accepted.record.time
        self._add(self._lines.record(LOG, accepted.header, accepted.content))

    def _add(self, line: bytes) -> None:
        self.size += len(line)
        self._sum.update(line)
        self._packed += self._packer.compress(line)

    def close(self) -> tuple[bytes, SegmentFile, Edge]:
        """The bytes of the segment, what they are, and where it ends."""
        self._packed += self._packer.flush()
        data = bytes(self._packed)
        digest = sha256(data).hexdigest()
        name = segment_name(self.start.seq + 1, self.folded.seq, digest)
        end = Edge(self.folded.seq, self.folded.time, self.folded.prefix, self._lines.records, self._lines.sum)
        return data, SegmentFile(name, len(data), digest, self.size, self._sum.hexdigest()), end


def records_of(manifest: Manifest, data: bytes, where: str) -> Iterator[Exported]:
    """The records of a segment in order, each verified as it comes. `where`: the store's URL. Raises ArchiveDamaged."""
    path = f"{where}/{manifest.segment.name}"
    text = _unpacked(path, manifest.segment, data)
    lines, number = Lines(manifest.start.lines, manifest.start.sum), 0
    try:
        for number, raw in enumerate(_split(text), 1):
            item = lines.read(path, number, raw)
            if item is not None:
                yield item
            elif number > 1 or manifest.start.sum:
                raise ExportDamaged(path, number, "it is no record")
    except ExportDamaged as error:
        raise ArchiveDamaged(str(error)) from None
    if (lines.records, lines.sum) != (manifest.end.lines, manifest.end.sum):
        raise ArchiveDamaged(f"{path}: it does not end where its manifest says")


def check_segment(manifest: Manifest, data: bytes, where: str) -> None:
    """Verifies all that a segment by itself can show: bytes, lines, the chain over its records, that every opening was
    made behind those, and that every closing has the decisions that it names. Raises ArchiveDamaged.
    """
    start, end = manifest.start, manifest.end
    folded = Folded(manifest.cell, start.seq, start.prefix, start.time)
    number = start.lines
    for number, item in enumerate(records_of(manifest, data, where), start.lines + 1):
        try:
            folded.learn(item.topic, item.content)
        except Undecodable as error:
            raise ArchiveDamaged(f"{where}/{manifest.segment.name}, record {number} of the export: {error}") from None
    found = (folded.seq, folded.prefix, folded.round, tuple(sorted(folded.rules)), folded.shards, folded.open)
    if found != (end.seq, end.prefix, manifest.round, manifest.rules, manifest.shards, ""):
        raise ArchiveDamaged(f"{where}/{manifest.segment.name}: its records are not what its manifest says of them")


def unpack(data: bytes) -> bytes:
    """The lines of a segment. Raises ZstdError."""
    return zstd.decompress(data)


def _unpacked(path: str, segment: SegmentFile, data: bytes) -> bytes:
    """Raises ArchiveDamaged."""
    if len(data) != segment.bytes:
        raise ArchiveDamaged(f"{path}: has {len(data):,} bytes, and {segment.bytes:,} belong there")
    if sha256(data).hexdigest() != segment.sha256:
        raise ArchiveDamaged(f"{path}: its bytes are not those that were written: damaged, or in another's place")
    try:
        text = unpack(data) if segment.unpacked_bytes <= UNPACKED_BYTES_MAX else b""
    except zstd.ZstdError as error:
        raise ArchiveDamaged(f"{path}: cannot be unpacked: {error}") from None
    if len(text) != segment.unpacked_bytes or sha256(text).hexdigest() != segment.unpacked_sha256:
        raise ArchiveDamaged(f"{path}: unpacked it is not what its manifest says")
    return text


def _split(text: bytes) -> Iterator[bytes]:
    """The lines, each with its end, without a copy of all of them at once."""
    at = 0
    while at < len(text):
        end = text.find(b"\n", at) + 1 or len(text)
        yield text[at:end]
        at = end
