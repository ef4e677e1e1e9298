"""Reports of nodes that say what the log has of them: what is left of these is a sign of life."""

from largesse.lifecycle.node_work import State, has
from largesse.mqtt.parts import dumps
from schemas import NodeReported
from schemas.edge.base import Malformed
from schemas.edge.beats import NodeBeat, document_of
from schemas.edge.nodes import read_node
from schemas.edge.strict_json import loads
from schemas.topics import BEATS

_REPORT = b'{"report":'


def lessened(topic: str, value: bytes, state: State) -> tuple[str, bytes]:
    """Topic and message of what a node says: as they are, or for `beats`. What is on its way to the log does not count
    as there: a node that changes and changes back meanwhile is understood by its next report.
    """
    if topic != "nodes" or not value.startswith(_REPORT):
        return topic, value
    try:
        said = read_node(loads(value), "")
    except Malformed:
        return topic, value
    if not isinstance(said, NodeReported) or not has(state, said):
        return topic, value
    return BEATS, dumps(document_of(NodeBeat(said.node, said.epoch)))
