"""Reads the journal of a data folder without opening its bus."""

from collections.abc import Callable, Iterator
from pathlib import Path

import structlog

from largesse.bus.file.compacted import COMPACTED
from largesse.bus.file.journal import Repair
from largesse.bus.file.lines import message_of
from largesse.bus.file.packed import read_summary
from largesse.bus.file.scan import Line, Scan
from largesse.bus.port import Message

_log = structlog.get_logger(__name__)


def read_journal(directory: Path | str) -> Iterator[Message]:
    """Every message of a journal in the order of sending, verified, whether or not a process holds the directory.

    Ends before a torn last line or an unsynced tail, which it reports in the log. Leaves out compacted topics, of which
    the journal has what earlier versions wrote, if anything. Raises JournalDamaged; OSError if it cannot be read.
    """
    scan = Scan(Path(directory))
    for line in scan:
        yield from _messages(line)
    if scan.repair is not None:
        report(scan.repair, None)
    report_missing(scan)


def follow_journal(directory: Path | str, at_end: Callable[[], None]) -> Iterator[Message]:
    """The same, and then without end what a process appends. `at_end` is called each time that all has been read; it
    waits for a while, and may raise to end this. Raises as `read_journal`.
    """
    yield from _follow(Scan(Path(directory)), at_end)


def read_behind(
    directory: Path | str, place: tuple[str, int], offset: int, at_end: Callable[[], None] | None
) -> Iterator[Message]:
    """The messages from the one at an offset of a topic's partition on, and what lies before it in the same file:
    packed files that end before it are passed over by what they say of themselves. `at_end`: as in `follow_journal`;
    None: to where the journal ends now. Raises as `read_journal`.
    """
    scan = Scan(Path(directory))
    for first in scan.segments[:-1]:
        summary = read_summary(scan.directory, first)
        if summary is None or any((*place,) == each[:2] and each[3] > offset for each in summary.ends):
            break
        scan.pass_over(summary)
    if at_end is not None:
        yield from _follow(scan, at_end)
        return
    for line in scan:
        yield from _messages(line)


def _follow(scan: Scan, at_end: Callable[[], None]) -> Iterator[Message]:
    lines = iter(scan)
    while True:
        for line in lines:
            yield from _messages(line)
        at_end()
        lines = scan.again()


def _messages(line: Line) -> Iterator[Message]:
    for topic, partition, offset, item in line.items:
        if topic not in COMPACTED:
            yield message_of(topic, partition, offset, item)


def report(repair: Repair, kept: Path | None) -> None:
    place = {"file": str(repair.file), "line": repair.line, "bytes_torn": repair.bytes_torn}
    if repair.tail:
        where = {} if kept is None else {"kept": str(kept)}
        what = (
            "a crash left this tail, which no sync had reached: it does not count, and nothing acknowledged was in it"
        )
        _log.warning("journal_tail_cut", **place, reason=repair.tail, what=what, **where)
        return
    what = "its newline was missing" if repair.whole else "it is torn and does not count"
    _log.warning("journal_line_torn", **place, what=what)


def report_missing(scan: Scan) -> None:
    """Says in the log whether a journal ends before what was synced."""
    if scan.missing:
        what = (
            f"{scan.missing:,} lines that had been synced are missing at the end of the journal; this is normal only "
            "for a copy that was made while the cell ran"
        )
        _log.warning(
            "journal_lines_missing", lines=scan.missing, after=scan.line, directory=str(scan.directory), what=what
        )
