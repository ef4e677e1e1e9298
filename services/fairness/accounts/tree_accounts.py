"""What every queue of the tree is guaranteed, holds, lends and borrows, updated incrementally along the paths that
change.

A queue's guarantee is its part by weight, among the siblings with demand, of its parent's guarantee (H-DRF, section
2.1); at least what its own configured guarantee covers, which is taken off before weights divide the rest; at most what
its maximum allows. So a single queue that begins to ask changes the guarantees of all its siblings' subtrees, mostly by
very little. To avoid visiting them all, each queue keeps the interval of its guarantee within which nothing changes
enough to be published, for itself or below it; only queues that leave their interval are visited. Likewise it keeps a
band for what it holds and asks for (`QuietBand`). Each of the two gets half of the distance at which a published value
would change, so that they can be checked separately.

Guarantees are shares of `ONE`; published values are in billionths of the cell.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from services.fairness.accounts.amounts import factor_of, most_beside, part_units, shares_of
from services.fairness.accounts.division import Claimant, divided
from services.fairness.accounts.queue_account import Published, QueueAccount
from services.fairness.accounts.quiet_band import PUBLISH_STEP, find_quiet_band, first_with
from services.fairness.tree import NEAR, ONE, ONE_BITS, share_units

FINE: Final = 1 << 88
"""More than this (2^-40 of the cell) beyond all that there is, and too much is guaranteed."""


class TreeAccounts:
    """All queues of a tree in a cell of `capacity` (nothing of it 0).

    `changed`: queues that have a value to publish. `recheck`: queues whose `low` may have changed since it was last
    read. `kinds`: what the places in a vector stand for. `by_holdings`: some levels in the tree go by what is held.
    `demanding`: leaves whose jobs ask for something; `occupied`: those, and leaves that hold something. The caller's
    own: `moved`, leaves that are still to be `put`; `fillings`, how many there were; `shared`, the number of the one
    whose levels are in force (0: none).
    """

    def __init__(self, root: QueueAccount, capacity: Sequence[int], kinds: Sequence[str] = ()) -> None:
        self.kinds = kinds
        self.capacity = capacity
        self.root = root
        self.queues: dict[str, QueueAccount] = {}
        self.over: dict[str, QueueAccount] = {}  # Queues that ask for more than their maximum.
        self.fits = True  # Every leaf gets all that it asks for.
        self._rich: dict[str, QueueAccount] = {}  # With a level of their own, and published as holding something.
        self.keeps_levels = False  # The levels are those that were published.
        self._gets_all = True  # Every leaf got all that it asks for, or nothing was shared out yet.
        self._pledged: Sequence[int] = [0] * len(capacity)
        todo = [root]
        while todo:
            account = todo.pop()
            self.queues[account.name] = account
            account.demand, account.used, account.claim, account.claims = ([0] * len(capacity) for _ in range(4))
            account.startable = [0] * len(capacity)
            account.stale_children = list(account.children)
            todo += account.children
        self.changed: dict[str, QueueAccount] = {}
        self.recheck = dict(self.queues)
        self.by_holdings = False
        self.demanding: dict[str, bool] = {}
        self.occupied: dict[str, bool] = {}
        self.moved: dict[str, bool] = {}
        self.fillings = self.shared = 0

    # ------------------------------------------------------------------ what happens
    def put(self, account: QueueAccount, demand: list[int], used: list[int], startable: list[int], tasks: int) -> None:
        """A leaf asks for `demand` in all and holds `used`; `tasks` tasks of it wait, together for `startable`."""
        account.tasks, account.startable = tasks, startable
        if account.most:
            account.each = [-(-amount // tasks) if tasks else 0 for amount in startable]
        more = [demand[kind] - account.demand[kind] for kind in range(len(demand))]
        held = [used[kind] - account.used[kind] for kind in range(len(used))]
        slack = (-(-self.share_of(startable) // tasks) if tasks else 0) - account.slack
        waits = (tasks > 0) - account.waiting
        asks = any(demand)
        loud = asks != account.asks
        at: QueueAccount | None = account
        while at is not None:
            at.demand, at.used = _sum(at.demand, more), _sum(at.used, held)
            at.slack += slack
            waited = at.waiting
            at.waiting += waits
            if at.most or at.floor or at.claims != at.claim:
                loud = True
                self._limit(at)
            if loud or (waited > 0) != (at.waiting > 0) or not self._is_quiet(at):
                loud = True
                self._mark(at)
            at = at.parent
        self._ask(account, asks)

    def share_out(self, fair: Mapping[str, int] | None) -> None:
        """Sets the levels in force, in billionths, by queue; None: every leaf gets all that it asks for. Costs all
        queues.
        """
        if fair is not None and not self._gets_all:
            self.share_moved({name: fair.get(name, 0) for name in self.queues})
            return
        for name, account in self.queues.items():
            account.fair = fair.get(name, 0) if fair is not None else self.share_of(account.demand)
            if (
                abs(account.fair - account.published.fair) >= PUBLISH_STEP
                or name in self.changed
                or (account.far and fair is None)
            ):
                self._mark_up(account)
        self.fits, self.keeps_levels, self._gets_all = fair is None, False, fair is None

    def share_moved(self, fair: Mapping[str, int]) -> None:
        """The same where not every leaf gets, or got before, all that it asks for, and only these levels may differ
        from those shared out last. Costs as much as there are.
        """
        for name, units in fair.items():
            account = self.queues[name]
            if units != account.fair:
                account.fair = units
                if abs(units - account.published.fair) >= PUBLISH_STEP:
                    self._mark_up(account)
        for account in self.changed.values():
            self._mark_up(account)
        self.fits, self.keeps_levels = False, False

    def keep_levels(self) -> None:
        """The round keeps the previous levels: what was published of them stays in force."""
        if not self.keeps_levels:
            self.fits, self.keeps_levels = False, True
            for account in self.changed.values():
                self._mark_up(account)

    def publish(self, name: str, published: Published) -> None:
        """What readers know of a queue from now on."""
        account = self.queues[name]
        account.published = published
        if published.allocated and account.is_group:
            self._rich[name] = account
        else:
            self._rich.pop(name, None)
        self._mark_up(account)

    def settle(self) -> None:
        """Brings `changed` and `recheck` up to date with all updates so far."""
        pledged = self.root.claims
        if pledged != self._pledged and max([*pledged, *self._pledged], default=0) > ONE:
            for account in self.queues.values():  # All guarantees are cut by another part.
                if any(account.claim):
                    self._mark_up(account)
        self._pledged = pledged
        if self.root.stale:
            self._visit(self.root, ONE)

    def look_at(self, names: Iterable[str]) -> None:
        """Updates the guarantees of these queues even if they have moved by too little to be published."""
        for name in names:
            self._mark_up(self.queues[name])
        self.settle()

    # ------------------------------------------------------------------ questions
    def to_publish(self, account: QueueAccount) -> Published:
        """What would be published of a queue now."""
        held = self.share_of(account.used)
        kind = self._kind(account.used) if held else -1
        if account.listed:
            return Published(allocated=held, kind=kind)
        guaranteed, wanted = share_units(account.guaranteed), self.share_of(account.demand)
        fair = wanted if self.fits else account.published.fair if self.keeps_levels else account.fair
        lent, borrowed = max(0, guaranteed - max(held, wanted)), max(0, held - guaranteed)
        return Published(guaranteed, fair, held, lent, borrowed, kind)

    def divide(self, names: Iterable[str], share: int) -> dict[str, int]:
        """How these sibling queues would divide a share if there were only one kind of resource: each gets its own
        guarantee as far as it asks for it, the rest is divided by weight, and nobody gets more than it asks for.
        """
        those = [self.queues[name] for name in names if self.queues[name].asks]
        parts = [Claimant(account.weight, *self._bounds(account)) for account in those]
        return {account.name: part for account, part in zip(those, divided(share, parts), strict=True)}

    def wants_more(self, account: QueueAccount, share: int) -> bool:
        """Whether a queue would take more than so much."""
        return self._bounds(account)[1] > share

    def _bounds(self, account: QueueAccount) -> tuple[int, int]:
        least = self._covered(account) if any(account.claim) else 0
        return least, max(least, min(self._share(account.demand), self.most_of(account)))

    def pledges(self) -> dict[str, tuple[Sequence[int], int]]:
        """Everything that the configured guarantees depend on, by queue: as long as this stays the same, so do they."""
        return {name: self.pledge_of(account) for name, account in self.queues.items() if any(account.claim)}

    def pledge_of(self, account: QueueAccount) -> tuple[Sequence[int], int]:
        """What a guarantee comes from; the same for any demand in one direction that it does not cover."""
        return tuple(account.claim), self._named(account)

    def leaves_of(self, paths: Iterable[str]) -> list[str]:
        """Those of the paths that are leaves of this tree."""
        return [path for path in paths if path in self.queues and not self.queues[path].children]

    def group_of(self, path: str) -> QueueAccount:
        """The queue that has the level for a leaf: itself, or the top of its list, which may be asked for as well."""
        account = self.queues[path]
        while account.listed and account.parent is not None:
            account = account.parent
        return account

    def promised(self, account: QueueAccount) -> int:
        """What a queue's own guarantee covers of what it asks for, whether or not all can have it, in billionths."""
        return share_units(min(ONE, max(self._covers(account)), self.most_of(account))) if account.floor else 0

    def richest(self, latest: Mapping[str, tuple[int, int]]) -> list[str]:
        """The queues with a level of their own that hold something beyond their guarantees, those with most of it
        first; if none does, those that hold something, likewise. By what they were published to borrow and to hold, or
        by `latest`, as pairs: values that are not published are not computed for all. Costs the queues that hold a
        permille.
        """
        known = {
            name: (account.published.borrowed, account.published.allocated) for name, account in self._rich.items()
        }
        for name, held in latest.items():
            if self.queues[name].is_group:
                known[name] = held
        for at in (0, 1):
            if found := sorted([(-held[at], name) for name, held in known.items() if held[at]]):
                return [name for _, name in found]
        return []

    # ------------------------------------------------------------------ amounts
    def shares_of(self, amounts: Iterable[int]) -> list[int]:
        """Of each kind the part of the cell."""
        return shares_of(amounts, self.capacity)

    def _share(self, amounts: Iterable[int]) -> int:
        return max(self.shares_of(amounts), default=0)

    def share_of(self, amounts: Iterable[int]) -> int:
        """The dominant share, in billionths."""
        most, capacity = 0, self.capacity
        for at, amount in enumerate(amounts):
            if amount:
                share = part_units(amount, capacity[at])
                if share > most:
                    most = share
        return most

    def _kind(self, amounts: Sequence[int]) -> int:
        """Which kind the largest part of the cell is held of; of equals the first."""
        most, capacity = 0, self.capacity
        for at in range(1, len(amounts)):
            if amounts[at] * capacity[most] > amounts[most] * capacity[at]:
                most = at
        return most

    def _limit(self, account: QueueAccount) -> None:
        """What guarantees cover of what a queue asks for, and whether it asks for more than its maximum."""
        if account.most:
            over = any(
                most is not None and asked > most for most, asked in zip(account.most, account.demand, strict=True)
            )
            if over and not account.over:
                self.over[account.name] = account
            elif account.over and not over:
                del self.over[account.name]
            account.over = over
        if account.floor or any(account.claims) or any(account.claim):
            claim = list(map(max, self._covers(account), account.claims))
            if account.parent is not None:
                above = account.parent
                above.claims = [a + new - old for a, new, old in zip(above.claims, claim, account.claim, strict=True)]
            account.claim = claim

    def _covers(self, account: QueueAccount) -> list[int]:
        """What a queue's own guarantee covers of what it asks for, in shares of the cell by kind."""
        part, whole = factor_of(account.demand, account.floor) or (0, 1)
        shares = self.shares_of(account.demand)
        return [_settled(share * part // whole) for share in shares] if part < whole else shares

    def own_of(self, account: QueueAccount) -> int:
        """What a queue is guaranteed whatever the weights: what is covered of what it asks for, and of the kinds named
        all that is promised. Where too much is covered, all get only that, less in proportion.
        """
        covered = self._covered(account)
        return covered if self._pledged_of(account) > ONE + FINE else min(ONE, max(covered, self._named(account)))

    def _covered(self, account: QueueAccount) -> int:
        """What guarantees cover of what a queue asks for."""
        pledged = self._pledged_of(account)
        return min(ONE, max(account.claim) * ONE // pledged if pledged > ONE + FINE else max(account.claim))

    def _pledged_of(self, account: QueueAccount) -> int:
        """How much of the cell is covered for all, of the kind of which that is most among those covered here."""
        return max([have for have, claim in zip(self.root.claims, account.claim, strict=True) if claim])

    def _named(self, account: QueueAccount) -> int:
        """What a queue is promised of the kinds named, as far as it asks for them, if it asked for enough."""
        part, whole = factor_of(account.demand, account.floor) or (0, 1)
        shares = zip(self.shares_of(account.demand), account.floor, strict=False)
        return max([_settled(share * part // whole) for share, floor in shares if floor is not None], default=0)

    def most_of(self, account: QueueAccount) -> int:
        """What a queue may have at most. Where its tasks ask for several sets of kinds, a maximum holds back those
        alone that need the kind that it names; else all that it asks for is held back in the same proportion.
        """
        if account.most and (account.sets or not (account.is_group or account.listed)):
            if not account.over:
                return ONE
            limits = zip(account.demand, account.most, strict=True)
            return min(ONE, self._share([asked if most is None else min(asked, most) for asked, most in limits]))
        base = account.base if account.over else ()
        most = most_beside(account.demand, base, account.most, self.capacity) if account.most else None
        return ONE if most is None else min(ONE, most)

    # ------------------------------------------------------------------ guarantees
    def _is_quiet(self, account: QueueAccount) -> bool:
        """Whether a queue's sums are still where they leave nothing to tell, its guarantee being what it was."""
        quiet_band = account.quiet_band
        if quiet_band is None:
            return account.parent is None
        held_least, held_end, asked_least, asked_end, slack_least, slack_end = quiet_band
        if account.slack < slack_least or (slack_end is not None and account.slack >= slack_end):
            return False
        if not account.ends:
            account.ends = [self._amounts_from(units) for units in (held_least, held_end, asked_least, asked_end)]
        ends = account.ends
        return _is_within(account.used, ends[0], ends[1]) and _is_within(account.demand, ends[2], ends[3])

    def _amounts_from(self, units: int | None) -> list[int]:
        """The least amount of each kind that is published as so many billionths."""
        if units is None:
            return []
        share = first_with(units)
        return [-(-share * have >> ONE_BITS) for have in self.capacity]

    def _mark(self, account: QueueAccount) -> None:
        if not account.stale:
            account.stale = True
            if account.parent is not None:
                account.parent.stale_children.append(account)

    def _mark_up(self, account: QueueAccount) -> None:
        at: QueueAccount | None = account
        while at is not None and not at.stale:
            self._mark(at)
            at = at.parent

    def _ask(self, account: QueueAccount, asks: bool) -> None:
        """A queue begins or ceases to have demand, and its ancestors possibly with it."""
        while asks != account.asks:
            account.asks = asks
            if account.parent is None:
                return
            above = account.parent
            above.asking += 1 if asks else -1
            above.weights += account.weight if asks else -account.weight
            account, asks = above, above.asking > 0

    def _visit(self, account: QueueAccount, guaranteed: int) -> tuple[int, int]:
        """Recomputes a queue whose guarantee or sums have changed, and the part of its subtree that is affected.
        Returns the interval of its guarantee within which no further visit is needed.
        """
        account.guaranteed = guaranteed
        stale, account.stale, account.stale_children = account.stale_children, False, []
        low, high = self._span(account)
        if not account.children:
            return low, high
        if account.children[0].listed:
            for child in stale:
                self._visit(child, 0)
            return low, high
        least, most = self._visit_children(account, stale)
        return max(low, least), min(high, most)

    def _visit_children(self, account: QueueAccount, stale: list[QueueAccount]) -> tuple[int, int]:
        own: dict[str, int] = {}
        if any(account.claims):
            own = {child.name: self.own_of(child) for child in account.children if child.asks and any(child.claim)}
        part, whole = self.rate_of(account.guaranteed, account.weights, own)
        if own and not whole:
            whole = 1  # No child has anything by its weight any more, also those that had.
        todo = {child.name: child for child in stale}
        if whole:
            todo |= {name: self.queues[name] for name in account.intervals.take_outside(part, whole)}
        spans, idle = list[tuple[str, int, int, int]](), list[str]()
        for name, child in todo.items():
            if not child.asks:
                self._visit(child, 0)
                idle.append(name)
                continue
            least, most = own.get(name, 0), self.most_of(child)
            by_weight = part * child.weight // whole if whole else 0
            low, high = self._visit(child, min(max(by_weight, least), most))
            spans.append((name, child.weight, 0 if low <= least else low, ONE if high >= most else high))
        account.intervals.update(spans, idle)
        if own:
            return account.guaranteed, account.guaranteed
        return account.intervals.around(whole, ONE)

    def rate_of(self, part: int, whole: int, own: Mapping[str, int]) -> tuple[int, int]:
        """The guarantee per unit of weight, as a fraction, among queues with the total weight `whole` that are
        guaranteed `part` together: what is left once own guarantees are taken off, divided by the weights of the other
        queues. A queue whose own guarantee is more than its part by weight does not take part.
        """
        for name in sorted(own, key=lambda name: (-(own[name] << ONE_BITS) // self.queues[name].weight, name)):
            weight = self.queues[name].weight
            if own[name] * whole <= part * weight:
                break
            part, whole = max(0, part - own[name]), whole - weight
        return part, whole

    def _span(self, account: QueueAccount) -> tuple[int, int]:
        """Records whether a queue has something new to publish. Returns the interval of its guarantee within which that
        answer stays the same.
        """
        if account.parent is None:
            return 0, ONE
        new, published = self.to_publish(account), account.published
        if any(abs(now - before) >= PUBLISH_STEP for now, before in islice(zip(new, published, strict=True), 5)):
            self.changed[account.name] = account
        else:
            self.changed.pop(account.name, None)
        edge = new.allocated + account.slack
        low = account.waiting > 0 and not account.listed and edge < max(new.guaranteed, self.promised(account))
        if low != account.low:
            account.low = low
            self.recheck[account.name] = account
        account.quiet_band, account.ends, account.far = None, [], False
        if account.name in self.changed:
            return account.guaranteed, account.guaranteed
        return find_quiet_band(account, new, self.share_of(account.demand), fits=self.fits)


def _settled(share: int) -> int:
    """A share without the rounding of how it was worked out."""
    return (share + NEAR // 2) // NEAR * NEAR


def _sum(amounts: list[int], more: list[int]) -> list[int]:
    """A new list: others keep the one that there was, and see by that whether it has changed."""
    return [amounts[kind] + more[kind] for kind in range(len(more))]


def _is_within(amounts: list[int], least: list[int], end: list[int]) -> bool:
    """Whether there is as much of some kind as `least`, and of no kind as much as `end` (empty: without end)."""
    if not any(amounts[kind] >= least[kind] for kind in range(len(least))):
        return False
    return not any(amounts[kind] >= end[kind] for kind in range(len(end)))
