"""How fast a bridge passes results on between nodes, so that reports get through beside them. Pure."""

MS_A_SECOND = 500
"""Of each second: half of a bridge's time."""
MS_MAX = 500
"""What it may take at once after a pause."""
ANSWER_MS, BYTES_A_MS = 1, 64 << 10
"""What an answer costs by itself, and how much of one costs as much again."""


def cost_ms(size: int) -> float:
    """What it costs to pass on an answer of that size in bytes."""
    return ANSWER_MS + size / BYTES_A_MS


class Pace:
    """What is left to take, in milliseconds."""

    def __init__(self, now_ms: int) -> None:
        self._left, self._since_ms = float(MS_MAX), now_ms

    def charge(self, cost: float, now_ms: int) -> None:
        """Something was passed on."""
        self._left = self._left_at(now_ms) - cost
        self._since_ms = now_ms

    def wait_ms(self, now_ms: int) -> float:
        """How long to wait before the next; 0: not at all."""
        return max(0.0, -self._left_at(now_ms) * 1_000 / MS_A_SECOND)

    def _left_at(self, now_ms: int) -> float:
        return min(MS_MAX, self._left + (now_ms - self._since_ms) * MS_A_SECOND / 1_000)
