"""What users ask for where only so many of their tasks run at a time: no more than may run counts as asked for, so that
no queue is owed room that it may not use.

By user and leaf, tasks that ask for the same are counted together. Where a user waits for more than its places, of each
kind of task as large a part counts, rounded up: which of them start is not known here. A limit of a queue above counts
what those below leave. The sums of leaves are without what is beyond; they are put right at the next opening.
"""

from largesse.lifecycle.slots import counted_demand
from schemas import Vector
from schemas.queue_tree import is_below, upwards
from services.fairness.core.stale import change_demand, change_sums
from services.fairness.core.state import Asked, State, UserTasks

_Amounts = dict[tuple[str, str], int]
"""By leaf and kind of task, how many tasks."""


def note_user(
    state: State, user: str, leaf: str, demand: Vector, waits: int = 0, rests: int = 0, runs: int = 0
) -> None:
    """So many tasks more of a user (fewer, where negative) wait in a leaf, so many more of those are in back-off, and
    so many more run.
    """
    if not any(path in state.users.most for path in upwards(leaf)):
        return
    _restore(state, user)
    demand = counted_demand(state.policy, demand)
    leaves = state.users.tasks.get(user)
    if leaves is None:
        leaves = state.users.tasks[user] = {}
    mine = leaves.get(leaf)
    if mine is None:
        mine = leaves[leaf] = UserTasks()
    mine.runs += runs
    if waits or rests:
        kind = ",".join([f"{name} {amount}" for name, amount in sorted(demand.items())])
        asked = mine.asked.get(kind)
        if asked is None:
            asked = mine.asked[kind] = Asked(demand)
        asked.waits += waits
        asked.rests += rests
        if not asked.waits and not asked.rests:
            del mine.asked[kind]
    if not mine.runs and not mine.asked:
        del leaves[leaf]
        if not leaves:
            del state.users.tasks[user]


def cut_users(state: State) -> None:
    """Takes off what is beyond the limits of the users of whom anything has changed."""
    touched, state.users.touched = state.users.touched, {}
    for user in touched:
        leaves = state.users.tasks.get(user)
        if leaves is None:
            continue
        paths: dict[str, bool] = {}
        for leaf in leaves:
            paths |= dict.fromkeys(upwards(leaf), True)
        limits = sorted([path for path in paths if path in state.users.most], key=_depth, reverse=True)
        waits: _Amounts = {}
        able: _Amounts = {}
        for leaf, mine in leaves.items():
            for kind, each in mine.asked.items():
                waits[leaf, kind], able[leaf, kind] = each.waits, each.waits - each.rests
        for path in limits:
            runs = sum([mine.runs for leaf, mine in leaves.items() if is_below(leaf, path)])
            free = max(0, state.users.most[path] - runs)
            waits, able = _within(waits, path, free), _within(able, path, free)
        for leaf, mine in leaves.items():
            for kind, each in mine.asked.items():
                asked = waits[leaf, kind]
                _cut(state, leaf, each, each.waits - asked, each.rests - max(0, asked - able[leaf, kind]))


def _depth(path: str) -> tuple[int, str]:
    return (path.count("/") + 1 if path else 0), path


def _within(amounts: _Amounts, path: str, free: int) -> _Amounts:
    """The same with no more tasks below a queue than there are places, but for what rounding up adds."""
    most = sum([count for (leaf, _), count in amounts.items() if is_below(leaf, path)])
    if most <= free:
        return amounts
    return {at: -(-count * free // most) if is_below(at[0], path) else count for at, count in amounts.items()}


def _restore(state: State, user: str) -> None:
    """Something changes about a user: until the next opening, all that it asks for counts."""
    if user in state.users.touched:
        return
    state.users.touched[user] = True
    for leaf, mine in state.users.tasks.get(user, {}).items():
        for each in mine.asked.values():
            _cut(state, leaf, each, 0, 0)


def _cut(state: State, leaf: str, each: Asked, waits: int, rests: int) -> None:
    """From now on so many of these tasks, and so many of those in back-off, do not count."""
    more, more_rests = each.cut - waits, each.cut_rests - rests
    each.cut, each.cut_rests = waits, rests
    if more:
        change_demand(state, leaf)
    if more or more_rests:
        state.demands.add(leaf, each.demand, more, more, resting=more_rests)
        change_sums(state, leaf)
