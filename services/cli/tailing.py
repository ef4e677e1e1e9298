"""`largesse tail`: the last records of a log, or those from a point on, a line each."""

from collections import deque
from time import sleep

from largesse.log.record_lines import JobPlaces, WantedRecords, line_of
from schemas import Record
from schemas.registry import NEWEST
from services.cli.ending import Wrong, note, out
from services.cli.moments import point_of
from services.cli.progress import counting, progress_of
from services.cli.replaying import begins_text, reading, source_of
from services.cli.show import moment, plain

LOOK_S = 0.5
"""Between two looks at a log that is followed."""

LAST = 20
"""Records that are shown where nothing else is asked for."""


def tail(log: str, wanted: WantedRecords, *, last: int | None, since: str | None, follow: bool, json: bool) -> None:
    """Prints the last records that are wanted, or all from a point on, with `follow` what comes, too. Raises Wrong."""
    for name in wanted.types:
        if name not in NEWEST:
            raise Wrong(f"--type: {name!r} is no type of record: one of {', '.join(sorted(NEWEST))}")
    if last is not None and since is not None:
        raise Wrong("--last: cannot be combined with --from")
    seq, time_ms = point_of("--from", since)
    source, places = source_of(log), JobPlaces()
    for record in source.start.before if source.start is not None else ():
        places.names_in(record)
    shown: deque[tuple[Record, bytes]] = deque(maxlen=None if since is not None else LAST if last is None else last)
    results_elsewhere = since is None
    found = 0
    if source.start is not None and point_of("--from", since).is_before(source.start.seq + 1, source.start.time):
        note(begins_text(source.start))
    if follow and source.follow is None:
        raise Wrong("--follow: an exported log does not grow")

    def at_end() -> None:
        nonlocal shown
        for record, content in shown:
            _show(record, content, json)
        shown = deque(maxlen=0)
        sleep(LOOK_S)

    with reading(), progress_of("reading", "records", results_elsewhere=results_elsewhere and not follow) as tell:
        records = source.follow(at_end) if follow and source.follow else (each.accepted for each in source.steps())
        for accepted in counting(records, tell):
            record = accepted.record
            names = places.names_in(record)
            if (seq is not None and record.seq < seq) or (time_ms is not None and record.time < time_ms):
                continue
            if not wanted.has(record, names):
                continue
            found += 1
            if shown.maxlen == 0 or since is not None:
                _show(record, accepted.content, json)
            else:
                shown.append((record, accepted.content))
    if not found:
        note("no record of this log is as asked for")
    for record, content in shown:
        _show(record, content, json)


def _show(record: Record, content: bytes, json: bool) -> None:
    if json:
        out(content.decode())
        return
    out(plain(f"{record.seq:>8} {moment(record.time)}  {record.type:<14} {line_of(record)}").rstrip())
