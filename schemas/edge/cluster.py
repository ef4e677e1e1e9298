"""The cluster file: nodes, queue tree and policy of a simulated or local cell."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from schemas.edge.base import NAME_MAX, Amounts, Input, Labels, Malformed, NewName, shown, sorted_map
from schemas.edge.config import Knobs, config_warnings, knobs_of, policy_of
from schemas.edge.nodes import DevicesInput, offered
from schemas.edge.queues import QueueInput, tree_of
from schemas.edge.unit_traps import amount_warnings
from schemas.edge.validated import validated
from schemas.nodes import Device
from schemas.policy import KnobValue
from schemas.quantities import Vector
from schemas.queue_tree import tree_conflict
from schemas.queues import Queue

NODES_MAX = 100_000


class NodeEntry(Input):
    """Nodes alike: `name-0`, `name-1` ... with `count`, else one of that name."""

    name: NewName
    count: Annotated[int, Field(ge=1, le=NODES_MAX)] | None = None
    capacity: Amounts
    labels: Labels = {}
    devices: DevicesInput = DevicesInput()


class ClusterFile(Input):
    """A cluster file. Without `queues` every job is its own leaf."""

    nodes: Annotated[list[NodeEntry], Field(min_length=1, max_length=NODES_MAX)]
    queues: QueueInput | None = None
    policy: Knobs = {}


@dataclass(slots=True)
class ClusterNode:
    """One node, in base units."""

    name: str
    capacity: Vector
    labels: dict[str, str] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)


@dataclass(slots=True)
class Cluster:
    """A cluster file, read. `values`: knobs by name, those that the file sets."""

    nodes: list[ClusterNode]
    queues: Queue | None = None
    values: dict[str, KnobValue] = field(default_factory=dict)


def read_cluster(document: object) -> Cluster:
    """A cluster file, its entries expanded to nodes in the file's order. Raises Malformed."""
    file = validated(ClusterFile, document)
    if sum(entry.count or 1 for entry in file.nodes) > NODES_MAX:
        raise Malformed("nodes", f"adds up to more than {NODES_MAX} nodes, the most that one cell has")
    nodes: list[ClusterNode] = []
    entry_of: dict[str, int] = {}
    for i, entry in enumerate(file.nodes):
        for node in _expanded(entry, f"nodes[{i}]"):
            if (first := entry_of.setdefault(node.name, i)) != i:
                raise Malformed(
                    f"nodes[{i}].name", f"{shown(node.name)} is the name of a node of nodes[{first}] already"
                )
            nodes.append(node)
    queues = tree_of(file.queues, "queues") if file.queues else None
    values = knobs_of(file.policy, "policy")
    if conflict := tree_conflict(policy_of(values, "policy"), queues):
        raise Malformed("queues", conflict[1])
    return Cluster(nodes, queues, values)


def cluster_warnings(document: dict[str, Any]) -> list[str]:
    """What is allowed in a cluster file and yet most likely not meant."""
    nodes = [
        line
        for i, node in enumerate(document["nodes"])
        for line in amount_warnings(f"nodes[{i}].capacity", node["capacity"])
    ]
    return nodes + config_warnings(document)


def _expanded(entry: NodeEntry, parent: str) -> list[ClusterNode]:
    capacity, devices = offered(entry.capacity, entry.devices, parent)
    names = [entry.name] if entry.count is None else [f"{entry.name}-{k}" for k in range(entry.count)]
    if len(names[-1]) > NAME_MAX:
        raise Malformed(f"{parent}.name", f"is too long: with its number at most {NAME_MAX} characters")
    # Each node has its own maps: whoever gets one may change it.
    return [ClusterNode(name, dict(capacity), sorted_map(entry.labels), list(devices)) for name in names]
