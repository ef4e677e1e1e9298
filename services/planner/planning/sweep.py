"""A complete search for plans of a few requests at once, step by step, with every width an atom may have in a step.

Depth-first, from the first step to the last. In each step, atoms are looked at by slack, and widths are tried from the
widest on. A branch is given up where what is left cannot be done any more, and a state that has failed is not entered
again. Two rules of dominance keep the tree small; both move work to an earlier step where there is room for it, which
harms nobody:

- a lease does not begin where it could have begun a step sooner (semi-active schedules);
- an atom whose leases may last one step uses room that is left over.

They do not hold for the links of an `order` without gaps, or where averages over time are limited: those are searched
without them. A search that ends without a plan has shown that there is none, as far as units are packed on nodes as
node_fit.py packs them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import NamedTuple

from services.planner.planning.search import Search

Fits = Callable[[int, Sequence[int]], bool]
"""Whether a number of gangs of each activity fits on the nodes at a step."""

Choice = tuple[int, int, int]
"""Activity, gangs that go on beyond their least lease, gangs that start."""

Accepts = Callable[[list[list[Choice]]], Search[bool]]
"""Whether a plan holds, as far as the search does not know."""


@dataclass(slots=True)
class Activity:
    """What is left of an atom. `left`: gang-steps beyond those that its running gangs are bound to; `running`: step
    from which gangs may end, and how many; `needs`: row and amount of a gang; `before`: activities that end before it
    begins; `begun`: it has had a lease already. `gapless`: it is in a link of an `order` without gaps.
    """

    needs: list[tuple[int, int]]
    width: int
    lease: int
    left: int
    begin: int
    end: int
    running: list[tuple[int, int]] = field(default_factory=list)
    before: list[int] = field(default_factory=list)
    begun: bool = False
    gapless: bool = False


@dataclass(slots=True)
class Problem:
    """`room`: by row (a resource, or what a user may hold of it) and step, what is left. `touching`: activities of a
    link and of the one that has to begin as soon as the first has ended. `shifts`: the rules of dominance hold.
    """

    activities: list[Activity]
    room: list[list[int]]
    touching: list[tuple[list[int], list[int]]]
    fits: Fits
    shifts: bool = True


class _State(NamedTuple):
    """At the beginning of a step. By activity: gang-steps left, gangs that may end, bound gangs as (step from which
    they may end, gangs), whether gangs may start."""

    left: tuple[int, ...]
    loose: tuple[int, ...]
    bound: tuple[tuple[tuple[int, int], ...], ...]
    may_start: tuple[bool, ...]


class Sweep:
    """One search. `done`: whether it has ended."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.activities = problem.activities
        self.room = [list(row) for row in problem.room]
        self.steps = len(self.room[0]) if self.room else 0
        self.grain = _grains(problem)
        self.failed: dict[tuple[int, _State], bool] = {}
        self.work = 0
        self.done = False

    def run(self, work_max: int, accepts: Accepts) -> Search[list[list[Choice]] | None]:
        """Searches until it finds a plan, the choices of each step, that is accepted, or none is left to try, or it has
        come to so much work."""
        start = self._start()
        if start is None or self._hopeless(0, start, every=True):
            self.done = True
            return None
        if self._is_all_over(start):
            self.done = True
            return [] if (yield from accepts([])) else None
        states, choices = [start], [self._choices(0, start)]
        path: list[list[Choice]] = []
        while choices and self.work < work_max:
            step = len(choices) - 1
            chosen = next(choices[-1], None)
            self.work += 10
            if chosen is None:
                choices.pop()
                self.failed[step, states.pop()] = True
                if path:
                    path.pop()
                continue
            yield
            after = self._after(step, states[-1], chosen)
            if self._is_all_over(after):
                if (yield from accepts([*path, chosen])):
                    return [*path, chosen]
                continue
            if (step + 1, after) in self.failed or self._hopeless(step + 1, after):
                continue
            states.append(after)
            choices.append(self._choices(step + 1, after))
            path.append(chosen)
        self.done = not choices
        return None

    def _start(self) -> _State | None:
        """The state at the first step. None if what is bound has no room even so."""
        for each in self.activities:
            for free_at, gangs in each.running:
                for row, need in each.needs:
                    for step in range(free_at):
                        self.room[row][step] -= need * gangs
        bound_steps = max((free_at for each in self.activities for free_at, _ in each.running), default=0)
        if any(amount < 0 for row in self.room for amount in row[:bound_steps]):
            return None
        return _State(
            tuple(each.left for each in self.activities),
            tuple(sum(gangs for free_at, gangs in each.running if free_at <= 0) for each in self.activities),
            tuple(tuple(sorted(pair for pair in each.running if pair[0] > 0)) for each in self.activities),
            tuple(True for _ in self.activities),
        )

    # ---------------------------------------------------------------- one step
    def _is_over(self, state: _State, i: int) -> bool:
        return state.left[i] <= 0 and not state.bound[i]

    def _is_all_over(self, state: _State) -> bool:
        return not any(left > 0 for left in state.left) and not any(state.bound)

    def _is_released(self, step: int, state: _State, i: int) -> bool:
        each = self.activities[i]
        return step >= each.begin and all(self._is_over(state, other) for other in each.before)

    def _choices(self, step: int, state: _State) -> Iterator[list[Choice]]:
        """What may go on and start in a step. While one is looked at, `room` is without what it takes."""
        open_ = [i for i in range(len(self.activities)) if state.left[i] > 0 and self._is_released(step, state, i)]
        open_.sort(key=lambda i: (self._slack(step, state, i), i))
        due = [
            after
            for before, after in self.problem.touching
            if all(self._is_over(state, i) for i in before) and not any(self._has_begun(state, i) for i in after)
        ]
        chosen: list[Choice] = []
        for _ in self._each(step, state, open_, 0, chosen):
            started = {i for i, _, starts in chosen if starts}
            if all(any(i in started for i in after) for after in due) and self._is_kept(step, state, open_, chosen):
                yield list(chosen)

    def _has_begun(self, state: _State, i: int) -> bool:
        each = self.activities[i]
        return each.begun or state.left[i] != each.left

    def _slack(self, step: int, state: _State, i: int) -> int:
        each = self.activities[i]
        return each.end - step - max(-(-state.left[i] // each.width), 1 if state.loose[i] else each.lease)

    def _each(self, step: int, state: _State, open_: Sequence[int], at: int, chosen: list[Choice]) -> Iterator[None]:
        """Every choice for the open activities from `at` on."""
        if at == len(open_):
            self.work += 2
            yield
            return
        i = open_[at]
        for loose, starts in self._widths(step, state, i):
            self._take(i, step, loose, starts, 1)
            chosen.append((i, loose, starts))
            yield from self._each(step, state, open_, at + 1, chosen)
            chosen.pop()
            self._take(i, step, loose, starts, -1)

    def _widths(self, step: int, state: _State, i: int) -> list[tuple[int, int]]:
        """Gangs that go on, and gangs that start: none starts where one might as well go on."""
        each, left = self.activities[i], state.left[i]
        bound = sum(gangs for _, gangs in state.bound[i])
        loose = 0
        if state.loose[i] and step < each.end:
            loose = min(state.loose[i], left, self._fitting(i, step, 1))
        most = 0
        if loose == min(state.loose[i], left) and state.may_start[i] and step + each.lease <= each.end:
            most = min(each.width - bound - loose, -(-(left - loose) // each.lease))
            if most > 0:
                most = min(most, self._fitting(i, step, each.lease, loose))
        self.work += 3
        return [(loose, starts) for starts in range(max(0, most), -1, -1)] + [(n, 0) for n in range(loose - 1, -1, -1)]

    def _fitting(self, i: int, step: int, lasts: int, besides: int = 0) -> int:
        """Gangs that have room for so many steps, `besides` some that only have it in the first."""
        least = self.activities[i].width
        for row, need in self.activities[i].needs:
            room = self.room[row]
            least = min(
                least, room[step] // need - besides, *(room[at] // need for at in range(step + 1, step + lasts))
            )
        return max(0, least)

    def _take(self, i: int, step: int, loose: int, starts: int, sign: int) -> None:
        each = self.activities[i]
        for row, need in each.needs:
            room = self.room[row]
            room[step] -= sign * need * loose
            if starts:
                for at in range(step, step + each.lease):
                    room[at] -= sign * need * starts

    def _is_kept(self, step: int, state: _State, open_: Sequence[int], chosen: Sequence[Choice]) -> bool:
        """Whether units fit on the nodes, and nothing is left over that an atom would rather use now."""
        widths = self._running(state, chosen)
        if any(widths) and not self.problem.fits(step, widths):
            return False
        if not self.problem.shifts:
            return True
        taken = {i: loose + starts for i, loose, starts in chosen}
        for i in open_:
            each = self.activities[i]
            if each.lease == 1 and not each.gapless and state.left[i] > taken[i] and step < each.end:
                if self._has_more_room(step, i, widths):
                    return False
        return True

    def _running(self, state: _State, chosen: Sequence[Choice]) -> list[int]:
        widths = [sum(gangs for _, gangs in bound) for bound in state.bound]
        for i, loose, starts in chosen:
            widths[i] += loose + starts
        return widths

    def _has_more_room(self, step: int, i: int, widths: list[int]) -> bool:
        each = self.activities[i]
        if widths[i] >= each.width or any(self.room[row][step] < need for row, need in each.needs):
            return False
        widths[i] += 1
        fits = self.problem.fits(step, widths)
        widths[i] -= 1
        return fits

    def _after(self, step: int, state: _State, chosen: Sequence[Choice]) -> _State:
        """The state at the next step."""
        left, loose = list(state.left), [0] * len(self.activities)
        bound = [list(each) for each in state.bound]
        for i, goes_on, starts in chosen:
            lease = self.activities[i].lease
            left[i] -= goes_on + starts * lease
            loose[i] = goes_on
            if starts:
                bound[i].append((step + lease, starts))
        widths = self._running(state, chosen)
        may_start = []
        for i, each in enumerate(self.activities):
            for pair in bound[i]:
                if pair[0] == step + 1:
                    loose[i] += pair[1]
            bound[i] = [pair for pair in bound[i] if pair[0] > step + 1]
            if left[i] <= 0:
                loose[i] = 0
                may_start.append(False)
            elif not self.problem.shifts or each.gapless or not self._is_released(step, state, i):
                may_start.append(True)
            else:
                may_start.append(not self._has_more_room(step, i, widths))
        self.work += 2 * len(self.activities)
        return _State(tuple(left), tuple(loose), tuple(map(tuple, bound)), tuple(may_start))

    # ---------------------------------------------------------------- what cannot be done any more
    def _hopeless(self, step: int, state: _State, *, every: bool = False) -> bool:
        """Whether what is left has no room: that of one atom, or that of all which has to be done by a deadline.
        `every`: or between a begin and a deadline."""
        waiting = [i for i in range(len(self.activities)) if state.left[i] > 0]
        for i in waiting:
            each = self.activities[i]
            if not (state.loose[i] or state.bound[i]) and max(step, each.begin) + each.lease > each.end:
                return True
            if self._alone(step, state, i) < state.left[i]:
                return True
        begins = sorted({max(step, self.activities[i].begin) for i in waiting}) if every else [step]
        ends = sorted({self.activities[i].end for i in waiting})
        self.work += len(waiting) * (2 + len(begins) * len(ends))
        return any(
            self._lacks(state, waiting, step, begin, ends, row) for row in range(len(self.room)) for begin in begins
        )

    def _alone(self, step: int, state: _State, i: int) -> int:
        """Gang-steps that an activity could have if it were the only one."""
        each = self.activities[i]
        begin, total = max(step, each.begin), 0
        rows = [(self.room[row], need) for row, need in each.needs]
        for at in range(begin, each.end):
            total += max(0, min(each.width, *(room[at] // need for room, need in rows)))
        return total

    def _lacks(
        self, state: _State, waiting: Sequence[int], step: int, begin: int, ends: Sequence[int], row: int
    ) -> bool:
        """Whether more has to be done between `begin` and one of the ends than there is room for."""
        grain, room = self.grain[row], self.room[row]
        demands = [(i, need) for i in waiting for at, need in self.activities[i].needs if at == row]
        area, at = 0, begin
        for end in ends:
            while at < end:
                area += max(0, room[at]) // grain * grain
                at += 1
            asked = 0
            for i, need in demands:
                each = self.activities[i]
                first = max(step, each.begin)
                outside = max(0, min(begin, each.end) - first) + max(0, each.end - max(end, first))
                asked += need * max(0, state.left[i] - each.width * outside)
            if asked > area:
                return True
        return False


def _grains(problem: Problem) -> list[int]:
    """By row, what all amounts that are asked for are multiples of: less than that of a room is of no use."""
    grains = [0] * len(problem.room)
    for each in problem.activities:
        for row, need in each.needs:
            grains[row] = gcd(grains[row], need)
    return [max(1, grain) for grain in grains]
