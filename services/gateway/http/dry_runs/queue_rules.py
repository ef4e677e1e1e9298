"""Whether the log would refuse a queue to who reserves for it: what a dry run says, by the gateway's own view."""

from largesse.lifecycle.queue_rules import queue_problem
from schemas.queue_tree import leaf_paths, walk
from services.gateway.http.problems import Problem
from services.gateway.view.state import State


def check_queue(state: State, queue: str, user: str, form: str) -> None:
    """`form`: of the input, as its fields are named. Raises Problem."""
    if state.queues is None:
        return
    leaves = dict.fromkeys(leaf_paths(state.queues), True)
    submitters = {path: each.submitters for path, each in walk(state.queues) if each.submitters}
    problem = queue_problem(leaves, submitters, queue, user)
    if problem is not None:
        _, field, why = problem
        raise Problem(409, "refused:input", why, f"{form}.{field}", reason=why)
