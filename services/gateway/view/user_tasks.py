"""How many attempts run of each user, in the gateway's view."""

from schemas.queue_tree import is_below, upwards
from services.gateway.view.jobs import LiveJob
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


def counts_for(state: State, job: LiveJob) -> bool:
    """Whether only so many tasks of a job's user run at a time in its queue, or one above it, those of the job among
    them: not what a reservation promises room to.
    """
    if not state.user_running_max or not any(path in state.user_running_max for path in upwards(job.spec.queue)):
        return False
    row = state.reservations.get(job.spec.reservation) if job.spec.reservation is not None else None
    return row is None or row.state != "accepted" or state.policy.reservations == "off"
