"""The backward pass: how late each task of a job may start so that the job still ends by `T_k` inside its share
(CARBYNE, section 3.2, lines 4 to 8, with the printed formula mended: docs/concepts/altruism.md).

The same packing runs over the graph with its edges turned. A task that starts there at `Rev` and takes `Dur` may start
as late as `T_k - (Rev + Dur)`. That packing is greedy, too, so it can take longer than `T_k`: then the tasks of the
forward packing are moved, those that end last first, as late as their children and the share allow. That always goes:
what has been moved already holds, at any instant, no more than it held there before.
"""

from bisect import bisect_left

from services.altruism.planning.orders import Scores
from services.altruism.planning.sweep import NEVER, Claim, Sweep, add
from services.altruism.planning.work import Amounts, Batch, Packing, Work, how_many_fit


def latest_starts(work: Work, share: Amounts, scores: Scores, packing: Packing) -> tuple[list[Batch], bool, int]:
    """Latest starts of all that waits, whether the reversed packing gave them (else the moved one did), and how many
    steps that took.

    `packing`: of the forward pass, in the same share; `scores`: of the turned graph.
    """
    late, steps = _reversed(work, share, scores, packing.makespan_ms)
    if late is not None:
        return late, True, steps
    starts = _moved(work, share, packing)
    return _in_waves(work, starts), False, steps + sum([len(of_stage) for of_stage in starts])


# ---------------------------------------------------------------- the reversed packing
def _reversed(work: Work, share: Amounts, scores: Scores, end_ms: int) -> tuple[list[Batch] | None, int]:
    """Latest starts by the reversed packing, None where that takes longer than `end_ms`; and its steps."""
    parents = work.parents()
    missing = [sum([1 for child in children if work.waiting[child]]) for children in work.children]
    sweep = Sweep(work, share, scores, parents, work.waiting.copy(), missing)
    sweep.bounds = [_bound(work, parents[at], end_ms) for at in range(len(parents))]
    sweep.claims = _claims(work, end_ms)
    if not sweep.run() or sweep.ready:
        return None, sweep.steps
    late = []
    for batch in reversed(sweep.batches):
        start_ms = end_ms - batch.start_ms - batch.waves * work.lasts_ms[batch.stage]
        late.append(Batch(batch.stage, start_ms, batch.count, batch.waves))
    return late, sweep.steps


def _bound(work: Work, parents: list[int], end_ms: int) -> int:
    """By when, counted from the end of the job, the tasks of a stage have to be placed: before its parents' ends."""
    bound = end_ms
    for parent in parents:
        for group in work.running[parent]:
            bound = min(bound, end_ms - group.remaining_ms)
    return bound


def _claims(work: Work, end_ms: int) -> list[Claim]:
    """What runs, as the turned graph meets it: from `end_ms - remaining_ms` on it holds its room."""
    claims = []
    for at, groups in enumerate(work.running):
        for group in groups:
            claims.append(Claim(end_ms - group.remaining_ms, work.demand[at], group.count))
    claims.sort(key=_from_ms)
    return claims


def _from_ms(claim: Claim) -> int:
    return claim.from_ms


# ---------------------------------------------------------------- the forward packing, moved
def _moved(work: Work, share: Amounts, packing: Packing) -> list[dict[int, int]]:
    """Latest starts by moving the forward packing's tasks, the last to end first: each wave for itself, since the room
    that others leave late is scattered. By stage and moment, how many tasks start.
    """
    profile = _Profile(share)
    bounds = [packing.makespan_ms] * len(work.children)
    for at, groups in enumerate(work.running):
        for group in groups:
            profile.take(0, group.remaining_ms, work.demand[at], group.count)
    starts: list[dict[int, int]] = [{} for _ in work.children]
    for key in _waves(work, packing):
        batch = packing.batches[key % len(packing.batches)]
        at, count, lasts_ms = batch.stage, batch.count, work.lasts_ms[batch.stage]
        before_ms = packing.makespan_ms
        for child in work.children[at]:
            before_ms = min(before_ms, bounds[child])
        start_ms = min(before_ms - lasts_ms, bounds[at])
        while count:
            start_ms, fits = profile.latest(start_ms, lasts_ms, work.demand[at], count)
            assert start_ms >= 0, "a task is moved to an earlier time"
            profile.take(start_ms, start_ms + lasts_ms, work.demand[at], fits)
            starts[at][start_ms] = starts[at].get(start_ms, 0) + fits
            count -= fits
            bounds[at] = start_ms
    return starts


def _waves(work: Work, packing: Packing) -> list[int]:
    """Every wave of a packing, the last to end first, ties by stage; as numbers, which sort faster than tuples: the
    position of its batch is the remainder by the number of batches.
    """
    waves = []
    for i, batch in enumerate(packing.batches):
        lasts_ms = work.lasts_ms[batch.stage]
        left_ms = packing.makespan_ms - batch.start_ms - batch.waves * lasts_ms
        for _ in range(batch.waves):
            waves.append((left_ms * len(work.children) + batch.stage) * len(packing.batches) + i)
            left_ms += lasts_ms
    waves.sort()
    return waves


def _in_waves(work: Work, starts: list[dict[int, int]]) -> list[Batch]:
    """The same starts as batches: where as many tasks of a stage start without a gap, as waves of one."""
    found: list[Batch] = []
    for at, of_stage in enumerate(starts):
        ends: dict[int, int] = {}
        for start_ms in sorted(of_stage):
            count, i = of_stage[start_ms], ends.pop(start_ms, -1)
            if i < 0 or found[i].count != count:
                i = len(found)
                found.append(Batch(at, start_ms, count, 0))
            found[i].waves += 1
            ends[start_ms + work.lasts_ms[at]] = i
    return found


class _Profile:
    """What is free of a share over time: `free[i]` from `times[i]` to the next of `times`."""

    def __init__(self, share: Amounts) -> None:
        self.times = [0]
        self.free = [list(share)]

    def take(self, from_ms: int, to_ms: int, demand: Amounts, count: int) -> None:
        """Takes room over `[from_ms, to_ms)`."""
        first, last = self._cut(from_ms), self._cut(to_ms)
        for at in range(first, last):
            add(self.free[at], demand, -count)
        self._join(last)
        self._join(first)

    def _cut(self, at_ms: int) -> int:
        at = bisect_left(self.times, at_ms)
        if at == len(self.times) or self.times[at] != at_ms:
            self.times.insert(at, at_ms)
            self.free.insert(at, self.free[at - 1].copy())
        return at

    def _join(self, at: int) -> None:
        """Forgets a moment at which what is free does not change."""
        if at and self.free[at] == self.free[at - 1]:
            del self.times[at], self.free[at]

    def latest(self, start_ms: int, lasts_ms: int, demand: Amounts, most: int) -> tuple[int, int]:
        """The latest start up to `start_ms` at which one task fits for so long, and how many fit then."""
        times, free = self.times, self.free
        at = bisect_left(times, start_ms + lasts_ms) - 1
        ends_ms = times[at + 1] if at + 1 < len(times) else NEVER
        fits = most
        while at >= 0 and ends_ms > start_ms:
            here = how_many_fit(demand, free[at], most)
            ends_ms = times[at]
            if here:
                fits = min(fits, here)
            else:
                start_ms, fits = ends_ms - lasts_ms, most
            at -= 1
        return start_ms, fits
