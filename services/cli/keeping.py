"""`largesse archive keep`: one process that archives a cell's log, has checkpoints made, and trims the log.

The work is done on a thread, so that the port of metrics answers meanwhile. A signal ends both, at once where the
thread is in the middle of something: whatever is half done, the next one does again.
"""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.archiving import StoreUrl, archive_app, log_here, opened_store
from services.cli.arguments import Json, Url
from services.cli.checkpoint_commands import log_of
from services.cli.ending import Ending, Refused, Unanswered, Wrong, note, out

if TYPE_CHECKING:
    from largesse.archive.attest import PrivateKey
    from largesse.bus.file.lock import DirectoryLock
    from largesse.settings import Settings
    from services.replay.keeping import Event, Keeper, Note, Terms

END_S = 5.0
"""What is not done so long after a signal is left half done."""

NICE = 19
LOCK_NAME = "archiving.lock"
REFUSED_FOR_GOOD = (400, 409, 422)
"""Status of an answer that would be the same the next time."""

_LOG_TEXT = "a data folder of `largesse up`, or kafka[s]://HOST:PORT/CELL"


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the command line says beside the store and the log."""

    url: str | None
    key: str | None
    json: bool
    is_dry: bool
    is_once: bool


def _option(name: str, text: str, metavar: str | None = None, envvar: str | None = None) -> object:
    return typer.Option(name, help=text, metavar=metavar, envvar=envvar)


_Log = Annotated[
    str | None, _option("--log", f"{_LOG_TEXT}  [default: what LARGESSE_BUS and LARGESSE_CELL say]", "LOG")
]
_Every = Annotated[
    str,
    _option(
        "--checkpoint-every",
        "a checkpoint is due once the newest is so old",
        "SPAN",
        "LARGESSE_CHECKPOINT_EVERY",
    ),
]
_Records = Annotated[
    int,
    typer.Option(
        "--checkpoint-records",
        help="or this number of records behind the log",
        min=1,
        envvar="LARGESSE_CHECKPOINT_RECORDS",
    ),
]
_KEPT = "let go of what is older, behind the older of two checkpoints, once the archive has it as it was written"
_Kept = Annotated[str | None, _option("--keep-log", f"{_KEPT}  [default: nothing goes]", "SPAN", "LARGESSE_KEEP_LOG")]
_Mib = Annotated[
    int, typer.Option("--segment-mib", help="a segment is full with this much, unpacked", min=1, max=1_024)
]
_Age = Annotated[str, _option("--segment-age", "or when its first record is so old", "SPAN", "LARGESSE_SEGMENT_AGE")]
_SIGN = "sign what the archive has with this private key (`largesse attest`)"
_Key = Annotated[str | None, _option("--key", _SIGN, "FILE", "LARGESSE_ARCHIVE_KEY_FILE")]
_Once = Annotated[bool, _option("--once", "one turn of everything that is due, and no more")]
_Dry = Annotated[bool, _option("--dry-run", "say what is due, and do nothing")]


@archive_app.command("keep", short_help="Archive, make checkpoints and trim, by itself.")
def keep(
    store: StoreUrl,
    log: _Log = None,
    checkpoint_every: _Every = "6h",
    checkpoint_records: _Records = 1_000_000,
    keep_log: _Kept = None,
    segment_mib: _Mib = 64,
    segment_age: _Age = "1h",
    key: _Key = None,
    url: Url = None,
    once: _Once = False,
    dry_run: _Dry = False,
    json: Json = False,
) -> None:
    """Keep a cell's log affordable, until Ctrl-C: archive it as it grows, have checkpoints made by age and by records,
    sign the archive, and let go of the log's beginning. Says what it did, a line each; serves metrics where
    LARGESSE_METRICS_PORT says. One for each cell; who is killed goes on where it was.
    """
    from services.cli.moments import span_ms
    from services.planner.lifeline import end_with_parent
    from services.replay.archiving import Limits
    from services.replay.keeping import Terms

    end_with_parent()
    limits = Limits(segment_mib << 20, span_ms("--segment-age", segment_age), follow=True)
    terms = Terms(
        limits,
        span_ms("--checkpoint-every", checkpoint_every),
        checkpoint_records,
        None if keep_log is None else span_ms("--keep-log", keep_log),
    )
    _keep(store, log if log is not None else log_here(), terms, _Asked(url, key, json, dry_run, once))


def _keep(store: str, log: str, terms: "Terms", asked: _Asked) -> None:
    from largesse.settings import SettingWrong, read_settings
    from largesse.telemetry import configure
    from services.cli.replaying import source_of, storing
    from services.replay.keeping import Keeper

    configure("console", level="warning")
    opened, source, kept_log, private = opened_store(store), source_of(log), log_of(log), _private(asked.key)
    flag = Flag()
    keeper = Keeper(
        source,
        kept_log,
        opened,
        terms,
        _noting(asked.url, log),
        lambda event: _tell(event, json=asked.json),
        key=private,
        stop=flag.is_set,
    )
    if asked.is_dry:
        with storing():
            for event in keeper.planned():
                _tell(event, json=asked.json, would=True)
        return
    lock = _locked(log)
    try:
        if asked.is_once:
            with storing():
                keeper.once()
            if keeper.failures:
                raise Refused("not all that is due was done: the lines above say what failed")
            return
        asyncio.run(_serve(keeper, flag, read_settings()))
    except SettingWrong as error:
        raise Wrong(str(error)) from None
    finally:
        if lock is not None:
            lock.release()


def _private(key: str | None) -> "PrivateKey | None":
    """Raises Wrong."""
    from largesse.archive.attest import KeyUnusable, read_private_key

    try:
        return read_private_key(key) if key is not None else None
    except KeyUnusable as error:
        raise Wrong(f"--key: {error}") from None


def _locked(log: str) -> "DirectoryLock | None":
    """One archiver for a folder. Raises Wrong."""
    from largesse.bus.file.lock import DirectoryHeld, DirectoryLock
    from services.cli.hosting import BUS

    folder = next((each for each in (Path(log) / BUS, Path(log)) if each.is_dir()), None)
    if folder is None:
        return None  # On Kafka two do no harm, and the work of one.
    try:
        return DirectoryLock(folder, LOCK_NAME)
    except DirectoryHeld as held:
        raise Wrong(f"--log: process {held.pid} keeps this log already: one for each cell") from None
    except OSError as error:
        raise Wrong(f"--log: {error.filename}: {error.strerror}") from None


def _noting(url: str | None, log: str) -> "Note":
    """Has the gateway of the cell note checkpoints."""
    from services.cli.client import Gateway
    from services.replay.keeping import NotNoted

    def noted(document: dict[str, dict[str, object]], _seq: int) -> bool:
        try:
            answered = Gateway(url).document("POST", "/v1/checkpoints", "noted", json=document)
        except Unanswered as why:
            raise NotNoted(why.brief, is_final=False) from None
        except Ending as why:
            status = (why.problem or {}).get("status")
            hint = f"does the gateway that was asked serve the cell of {log}? --url names it"
            raise NotNoted(f"{why} ({hint})", is_final=status in REFUSED_FOR_GOOD) from None
        return bool(answered["noted"])

    return noted


def _tell(event: "Event", *, json: bool, would: bool = False) -> None:
    """A line of what was done; of what went wrong, on stderr."""
    if json:
        out(dumps({"would" if would else "did": event.what, "seq": event.seq, "text": event.text}))
    elif event.what == "failed":
        note(f"failed: {event.text}")
    else:
        out(f"{'would be ' if would and event.what != 'checkpoint' else ''}{event.what}: {event.text}")
    sys.stdout.flush()


async def _serve(keeper: "Keeper", flag: Flag, settings: "Settings") -> None:
    """Runs it on a thread, and answers who watches over it. Raises Wrong, and as `storing` does."""
    from largesse.process.health import AddressTaken, served
    from largesse.settings import served_hosts
    from largesse.tls import read_peers
    from services.cli.replaying import storing

    loop, ended, errors = asyncio.get_running_loop(), asyncio.Event(), list[BaseException]()

    def work() -> None:
        try:
            keeper.run()
        except BaseException as error:
            errors.append(error)
        loop.call_soon_threadsafe(ended.set)

    def end() -> None:
        flag.set()
        loop.call_later(END_S, os._exit, 0)

    async def why_not_ready() -> str:
        return "ending" if flag.is_set() else ""

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    os.nice(NICE)
    async with AsyncExitStack() as open_now:
        if settings.metrics_port:
            host, port, peers = settings.metrics_host, settings.metrics_port, read_peers(settings)
            hosts, tls = served_hosts(settings, host), None if peers is None else peers.server
            try:
                await open_now.enter_async_context(served(host, port, why_not_ready, hosts=hosts, tls=tls))
            except AddressTaken as error:
                raise Wrong(str(error)) from None
        Thread(target=work, daemon=True).start()
        await ended.wait()
    with storing():
        for failure in errors:
            raise failure
