"""Which stage of a job goes first where several could start: the rivals that CARBYNE compares (section 5.1).

An order gives each stage that is ready a score, given what is free inside the share; the largest is served first, ties
by position. All scores are whole numbers.
"""

from schemas.policy import JobOrder
from services.altruism.planning.work import Amounts, Work

SCALE = 1 << 10
"""An amount is a part of the share in this many steps, in the alignment of Tetris."""


class Scores:
    """Scores of the stages of one job in one share, by one order; `reverse`: of the graph with its edges turned.
    `fixed`: by stage, scores computed beforehand (dagps.py), whatever the order.
    """

    def __init__(
        self, order: JobOrder, work: Work, share: Amounts, *, reverse: bool = False, fixed: list[int] | None = None
    ) -> None:
        self._aligned = order == "tetris"
        self._share = share
        self._parts: list[list[int]] = []
        self._fixed: list[int] = []
        if fixed is not None:
            self._aligned, self._fixed = False, fixed
        elif self._aligned:
            self._parts = [_parts_of(demand, share) for demand in work.demand]
        elif order == "critical_path":
            self._fixed = _paths(work, reverse=reverse)
        else:
            self._fixed = [-depth for depth in _depths(work, reverse=reverse)]

    def of(self, at: int, free: Amounts) -> int:
        """The score of a stage while so much is free. Tetris (its section 3.2): the dot product of what a task asks for
        and what is free, both as parts of the share."""
        if not self._aligned:
            return self._fixed[at]
        score = 0
        for kind, part in enumerate(self._parts[at]):
            room = free[kind]
            if part and room > 0:
                score += part * (room * SCALE // self._share[kind])
        return score


def _parts_of(demand: Amounts, share: Amounts) -> list[int]:
    return [amount * SCALE // most if most else 0 for amount, most in zip(demand, share, strict=True)]


def _paths(work: Work, *, reverse: bool) -> list[int]:
    """By stage, the longest time from its start to the end of the graph, or to its beginning where that is turned."""
    nexts = work.parents() if reverse else work.children
    paths = [0] * len(nexts)
    for at in _backwards(nexts):
        longest = 0
        for after in nexts[at]:
            longest = max(longest, paths[after])
        lasts = work.lasts_ms[at] if work.waiting[at] else 0
        for group in work.running[at]:
            lasts = max(lasts, group.remaining_ms)
        paths[at] = longest + lasts
    return paths


def _depths(work: Work, *, reverse: bool) -> list[int]:
    """By stage, how many stages lie on the longest way to it."""
    nexts = work.parents() if reverse else work.children
    depths = [0] * len(nexts)
    for at in reversed(_backwards(nexts)):
        for after in nexts[at]:
            depths[after] = max(depths[after], depths[at] + 1)
    return depths


def _backwards(nexts: list[list[int]]) -> list[int]:
    """Positions so that each comes behind all that follow it in the graph."""
    missing = [len(after) for after in nexts]
    before: list[list[int]] = [[] for _ in nexts]
    for at, after in enumerate(nexts):
        for each in after:
            before[each].append(at)
    order = [at for at, count in enumerate(missing) if count == 0]
    for at in order:
        for each in before[at]:
            missing[each] -= 1
            if missing[each] == 0:
                order.append(each)
    return order
