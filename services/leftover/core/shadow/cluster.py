"""The shadow cluster moves: a replay of a cell's jobs in virtual time under DRF, in which jobs end in some order (FSP:
Friedman and Henderson, "Fairness and efficiency in web server protocols", SIGMETRICS 2003; docs/concepts/shadow.md).

It is one pool with the capacity of the whole cell. Like tasks start together, some at a time, and end together; the job
with the least dominant share goes first, of the leaf with the least share of what H-DRF guarantees it among the leaves
that have jobs. A job that needs more of a kind than is free waits for that kind, behind those of its leaf that do so
with a smaller share; others pass it. Work is counted in steps and can be left off after any of them.
"""

from heapq import heappop, heappush
from typing import Final

from schemas import Queue
from schemas.quantities import SHARE_UNITS, largest_share
from services.leftover.core.shadow.leaves import (
    add_leaf,
    has_top,
    lacks,
    leaves_of,
    next_leaf,
    note_leaf,
    read,
    tidy,
    top_of,
)
from services.leftover.core.shadow.state import LINE, NOTHING_SHORT, NOWHERE, OVER, Cluster, Lines, Run, Shadow, Work

CHUNKS: Final = 10
"""Tasks that start in one step come to at most this part of an equal share (or are one): fewer are more exact, and
cost more steps."""

LEAVES_A_STEP: Final = 8
"""Leaves that can be looked through for the next job for one step more."""

NOBODY: Final = -1
"""In place of a job: none."""

NO_LIMIT: Final = -1
"""In place of how many tasks of a stage run at a time: as many as it has."""


# ---------------------------------------------------------------- reading and copying
def fork(base: Cluster) -> Cluster:
    """A cluster that goes on from where `base` is; jobs are copied when one of the two changes them (`own`)."""
    lines = {leaf: line.copied() for leaf, line in base.lines.items()}
    free, running, waits = base.free.copy(), base.running.copy(), base.waits.copy()
    found = Cluster(base.now_ms, free, {}, running, lines, base.open, base.weighs, waits)
    if base.leaves is not None:
        found.leaves = base.leaves.copied(list(lines.values()))
    return found


def own(shadow: Shadow, cluster: Cluster, job: int) -> Run:
    """A job of a cluster, to be changed: the other cluster keeps what it was."""
    ahead = shadow.ahead
    if cluster is shadow.base:
        run = cluster.runs[job]
        if ahead is not None and job not in ahead.runs:
            ahead.runs[job] = run.copied()
        return run
    found = cluster.runs.get(job)
    if found is None:
        found = cluster.runs[job] = shadow.base.runs[job].copied()
    return found


# ---------------------------------------------------------------- jobs come and go
def arrive(shadow: Shadow, job: int, run: Run) -> None:
    """A job joins the base."""
    base, work = shadow.base, shadow.works[job]
    base.runs[job] = run
    if any(run.waits):
        base.waits[job] = True
    line = base.lines.get(work.leaf)
    if line is None:
        line = base.lines[work.leaf] = Lines([], [[] for _ in shadow.kinds], [0] * len(shadow.kinds))
        add_leaf(base, work.leaf, line)
    line.live += 1
    base.weighs = base.open = True
    note_leaf(base, line)
    _queue(line, job, run, LINE)


def leave(shadow: Shadow, job: int) -> None:
    """A job is over before it has ended in the shadow: what it holds there is free. Both clusters must be told: `ahead`
    is thrown away."""
    shadow.ahead = None
    base, run = shadow.base, shadow.base.runs.pop(job)
    base.waits.pop(job, None)
    line = base.lines[shadow.works[job].leaf]
    for p, amount in enumerate(run.held):
        base.free[p] += amount
        line.held[p] -= amount
    line.share = largest_share(line.held, shadow.total)
    _less(base, line)
    note_leaf(base, line)
    base.open = True


def forget(shadow: Shadow, job: int) -> None:
    """A job that leaves may come back: nothing of it may be left that would be taken for what it does then."""
    base, line = shadow.base, shadow.base.lines[shadow.works[job].leaf]
    base.running = sorted([entry for entry in base.running if entry[1] != job])
    for heap in (line.turn, *line.parked):
        heap[:] = sorted([entry for entry in heap if entry[1] != job])


def _less(cluster: Cluster, line: Lines) -> None:
    line.live -= 1
    cluster.weighs = cluster.weighs or not line.live


