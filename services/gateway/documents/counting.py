"""Sums of what tasks hold and nodes have, as the policy counts them (largesse/lifecycle/slots.py)."""

from largesse.lifecycle.slots import counted_capacity, slots_of
from schemas import Policy, Vector
from schemas.quantities import SLOTS
from services.gateway.view.state import State


def used_by(state: State) -> dict[str, Vector]:
    """What tasks hold, by leaf; includes leaves that are no longer in the tree."""
    if slots_of(state.policy):
        return {leaf: {SLOTS: tasks} for leaf, tasks in state.tasks.items()}
    return state.used


def capacity_of(state: State, policy: Policy | None = None) -> Vector:
    """What the nodes have that are not lost, under the policy in force or another one. A node whose capacity is not
    known yet has no places.
    """
    policy = policy or state.policy
    capacity: Vector = {}
    for node in state.nodes.values():
        if not node.lost:
            added(capacity, counted_capacity(policy, node.capacity))
    return capacity


def added(total: Vector, more: Vector) -> None:
    """Adds one vector to another in place."""
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount
