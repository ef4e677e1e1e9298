"""Which leaf of the shadow cluster is served next, where it has several: the one with the least share of what it is
guaranteed of those that have a job which may start, or has to wait for another kind.

What is known of leaves is kept while a cluster moves: a step costs those that something has changed for, and those that
may be served. It is a cache, made again where it is missing.
"""

from bisect import bisect_left, insort
from heapq import heappop
from typing import Final

from schemas import Queue
from schemas.quantities import SHARE_UNITS
from schemas.queue_tree import below
from services.leftover.core.shadow.state import (
    INNER,
    LINE,
    NO_LEAF,
    NOTHING_SHORT,
    NOWHERE,
    Branch,
    Cluster,
    Leaves,
    Lines,
    Run,
    Shadow,
    Work,
)

_STRAYS_MAX: Final = 64
"""Entries of a heap that say nothing any more, before anybody counts them."""


# ---------------------------------------------------------------- who is next
def next_leaf(shadow: Shadow, cluster: Cluster, leaves: Leaves) -> Lines | None:
    """The leaf to serve; None: none has a job that may be served."""
    best, least = NO_LEAF, 0
    for p, entries in enumerate(leaves.short):
        free = cluster.free[p]
        for amount, at in entries:
            if amount > free:
                break
            claim = _claim(leaves, at)
            if best == NO_LEAF or claim < least or (claim == least and at < best):
                best, least = at, claim
    for at in leaves.others:
        if _may_serve(shadow, cluster, leaves.lines[at]):
            claim = _claim(leaves, at)
            if best == NO_LEAF or claim < least or (claim == least and at < best):
                best, least = at, claim
    return leaves.lines[best] if best != NO_LEAF else None


def _claim(leaves: Leaves, at: int) -> int:
    """What leaves are served by, least first."""
    line, number = leaves.lines[at], leaves.in_tree[at]
    if not line.share:
        return 0
    if number != NO_LEAF:
        line.part = _part(leaves, leaves.branches[number])
    return line.share * SHARE_UNITS // max(1, line.part)


def _part(leaves: Leaves, branch: Branch) -> int:
    """What a queue is guaranteed: its part, by weights, among the queues beside it that have jobs."""
    if branch.turn != leaves.turn:
        branch.turn = leaves.turn
        if branch.parent != NO_LEAF:
            parent = leaves.branches[branch.parent]
            branch.part = _part(leaves, parent) * branch.weight // max(1, parent.weights)
    return branch.part


# ---------------------------------------------------------------- what is known of leaves
def leaves_of(shadow: Shadow, cluster: Cluster, tree: Queue | None) -> Leaves:
    """What is known of the leaves of a cluster, up to date."""
    leaves = cluster.leaves
    if leaves is None:
        leaves = cluster.leaves = Leaves(list(cluster.lines.values()), len(shadow.kinds))
        for at, line in enumerate(leaves.lines):
            line.at, leaves.changed[at] = at, True
        if tree is not None and tree.children:
            _branch(leaves, cluster, tree, "", NO_LEAF)
        else:
            for line in leaves.lines:
                line.part = SHARE_UNITS
    for at in leaves.changed:
        _look_at(shadow, cluster, leaves, at)
    leaves.changed = {}
    return leaves


def add_leaf(cluster: Cluster, path: str, line: Lines) -> None:
    """There is one leaf more."""
    leaves, number = cluster.leaves, NO_LEAF
    if leaves is None:
        return
    if leaves.branches:
        number = leaves.numbers.get(path, NO_LEAF)
        if number == INNER:
            cluster.leaves = None  # What is below this queue is served as one from now on.
            return
    else:
        line.part = SHARE_UNITS
    line.at = len(leaves.lines)
    leaves.lines.append(line)
    leaves.in_tree.append(number)
    leaves.counts.append(0)
    leaves.short_of.append(NOTHING_SHORT)


def note_leaf(cluster: Cluster, line: Lines) -> None:
    """Something has changed for a leaf."""
    if cluster.leaves is not None:
        cluster.leaves.changed[line.at] = True


def _branch(leaves: Leaves, cluster: Cluster, queue: Queue, path: str, parent: int) -> None:
    """Adds a queue, and those below it unless it is served as one."""
    number, line = len(leaves.branches), cluster.lines.get(path)
    leaves.branches.append(Branch(parent, queue.weight))
    leaves.numbers[path] = number
    if line is not None:
        leaves.in_tree[line.at] = number
        return
    if queue.children:
        leaves.numbers[path] = INNER
    for child in queue.children:
        _branch(leaves, cluster, child, below(path, child.name), number)


