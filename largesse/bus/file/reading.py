"""Reads the journal of a data folder without opening its bus."""

from collections.abc import Callable, Iterator
from pathlib import Path

import structlog

from largesse.bus.file.compacted import COMPACTED
from largesse.bus.file.journal import Repair
from largesse.bus.file.lines import message_of
from largesse.bus.file.scan import Scan
from largesse.bus.port import Message

_log = structlog.get_logger(__name__)


def read_journal(directory: Path | str) -> Iterator[Message]:
    """Every message of a journal in the order of sending, verified, whether or not a process holds the directory.

    Ends before a torn last line or an unsynced tail, which it reports in the log. Leaves out compacted topics, of which
    the journal has what earlier versions wrote, if anything. Raises JournalDamaged; OSError if it cannot be read.
    """
    scan = Scan(Path(directory))
    for line in scan:
        for topic, partition, offset, item in line.items:
            if topic not in COMPACTED:
                yield message_of(topic, partition, offset, item)
    if scan.repair is not None:
        report(scan.repair, None)
    report_missing(scan)


def follow_journal(directory: Path | str, at_end: Callable[[], None]) -> Iterator[Message]:
    """The same, and then without end what a process appends. `at_end` is called each time that all has been read; it
    waits for a while, and may raise to end this. Raises as `read_journal`.
    """
    scan = Scan(Path(directory))
    lines = iter(scan)
    while True:
        for line in lines:
            for topic, partition, offset, item in line.items:
                if topic not in COMPACTED:
                    yield message_of(topic, partition, offset, item)
        at_end()
        lines = scan.again()


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
