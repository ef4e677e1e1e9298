"""A packing around the troublesome tasks of a job, those that are long or hard to pack (Grandl et al., *GRAPHENE:
Packing and Dependency-Aware Scheduling for Data-Parallel Clusters*, OSDI 2016, section 4; also known as DAGPS).

The troublesome stages are placed first, on an empty plane of time and room; then the others around them: what they wait
for before them, backwards in time, what waits for them behind, and the rest wherever it fits. Several thresholds of
what is troublesome and several orders of these parts are tried. The paper keeps the most compact of these plans. Here a
stage is one rectangle in them, so that cost follows stages and not tasks; each plan only says in which order stages go,
a forward packing by that order says how long the job takes, and the shortest wins. The orders by alignment and by
critical path are tried as well, so the packing is never longer than theirs.
"""

from typing import NamedTuple

from services.altruism.planning.forward import pack
from services.altruism.planning.orders import SCALE, Scores
from services.altruism.planning.work import Amounts, Packing, Work, how_many_fit

THRESHOLDS_MAX = 4
"""So many sets of troublesome stages are tried."""

ORDERS_MAX = 8
"""So many different orders of stages are packed, the first that are found."""

STAGES_MAX = 200
"""A job with more live stages than this is packed by alignment and by critical path alone."""

_PARTS = ("ocp", "opc", "poc", "cop")
"""In which order the other parts are placed around the troublesome stages (the paper's TOCP, TOPC, TPOC, TCOP): `p`,
those that troublesome stages wait for; `c`, those that wait for them; `o`, all others."""

_BACKWARDS = {"ocp": "p", "opc": "op", "poc": "p", "cop": "op"}
"""Which of those parts are placed backwards, as late as possible before what waits for them."""


class _Graph(NamedTuple):
    """`live`: the stages with tasks that wait, parents before children; by stage, those it waits for and those that
    wait for it, next to it and in all."""

    live: list[int]
    parents: list[list[int]]
    children: list[list[int]]
    above: list[int]
    below: list[int]


class _Block(NamedTuple):
    """A stage on the plane: some of its tasks next to each other, one row behind the other until all have run."""

    width: int
    lasts_ms: int


def pack_around(work: Work, share: Amounts) -> tuple[Packing, Scores]:
    """The shortest packing found, and the scores by which to pack the turned graph."""
    best = pack(work, share, Scores("tetris", work, share))
    turned = Scores("tetris", work, share, reverse=True)
    other = pack(work, share, Scores("critical_path", work, share))
    steps = best.steps + other.steps
    if other.makespan_ms < best.makespan_ms:
        best, turned = other, Scores("critical_path", work, share, reverse=True)
    graph = _graph_of(work)
    if len(graph.live) > STAGES_MAX:
        best.steps = steps
        return best, turned
    for starts in _candidates(work, share, graph):
        other = pack(work, share, Scores("dagps", work, share, fixed=[-start for start in starts]))
        steps += other.steps
        if other.makespan_ms < best.makespan_ms:
            best, turned = other, Scores("dagps", work, share, fixed=starts)
    best.steps = steps
    return best, turned


def _candidates(work: Work, share: Amounts, graph: _Graph) -> list[list[int]]:
    """By stage, when it starts in a plan; plans with different orders of stages only."""
    found: list[list[int]] = []
    orders: list[list[int]] = []
    blocks = [_block(work, share, at) for at in range(len(work.children))]
    for troublesome in _troublesome(work, share, graph):
        for parts in _PARTS:
            starts = _place(work, share, graph, blocks, troublesome, parts)
            order = sorted(graph.live, key=starts.__getitem__)
            if order not in orders:
                orders.append(order)
                found.append(starts)
                if len(found) == ORDERS_MAX:
                    return found
    return found


def _graph_of(work: Work) -> _Graph:
    """The graph of what waits. `above` and `below` are bit sets."""
    size = len(work.children)
    parents: list[list[int]] = [[] for _ in range(size)]
    children: list[list[int]] = [[] for _ in range(size)]
    missing = [0] * size
    for at, nexts in enumerate(work.children):
        for child in nexts:
            missing[child] += 1
            if work.waiting[at] and work.waiting[child]:
                parents[child].append(at)
                children[at].append(child)
    order = [at for at in range(size) if not missing[at]]
    for at in order:
        for child in work.children[at]:
            missing[child] -= 1
            if not missing[child]:
                order.append(child)
    above, below = [0] * size, [0] * size
    for at in order:
        for parent in parents[at]:
            above[at] |= above[parent] | 1 << parent
    for at in reversed(order):
        for child in children[at]:
            below[at] |= below[child] | 1 << child
    return _Graph([at for at in order if work.waiting[at]], parents, children, above, below)