def _look_at(shadow: Shadow, cluster: Cluster, leaves: Leaves, at: int) -> None:
    """Files a leaf by how many jobs it has, and by the first kind that a task of each that waits for one needs."""
    line = leaves.lines[at]
    _count(leaves, at, line.live)
    if leaves.short_of[at]:
        for p, amount in leaves.short_of[at]:
            entries = leaves.short[p]
            del entries[bisect_left(entries, (amount, at))]
        leaves.short_of[at] = NOTHING_SHORT
    if leaves.others:
        leaves.others.pop(at, None)
    tidy(shadow, cluster, line)
    if has_top(shadow, cluster, line.turn, LINE):
        leaves.others[at] = True
    for p, parked in enumerate(line.parked):
        run = top_of(shadow, cluster, parked, p) if parked else None
        if run is None:
            continue
        first, amount = shadow.works[parked[0][1]].needs[run.ready[0]][0]
        if first == p:
            insort(leaves.short[p], (amount, at))
            leaves.short_of[at] = [*leaves.short_of[at], (p, amount)]
        else:
            leaves.others[at] = True


def _count(leaves: Leaves, at: int, live: int) -> None:
    """Sets how many jobs of a leaf have not ended."""
    before, number = leaves.counts[at], leaves.in_tree[at]
    leaves.counts[at] = live
    leaves.live += live - before
    if (live > 0) == (before > 0) or number == NO_LEAF:
        return
    leaves.turn += 1
    branch, is_live = leaves.branches[number], live > 0
    while branch.parent != NO_LEAF:
        parent = leaves.branches[branch.parent]
        parent.weights += branch.weight if is_live else -branch.weight
        parent.live += 1 if is_live else -1
        if parent.live != (1 if is_live else 0):
            break
        branch = parent


# ---------------------------------------------------------------- heaps of jobs
def read(shadow: Shadow, cluster: Cluster, job: int) -> Run | None:
    """A job of a cluster; what one that looks ahead has not changed is as in the base."""
    return cluster.runs.get(job) or shadow.base.runs.get(job)


def tidy(shadow: Shadow, cluster: Cluster, line: Lines) -> None:
    """Entries that say nothing any more go once they are most of a heap."""
    most = 2 * line.live + _STRAYS_MAX
    for at in range(LINE, len(line.parked)):
        heap = line.turn if at == LINE else line.parked[at]
        if len(heap) > most:
            kept: dict[tuple[int, int], bool] = {}
            for entry in heap:
                if _holds(shadow, cluster, entry[0], entry[1], at):
                    kept[entry] = True
            heap[:] = sorted(kept)


def has_top(shadow: Shadow, cluster: Cluster, heap: list[tuple[int, int]], at: int) -> bool:
    """Whether something is left of a heap that says where a job waits, and by which share."""
    return top_of(shadow, cluster, heap, at) is not None


def top_of(shadow: Shadow, cluster: Cluster, heap: list[tuple[int, int]], at: int) -> Run | None:
    """The job that a heap begins with, once what says nothing any more is dropped; None where nothing is left."""
    while heap:
        share, job = heap[0]
        run = cluster.runs.get(job) or shadow.base.runs.get(job)
        if run is not None and run.at == at and run.share == share and run.ready:
            return run
        heappop(heap)
    return None


def _holds(shadow: Shadow, cluster: Cluster, share: int, job: int, at: int) -> bool:
    """Whether an entry of a heap still says where its job waits, and by which share."""
    run = read(shadow, cluster, job)
    return run is not None and run.at == at and run.share == share and len(run.ready) > 0


def _may_serve(shadow: Shadow, cluster: Cluster, line: Lines) -> bool:
    """Whether a leaf has a job whose turn it is, or one that waits for a kind of which there is enough for it now."""
    if has_top(shadow, cluster, line.turn, LINE):
        return True
    for p, parked in enumerate(line.parked):
        run = top_of(shadow, cluster, parked, p) if parked else None
        if run is not None and lacks(cluster, shadow.works[parked[0][1]], run.ready[0]) != p:
            return True
    return False


def lacks(cluster: Cluster, work: Work, stage: int) -> int:
    """The first kind of which there is not enough for a task of a stage; NOWHERE: there is."""
    free = cluster.free
    for p, amount in work.needs[stage]:
        if amount > free[p]:
            return p
    return NOWHERE
