"""Reads a journal line by line, and finds where it is damaged."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from largesse.bus.file.head import (
    HEAD_NAME,
    MARK_NAME,
    JournalDamaged,
    read_head,
    read_mark,
)
from largesse.bus.file.journal import READ_BYTES, Repair, is_whole, list_segments, missed_head, segment_path
from largesse.bus.file.lines import LineWrong, checked, cut
from largesse.bus.file.packed import Summary, ZstdError, open_packed, packed_path
from largesse.bus.file.trimming import TRIMMED_NAME, read_trimmed


@dataclass(frozen=True, slots=True)
class Line:
    """A verified line: its journal-wide number, its place, its bytes without the newline, and what is in it."""

    number: int
    segment: int
    position: int
    raw: bytes
    items: list[tuple[str, int, int, re.Match[bytes]]]


class Scan:
    """One pass over everything, verifying every byte. Iterate once; what it found is in its fields afterwards, and
    `again` goes on with what was written since.

    Sees what was there when each file was reached, so it may run beside a writer. Raises JournalDamaged.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # Before the files: they say what must be there at least.
        head = read_head(directory)
        self.mark = read_mark(directory)
        self.segments = list_segments(directory)
        self.head = head or missed_head(directory, self.segments)
        self.trimmed = read_trimmed(directory)
        self.line, self.sum = self.trimmed.line, self.trimmed.sum
        self.ends: dict[tuple[str, int], int] = dict(self.trimmed.firsts)
        self.position = 0
        """Bytes of whole lines in the last segment."""
        self.repair: Repair | None = None
        if self.line:
            self._check_known(directory / TRIMMED_NAME, 1, self.line, self.sum)

    @property
    def missing(self) -> int:
        """How many synced lines the journal lacks at its end, once it has been read: of a copy that was made while a
        process wrote, what was appended meanwhile; otherwise somebody has cut it.
        """
        return max(0, self.mark.line - self.line) if self.mark is not None else 0

    def __iter__(self) -> Iterator[Line]:
        passed = [first for first in self.segments if first <= self.line]
        yield from self._segments(self.segments[len(passed) :], passed[-1] if passed else self.line + 1)
        self._check_head()

    def pass_over(self, summary: Summary) -> None:
        """Passes over a packed segment: its summary counts, once it hangs on what was before. The
        pass goes on behind it.
        """
        path = packed_path(self.directory, summary.first)
        if summary.first != self.line + 1:
            self._out_of_place(self.segments[max(0, self.segments.index(summary.first) - 1)], summary.first)
        if summary.prev != self.sum:
            self._damaged(path, 1, "the line before it is not the one it was written after")
        for topic, partition, first, end in summary.ends:
            expected = self.ends.get((topic, partition), 0)
            if first != expected:
                self._damaged(path, 1, f"offset {first} of {topic} partition {partition} where {expected} belongs")
            self.ends[topic, partition] = end
        self.line, self.sum = summary.last, summary.sum
        self._check_known(path, summary.last - summary.first + 1, self.line, self.sum)

    def segment(self, first: int) -> Iterator[Line]:
        """The lines of one closed segment, where the pass has come to it."""
        yield from self._segment(first, 0)

    def again(self) -> Iterator[Line]:
        """What a process that writes here has appended since everything had been read. Raises as the pass does."""
        self.mark, self.repair = read_mark(self.directory), None
        last = self.segments[-1] if self.segments else 0
        self.segments = list_segments(self.directory)
        if last:
            yield from self._segment(last, self.position)
        yield from self._segments([first for first in self.segments if first > last], last)

    def _segments(self, segments: list[int], before: int) -> Iterator[Line]:
        for first in segments:
            if first != self.line + 1:
                self._out_of_place(before, first)
            yield from self._segment(first, 0)
            before = first

    def _segment(self, first: int, position: int) -> Iterator[Line]:
        """The lines of a file from a position on."""
        path, file, size, summary = _open(self.directory, first)
        self.position, before = position, self.sum
        with file:
            file.seek(position)
            while self.position < size:
                try:
                    raw = self._readline(first, path, file, size)
                    if not raw.endswith(b"\n") and not self._ends_whole(first, path, raw):
                        return
                    line = self._line(first, path, raw.removesuffix(b"\n"))
                except JournalDamaged as damaged:
                    if not self._is_unsynced(first):
                        raise
                    self.repair = Repair(path, damaged.line, size - self.position, whole=False, tail=damaged.reason)
                    return
                yield line
                self.position += len(raw)
        if summary is not None and not position and not self._has_read(summary, before):
            self._damaged(path, 1, "its summary is that of other lines")

    def _has_read(self, summary: Summary, before: str) -> bool:
        """Whether the lines read last are those that a summary tells of. `before`: the sum before them."""
        ends = {(topic, partition): end for topic, partition, _, end in summary.ends}
        found = (before, self.line, self.sum)
        is_same = found == (summary.prev, summary.last, summary.sum)
        return is_same and all(self.ends.get(key) == ends[key] for key in ends)

    def _readline(self, first: int, path: Path, file: BinaryIO, size: int) -> bytes:
        try:
            return file.readline(size - self.position)
        except (ZstdError, EOFError) as error:
            self._damaged(path, self.line + 1 - first + 1, f"it cannot be unpacked: {error}")

    def _is_unsynced(self, first: int) -> bool:
        """Whether no sync has reached the line after the last good one, in the segment that begins with `first`."""
        if self.mark is None or first != self.segments[-1]:
            return False
        return self.line >= max(self.head.line, self.mark.line)

    def _line(self, first: int, path: Path, raw: bytes) -> Line:
        number = self.line + 1
        try:
            total = checked(raw, number, self.sum)
            items = list(cut(raw))
        except LineWrong as wrong:
            self._damaged(path, number - first + 1, str(wrong))
        ends: dict[tuple[str, int], int] = {}
        for topic, partition, offset, _ in items:
            key = (topic, partition)
            expected = ends[key] if key in ends else self.ends.get(key, 0)
            if offset != expected:
                reason = f"offset {offset} of {topic} partition {partition} where {expected} belongs"
                self._damaged(path, number - first + 1, reason)
            ends[key] = offset + 1
        self._check_known(path, number - first + 1, number, total)
        self.ends.update(ends)
        self.line, self.sum = number, total
        return Line(number, first, self.position, raw, items)

    def _check_known(self, path: Path, line: int, number: int, total: str) -> None:
        """Whether a line, of this number and sum, is the one that is remembered, if it is one of those."""
        for known, name in ((self.head, HEAD_NAME), (self.mark, MARK_NAME)):
            if known is not None and number == known.line and total != known.sum:
                self._damaged(path, line, f"{name} remembers another line {number} here")

    def _ends_whole(self, first: int, path: Path, raw: bytes) -> bool:
        """Whether a last line without newline is all there. Raises JournalDamaged where no crash leaves such an end."""
        line = self.line + 1 - first + 1
        if first != self.segments[-1]:
            self._damaged(path, line, "the last line of a full segment has no end")
        if is_whole(raw[:-1]):
            self._damaged(path, line, "the line ends with another byte than a newline")
        whole = is_whole(raw)
        self.repair = Repair(path, line, len(raw), whole)
        return whole

    def _out_of_place(self, before: int, first: int) -> NoReturn:
        expected = self.line + 1
        if first < expected:
            reason = f"by its name this file begins with line {first}, where line {expected} belongs"
            self._damaged(segment_path(self.directory, first), 1, reason)
        missing = segment_path(self.directory, expected).name
        reason = f"lines {expected} to {first - 1} are missing: they end this file, or a file {missing} is missing"
        if expected == 1:
            reason = f"{reason} (or {TRIMMED_NAME}, if the journal was trimmed)"
        self._damaged(segment_path(self.directory, before), expected - before + 1, reason)

    def _check_head(self) -> None:
        newest = self.segments[-1] if self.segments else 1
        if self.head.segment > newest or (self.head.segment and not self.segments):
            path = segment_path(self.directory, self.head.segment)
            self._damaged(path, 1, f"this file is missing; {HEAD_NAME} remembers it")
        path = segment_path(self.directory, newest)
        if self.line < self.head.line:
            reason = f"lines are missing here: {HEAD_NAME} remembers that line {self.head.line} was written"
            self._damaged(path, self.line + 1 - newest + 1, reason)

    def _damaged(self, path: Path, line: int, reason: str) -> NoReturn:
        raise JournalDamaged(path, line, f"{reason} (line {self.line + 1} of the journal)")


def _open(directory: Path, first: int) -> tuple[Path, BinaryIO, int, Summary | None]:
    """A segment as it lies there: its path, its lines, the bytes of them, and what it says of itself if it is packed.
    Raises JournalDamaged, OSError.
    """
    path = segment_path(directory, first)
    try:
        plain = path.open("rb", buffering=READ_BYTES)
    except FileNotFoundError:
        packed, summary = open_packed(directory, first)
        return packed_path(directory, first), packed, summary.size, summary
    return path, plain, os.fstat(plain.fileno()).st_size, None
