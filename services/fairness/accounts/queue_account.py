"""The account of one queue: what it asks for, holds and is guaranteed, and what was last published of it."""

from collections.abc import Sequence
from typing import NamedTuple

from services.fairness.accounts.intervals import Intervals, QuietBand
from services.fairness.tree import ONE

_NEAR_BITS = 20

Limits = Sequence[int | None]
"""Base units by kind, None where a kind is not named; empty where none is."""


class Published(NamedTuple):
    """What is said of a queue, as dominant shares in billionths of the cell, and the kind it holds most of (a place in
    the capacity vector; -1: it holds nothing).
    """

    guaranteed: int = 0
    fair: int = 0
    allocated: int = 0
    lent: int = 0
    borrowed: int = 0
    kind: int = -1


NOTHING = Published()


class QueueAccount:
    """One queue. `listed`: it lies inside a list, and has no share of its own. `by_holdings`: it is served by what it
    and its siblings hold, so that its weight guarantees it nothing (`naive-hdrf`). `floor`, `most`: what it is
    guaranteed and may have at most. Sums run over the leaves below it, in the order of the capacity vector.
    """

    __slots__ = (
        "asked", "asking", "asks", "base", "by_holdings", "children", "claim", "claims", "demand", "each", "ends",
        "fair", "far", "floor", "guaranteed", "intervals", "listed", "low", "most", "name", "over",
        "parent", "published", "quiet_band", "sets", "slack", "stale", "stale_children", "startable", "tasks", "used",
        "waiting", "weight", "weights",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        weight: int,
        floor: Limits = (),
        most: Limits = (),
        *,
        listed: bool = False,
        by_holdings: bool = False,
    ) -> None:
        self.name = name
        self.weight = weight
        self.floor = floor
        self.most = most
        self.listed = listed
        self.by_holdings = by_holdings
        self.parent: QueueAccount | None = None
        self.children: list[QueueAccount] = []
        self.demand: list[int] = []
        self.used: list[int] = []
        self.waiting = 0  # Leaves that wait for more.
        self.slack = 0  # One task of each of them, in billionths.
        self.asks = False
        self.base: list[int] = []  # What it holds and does not wait for (standing.py), where it has a maximum: shares.
        self.each: list[int] = []  # What one of its tasks that wait asks for in the mean, rounded up.
        self.asked = False  # Jobs of a leaf ask for something, if only for kinds that the cell has nothing of.
        self.sets: dict[str, list[int]] = {}  # By set of kinds what a leaf asks for, where it asks for several.
        self.tasks = 0  # Tasks of a leaf that wait for nothing but room,
        self.startable: list[int] = []  # and what those ask for together.
        self.asking = self.weights = 0  # Of the children: those that ask for something, and their weights.
        self.claim: list[int] = []  # What guarantees cover of what it asks for, in shares of the cell.
        self.claims: list[int] = []  # What those of its children do.
        self.over = False  # It asks for more than its maximum.
        self.fair = 0  # Its level in billionths, where some leaf gets less than it asks for.
        self.guaranteed = 0
        self.low = False  # It waits, and with a task more would still not be above its guarantee.
        self.published = NOTHING
        self.quiet_band: QuietBand | None = None  # None: any change has to be looked at.
        self.ends: list[list[int]] = []  # The first four numbers of `quiet_band` in amounts, once needed.
        self.far = False  # What it asks for was too far from the published level for `quiet_band` to follow that.
        self.stale = True
        self.stale_children: list[QueueAccount] = []
        self.intervals = Intervals()

    def grow(self, child: "QueueAccount") -> None:
        """Takes a child."""
        child.parent = self
        self.children.append(child)

    def is_short(self, held: int, level: int) -> bool:
        """Whether it waits for more and, with a task more for each leaf that waits, would be within the level
        (billionths).
        """
        return self.waiting > 0 and held + self.slack <= level

    @property
    def has_room_below_maximum(self) -> bool:
        """Whether a leaf with one task more of the mean size would be within its maximum."""
        limits = zip(self.used, self.each, self.most, strict=False)
        return all(most is None or held + each <= most for held, each, most in limits)

    def near_maximum(self, amounts: Sequence[int]) -> list[bool]:
        """Whether so much of a kind is, but for rounding, its maximum; by kind."""
        limits = zip(amounts, self.most, strict=False)
        return [most is not None and amount >= most - (most >> _NEAR_BITS) - 1 for amount, most in limits]

    @property
    def by_weights(self) -> int:
        """The queue's part by weights alone, among queues that ask for something, as a share of `ONE`."""
        share, account = ONE, self
        while account.parent is not None:
            share = share * account.weight // max(account.parent.weights, account.weight)
            account = account.parent
        return share

    @property
    def is_group(self) -> bool:
        """Whether it has a level of its own that leftover goes by: a leaf, or the top of a list."""
        return not self.listed and (not self.children or self.children[0].listed)
