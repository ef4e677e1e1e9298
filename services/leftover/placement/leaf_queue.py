"""Which leaf queue is served next, and with what: a priority queue of leaves, and in each leaf one of what is ready.

Leaves come by their claim (`LeafQueue.claim`): those that stay within their level after one more task first, then the
least ratio of what they hold to their level. Inside a leaf its `ReadyQueue` has what may be served, by key (keys.py).

A class of tasks that finds no room is not live: what waits for it stays where it is, and searches pass over it by bit
sets of classes (ranks.py). So a round costs the leaves that it serves and those whose claim has moved, not all in which
somebody waits.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from schemas.quantities import SHARE_UNITS
from schemas.sharing import ServingOrder
from services.leftover.placement.indexed_heap import IndexedHeap, JobHeap
from services.leftover.placement.keys import CLASS_MASK
from services.leftover.placement.kinds_part import KindsPart, kinds_asked
from services.leftover.placement.orders import JOB_ORDERS, JobOrder
from services.leftover.placement.queue_limits import Stop
from services.leftover.placement.ranks import Block, Ranks
from services.leftover.placement.task_class import Shape, TaskClass
from services.leftover.placement.task_span import SoleSpans

_RATIO_BITS: Final = 30
_SERVED_BITS: Final = 64
_BEYOND_BITS: Final = 200  # Far above any ratio of a share to a target of one unit.
_ROUNDED: Final = 16
_OWED: Final = 0
_OWN: Final = 1
_LENT: Final = 2
_BEYOND: Final = 3
_NOTHING: Final = 4
"""On what ground a leaf takes its next task, best first: the task is within what the leaf is guaranteed; within what it
is due of its own; within its level, by what others left to it that cannot place theirs (room that is held for those is
missing there, and nowhere else); beyond its level; the leaf is entitled to nothing. Levels are of a cell without nodes:
where tasks of different proportions fill nodes unevenly not all leaves can reach them, but what each is guaranteed."""


_NONE_THERE: Final = -1
_NONE_BEFORE: Final = -2


def _is_in(live: bytes, index: int) -> bool:
    """Whether a set of classes, by bytes, has this one."""
    at = index >> 3
    return at < len(live) and live[at] >> (index & 7) & 1 == 1


class ReadyQueue(Ranks[int]):
    """What a leaf may serve of one class of jobs, by key: buckets under their numbers, and the sole spans of a job
    under the job's `sole_id`, which is negative. `classes`: bit set of all classes of tasks among them, possibly with
    some that are gone. `sole_spans`: by `sole_id`. `found_key`: the key of what was found last. `mask`: which bits of
    the number of a bucket are its class.

    A search begins where the last one found something: in a round ever fewer classes are live, and what is served
    moves back. `_none_before`: no entry with a key below this has a class in the set `_none_of`.
    """

    __slots__ = (
        "_hit_key",
        "_live",
        "_live_of",
        "_none_before",
        "_none_of",
        "classes",
        "found_key",
        "mask",
        "sole_spans",
    )

    def __init__(self, mask: int) -> None:
        super().__init__()
        self.classes = 0
        self.found_key = 0
        self.mask = mask
        self.sole_spans: dict[int, SoleSpans] = {}
        self._none_before = 0
        self._none_of = 0
        self._live = b""  # The set of the last search by bytes, which tell of one class in no time.
        self._live_of = 0
        self._hit_key = 0

    def set(self, id_: int, key: int, classes: int) -> None:
        """Adds an entry, moves it to another key, or gives it other classes. O(log n + length of a block)."""
        if key < self._none_before:
            self._none_before = key
        if self.key.get(id_) != key:
            super().set(id_, key, classes)
        elif id_ < 0:  # The sole spans of a job may be others by now, the class of a bucket may not.
            self.add_classes(id_, classes)

    def first_of(self, live: int, end: int | None = None) -> int | None:
        """The first bucket whose class is in the set `live` and whose key is below `end`, or None. Of sole spans each
        counts as the bucket that it would be.
        """
        if not self.classes & live or (end is not None and end <= 0):
            return None
        found, first_hit = -1, -1
        most = -1 if end is None else end - 1  # The largest key that is of use, negative where any is.
        begin, skipped = 0, 0
        if live != self._live_of:
            self._live, self._live_of = live.to_bytes((live.bit_length() >> 3) + 1, "little"), live
        if self._none_before and (live == self._none_of or live | self._none_of == self._none_of):
            begin, skipped = self.place_of(self._none_before)
        for at in range(begin, len(self.blocks)):
            block = self.blocks[at]
            if 0 <= most < block.entries[0][0]:
                break
            if block.classes & live:
                better = self._first_in(block, skipped, most, found)
                if better >= 0:
                    found, most = better, self.found_key
                elif better == _NONE_THERE and found < 0:
                    block.classes ^= block.classes & live  # None of them is there any more.
                if first_hit < 0 <= found:
                    first_hit = self._hit_key
            skipped = 0
        else:
            if found < 0:
                self._forget_gone()  # Where `end` cut the last block short, it still has what lies behind that.
        self._none_before, self._none_of = max(0, first_hit), live
        return found if found >= 0 else None

    def _first_in(self, block: Block[int], skipped: int, most: int, found: int) -> int:
        """The first bucket of a block, without as many entries as `skipped`, whose class is in the set that `_live`
        holds and whose key is at most `most` (if that is not negative), or the one `found` before if that comes first.
        Else `_NONE_THERE` or, where `most` ended the search, `_NONE_BEFORE`. `found_key` is its key, and `_hit_key`
        that of the first entry with such a class.
        """
        live, entries = self._live, block.entries
        for at in range(skipped, len(entries)):
            key, id_ = entries[at]
            if 0 <= most < key:
                return found if found >= 0 else _NONE_BEFORE
            if id_ >= 0:
                if not _is_in(live, id_ & self.mask):
                    continue
                if found < 0:
                    self._hit_key = key
                self.found_key = key
                return id_
            sole = self.sole_spans[id_]
            for span in sole.spans:
                if _is_in(live, span.task.index):
                    break
            else:
                continue
            if found < 0:
                self._hit_key = key
            behind = span.position - sole.spans[0].position  # Sole spans stand under the key of the first of them.
            if found < 0 or key + behind < most:
                found, most = sole.segment | span.task.index, key + behind
                self.found_key = most
            if not behind:
                return found
        return found if found >= 0 else _NONE_THERE

    def _forget_gone(self) -> None:
        """Corrects `classes`."""
        self.classes = 0
        for block in self.blocks:
            self.classes |= block.classes


def _ready_queues() -> list[ReadyQueue]:
    return [ReadyQueue(CLASS_MASK)]


@dataclass(slots=True, eq=False)
class LeafEntry:
    """A queue that jobs are served in. Shares are in 10^-9 of the cell.

    What it may hold. `level`: its whole fair share, also the part that it cannot place; `own_level`: the same without
    what is only there since siblings cannot place theirs, None where no level is known; `guaranteed`: below this it
    comes before all others, and no class pool holds it back; `floor`: under `fsp`, jobs that hold less than this
    dominant share go before the others, the least first. `held` by resource position and `share`, its dominant share,
    with what this round has placed. `served`: seq of the opening whose round gave it something last.

    What waits there. `buckets`: by number, the jobs that wait for tasks of a class; `sole_jobs`: by number, the job (by
    its number in the order of admission) where there is but one, and no bucket then. `sizes`: by number of both, what
    one task (of a gang: all of its tasks) takes in share units, and `size_least` the least of these, None where nobody
    waits; `gangs`: the numbers of those that are gangs. `ready`: by class of job, those of them that no maximum holds
    back. `stopped`: where the order is strict, by segment who finds a queue full, first the head, then those that it
    does not hold back. `headed`: the classes that `LeafQueue.headed` counts as heads of this leaf. `choosers`: by class
    of job, what says which bucket to serve next where that is not the first one ready; `packs`: by alignment.
    `has_maximum`: the queue itself has one. `parts`: where its tasks ask for several sets of kinds, each with its
    level. `sorts`: what its `order` sorts jobs by.
    """

    name: str
    held: list[int]
    order: ServingOrder = "drf"
    level: int = SHARE_UNITS
    own_level: int | None = None
    share: int = 0
    served: int = 0
    sizes: IndexedHeap[int] = field(default_factory=IndexedHeap)
    size_least: int | None = None
    gangs: dict[int, bool] = field(default_factory=dict)
    buckets: dict[int, JobHeap] = field(default_factory=dict)
    sole_jobs: dict[int, int] = field(default_factory=dict)
    ready: list[ReadyQueue] = field(default_factory=_ready_queues)
    guaranteed: int = 0
    floor: int = 0
    stopped: dict[int, list[Stop]] = field(default_factory=dict)
    headed: list[int] = field(default_factory=list)
    choosers: list[Callable[[int, int | None], int | None]] = field(default_factory=list)
    packs: bool = False
    has_maximum: bool = False
    parts: list[KindsPart] = field(default_factory=list)
    sorts: JobOrder = field(init=False)

    def __post_init__(self) -> None:
        self.sorts = JOB_ORDERS[self.order]

    @property
    def stays_within(self) -> bool:
        """Whether with one task more it holds no more than its level, or those that ask for some set of kinds no more
        than theirs.
        """
        least = self.size_least
        if least is None or self.share + least <= self.level:
            return True
        for part in self.parts:
            least = part.sizes.least()
            if least is not None and part.share + least <= part.level:
                return True
        return False

    @property
    def strict(self) -> bool:
        """Whether nobody goes ahead of a head that does not fit."""
        return self.sorts.is_strict

    @property
    def is_owed(self) -> bool:
        """Whether it waits, and with one task more holds no more than it is guaranteed."""
        least, guaranteed = self.size_least, self.guaranteed
        return least is not None and guaranteed > 0 and self.share + least <= guaranteed + _ROUNDED

    def first_of(self, live: int, job_class: int = 0, end: int | None = None) -> int | None:
        """The bucket that the leaf serves next, of one class of jobs and of a class of tasks in the set `live`, and
        with a key below `end`; None where there is none. Of a strict leaf only its head.
        """
        ready = self.ready[job_class]
        if not self.strict:
            if not self.choosers:
                return ready.first_of(live, end)
            chosen = self.choosers[job_class](live, end)
            if chosen is not None and chosen in ready.key:  # Else it is a sole span, and the search has set the key.
                ready.found_key = ready.key[chosen]
            return chosen
        head = ready.first()
        if head is not None:
            ready.found_key = ready.key[head]
        return head if head is not None and live >> (head & CLASS_MASK) & 1 else None


class LeafQueue:
    """Leaves by their claims. `by_claim`: where they are not served so, all claims are equal."""

    def __init__(self, by_claim: bool, leaves: dict[str, LeafEntry], job_classes: int = 1) -> None:
        """`job_classes`: how many classes of jobs have pools; 1 where there are none."""
        self.by_claim = by_claim
        self.leaves = leaves
        self.ranks: list[Ranks[str]] = [Ranks() for _ in range(job_classes)]
        self.owed: list[Ranks[str]] = [Ranks() for _ in range(job_classes)]  # Of these, those below their guarantee.
        self.changed: dict[str, bool] = {}  # Leaves whose claim may have moved since somebody took this note.
        self.reordered: dict[str, bool] = {}  # The same, and those of which another bucket, or none, may come first.
        self.running: dict[str, dict[Shape, int]] = {}  # By leaf and what they ask for, how many tasks run.
        self.headed: dict[int, int] = {}  # By class, how many leaves are set to have it as a head.

    def claim(self, leaf: LeafEntry) -> int:
        """What leaves are served by, least first."""
        if not self.by_claim:
            return 0
        if leaf.level <= 0:
            return _NOTHING << _BEYOND_BITS | leaf.served
        least, tier, level = leaf.size_least, _OWN, leaf.level
        if leaf.is_owed:
            tier, level = _OWED, leaf.guaranteed
        elif not leaf.stays_within:
            tier = _BEYOND
        elif least is not None and leaf.own_level is not None and leaf.own_level < leaf.level:
            if leaf.share + least > leaf.own_level:
                tier = _LENT
            else:
                level = leaf.own_level
        return tier << _BEYOND_BITS | (leaf.share << _RATIO_BITS) // level << _SERVED_BITS | leaf.served

    # ------------------------------------------------------------ what waits in a leaf
    def open_buckets(self, leaf: LeafEntry, opened: dict[int, TaskClass]) -> None:
        """Somebody begins to wait in a leaf for tasks of these classes, by number of the bucket."""
        for bucket_id, task in opened.items():
            leaf.sizes.set(bucket_id, task.size)
            if leaf.size_least is None or task.size < leaf.size_least:
                leaf.size_least = task.size
            for part in leaf.parts:
                if part.kinds == kinds_asked(task.pairs):
                    part.sizes.set(bucket_id, task.size)
            if task.gang:
                leaf.gangs[bucket_id] = True
        self.move([leaf])  # Another task may be the smallest.

    def close_buckets(self, leaf: LeafEntry, bucket_ids: list[int]) -> None:
        """Nobody waits in a leaf any more for tasks of these classes."""
        for bucket_id in bucket_ids:
            leaf.sizes.drop(bucket_id)
            for part in leaf.parts:
                part.sizes.drop(bucket_id)
            leaf.gangs.pop(bucket_id, None)
        leaf.size_least = leaf.sizes.least()
        self.move([leaf])

    def offer(self, leaf: LeafEntry, job_class: int, id_: int, key: int, classes: int) -> None:
        """Makes a bucket, or the sole spans of a job, ready to be served, or moves it to another key. `classes`: bit
        set of theirs.
        """
        ready, ranks = leaf.ready[job_class], self.ranks[job_class]
        self.reordered[leaf.name] = True
        if leaf.sorts.gives:
            self.changed[leaf.name] = True  # What it waits for may be required by now.
        ready.set(id_, key, classes)
        if leaf.name not in ranks.key:
            ready.classes |= classes
            self._rank(leaf, job_class, self.claim(leaf))
        elif ready.classes & classes != classes:
            ready.classes |= classes
            ranks.add_classes(leaf.name, classes)
            if leaf.name in self.owed[job_class].key:
                self.owed[job_class].add_classes(leaf.name, classes)

    def withdraw(self, leaf: LeafEntry, job_class: int, id_: int) -> None:
        """A bucket, or the sole spans of a job, may not be served any more."""
        leaf.ready[job_class].drop(id_)
        self.reordered[leaf.name] = True
        if not leaf.ready[job_class].key:
            self.ranks[job_class].drop(leaf.name)
            self.owed[job_class].drop(leaf.name)

    # ------------------------------------------------------------ claims
    def move(self, leaves: list[LeafEntry]) -> None:
        """The claims of these leaves may be others."""
        for leaf in leaves:
            self.changed[leaf.name] = self.reordered[leaf.name] = True
            claim: int | None = None
            for job_class, ranks in enumerate(self.ranks):
                if leaf.name in ranks.key:
                    claim = self.claim(leaf) if claim is None else claim
                    self._rank(leaf, job_class, claim)

    def _rank(self, leaf: LeafEntry, job_class: int, claim: int) -> None:
        """The leaf has something ready of this class of jobs, and this claim."""
        classes = leaf.ready[job_class].classes
        self.ranks[job_class].set(leaf.name, claim, classes)
        if len(self.owed) == 1:
            return  # Nobody asks who is owed where there are no pools.
        if leaf.is_owed:
            self.owed[job_class].set(leaf.name, claim, classes)
        else:
            self.owed[job_class].drop(leaf.name)

    # ------------------------------------------------------------ what runs, and what is kept out
    def run(self, leaf: str, shape: Shape, count: int) -> None:
        """So many more tasks of a leaf run (fewer, where negative), whether or not their jobs are over."""
        running = self.running.get(leaf)
        if running is None:
            running = self.running[leaf] = {}
        before = running.get(shape, 0)
        if after := before + count:
            running[shape] = after
        else:
            running.pop(shape, None)
        if leaf in self.leaves and not (before and after):
            self.reordered[leaf] = True

    def runs(self, leaf: str, shape: Shape) -> bool:
        """Whether tasks of a leaf that ask for this run."""
        return shape in self.running.get(leaf, {})

    def count(self, leaf: str, shape: Shape) -> int:
        """How many tasks of a leaf run that ask for this."""
        return self.running.get(leaf, {}).get(shape, 0)

    def set_heads(self, heads: list[tuple[LeafEntry, list[int]]]) -> None:
        """Counts each leaf among those with these classes as their heads, and no longer among those with others."""
        headed = self.headed
        for leaf, indexes in heads:
            for index in leaf.headed:
                if headed[index] == 1:
                    del headed[index]
                else:
                    headed[index] -= 1
            leaf.headed = indexes
            for index in indexes:
                headed[index] = headed.get(index, 0) + 1

    # ------------------------------------------------------------ who is next
    def is_within(self, claim: int) -> bool:
        """Whether a leaf with this claim stays within its level after one more task."""
        return claim < _BEYOND << _BEYOND_BITS

    def next(
        self, live: list[int], *, owed: bool = False, end: int | None = None, within: bool = False
    ) -> tuple[LeafEntry, int] | None:
        """The leaf with the best claim that has a bucket of a class of tasks in the set `live` (one for each class of
        jobs), and the first such bucket whose key is below `end`; of a strict leaf only its head. `owed`: only leaves
        below their guarantee; `within`: only those that stay within their level. None where there is none.
        """
        every = self.owed if owed else self.ranks
        best: tuple[int, str, int, int] | None = None
        for job_class, ranks in enumerate(every):
            found = self._first(ranks, job_class, live[job_class], end, within)
            if found is not None:
                if len(every) == 1:
                    return found
                leaf, bucket_id = found
                rank = ranks.key[leaf.name], leaf.name, leaf.ready[job_class].found_key, bucket_id
                if best is None or rank < best:
                    best = rank
        return None if best is None else (self.leaves[best[1]], best[3])

    def _first(
        self, ranks: Ranks[str], job_class: int, live: int, end: int | None, within: bool
    ) -> tuple[LeafEntry, int] | None:
        leaves = self.leaves
        for block in ranks.blocks:
            if not block.classes & live:
                continue
            classes = 0
            for claim, name in block.entries:
                if within and claim >= _BEYOND << _BEYOND_BITS:
                    return None
                leaf = leaves[name]
                bucket_id = leaf.first_of(live, job_class, end)
                if bucket_id is not None:
                    return leaf, bucket_id
                classes |= leaf.ready[job_class].classes
            block.classes = classes
        return None
