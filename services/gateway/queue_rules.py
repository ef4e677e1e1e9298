"""Whether the log would refuse a queue to who reserves for it: what a dry run says, by the gateway's own view.

The sequencer's rule is in services/admission/core/queue_rules.py, and its words are the same.
"""

from schemas.queue_tree import leaf_paths, upwards, walk
from schemas.wording import nearest
from services.gateway.problems import Problem
from services.gateway.view_state import State

USERS_TOLD_MAX = 10
"""Users that a refusal names as those who may submit."""


def check_queue(state: State, queue: str, user: str, form: str) -> None:
    """`form`: of the input, as its fields are named. Raises Problem."""
    told = queue_problem(state, queue, user)
    if told is not None:
        field, why = told
        raise Problem(409, "refused:input", why, f"{form}.{field}", reason=why)


def queue_problem(state: State, queue: str, user: str) -> tuple[str, str] | None:
    """Why a user may not reserve for a queue: field and detail; None if nothing is wrong."""
    if state.queues is None:
        return None
    leaves = leaf_paths(state.queues)
    if queue not in leaves and "" not in leaves:
        inner = any(leaf.startswith(queue + "/") for leaf in leaves)
        what = "has queues below it; name one of those" if inner else "is not in the tree"
        return "queue", f'queue "{queue}" {what}; the nearest name is "{nearest(queue, leaves) or leaves[0]}"'
    submitters = {path: each.submitters for path, each in walk(state.queues) if each.submitters}
    naming = next((path for path in upwards(queue) if path in submitters), None)
    if naming is None or user in submitters[naming]:
        return None
    users = submitters[naming]
    told = ", ".join(users[:USERS_TOLD_MAX])
    if len(users) > USERS_TOLD_MAX:
        told += f" and {len(users) - USERS_TOLD_MAX} more"
    above = "" if naming == queue else f" (so says {_named(naming)})"
    return "user", f'user "{user}" may not submit to {_named(queue)}; those who may are {told}{above}'


def _named(queue: str) -> str:
    return f'queue "{queue}"' if queue else "the root of the tree"
