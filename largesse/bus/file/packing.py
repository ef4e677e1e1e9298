"""Packs the closed segments of a journal: `python -m largesse.bus.file.packing FOLDER`, which the bus starts by itself.

A process of its own, at the least priority there is: it reads each segment as everybody does, every line checked and
hung on the one before, writes it packed beside it, reads that back, and gives it its name once it is on disk. The
segment as it was goes when the next one is packed, so that a copy of the folder that is being made finds one of the
two. It may be killed at any moment.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import structlog

from largesse import failpoints
from largesse.bus.file.compacted import COMPACTED
from largesse.bus.file.head import JournalDamaged, sync_directory
from largesse.bus.file.journal import segment_path
from largesse.bus.file.lock import DirectoryHeld, DirectoryLock
from largesse.bus.file.packed import FRAME_BYTES, Index, Summary, ending, frame, packed_path, read_frame, read_summary
from largesse.bus.file.scan import Line, Scan

NICE = 19
LOCK_NAME = "packing.lock"


def main(words: list[str]) -> int:
    """Packs what is closed in the folder that is named. A second one for the same folder ends at once."""
    directory = Path(words[0])
    with suppress(OSError):
        os.nice(NICE)
    try:
        lock = DirectoryLock(directory, LOCK_NAME)
    except DirectoryHeld:
        return 0
    try:
        pack_closed(directory)
    except (JournalDamaged, OSError) as error:
        structlog.get_logger(__name__).warning("journal_not_packed", reason=str(error))
        return 1
    finally:
        lock.release()
    return 0


def pack_closed(directory: Path) -> list[int]:
    """Packs every segment but the last that is not packed, the first one first; returns their first lines. Removes
    what earlier turns have packed, and what they left half-written. Raises JournalDamaged, OSError.
    """
    for path in directory.glob("journal-*.zst.new"):
        path.unlink()
    scan, done = Scan(directory), []
    for first in scan.segments[:-1]:
        summary = read_summary(directory, first)
        if summary is not None:
            scan.pass_over(summary)
            segment_path(directory, first).unlink(missing_ok=True)
        elif _pack(directory, first, scan):
            done.append(first)
        else:
            break  # Those behind it wait: what a summary says hangs on all before it.
    return done


def _pack(directory: Path, first: int, scan: Scan) -> bool:
    """Packs one segment, to which the scan has come. False where an earlier version wrote to it what is kept elsewhere
    by now (compacted.py): it stays as it is.
    """
    final = packed_path(directory, first)
    new = final.with_suffix(".zst.new")
    index, prev, digest, size = Index(), scan.sum, sha256(), 0
    starts: dict[tuple[str, int], int] = {}
    with new.open("wb") as file:
        for lines in _frames(scan.segment(first)):
            index.begin_frame(lines[0].number, lines[0].position, file.tell())
            for line in lines:
                for topic, partition, offset, _ in line.items:
                    index.note(topic, partition, offset, line.position)
                    starts.setdefault((topic, partition), offset)
            data = b"".join(line.raw + b"\n" for line in lines)
            digest.update(data)
            size += len(data)
            file.write(frame(data))
        index.packed.append(file.tell())
        ends = tuple((*key, start, scan.ends[key]) for key, start in starts.items())
        summary = Summary(first, scan.line, prev, scan.sum, size, digest.hexdigest(), index.packed[-1], ends)
        file.write(ending(index, summary))
        file.flush()
        os.fsync(file.fileno())
    if COMPACTED & {topic for topic, _ in starts}:
        new.unlink()
        return False
    _check(new, summary, len(index.lines))
    failpoints.hit("packing", "before_pack")
    new.rename(final)
    sync_directory(directory)
    failpoints.hit("packing", "after_pack")
    return True


def _frames(lines: Iterator[Line]) -> Iterator[list[Line]]:
    frame: list[Line] = []
    for line in lines:
        if frame and line.position + len(line.raw) - frame[0].position >= FRAME_BYTES:
            yield frame
            frame = []
        frame.append(line)
    if frame:
        yield frame


def _check(path: Path, summary: Summary, frames: int) -> None:
    """Raises JournalDamaged where the lines do not come back as they were."""
    digest = sha256()
    for number in range(frames):
        digest.update(read_frame(path, number))
    if digest.hexdigest() != summary.sha256:
        raise JournalDamaged(path, 1, "its lines do not come back as they were: the disk, or this machine, is at fault")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
