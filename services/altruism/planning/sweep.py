"""The greedy packing that both passes of a plan are: at each instant the best stage by the order starts as many tasks
as fit, then the next best for what is then free, until none fits; time goes on to the next end of a task.

In a share of a few tasks, a stage of hundreds runs in waves: nearly always, one group of tasks ends and as many of the
same stage start in its place. What such a *renewal* decides depends only on what is free beside that group and on which
stages are ready. As long as neither changes, it is decided once for a stage and a size of group, and all renewals
before the next other event are counted at once: the next end of a group that does not renew itself, two ends at the
same moment, a stage of which too few tasks wait. So cost follows stages and groups, not tasks, and every task starts
exactly when a packing that decides each instant would start it.
"""

from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from math import gcd

from services.altruism.planning.orders import Scores
from services.altruism.planning.work import Amounts, Batch, Work, how_many_fit

NEVER = 1 << 62
"""Later than any moment of a plan."""


@dataclass(slots=True)
class Claim:
    """What tasks that run hold from a moment of the packing on."""

    from_ms: int
    demand: Amounts
    count: int


class Sweep:
    """One packing of what waits, inside a share. `nexts`: by stage, those that may start once it is over; `missing`:
    for how many stages it waits; `left`: its tasks that have not ended; `claims`: room that is taken later, the
    earliest first; `bounds`: by stage, when its tasks have to have ended.

    `ends`: a heap of (end, stage, tasks, position in `batches`; -1: these ran before). `free`: what is not held now.
    `settled`: the groups (stage, tasks) that renew themselves while `free`, between instants, and `ready` stay as they
    are; `in_turn`: renewals since the last other instant, one by one. `longest_ms`: of the tasks of stages that are
    ready. `steps`: instants that were looked at.
    """

    def __init__(
        self, work: Work, share: Amounts, scores: Scores, nexts: list[list[int]], left: list[int], missing: list[int]
    ) -> None:
        self.work = work
        self.scores = scores
        self.nexts = nexts
        self.left = left
        self.missing = missing
        self.waiting = work.waiting.copy()
        self.free = list(share)
        self.ready = [at for at, count in enumerate(self.waiting) if count and not missing[at]]
        self.ends: list[tuple[int, int, int, int]] = []
        self.batches: list[Batch] = []
        self.claims: list[Claim] = []
        self.claimed = 0
        self.bounds = [NEVER] * len(nexts)
        self.now_ms = 0
        self.steps = 0
        self.settled: dict[tuple[int, int], bool] = {}
        self.longest_ms = 0
        self.in_turn = 0

    def hold(self) -> None:
        """What runs holds its room from the beginning on."""
        for at, groups in enumerate(self.work.running):
            for group in groups:
                self.ends.append((group.remaining_ms, at, group.count, -1))
                add(self.free, self.work.demand[at], -group.count)
        heapify(self.ends)

    def run(self) -> bool:
        """Packs all that waits; False as soon as a task would end behind the bound of its stage."""
        if not self._instant([]):
            return False
        while self.ends:
            while self._renews():
                pass
            if not self._instant(self._end()):
                return False
        return True

    # ------------------------------------------------------------ an instant that is decided
    def _end(self) -> list[tuple[int, int, int, int]]:
        """The groups that end next. Their stages, and what waits for them, are not looked at yet."""
        self.now_ms = now_ms = self.ends[0][0]
        ended = []
        while self.ends and self.ends[0][0] == now_ms:
            ended.append(heappop(self.ends))
        return ended

    def _instant(self, ended: list[tuple[int, int, int, int]]) -> bool:
        """Frees what has ended and starts what fits; False where that would end too late."""
        self.steps += 1
        self.in_turn = 0
        before, ready, claimed = self.free.copy(), len(self.ready), self.claimed
        for _, at, count, _ in ended:
            self._free(at, count)
        is_same = len(self.ready) == ready
        while self.claimed < len(self.claims) and self.claims[self.claimed].from_ms <= self.now_ms:
            claim = self.claims[self.claimed]
            add(self.free, claim.demand, -claim.count)
            self.claimed += 1
        ready = len(self.ready)
        started: list[tuple[int, int]] = []
        while True:
            at, count = self._best()
            if not count:
                break
            if self.now_ms + self.work.lasts_ms[at] > self.bounds[at]:
                return False
            self.waiting[at] -= count
            if not self.waiting[at]:
                self.ready.remove(at)
            add(self.free, self.work.demand[at], -count)
            started.append((at, count))
            self._push(at, count, ended)
        if is_same and len(self.ready) == ready and self.claimed == claimed and self.free == before:
            if len(ended) == 1 and len(started) == 1 and started[0] == (ended[0][1], ended[0][2]):
                self.settled[started[0]] = True
        else:
            self.settled = {}
            self.longest_ms = 0
            for at in self.ready:
                self.longest_ms = max(self.longest_ms, self.work.lasts_ms[at])
        return True

    def _free(self, at: int, count: int) -> None:
        """Tasks of a stage have ended."""
        add(self.free, self.work.demand[at], count)
        self.left[at] -= count
        if not self.left[at]:
            for after in self.nexts[at]:
                self.missing[after] -= 1
                if not self.missing[after] and self.waiting[after]:
                    self.ready.append(after)

    def _push(self, at: int, count: int, ended: list[tuple[int, int, int, int]]) -> None:
        """Tasks start: as the next wave of a group that ends now, where one has as many."""
        index = -1
        for i, (_, other, size, batch) in enumerate(ended):
            if other == at and size == count and batch >= 0:
                index = batch
                ended[i] = (0, other, size, -1)
                self.batches[index].waves += 1
                break
        if index < 0:
            index = len(self.batches)
            self.batches.append(Batch(at, self.now_ms, count))
        heappush(self.ends, (self.now_ms + self.work.lasts_ms[at], at, count, index))

    def _best(self) -> tuple[int, int]:
        """The stage to serve next and how many of its tasks; none where none fits. A score is worked out only where a
        second stage fits, which is rare."""
        best, best_score, fits, is_scored = -1, 0, 0, False
        for at in self.ready:
            if not how_many_fit(self.work.demand[at], self.free, 1):
                continue
            score = 0
            if best >= 0:
                if not is_scored:
                    best_score, is_scored = self.scores.of(best, self.free), True
                score = self.scores.of(at, self.free)
            if best < 0 or score > best_score or (score == best_score and at < best):
                count = self._fits_through(at)
                if count:
                    best, best_score, fits = at, score, count
        return best, fits

    def _fits_through(self, at: int) -> int:
        """How many tasks of the stage fit from now to their end beside what comes to hold room by then."""
        demand, until_ms = self.work.demand[at], self.now_ms + self.work.lasts_ms[at]
        count = how_many_fit(demand, self.free, self.waiting[at])
        if self.claimed == len(self.claims) or self.claims[self.claimed].from_ms >= until_ms:
            return count
        rest, coming, ended = self.free.copy(), sorted(self.ends), 0
        for claim in self.claims[self.claimed :]:
            if claim.from_ms >= until_ms or not count:
                break
            while ended < len(coming) and coming[ended][0] <= claim.from_ms:
                add(rest, self.work.demand[coming[ended][1]], coming[ended][2])
                ended += 1
            add(rest, claim.demand, -claim.count)
            count = how_many_fit(demand, rest, count)
        return count

    # ------------------------------------------------------------ renewals
    def _renews(self) -> bool:
        """Lets the group that ends next start again where that is settled, and it alone ends then."""
        ends = self.ends
        end_ms, at, count, index = ends[0]
        size = len(ends)
        if (size > 1 and ends[1][0] == end_ms) or (size > 2 and ends[2][0] == end_ms):
            return False
        if index < 0 or self.waiting[at] <= count or (at, count) not in self.settled or end_ms >= self._until_ms(at):
            return False
        self.steps += 1
        self.waiting[at] -= count
        self.left[at] -= count
        self.batches[index].waves += 1
        heapreplace(ends, (end_ms + self.work.lasts_ms[at], at, count, index))
        self.in_turn += 1
        if self.in_turn >= size * size:  # That many pairs of groups are compared then.
            self._skip()
            self.in_turn = 0
        return True

    def _until_ms(self, at: int) -> int:
        """Before when a stage may renew its groups undecided: nothing that is claimed lies within any ready task that
        would start by then, and its own tasks end within their bound."""
        until_ms = self.bounds[at] - self.work.lasts_ms[at] + 1
        if self.claimed < len(self.claims):
            until_ms = min(until_ms, self.claims[self.claimed].from_ms - self.longest_ms + 1)
        return until_ms

    def _skip(self) -> None:
        """Lets all groups renew themselves up to the next event of another kind."""
        until_ms = self._other_ms()
        for i, (end_ms, at, count, index) in enumerate(self.ends):
            if end_ms < until_ms:
                lasts_ms = self.work.lasts_ms[at]
                times = (until_ms - 1 - end_ms) // lasts_ms + 1
                self.waiting[at] -= times * count
                self.left[at] -= times * count
                self.batches[index].waves += times
                self.ends[i] = (end_ms + times * lasts_ms, at, count, index)
        heapify(self.ends)

    def _other_ms(self) -> int:
        """Up to when nothing happens but that single groups renew themselves."""
        until_ms = NEVER
        firsts: dict[int, int] = {}
        tasks: dict[int, int] = {}
        for end_ms, at, count, index in self.ends:
            if index >= 0 and (at, count) in self.settled:
                firsts[at] = min(firsts.get(at, end_ms), end_ms)
                tasks[at] = tasks.get(at, 0) + count
            else:
                until_ms = min(until_ms, end_ms)
        for at, first_ms in firsts.items():
            periods = max(0, self.waiting[at] - 1) // tasks[at]
            until_ms = min(until_ms, first_ms + periods * self.work.lasts_ms[at])
            until_ms = min(until_ms, self._until_ms(at))
        for i, (end_ms, at, _, _) in enumerate(self.ends):
            for other_ms, other, _, _ in self.ends[:i]:
                if end_ms < until_ms and other_ms < until_ms:
                    lasts_ms = self.work.lasts_ms[at], self.work.lasts_ms[other]
                    until_ms = min(until_ms, meeting_ms(end_ms, lasts_ms[0], other_ms, lasts_ms[1]))
        return until_ms


def meeting_ms(first_ms: int, every_ms: int, other_ms: int, other_every_ms: int) -> int:
    """The first moment that is in both of two series without end; NEVER where there is none."""
    common = gcd(every_ms, other_every_ms)
    apart_ms = other_ms - first_ms
    if apart_ms % common:
        return NEVER
    module = other_every_ms // common
    times = apart_ms // common * pow(every_ms // common, -1, module) % module
    meets_ms = first_ms + times * every_ms
    if meets_ms < other_ms:
        both_ms = every_ms * module
        meets_ms += (other_ms - meets_ms + both_ms - 1) // both_ms * both_ms
    return meets_ms


def add(free: list[int], demand: Amounts, count: int) -> None:
    """So many tasks less are held (more, where negative)."""
    for kind, amount in enumerate(demand):
        if amount:
            free[kind] += amount * count
