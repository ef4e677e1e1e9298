"""Reading messages back from the journal's files: a sparse index, and the lines between two of its entries.

A partition gets an entry at its first message in every STRETCH_BYTES of a segment, so finding any message means reading
one stretch, and the index grows with the journal's bytes and not with its messages.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from largesse.bus.file.head import JournalDamaged
from largesse.bus.file.journal import segment_path
from largesse.bus.file.lines import LineWrong, cut, message_of, self_checked
from largesse.bus.local import NoDescriptor
from largesse.bus.port import BusError, Message
from largesse.descriptors import is_exhausted

STRETCH_BYTES = 1 << 16


class Stretches:
    """Where the messages of one partition lie."""

    def __init__(self) -> None:
        self._offsets = array("Q")
        self._segments = array("Q")
        self._positions = array("Q")

    def note(self, offset: int, segment: int, position: int) -> None:
        """This message is in the line at this byte of the segment. Called in order."""
        if not self._offsets or segment != self._segments[-1] or position - self._positions[-1] >= STRETCH_BYTES:
            self._offsets.append(offset)
            self._segments.append(segment)
            self._positions.append(position)

    def places(self, offset: int, end: int) -> Iterator[tuple[int, int, int]]:
        """The stretches from the one that holds `offset`: segment, byte, and the offset before which each ends."""
        for at in range(bisect_right(self._offsets, offset) - 1, len(self._offsets)):
            until = self._offsets[at + 1] if at + 1 < len(self._offsets) else end
            yield self._segments[at], self._positions[at], min(until, end)


def read_back(
    directory: Path, stretches: Stretches, opening: bytes, offset: int, end: int, bytes_max: int
) -> list[Message]:
    """Messages `offset` to `end` - 1 of the partition whose items begin with `opening`.

    Fewer after `bytes_max` bytes of values, but one at least. All must have been written. They are checked again.
    Raises JournalDamaged.
    """
    found: list[Message] = []
    size = 0
    for segment, start, until in stretches.places(offset, end):
        path = segment_path(directory, segment)
        for position, raw in _lines(path, start):
            # Most lines of a stretch are about other partitions: a search is cheaper than a hash.
            if opening not in raw:
                continue
            for message in _messages(path, position, raw, opening):
                if message.offset == offset:
                    found.append(message)
                    size += len(message.value)
                    offset += 1
                    if offset == end or size >= bytes_max:
                        return found
        if offset < until:
            reason = f"offset {offset} was here when this process opened or wrote the file"
            raise JournalDamaged(path, _number_of(path, start), reason)
    raise AssertionError(f"{directory}: there is no offset {offset}")


def _lines(path: Path, position: int) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in the stretch from `position`, each with its place."""
    end = position + STRETCH_BYTES
    try:
        with path.open("rb", buffering=STRETCH_BYTES) as file:
            file.seek(position)
            while position < end and (raw := file.readline()):
                yield position, raw
                position += len(raw)
    except OSError as error:
        if is_exhausted(error):
            raise NoDescriptor(f"{path}: {error.strerror}") from error
        raise BusError(f"{path}: {error.strerror}: it could be read when this process opened or wrote it") from error


def _messages(path: Path, position: int, raw: bytes, opening: bytes) -> Iterator[Message]:
    line = raw.removesuffix(b"\n")
    try:
        self_checked(line)
        for topic, partition, offset, item in cut(line):
            if line.startswith(opening, item.start()):
                yield message_of(topic, partition, offset, item)
    except LineWrong as wrong:
        reason = f"{wrong}; it was as written when this process opened or wrote it"
        raise JournalDamaged(path, _number_of(path, position), reason) from wrong


def _number_of(path: Path, position: int) -> int:
    """The number of the line that begins at this byte of the file."""
    with path.open("rb") as file:
        return file.read(position).count(b"\n") + 1
