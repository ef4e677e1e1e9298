"""`largesse admin`: ways past what stops a cell, running or not."""

from typing import Annotated

import typer

from schemas.quantities import QUANTITY_MAX
from schemas.topics import INPUTS
from services.cli.arguments import Json, Url, given
from services.cli.client import Gateway, user
from services.cli.ending import Wrong, out, out_json

admin_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@admin_app.callback()
def _admin() -> None:
    """Ways past what stops a cell."""


Folder = Annotated[
    str | None, typer.Option("--data", help="data folder of a `largesse up` that is not running", metavar="DIR")
]


def _one_place(data: str | None, url: str | None) -> None:
    if data is not None and url is not None:
        raise Wrong("--data: is for a cell that is not running, --url for one that is: use only one of them")


@admin_app.command("skip-input", short_help="Refuse an input unread.")
def skip_input(
    topic: Annotated[str, typer.Argument(help=f"an input topic: {', '.join(INPUTS)}", metavar="TOPIC")],
    offset: Annotated[int, typer.Argument(help="its offset there", metavar="OFFSET", min=0, max=QUANTITY_MAX)],
    reason: Annotated[str, typer.Option("--reason", help="why, for the record", metavar="TEXT")] = "",
    data: Folder = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Refuse an input unread that stops the sequencer; its bytes go to `deadletter`."""
    from schemas.edge.config import SKIP_REASON_MAX

    _one_place(data, url)
    if topic not in INPUTS:
        raise Wrong(f"TOPIC: has to be one of {', '.join(INPUTS)}; is {topic}")
    if len(reason) > SKIP_REASON_MAX or not reason.isprintable():
        raise Wrong(f"--reason: has to be one line of at most {SKIP_REASON_MAX} characters")
    if data is not None:
        from services.cli.abandoning import skip

        document = skip(given("--data", data), topic, offset, reason, user())
    else:
        params = {"reason": reason} if reason else {}
        document = Gateway(url).document("POST", f"/v1/inputs/{topic}/{offset}/skip", "skipped", params=params)
    if json:
        out_json(document)
    elif document["skipped"]:
        out(f"{topic} {offset} is skipped")
    else:
        out("asked for; the sequencer has not come to it yet, and does when it starts")


@admin_app.command("abandon-round", short_help="Give up the open round.")
def abandon_round(
    number: Annotated[int, typer.Argument(help="the round that is open", metavar="ROUND", min=1, max=QUANTITY_MAX)],
    data: Folder = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Give up the open round, which a stopped service cannot answer; what waited goes to the next round."""
    _one_place(data, url)
    if data is not None:
        from services.cli.abandoning import abandon

        document = abandon(given("--data", data), number, user())
    else:
        document = Gateway(url).document("POST", f"/v1/rounds/{number}/abandon", "abandoned")
    if json:
        out_json(document)
    elif data is not None:
        out(f"round {number} is abandoned; the next `largesse up` here goes on with what waited")
    else:
        out(f"round {number} is abandoned" if document["abandoned"] else f"asked for; round {number} is not over yet")
