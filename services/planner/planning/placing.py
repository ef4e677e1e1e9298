"""Places one atom: late, flat or early.

The early and the late form prefer one block of the greatest width; where there is none, the leases are many. The flat
form looks for the lowest level of use, of the most used resource, at which the leases fit. The area alone tells of most
levels that they are too low.
"""

from typing import Literal

import numpy as np

from services.planner.planning.book import LEVELS, Book, Free
from services.planner.planning.filling import fill_early, fill_late
from services.planner.planning.profile import Whole
from services.planner.planning.request import Atom, Lease

Form = Literal["early", "late", "flat"]


def place(book: Book, user: str, atom: Atom, begin: int, end: int, form: Form) -> list[Lease] | None:
    """Leases of an atom in those of its steps that lie in `[begin, end)`, or None if they do not fit."""
    begin, end = max(begin, atom.begin), min(end, atom.end)
    if end - begin < atom.fastest:
        return None
    free = book.free(user, atom, begin, end)
    room = free.room()
    if free.area(room) < atom.work:
        return None
    if form == "flat":
        return _flat(book, free)
    steps = atom.fastest
    gangs = -(-atom.work // steps)
    first, last = starts_of_block(free.edges, room, gangs, steps)
    if len(first):
        at = int(first[0] if form == "early" else last[-1])
        return [Lease(at, at + steps, gangs)]
    fill = fill_early if form == "early" else fill_late
    book.work += 10 + len(room)
    return fill(free.edges.tolist(), room.tolist(), atom.lease, atom.work)


def starts_of_block(edges: Whole, room: Whole, gangs: int, steps: int) -> tuple[Whole, Whole]:
    """Where a number of gangs fit for a number of steps: the first and the last start of each stretch, in order."""
    fits = np.empty(len(room) + 2, np.bool_)
    fits[0] = fits[-1] = False
    np.greater_equal(room, gangs, out=fits[1:-1])
    changes = np.flatnonzero(fits[1:] != fits[:-1])
    first, last = edges[changes[0::2]], edges[changes[1::2]] - steps
    enough = last >= first
    return first[enough], last[enough]


def _flat(book: Book, free: Free) -> list[Lease] | None:
    atom = free.atom
    edges = free.edges.tolist()
    low, high = 1, LEVELS + 1  # Nothing fits below `low`; `best` fits at `high`.
    best: list[Lease] | None = None
    while low < high:
        middle = min((low + high) // 2, LEVELS)
        room = free.room(middle)
        book.work += 10 + len(room) // 100
        found = None
        if free.area(room) >= atom.work:
            book.work += 10 + len(room)
            found = fill_early(edges, room.tolist(), atom.lease, atom.work)
        if found is None:
            low = middle + 1
        else:
            high, best = middle, found
    return best
