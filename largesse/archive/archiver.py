"""Puts a log into an archive, segment by segment: writes one, reads it back, verifies it, and only then says so.

Stopped anywhere, the next one goes on behind the newest manifest, and all that is lost is the work on one segment. Two
at once do no harm: a name is given once, and who comes second goes on behind what the first one wrote.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

from largesse import failpoints
from largesse.archive.manifest import Edge, Manifest, Noted, Place, encode, manifest_name, read_newest
from largesse.archive.segment import SegmentWriter, check_segment, is_end
from largesse.archive.store import NameTaken, Store
from largesse.log.codec import Undecodable
from largesse.log.fencing import Accepted

NAME = "archive"

SEGMENT_BYTES = 64 << 20
"""A segment is full with this many bytes of lines."""


class Overtaken(Exception):
    """Another archiver of the same log has written the next manifest: begin again behind that."""


class AnotherLog(Exception):
    """The log that was to be archived is not the one that the archive has: says how they differ."""


@dataclass(frozen=True, slots=True)
class Archived:
    """What an archiver has written: records of the log, segments, and their bytes. `read`: messages of a bus that it
    has read for that."""

    records: int = 0
    segments: int = 0
    bytes: int = 0
    unpacked_bytes: int = 0
    read: int = 0


NOTHING = Archived()


class Archiver:
    """Takes the records of a log behind those that an archive has. `segment_bytes`: from there on a segment ends with
    the next end of a round. Raises ArchiveDamaged, StoreError.
    """

    def __init__(self, store: Store, segment_bytes: int = SEGMENT_BYTES, archived: Archived = NOTHING) -> None:
        self.store = store
        self.newest: Noted | None = read_newest(store)
        self.archived = archived
        self._segment_bytes = segment_bytes
        self._writer: SegmentWriter | None = None
        self._open: list[tuple[Accepted, list[tuple[str, bytes]]]] = []

    @property
    def end(self) -> Edge:
        """Where the archive ends now."""
        return self.newest.manifest.end if self.newest is not None else Edge()

    @property
    def since_ms(self) -> int | None:
        """Log time of the first record that could be written now; None where none could, since no round is over."""
        return self._writer.folded.first_ms if self._writer is not None else None

    @property
    def is_open(self) -> bool:
        """Whether records were taken behind the last round that is over."""
        return bool(self._open)

    def take(self, accepted: Accepted, winners: Iterable[tuple[str, bytes]]) -> bool:
        """The next record, and with a closing the decisions that won; returns whether a segment is full, and so to be
        closed. Raises AnotherLog.
        """
        self._open.append((accepted, list(winners)))
        if not is_end(accepted):
            return False
        if self._writer is None:
            self._writer = SegmentWriter(self._cell(accepted.record.cell), self.end)
        try:
            for each in self._open:
                self._writer.add(*each)
        except Undecodable as error:
            raise AnotherLog(f"this log does not go on where {self.store.url} ends: {error}") from None
        self._open.clear()
        return self._writer.size >= self._segment_bytes

    def _cell(self, cell: str) -> str:
        if self.newest is not None and cell != self.newest.manifest.cell:
            has = self.newest.manifest.cell
            raise AnotherLog(f"{self.store.url} is an archive of cell {has!r}; this log is of {cell!r}")
        return cell

    def close(self, place: Place | None = None) -> Manifest:
        """Ends the segment behind the last round that is over: puts it there, reads it back, verifies it, and writes
        its manifest. Raises Overtaken, ArchiveDamaged, StoreError.
        """
        writer, self._writer = self._writer, None
        assert writer is not None, "there is no record to write"
        data, segment, end = writer.close()
        self._put(segment.name, data)
        folded, before = writer.folded, self.newest
        manifest = Manifest(
            before.manifest.number + 1 if before is not None else 1,
            folded.cell,
            before.sha256 if before is not None else "",
            writer.start,
            end,
            folded.first_ms or 0,
            folded.round,
            tuple(sorted(folded.rules)),
            folded.shards,
            segment,
            place,
        )
        check_segment(manifest, self.store.get(segment.name), self.store.url)
        self._note(manifest)
        done = self.archived
        records, size = done.records + writer.records, done.unpacked_bytes + segment.unpacked_bytes
        self.archived = Archived(records, done.segments + 1, done.bytes + segment.bytes, size)
        return manifest

    def _put(self, name: str, data: bytes) -> None:
        """A segment is named by its bytes: one that is there already is verified like one that was just written."""
        failpoints.hit(NAME, "before_segment")
        with suppress(NameTaken):
            self.store.put(name, data)
        failpoints.hit(NAME, "after_segment")

    def _note(self, manifest: Manifest) -> None:
        data = encode(manifest)
        name = manifest_name(manifest.number)
        failpoints.hit(NAME, "before_manifest")
        try:
            self.store.put(name, data)
        except NameTaken:
            if self.store.get(name) != data:
                raise Overtaken(f"{self.store.url}/{name}: another archiver has written it") from None
        failpoints.hit(NAME, "after_manifest")
        self.newest = Noted(manifest, sha256(data).hexdigest())
