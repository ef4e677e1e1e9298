"""`largesse checkpoint`: the states of a cell's cores, kept in an archive, and what their log no longer needs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.archiving import StoreUrl, opened_store
from services.cli.arguments import Json, Url, given
from services.cli.ending import Broken, Refused, Wrong, note, out, out_json

if TYPE_CHECKING:
    from largesse.archive.store import Store
    from services.replay.checkpoint_logs import CheckpointLog

checkpoint_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_LOG_TEXT = "a data folder of `largesse up`, or kafka[s]://HOST:PORT/CELL"
LogOption = Annotated[str, typer.Option("--log", help=_LOG_TEXT, metavar="LOG")]
AlsoLog = Annotated[str | None, typer.Option("--log", help=f"compare with {_LOG_TEXT}", metavar="LOG")]


@checkpoint_app.callback()
def _checkpoint() -> None:
    """Keep the states of all cores, so that a log's beginning is not needed to go on."""


@checkpoint_app.command("make", short_help="Keep the states of all cores behind a round.")
def make(store: StoreUrl, log: LogOption, url: Url = None, json: Json = False) -> None:
    """Fold every core twice, from the log and from what the services wrote as snapshots; keep the states where both
    folds agree, and have the log note it: by the gateway of a running cell, else by the sequencer on its data folder.
    """
    from largesse.archive.state_file import put, seqs_in
    from services.replay.checkpoint_logs import StoreOfAnother, newest
    from services.replay.checkpointing import FoldsDiffer, NothingToKeep, agree, told

    kept, source = opened_store(store), log_of(log)
    with _reading():
        try:
            agreed = agree(source.messages(), source.partition, source.snapshots(), newest(kept, source))
        except (NothingToKeep, StoreOfAnother) as why:
            raise Refused(str(why)) from None
        except FoldsDiffer as alarm:
            raise Broken(f"no checkpoint is made, since two folds differ: {alarm}") from None
        is_new = agreed.file.order.seq not in seqs_in(kept)
        digest = put(kept, agreed.file)
    document = told(agreed.file, digest)
    try:
        has_noted = _note(log, document, agreed.file.order.seq, url)
    except Refused as why:
        if is_new:
            kept.delete(agreed.file.name)
        raise Refused(f"{why} (does the gateway that was asked serve the cell of {log}? --url names it)") from None
    if json:
        begun = {f"{service}/{shard}": seq for (service, shard), seq in agreed.begun.items()}
        out_json({**document["checkpoint"], "noted": has_noted, "second_fold_behind": begun})
    else:
        seq, count = agreed.file.order.seq, len(agreed.file.states)
        what = "the log has noted it" if has_noted else "sent to the log, which has not answered yet"
        out(f"{count} states behind record {seq:,}, in {kept.url}/{agreed.file.name}; {what}")


def _note(log: str, document: dict[str, dict[str, object]], closing: int, url: str | None) -> bool:
    """Has the log note a checkpoint; whether it has."""
    from largesse.bus.file.lock import DirectoryHeld, DirectoryLock
    from services.cli.client import Gateway, user
    from services.cli.hosting import BUS

    folder = Path(log) / BUS
    if folder.is_dir():
        try:
            DirectoryLock(folder).release()
        except DirectoryHeld:
            pass  # Its gateway is asked.
        else:
            from services.cli.abandoning import note_checkpoint

            return note_checkpoint(log, document, closing, user())
    answered = Gateway(url).document("POST", "/v1/checkpoints", "noted", json=document)
    return bool(answered["noted"])


@checkpoint_app.command("list", short_help="List the checkpoints of an archive.")
def list_(store: StoreUrl, json: Json = False) -> None:
    """List the checkpoints of an archive, with the size of their states."""
    from services.cli.show import moment, rendered, table
    from services.replay.checkpoint_logs import states_in

    kept, rows, documents = _existing(store), [], []
    with _reading():
        files, wrong = states_in(kept)
        for seq, (file, _) in files.items():
            size = sum(len(data) for _, data in file.states.values())
            place = {"closing": seq, "cell": file.cell, "round": file.order.round, "time": file.order.time}
            documents.append({**place, "states": len(file.states), "bytes": size, "version": file.version})
            rows.append([f"{seq:,}", file.cell, f"{file.order.round:,}", moment(file.order.time), f"{size:,}"])
    if json:
        out_json({"checkpoints": documents, "wrong": wrong})
    elif rows:
        out(rendered(table(["SEQ", "CELL", "ROUND", "TIME", "BYTES"], rows)))
    elif not wrong:
        out("there is none")
    _refuse(wrong)


@checkpoint_app.command("verify", short_help="Verify the checkpoints of an archive.")
def verify(store: StoreUrl, log: AlsoLog = None, json: Json = False) -> None:
    """Verify that every file of states is as it was written, and with --log that the log has noted it so."""
    from services.replay.checkpoint_logs import noted, states_in

    kept = _existing(store)
    with _reading():
        files, wrong = states_in(kept)
        seqs = list(files)
        same = None if log is None else [each.file.order.seq for each in noted(kept, log_of(log))]
    unknown = [] if same is None else [seq for seq in seqs if seq not in same]
    if unknown:
        wrong.append(f"the log does not note those behind {', '.join(f'{seq:,}' for seq in unknown)}")
    if json:
        out_json({"checkpoints": seqs, "noted": same, "wrong": wrong})
    else:
        out(f"{len(seqs)} as they were written" + ("" if same is None else f"; the log has noted {len(same)} of them"))
    _refuse(wrong)


@checkpoint_app.command("trim", short_help="Let go of what a log no longer needs.")
def trim(
    store: StoreUrl,
    log: LogOption,
    unarchived: Annotated[
        bool, typer.Option("--unarchived", help="also what no archive has: nobody will ever read it again")
    ] = False,
    json: Json = False,
) -> None:
    """Let go of the beginning of a log, up to the older of the two newest checkpoints that it has noted, once the
    archive in STORE has all of it and is as it was written.
    """
    from services.replay.checkpoint_logs import noted, states_in, why_not_archived

    kept, source = _existing(store), log_of(log)
    with _reading():
        found = noted(kept, source)
        if len(found) < 2:
            for text in states_in(kept)[1]:
                note(text)
            has = f"the log has noted {len(found)} of the checkpoints in {kept.url} that are as they were written"
            raise Refused(f"{has}, and two are needed: `largesse checkpoint make` makes one")
        behind = found[-2].file
        if not unarchived and (why := why_not_archived(kept, source, behind)):
            raise Refused(why)
        text = source.trim(behind.needed(source.partition))
    if json:
        out_json({"closing": behind.order.seq, "first_offset": source.first(), "text": text})
    else:
        out(f"behind the checkpoint at record {behind.order.seq:,}: {text}")


def _existing(url: str) -> "Store":
    """A store that is there already. Raises Wrong."""
    store = opened_store(url)
    if "://" not in url and not Path(store.url).is_dir():
        raise Wrong(f"STORE: {store.url}: there is no such folder")
    return store


def _refuse(wrong: list[str]) -> None:
    """Raises Refused where something is wrong, and tells all of it."""
    if wrong:
        for text in wrong[:-1]:
            note(text)
        raise Refused(wrong[-1])


def log_of(location: str) -> "CheckpointLog":
    """The log that an option names. Raises Wrong."""
    from largesse.bus.file.journal import has_journal
    from largesse.bus.kafka.cluster import is_cluster
    from largesse.bus.open import BusUrlWrong
    from largesse.bus.port import BusError
    from services.cli.hosting import BUS
    from services.replay.checkpoint_logs import open_log
    from services.replay.kafka_source import CellUnknown

    given("--log", location)
    folder = Path(location) / BUS
    if not is_cluster(location):
        path = folder if folder.is_dir() else Path(location)
        if not path.is_dir() or not has_journal(path):
            raise Wrong(f"--log: {location}: there is no journal in this folder")
        return open_log(str(path))
    try:
        return open_log(location)
    except (CellUnknown, BusUrlWrong, BusError) as error:
        raise Wrong(f"--log: {error}") from None


@contextmanager
def _reading() -> Iterator[None]:
    """Around what reads a store and a log. Raises Wrong."""
    from largesse.archive.state_file import StateFileDamaged
    from largesse.archive.store import StoreError
    from services.cli.replaying import reading

    try:
        with reading():
            yield
    except (StoreError, StateFileDamaged) as error:
        raise Wrong(str(error)) from None
