"""What the queue tree says of who submits where: alike for jobs and reservations, and for the dry runs of these."""

from collections.abc import Mapping
from typing import Final

from schemas.jobs import Rejection
from schemas.queue_tree import upwards
from schemas.wording import nearest

NAMES_SHOWN_MAX: Final = 10
"""Names that a rejection lists as those that would do."""


def queue_problem(
    leaves: Mapping[str, bool], submitters: Mapping[str, list[str]], queue: str, user: str
) -> tuple[Rejection, str, str] | None:
    """Why a user may not submit to a queue: reason, field and detail; None if nothing is wrong. `leaves`: paths of the
    tree's leaves, none where there is no tree; `submitters`: by path, those that a queue names.
    """
    if not leaves or queue in leaves or "" in leaves:
        return _submitter_problem(submitters, queue, user)
    if below := [leaf for leaf in leaves if leaf.startswith(queue + "/")]:
        return "unknown_queue", "queue", f'queue "{queue}" has queues below it; name one of those: {listed(below)}'
    near = nearest(queue, list(leaves))
    there = f'the nearest name is "{near}"' if near else f"there is {listed(list(leaves))}"
    return "unknown_queue", "queue", f'queue "{queue}" is not in the tree; {there}'


def listed(names: list[str]) -> str:
    """The first names, and how many more there are."""
    detail = ", ".join(names[:NAMES_SHOWN_MAX])
    return detail if len(names) <= NAMES_SHOWN_MAX else f"{detail} and {len(names) - NAMES_SHOWN_MAX} more"


def _submitter_problem(submitters: Mapping[str, list[str]], queue: str, user: str) -> tuple[Rejection, str, str] | None:
    """The queue that names submitters, this one or the nearest above it, does not name this user."""
    if not submitters:
        return None
    naming = next((path for path in upwards(queue) if path in submitters), None)
    if naming is None or user in submitters[naming]:
        return None
    users = submitters[naming]
    who = (
        f'user "{user}" may not submit' if user else 'the job names no user (set "user"), and not everybody may submit'
    )
    above = "" if naming == queue else f" (so says {named(naming)})"
    return "not_allowed", "user", f"{who} to {named(queue)}; those who may are {listed(users)}{above}"


def named(queue: str) -> str:
    """A queue in a message."""
    return f'queue "{queue}"' if queue else "the root of the tree"
