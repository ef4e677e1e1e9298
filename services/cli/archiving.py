"""`largesse archive`: a cell's log kept for years, and what there is of it."""

from contextlib import suppress
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.arguments import Json, given
from services.cli.ending import Refused, Wrong, note, out, out_json

if TYPE_CHECKING:
    from largesse.archive.archiver import Archived
    from largesse.archive.attest import Attested, PublicKey, Signer
    from largesse.archive.manifest import Manifest
    from largesse.archive.reader import Standing
    from largesse.archive.store import Store

archive_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

StoreUrl = Annotated[
    str,
    typer.Argument(
        help="a folder, or s3://BUCKET/PREFIX (gs://, az://); credentials: by the environment  "
        "[default: what LARGESSE_ARCHIVE says]",
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
            "[default: what LARGESSE_BUS and LARGESSE_CELL say, else the folder largesse-data]",
            metavar="LOG",
        ),
    ] = None,
    segment_mib: Annotated[
        int, typer.Option("--segment-mib", help="a segment is full with this much, unpacked", min=1, max=1_024)
    ] = 64,
    segment_age: Annotated[
        str, typer.Option("--segment-age", help="with --follow: or when its first record is so old", metavar="SPAN")
    ] = "1h",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on with what is appended, until Ctrl-C")] = False,
    json: Json = False,
) -> None:
    """Put a log into an archive, up to the last round that is over: what is not there yet is written behind what is, in
    packed segments. Each is read back and verified before it counts. Whoever is stopped goes on where it was; two at
    once do no harm. An archive in which something is missing is refused; `verify` reads all of it.
    """
    from largesse.archive.manifest import NoArchive
    from largesse.archive.reader import standing
    from largesse.telemetry import configure
    from services.cli.moments import span_ms
    from services.cli.progress import progress_of
    from services.cli.replaying import source_of, storing
    from services.replay.archiving import Limits, archive_log

    configure("console", level="warning")
    limits = Limits(segment_mib << 20, span_ms("--segment-age", segment_age), follow)
    source = source_of(log if log is not None else log_here())
    if source.start is not None:
        raise Wrong(f"--log: {source.name} is a bundle, and an archive has a whole log")
    if follow and source.messages_behind is None:
        raise Wrong(f"--follow: {source.name} does not grow")
    opened = opened_store(store)

    def wrote(manifest: "Manifest") -> None:
        if follow:
            _tell_written(manifest, json=json)

    with storing(), progress_of("archiving", "records", results_elsewhere=not follow) as tell:
        with suppress(NoArchive):
            standing(opened)
        told = (lambda seq: tell(seq, None)) if tell is not None else (lambda _: None)
        done = archive_log(source, opened, limits, told, wrote)
    _tell_archived(opened, done, json=json)


def _tell_written(manifest: "Manifest", *, json: bool) -> None:
    """A line for each segment."""
    if json:
        out(dumps({"name": manifest.segment.name, "seq": manifest.end.seq, "bytes": manifest.segment.bytes}))
    else:
        out(f"records {manifest.start.seq + 1:,} to {manifest.end.seq:,}: {manifest.segment.name}")


def log_here() -> str:
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
        out_json({"archive": store.url, **said, "unpacked_bytes": done.unpacked_bytes, "messages_read": done.read})
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
    from largesse.archive.attest import signers_in
    from largesse.archive.reader import standing
    from services.cli.replaying import storing

    opened = opened_store(store)
    with storing():
        found, signers = standing(opened), signers_in(opened)
    if json:
        said = [{"key": each.key, "count": each.count, "seq": _seq_of(each, found)} for each in signers]
        out_json({**_document(opened, found), "attestations": said})
        return
    _show(found)
    for each in signers:
        out(f"attested   {_signed_by(each, found)}")


def _seq_of(signer: "Signer", found: "Standing") -> int | None:
    """Up to which record somebody has signed; None where that manifest is missing."""
    there = 0 < signer.number <= len(found.manifests)
    return found.manifests[signer.number - 1].manifest.end.seq if there else None


