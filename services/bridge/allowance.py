"""How much of a bridge's time each node may take, so that one that floods it keeps no others waiting.

Pure. What a message costs is measured where it is read: a bomb of unknown fields costs more than its bytes say.
"""

MS_A_SECOND = 50
"""Of each second: fifty reports."""
MS_MAX = 2_000
"""What a node may take at once, if it has taken little before: a report of 14 MB takes a second."""
REPORT_MS = 1
"""What a report costs beside the time in which it was read: the bus, and who reads that, have work with it, too."""
ASKED_MS = 10
"""What reading may cost of an answer that the bridge has asked for, or of a question that it answers, at no charge."""
NODES_MAX = 100_000


class Allowance:
    """What each node has left, in milliseconds. Who is not known has all of it."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, int]] = {}

    def left(self, node: str, now_ms: int) -> float:
        """Nothing, or less, where its messages are to be dropped unread."""
        known = self._left.get(node)
        if known is None:
            return MS_MAX
        left, since_ms = known
        return min(MS_MAX, left + (now_ms - since_ms) * MS_A_SECOND / 1_000)

    def charge(self, node: str, cost_ms: float, now_ms: int) -> None:
        """A message of the node has cost this."""
        left = self.left(node, now_ms) - cost_ms
        self._left.pop(node, None)
        self._left[node] = left, now_ms
        if len(self._left) > NODES_MAX:
            del self._left[next(iter(self._left))]  # The one that was heard of last longest ago.
