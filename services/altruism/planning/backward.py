"""The backward pass: how late each task of a job may start so that the job still ends by `T_k` inside its share
(CARBYNE, section 3.2, lines 4 to 8, with the printed formula mended: docs/concepts/altruism.md).

The same packing runs over the graph with its edges turned. A task that starts there at `Rev` and takes `Dur` may start
as late as `T_k - (Rev + Dur)`. That packing is greedy, too, so it can take longer than `T_k`: then the tasks of the
forward packing are moved, those that end last first, as late as their children and the share allow. That always goes:
what has been moved already holds, at any instant, no more than it held there before.
"""

from bisect import bisect_left
from dataclasses import dataclass
from heapq import heappop, heappush

from services.altruism.planning.orders import Scores
from services.altruism.planning.work import Amounts, Batch, Packing, Work, how_many_fit


@dataclass(slots=True)
class _Claim:
    """What tasks that run hold from this moment on, counted from the end of the job."""

    from_ms: int
    demand: Amounts
    count: int


def latest_starts(work: Work, share: Amounts, scores: Scores, packing: Packing) -> tuple[list[Batch], bool]:
    """Latest starts of all that waits, and whether the reversed packing gave them (else the moved one did).

    `packing`: of the forward pass, in the same share; `scores`: of the turned graph.
    """
    late = _reversed(work, share, scores, packing.makespan_ms)
    if late is not None:
        return late, True
    return _moved(work, share, packing), False


# ---------------------------------------------------------------- the reversed packing
def _reversed(work: Work, share: Amounts, scores: Scores, end_ms: int) -> list[Batch] | None:
    """Latest starts by the reversed packing; None where that takes longer than `end_ms`."""
    parents = work.parents()
    bounds = [_bound(work, at, parents[at], end_ms) for at in range(len(parents))]
    claims = _claims(work, end_ms)
    waiting = work.waiting.copy()
    left = waiting.copy()
    missing = [sum([1 for child in children if waiting[child]]) for children in work.children]
    ready = [at for at, count in enumerate(waiting) if count and not missing[at]]
    free, now_ms, claimed = list(share), 0, 0
    ends: list[tuple[int, int, int]] = []
    late: list[Batch] = []
    while True:
        while claimed < len(claims) and claims[claimed].from_ms <= now_ms:
            _add(free, claims[claimed].demand, -claims[claimed].count)
            claimed += 1
        while (found := _best(work, scores, ready, waiting, free, claims[claimed:], ends, now_ms)) is not None:
            at, count = found
            end = now_ms + work.lasts_ms[at]
            if end > bounds[at]:
                return None
            waiting[at] -= count
            if not waiting[at]:
                ready.remove(at)
            _add(free, work.demand[at], -count)
            late.append(Batch(at, end_ms - end, count))
            heappush(ends, (end, at, count))
        if not ends:
            return None if ready else late[::-1]
        now_ms = ends[0][0]
        while ends and ends[0][0] == now_ms:
            _, at, count = heappop(ends)
            _add(free, work.demand[at], count)
            left[at] -= count
            if not left[at]:
                for parent in parents[at]:
                    missing[parent] -= 1
                    if not missing[parent] and waiting[parent]:
                        ready.append(parent)


def _bound(work: Work, at: int, parents: list[int], end_ms: int) -> int:
    """By when, counted from the end of the job, the tasks of a stage have to be placed: before its parents' ends."""
    bound = end_ms
    for parent in parents:
        for group in work.running[parent]:
            bound = min(bound, end_ms - group.remaining_ms)
    return bound


def _claims(work: Work, end_ms: int) -> list[_Claim]:
    """What runs, as the turned graph meets it: from `end_ms - remaining_ms` on it holds its room."""
    claims = []
    for at, groups in enumerate(work.running):
        for group in groups:
            claims.append(_Claim(end_ms - group.remaining_ms, work.demand[at], group.count))
    claims.sort(key=_from_ms)
    return claims


def _from_ms(claim: _Claim) -> int:
    return claim.from_ms


