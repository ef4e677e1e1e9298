"""`largesse context`: the cells and users that the config file knows."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from services.cli.arguments import Json
from services.cli.contexts import Context, config_path, name_fault, named, read_config, write_config
from services.cli.ending import Wrong, note, out, out_json
from services.cli.groups import Group

context_app = typer.Typer(
    cls=Group, no_args_is_help=True, rich_markup_mode=None, help="Keep addresses of cells in a config file."
)

_FILES = ("token_file", "ca_file")


def _name(text: str) -> str:
    if (fault := name_fault(text)) is not None:
        raise Wrong(f"NAME: {text!r} {fault}")
    return text


def _contexts_named(incomplete: str) -> list[str]:
    try:
        return [name for name in read_config().contexts if name.startswith(incomplete)]
    except Wrong:
        return []  # A shell that completes shows no messages.


Name = Annotated[
    str, typer.Argument(help="the context's name", metavar="NAME", callback=_name, autocompletion=_contexts_named)
]


@context_app.command("list", short_help="List contexts.")
def list_contexts(json: Json = False) -> None:
    """Contexts with their gateway and user; * marks the current one."""
    config = read_config()
    found = [
        {"context": each.name, "current": each.name == config.current, "url": each.url, "user": each.user}
        | {"token_file": each.token_file, "ca_file": each.ca_file, "cell": each.cell}
        for each in config.contexts.values()
    ]
    if json:
        out_json(found)
        return
    from services.cli.show import drawing

    rows = [
        (each["context"], "*" if each["current"] else "", *(each[name] for name in ("url", "user", *_FILES, "cell")))
        for each in found
    ]
    out(drawing()(("context", "current", "url", "user", "token file", "CA file", "cell"), rows, kinds="kkkkkkk"))
    if not rows:
        note(f"no contexts in {config_path()}: `largesse context set NAME --url URL` creates one")


@context_app.command("show", short_help="Show which gateway is asked, as which user, and why.")
def show_context(
    url: Annotated[str | None, typer.Option("--url", help="as in other commands", metavar="URL")] = None,
    json: Json = False,
) -> None:
    """Show which gateway commands ask, as which user, and why."""
    from services.cli.client import settled

    found = settled(url)
    if json:
        out_json(found)
        return
    from services.cli.show import drawing

    rows = [(name, value["value"], value["from"]) for name, value in found.items()]
    out(drawing()(("", "is", "because of"), rows, kinds="kkl"))


@context_app.command("set", short_help="Create or change a context.")
def set_context(
    name: Name,
    url: Annotated[str | None, typer.Option("--url", help="its gateway", metavar="URL")] = None,
    user: Annotated[str | None, typer.Option("--user", help="the user to ask as", metavar="NAME")] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="where a token for its gateway lies", metavar="FILE")
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option("--ca-file", help="where the authorities lie that sign its gateway's certificate", metavar="FILE"),
    ] = None,
    cell: Annotated[
        str | None, typer.Option("--cell", help="the cell to ask, of a gateway that serves several", metavar="NAME")
    ] = None,
) -> None:
    """Create or change a context; the first one becomes the current one."""
    from services.cli.contexts import checked_cell, checked_url, checked_user

    config = read_config()
    context = config.contexts.get(name, Context(name))
    if all(each is None for each in (url, user, token_file, ca_file, cell)) and name not in config.contexts:
        raise Wrong("--url: a context needs an address or a user: write --url URL, --user NAME, or both")
    if url is not None:
        context = replace(context, url=checked_url(url, "--url"))
    if user is not None:
        context = replace(context, user=checked_user(user, "--user"))
    if token_file is not None:
        context = replace(context, token_file=str(token_file.expanduser().absolute()))
    if ca_file is not None:
        context = replace(context, ca_file=str(ca_file.expanduser().absolute()))
    if cell is not None:
        context = replace(context, cell=checked_cell(cell, "--cell"))
    config.contexts[name] = context
    if len(config.contexts) == 1:
        config.current = name
    write_config(config)
    out(f"{name} is in {config_path()}" + (", and is the current context" if config.current == name else ""))


@context_app.command("use")
def use_context(name: Name) -> None:
    """Make a context the current one."""
    config = read_config()
    config.current = named(config, name, "NAME").name
    write_config(config)
    out(f"{name} is the current context")


@context_app.command("remove", short_help="Remove a context.")
def remove_context(name: Name) -> None:
    """Remove a context; the cell itself is not affected."""
    config = read_config()
    del config.contexts[named(config, name, "NAME").name]
    was_current = config.current == name
    if was_current:
        config.current = None
    write_config(config)
    out(f"{name} is removed" + (": no context is the current one now" if was_current else ""))
