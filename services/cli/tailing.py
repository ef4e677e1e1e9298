"""`largesse tail`: the last records of a log, or those from a point on, a line each."""

from collections import deque
from dataclasses import replace
from time import sleep

from largesse.log.record_lines import JobPlaces, WantedRecords, line_of
from schemas import Record
from schemas.registry import NEWEST
from services.cli.ending import Wrong, note, out
from services.cli.moments import point_of
from services.cli.progress import counting, progress_of
from services.cli.replaying import begins_text, reading, routes_of, source_of
from services.cli.show import folded, moment, on_terminal, plain
from services.replay.router_source import is_router
from services.replay.source import Source

LOOK_S = 0.5
"""Between two looks at a log that is followed."""

INDENT = " " * 9
"""Before what does not fit into the line of its record on a terminal."""

LAST = 20
"""Records that are shown where nothing else is asked for."""

FROM_END_LEAST, FROM_END_MOST = 200, 60_000
"""So many of the last records are looked at, and then sixteen times as many; beyond that the whole log is read."""


def tail(log: str, wanted: WantedRecords, *, last: int | None, since: str | None, follow: bool, json: bool) -> None:
    """Prints the last records that are wanted, or all from a point on, with `follow` what comes, too. Raises Wrong."""
    for name in wanted.types:
        if name not in NEWEST:
            raise Wrong(f"--type: {name!r} is no type of record: one of {', '.join(sorted(NEWEST))}")
    if last is not None and since is not None:
        raise Wrong("--last: cannot be combined with --from")
    first = point_of("--from", since)
    source, places = routes_of(log) if is_router(log) else source_of(log), JobPlaces()
    for record in source.start.before if source.start is not None else ():
        places.names_in(record)
    shown: deque[tuple[Record, bytes]] = deque(maxlen=None if since is not None else LAST if last is None else last)
    results_elsewhere = since is None
    found = 0
    if source.start is not None and first.is_before(source.start.seq + 1, source.start.time):
        note(begins_text(source.start))
    if follow and source.follow is None:
        raise Wrong("--follow: an exported log does not grow")

    def at_end() -> None:
        nonlocal shown
        for record, content in shown:
            _show(record, content, json)
        shown = deque(maxlen=0)
        sleep(LOOK_S)

    ending = from_end(source, wanted, shown.maxlen) if shown.maxlen and not follow else None
    if ending is not None:
        shown.extend(ending)
        found, source = len(ending), replace(source, read=lambda _: iter(()))
    with reading(), progress_of("reading", "records", results_elsewhere=results_elsewhere and not follow) as tell:
        records = source.follow(at_end) if follow and source.follow else (each.accepted for each in source.steps())
        for accepted in counting(records, tell):
            record = accepted.record
            names = places.names_in(record)
            if not first.is_reached_by(record.seq, record.time):
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


def from_end(source: Source, wanted: WantedRecords, last: int) -> list[tuple[Record, bytes]] | None:
    """The last records that are wanted, found from the log's end; None where all of it has to be read: since what a
    record speaks of does not name its queue and user, since they lie far back, or since not all is well there.
    """
    if wanted.queues or wanted.users:
        return None
    least = max(FROM_END_LEAST, last)
    while least <= FROM_END_MOST:
        end = source.last(least)
        if end is None:
            return None
        places = JobPlaces()
        found = [each for each in end.records if wanted.has(each.record, places.names_in(each.record))]
        if end.all or len(found) >= last:
            return [(each.record, each.content) for each in found[len(found) - min(last, len(found)) :]]
        least *= 16
    return None


def _show(record: Record, content: bytes, json: bool) -> None:
    if json:
        out(content.decode())
        return
    line = plain(f"{record.seq:>8} {moment(record.time)}  {record.type:<14} {line_of(record)}").rstrip()
    out("\n".join(folded(line, INDENT)) if on_terminal() else line)
