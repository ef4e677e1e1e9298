"""What is free of a node, and for whom."""

from itertools import chain

from largesse.lifecycle.slots import counted_capacity, slots_of
from schemas import Policy, Stage, Vector
from schemas.quantities import SLOTS
from services.gateway.view.state import NodeRow, State


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


def free_devices(state: State) -> dict[str, list[int]]:
    """By node with listed devices, what is free of each, in milli-units."""
    nodes = {name: node.devices for name, node in state.nodes.items() if node.devices}
    left = {name: {each.index: each.milli for each in devices} for name, devices in nodes.items()}
    for hold in chain(state.holds.values(), *state.copies.values()) if left else ():
        for share in hold.devices or ():
            of_node = left.get(hold.node, {})
            if share.index in of_node:
                of_node[share.index] -= share.milli
    return {name: [max(0, milli) for milli in of_node.values()] for name, of_node in left.items()}
