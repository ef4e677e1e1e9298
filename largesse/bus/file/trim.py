"""Removes the beginning of a journal, for whoever holds its folder (trimming.py says what is written of it)."""

from collections.abc import Mapping
from pathlib import Path

from largesse import failpoints
from largesse.bus.file.compacted import lines_needed
from largesse.bus.file.head import sync_directory
from largesse.bus.file.journal import every_segment, list_segments, segment_path
from largesse.bus.file.packed import Summary, packed_path, read_summary, sum_of
from largesse.bus.file.trimming import Trimmed, read_trimmed, write_trimmed


def trim(directory: Path, keep: Mapping[tuple[str, int], int]) -> Trimmed:
    """Lets go of packed segments from the first one on, as long as each of their messages lies before what is to be
    kept; returns where the journal begins now. `keep`: by topic and partition, the first offset that is needed; of one
    that is not named, all are. Raises JournalDamaged, OSError.
    """
    trimmed = read_trimmed(directory)
    gone: list[Summary] = []
    for first in list_segments(directory)[:-1]:
        summary = read_summary(directory, first)
        if summary is None or any(end > keep.get((topic, partition), 0) for topic, partition, _, end in summary.ends):
            break
        gone.append(summary)
    if gone:
        trimmed = _behind(directory, trimmed, gone)
        failpoints.hit("trimming", "before_trim")
        write_trimmed(directory, trimmed)
        failpoints.hit("trimming", "after_trim")
    _remove(directory, trimmed)
    return trimmed


def _behind(directory: Path, before: Trimmed, gone: list[Summary]) -> Trimmed:
    """Where a journal begins without these segments."""
    last, firsts = gone[-1], dict(before.firsts)
    for summary in gone:
        firsts |= {(topic, partition): end for topic, partition, _, end in summary.ends}
    sums: dict[int, str] = {}
    for line in lines_needed(directory):
        if line <= before.line:
            sums |= {line: before.sums[line]} if line in before.sums else {}
        elif line <= last.last:
            summary = next(each for each in gone if line <= each.last)
            sums[line] = sum_of(directory, summary, line)
    return Trimmed(last.last, last.sum, firsts, sums)


def _remove(directory: Path, trimmed: Trimmed) -> None:
    """Removes what does not count any more."""
    left = [first for first in every_segment(directory) if first <= trimmed.line]
    for first in left:
        for path in (segment_path(directory, first), packed_path(directory, first)):
            path.unlink(missing_ok=True)
        failpoints.hit("trimming", "after_remove")
    if left:
        sync_directory(directory)
