"""`largesse replay` and `largesse export`: a recorded log decided again, looked at, or written as one portable file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from os import environ
from pathlib import Path

from largesse.archive.archiver import AnotherLog
from largesse.archive.manifest import ArchiveDamaged, NoArchive
from largesse.archive.store import StoreError
from largesse.beginning import VARIABLE
from largesse.bus.file.bus import JournalDamaged
from largesse.bus.kafka.cluster import is_cluster
from largesse.bus.port import BusError
from largesse.log.codec import Undecodable
from largesse.log.decisions import DecisionGap
from largesse.log.export import ExportDamaged
from largesse.telemetry import configure
from services.cli.arguments import given
from services.cli.ending import Refused, Wrong, out, out_json
from services.cli.hosting import BUS
from services.cli.progress import Tell, counting, progress_of
from services.cli.show import moment, rendered, span, table
from services.gateway import view
from services.gateway.documents.cell import counts, standing_document
from services.replay.joined import SeamBroken, joined
from services.replay.router_source import is_router, open_router
from services.replay.source import ARCHIVE, NoLog, Source, open_source, write_export
from services.replay.start import Start, StartRefused
from services.replay.verdict import Verdict
from services.replay.verify import verify
from services.replay.viewing import viewing

Spans = Callable[[Tell | None], Verdict]
"""Verifies a log between its checkpoints (verifying.py)."""


def replay(log: str, *, until: int | None, json: bool) -> None:
    """Folds the log up to `until` and tells where that leads. Raises Wrong."""
    if is_router(log):
        _replay_routes(log, verify=False, until=until, json=json)
        return
    source = source_of(log)
    first_ms = source.start.time if source.start is not None else None
    with reading(), progress_of("reading", "records") as tell:
        state = viewing(source.start).state
        for step in watched(source, tell).steps():
            record = step.accepted.record
            if until is not None and record.seq > until:
                break
            first_ms = record.time if first_ms is None else first_ms
            if type(record.body) in view.FOLDS:
                view.fold(state, record)
    _check_until(until, state.seq)
    jobs, nodes = counts(state)
    document = {**standing_document(state), "jobs": jobs, "nodes": nodes}
    if json:
        out_json(document)
        return
    rows: list[tuple[str, object]] = [("cell", state.cell), ("records of the log", state.seq), ("rounds", state.round)]
    rows += [("log time", span(state.time - (first_ms or 0))), ("jobs", _listed(jobs)), ("nodes", _listed(nodes))]
    out(rendered(table(("", ""), rows)))


def replay_and_verify(
    log: str, *, until: int | None, json: bool, across_rules: bool = False, spans: Spans | None = None
) -> None:
    """Decides the log again, with `across_rules` what was decided under others, too; by `spans`, where that is given.
    Raises Refused where it differs, or nothing could be compared; Wrong.
    """
    if is_router(log):
        _replay_routes(log, verify=True, until=until, json=json)
        return
    with reading(), progress_of("verifying", "records") as tell:
        if spans is not None:
            verdict = spans(tell)
        else:
            verdict = verify(watched(source_of(log), tell), until, across_rules=across_rules)
    if verdict.difference is None:
        _check_until(until, verdict.seq)
    if json:
        out_json(verdict.document())
    else:
        out(verdict.text())
    if not verdict.is_same:
        differs = verdict.difference or any(span.rounds_differing for span in verdict.fed)
        raise Refused("the log was not decided again in the same way" if differs else "no round was compared")


def _replay_routes(log: str, *, verify: bool, until: int | None, json: bool) -> None:
    from services.cli import router_replaying

    with reading(), progress_of("verifying" if verify else "reading", "records") as tell:
        router_replaying.replay(watched(routes_of(log), tell), verify=verify, until=until, json=json)


def _check_until(until: int | None, last: int) -> None:
    """The log has to have the record up to which it is asked for. Raises Wrong."""
    if until is not None and until > last:
        raise Wrong(f"--until: the log ends at record {last}")


def export(log: str, target: str, *, force: bool = False) -> int:
    """Writes the log as one file; returns its records. Raises Wrong, also for a file that is there without `force`."""
    source = source_of(log)
    if source.start is not None:
        raise Wrong(f"{log}: begins behind record {source.start.seq:,}, and an export has a whole log: use bundle")
    if Path(target).is_file() and not force:
        raise Wrong(f"{target}: already exists; --force overwrites it")
    with reading():
        try:
            with progress_of("exporting", "records") as tell:
                return write_export(watched(source, tell), target)
        except OSError as error:
            raise Wrong(f"{error.filename}: {error.strerror}") from None


def diff(first: str, second: str, *, json: bool) -> None:
    """Shows where two logs part, and what followed. Raises Refused where they do; Wrong."""
    from services.cli.log_diff import text_of
    from services.replay.log_diff import diff as compared

    sources = source_of(first), source_of(second)
    with reading(), progress_of("comparing", "records") as tell:
        done = 0

        def step() -> None:
            nonlocal done
            done += 1
            if tell is not None and done % 64 == 0:
                tell(done, None)

        found = compared(*sources, step)
    if json:
        out_json(found.document())
    else:
        out(text_of(found))
    if found.difference is not None:
        raise Refused("the logs differ")


def watched(source: Source, tell: Tell | None) -> Source:
    """The same log; `tell` hears how many records were read."""
    return replace(source, read=lambda hear: counting(source.steps(hear), tell))


def behind(archive: str | None, log: str) -> str:
    """How `source_of` is asked for a log whose beginning a store has; for the log alone where none is named."""
    return f"{ARCHIVE}{given('--archive', archive)}{_BEHIND}{log}" if archive is not None else log


_BEHIND = "\n"  # In no path that anybody writes on a command line.


def source_of(log: str) -> Source:
    """The log that a path or an address names: an export, a journal, a data folder of `largesse up`, an archive, or
    Kafka; or what `behind` makes of two. Raises Wrong.
    """
    archive, _, log = log.rpartition(_BEHIND)
    path = Path(log)
    if is_cluster(log):
        configure("console", level="warning")  # What a client of Kafka warns of is no part of what is printed.
    try:
        live = open_source(path / BUS if (path / BUS).is_dir() else log)
        return joined(open_source(archive), live) if archive else live
    except (NoLog, ExportDamaged) as error:
        raise Wrong(str(error)) from None


def store_of(log: str) -> str:
    """The store that may have checkpoints of what `source_of` is asked for: that of its archive, or of the cell. Empty
    where there is none.
    """
    archive = log.partition(_BEHIND)[0]
    return archive.removeprefix(ARCHIVE) if archive.startswith(ARCHIVE) else environ.get(VARIABLE, "")


def routes_of(log: str) -> Source:
    """The router's log at an address."""
    configure("console", level="warning")
    return open_router(log)


def begins_text(start: Start) -> str:
    """Where a bundle begins, to those who ask for what lies before."""
    return f"the bundle begins behind record {start.seq:,}, at {moment(start.time)}"


@contextmanager
def storing() -> Iterator[None]:
    """Around what reads or writes an archive. Raises Refused where it is damaged, or of another log; Wrong."""
    with reading():
        try:
            yield
        except NoArchive as error:
            raise Wrong(str(error)) from None
        except (ArchiveDamaged, AnotherLog) as error:
            raise Refused(str(error)) from None


_DAMAGED = (JournalDamaged, ExportDamaged, ArchiveDamaged)


@contextmanager
def reading() -> Iterator[None]:
    """Around what reads a log: what is wrong with it is the user's to know. Raises Wrong."""
    try:
        yield
    except (*_DAMAGED, DecisionGap, Undecodable, BusError, StoreError, StartRefused, SeamBroken) as error:
        raise Wrong(str(error)) from None


def _listed(found: dict[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(found.items())) or "none"
