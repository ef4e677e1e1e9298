"""Nodes of a cell, as far as the planner needs them."""

from dataclasses import dataclass

from schemas import Vector


@dataclass(slots=True)
class Node:
    """A node as the log knows it. It counts while it is `up`, and neither draining nor `unschedulable`."""

    capacity: Vector
    up: bool = True
    draining: bool = False
    unschedulable: bool = False


def counted(node: Node) -> Vector:
    """What of a node can be promised: nothing where it takes no tasks."""
    return node.capacity if node.up and not node.draining and not node.unschedulable else {}
