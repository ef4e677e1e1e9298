"""Sums by leaf queue: adding tasks that ask for the same to them, and taking tasks off."""

from largesse.lifecycle.remaining import set_of
from schemas import Vector
from schemas.quantities import add_amounts
from services.fairness.core.state import State


def add_waits(state: State, leaf: str, tasks: int) -> None:
    """So many tasks more of a leaf (fewer, where negative) wait."""
    waits = state.waits.get(leaf, 0) + tasks
    if waits:
        state.waits[leaf] = waits
    else:
        del state.waits[leaf]


def add_demand(state: State, leaf: str, demand: Vector, tasks: int) -> None:
    """A leaf asks for so many tasks more (fewer, where negative)."""
    add_tasks(state.demand, leaf, demand, tasks)
    sets = state.sets.get(leaf)
    if sets is None:
        sets = state.sets[leaf] = {}
    add_tasks(sets, set_of(demand), demand, tasks)
    if not sets:
        del state.sets[leaf]
    add_amounts(state.total, demand, tasks)


def add_tasks(sums: dict[str, Vector], leaf: str, demand: Vector, tasks: int) -> None:
    """Adds so many tasks (subtracts, where negative) to a leaf's vector; kinds that become 0 are dropped."""
    vector = sums.get(leaf)
    if vector is None:
        vector = sums[leaf] = {}
    fewer = -tasks
    for resource, amount in demand.items():
        # Multiplied by what is not negative, as in `add_amounts`.
        before = vector.get(resource, 0)
        new = before + amount * tasks if tasks >= 0 else before - amount * fewer
        if new:
            vector[resource] = new
        else:
            vector.pop(resource, None)
    if not vector:
        del sums[leaf]


def add_rests(state: State, leaf: str, demand: Vector, tasks: int) -> None:
    """So many tasks more of a leaf (fewer, where negative) are in back-off; `demand` in the units that count."""
    left = state.backoff_tasks.get(leaf, 0) + tasks
    if left:
        state.backoff_tasks[leaf] = left
        add_tasks(state.backoff_demand, leaf, demand, tasks)
    else:
        del state.backoff_tasks[leaf]
        state.backoff_demand.pop(leaf, None)
