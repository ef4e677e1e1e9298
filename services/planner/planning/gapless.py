"""Places a chain of atoms of which each starts in the step in which the one before has ended.

Every atom is one block. For blocks of given widths, the starts of the chain at which all of them fit are intervals:
those of each block, moved back by the time of the blocks before it, intersected. So no start is missed. Widths are
tried from the widest to an eighth of it; the flat form looks for the lowest level of use that holds the chain.
"""

from collections.abc import Sequence

from services.planner.planning.book import LEVELS, Book, Free
from services.planner.planning.placing import Form, starts_of_block
from services.planner.planning.request import Atom, Lease, Plan

NARROWER = (1, 2, 4, 8)
"""Parts of the greatest width that are tried, one after the other."""

Starts = list[tuple[int, int]]
"""Steps at which something may start: first and last, in order, apart from each other."""


def chain(book: Book, user: str, links: Sequence[Atom], begin: int, end: int, form: Form) -> Plan | None:
    """The links one after the other inside `[begin, end)`, or None if no widths that are tried fit."""
    for part in NARROWER:
        shapes = [_shape(atom, part) for atom in links]
        if sum(steps for _, steps in shapes) > end - begin:
            return None
        frees = _frees(book, user, links, shapes, begin, end)
        if frees is None or not (starts := _starts(frees, shapes, LEVELS)):
            continue
        if form == "flat":
            starts = _flattest(frees, shapes) or starts
        return _plan(links, shapes, starts[-1][1] if form == "late" else starts[0][0])
    return None


def _shape(atom: Atom, part: int) -> tuple[int, int]:
    """The gangs of an atom's block, and its steps."""
    steps = max(atom.lease, -(-atom.work // max(1, atom.gangs_most // part)))
    return -(-atom.work // steps), steps


def _plan(links: Sequence[Atom], shapes: Sequence[tuple[int, int]], at: int) -> Plan:
    plan: Plan = []
    for atom, (gangs, steps) in zip(links, shapes, strict=True):
        plan.append((atom, [Lease(at, at + steps, gangs)]))
        at += steps
    return plan


def _frees(
    book: Book, user: str, links: Sequence[Atom], shapes: Sequence[tuple[int, int]], begin: int, end: int
) -> list[Free] | None:
    """What each link meets in the steps that are left to it by those before and after it."""
    after = sum(steps for _, steps in shapes)
    found, before = [], 0
    for atom, (_, steps) in zip(links, shapes, strict=True):
        first, last = max(atom.begin, begin + before), min(atom.end, end - (after - steps))
        if last - first < steps:
            return None
        found.append(book.free(user, atom, first, last))
        before += steps
        after -= steps
    return found


def _starts(frees: Sequence[Free], shapes: Sequence[tuple[int, int]], level: int) -> Starts:
    """Where the chain may start while nothing is used above a level."""
    before = 0
    common: Starts | None = None
    for free, (gangs, steps) in zip(frees, shapes, strict=True):
        first, last = starts_of_block(free.edges, free.room(level), gangs, steps)
        mine = list(zip((first - before).tolist(), (last - before).tolist(), strict=True))
        common = mine if common is None else _intersected(common, mine)
        if not common:
            return []
        before += steps
    return common or []


def _intersected(these: Starts, those: Starts) -> Starts:
    found, i, j = [], 0, 0
    while i < len(these) and j < len(those):
        first, last = max(these[i][0], those[j][0]), min(these[i][1], those[j][1])
        if first <= last:
            found.append((first, last))
        if these[i][1] < those[j][1]:
            i += 1
        else:
            j += 1
    return found


def _flattest(frees: Sequence[Free], shapes: Sequence[tuple[int, int]]) -> Starts:
    """Where the chain may start at the lowest level of use that holds it."""
    low, high = 0, LEVELS
    best: Starts = []
    while low < high:
        middle = (low + high) // 2
        if starts := _starts(frees, shapes, middle):
            high, best = middle, starts
        else:
            low = middle + 1
    return best
