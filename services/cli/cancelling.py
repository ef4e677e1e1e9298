"""`largesse cancel`: one job, several, or all that a filter finds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from largesse.access import job_path
from services.cli.arguments import LIVE
from services.cli.client import Gateway
from services.cli.ending import Ending, Refused, Unanswered, Wrong, note, out, out_json

if TYPE_CHECKING:
    from services.cli.watching import Document

QUEUE_DEFAULT = "default"
"""There is always a queue of this name."""
PAGE = 10_000
"""Jobs that one question to the gateway lists at most."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs that have not ended; None: any."""

    states: Sequence[str] | None = None
    queue: str | None = None
    user: str | None = None

    def __bool__(self) -> bool:
        return any(each is not None for each in (self.states, self.queue, self.user))


def cancel(gateway: Gateway, jobs: list[str], which: Filter, *, dry_run: bool, json: bool) -> None:
    """Cancels jobs, and says of each what became of it; one that cannot be cancelled does not keep the others.

    Raises Refused where one could not be, or the filter finds none; Wrong where nothing is asked for.
    """
    if which and jobs:
        raise Wrong("ID: give either ids or --state, --queue and --user: use only one of them")
    if not which and not jobs:
        raise Wrong("ID: give ids, or select jobs by --state, --queue, --user")
    found, more = _found(gateway, which) if which else (jobs, False)
    if not found:
        missing = not_in_tree(gateway, which.queue)
        raise Refused("no live job matches" + (f"; {missing}" if missing else ""))
    if dry_run:
        _show([{"job": job} for job in found], json, "would be cancelled")
    elif not which and len(found) == 1:
        document = gateway.document("DELETE", job_path(found[0]), "state")
        if json:
            out_json(document)
        else:
            out(f"{found[0]}: {document['state']}")
    else:
        _cancel_each(gateway, found, json=json, may_have_ended=bool(which))
    if more:
        note(f"there may be more: at most {PAGE:,} in each state are listed at a time")


def _cancel_each(gateway: Gateway, jobs: list[str], *, json: bool, may_have_ended: bool) -> None:
    """`may_have_ended`: one that has ended by now is reported, and is no failure."""
    done: list[dict[str, object]] = []
    failed = 0
    for job in jobs:
        try:
            document = gateway.document("DELETE", job_path(job), "state")
        except Unanswered:
            raise
        except Ending as why:
            failed += not (may_have_ended and isinstance(why, Refused))
            note(f"largesse: {job}: {why}")
            continue
        done.append(document)
        if not json:
            out(f"{job}: {document['state']}")
    if json:
        out_json(done)
    if failed:
        raise Refused(f"{failed} of {len(jobs)} could not be cancelled")


def _found(gateway: Gateway, which: Filter) -> tuple[list[str], bool]:
    """Jobs, and whether there may be more."""
    pages = [
        gateway.get("/v1/jobs", "jobs", state=state, queue=which.queue, user=which.user, limit=PAGE)["jobs"]
        for state in which.states or LIVE
    ]
    return [job["job"] for page in pages for job in page], any(len(page) == PAGE for page in pages)


def not_in_tree(gateway: Gateway, queue: str | None) -> str:
    """That a queue is not in the tree; empty where it is, there is no tree, or nobody says."""
    try:
        tree = gateway.get("/v1/config", "queues")["queues"] if queue else None
    except Ending:
        tree = None  # What was asked for has been answered.
    if not tree:
        return ""
    paths = list(_paths(tree, ""))
    if queue in (*paths, QUEUE_DEFAULT) or not paths:
        return ""
    from schemas.wording import nearest

    close = nearest(str(queue), paths)
    return f'queue "{queue}" is not in the tree' + (f': did you mean "{close}"?' if close else "")


def _paths(tree: "Document", above: str) -> Iterator[str]:
    for child in tree.get("children") or []:
        path = f"{above}/{child['name']}" if above else child["name"]
        yield path
        yield from _paths(child, path)


def _show(found: list[dict[str, object]], json: bool, what: str) -> None:
    if json:
        out_json(found)
    else:
        for each in found:
            out(f"{each['job']}: {what}")
