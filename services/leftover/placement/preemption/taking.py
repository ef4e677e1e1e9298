"""Room that is taken back for queues below their guarantee: on which nodes, and whose attempts end for it.

For each task of a claim that node is taken on which the least work is lost, and there those attempts with the least
loss, none in vain. Gangs end as a whole.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

from services.leftover.placement.backfill.timeline import could_hold
from services.leftover.placement.node_table import NodeTable
from services.leftover.placement.preemption.holdings import Holdings
from services.leftover.placement.promised import Space
from services.leftover.placement.task_class import TaskClass

STEPS_MAX: Final = 2_000
"""So often in a round what was chosen first on a node is given up for another choice there."""


@dataclass(slots=True, eq=False)
class LoanPart:
    """One attempt of a loan, on a node."""

    node: int
    key: str
    pairs: list[tuple[int, int]]
    devices: list[tuple[int, int]]

    def __init__(self, node: int, key: str, pairs: list[tuple[int, int]], devices: list[tuple[int, int]]) -> None:
        self.node = node
        self.key = key
        self.pairs = pairs
        self.devices = devices


@dataclass(slots=True, eq=False)
class Loan:
    """What can be taken back at once: an attempt, or all those of a gang (`parts`), that run for `leaf`. `share`: what
    they hold, in share units; `lost`: the work that would be lost, in share units x ms. `spared`: queues for which it
    is not taken back, since it has taken room from them.
    """

    key: str
    leaf: str
    parts: list[LoanPart]
    share: int
    lost: int
    spared: list[str]

    def __init__(self, key: str, leaf: str, spared: list[str]) -> None:
        self.key = key
        self.leaf = leaf
        self.parts = []
        self.share = 0
        self.lost = 0
        self.spared = spared


@dataclass(slots=True, eq=False)
class Claimed:
    """Room for one task of a class on a node, for a leaf."""

    node: int
    task: TaskClass
    leaf: str


@dataclass(slots=True, eq=False)
class Taking:
    """Finds room for claims. `space_of` a node: what is free there once all that is ending has ended; `ending`: nodes
    where something is. `loans`: by node. `rate`: how much may still be taken back, in share units.

    `rooms`: what was found; `taken`: what ends for it, as (loan, claimant); both in order.
    """

    table: NodeTable
    holdings: Holdings
    space_of: Callable[[int], Space]
    ending: dict[int, bool]
    loans: dict[int, list[Loan]]
    rate: int
    rooms: list[Claimed] = field(default_factory=list)
    taken: list[tuple[Loan, str]] = field(default_factory=list)
    is_slowed: bool = False
    steps: int = STEPS_MAX
    _spaces: dict[int, Space] = field(default_factory=dict)
    _gone: dict[str, bool] = field(default_factory=dict)

    def find(self, leaf: str, task: TaskClass, count: int, nodes: list[int], *, whole: bool) -> int:
        """Finds room for `count` tasks of a class on some of these nodes, with `whole` for all of them or none. Returns
        how many have room.
        """
        kept = self._kept() if whole else None
        heap: list[tuple[int, int]] = []
        for number in nodes:
            chosen = self._chosen(leaf, number, task)
            if chosen is not None:
                heap.append((_lost(chosen), number))
        heapify(heap)
        found = 0
        while found < count and heap:
            said, number = heappop(heap)
            chosen = self._chosen(leaf, number, task)
            if chosen is None:
                continue
            if _lost(chosen) != said:  # Others took of this node since.
                heappush(heap, (_lost(chosen), number))
                continue
            self._take(leaf, number, task, chosen)
            found += 1
            heappush(heap, (said, number))
        if kept is not None and found < count:
            self._put_back(kept)
            return 0
        return found

    def able(self, task: TaskClass) -> list[int]:
        """Nodes that could hold a task of a class, and are not held for others."""
        found: list[int] = []
        for number, node in enumerate(self.table.nodes):
            if (node.kept is None or node.kept is task) and could_hold(self.table, task, node):
                found.append(number)
        return found

    def _kept(self) -> "Taking":
        kept = Taking(self.table, self.holdings.copy(), self.space_of, dict(self.ending), self.loans, self.rate)
        kept.rooms, kept.taken, kept._gone = list(self.rooms), list(self.taken), dict(self._gone)
        kept._spaces = {number: space.copy() for number, space in self._spaces.items()}
        return kept

    def _put_back(self, kept: "Taking") -> None:
        self.holdings, self.ending, self.rate = kept.holdings, kept.ending, kept.rate
        self.rooms, self.taken, self._gone, self._spaces = kept.rooms, kept.taken, kept._gone, kept._spaces

    def _space(self, number: int) -> Space:
        space = self._spaces.get(number)
        if space is None:
            space = self._spaces[number] = self.space_of(number)
        return space

    def _chosen(self, leaf: str, number: int, task: TaskClass) -> list[Loan] | None:
        """What ends for one more task on a node: the least loss first, and none in vain."""
        if task.bounds is not None and task.bounds.is_apart:
            if any(room.node == number and room.task is task for room in self.rooms):
                return None
        space = self._space(number)
        if space.fits(task):  # What is free by now and was not given to it stays free.
            return [] if task.gang or number in self.ending else None
        there = self._able_loans(leaf, number, task)
        rest = space.copy()
        for loan in there:
            _give(rest, loan, number, 1)
        if not rest.fits(task):
            return None
        space = space.copy()
        chosen = self._search(leaf, task, there, number, space)
        if chosen is None:
            return None
        for loan in list(reversed(chosen)):
            _give(space, loan, number, -1)
            if space.fits(task):
                chosen.remove(loan)
            else:
                _give(space, loan, number, 1)
        return chosen

    def _able_loans(self, leaf: str, number: int, task: TaskClass) -> list[Loan]:
        """What may end on a node for a task of a leaf, the least loss first."""
        may: dict[str, bool] = {}
        found: list[Loan] = []
        for loan in self.loans.get(number, ()):
            if loan.leaf not in may:
                may[loan.leaf] = self.holdings.may_claim(leaf, loan.leaf, task.pairs, task.gang or 1)
            if may[loan.leaf] and loan.key not in self._gone and leaf not in loan.spared:
                found.append(loan)
        found.sort(key=lambda loan: (loan.lost, loan.key))
        return found

    def _search(self, leaf: str, task: TaskClass, there: list[Loan], number: int, space: Space) -> list[Loan] | None:
        """What of some loans is to end so that a task fits on a node, the least loss first. All combinations are tried
        as long as there are steps left.
        """
        picks, rate, at = list[int](), self.rate, 0
        while not space.fits(task):
            if at == len(there):
                if not picks or not self.steps:
                    break
                self.steps -= 1
                at = picks.pop()
                self._lend(there[at], 1)
                _give(space, there[at], number, -1)
                rate += there[at].share
            elif there[at].share > rate:
                self.is_slowed = True
            else:
                self._lend(there[at], -1)
                if self.holdings.keeps(leaf, there[at].leaf):
                    _give(space, there[at], number, 1)
                    rate -= there[at].share
                    picks.append(at)
                else:
                    self._lend(there[at], 1)
            at += 1
        for each in picks:
            self._lend(there[each], 1)
        return [there[each] for each in picks] if space.fits(task) else None

    def _lend(self, loan: Loan, sign: int) -> None:
        for part in loan.parts:
            self.holdings.change(loan.leaf, part.pairs, sign)

    def _take(self, leaf: str, number: int, task: TaskClass, chosen: list[Loan]) -> None:
        for loan in chosen:
            self._gone[loan.key] = True
            self.taken.append((loan, leaf))
            self.rate -= loan.share
            self._lend(loan, -1)
            self.holdings.note(leaf, loan.leaf)
            for part in loan.parts:
                self._space(part.node).add(part.pairs, part.devices)
                self.ending[part.node] = True
        self.holdings.change(leaf, task.pairs, 1)
        self._space(number).take(task)
        self.rooms.append(Claimed(number, task, leaf))


def _lost(chosen: list[Loan]) -> int:
    """The work that is lost with some loans."""
    return sum([loan.lost for loan in chosen])


def _give(space: Space, loan: Loan, number: int, sign: int) -> None:
    """A loan's room on a node is given back, or with `sign` -1 taken again."""
    for part in loan.parts:
        if part.node == number:
            space.add(part.pairs, part.devices, sign)
