"""Arguments and options that several commands share, and what may be said for them."""

from collections.abc import Callable
from typing import Annotated

import typer

from services.cli.ending import Ending, Wrong, expect_json

URL_TEXT = "the gateway  [default: LARGESSE_URL, else the context's, else http://127.0.0.1:8642]"
COMPLETION_S = 2.0
"""So long may the gateway take to complete a name before the shell's own completion goes on without it."""


def given(argument: str, text: str) -> str:
    """What was said for an argument. Raises Wrong for nothing, which is what a shell makes of an unset variable."""
    if not text:
        raise Wrong(f"{argument}: is empty: a shell variable may not be set")
    return text


def job_id(text: str) -> str:
    """An id as it may be. Raises Wrong for none, and for a task's."""
    given("ID", text)
    if "/" in text:
        job = text.partition("/")[0]
        raise Wrong(f"ID: {text!r} is not a job's id: leave out the stage and the task" + (f": {job}" if job else ""))
    return text


def job_ids(texts: list[str] | None) -> list[str]:
    """Ids, each named once, in their order. Raises Wrong as `job_id` does."""
    return list(dict.fromkeys(map(job_id, texts or [])))


def use_zone(zone: str | None) -> None:
    """Times are shown in this zone from now on, if one is given. Raises Wrong for one that is not known."""
    if zone is None:
        return
    from services.cli.show import show_times_in
    from services.planner.rdl.times import zone_of

    try:
        show_times_in(zone_of(zone))
    except ValueError as error:
        raise Wrong(f"--zone: {error}") from None


def _node_name(text: str) -> str:
    return given("NAME", text)


def file_path(text: str) -> str:
    """A path, or `-`."""
    return given("FILE", text)


def _named(path: str, field: str, **params: object) -> Callable[[str], list[str]]:
    """Completes names that the gateway lists; none where it does not answer."""

    def complete(incomplete: str) -> list[str]:
        from services.cli.client import Gateway

        try:
            documents = Gateway(timeout_s=COMPLETION_S).get(path, f"{field}s", **params)[f"{field}s"]
            return [each[field] for each in documents if each[field].startswith(incomplete)]
        except (Ending, LookupError, TypeError, AttributeError):
            return []  # A shell that completes shows no messages.

    return complete


jobs_named = _named("/v1/jobs", "job")
nodes_named = _named("/v1/nodes", "node")

Url = Annotated[str | None, typer.Option("--url", help=URL_TEXT, metavar="URL")]
UserOfJob = Annotated[
    str | None,
    typer.Option(
        "--user", help="whose job it is, if it names no user  [default: LARGESSE_USER's, else nobody's]", metavar="NAME"
    ),
]
OverToo = Annotated[bool, typer.Option("--all", help="on a terminal too, those that were deleted or have ended")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document and nothing else", callback=expect_json)]
Zone = Annotated[
    str | None, typer.Option("--zone", help="time zone of the times shown  [default: this machine's]", metavar="ZONE")
]
Job = Annotated[str, typer.Argument(help="the job's id", metavar="ID", callback=job_id, autocompletion=jobs_named)]
Node = Annotated[
    str, typer.Argument(help="the node's name", metavar="NAME", callback=_node_name, autocompletion=nodes_named)
]