def _queue(line: Lines, job: int, run: Run, at: int) -> None:
    """A job waits for its turn or for a kind, if it has anything left to start."""
    if not run.ready:
        run.at = NOWHERE
        return
    run.at = at
    heappush(line.turn if at == LINE else line.parked[at], (run.share, job))


# ---------------------------------------------------------------- steps
def advance(
    shadow: Shadow, cluster: Cluster, tree: Queue | None, until_ms: int | None, steps: int, seen: list[tuple[int, int]]
) -> int:
    """Moves a cluster up to a moment (None: until all tasks have started) in about so many steps; how many are left, 0
    where it has not got there. Jobs whose last task starts are added to `seen`, as (when they end, job).
    """
    while steps > 0:
        if cluster.open:
            steps = _serve(shadow, cluster, tree, steps, seen)
            continue
        running = cluster.running
        if not running or (running[0][0] > until_ms if until_ms is not None else not cluster.waits):
            break
        if until_ms is None and len(cluster.lines) == 1 and cluster is not shadow.base:
            line = next(iter(cluster.lines.values()))
            p = _blocked_alone(shadow, cluster, line)
            if p != NOWHERE:
                steps = _drain(shadow, cluster, line, p, steps, seen)
                continue
        cluster.now_ms = running[0][0]
        while running and running[0][0] == cluster.now_ms:
            _, job, stage, count = heappop(running)
            _end(shadow, cluster, job, stage, count)
            steps -= 1
        cluster.open = True
    return max(0, steps)


def _blocked_alone(shadow: Shadow, cluster: Cluster, line: Lines) -> int:
    """The kind that all who wait in a leaf wait for, where a job of one task is the first of them; else NOWHERE."""
    found = NOWHERE
    for p, parked in enumerate(line.parked):
        if parked:
            if found != NOWHERE:
                return NOWHERE
            found = p
    if found == NOWHERE or line.turn or top_of(shadow, cluster, line.parked[found], found) is None:
        return NOWHERE
    tasks = shadow.works[line.parked[found][0][1]].tasks
    return found if len(tasks) == 1 == tasks[0] else NOWHERE


def _drain(shadow: Shadow, cluster: Cluster, line: Lines, p: int, steps: int, seen: list[tuple[int, int]]) -> int:
    """The same as `advance` in the cluster that looks ahead, in fewer words, as long as all wait in one line for one
    kind and a job of one task is the first of them: such a job starts once there is enough for it, and is over when its
    task ends. So it is with most jobs, and each is looked at again and again. How many steps are left.
    """
    works, runs, running, waits = shadow.works, cluster.runs, cluster.running, cluster.waits
    free, parked, line.part = cluster.free, line.parked[p], SHARE_UNITS
    both = [amount + held for amount, held in zip(free, line.held, strict=True)]  # It moves from one to the other.
    head, needs = NOBODY, NOTHING_SHORT  # Who is the first in line, and what its task needs.
    is_alike = True  # All wait as before.
    while steps > 0 and running and waits and is_alike:
        now_ms = cluster.now_ms = running[0][0]
        ended, is_alike = _end_next(shadow, cluster, line)
        steps -= ended
        cluster.open, cluster.weighs = True, steps <= 0 and not line.live
        while steps > 0 and is_alike:
            if head == NOBODY:
                run = top_of(shadow, cluster, parked, p)
                if run is None:
                    cluster.open = False
                    break
                head = parked[0][1]
                work = works[head]
                needs = work.needs[0]
                if len(work.tasks) > 1 or work.tasks[0] > 1:
                    is_alike = False
                    break
            lacked = NOWHERE
            for kind, amount in needs:
                if amount > free[kind]:
                    lacked = kind
                    break
            if lacked == p:
                cluster.open = False
                break
            if lacked != NOWHERE:
                is_alike = False
                break
            heappop(parked)
            work = works[head]
            for kind, amount in needs:
                free[kind] = free[kind] - amount
            end_ms = now_ms + work.lasts_ms[0]
            runs[head] = work.started or _started(shadow, work)
            del waits[head]
            seen.append((end_ms, head))
            heappush(running, (end_ms, head, 0, 1))
            head = NOBODY
            steps -= 1
    line.held = [amount - left for amount, left in zip(both, free, strict=True)]
    line.share = largest_share(line.held, shadow.total)
    return steps


