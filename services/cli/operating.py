"""What operators ask of a running cell: node and config."""

from typing import Annotated

import typer

from services.cli.arguments import Json, Node, Url, file_path
from services.cli.client import Gateway, step
from services.cli.ending import note, out, out_json
from services.cli.show import counted

node_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Stop and resume placements on a node.")
config_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Show and change queues and policy.")


def _drain(name: str, what: str, url: str | None, json: bool) -> None:
    document = Gateway(url).document("POST", f"/v1/nodes/{step(name)}/{what}", "state", "running")
    if json:
        out_json(document)
    else:
        out(f"{name}: {document['state']}, {counted(document['running'], 'task')} on it")


@node_app.command("drain")
def drain(name: Node, url: Url = None, json: Json = False) -> None:
    """Stop new placements on a node; what runs there runs on."""
    _drain(name, "drain", url, json)


@node_app.command("resume")
def resume(name: Node, url: Url = None, json: Json = False) -> None:
    """Take new placements on a node again."""
    _drain(name, "resume", url, json)


@config_app.command("show")
def show_config(url: Url = None) -> None:
    """Print knobs and queues in force, as `config apply` takes them."""
    out_json(Gateway(url).get("/v1/config", "set"))


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
    url: Url = None,
    json: Json = False,
) -> None:
    """Put knobs or a queue tree in force, from YAML or JSON."""
    from services.cli.documents import read_config_file
    from services.cli.queues import effect_text

    params = {"dry_run": "true"} if dry_run else {}
    written = read_config_file(file)
    answer = Gateway(url).document("PUT", "/v1/config", "changed", params=params, **written.request)
    if json:
        out_json(answer)
    elif written.document.get("initial") and not answer["changed"]:
        out("left as it is: the cell has been configured before")
    elif dry_run:
        out(effect_text(answer))
    else:
        out("in force" if answer["changed"] else "in force already: nothing changed")
        for remark in answer["notes"]:
            note(f"note: {remark}")
