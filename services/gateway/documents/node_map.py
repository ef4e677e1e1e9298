"""All nodes of a cell in columns: little enough to be read again and again."""

from schemas.quantities import quantity_text
from services.gateway.documents import Document
from services.gateway.documents.nodes import state_of_node
from services.gateway.view.state import State


def node_map_document(state: State, names: list[str]) -> Document:
    """Of these nodes, in their order, names, states, running tasks, and by resource what each has and what is held of
    that, in units that `unit` names; null: a node has none of it.
    """
    nodes = [state.nodes[name] for name in names]
    kinds = sorted({kind: True for node in nodes for kind in node.capacity})
    return {
        "seq": state.seq,
        "time_ms": state.time,
        "nodes": names,
        "states": [state_of_node(node) for node in nodes],
        "running": [node.holds for node in nodes],
        "resources": {
            kind: {
                "unit": quantity_text(kind, 1),
                "capacity": [node.capacity.get(kind) for node in nodes],
                "used": [node.used.get(kind, 0) if kind in node.capacity else None for node in nodes],
            }
            for kind in kinds
        },
    }
