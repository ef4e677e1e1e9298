"""Which nodes a bridge has stopped asking the broker for, since they flood it.

Pure. What a bridge drops unread, the broker still queues for it. That queue is bounded, so whoever sends faster than a
bridge can drop would fill it, and the broker would throw away what other nodes say. MQTT has no filter for all topics
but one: while a node is shut out, the topics of the others are asked for by name. Nodes that the cell does not know say
hello on a topic whose last message the broker keeps: a look at those now and then finds them, whatever floods.
"""

from dataclasses import dataclass

DROPPED_A_SECOND_MAX = 500
"""A node of which more messages than these are dropped unread within a second is shut out."""
SHUT_OUT_MS, SHUT_OUT_MS_MAX = 5_000, 60_000
"""For how long: twice as long each time, as far as the second."""
FORGIVEN_MS = 600_000
"""A node that has been heard for so long since is taken as one that never flooded."""
NODES_MAX = 10_000
STRANGERS_MAX = 1_000
"""Nodes that the cell does not know yet, and that are heard by name while another one is shut out."""


@dataclass(frozen=True, slots=True)
class ShutOut:
    """`until_ms`: when the node is heard again; `for_ms`: how long it is not heard."""

    until_ms: int
    for_ms: int


class Strangers:
    """Nodes that the cell does not know and that have said hello: the last ones."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def note(self, node: str) -> None:
        """One is there."""
        self.names.pop(node, None)
        self.names[node] = None
        if len(self.names) > STRANGERS_MAX:
            del self.names[next(iter(self.names))]


class Floods:
    """What each node has sent too much."""

    def __init__(self) -> None:
        self.shut_out: dict[str, ShutOut] = {}
        self._before: dict[str, ShutOut] = {}  # The last time of each node that is heard again.
        self._second, self._dropped = 0, dict[str, int]()

    def drop(self, node: str, now_ms: int) -> bool:
        """A message of a node was dropped unread. Whether the node is shut out from now on."""
        if node in self.shut_out:
            return False
        if now_ms // 1_000 != self._second:
            self._second, self._dropped = now_ms // 1_000, {}
        self._dropped[node] = self._dropped.get(node, 0) + 1
        if self._dropped[node] <= DROPPED_A_SECOND_MAX:
            return False
        before, for_ms = self._before.pop(node, None), SHUT_OUT_MS
        if before is not None and now_ms - before.until_ms < FORGIVEN_MS:
            for_ms = min(2 * before.for_ms, SHUT_OUT_MS_MAX)
        self.shut_out[node] = ShutOut(now_ms + for_ms, for_ms)
        return True

    def over_in_ms(self, now_ms: int) -> int | None:
        """When the next node is to be heard again; None: all are heard."""
        return max(0, min(each.until_ms for each in self.shut_out.values()) - now_ms) if self.shut_out else None

    def end(self, now_ms: int) -> list[str]:
        """Nodes that are heard again from now on."""
        over = [node for node, shut_out in self.shut_out.items() if shut_out.until_ms <= now_ms]
        for node in over:
            self._before[node] = self.shut_out.pop(node)
            if len(self._before) > NODES_MAX:
                del self._before[next(iter(self._before))]
        return over
