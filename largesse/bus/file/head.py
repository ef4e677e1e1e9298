"""What a journal remembers of itself beside its lines: head.json, and how far it was synced.

    head.json      a line that was on disk once, and the newest segment; written durably, so the journal may never end
                   before it
    synced.json    the last line that a sync reached, overwritten in place after each sync and not synced itself

After a kill synced.json is exact. After a power cut it may be some seconds old, which errs on the side of opening the
journal: lines after the mark may be missing or unreadable, lines up to it may not be unreadable. Where there is no mark
(an earlier version wrote the journal), every unreadable line is damage. A copy of the folder that was made while a
process wrote there may hold a mark beyond the copied lines, so a mark alone demands no lines.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from largesse.bus.file.lines import SUM_OF_NOTHING
from largesse.bus.port import BusError

HEAD_NAME = "head.json"
MARK_NAME = "synced.json"
MARK_BYTES = 128
"""The mark is always as long, so that overwriting it touches one disk sector and never the file's size."""
RESTORE = "put it back from a copy of this folder, which may be older than the journal's last lines"


class JournalDamaged(BusError):
    """The journal is not as it was written. `file`, and `line` in that file, counted from 1; `reason`."""

    def __init__(self, file: Path, line: int, reason: str) -> None:
        super().__init__(f"{file}, line {line}: {reason}")
        self.file = file
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Head:
    """What head.json says: this line had this sum, and the segment beginning with line `segment` existed (0: none)."""

    line: int = 0
    sum: str = SUM_OF_NOTHING
    segment: int = 0


def write_head(directory: Path, head: Head) -> None:
    """Replaces head.json, durably. Raises OSError."""
    text = orjson.dumps({"line": head.line, "sum": head.sum, "segment": head.segment}) + b"\n"
    replace_file(directory / HEAD_NAME, text)


def read_head(directory: Path) -> Head | None:
    """What head.json says; None where there is none. Raises JournalDamaged, OSError."""
    path = directory / HEAD_NAME
    try:
        found = orjson.loads(path.read_bytes())
        return Head(int(found["line"]), str(found["sum"]), int(found["segment"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise JournalDamaged(path, 1, f"it is not what was written there: {RESTORE}") from error


def mark_text(head: Head) -> bytes:
    """A mark that says that `head`'s line is on disk."""
    return orjson.dumps({"line": head.line, "sum": head.sum}).ljust(MARK_BYTES - 1) + b"\n"


def write_mark(directory: Path, head: Head) -> None:
    """Replaces synced.json, durably. Raises OSError."""
    replace_file(directory / MARK_NAME, mark_text(head))


def read_mark(directory: Path) -> Head | None:
    """The line that synced.json names; None where it is missing or unreadable."""
    try:
        found = orjson.loads((directory / MARK_NAME).read_bytes())
        return Head(int(found["line"]), str(found["sum"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


class Mark:
    """synced.json, open for overwriting. A mark that cannot be written is left out: it only helps to judge damage."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / MARK_NAME
        self._file = -1

    def set(self, head: Head) -> None:
        """Says that `head`'s line is on disk. Costs no sync."""
        with suppress(OSError):
            if self._file < 0:
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.pwrite(self._file, mark_text(head), 0)

    def close(self) -> None:
        """Lets go of the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def replace_file(path: Path, data: bytes) -> None:
    """Puts `data` in the place of the file, durably; a crash leaves the old or the new content. Raises OSError."""
    new = path.with_name(f"{path.name}.new")
    try:
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fdatasync(file.fileno())
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()  # On a full disk its room is needed.
        raise
    sync_directory(path.parent)


def make_directory(directory: Path) -> None:
    """Makes it and what is missing above it, so that a power cut does not take it away with all it holds. OSError."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync_directory(each.parent)


def sync_directory(directory: Path) -> None:
    """Returns when the names in it are on disk. Raises OSError."""
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
