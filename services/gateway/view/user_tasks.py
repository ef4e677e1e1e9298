"""How many attempts run of each user, in the gateway's view."""

from services.gateway.view.state import Allocation, State


def count_user(state: State, hold: Allocation, attempts: int) -> None:
    """So many attempts more of a user run (fewer, where negative)."""
    users = state.user_tasks.setdefault(hold.queue, {})
    users[hold.user] = users.get(hold.user, 0) + attempts
    if not users[hold.user]:
        del users[hold.user]
        if not users:
            del state.user_tasks[hold.queue]
