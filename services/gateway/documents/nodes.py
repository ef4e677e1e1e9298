"""What the gateway says of nodes, as JSON documents."""

from collections.abc import Callable, Iterator
from dataclasses import asdict

from schemas.quantities import quantity_texts
from services.gateway.documents import Document
from services.gateway.view.state import NodeRow, State

Heard = Callable[[str], tuple[str, int] | None]
"""By which way a node was last heard, and when (Unix milliseconds); None: not known."""


# ---------------------------------------------------------------- nodes
def node_documents(state: State) -> list[Document]:
    """Nodes in the order in which they came."""
    return list(each_node_document(state))


def each_node_document(state: State, heard: Heard = lambda name: None) -> Iterator[Document]:
    """The same one by one; the view may change in between."""
    for name in list(state.nodes):
        if (node := state.nodes.get(name)) is not None:
            yield _node(state, name, node, heard)


def node_document(state: State, name: str, heard: Heard = lambda name: None) -> Document | None:
    """One node, or None."""
    node = state.nodes.get(name)
    return None if node is None else _node(state, name, node, heard)


def state_of_node(node: NodeRow) -> str:
    """The state of a node."""
    if node.lost and node.left:
        return "left"
    if node.lost:
        return "lost"
    return "draining" if node.draining else "unschedulable" if node.unschedulable else "ready"


def _node(state: State, name: str, node: NodeRow, heard: Heard) -> Document:
    reached, heard_ms = heard(name) or (None, None)
    kept = state.vacated.get(name) or state.kept.get(name)
    used = {resource: node.used.get(resource, 0) for resource in node.capacity}
    # Less than nothing is free where a node lost capacity that its tasks hold: `used` says so.
    free = {r: 0 if node.lost else max(0, amount - used[r]) for r, amount in node.capacity.items()}
    return {
        "node": name,
        "state": state_of_node(node),
        "capacity": quantity_texts(node.capacity),
        "used": quantity_texts(used),
        "free": quantity_texts(free),
        "kept": None if kept is None else {"why": kept.why, "demand": quantity_texts(kept.demand)},
        "running": node.holds,
        "labels": node.labels,
        "devices": {"gpu": [asdict(device) for device in node.devices]} if node.devices else {},
        "epoch": node.epoch,
        "address": node.address,
        "reached": reached,
        "heard_ms": heard_ms,
        "unschedulable": node.unschedulable,
        "drain": _drain(node),
        "failing": _failing(state, name),
    }


def _failing(state: State, name: str) -> Document | None:
    """Of a node that is placed last since attempts fail there in a row: of which jobs, and until when; else null."""
    failures = state.failures.get(name)
    if failures is None or failures.until_ms <= state.time:
        return None
    return {"jobs": list(failures.jobs), "until_ms": failures.until_ms}


def _drain(node: NodeRow) -> Document | None:
    """The drain in force. `until_ms`: when what runs there is revoked, null where it runs on."""
    drain = node.drain
    if not node.draining or drain is None:
        return None
    until_ms = None if drain.within_ms is None else drain.at_ms + drain.within_ms
    return {"author": drain.author, "reason": drain.reason, "until_ms": until_ms}
