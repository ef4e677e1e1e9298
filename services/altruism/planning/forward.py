"""The forward pass: a job's remaining graph, packed greedily inside its share (CARBYNE, section 3.2, line 3).

Its length is the job's `T_k`. At each instant the best stage by the order starts as many tasks as fit, then the next
best for what is then free, until none fits; time goes on to the next end of a task.
"""

from heapq import heapify, heappop, heappush

from services.altruism.planning.orders import Scores
from services.altruism.planning.work import Amounts, Batch, Packing, Work, how_many_fit


def pack(work: Work, share: Amounts, scores: Scores) -> Packing:
    """Packs what waits beside what runs; `share` has to take the largest waiting task (`widened`).

    What runs may hold more than the share: then nothing starts that needs of it until enough has ended.
    """
    parents = [len(each) for each in work.parents()]
    left = [work.left(at) for at in range(len(parents))]
    waiting = work.waiting.copy()
    free = list(share)
    ends: list[tuple[int, int, int]] = []
    for at, groups in enumerate(work.running):
        for group in groups:
            ends.append((group.remaining_ms, at, group.count))
            _take(free, work.demand[at], group.count)
    heapify(ends)
    ready = [at for at, count in enumerate(waiting) if count and not parents[at]]
    packing = Packing([], 0)
    while True:
        _start_all(work, scores, packing, ready, waiting, free, ends)
        if not ends:
            assert not ready, "a task is larger than the share"
            packing.steps = len(packing.batches)
            return packing
        packing.makespan_ms = now_ms = ends[0][0]
        while ends and ends[0][0] == now_ms:
            _, at, count = heappop(ends)
            _take(free, work.demand[at], -count)
            left[at] -= count
            if not left[at]:
                for child in work.children[at]:
                    parents[child] -= 1
                    if not parents[child] and waiting[child]:
                        ready.append(child)


def _start_all(
    work: Work,
    scores: Scores,
    packing: Packing,
    ready: list[int],
    waiting: list[int],
    free: list[int],
    ends: list[tuple[int, int, int]],
) -> None:
    """Starts what fits at the packing's present end."""
    now_ms = packing.makespan_ms
    while (best := _best(work, scores, ready, free)) >= 0:
        count = how_many_fit(work.demand[best], free, waiting[best])
        waiting[best] -= count
        if not waiting[best]:
            ready.remove(best)
        _take(free, work.demand[best], count)
        packing.batches.append(Batch(best, now_ms, count))
        heappush(ends, (now_ms + work.lasts_ms[best], best, count))


def _best(work: Work, scores: Scores, ready: list[int], free: list[int]) -> int:
    """The stage to serve next of those of which a task fits; -1 where none does. A score is worked out only where a
    second stage fits, which is rare."""
    best, best_score, is_scored = -1, 0, False
    for at in ready:
        if how_many_fit(work.demand[at], free, 1):
            if best < 0:
                best = at
                continue
            if not is_scored:
                best_score, is_scored = scores.of(best, free), True
            score = scores.of(at, free)
            if score > best_score or (score == best_score and at < best):
                best, best_score = at, score
    return best


def _take(free: list[int], demand: Amounts, count: int) -> None:
    for kind, amount in enumerate(demand):
        if amount:
            free[kind] -= amount * count
