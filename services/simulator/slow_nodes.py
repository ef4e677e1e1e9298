"""Nodes of a simulated cell that are slow for a time: tasks that start there take longer, and the cell is not told."""

from collections.abc import Iterable

from services.simulator.outages import Outage


class SlowNodes:
    """By node, when it is slow and how much. Where several spans hold, the slowest counts."""

    def __init__(self) -> None:
        self._spans: dict[str, list[Outage]] = {}

    def add(self, span: Outage) -> None:
        """A node is slow for a time."""
        self._spans.setdefault(span.node, []).append(span)

    def lasts_ms(self, node: str, start_ms: int, run_ms: int) -> int:
        """What a task takes that starts there now and would take `run_ms` elsewhere; a task that has begun is as slow
        as its node was then, to its end."""
        permille = 1_000
        for span in self._spans.get(node, ()):
            if span.from_ms <= start_ms and (span.to_ms is None or start_ms < span.to_ms):
                permille = max(permille, span.slow_permille or 0)
        return run_ms * permille // 1_000


def slow_nodes(outages: Iterable[Outage]) -> SlowNodes | None:
    """Those that an outage file says are slow; None: there are none."""
    found = [outage for outage in outages if outage.slow_permille is not None]
    if not found:
        return None
    nodes = SlowNodes()
    for span in found:
        nodes.add(span)
    return nodes
