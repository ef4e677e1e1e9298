"""What tasks and nodes count as: their amounts of each resource or, under the preset `slots`, slots: one per task."""

from schemas import Policy, Vector
from services.gateway.view_state import State

PLACES = "slots"
"""The only resource that counts under the preset `slots`, by the name that limits of queues use."""

_ONE_PLACE = {PLACES: 1}


def counted_demand(policy: Policy, demand: Vector) -> Vector:
    """What one task with this demand counts as."""
    return _ONE_PLACE if policy.preset == "slots" else demand


def used_by(state: State) -> dict[str, Vector]:
    """What tasks hold, by leaf; includes leaves that are no longer in the tree."""
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
    """Adds one vector to another in place."""
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount
