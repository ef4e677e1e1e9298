"""What operators ask of a running cell: node and config."""

from pathlib import Path
from typing import Annotated

import typer

from largesse.access import step
from services.cli.arguments import Json, Node, Url, file_path
from services.cli.client import Gateway, timeout_s_of
from services.cli.ending import Wrong, note, out, out_json
from services.cli.groups import Group
from services.cli.moments import span_ms
from services.cli.show import plural

REASON_MAX = 300
"""Characters of the reason for a drain, as the cell takes them."""

node_app = typer.Typer(
    cls=Group, no_args_is_help=True, rich_markup_mode=None, help="Drain, resume, remove and admit nodes."
)
config_app = typer.Typer(
    cls=Group, no_args_is_help=True, rich_markup_mode=None, help="Show and change queues and policy."
)


def _drain(name: str, what: str, url: str | None, json: bool, **params: str | int) -> None:
    path = f"/v1/nodes/{step(name)}/{what}"
    document = Gateway(url).document("POST", path, "state", "running", params=params)
    if json:
        out_json(document)
    else:
        out(f"{name}: {document['state']}, {plural(document['running'], 'task')} on it")


@node_app.command("drain", short_help="Stop new placements on a node.")
def drain(
    name: Node,
    deadline: Annotated[
        str | None,
        typer.Option("--deadline", help="end what still runs there after so long, like 10m", metavar="TIME"),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="why, shown by `get nodes`", metavar="TEXT")] = "",
    url: Url = None,
    json: Json = False,
) -> None:
    """Stop new placements on a node; running tasks continue, or until the deadline and then elsewhere.

    A later drain replaces an earlier one: without --deadline it cancels the earlier deadline.
    """
    if len(reason) > REASON_MAX or not reason.isprintable():
        raise Wrong(f"--reason: has to be one line of at most {REASON_MAX} characters")
    params: dict[str, str | int] = {"reason": reason} if reason else {}
    if deadline is not None:
        params["within_ms"] = span_ms("--deadline", deadline)
    _drain(name, "drain", url, json, **params)


@node_app.command("resume")
def resume(name: Node, url: Url = None, json: Json = False) -> None:
    """Resume placements on a node."""
    _drain(name, "resume", url, json)


@node_app.command("remove", short_help="Remove a node that does not come back.")
def remove(name: Node, url: Url = None, json: Json = False) -> None:
    """Remove a node that is lost and does not come back; refused while it is alive."""
    document = Gateway(url).document("DELETE", f"/v1/nodes/{step(name)}", "state")
    if json:
        out_json(document)
    elif document["state"] == "removed":
        out(f"{name}: removed")
    else:
        out(f"{name}: asked for; the log has not said so yet")


@node_app.command("password", short_help="Make a node's password for the MQTT broker.")
def password(
    name: Annotated[str, typer.Argument(help="the node", metavar="NAME")],
    file: Annotated[Path, typer.Option("--file", help="the broker's file of passwords", metavar="PASSWD_FILE")],
    out_file: Annotated[
        Path | None,
        typer.Option("--out", help="write it to a file of its owner alone instead", metavar="FILE"),
    ] = None,
    bridge: Annotated[bool, typer.Option("--bridge", help="for the user of bridges, not for a node")] = False,
) -> None:
    """Make a password with which a node reaches the MQTT broker, in place of an earlier one; it is printed once.

    The broker takes it once it has read its file again: send it a SIGHUP.
    """
    from services.cli.node_passwords import check_user, new_password, replace, set_password

    check_user(name, bridge)
    made = new_password()
    try:
        if out_file is not None:
            replace(out_file, f"{made}\n")
        had_one = set_password(file, name, made)
    except OSError as error:
        raise Wrong(f"{error.filename}: {error.strerror}") from None
    if out_file is None:
        out(made)
    note(f"{name} has {'another' if had_one else 'a'} password in {file}; the broker reads it again at a SIGHUP")


@config_app.command("show", short_help="Print policy and queues.")
def show_config(url: Url = None, json: Json = False) -> None:
    """Print policy and queues as JSON, as `config apply` reads them; with --json on one line on a terminal, too."""
    from services.cli.show import on_terminal

    out_json(Gateway(url).get("/v1/config", "set"), indent=2 if on_terminal() and not json else None)


@config_app.command("apply")
def apply_config(
    file: Annotated[
        str,
        typer.Argument(
            help='"set" (knobs), "queues" (the whole tree), or both; or a cluster file',
            metavar="FILE",
            callback=file_path,
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="change nothing; show whose share would move")] = False,
    replay: Annotated[
        str | None,
        typer.Option("--replay", help="with --dry-run: also what it would have done for so long", metavar="24h"),
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Apply policy knobs or a queue tree from a file."""
    from services.cli.documents import read_config_file
    from services.cli.hindsight import ask, replayed_text, start_before
    from services.cli.queues import effect_text

    if replay is not None and not dry_run:
        raise Wrong("--replay: goes with --dry-run: it tries the config, and puts nothing in force")
    start = None if replay is None else start_before("--replay", replay)
    params = {"dry_run": "true"} if dry_run else {}
    written = read_config_file(file)
    answer = Gateway(url, timeout_s=timeout_s_of(dry_run)).document(
        "PUT", "/v1/config", "changed", params=params, **written.request
    )
    if start is not None:
        asked = {name: written.document[name] for name in ("set", "queues") if written.document.get(name) is not None}
        answer["replay"] = ask(Gateway(url, timeout_s=timeout_s_of(dry_run)), asked | start)
    if json:
        out_json(answer)
    elif written.document.get("initial") and not answer["changed"]:
        out("left as it is: the cell has been configured before")
    elif dry_run:
        out(effect_text(answer) + (replayed_text(answer["replay"]) if start is not None else ""))
    else:
        out("in force" if answer["changed"] else "in force already: nothing changed")
        for remark in answer["notes"]:
            note(f"note: {remark}")