def _troublesome(work: Work, share: Amounts, graph: _Graph) -> list[int]:
    """Sets of troublesome stages, as bit sets, the smallest first: those whose tasks last long beside the longest, or
    need much of the share, and all that lie between two of them."""
    longest = max([work.lasts_ms[at] for at in graph.live], default=1)
    scores: dict[int, int] = {}
    for at in graph.live:
        parts = [amount * SCALE // most for amount, most in zip(work.demand[at], share, strict=True) if amount and most]
        scores[at] = max(work.lasts_ms[at] * SCALE // longest, max(parts, default=0))
    levels = sorted(dict.fromkeys(scores.values()), reverse=True)
    step = max(1, -(-len(levels) // THRESHOLDS_MAX))
    sets = []
    for level in levels[::step]:
        chosen = [at for at in graph.live if scores[at] >= level]
        above = below = marks = 0
        for at in chosen:
            marks |= 1 << at
            above |= graph.above[at]
            below |= graph.below[at]
        sets.append(marks | (above & below))
    return sets


def _block(work: Work, share: Amounts, at: int) -> _Block:
    """Half of what would fit at a time, so that there is room for others beside it."""
    count = work.waiting[at]
    if not count:
        return _Block(0, 0)
    width = min(count, max(1, how_many_fit(work.demand[at], share, 2 * count) // 2))
    return _Block(width, -(-count // width) * work.lasts_ms[at])


def _place(work: Work, share: Amounts, graph: _Graph, blocks: list[_Block], troublesome: int, parts: str) -> list[int]:
    """By stage, when it starts if the troublesome stages are placed first, from 0 on, and then the other parts."""
    above = below = 0
    for at in graph.live:
        if troublesome >> at & 1:
            above |= graph.above[at]
            below |= graph.below[at]
    sets = {"p": above & ~troublesome, "c": below & ~troublesome}
    sets["o"] = ~(troublesome | above | below)
    plane = _Plane(work, share, graph, blocks)
    plane.put_forwards(troublesome)
    for part in parts:
        if part in _BACKWARDS[parts]:
            plane.put_backwards(sets[part])
        else:
            plane.put_forwards(sets[part])
    return plane.starts


class _Plane:
    """Time and room, with the stages that have been placed. Before 0, too."""

    def __init__(self, work: Work, share: Amounts, graph: _Graph, blocks: list[_Block]) -> None:
        self.starts = [0] * len(blocks)
        self._placed = [False] * len(blocks)
        self._work, self._share, self._graph, self._blocks = work, share, graph, blocks

    def put_forwards(self, stages: int) -> None:
        """Places a set of stages, each as early as those that it waits for allow; at 0 where none is placed."""
        for at in self._graph.live:
            if stages >> at & 1:
                ends = [self._end(parent) for parent in self._graph.parents[at] if self._placed[parent]]
                self._put(at, self._search(at, max(ends, default=0), forwards=True))

    def put_backwards(self, stages: int) -> None:
        """Places a set of stages, each as late as those that wait for it allow; ending at 0 where none is placed."""
        for at in reversed(self._graph.live):
            if stages >> at & 1:
                nexts = [self.starts[child] for child in self._graph.children[at] if self._placed[child]]
                latest_ms = min(nexts, default=0) - self._blocks[at].lasts_ms
                self._put(at, self._search(at, latest_ms, forwards=False))

    def _end(self, at: int) -> int:
        return self.starts[at] + self._blocks[at].lasts_ms

    def _put(self, at: int, start_ms: int) -> None:
        self.starts[at], self._placed[at] = start_ms, True

    def _search(self, at: int, start_ms: int, *, forwards: bool) -> int:
        """The first moment from `start_ms` on, or back, at which the stage finds its room until it has run."""
        lasts_ms = self._blocks[at].lasts_ms
        while True:
            clash = self._clash(at, start_ms, start_ms + lasts_ms)
            if not clash:
                return start_ms
            if forwards:
                start_ms = min([self._end(other) for other in clash])
            else:
                start_ms = max([self.starts[other] for other in clash]) - lasts_ms

    def _clash(self, at: int, from_ms: int, to_ms: int) -> list[int]:
        """Stages that are placed in this span and together leave the stage too little room at some moment in it."""
        here = [
            other
            for other in self._graph.live
            if self._placed[other] and self.starts[other] < to_ms and self._end(other) > from_ms
        ]
        for moment_ms in [from_ms, *[self.starts[other] for other in here if self.starts[other] > from_ms]]:
            running = [other for other in here if self.starts[other] <= moment_ms < self._end(other)]
            if not self._fits(at, running):
                return running
        return []

    def _fits(self, at: int, running: list[int]) -> bool:
        work, blocks = self._work, self._blocks
        for kind, most in enumerate(self._share):
            amount = work.demand[at][kind]
            if amount:
                held = amount * blocks[at].width
                for other in running:
                    held += work.demand[other][kind] * blocks[other].width
                if held > most:
                    return False
        return True
