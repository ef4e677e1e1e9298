"""What is free of a node, and for whom."""

from largesse.lifecycle.slots import counted_capacity, slots_of
from schemas import Policy, Stage, Vector
from schemas.quantities import SLOTS
from services.gateway.view.state import NodeRow


def is_closed(node: NodeRow) -> bool:
    """Whether nothing new starts on a node."""
    return bool(node.lost or node.draining or node.unschedulable)


def has_labels(node: NodeRow, stage: Stage) -> bool:
    """Whether a node has the labels that a stage asks for."""
    return all(node.labels.get(key) == value for key, value in stage.labels.items())


def free_of(policy: Policy, node: NodeRow) -> Vector:
    """What is free of a node, as the policy counts it."""
    used = {SLOTS: node.holds} if slots_of(policy) else node.used
    return {kind: amount - used.get(kind, 0) for kind, amount in counted_capacity(policy, node.capacity).items()}
