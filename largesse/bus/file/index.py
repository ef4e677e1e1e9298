"""Reading messages back from the journal's files: a sparse index, and the lines between two of its entries.

A partition gets an entry at its first message in every STRETCH_BYTES of a segment, so finding any message means reading
one stretch, and the index grows with the journal's bytes and not with its messages. Of a packed segment it knows only
which messages are there: the rest is in that segment's own index.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from largesse.bus.file.head import JournalDamaged
from largesse.bus.file.journal import segment_path
from largesse.bus.file.lines import LineWrong, cut, message_of, self_checked
from largesse.bus.file.packed import lines_at, packed_path, read_index
from largesse.bus.local import NoDescriptor
from largesse.bus.port import BusError, Message
from largesse.descriptors import is_exhausted

STRETCH_BYTES = 1 << 16
NO_STOP = 1 << 62


class Place(NamedTuple):
    """A stretch: its segment, the bytes between which its lines begin, and the offset before which its messages end."""

    segment: int
    start: int
    stop: int
    until: int


class Stretches:
    """Where the messages of one partition lie."""

    def __init__(self, topic: str, partition: int) -> None:
        self._key = (topic, partition)
        self._packed_ends = array("Q")
        self._packed = array("Q")
        self._offsets = array("Q")
        self._segments = array("Q")
        self._positions = array("Q")

    def note(self, offset: int, segment: int, position: int) -> None:
        """This message is in the line at this byte of the segment. Called in order."""
        if not self._offsets or segment != self._segments[-1] or position - self._positions[-1] >= STRETCH_BYTES:
            self._offsets.append(offset)
            self._segments.append(segment)
            self._positions.append(position)

    def pack(self, segment: int, end: int) -> None:
        """This segment is packed; of what no packed one before it has, it has all before `end`. Called in order."""
        self._packed_ends.append(end)
        self._packed.append(segment)
        known = bisect_right(self._segments, segment)
        for column in (self._offsets, self._segments, self._positions):
            del column[:known]

    def trim(self, line: int) -> None:
        """Segments that begin at this line or before it are gone."""
        gone = bisect_right(self._packed, line)
        del self._packed[:gone], self._packed_ends[:gone]

    def places(self, directory: Path, offset: int, end: int) -> Iterator[Place]:
        """The stretches from the one that holds `offset`. Raises JournalDamaged, OSError."""
        for at in range(bisect_right(self._packed_ends, offset), len(self._packed)):
            yield from self._in_packed(directory, self._packed[at], offset, min(end, self._packed_ends[at]))
        for at in range(max(0, bisect_right(self._offsets, offset) - 1), len(self._offsets)):
            until = self._offsets[at + 1] if at + 1 < len(self._offsets) else end
            start = self._positions[at]
            yield Place(self._segments[at], start, start + STRETCH_BYTES, min(until, end))

    def _in_packed(self, directory: Path, segment: int, offset: int, end: int) -> Iterator[Place]:
        index = read_index(packed_path(directory, segment))
        offsets, positions = index.messages[self._key]
        for at in range(max(0, bisect_right(offsets, offset) - 1), len(offsets)):
            frame = bisect_right(index.positions, positions[at])
            stop = index.positions[frame] if frame < len(index.positions) else positions[at] + NO_STOP
            until = offsets[at + 1] if at + 1 < len(offsets) else end
            yield Place(segment, positions[at], stop, min(until, end))


def read_back(
    directory: Path, stretches: Stretches, opening: bytes, offset: int, end: int, bytes_max: int
) -> list[Message]:
    """Messages `offset` to `end` - 1 of the partition whose items begin with `opening`.

    Fewer after `bytes_max` bytes of values, but one at least. All must have been written. They are checked again.
    Raises JournalDamaged.
    """
    found: list[Message] = []
    size = 0
    for place in _places(directory, stretches, offset, end):
        for position, raw in _lines(directory, place):
            # Most lines of a stretch are about other partitions: a search is cheaper than a hash.
            if opening not in raw:
                continue
            for message in _messages(directory, place.segment, position, raw, opening):
                if message.offset == offset:
                    found.append(message)
                    size += len(message.value)
                    offset += 1
                    if offset == end or size >= bytes_max:
                        return found
        if offset < place.until:
            reason = f"offset {offset} was here when this process opened or wrote the file"
            raise _damaged(directory, place.segment, place.start, reason)
    raise AssertionError(f"{directory}: there is no offset {offset}")


def _places(directory: Path, stretches: Stretches, offset: int, end: int) -> Iterator[Place]:
    with _readable(directory):
        yield from stretches.places(directory, offset, end)


def _lines(directory: Path, place: Place) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in a stretch, each with its place."""
    path = segment_path(directory, place.segment)
    with _readable(path):
        try:
            file = path.open("rb", buffering=STRETCH_BYTES)
        except FileNotFoundError:
            for position, raw in lines_at(packed_path(directory, place.segment), place.start):
                if position >= place.stop:
                    return
                yield position, raw
            return
        with file:
            position = place.start
            file.seek(position)
            while position < place.stop and (raw := file.readline()):
                yield position, raw
                position += len(raw)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raises NoDescriptor, BusError for what the operating system says."""
    try:
        yield
    except OSError as error:
        if is_exhausted(error):
            raise NoDescriptor(f"{path}: {error.strerror}") from error
        raise BusError(f"{path}: {error.strerror}: it could be read when this process opened or wrote it") from error


def _messages(directory: Path, segment: int, position: int, raw: bytes, opening: bytes) -> Iterator[Message]:
    line = raw.removesuffix(b"\n")
    try:
        self_checked(line)
        for topic, partition, offset, item in cut(line):
            if line.startswith(opening, item.start()):
                yield message_of(topic, partition, offset, item)
    except LineWrong as wrong:
        reason = f"{wrong}; it was as written when this process opened or wrote it"
        raise _damaged(directory, segment, position, reason) from wrong


def _damaged(directory: Path, segment: int, position: int, reason: str) -> JournalDamaged:
    """Names the file, and the number of the line that begins at this byte of it."""
    path = segment_path(directory, segment)
    if path.exists():
        with path.open("rb") as file:
            return JournalDamaged(path, file.read(position).count(b"\n") + 1, reason)
    path = packed_path(directory, segment)
    index = read_index(path)
    return JournalDamaged(path, index.lines[bisect_right(index.positions, position) - 1] - segment + 1, reason)
