"""What every queue of the tree is guaranteed, holds, lends and borrows, kept up to date along the paths that change.

A queue is guaranteed its weight's part, among the siblings that ask for something, of what its parent is guaranteed
(H-DRF, section 2.1); at least what its own guarantee covers, which comes off what the siblings' weights share out; at
most what its maximum allows. So one queue that begins to ask moves the guarantees of all below its siblings, mostly by
next to nothing. Therefore each queue knows the span of its guarantee in which neither it nor anything below it has
something new to say, and only who is outside is looked at. In the same way it knows how far what it holds and asks for
may move (`Calm`); what is left until a value has moved by a permille is halved between the two, so that neither has to
know of the other.

Guarantees are shares of `ONE`; what is told is in billionths of the cell.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from operator import add, ge, sub

from services.fairness.accounts.division import Claimant, divided
from services.fairness.accounts.intervals import Calm
from services.fairness.accounts.seat import Limits, Seat, Told
from services.fairness.tree import NEAR, ONE, ONE_BITS, SHARE_UNITS, part_units, share_units

TOLD_STEP = 1_000_000
"""A value that has moved by less than this (a permille of the cell, in billionths) is not told again."""

FINE = 1 << 88
"""More than this (2^-40 of the cell) beyond all that there is, and too much is guaranteed."""


class Ledger:
    """All queues of a tree in a cell of `capacity` (nothing of it 0).

    `news`: queues that have a value to tell. `shaken`: queues whose `low` may have turned since somebody took note.
    The caller's own: `kinds`, what the places in a vector stand for; `moved`, leaves that are still to be `put`;
    `source`, what the levels in force come from.
    """

    def __init__(self, root: Seat, capacity: Sequence[int]) -> None:
        self.capacity = capacity
        self.root = root
        self.seats: dict[str, Seat] = {}
        self.over: dict[str, Seat] = {}  # Queues that ask for more than their maximum.
        self.fits = True  # Everybody gets all they ask for.
        self._rich: dict[str, Seat] = {}  # With a level of their own, and told to hold something.
        self.keeps_levels = False  # The levels are those that were told.
        self._levels: Mapping[str, int] | None = None  # As they were shared out last.
        self._pledged: Sequence[int] = [0] * len(capacity)
        todo = [root]
        while todo:
            seat = todo.pop()
            self.seats[seat.name] = seat
            seat.demand, seat.used, seat.claim, seat.claims = ([0] * len(capacity) for _ in range(4))
            seat.stale_children = list(seat.children)
            todo += seat.children
        self.news: dict[str, Seat] = {}
        self.shaken = dict(self.seats)
        self.kinds: Sequence[str] = ()
        self.moved: dict[str, bool] = {}
        self.source: object = None

    # ------------------------------------------------------------------ what happens
    def put(self, seat: Seat, demand: Sequence[int], used: Sequence[int], waiting: Sequence[int], tasks: int) -> None:
        """A leaf asks for `demand` in all and holds `used`; `tasks` tasks of it wait, together for `waiting`."""
        more, held = list(map(sub, demand, seat.demand)), list(map(sub, used, seat.used))
        slack = (-(-self.share_of(waiting) // tasks) if tasks else 0) - seat.slack
        waits = (tasks > 0) - seat.waiting
        asks = any(demand)
        loud = asks != seat.asks
        at: Seat | None = seat
        while at is not None:
            at.demand, at.used = list(map(add, at.demand, more)), list(map(add, at.used, held))
            at.slack += slack
            waited = at.waiting
            at.waiting += waits
            if at.most or at.floor or at.claims != at.claim:
                loud = True
                self._limit(at)
            if loud or (waited > 0) != (at.waiting > 0) or not self._is_calm(at):
                loud = True
                self._mark(at)
            at = at.parent
        self._ask(seat, asks)

    def share_out(self, fair: Mapping[str, int] | None) -> None:
        """The levels in force, in billionths, by queue; None: everybody gets all they ask for. Costs those that have
        another level than before; all queues, where everybody gets or got all they ask for."""
        before = self._levels
        if fair is None or before is None:
            for name, seat in self.seats.items():
                seat.fair = fair.get(name, 0) if fair is not None else self.share_of(seat.demand)
                if abs(seat.fair - seat.told.fair) >= TOLD_STEP or name in self.news or (seat.far and fair is None):
                    self._mark_up(seat)
        else:
            moved = {name: units for name, units in fair.items() if before.get(name) != units}
            moved |= {name: 0 for name in before if name not in fair}
            for name, units in moved.items():
                seat = self.seats[name]
                seat.fair = units
                if abs(units - seat.told.fair) >= TOLD_STEP:
                    self._mark_up(seat)
            for seat in self.news.values():
                self._mark_up(seat)
        self._levels = fair
        self.fits, self.keeps_levels = fair is None, False

    def keep_levels(self) -> None:
        """No levels are worked out this time: what was told of them is in force, and nothing of it is news."""
        if not self.keeps_levels:
            self.fits, self.keeps_levels = False, True
            for seat in self.news.values():
                self._mark_up(seat)

    def tell(self, name: str, told: Told) -> None:
        """What readers know of a queue from now on."""
        seat = self.seats[name]
        seat.told = told
        if told.allocated and seat.is_group:
            self._rich[name] = seat
        else:
            self._rich.pop(name, None)
        self._mark_up(seat)

    def settle(self) -> None:
        """Works out what follows from all that happened: `news` and `shaken` are up to date."""
        pledged = self.root.claims
        if pledged != self._pledged and max([*pledged, *self._pledged], default=0) > ONE:
            for seat in self.seats.values():  # All guarantees are cut by another part.
                if any(seat.claim):
                    self._mark_up(seat)
        self._pledged = pledged
        if self.root.stale:
            self._visit(self.root, ONE)

    def look_at(self, names: Iterable[str]) -> None:
        """Brings guarantees up to date that have moved by too little to be told."""
        for name in names:
            self._mark_up(self.seats[name])
        self.settle()

    # ------------------------------------------------------------------ questions
    def told_of(self, seat: Seat) -> Told:
        """What there is to tell of a queue now."""
        held = self.share_of(seat.used)
        kind = self._kind(seat.used) if held else -1
        if seat.listed:
            return Told(allocated=held, kind=kind)
        guaranteed, wanted = share_units(seat.guaranteed), self.share_of(seat.demand)
        fair = wanted if self.fits else seat.told.fair if self.keeps_levels else seat.fair
        lent, borrowed = max(0, guaranteed - max(held, wanted)), max(0, held - guaranteed)
        return Told(guaranteed, fair, held, lent, borrowed, kind)

    def divide(self, names: Iterable[str], share: int) -> dict[str, int]:
        """What each of these queues, side by side, would have of a share were there one kind only: its guarantee as far
        as it asks for that, no more than it asks for, and else by weight.
        """
        seats = [self.seats[name] for name in names if self.seats[name].asks]
        parts = [Claimant(seat.weight, *self._bounds(seat)) for seat in seats]
        return {seat.name: part for seat, part in zip(seats, divided(share, parts), strict=True)}

    def wants_more(self, seat: Seat, share: int) -> bool:
        """Whether a queue would take more than so much."""
        return self._bounds(seat)[1] > share

    def _bounds(self, seat: Seat) -> tuple[int, int]:
        least = self._covered(seat) if any(seat.claim) else 0
        return least, max(least, min(self._share(seat.demand), self._most(seat)))

    def pledges(self) -> dict[str, tuple[Sequence[int], int]]:
        """All that guarantees come from, by queue: as long as it stays, they do."""
        return {name: self.pledge_of(seat) for name, seat in self.seats.items() if any(seat.claim)}

    def pledge_of(self, seat: Seat) -> tuple[Sequence[int], int]:
        """What a guarantee comes from; the same for any demand in one direction that it does not cover."""
        return tuple(seat.claim), self._named(seat)

    def leaves_of(self, paths: Iterable[str]) -> list[str]:
        """Those of the paths that are leaves of this tree."""
        return [path for path in paths if path in self.seats and not self.seats[path].children]

    def group_of(self, path: str) -> Seat:
        """The queue that has the level for a leaf: itself, or the top of its list, which may be asked for as well."""
        seat = self.seats[path]
        while seat.listed and seat.parent is not None:
            seat = seat.parent
        return seat

    def promised(self, seat: Seat) -> int:
        """What a queue's own guarantee covers of what it asks for, whether or not all can have it, in billionths."""
        return share_units(min(ONE, max(self._covers(seat)), self._most(seat))) if seat.floor else 0

    def richest(self, latest: Mapping[str, tuple[int, int]]) -> list[str]:
        """The queues with a level of their own that hold something beyond their guarantees, those with most of it
        first; if none does, those that hold something, likewise. By what they were told to borrow and to hold, or by
        `latest`, as pairs: what nobody is told of is not worked out for everybody. Costs those that hold a permille.
        """
        known = {name: (seat.told.borrowed, seat.told.allocated) for name, seat in self._rich.items()}
        for name, held in latest.items():
            if self.seats[name].is_group:
                known[name] = held
        for at in (0, 1):
            if found := sorted([(-held[at], name) for name, held in known.items() if held[at]]):
                return [name for _, name in found]
        return []

    # ------------------------------------------------------------------ amounts
    def shares_of(self, amounts: Iterable[int]) -> list[int]:
        """Of each kind the part of the cell."""
        return [(amount << ONE_BITS) // have for amount, have in zip(amounts, self.capacity, strict=True)]

    def _share(self, amounts: Iterable[int]) -> int:
        return max(self.shares_of(amounts), default=0)

    def share_of(self, amounts: Iterable[int]) -> int:
        """The dominant share, in billionths."""
        return max(map(part_units, amounts, self.capacity), default=0)

    def _kind(self, amounts: Sequence[int]) -> int:
        """Which kind the largest part of the cell is held of; of equals the first."""
        most, capacity = 0, self.capacity
        for at in range(1, len(amounts)):
            if amounts[at] * capacity[most] > amounts[most] * capacity[at]:
                most = at
        return most

    def _limit(self, seat: Seat) -> None:
        """What guarantees cover of what a queue asks for, and whether it asks for more than its maximum."""
        if seat.most:
            over = any(most is not None and asked > most for most, asked in zip(seat.most, seat.demand, strict=True))
            if over and not seat.over:
                self.over[seat.name] = seat
            elif seat.over and not over:
                del self.over[seat.name]
            seat.over = over
        if seat.floor or any(seat.claims) or any(seat.claim):
            claim = list(map(max, self._covers(seat), seat.claims))
            if seat.parent is not None:
                above = seat.parent
                above.claims = [a + new - old for a, new, old in zip(above.claims, claim, seat.claim, strict=True)]
            seat.claim = claim

    def _covers(self, seat: Seat) -> list[int]:
        """What a queue's own guarantee covers of what it asks for, in shares of the cell by kind."""
        part, whole = factor_of(seat.demand, seat.floor) or (0, 1)
        shares = self.shares_of(seat.demand)
        return [_settled(share * part // whole) for share in shares] if part < whole else shares

    def _own(self, seat: Seat) -> int:
        """What a queue is guaranteed whatever the weights: what is covered of what it asks for, and of the kinds named
        all that is promised. Where too much is covered, all get only that, less in proportion.
        """
        covered = self._covered(seat)
        return covered if self._pledged_of(seat) > ONE + FINE else min(ONE, max(covered, self._named(seat)))

    def _covered(self, seat: Seat) -> int:
        """What guarantees cover of what a queue asks for."""
        pledged = self._pledged_of(seat)
        return min(ONE, max(seat.claim) * ONE // pledged if pledged > ONE + FINE else max(seat.claim))

    def _pledged_of(self, seat: Seat) -> int:
        """How much of the cell is covered for all, of the kind of which that is most among those covered here."""
        return max([have for have, claim in zip(self.root.claims, seat.claim, strict=True) if claim])

    def _named(self, seat: Seat) -> int:
        """What a queue is promised of the kinds named, as far as it asks for them, if it asked for enough."""
        part, whole = factor_of(seat.demand, seat.floor) or (0, 1)
        shares = zip(self.shares_of(seat.demand), seat.floor, strict=False)
        return max([_settled(share * part // whole) for share, floor in shares if floor is not None], default=0)

    def _most(self, seat: Seat) -> int:
        """What a queue may have at most, asking in the direction in which it asks."""
        factor = factor_of(seat.demand, seat.most) if seat.most else None
        return ONE if factor is None else min(ONE, self._share(seat.demand) * factor[0] // factor[1])

    # ------------------------------------------------------------------ guarantees
    def _is_calm(self, seat: Seat) -> bool:
        """Whether a queue's sums are still where they leave nothing to tell, its guarantee being what it was."""
        calm = seat.calm
        if calm is None:
            return seat.parent is None
        if seat.slack < calm.slack_least or (calm.slack_end is not None and seat.slack >= calm.slack_end):
            return False
        if not seat.ends:
            seat.ends = [self._amounts_from(units) for units in calm[:4]]
        held_least, held_end, asked_least, asked_end = seat.ends
        return (
            any(map(ge, seat.used, held_least))
            and not any(map(ge, seat.used, held_end))
            and any(map(ge, seat.demand, asked_least))
            and not any(map(ge, seat.demand, asked_end))
        )

    def _amounts_from(self, units: int | None) -> list[int]:
        """The least amount of each kind that is told as so many billionths."""
        if units is None:
            return []
        share = _first_with(units)
        return [-(-share * have >> ONE_BITS) for have in self.capacity]

    def _mark(self, seat: Seat) -> None:
        if not seat.stale:
            seat.stale = True
            if seat.parent is not None:
                seat.parent.stale_children.append(seat)

    def _mark_up(self, seat: Seat) -> None:
        at: Seat | None = seat
        while at is not None and not at.stale:
            self._mark(at)
            at = at.parent

    def _ask(self, seat: Seat, asks: bool) -> None:
        """A queue begins or ceases to ask, and maybe those above it with it."""
        while asks != seat.asks:
            seat.asks = asks
            if seat.parent is None:
                return
            above = seat.parent
            above.asking += 1 if asks else -1
            above.weights += seat.weight if asks else -seat.weight
            seat, asks = above, above.asking > 0

    def _visit(self, seat: Seat, guaranteed: int) -> tuple[int, int]:
        """Works a queue out whose guarantee or sums have changed, and all below it that this concerns.

        Returns the span of its guarantee in which that would not be necessary again.
        """
        seat.guaranteed = guaranteed
        stale, seat.stale, seat.stale_children = seat.stale_children, False, []
        low, high = self._span(seat)
        if not seat.children:
            return low, high
        if seat.children[0].listed:
            for child in stale:
                self._visit(child, 0)
            return low, high
        least, most = self._visit_children(seat, stale)
        return max(low, least), min(high, most)

    def _visit_children(self, seat: Seat, stale: list[Seat]) -> tuple[int, int]:
        own: dict[str, int] = {}
        if any(seat.claims):
            own = {child.name: self._own(child) for child in seat.children if child.asks and any(child.claim)}
        part, whole = self._rate(seat.guaranteed, seat.weights, own)
        if own and not whole:
            whole = 1  # Nobody has anything by its weight any more, also those who had.
        todo = {child.name: child for child in stale}
        if whole:
            todo |= {name: self.seats[name] for name in seat.spans.take_outside(part, whole)}
        for name, child in todo.items():
            if not child.asks:
                self._visit(child, 0)
                seat.spans.drop(name)
                continue
            least, most = own.get(name, 0), self._most(child)
            by_weight = part * child.weight // whole if whole else 0
            low, high = self._visit(child, min(max(by_weight, least), most))
            seat.spans.set(name, child.weight, 0 if low <= least else low, ONE if high >= most else high)
        if own:
            return seat.guaranteed, seat.guaranteed
        return seat.spans.around(whole, ONE)

    def _rate(self, part: int, whole: int, own: Mapping[str, int]) -> tuple[int, int]:
        """A guarantee for a weight, as a fraction, among queues of the weight `whole` that are guaranteed `part`: what
        own guarantees leave, by the weights of the others.

        Who is guaranteed more than its weight would give it takes no part in that.
        """
        for name in sorted(own, key=lambda name: (-(own[name] << ONE_BITS) // self.seats[name].weight, name)):
            weight = self.seats[name].weight
            if own[name] * whole <= part * weight:
                break
            part, whole = max(0, part - own[name]), whole - weight
        return part, whole

    def _span(self, seat: Seat) -> tuple[int, int]:
        """Takes note of what a queue has to tell. Returns the span of its guarantee in which that stays as it is."""
        if seat.parent is None:
            return 0, ONE
        new, told = self.told_of(seat), seat.told
        if any(abs(now - before) >= TOLD_STEP for now, before in islice(zip(new, told, strict=True), 5)):
            self.news[seat.name] = seat
        else:
            self.news.pop(seat.name, None)
        edge = new.allocated + seat.slack
        low = seat.waiting > 0 and not seat.listed and edge < max(new.guaranteed, self.promised(seat))
        if low != seat.low:
            seat.low = low
            self.shaken[seat.name] = seat
        seat.calm, seat.ends, seat.far = None, [], False
        if seat.name in self.news:
            return seat.guaranteed, seat.guaranteed
        return self._keep_calm(seat, new)

    def _keep_calm(self, seat: Seat, new: Told) -> tuple[int, int]:
        """Works out within what sums there is nothing to tell. Returns the span of the guarantee in which there is not.

        What is told comes of both, so each has half of what is left until it changes.
        """
        told, step = seat.told, TOLD_STEP - 1
        held, asked = new.allocated, self.share_of(seat.demand)
        held_least, held_most = told.allocated - step, told.allocated + step
        if seat.listed:
            seat.calm = Calm(held_least, held_most + 1, 0, None, 0, None)
            return 0, ONE
        asked_least = 0
        asked_end: int | None = None
        seat.far = not self.fits and abs(asked - told.fair) > step
        if not seat.far:
            asked_least, asked_end = told.fair - step, told.fair + step + 1
        least, most = told.guaranteed - step, told.guaranteed + step
        lends = new.guaranteed - max(held, asked)  # Nothing, where negative.
        half = (told.lent + step - lends) // 2
        most = min(most, new.guaranteed + half)
        if held < asked:
            asked_least = max(asked_least, asked - half)
        else:
            held_least = max(held_least, held - half)
        if told.lent > step:
            half = (lends - told.lent + step) // 2
            least = max(least, new.guaranteed - half)
            held_most = min(held_most, max(held, asked) + half)
            end = max(held, asked) + half + 1
            asked_end = end if asked_end is None else min(asked_end, end)
        borrows = held - new.guaranteed
        half = (told.borrowed + step - borrows) // 2
        least, held_most = max(least, new.guaranteed - half), min(held_most, held + half)
        if told.borrowed > step:
            half = (borrows - told.borrowed + step) // 2
            most, held_least = min(most, new.guaranteed + half), max(held_least, held - half)
        slack_least = 0
        slack_end: int | None = None
        if seat.waiting:
            edge = held + seat.slack
            part = max(0, (new.guaranteed - edge - 1 if seat.low else edge - new.guaranteed) // 3)
            if seat.low:
                least, held_most = max(least, new.guaranteed - part), min(held_most, held + part)
                slack_end = seat.slack + part + 1
            else:
                most, held_least = min(most, new.guaranteed + part), max(held_least, held - part)
                slack_least = seat.slack - part
        seat.calm = Calm(held_least, held_most + 1, asked_least, asked_end, slack_least, slack_end)
        return _first_with(least), _first_with(most + 1) - 1


def factor_of(demand: Sequence[int], limits: Limits) -> tuple[int, int] | None:
    """How much of a demand, all kinds in proportion, lies within the limits, as a fraction; more than 1 if all of it.

    None where it asks for no kind that a limit names.
    """
    part, whole = 0, 0
    for asked, limit in zip(demand, limits, strict=False):
        if asked and limit is not None and (not whole or limit * whole < part * asked):
            part, whole = limit, asked
    return (part, whole) if whole else None


def _settled(share: int) -> int:
    """A share without the rounding of how it was worked out."""
    return (share + NEAR // 2) // NEAR * NEAR


def _first_with(units: int) -> int:
    """The least share that is told as so many billionths."""
    return -(-(units << ONE_BITS) // SHARE_UNITS) - NEAR
