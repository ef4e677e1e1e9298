"""`largesse whatif`: what a running cell would have done otherwise over its last hours, worked out beside it."""

import re
from collections.abc import Callable
from dataclasses import asdict
from time import time
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.arguments import Json, Url
from services.cli.client import DRY_RUN_TIMEOUT_S, Gateway, Row, problem_ending
from services.cli.ending import Broken, Wrong, out, out_json
from services.cli.moments import point_of, span_ms
from services.cli.what_if_options import (
    AddedNodes,
    OtherPresets,
    OtherQueues,
    RemovedNodes,
    Said,
    Seeds,
    Settings,
    Slower,
    To,
    WithoutJobs,
    WithoutUsers,
)

if TYPE_CHECKING:
    from services.replay.whatif.run import Question

PATH = "/v1/what-if"
SINCE_DEFAULT = "4h"
_SPAN = re.compile(r"[0-9]+(ms|s|m|h|d)")


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("whatif", short_help="Decide the last hours of a running cell otherwise.")(whatif)


def whatif(
    preset: OtherPresets = None,
    settings: Settings = None,
    queues: OtherQueues = None,
    add_nodes: AddedNodes = None,
    remove_node: RemovedNodes = None,
    without_job: WithoutJobs = None,
    without_user: WithoutUsers = None,
    slower: Slower = None,
    since: Annotated[
        str,
        typer.Option(
            "--since",
            help="what was decided before stays: so long ago, or a record or a time",
            metavar="4h|SEQ|TIME",
        ),
    ] = SINCE_DEFAULT,
    to: To = None,
    seeds: Seeds = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Decide the last hours of a running cell otherwise: what came from outside stays as it was, every decision since
    then is made again under what is different, and both worlds stand side by side.

    As `replay LOG --what-if`, for a cell that runs, in a process beside it; Ctrl-C ends it. Nothing is changed.
    """
    from services.cli.what_if import questions_of
    from services.cli.what_if_text import shown

    said = Said(preset, settings or [], queues, add_nodes or [], remove_node or [])
    said.without_jobs, said.without_users = without_job or [], without_user or []
    said.slower, said.until, said.seeds = slower, to, seeds
    start = _start(since)
    bodies = {name: body_of(question) | start for name, question in questions_of(said).items()}
    for body in bodies.values():
        _check_span(body)
    gateway = Gateway(url, timeout_s=DRY_RUN_TIMEOUT_S)
    answers = {name: ask(gateway, body) for name, body in bodies.items()}
    if json:
        out_json(next(iter(answers.values())) if len(answers) == 1 else {"answers": answers})
    else:
        out(shown(answers))


def _start(since: str) -> Row:
    """Where the fork is. Raises Wrong."""
    if _SPAN.fullmatch(since):
        return start_before("--since", since)
    seq, time_ms = point_of("--since", since)
    return {"from_ms": time_ms} if seq is None else {"from_seq": seq}


def _check_span(body: Row) -> None:
    """Raises Wrong."""
    for unit in ("seq", "ms"):
        start, end = body.get(f"from_{unit}"), body[f"to_{unit}"]
        if start is not None and end is not None and start > end:
            raise Wrong("--to: lies before --since")


def start_before(option: str, span: str) -> Row:
    """The fork so long ago, like `24h`. Raises Wrong."""
    return {"from_ms": max(0, int(time() * 1_000) - span_ms(option, span))}


def body_of(question: "Question") -> Row:
    """A question as a request says it, but for the fork."""
    from schemas.edge.queues import tree_document
    from schemas.quantities import quantity_texts

    body: Row = {
        "set": question.values,
        "queues": None if question.queues is None else tree_document(question.queues),
        "add_nodes": [],
        "remove_nodes": question.removed,
        "without_jobs": question.without_jobs,
        "without_users": question.without_users,
        "slower_permille": question.slower_permille,
        "to_seq": question.until,
        "to_ms": question.until_ms,
    }
    for node in question.added:
        gpus = [asdict(each) for each in node.devices]
        capacity = {kind: amount for kind, amount in node.capacity.items() if kind != "gpu" or not gpus}
        entry = {"name": node.name, "capacity": quantity_texts(capacity), "labels": node.labels}
        body["add_nodes"].append(entry | ({"devices": {"gpu": gpus}} if gpus else {}))
    return body


def ask(gateway: Gateway, body: Row) -> Row:
    """The answer; how far it is shows on a terminal. Raises as `Gateway.ask` does."""
    from services.cli.progress import progress_of

    with progress_of("deciding again", "records") as tell:
        return _ask(gateway, body, tell or (lambda done, of: None))


def _ask(gateway: Gateway, body: Row, tell: Callable[[int, int | None], None]) -> Row:
    for row in gateway.posted_rows(PATH, body):
        if "progress" in row:
            tell(row["progress"]["done"], row["progress"]["of"])
        elif "problem" in row:
            raise problem_ending(row["problem"], row["problem"]["status"])
        elif "answer" in row:
            found: Row = row["answer"]
            return found
    raise Broken(f"{gateway.url} ended the answer before its end")


def replayed_text(answer: Row) -> str:
    """What a config would have done, below what it would change."""
    from services.cli.what_if_text import shown

    return "\nhad it been so before:\n" + shown({"decided": answer})
