"""How many attempts run of each user, in the gateway's view."""

from schemas.queue_tree import is_below
from services.gateway.view.state import Allocation, State


def count_user(state: State, hold: Allocation, attempts: int) -> None:
    """So many attempts more of a user run (fewer, where negative)."""
    users = state.user_tasks.setdefault(hold.queue, {})
    users[hold.user] = users.get(hold.user, 0) + attempts
    if not users[hold.user]:
        del users[hold.user]
        if not users:
            del state.user_tasks[hold.queue]


def runs_of_user(state: State, path: str, user: str) -> int:
    """How many attempts of a user hold room in a queue and those below it."""
    return sum(users.get(user, 0) for leaf, users in state.user_tasks.items() if is_below(leaf, path))