def _end_next(shadow: Shadow, cluster: Cluster, line: Lines) -> tuple[int, bool]:
    """Ends what runs until the next moment in a cluster that looks ahead: how much, and whether all those jobs are
    over. What the leaf holds is not brought up to date."""
    base_runs, works, runs, running, free = shadow.base.runs, shadow.works, cluster.runs, cluster.running, cluster.free
    ended, are_over, at_ms = 0, True, running[0][0]
    while running and running[0][0] == at_ms:
        _, job, stage, count = heappop(running)
        ended += 1
        run = runs.get(job) or base_runs.get(job)
        if run is None:
            continue  # The job is over: its room was given back then.
        if len(run.left) > 1 or run.left[0] != count:
            _end(shadow, cluster, job, stage, count)
            are_over = False
            continue
        for kind, amount in works[job].needs[0]:
            free[kind] = free[kind] + amount * count
        line.live -= 1
        runs[job] = OVER
    return ended, are_over


def _end(shadow: Shadow, cluster: Cluster, job: int, stage: int, count: int) -> None:
    """Tasks of a job have ended."""
    known = read(shadow, cluster, job)
    if known is None:
        return  # The job is over: its room was given back then.
    work, free = shadow.works[job], cluster.free
    line, needs = cluster.lines[work.leaf], work.needs[stage]
    held = line.held
    note_leaf(cluster, line)
    for p, amount in needs:
        held[p] = held[p] - amount * count
        free[p] = free[p] + amount * count
    line.share = largest_share(held, shadow.total)
    if known.left[stage] == count == sum(known.left):
        _less(cluster, line)
        _end_job(shadow, cluster, job)
        return
    run = own(shadow, cluster, job)
    held = run.held
    for p, amount in needs:
        held[p] = held[p] - amount * count
    share, before = largest_share(run.held, shadow.total), run.share
    run.share = share
    run.left[stage] -= count
    woken = _release(run, work, stage) if not run.left[stage] else _reopen(run, work, stage)
    if woken or (run.ready and share != before):
        _queue(line, job, run, LINE if woken else run.at)


def _end_job(shadow: Shadow, cluster: Cluster, job: int) -> None:
    """All tasks of a job have ended."""
    if cluster is shadow.base:
        own(shadow, cluster, job)
        del cluster.runs[job]
        if job not in shadow.ends:
            del shadow.works[job]
    else:
        cluster.runs[job] = OVER


def _release(run: Run, work: Work, stage: int) -> bool:
    """A stage is over: whether others may start now."""
    woken = False
    for child in work.children[stage]:
        run.parents[child] -= 1
        if not run.parents[child]:
            run.ready = [*run.ready, child]
            woken = True
    if woken:
        path_ms = work.path_ms
        run.ready = [at for _, at in sorted([(-path_ms[at], at) for at in run.ready])]
    return woken


def _reopen(run: Run, work: Work, stage: int) -> bool:
    """Tasks of a stage are over: whether others may start in their places where its limit had been reached."""
    if stage not in work.most or not run.waits[stage] or stage in run.ready:
        return False
    path_ms = work.path_ms
    run.ready = [at for _, at in sorted([(-path_ms[at], at) for at in [*run.ready, stage]])]
    return True


def _serve(shadow: Shadow, cluster: Cluster, tree: Queue | None, steps: int, seen: list[tuple[int, int]]) -> int:
    """Starts tasks until none fits, or the steps are used up; how many are left."""
    cluster.weighs = False
    if len(cluster.lines) == 1:
        line = next(iter(cluster.lines.values()))
        line.part = SHARE_UNITS
        return _serve_leaf(shadow, cluster, line, steps, seen)
    price = 1 + len(cluster.lines) // LEAVES_A_STEP
    while steps > 0:
        leaves = leaves_of(shadow, cluster, tree)
        served = next_leaf(shadow, cluster, leaves)
        if served is None:
            cluster.open = False
            break
        most = SHARE_UNITS // (CHUNKS * max(1, leaves.live))
        _start(shadow, cluster, served, _take_first(shadow, cluster, served), most, seen)
        note_leaf(cluster, served)
        steps -= price
    return steps


