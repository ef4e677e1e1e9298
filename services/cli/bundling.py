"""`largesse bundle`: a slice of a log in one file, with the states where it begins."""

import os
from dataclasses import dataclass
from json import dump
from pathlib import Path
from secrets import token_bytes

from services.cli.ending import Wrong, note, out, out_json
from services.cli.moments import point_of
from services.cli.progress import progress_of
from services.cli.replaying import reading, source_of, watched
from services.cli.show import folded, on_terminal, plural
from services.replay.bundling import Slice, SliceEmpty, write_bundle
from services.replay.redacting import NotRedactable, write_redacted
from services.replay.redaction import Names
from services.replay.refold import CoreRaised


@dataclass(slots=True)
class Asked:
    """What is to be written. `redact`: with other names, which `names` has then, a file only its maker can read."""

    since: str | None = None
    until: str | None = None
    redact: bool = False
    names: str | None = None
    force: bool = False


def bundle(log: str, target: str, asked: Asked, *, json: bool) -> None:
    """Writes a bundle. Raises Wrong, also for a file that is there without `force`."""
    first, first_ms = point_of("--from", asked.since)
    last, last_ms = point_of("--to", asked.until)
    source = source_of(log)
    path = Path(target)
    if asked.names is not None and not asked.redact:
        raise Wrong("--map: goes with --redact")
    for each in (path, Path(asked.names)) if asked.names is not None else (path,):
        if each.exists() and not (asked.force and each.is_file()):
            raise Wrong(f"{each}: already exists{'; --force overwrites it' if each.is_file() else ''}")
    if (first or 0) > (last if last is not None else first or 0) or (first_ms or 0) > (last_ms or first_ms or 0):
        raise Wrong("--to: lies before --from")
    wanted = Slice(first, first_ms, last, last_ms)
    try:
        with reading(), progress_of("bundling", "records") as tell:
            if asked.redact:
                written, names = write_redacted(watched(source, tell), path, wanted, token_bytes(32))
                if asked.names is not None:
                    _write_names(Path(asked.names), names)
            else:
                written = write_bundle(watched(source, tell), path, wanted)
    except (NotRedactable, CoreRaised) as error:
        raise Wrong(f"{log}: cannot be redacted: {error}") from None
    except SliceEmpty as error:
        raise Wrong(f"--from, --to: {error}") from None
    except OSError as error:
        raise Wrong(f"{error.filename or target}: {error.strerror}") from None
    if first is not None and written.first > first:
        note(f"the log begins with record {written.first:,}")
    if json:
        out_json({"log": log, "bundle": target, "from_seq": written.first, "to_seq": written.last})
    else:
        span = f"{written.first:,} to {written.last:,}"
        text = f"{plural(written.records, 'record')} ({span}, with decisions and the states before) in {target}"
        out("\n".join(folded(text, "  ")) if on_terminal() else text)


def _write_names(path: Path, names: Names) -> None:
    """Nobody else can read it, whatever file was there before. Raises OSError."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        dump({"names": dict(sorted(names.given.items()))}, file, indent=2, ensure_ascii=False)
        file.write("\n")
