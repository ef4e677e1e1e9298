"""`largesse archive`: a cell's log kept for years, and what there is of it."""

from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.arguments import Json, given
from services.cli.ending import Refused, Wrong, note, out, out_json

if TYPE_CHECKING:
    from largesse.archive.archiver import Archived
    from largesse.archive.reader import Standing
    from largesse.archive.store import Store

archive_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

StoreUrl = Annotated[
    str,
    typer.Argument(
        help="a folder, or s3://BUCKET/PREFIX (gs://, az://); credentials: by the environment",
        metavar="STORE",
        envvar="LARGESSE_ARCHIVE",
        show_envvar=False,
    ),
]
_UNSEEN = (
    "not looked at: whether each decision follows from what was known (replay --verify archive:{} does), and what is "
    "not in a log's export: messages that never counted, and decisions that did not win"
)


@archive_app.callback()
def _archive() -> None:
    """Keep a cell's log for years."""


@archive_app.command("run", short_help="Put a log into an archive, behind what is there.")
def run(
    store: StoreUrl,
    log: Annotated[
        str | None,
        typer.Option(
            "--log",
            help="a data folder of `largesse up`, an exported log, or kafka[s]://HOST:PORT/CELL  "
            "[default: what LARGESSE_BUS and LARGESSE_CELL say]",
            metavar="LOG",
        ),
    ] = None,
    segment_mib: Annotated[
        int, typer.Option("--segment-mib", help="a segment is full with this much, unpacked", min=1, max=1_024)
    ] = 64,
    json: Json = False,
) -> None:
    """Put a log into an archive, up to the last round that is over: what the archive has already is compared, the rest
    is written behind it, in packed segments. Each is read back and verified before it counts. Whoever is stopped goes
    on where it was; two at once do no harm.
    """
    from services.cli.progress import progress_of
    from services.cli.replaying import source_of, storing
    from services.replay.archiving import archive_log

    source = source_of(log if log is not None else _log_here())
    if source.start is not None:
        raise Wrong(f"--log: {source.name} is a bundle, and an archive has a whole log")
    opened = opened_store(store)
    with storing(), progress_of("archiving", "records") as tell:
        done = archive_log(source, opened, segment_mib << 20, lambda seq: tell(seq, None) if tell is not None else None)
    _tell_archived(opened, done, json=json)


def _log_here() -> str:
    """The log of the cell that this process's environment names. Raises Wrong."""
    from largesse.settings import SettingWrong, read_settings

    try:
        settings = read_settings()
    except SettingWrong as error:
        raise Wrong(str(error)) from None
    if settings.bus.startswith("file:"):
        return settings.bus.removeprefix("file:").removeprefix("//")
    return f"{settings.bus}/{settings.cell}"


def opened_store(url: str) -> "Store":
    """The store that an argument names. Raises Wrong."""
    from largesse.archive.store import StoreUrlWrong, open_store

    try:
        return open_store(given("STORE", url))
    except StoreUrlWrong as error:
        raise Wrong(f"STORE: {error}") from None


def _tell_archived(store: "Store", done: "Archived", *, json: bool) -> None:
    from services.cli.show import plural

    if json:
        said = {"records": done.records, "segments": done.segments, "bytes": done.bytes}
        out_json({"archive": store.url, **said, "unpacked_bytes": done.unpacked_bytes})
    elif done.segments:
        sizes = f"{done.unpacked_bytes:,} bytes in {done.bytes:,}"
        out(f"{plural(done.records, 'record')} in {plural(done.segments, 'segment')} ({sizes})")
    else:
        out("the archive has everything up to the last round that is over")


@archive_app.command("status", short_help="Show what there is in an archive.")
def status(store: StoreUrl, json: Json = False) -> None:
    """Show what there is in an archive: the records of a cell that it has, in how many segments of what size, and what
    archivers that were stopped have left. Looks at names, sizes and manifests; `verify` reads it all.
    """
    from largesse.archive.reader import standing
    from services.cli.replaying import storing

    opened = opened_store(store)
    with storing():
        found = standing(opened)
    if json:
        out_json(_document(opened, found))
    else:
        _show(found)


def _document(store: "Store", found: "Standing") -> dict[str, object]:
    newest, size = found.manifests[-1], sum(each.manifest.segment.bytes for each in found.manifests)
    last = newest.manifest
    unpacked = sum(each.manifest.segment.unpacked_bytes for each in found.manifests)
    return {
        "archive": store.url,
        "cell": last.cell,
        "seq": last.end.seq,
        "time": last.end.time,
        "prefix": last.end.prefix,
        "manifest": newest.sha256,
        "segments": len(found.manifests),
        "bytes": size,
        "unpacked_bytes": unpacked,
        "rules": sorted({each for noted in found.manifests for each in noted.manifest.rules}),
        "orphans": [{"name": each.name, "bytes": each.size} for each in found.orphans],
        "unfinished": [{"name": each.name, "bytes": each.size} for each in found.unfinished],
    }


def _show(found: "Standing") -> None:
    from services.cli.show import described, moment, plural

    last = found.manifests[-1].manifest
    size = sum(each.manifest.segment.bytes for each in found.manifests)
    unpacked = sum(each.manifest.segment.unpacked_bytes for each in found.manifests)
    rows: list[tuple[str, object]] = [
        ("cell", last.cell),
        ("records", f"1 to {last.end.seq:,}, the last at {moment(last.end.time)}"),
        ("segments", f"{len(found.manifests):,} of {size:,} bytes, {unpacked:,} unpacked"),
        ("manifest", f"{last.name}, {found.manifests[-1].sha256}"),
    ]
    out(described(rows).rstrip("\n"))
    for each in found.orphans:
        note(f"no manifest names {each.name} ({each.size:,} bytes): an archiver was stopped, or was not the first")
    if found.unfinished:
        left = ", ".join(each.name for each in found.unfinished)
        note(f"{plural(len(found.unfinished), 'file')} of archivers that were killed may be removed: {left}")


@archive_app.command("verify", short_help="Verify all of an archive.")
def verify(
    store: StoreUrl,
    processes: Annotated[
        int, typer.Option("--processes", help="how many verify at a time  [default: one a processor]", min=0, max=256)
    ] = 0,
    json: Json = False,
) -> None:
    """Verify all of an archive: that every manifest hangs on the one before, that every segment is as it was written,
    and that its records are one chain from the first to the last, each closing with the decisions that it names. What
    is wrong is named; the exit code is 1 then.
    """
    from largesse.archive.reader import check_archive, standing
    from services.cli.progress import progress_of
    from services.cli.replaying import storing
    from services.cli.show import plural

    opened = opened_store(store)
    with storing(), progress_of("verifying", "records") as tell:
        found = standing(opened)
        last = found.manifests[-1].manifest.end.seq
        wrong = check_archive(
            opened, found.manifests, lambda done: tell(done, last) if tell is not None else None, processes
        )
    if json:
        out_json({**_document(opened, found), "wrong": wrong})
    for line in wrong if not json else []:
        out(line)
    if wrong:
        raise Refused(f"{plural(len(wrong), 'segment')} of {len(found.manifests):,} not as written")
    if not json:
        out(f"records 1 to {last:,}: one chain in {plural(len(found.manifests), 'segment')}, as written")
        note(_UNSEEN.format(opened.url))