def _serve_leaf(shadow: Shadow, cluster: Cluster, line: Lines, steps: int, seen: list[tuple[int, int]]) -> int:
    """The same where all jobs are of one leaf."""
    tidy(shadow, cluster, line)
    most = SHARE_UNITS // (CHUNKS * max(1, line.live))
    while steps > 0:
        job = _take_first(shadow, cluster, line) if line.live else NOBODY
        if job == NOBODY:
            cluster.open = False
            break
        _start(shadow, cluster, line, job, most, seen)
        steps -= 1
    return steps


def _take_first(shadow: Shadow, cluster: Cluster, line: Lines) -> int:
    """Takes out of its heap the job of a leaf with the least share that may be served: the first in line, or the first
    that waits for a kind of which there is enough for it by now. NOBODY where there is none.
    """
    heap, share, first = line.turn, 0, NOBODY
    if has_top(shadow, cluster, heap, LINE):
        share, first = heap[0]
    for p, parked in enumerate(line.parked):
        run = top_of(shadow, cluster, parked, p) if parked else None
        if run is None:
            continue
        its_share, job = parked[0]
        if first != NOBODY and (its_share > share or (its_share == share and job > first)):
            continue
        if lacks(cluster, shadow.works[job], run.ready[0]) != p:
            heap, share, first = parked, its_share, job
    if first != NOBODY:
        heappop(heap)
    return first


def _start(shadow: Shadow, cluster: Cluster, line: Lines, job: int, most: int, seen: list[tuple[int, int]]) -> None:
    """Starts some tasks of a job, of its first stage of which one fits; where there is none the job waits for what the
    first of its stages lacks. `most`: the shares of those tasks together, but for one task. When its last task has
    started it is `seen` to end."""
    work, free = shadow.works[job], cluster.free
    if len(work.tasks) == 1 == work.tasks[0] and cluster is not shadow.base and lacks(cluster, work, 0) == NOWHERE:
        _start_alone(shadow, cluster, line, job, work, seen)
        return
    run = own(shadow, cluster, job)
    for stage in run.ready:
        if lacks(cluster, work, stage) != NOWHERE:
            continue
        needs, held, of_leaf = work.needs[stage], run.held, line.held
        count = min(run.waits[stage], max(1, most // max(1, work.shares[stage])))
        at_once = work.most.get(stage, NO_LIMIT)
        if at_once != NO_LIMIT:
            count = min(count, at_once - run.left[stage] + run.waits[stage])
        for p, amount in needs:
            count = min(count, free[p] // amount)
        for p, amount in needs:
            free[p] = free[p] - amount * count
            held[p] = held[p] + amount * count
            of_leaf[p] = of_leaf[p] + amount * count
        run.share, line.share = largest_share(held, shadow.total), largest_share(of_leaf, shadow.total)
        run.waits[stage] -= count
        if not run.waits[stage] or run.left[stage] - run.waits[stage] == at_once:
            run.ready = [other for other in run.ready if other != stage]
        end_ms = cluster.now_ms + work.lasts_ms[stage]
        run.until_ms = max(run.until_ms, end_ms)
        if not run.waits[stage] and not any(run.waits):
            del cluster.waits[job]
            seen.append((run.until_ms, job))
        heappush(cluster.running, (end_ms, job, stage, count))
        _queue(line, job, run, LINE)
        return
    _queue(line, job, run, lacks(cluster, work, run.ready[0]))


def _start_alone(
    shadow: Shadow, cluster: Cluster, line: Lines, job: int, work: Work, seen: list[tuple[int, int]]
) -> None:
    """Starts the task of a job that has but one, in the cluster that looks ahead: nothing of such a job changes there
    any more until it ends, so that it is the same each time that is looked ahead."""
    free, of_leaf = cluster.free, line.held
    for p, amount in work.needs[0]:
        free[p] -= amount
        of_leaf[p] += amount
    line.share = largest_share(of_leaf, shadow.total)
    cluster.runs[job] = work.started or _started(shadow, work)
    end_ms = cluster.now_ms + work.lasts_ms[0]
    del cluster.waits[job]
    seen.append((end_ms, job))
    heappush(cluster.running, (end_ms, job, 0, 1))


def _started(shadow: Shadow, work: Work) -> Run:
    """How far a job of one task is once that has started."""
    held = [0] * len(shadow.kinds)
    for p, amount in work.needs[0]:
        held[p] = amount
    run = work.started = Run([1], [0], [0], [], held, largest_share(held, shadow.total), NOWHERE)
    return run
