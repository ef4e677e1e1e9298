"""What the gateway says of nodes, as JSON documents."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from schemas.quantities import SHARE_UNITS, quantity_texts
from services.gateway.documents import Document
from services.gateway.view.state import NodeRow, State

Heard = Callable[[str], tuple[str, int] | None]
"""By which way a node was last heard, and when (Unix milliseconds); None: not known."""


def unheard(name: str) -> None:
    """Of no node it is known."""


# ---------------------------------------------------------------- nodes
def node_documents(state: State) -> list[Document]:
    """Nodes in the order in which they came."""
    return list(each_node_document(state))


def listed_nodes(state: State, text: str = "", sort: str = "", states: Sequence[str] = ()) -> list[str]:
    """Names of the nodes whose name, or a label as `KEY=VALUE`, has a text as a part. `sort`: one of NODE_SORTS,
    the highest first where it begins with `-`; equal ones are in the order of names. Empty: as they came. `states`: of
    these alone; empty: of all.
    """
    part = text.casefold()
    names = [
        name
        for name, node in state.nodes.items()
        if (not part or _has_text(name, node, part)) and (not states or state_of_node(node) in states)
    ]
    if sort:
        key = NODE_SORTS[sort.removeprefix("-")]
        names.sort()
        names.sort(key=lambda name: key(name, state.nodes[name]), reverse=sort.startswith("-"))
    return names


def each_node_document(state: State, heard: Heard = unheard, names: Sequence[str] | None = None) -> Iterator[Document]:
    """The documents of these nodes, by default of all, one by one; the view may change in between."""
    for name in list(state.nodes) if names is None else names:
        if (node := state.nodes.get(name)) is not None:
            yield _node(state, name, node, heard)


def node_document(state: State, name: str, heard: Heard = unheard) -> Document | None:
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


def _has_text(name: str, node: NodeRow, part: str) -> bool:
    return part in name.casefold() or any(part in f"{key}={value}".casefold() for key, value in node.labels.items())


def _used_ppb(node: NodeRow) -> int:
    """The largest part of any resource of a node that is in use, in 10^-9."""
    return max(
        (node.used.get(kind, 0) * SHARE_UNITS // amount for kind, amount in node.capacity.items() if amount), default=0
    )


NODE_STATES = ("ready", "draining", "unschedulable", "lost", "left")
"""In the order by which lists are sorted."""

_STATE_AT = {state: at for at, state in enumerate(NODE_STATES)}

NODE_SORTS: dict[str, Callable[[str, NodeRow], str | int]] = {
    "name": lambda name, _: name,
    "state": lambda _, node: _STATE_AT[state_of_node(node)],
    "running": lambda _, node: node.holds,
    "used": lambda _, node: _used_ppb(node),
}
"""By what a list of nodes can be sorted."""


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
        "devices": _devices(node),
        "epoch": node.epoch,
        "address": node.address,
        "reached": reached,
        "heard_ms": heard_ms,
        "unschedulable": node.unschedulable,
        "drain": _drain(node),
        "failing": _failing(state, name),
    }


def _devices(node: NodeRow) -> Document:
    """All that it lists, by index, also those that are out."""
    devices = sorted(node.devices + node.out, key=lambda device: device.index)
    return {"gpu": [asdict(device) for device in devices]} if devices else {}


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
