"""When each node was last heard of. Kept beside the fold, by the sequencer alone: only NodeLost is a fact.

Times are milliseconds of the sequencer's steady clock (clock.py). A sequencer that took over, or was itself suspended
for long, gives every node another full lease, since it cannot know who reported in the meantime, and so does one that
may have missed a sign of life; one that was held up, as by a bus that was down, gives back the time it was. Agents
build on it that a node is heard of when its message has been read, not before: their tasks run until a lease after the
message was sent (services/agent/lease_file.py).
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from schemas import NodeRegistered, NodeReported, TaskFailed, TaskFinished, TaskStarted
from schemas.edge.beats import NodeBeat
from services.admission.core.state import NodeState


class Leases:
    """Nodes in the order in which they were last heard of."""

    def __init__(self) -> None:
        self._heard: OrderedDict[str, int] = OrderedDict()

    def renew(self, node: str, now_ms: int) -> None:
        """The node was heard of."""
        self._heard[node] = now_ms
        self._heard.move_to_end(node)

    def hear(self, body: object, nodes: Mapping[str, NodeState], now_ms: int) -> None:
        """Any report of a node counts, also one that changes nothing, if its agent is the one that the log knows."""
        for name, epoch in speakers_of(body):
            node = nodes.get(name)
            if node is not None and not node.lost and node.epoch == epoch:
                self.renew(name, now_ms)

    def renew_all(self, nodes: Iterable[str], now_ms: int) -> None:
        """Starts a full lease for each of these nodes."""
        self._heard = OrderedDict((node, now_ms) for node in nodes)

    def put_off(self, by_ms: int, lease_ms: int) -> bool:
        """For so long nothing could be heard: that was no silence of theirs. Says whether all have to start over."""
        for node in self._heard:
            self._heard[node] += max(0, by_ms)
        return by_ms > lease_ms // 2

    def forget(self, node: str) -> None:
        """Ends the lease of a node."""
        self._heard.pop(node, None)

    def silent(self, now_ms: int, lease_ms: int) -> list[str]:
        """Nodes whose lease has run out, the longest silent first."""
        nodes = []
        for node, heard_ms in self._heard.items():
            if now_ms - heard_ms < lease_ms:
                break
            nodes.append(node)
        return nodes

    def next_ms(self, lease_ms: int) -> int | None:
        """When the next lease runs out if no node reports."""
        heard_ms = next(iter(self._heard.values()), None)
        return None if heard_ms is None else heard_ms + lease_ms


def speakers_of(body: object) -> Iterable[tuple[str, str]]:
    """The nodes, and the epochs of their agents, that an input comes from."""
    if isinstance(body, NodeBeat | NodeRegistered | NodeReported):
        return [(body.node, body.epoch)]
    if isinstance(body, TaskStarted | TaskFinished | TaskFailed):
        return {(item.node, item.epoch): True for item in body.items}
    return []
