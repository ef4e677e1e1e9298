"""Nodes that fail and come back in a simulated run: the file that says so, and what of it comes next.

A node that fails is silent: what runs there does not go on, and what is started there does not begin. The cell learns
of it as a live one does, `node_lease_ms` later (`NodeLost`), or when the node registers again before that.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from schemas import NodeRegistered
from schemas.edge.base import Malformed, shown
from schemas.edge.cluster import ClusterNode
from schemas.edge.outages import OneNodeInput, RandomInput, SomeNodesInput, read_outage_line
from schemas.edge.read import Cluster
from schemas.edge.strict_json import loads
from services.simulator.workloads.draws import arrivals_ms, drawn_names
from services.simulator.workloads.files import LINE_BYTES_MAX, Damaged, read_lines

OUTAGES_MAX = 100_000
"""Of one run, drawn ones included."""

RETURNS, FAILS, NOTICED = range(3)
"""What happens to a node, in the order in which it does at one moment."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A node is down in `[from_ms, to_ms)`; None: for good. With `slow_permille` it is slow instead (slow_nodes.py)."""

    node: str
    from_ms: int
    to_ms: int | None = None
    slow_permille: int | None = None


def read_outages(path: str, cluster: Cluster, seed: int) -> list[Outage]:
    """A file of outages, JSON lines (docs/simulation.md), in its order. Raises Damaged, and OSError where it cannot
    read."""
    names = [node.name for node in cluster.nodes]
    known = dict.fromkeys(names, True)
    found: list[Outage] = []
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        try:
            found += _outages(loads(line, size_max=LINE_BYTES_MAX), names, known, seed, number)
        except Malformed as fault:
            raise Damaged(where, fault.field, fault.reason) from None
        if len(found) > OUTAGES_MAX:
            raise Damaged(where, "", f"adds up to more than {OUTAGES_MAX:,} outages, the most of one run")
    return found


def _outages(document: object, names: list[str], known: dict[str, bool], seed: int, line: int) -> Iterable[Outage]:
    match read_outage_line(document):
        case SomeNodesInput(nodes_permille=permille, from_ms=from_ms, to_ms=to_ms, slow_permille=slow):
            count = -(-len(names) * permille // 1000)  # At least one.
            return [Outage(name, from_ms, to_ms, slow) for name in drawn_names(names, count, seed, f"outage/{line}")]
        case RandomInput() as drawn:
            return [outage for name in names for outage in _drawn(name, drawn, seed, f"outage/{line}/{name}")]
        case OneNodeInput(node=name, from_ms=from_ms, to_ms=to_ms, slow_permille=slow):
            if name not in known:
                raise Malformed("node", f"{shown(name)} is no node of the cluster file")
            return [Outage(name, from_ms, to_ms, slow)]


def _drawn(node: str, drawn: RandomInput, seed: int, purpose: str) -> Iterable[Outage]:
    """Up and down by turns, both for exponentially distributed times; who is down at `until_ms` comes back then."""
    ups = arrivals_ms(drawn.mean_up_ms, OUTAGES_MAX + 1, seed, f"{purpose}/up")
    downs = arrivals_ms(drawn.mean_down_ms, OUTAGES_MAX + 1, seed, f"{purpose}/down")
    down_ms = 0
    for up_ms, down_ms_next in zip(ups, downs, strict=True):
        from_ms = up_ms + down_ms
        to_ms = min(drawn.until_ms, up_ms + down_ms_next)
        down_ms = down_ms_next
        if from_ms >= drawn.until_ms:
            return
        if to_ms > from_ms:  # Times are rounded to whole milliseconds.
            yield Outage(node, from_ms, to_ms)


class Outages:
    """What is still to happen to nodes, in order of time, then of name. Spans of one node that overlap are one span."""

    def __init__(self, outages: Iterable[Outage], nodes: Iterable[ClusterNode]) -> None:
        self.failed = 0
        """How often a node has failed so far."""
        self._nodes = {node.name: node for node in nodes}
        self._changes = [change for outage in _merged(outages) for change in _changes(outage)]
        self._notice_ms: dict[str, int] = {}  # By node that is down: when its lease runs out.
        heapify(self._changes)

    def next_ms(self) -> int | None:
        """When the next change is due."""
        return self._changes[0][0] if self._changes else None

    def take(self, time: int, node_lease_ms: int) -> tuple[int, str] | None:
        """The next change that is due by `time`: what happens, and to which node; None: none is.

        A node that fails now and stays away for `node_lease_ms` is NOTICED then.
        """
        while self._changes and self._changes[0][0] <= time:
            at_ms, kind, node = heappop(self._changes)
            if kind == FAILS:
                self.failed += 1
                self._notice_ms[node] = at_ms + node_lease_ms
                heappush(self._changes, (at_ms + node_lease_ms, NOTICED, node))
            elif kind == RETURNS:
                self._notice_ms.pop(node, None)
            elif self._notice_ms.get(node) != at_ms:
                continue  # It has come back in the meantime.
            return kind, node
        return None

    def registration(self, name: str, author: str) -> NodeRegistered:
        """What a node says that comes back: nothing that ran there is known any more."""
        node = self._nodes[name]
        epoch = f"returned-{self.failed}"  # Another one each time: it has to fail again first.
        return NodeRegistered(name, epoch, node.capacity, node.labels, node.devices, author=author)


def _changes(outage: Outage) -> list[tuple[int, int, str]]:
    fails = (outage.from_ms, FAILS, outage.node)
    return [fails] if outage.to_ms is None else [fails, (outage.to_ms, RETURNS, outage.node)]


def _merged(outages: Iterable[Outage]) -> list[Outage]:
    merged: list[Outage] = []
    down = [outage for outage in outages if outage.slow_permille is None]
    for each in sorted(down, key=lambda outage: (outage.node, outage.from_ms)):
        last = merged[-1] if merged else None
        if last is None or last.node != each.node or (last.to_ms is not None and last.to_ms < each.from_ms):
            merged.append(each)
        elif last.to_ms is not None and (each.to_ms is None or each.to_ms > last.to_ms):
            merged[-1] = Outage(last.node, last.from_ms, each.to_ms)
    return merged
