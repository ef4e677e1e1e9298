"""What tasks and nodes count for: amounts of every kind, or under the preset `slots` places alone, one a task."""

from schemas import Policy, Vector
from services.gateway.view_state import State

PLACES = "slots"
"""The only kind that counts under the preset `slots`. Limits of queues name it so."""

_ONE_PLACE = {PLACES: 1}


def counted(policy: Policy, demand: Vector) -> Vector:
    """What one task that asks for so much counts for."""
    return _ONE_PLACE if policy.preset == "slots" else demand


def used_by(state: State) -> dict[str, Vector]:
    """By leaf, also those that are gone, what its tasks hold."""
    if state.policy.preset == "slots":
        return {leaf: {PLACES: tasks} for leaf, tasks in state.tasks.items()}
    return state.used


def capacity_of(state: State, policy: Policy | None = None) -> Vector:
    """What the nodes have that are not lost, under the policy in force or another one. A node whose capacity is not
    known yet has no places.
    """
    policy = policy or state.policy
    capacity: Vector = {}
    for node in state.nodes.values():
        if not node.lost:
            places = {PLACES: policy.slots_per_node} if node.capacity else {}
            added(capacity, places if policy.preset == "slots" else node.capacity)
    return capacity


def added(total: Vector, more: Vector) -> None:
    """Takes one vector into another."""
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount
