"""Nodes that hold more than they have: tasks there run slower, by the model of the preset `slots` (docs/queues.md).

A task's speed is min(1, least capacity / use on its node) over the kinds that it asks for. So all tasks on a node that
ask for the same kinds run at one speed: they share a clock that runs so fast, and each ends when that clock has gone on
for the task's own duration. A start or an end moves the clocks of its node only. Whole numbers throughout:
a clock counts in 2^-FINE_BITS ms and is rounded down at each change of speed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Generic, TypeVar

from schemas.quantities import Vector

FINE_BITS = 40
NEAR = 1 << 20
"""An end this close (2^-20 ms) has come: more than a million changes of speed round away, far below a millisecond."""

T = TypeVar("T")


@dataclass(slots=True)
class _Clock(Generic[T]):
    """Tasks on one node that ask for the same kinds. `time` in 2^-FINE_BITS ms of work; the speed is `up / down`.
    `ends`: (time at the end, number, task); an entry whose number is not among `live` is over.
    """

    kinds: tuple[str, ...]
    time: int = 0
    up: int = 1
    down: int = 1
    ends: list[tuple[int, int, T]] = field(default_factory=list)
    live: dict[int, bool] = field(default_factory=dict)

    def next_ms(self, now_ms: int) -> int | None:
        """When its next task ends, if the speed stays; in whole ms, rounded up."""
        while self.ends and self.ends[0][1] not in self.live:
            heappop(self.ends)
        if not self.ends:
            return None
        left = max(0, self.ends[0][0] - self.time - NEAR)
        return now_ms + -(-left * self.down // (self.up << FINE_BITS))


@dataclass(slots=True)
class _Node(Generic[T]):
    """A node; `at_ms`: what its clocks show is as of then. `version` tells what was expected before its last change."""

    capacity: Vector
    use: Vector = field(default_factory=dict)
    at_ms: int = 0
    version: int = 0
    clocks: dict[tuple[str, ...], _Clock[T]] = field(default_factory=dict)
    tasks: dict[int, tuple[Vector, int, tuple[str, ...]]] = field(default_factory=dict)


class SharedNodes(Generic[T]):
    """All nodes of a cluster. Time never goes back; ends are taken in the order of time, then of number."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node[T]] = {}
        self._expected: list[tuple[int, str, int]] = []  # When a node's next task ends, and of which version that is.

    def set_capacity(self, name: str, capacity: Vector, now_ms: int) -> None:
        """A node has so much from now on. Raises AssertionError where a task asks for a kind that is not there."""
        node = self._nodes.setdefault(name, _Node(capacity, at_ms=now_ms))
        self._move(node, now_ms)
        node.capacity = capacity
        self._changed(name, node)

    def start(self, name: str, task: T, number: int, demand: Vector, count: int, work_ms: int, now_ms: int) -> None:
        """`count` tasks that each ask for `demand` begin together; alone they would take `work_ms`."""
        node = self._nodes[name]
        self._move(node, now_ms)
        kinds = tuple(sorted(kind for kind, amount in demand.items() if amount))
        clock = node.clocks.get(kinds)
        if clock is None:
            clock = node.clocks[kinds] = _Clock(kinds)
        node.tasks[number] = demand, count, kinds
        clock.live[number] = True
        heappush(clock.ends, (clock.time + (work_ms << FINE_BITS), number, task))
        self._use(node, demand, count)
        self._changed(name, node)

    def stop(self, name: str, number: int, now_ms: int) -> None:
        """Tasks that began together are over, at their end or before; unknown ones are none of ours."""
        node = self._nodes.get(name)
        if node is None or number not in node.tasks:
            return
        self._move(node, now_ms)
        demand, count, kinds = node.tasks.pop(number)
        clock = node.clocks[kinds]
        del clock.live[number]
        if not clock.live:
            del node.clocks[kinds]  # So a clock's numbers never grow for ever.
        self._use(node, demand, -count)
        self._changed(name, node)

    def next_ms(self) -> int | None:
        """When the next tasks end, if nothing changes before."""
        while self._expected and self._nodes[self._expected[0][1]].version != self._expected[0][2]:
            heappop(self._expected)
        return self._expected[0][0] if self._expected else None

    def take_due(self, now_ms: int) -> Iterator[tuple[int, T]]:
        """The tasks that end at or before now, each with its time. They run on until `stop` says that they are over."""
        while (at_ms := self.next_ms()) is not None and at_ms <= now_ms:
            _, name, _ = heappop(self._expected)
            node = self._nodes[name]
            self._move(node, at_ms)
            due = []
            for clock in node.clocks.values():
                while clock.next_ms(at_ms) == at_ms:
                    due.append(heappop(clock.ends)[1:])
            for _, task in sorted(due, key=lambda end: end[0]):
                yield at_ms, task
            self._changed(name, node)

    def _use(self, node: _Node[T], demand: Vector, count: int) -> None:
        for kind, amount in demand.items():
            node.use[kind] = node.use.get(kind, 0) + amount * count

    def _move(self, node: _Node[T], now_ms: int) -> None:
        ahead_ms = now_ms - node.at_ms
        for clock in node.clocks.values():
            clock.time += (ahead_ms << FINE_BITS) * clock.up // clock.down
        node.at_ms = now_ms

    def _changed(self, name: str, node: _Node[T]) -> None:
        """Its clocks run at the speed of what is there now, and so it is expected to end something else."""
        moments = []
        for clock in node.clocks.values():
            clock.up = clock.down = 1
            for kind in clock.kinds:
                have, use = node.capacity.get(kind, 0), node.use[kind]
                assert have, f"{name}: a task asks for {kind}, and there is none"
                if have * clock.down < clock.up * use:
                    clock.up, clock.down = have, use
            if (at_ms := clock.next_ms(node.at_ms)) is not None:
                moments.append(at_ms)
        node.version += 1
        if moments:
            heappush(self._expected, (min(moments), name, node.version))
