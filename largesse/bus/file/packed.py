"""Closed segments, packed: the lines of one segment in frames of zstd, and behind them where each frame begins.

    journal-000000000001.jsonl.zst

Only the last segment is appended to; every other one is packed (packing.py) to a fraction of its size. `zstdcat` gives
its lines back, byte for byte. A frame holds whole lines and its own checksum. What follows the frames is one skippable
frame, which every reader of zstd passes over: the index, the summary, and a footer of fixed length that says how long
both are. Opening a journal reads the summaries alone, which hang on each other as lines do; the index is read where
messages of that segment are asked for, and a frame where they lie.
"""

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from errno import ENOENT
from functools import lru_cache
from hashlib import sha256
from os import SEEK_END
from pathlib import Path
from typing import BinaryIO, cast

import orjson

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from largesse.bus.file.head import RESTORE, JournalDamaged
from largesse.bus.file.lines import LineWrong, hangs_on

FRAME_BYTES = 1 << 18
"""A frame is full with this many bytes of lines: what reading one message unpacks at least."""

LEVEL = 6
"""Of zstd: 3 takes half the time, and a sixth more room."""

ZstdError = zstd.ZstdError
"""What reading a file of `open_packed` may raise."""

_OPTIONS = {int(zstd.CompressionParameter.compression_level): LEVEL, int(zstd.CompressionParameter.checksum_flag): 1}
_SKIPPABLE = 0x184D2A50
_FRAME = struct.Struct("<II")
_FOOTER = struct.Struct("<8sQQ32s")
_MARK = b"largesse"
_INDEXES_KEPT = 8


@dataclass(frozen=True, slots=True)
class Summary:
    """What a closed segment comes to. `prev`, `sum`: of the line before it, and of its last. `size`, `sha256`: of its
    lines, unpacked. `frames`: bytes of its frames. `ends`: topic, partition, first offset, and the one after the last.
    """

    first: int
    last: int
    prev: str
    sum: str
    size: int
    sha256: str
    frames: int
    ends: tuple[tuple[str, int, int, int], ...]


@dataclass(slots=True)
class Index:
    """Where things lie in a packed segment. `lines`, `positions`, `packed`: of each frame its first line, where that
    lies unpacked, and where the frame begins; the last one of `packed` is where the frames end. `messages`: by topic
    and partition, the first offset in each frame that has any, and where its line lies unpacked.
    """

    lines: "array[int]" = field(default_factory=lambda: array("Q"))
    positions: "array[int]" = field(default_factory=lambda: array("Q"))
    packed: "array[int]" = field(default_factory=lambda: array("Q"))
    messages: dict[tuple[str, int], tuple["array[int]", "array[int]"]] = field(default_factory=dict)

    def begin_frame(self, line: int, position: int, packed: int) -> None:
        """A frame begins with this line."""
        self.lines.append(line)
        self.positions.append(position)
        self.packed.append(packed)

    def note(self, topic: str, partition: int, offset: int, position: int) -> None:
        """This message is in the line at this place. Called in order; one a frame is kept."""
        offsets, positions = self.messages.setdefault((topic, partition), (array("Q"), array("Q")))
        if not positions or positions[-1] < self.positions[-1]:
            offsets.append(offset)
            positions.append(position)


def packed_path(directory: Path, first: int) -> Path:
    """The file of the packed segment that begins with this line."""
    return directory / f"journal-{first:012d}.jsonl.zst"


def frame(lines: bytes) -> bytes:
    """Lines as one frame."""
    return zstd.compress(lines, options=_OPTIONS)


def ending(index: Index, summary: Summary) -> bytes:
    """What follows the frames."""
    places = [[*key, offsets.tolist(), positions.tolist()] for key, (offsets, positions) in index.messages.items()]
    about = orjson.dumps([index.lines.tolist(), index.positions.tolist(), index.packed.tolist(), places])
    said = orjson.dumps({name: getattr(summary, name) for name in Summary.__slots__})
    footer = _FOOTER.pack(_MARK, len(about), len(said), sha256(about + said).digest())
    return _FRAME.pack(_SKIPPABLE, len(about) + len(said) + len(footer)) + about + said + footer


def read_summary(directory: Path, first: int) -> Summary | None:
    """What a packed segment says of itself; None where it is not packed. Raises JournalDamaged, OSError."""
    path = packed_path(directory, first)
    try:
        with path.open("rb") as file:
            summary = _checked_summary(path, file)[0]
    except FileNotFoundError:
        return None
    if summary.first != first:
        raise _damaged(path, f"by its summary it begins with line {summary.first}")
    return summary


