"""`largesse bundle`: a slice of a log in one file, with the states where it begins."""

from pathlib import Path

from services.cli.ending import Wrong, note, out, out_json
from services.cli.moments import point_of
from services.cli.progress import progress_of
from services.cli.replaying import reading, source_of, watched
from services.cli.show import plural
from services.replay.bundling import Slice, SliceEmpty, write_bundle


def bundle(log: str, target: str, *, since: str | None, until: str | None, force: bool, json: bool) -> None:
    """Writes a bundle. Raises Wrong, also for a file that is there without `force`."""
    first, first_ms = point_of("--from", since)
    last, last_ms = point_of("--to", until)
    source = source_of(log)
    path = Path(target)
    if path.exists() and not (force and path.is_file()):
        raise Wrong(f"{target}: already exists{'; --force overwrites it' if path.is_file() else ''}")
    try:
        with reading(), progress_of("bundling", "records") as tell:
            written = write_bundle(watched(source, tell), path, Slice(first, first_ms, last, last_ms))
    except SliceEmpty as error:
        raise Wrong(f"{log}: {error}") from None
    except OSError as error:
        raise Wrong(f"{error.filename or target}: {error.strerror}") from None
    if first is not None and written.first > first:
        note(f"the log begins with record {written.first:,}")
    if json:
        out_json({"log": log, "bundle": target, "from_seq": written.first, "to_seq": written.last})
    else:
        span = f"{written.first:,} to {written.last:,}"
        out(f"{plural(written.records, 'record')} ({span}, with decisions and the states before) in {target}")