def _best(
    work: Work,
    scores: Scores,
    ready: list[int],
    waiting: list[int],
    free: list[int],
    claims: list[_Claim],
    ends: list[tuple[int, int, int]],
    now_ms: int,
) -> tuple[int, int] | None:
    """The stage to serve next and how many of its tasks; None where none fits. A score is worked out only where a
    second stage fits, which is rare."""
    best, best_score, fits, is_scored = -1, 0, 0, False
    for at in ready:
        if not how_many_fit(work.demand[at], free, 1):
            continue
        score = 0
        if best >= 0:
            if not is_scored:
                best_score, is_scored = scores.of(best, free), True
            score = scores.of(at, free)
        if best < 0 or score > best_score or (score == best_score and at < best):
            count = _fits_through(work, at, waiting[at], free, claims, ends, now_ms)
            if count:
                best, best_score, fits = at, score, count
    return (best, fits) if best >= 0 else None


def _fits_through(
    work: Work, at: int, most: int, free: list[int], claims: list[_Claim], ends: list[tuple[int, int, int]], now_ms: int
) -> int:
    """How many tasks of the stage, up to `most`, fit from now to their end beside what comes to hold room by then."""
    demand, until_ms = work.demand[at], now_ms + work.lasts_ms[at]
    count = how_many_fit(demand, free, most)
    if not claims or claims[0].from_ms >= until_ms:
        return count
    rest = list(free)
    coming = sorted(ends)
    for claim in claims:
        if claim.from_ms >= until_ms or not count:
            break
        while coming and coming[0][0] <= claim.from_ms:
            _, other, ended = coming.pop(0)
            _add(rest, work.demand[other], ended)
        _add(rest, claim.demand, -claim.count)
        count = how_many_fit(demand, rest, count)
    return count


# ---------------------------------------------------------------- the forward packing, moved
def _moved(work: Work, share: Amounts, packing: Packing) -> list[Batch]:
    """Latest starts by moving the forward packing's tasks, the last to end first."""
    profile = _Profile(share)
    bounds = [packing.makespan_ms] * len(work.children)
    for at, groups in enumerate(work.running):
        for group in groups:
            profile.take(0, group.remaining_ms, work.demand[at], group.count)
    late: list[Batch] = []
    for batch in sorted(packing.batches, key=lambda each: (-each.start_ms - work.lasts_ms[each.stage], each.stage)):
        at, count, lasts_ms = batch.stage, batch.count, work.lasts_ms[batch.stage]
        before_ms = packing.makespan_ms
        for child in work.children[at]:
            before_ms = min(before_ms, bounds[child])
        start_ms = min(before_ms - lasts_ms, bounds[at])
        while count:
            start_ms, fits = profile.latest(start_ms, lasts_ms, work.demand[at], count)
            assert start_ms >= batch.start_ms, "a task is moved to an earlier time"
            profile.take(start_ms, start_ms + lasts_ms, work.demand[at], fits)
            late.append(Batch(at, start_ms, fits))
            count -= fits
            bounds[at] = start_ms
    late.sort(key=lambda each: (each.start_ms, each.stage))
    return late


class _Profile:
    """What is free of a share over time: `free[i]` from `times[i]` to the next of `times`."""

    def __init__(self, share: Amounts) -> None:
        self.times = [0]
        self.free = [list(share)]

    def take(self, from_ms: int, to_ms: int, demand: Amounts, count: int) -> None:
        """Takes room over `[from_ms, to_ms)`."""
        first, last = self._cut(from_ms), self._cut(to_ms)
        for at in range(first, last):
            _add(self.free[at], demand, -count)

    def _cut(self, at_ms: int) -> int:
        at = bisect_left(self.times, at_ms)
        if at == len(self.times) or self.times[at] != at_ms:
            self.times.insert(at, at_ms)
            self.free.insert(at, self.free[at - 1].copy())
        return at

    def latest(self, start_ms: int, lasts_ms: int, demand: Amounts, most: int) -> tuple[int, int]:
        """The latest start up to `start_ms` at which one task fits for so long, and how many fit then."""
        at = bisect_left(self.times, start_ms + lasts_ms) - 1
        fits = most
        while at >= 0 and self._ends(at) > start_ms:
            here = how_many_fit(demand, self.free[at], most)
            if here:
                fits = min(fits, here)
            else:
                start_ms, fits = self.times[at] - lasts_ms, most
            at -= 1
        return start_ms, fits

    def _ends(self, at: int) -> int:
        return self.times[at + 1] if at + 1 < len(self.times) else 1 << 62


def _add(free: list[int], demand: Amounts, count: int) -> None:
    for kind, amount in enumerate(demand):
        if amount:
            free[kind] += amount * count