@lru_cache(maxsize=_INDEXES_KEPT)
def read_index(path: Path) -> Index:
    """Raises JournalDamaged, OSError."""
    with path.open("rb") as file:
        about = _checked_summary(path, file)[1]
    lines, positions, packed, places = orjson.loads(about)
    messages = {
        (topic, partition): (array("Q", offsets), array("Q", where)) for topic, partition, offsets, where in places
    }
    return Index(array("Q", lines), array("Q", positions), array("Q", packed), messages)


def _checked_summary(path: Path, file: BinaryIO) -> tuple[Summary, bytes]:
    """The summary and the bytes of the index. Raises JournalDamaged, OSError."""
    end = file.seek(0, SEEK_END)
    if end < _FRAME.size + _FOOTER.size:
        raise _damaged(path, f"it has {end} bytes, and no index")
    file.seek(end - _FOOTER.size)
    mark, about_size, said_size, digest = _FOOTER.unpack(file.read(_FOOTER.size))
    start = end - _FOOTER.size - said_size - about_size
    if mark != _MARK or start < _FRAME.size:
        raise _damaged(path, "it does not end with an index")
    file.seek(start - _FRAME.size)
    opening = file.read(_FRAME.size)
    both = file.read(about_size + said_size)
    if opening != _FRAME.pack(_SKIPPABLE, len(both) + _FOOTER.size) or sha256(both).digest() != digest:
        raise _damaged(path, "its index is not as it was written")
    found = orjson.loads(both[about_size:])
    summary = Summary(**{**found, "ends": tuple(tuple(each) for each in found["ends"])})
    if summary.frames != start - _FRAME.size:
        raise _damaged(path, f"its frames have {start - _FRAME.size} bytes where {summary.frames} belong")
    return summary, both[:about_size]


def read_frame(path: Path, number: int) -> bytes:
    """The lines of one frame, with their ends. Raises JournalDamaged, OSError."""
    index = read_index(path)
    start, end = index.packed[number], index.packed[number + 1]
    with path.open("rb") as file:
        file.seek(start)
        raw = file.read(end - start)
    try:
        lines = zstd.decompress(raw)
    except zstd.ZstdError as error:
        raise _damaged(path, str(error), index.lines[number]) from error
    if not lines.endswith(b"\n"):
        raise _damaged(path, "a frame does not end with a line", index.lines[number])
    return lines


def open_packed(directory: Path, first: int) -> tuple[BinaryIO, Summary]:
    """The lines of a packed segment as a file, and what it says of itself. Reading them may raise ZstdError. Raises
    JournalDamaged, OSError.
    """
    path = packed_path(directory, first)
    summary = read_summary(directory, first)
    if summary is None:
        raise FileNotFoundError(ENOENT, "there is no such segment", str(path))
    return cast(BinaryIO, zstd.open(path, "rb")), summary


def lines_at(path: Path, position: int) -> Iterator[tuple[int, bytes]]:
    """The lines from the one that lies at a position, unpacked, each with its place and its end. Raises JournalDamaged,
    OSError.
    """
    index = read_index(path)
    for number in range(bisect_right(index.positions, position) - 1, len(index.lines)):
        at = index.positions[number]
        for raw in read_frame(path, number).splitlines(keepends=True):
            if at >= position:
                yield at, raw
            at += len(raw)


def lines_backwards(path: Path) -> Iterator[bytes]:
    """All lines, the last one first, without their ends. Raises JournalDamaged, OSError."""
    for number in reversed(range(len(read_index(path).lines))):
        yield from reversed(read_frame(path, number).split(b"\n")[:-1])


def sum_of(directory: Path, summary: Summary, number: int) -> str:
    """The sum of a line that a packed segment has. Raises JournalDamaged, OSError."""
    if number == summary.last:
        return summary.sum
    path = packed_path(directory, summary.first)
    index = read_index(path)
    # The line behind it says it.
    at = bisect_right(index.lines, number + 1) - 1
    try:
        found = hangs_on(read_frame(path, at).split(b"\n")[number + 1 - index.lines[at]])
    except LineWrong as wrong:
        raise _damaged(path, str(wrong), number + 2 - summary.first) from wrong
    if found[0] != number + 1:
        raise _damaged(path, f"its index leads to line {found[0]} where line {number + 1} belongs")
    return found[1]


def _damaged(path: Path, reason: str, line: int = 1) -> JournalDamaged:
    return JournalDamaged(path, line, f"{reason}: {RESTORE}")
