"""`largesse token`: who may ask a cell for what. The text of a token is drawn here, and leaves only to where it is said
to go: the cell gets its SHA-256.
"""

import os
import secrets
import time
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from largesse.access import TOKEN_FILE_VARIABLE, step
from largesse.secret_file import SecretUnreadable, secret_in
from largesse.token_text import may_be_token
from schemas.access import ROLES, role_parts
from services.cli.arguments import Json, Url, given
from services.cli.client import Gateway, Row, user
from services.cli.ending import Refused, Unanswered, Wrong, note, out, out_json
from services.cli.groups import Group
from services.cli.moments import span_ms

if TYPE_CHECKING:
    from services.gateway.answers import Answer
    from services.gateway.follow import Follower

PREFIX = "lgt_"
"""How a token begins, so that it is known for one where it has got lost."""
SECRET_BYTES = 32

token_app = typer.Typer(cls=Group, no_args_is_help=True, rich_markup_mode=None)


@token_app.callback()
def _token() -> None:
    """Make, list and revoke tokens, by which a cell knows who asks."""


Bus = Annotated[
    str | None,
    typer.Option(
        "--bus",
        help="straight to the cell's bus: kafka[s]://HOST:PORT, or the data folder of a `largesse up` that has ended",
        metavar="BUS",
    ),
]
TokenName = Annotated[str, typer.Argument(help="the token's name", metavar="NAME")]


def _one_place(bus: str | None, url: str | None) -> None:
    if bus is not None and url is not None:
        raise Wrong("--bus: goes past the gateway that --url names: use only one of them")


def roles_of(texts: list[str]) -> list[Row]:
    """Roles as a request has them. Raises Wrong."""
    found: list[Row] = []
    for text in texts:
        try:
            role, queues = role_parts(text)
        except ValueError as error:
            raise Wrong(f"--role: {error}") from None
        found.append({"role": role, "queues": queues} if queues else {"role": role})
    return found


