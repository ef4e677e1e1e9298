"""The journal's files: one chain of lines through segments, read and verified in a stream, and appended to.

    journal-000000000001.jsonl     lines 1 on; a segment is named by its first line
    journal-000000004711.jsonl
    journal-...jsonl.zst           the same for a closed segment, packed (packed.py)
    head.json, synced.json         how far the journal reaches at least, and how far it was synced (head.py)
    lock                           held by the one process that may append (lock.py)

A segment is made empty, head.json remembers it, and only then its first line is written: lines without head.json are
what is left of a journal, and no crash leaves that.

A torn last line (no newline: a crash in mid write) ends the journal before it. So does an unreadable line that no sync
had reached: a power cut keeps unsynced pages in any order, or not at all. Anything else that is not as it was written
is damage, named by file and line. Only the last segment has unsynced lines: the one before is synced first.
"""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from largesse import failpoints
from largesse.bus.file.head import (
    HEAD_NAME,
    RESTORE,
    Head,
    JournalDamaged,
    Mark,
    make_directory,
    read_head,
    replace_file,
    sync_directory,
    write_head,
)
from largesse.bus.file.lines import LineWrong, self_checked
from largesse.bus.file.trimming import read_trimmed
from largesse.bus.port import BusFull
from largesse.descriptors import when_there_are

_SEGMENT = re.compile(r"journal-(\d{12})\.jsonl(\.zst)?")
READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Repair:
    """Where the journal's end was not as a gentle end leaves it: from this line on `bytes_torn` bytes do not count.

    `tail`: what was wrong, where more than the beginning of a last line is cut off; empty: only that.
    """

    file: Path
    line: int
    bytes_torn: int
    whole: bool
    """All there but for the newline. Then the line counts and the newline is added; otherwise all of it is cut off."""
    tail: str = ""


def segment_path(directory: Path, first_line: int) -> Path:
    """The file of the segment that begins with this line."""
    return directory / f"journal-{first_line:012d}.jsonl"


def has_journal(directory: Path) -> bool:
    """Whether there is a journal in this folder, or anything of one. Raises OSError."""
    return (directory / HEAD_NAME).exists() or bool(list_segments(directory))


@dataclass(frozen=True, slots=True)
class Run:
    """Lines to append to one segment: its first line, the sum before that, and the bytes."""

    first_line: int
    sum_before: str
    data: bytes


class Disk:
    """What appending asks of the operating system. A test may hand in one that fails."""

    def write(self, file: int, data: memoryview) -> int:
        """Appends a part of data, at least one byte; returns how many. Raises OSError."""
        return os.write(file, data)

    def sync(self, file: int) -> None:
        """Returns when what was written is on disk. Raises OSError."""
        os.fdatasync(file)


@dataclass(frozen=True, slots=True)
class WholeFile:
    """A file to put in its place as a whole, once what was sent before it is on disk (compacted.py)."""

    path: Path
    data: bytes