def _signed_by(signer: "Signer", found: "Standing") -> str:
    from services.cli.show import plural

    seq = _seq_of(signer, found)
    upto = f"records 1 to {seq:,}" if seq is not None else f"manifest {signer.number:,}, which is missing,"
    return f"{upto} by key {signer.key} ({plural(signer.count, 'attestation')})"


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
        ("manifest", last.name),
    ]
    out(described(rows).rstrip("\n"))
    out(f"its SHA-256  {found.manifests[-1].sha256}")  # In one piece, however narrow the terminal is.
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
    key: Annotated[
        str | None,
        typer.Option("--key", help="a public key (PEM): check what its owner has attested, too", metavar="PUBLIC"),
    ] = None,
    json: Json = False,
) -> None:
    """Verify all of an archive: that every manifest hangs on the one before, that every segment is as it was written,
    and that its records are one chain from the first to the last, each closing with the decisions that it names. What
    is wrong is named; the exit code is 1 then.
    """
    from largesse.archive.attest import Attested, check_attestations
    from largesse.archive.reader import check_archive, standing
    from services.cli.progress import progress_of
    from services.cli.replaying import storing
    from services.cli.show import plural

    opened, public = opened_store(store), _public_key(key)
    with storing(), progress_of("verifying", "records") as tell:
        found = standing(opened)
        last = found.manifests[-1].manifest.end.seq
        wrong = check_archive(
            opened, found.manifests, lambda done: tell(done, last) if tell is not None else None, processes
        )
        attested = check_attestations(opened, found.manifests, public) if public is not None else Attested()
    wrong += attested.wrong
    if json:
        signed = {"attested": attested.last and {"seq": attested.last.seq, "at": attested.last.at_ms}}
        out_json({**_document(opened, found), "wrong": wrong, **(signed if key is not None else {})})
    for line in wrong if not json else []:
        out(line)
    if wrong:
        raise Refused(f"{plural(len(wrong), 'thing')} of {opened.url} not as written")
    if public is not None and attested.last is None:
        raise Refused(_signed_by_others(opened, public, str(key), found))
    if not json:
        out(f"records 1 to {last:,}: one chain in {plural(len(found.manifests), 'segment')}, as written")
        if attested.last is not None:
            _show_attested(attested, last)
        note(_UNSEEN.format(opened.url))


def _signed_by_others(store: "Store", public: "PublicKey", path: str, found: "Standing") -> str:
    """What to say to who holds a key by which nothing is signed."""
    from largesse.archive.attest import fingerprint, signers_in

    mine = f"{store.url}: the owner of {path} (key {fingerprint(public)}) has attested nothing there"
    others = "; ".join(_signed_by(each, found) for each in signers_in(store))
    if not others:
        return f"{mine}, nor has anybody: `largesse attest` signs what there is"
    return f"{mine}. Signed are {others}: give the public key of who signs this archive"


def _show_attested(attested: "Attested", last: int) -> None:
    from services.cli.show import moment, plural

    newest = attested.last
    if newest is None:
        return
    when = f"attested at {moment(newest.at_ms)}, by the clock of who signed"
    out(f"records 1 to {newest.seq:,}: {when} ({plural(attested.count, 'attestation')})")
    if newest.seq < last:
        note(f"records {newest.seq + 1:,} to {last:,}: attested by nobody with that key yet")


def _public_key(path: str | None) -> "PublicKey | None":
    """Raises Wrong."""
    from largesse.archive.attest import KeyUnusable, read_public_key

    try:
        return read_public_key(path) if path is not None else None
    except KeyUnusable as error:
        raise Wrong(f"--key: {error}") from None


def add_to(app: typer.Typer) -> None:
    """Adds the command that signs."""
    app.command("attest", short_help="Sign what an archive has.")(attest_of)


def attest_of(
    store: StoreUrl,
    key: Annotated[str, typer.Option("--key", help="a private key: Ed25519, PEM, read by nobody else", metavar="FILE")],
    json: Json = False,
) -> None:
    """Sign what an archive has now, and put the signature beside it. Whoever has the public key sees from then on that
    nothing up to there was changed or cut off (`archive verify --key`). Does not read the segments: verify first.
    """
    from time import time

    from largesse.archive.attest import KeyUnusable, attest, read_private_key
    from largesse.archive.manifest import read_all
    from services.cli.replaying import storing
    from services.cli.show import moment

    opened = opened_store(store)
    try:
        private = read_private_key(given("--key", key))
    except KeyUnusable as error:
        raise Wrong(f"--key: {error}") from None
    with storing():
        found, is_new = attest(opened, read_all(opened)[-1], private, int(time() * 1_000))
    if json:
        said = {"archive": opened.url, "cell": found.cell, "seq": found.seq, "prefix": found.prefix}
        out_json({**said, "manifest": found.manifest, "at": found.at_ms, "key": found.key, "name": found.name})
    elif is_new:
        out(f"records 1 to {found.seq:,} of cell {found.cell} are attested: {found.name}")
    else:
        out(f"records 1 to {found.seq:,} were attested at {moment(found.at_ms)}: {found.name}")