@token_app.command("make", short_help="Make a token, and print it once.")
def make(
    name: TokenName,
    user_: Annotated[str, typer.Option("--user", help="whose it is: as whom its holder asks", metavar="USER")],
    role: Annotated[
        list[str],
        typer.Option(
            "--role",
            help=f"what it may do: {', '.join(ROLES)}; submitter:QUEUE,... for these and those below; repeatable",
            metavar="ROLE",
        ),
    ],
    expires: Annotated[
        str | None, typer.Option("--expires", help="it ends after so long, like 90d  [default: never]", metavar="TIME")
    ] = None,
    out_file: Annotated[
        Path | None,
        typer.Option("--out", help="write it to a new file, for its owner alone, and print nothing", metavar="FILE"),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from", help="a file with its text, which was drawn before; nothing is printed", metavar="FILE"),
    ] = None,
    bus: Bus = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Make a token. Its text is printed once, or written to a file, and kept nowhere else.

    The first token of a cell closes it to everybody without one, so it has to be of the role admin.
    """
    _one_place(bus, url)
    document: Row = {"name": given("NAME", name), "user": given("--user", user_), "roles": roles_of(role)}
    if expires is not None:
        document["expires_ms"] = int(time.time() * 1_000) + span_ms("--expires", expires)
    text = new_text() if from_file is None else _text_in(from_file)
    document["sha256"] = sha256(text.encode()).hexdigest()
    _checked(document)
    if out_file is not None and from_file is not None:
        raise Wrong("--out: its text is in the file that --from names: use only one of them")
    if out_file is not None:
        _written(out_file, text)  # First: a token that nobody has is of no use.
    try:
        made = _made(document, bus, url)
    except Unanswered:
        raise  # It may have arrived.
    except BaseException:
        if out_file is not None:
            out_file.unlink(missing_ok=True)
        raise
    if json:
        out_json(made if out_file is not None or from_file is not None else made | {"token": text})
    elif out_file is None and from_file is None:
        out(text)
    told = f"{name} is a token of {user_}" if "roles" in made else f"{name} is asked for; the log has not said so yet"
    note(told + (f"; it is in {out_file}: export {TOKEN_FILE_VARIABLE}={out_file}" if out_file is not None else ""))


def new_text() -> str:
    """The text of a new token."""
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def _text_in(path: Path) -> str:
    """The text of a token that was drawn before. Raises Wrong."""
    try:
        text = secret_in(path)
    except SecretUnreadable as error:
        raise Wrong(f"--from: {error}") from None
    if not text.startswith(PREFIX) or len(text) < len(new_text()) or not may_be_token(text):
        raise Wrong(f"--from: what stands in {path} is no text of a token: {PREFIX} and {SECRET_BYTES} random bytes")
    return text


_OPTIONS = {"name": "NAME", "user": "--user", "roles": "--role", "expires_ms": "--expires"}
"""By field of a request, what says it here."""


def _checked(document: Row) -> None:
    """Raises Wrong, naming the option."""
    from schemas.edge.read import Malformed, read_input

    try:
        read_input("access", {"make": document}, "")
    except Malformed as fault:
        field = fault.field.removeprefix("make.")
        option = _OPTIONS.get(field.partition("[")[0], field)
        raise Wrong(f"{option}: {fault.reason}") from None


def _written(path: Path, text: str) -> None:
    """Writes a new file that its owner alone can read. Raises Wrong."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(handle)
    except FileExistsError:
        raise Wrong(f"--out: {path} is there already: name a new file") from None
    except OSError as error:
        raise Wrong(f"--out: {path}: {error.strerror}") from None


def _made(document: Row, bus: str | None, url: str | None) -> Row:
    if bus is None:
        found: Row = Gateway(url).document("POST", "/v1/tokens", "name", json=document)
        return found
    _send(bus, {"make": document})
    return {key: value for key, value in document.items() if key != "sha256"}


def _send(bus: str, message: Row) -> None:
    """Sends an input straight, and waits for its answer. Raises Refused, Unanswered, Wrong, Broken."""
    from schemas import InputRefused
    from services.cli.straight import WAIT_S, straight

    author = user()

    async def ask(follower: "Follower") -> "Answer":
        return await follower.send("access", message, author, WAIT_S)

    found = straight(bus, ask)
    body = found.record.body if found.record is not None else None
    if isinstance(body, InputRefused):
        raise Refused(f"{body.field}: {body.reason}" if body.field else body.reason)
    if not found.answered:
        text = f"the cell has not answered within {WAIT_S:.0f} s; it does as soon as its sequencer runs"
        raise Unanswered(text, text)


@token_app.command("list", short_help="List tokens.")
def list_tokens(
    every: Annotated[bool, typer.Option("--all", help="also those that were revoked or have expired")] = False,
    bus: Bus = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Tokens with whose they are and what they may do; their text is nowhere kept.

    With --all the last 1,000 that have ended come first.
    """
    from services.cli.show import drawing, moment

    _one_place(bus, url)
    if bus is not None:
        found = _listed_straight(bus, every)
    else:
        asked = {"ended": "true"} if every else {}
        found = Gateway(url).document("GET", "/v1/tokens", "tokens", params=asked)["tokens"]
    if json:
        out_json(found)
        return
    rows = [
        (
            *(each["name"], each["user"], " ".join(each["roles"]), _state(each)),
            "never" if each["expires_ms"] is None else moment(each["expires_ms"]),
            *(moment(each["made_ms"]), each["author"]),
        )
        for each in found
    ]
    out(drawing()(("token", "user", "roles", "state", "expires", "made", "by"), rows, kinds="kkkkkkk"))
    if not rows:
        note("no tokens: if there has never been one, everybody who reaches the gateway may do everything")


def _state(token: Row) -> str:
    """As a word; of one that has ended with when, and by whom."""
    from services.cli.show import moment

    if token.get("ended_ms") is None:
        return str(token["state"])
    by = f" by {token['ended_by']}" if token["ended_by"] else ""
    return f"{token['state']} {moment(token['ended_ms'])}{by}"


def _listed_straight(bus: str, every: bool) -> list[Row]:
    from services.cli.straight import straight
    from services.gateway.documents.access import token_documents

    async def ask(follower: "Follower") -> list[Row]:
        return token_documents(follower.state, int(time.time() * 1_000), ended=every)

    return straight(bus, ask)


@token_app.command("revoke", short_help="Revoke a token.")
def revoke(name: TokenName, bus: Bus = None, url: Url = None, json: Json = False) -> None:
    """Revoke a token: nobody is let in by it any more, and what was opened with it ends."""
    _one_place(bus, url)
    if bus is not None:
        _send(bus, {"revoke": {"name": name}})
        document: Row = {"name": name}
    else:
        document = Gateway(url).document("DELETE", f"/v1/tokens/{step(name)}", "name")
    if json:
        out_json(document)
    else:
        out(f"{name} is revoked")