class Appender:
    """Appends to the last segment and begins new ones. One thread at a time; not to be used after BusFull."""

    def __init__(self, directory: Path, first_line: int, size: int, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self._first_line = first_line
        self._file = -1
        self._written = size
        self._synced = size
        self._mark = Mark(directory)

    def append(self, runs: list[Run], files: list[WholeFile], head: Head, *, sync: bool) -> None:
        """Writes all runs, of which `head` is the last line; if asked, returns only when they are on disk.

        `files` are on disk, after everything that was appended so far, when it returns. Raises BusFull.
        """
        path = segment_path(self._directory, self._first_line)
        try:
            for run in runs:
                path = segment_path(self._directory, run.first_line)
                when_there_are(partial(self._turn_to, run))  # Of this run nothing is written yet.
                self._write(memoryview(run.data))
            if sync or files:
                self._sync_to(head)
            for file in files:
                path = file.path
                make_directory(path.parent)
                when_there_are(partial(replace_file, path, file.data))
        except OSError as error:
            raise _full(path, error) from error

    def close(self, head: Head) -> None:
        """Puts everything on disk, remembers `head` and lets go of the file. Raises BusFull."""
        try:
            self._sync_to(head)
            write_head(self._directory, head)
        except OSError as error:
            raise _full(segment_path(self._directory, self._first_line), error) from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Lets go of the files as they are."""
        self._mark.close()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _turn_to(self, run: Run) -> None:
        if self._file >= 0 and run.first_line == self._first_line:
            return
        if self._file >= 0:
            # The chain must not reach further on disk than what it hangs on.
            self._sync()
            self.abandon()
        if run.first_line != self._first_line:
            self._first_line = run.first_line
            self._written = self._synced = 0
        path = segment_path(self._directory, run.first_line)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if self._written == 0:
            try:
                sync_directory(self._directory)
                write_head(self._directory, Head(run.first_line - 1, run.sum_before, run.first_line))
            except OSError:
                self.abandon()  # So that all of it is done again, where it can be.
                raise

    def _write(self, data: memoryview) -> None:
        done = 0
        try:
            while done < len(data):
                done += self._disk.write(self._file, data[done:])
        except OSError:
            # Whole lines may stay, they are as good as any; a torn one would have to be repaired later.
            whole = bytes(data[:done]).rfind(b"\n") + 1
            self._written += whole
            self._cut_to(self._written)
            raise
        self._written += done

    def _sync_to(self, head: Head) -> None:
        """Puts everything on disk, and says so: `head` is the last line written."""
        if self._file < 0:
            return
        self._sync()
        failpoints.hit("bus", "before_mark")
        self._mark.set(head)
        failpoints.hit("bus", "after_mark")

    def _sync(self) -> None:
        if self._synced == self._written:
            return
        try:
            self._disk.sync(self._file)
        except OSError:
            # The kernel may drop these pages and yet show them until the next start: they must not look written.
            self._cut_to(self._synced)
            raise
        self._synced = self._written

    def _cut_to(self, size: int) -> None:
        with suppress(OSError):
            os.ftruncate(self._file, size)


def settle(path: Path, position: int, repair: Repair | None) -> tuple[int, Path | None]:
    """Repairs the last segment and puts it on disk. Its size, and where a cut tail is kept, if any. Raises BusFull.

    A killed process may have written lines and never synced them. They will be shown now, so now they must be durable.
    """
    kept = None
    try:
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        try:
            if repair is not None and repair.whole:
                position += os.write(file, b"\n")
            elif repair is not None:
                if repair.tail:
                    kept = _set_aside(path, file, position, repair)
                os.ftruncate(file, position)
            os.fdatasync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise _full(kept or path, error) from error
    return position, kept


def _set_aside(path: Path, file: int, position: int, repair: Repair) -> Path:
    """Copies what lies behind `position` to a file of its own, durably."""
    number = 1
    while (kept := path.with_suffix(f".line-{repair.line}-{number}.cut")).exists():
        number += 1
    replace_file(kept, os.pread(file, repair.bytes_torn, position))
    return kept


def list_segments(directory: Path) -> list[int]:
    """The first lines of all segments that count, packed ones too, in order. Raises JournalDamaged, OSError."""
    begins = read_trimmed(directory).line
    return [first for first in every_segment(directory) if first > begins]


def every_segment(directory: Path) -> list[int]:
    """The same, with those that were trimmed and are still there."""
    names = sorted(entry.name for entry in directory.iterdir())
    return list(dict.fromkeys(int(match[1]) for name in names if (match := _SEGMENT.fullmatch(name))))


def missed_head(directory: Path, segments: list[int]) -> Head:
    """For a folder without head.json. Raises JournalDamaged where there are lines, which say that there was one."""
    for first in segments:
        path = segment_path(directory, first)
        if path.exists() and path.stat().st_size == 0:
            continue
        # Before the first line there is one: a journal that was only just begun has it by now.
        head = read_head(directory)
        if head is None:
            raise JournalDamaged(
                directory / HEAD_NAME, 1, f"this file is missing, and {path.name} has lines: {RESTORE}"
            )
        return head
    return Head()


def is_whole(raw: bytes) -> bool:
    try:
        self_checked(raw)
    except LineWrong:
        return False
    return True


def _full(path: Path, error: OSError) -> BusFull:
    return BusFull(
        f"{path}: {error.strerror or error}: nothing more is written, and nothing that was acknowledged is lost. "
        f"Make room on this file system (or raise the limit, or replace the disk) and start again."
    )
