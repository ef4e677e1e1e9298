"""The event loop of progressive filling (static.py): when kinds become full, which children of an inner node are filled
at the moment, how fast, and what the next event is.

To those below it, a node that holds all that it may of a kind is a cell in which that kind is full; to its siblings it
is as before.

The *water level* of a node is the level (share / weight) that its unblocked children have reached. Shares and levels
are in units of `ONE`; speeds are per unit of level, in the same units.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from operator import add, sub

from services.fairness.hdrf.leaf_fill import LeafFill
from services.fairness.tree import NEAR, ONE, ONE_BITS, RANK_ORDERS


class InnerFill:
    """One inner node during a filling.

    `level` is its water level: the least share / weight among the children that can still take. Its leaves that take
    are at the level `front`, the others ahead of it; an inner child is at its own `height`. Children at the water level
    either rise with it or are stalled: these take while their height stays the same, and as long as there are any, only
    they are filled, and `lag` (what each has taken since, over its weight) grows instead of `level`. Whichever of the
    two grows is the node's clock. All fields are as of the node's last event; an event updates only the nodes on its
    path to the root.
    """

    __slots__ = (
        "attached", "blocked", "clock", "compared", "due", "ends", "front", "front_active", "front_speed",
        "front_takers", "given", "groups", "height", "inner", "lag", "lag_speed", "lagging", "lags", "leaves", "level",
        "mark", "most", "name", "nothing", "number", "order", "pace", "queue", "ranked", "rise_speed", "rises",
        "rising", "shut", "speed", "stalled", "starts", "used", "waiting", "weight_down", "weight_up",
    )  # fmt: skip

    def __init__(self, name: str | None, order: str, number: int, width: int) -> None:
        self.name = name  # None: it was made around a single leaf.
        self.order = order
        self.number = number  # Breaks ties in heaps: the place in the tree. 0: the top.
        self.weight_up = self.weight_down = (
            1  # Weight over the greatest of its siblings: a level is never finer than a share.
        )
        self.inner: list[InnerFill] = []  # Children that can still take.
        self.leaves: list[LeafFill] = []
        self.queue: list[tuple[int, int]] = []  # Level and place of leaves with a limit, the next to be satisfied last.
        self.groups: dict[int, int] = {}  # Set of kinds asked for -> how many leaves can still take.
        self.ends: dict[int, int] = {}  # Set of kinds asked for -> the level where such leaves were blocked.
        self.front = self.front_takers = 0
        self.starts: list[
            tuple[int, int]
        ] = []  # Level and place of leaves ahead of the front, the next to be reached last.
        self.level = self.lag = self.clock = self.height = self.mark = 0
        self.blocked = self.stalled = self.attached = self.front_active = False
        self.nothing = [0] * width
        self.used = [0] * width
        self.front_speed = self.nothing
        self.rises: list[tuple[int, InnerFill]] = []  # Level at a rising child's next event.
        self.lags: list[tuple[int, InnerFill]] = []  # Likewise in `lag`.
        self.waiting: list[tuple[int, InnerFill]] = []  # Height of a child that has to wait. Leaves wait at `front`.
        self.ranked: list[InnerFill] = []  # Under a rank order: children still to be filled, the next one last.
        self.compared: Sequence[int] = ()  # The kinds that its parent compares it by.
        self.given: list[int] = []  # Its speed per unit of its parent's clock.
        self.pace = 0  # Units of its parent's clock per unit of its own.
        self.due: int | None = None  # Its clock at its next event.
        self.most: list[tuple[int, int]] = []  # Kinds with a maximum, and how much of each it may hold.
        self.shut = 0  # The kinds that nobody below can get any more, a bit each.

    def __lt__(self, other: "InnerFill") -> bool:
        return self.number < other.number

    def open_leaves(self) -> None:
        """Initialise what is kept of the leaves that ask for something."""
        for place, leaf in enumerate(self.leaves):
            if leaf.held:
                self.used = list(map(add, self.used, leaf.held))
            if not leaf.satisfied:
                self.groups[leaf.mask] = self.groups.get(leaf.mask, 0) + 1
                self.starts.append((leaf.level_min, place))
                if leaf.level_max is not None:
                    self.queue.append((leaf.level_max, place))
        self.queue.sort(reverse=True)
        self.starts.sort(reverse=True)

    def start_over(self, full: int) -> None:
        """Block the leaves that need a full kind, and reset all speeds."""
        self.front_active = False  # First: leaves that are reached now are counted at the front.
        if self.leaves:
            self.start_leaves_over(full)
        self.rising = self.lagging = 0  # Inner children that take.
        self.speed = self.rise_speed = self.lag_speed = self.nothing  # Of the cell, per unit of its clock.
        for heap in (self.rises, self.lags, self.waiting):
            heap.clear()
        self.ranked = []

    def start_leaves_over(self, full: int) -> None:
        """Block those that need a full kind, and count the others at the front."""
        while self.queue and self.queue[-1][0] <= self.front + NEAR:
            self.leave(self.leaves[self.queue.pop()[1]])  # Satisfied at the very moment at which a kind is full.
        groups = self.groups
        for mask in [mask for mask in groups if mask & full]:
            self.ends[mask] = self.front
            del groups[mask]
        self.front_speed, self.front_takers = self.nothing, 0
        if groups:
            taking = [leaf.speed for leaf in self.leaves if leaf.started and not leaf.satisfied and leaf.mask in groups]
            self.front_takers = len(taking)
            if len(taking) == 1:
                self.front_speed = taking[0]
            elif taking:
                self.front_speed = list(map(sum, zip(*taking, strict=True)))
        self.find_front()

    def start_at_lowest(self) -> None:
        """Sets the water level to that of the lowest child: children there take, the others wait above it."""
        heights = [self.front] if self.front_takers else []
        for child in self.inner:
            child.height = max([child.used[j] for j in child.compared]) * child.weight_down // child.weight_up
            heights.append(child.height)
        self.level = min(heights, default=0)
        if self.front_takers and self.front <= self.level + NEAR:
            self.level = self.front
            self.front_starts()
        for child in self.inner:
            if child.height <= self.level + NEAR:
                self.attach(child)
            else:
                child.attached = False
                self.waiting.append((child.height, child))
        if self.waiting:
            heapify(self.waiting)

    def advance(self, clock: int) -> None:
        """Advances the clock; there is no event in between."""
        ahead = clock - self.clock
        if ahead > 0:
            used = list(map(add, self.used, [speed * ahead >> ONE_BITS for speed in self.speed]))
            self.arrive(clock, used)

    def arrive(self, clock: int, used: list[int]) -> None:
        self.used = used
        self.clock = clock
        if self.lagging:
            self.lag = clock
        else:
            self.level = clock

    def attach(self, child: "InnerFill") -> None:
        """Starts to fill a child that the water level has reached."""
        child.attached = True
        if child.stalled:
            self.lagging += 1
            self.lag_speed = list(map(add, self.lag_speed, child.given))
        else:
            self.rising += 1
            self.rise_speed = list(map(add, self.rise_speed, child.given))
        self.expect(child)

    def expect(self, child: "InnerFill") -> None:
        """Notes when a child that is being filled has its next event."""
        child.mark = self.lag if child.stalled else self.level
        if child.due is not None:
            heap = self.lags if child.stalled else self.rises
            due = child.mark + (child.pace * (child.due - child.clock) >> ONE_BITS)
            heappush(heap, (due, child))

    def detach(self, child: "InnerFill", stalled: bool, given: list[int]) -> None:
        """Stops filling a child that can take no more or changes its speed; `stalled` and `given` are as they were."""
        child.attached = False
        if stalled:
            self.lagging -= 1
            self.lag_speed = list(map(sub, self.lag_speed, given))
        else:
            self.rising -= 1
            self.rise_speed = list(map(sub, self.rise_speed, given))

    def settle(self) -> None:
        """Determines which children are filled now, how fast, and when the next event is. Blocked if none can take."""
        while not self.lagging and self.ranked:
            self.attach(self.ranked.pop())
        if not (self.lagging or self.rising or self.front_active):
            ahead = self.next_ahead()
            if ahead is not None:
                self.level = ahead
                self.join()
        if self.lagging:
            self.clock, self.speed = self.lag, self.lag_speed
            self.due = self.lags[0][0] if self.lags else None
        elif self.rising or self.front_active:
            self.clock, self.speed = self.level, self.rise_speed
            self.due = self.next_rise()
        else:
            self.blocked = True
            return
        if self.most:
            self.find_maximum()
        if self.number:
            self.find_pace()

    def at_most(self) -> int:
        """The kinds of which it holds all that it may, a bit each."""
        return sum([1 << j for j, most in self.most if self.used[j] >= most - NEAR])

    def find_maximum(self) -> None:
        """Its next event is at the latest when it holds all that it may of another kind."""
        for j, most in self.most:
            if self.speed[j] > 0 and self.used[j] < most - NEAR:
                reached = self.clock - ((self.used[j] - most << ONE_BITS) // self.speed[j])
                if self.due is None or reached < self.due:
                    self.due = reached

    def next_ahead(self) -> int | None:
        """The level of the next child that the water level has still to reach."""
        if self.front_active or not self.front_takers:
            return self.waiting[0][0] if self.waiting else None
        return min(self.front, self.waiting[0][0]) if self.waiting else self.front

    def next_rise(self) -> int | None:
        """Level at which a leaf is satisfied, a rising child has an event or a child ahead is reached."""
        due = self.next_ahead()
        if self.rises and (due is None or self.rises[0][0] < due):
            due = self.rises[0][0]
        if self.front_active:
            for levels in (self.queue, self.starts):
                while levels and self.leaves[levels[-1][1]].mask not in self.groups:
                    levels.pop()  # Blocked before.
                if levels and (due is None or levels[-1][0] < due):
                    due = levels[-1][0]
        return due

    def find_pace(self) -> None:
        """How fast its height grows, or that it is stalled; and when another kind becomes dominant."""
        speed, used, compared = self.speed, self.used, self.compared
        top = rise = 0
        for j in compared:
            if used[j] > top:
                top = used[j]
        near = top - NEAR
        for j in compared:
            if used[j] >= near and speed[j] > rise:
                rise = speed[j]
        for j in compared:
            if speed[j] > rise and used[j] < near:
                overtakes = self.clock - ((used[j] - top << ONE_BITS) // (speed[j] - rise))
                if self.due is None or overtakes < self.due:
                    self.due = overtakes
        self.stalled = rise == 0
        self.pace = pace = (rise or max(speed)) * self.weight_down // self.weight_up or 1
        self.given = [(each << ONE_BITS) // pace for each in speed]

    def join(self) -> None:
        """Starts to fill the children that the water level has reached."""
        while self.waiting and self.waiting[0][0] <= self.level:
            self.attach(heappop(self.waiting)[1])
        if self.front_active:
            self.start_leaves(self.level)
        elif self.front_takers and self.front <= self.level:
            self.front_starts()

    def front_starts(self) -> None:
        """The water level has reached the leaves at the front."""
        self.front_active = True
        self.rise_speed = list(map(add, self.rise_speed, self.front_speed))

    def find_front(self) -> None:
        """If no leaf is left at the front, the front moves to the next leaf."""
        while not self.front_takers and self.starts:
            self.front = self.starts[-1][0]
            self.front_speed = self.nothing
            self.start_leaves(self.front)

    def start_leaves(self, level: int) -> None:
        """The front has come to this level: leaves that start there take, too."""
        while self.starts and self.starts[-1][0] <= level + NEAR:
            leaf = self.leaves[self.starts.pop()[1]]
            if leaf.mask in self.groups and not leaf.satisfied:
                leaf.started = True
                self.front_takers += 1
                if self.front_active:
                    self.rise_speed = list(map(add, self.rise_speed, leaf.speed))
                else:
                    self.front_speed = list(map(add, self.front_speed, leaf.speed))

    def satisfy(self) -> None:
        """Removes the leaves whose limit the water level has reached."""
        while self.front_active and self.queue and self.queue[-1][0] <= self.level:
            leaf = self.leaves[self.queue.pop()[1]]
            if self.leave(leaf):
                self.rise_speed = list(map(sub, self.rise_speed, leaf.speed))
                self.front_active = self.front_takers > 0
        if not self.front_active:
            self.find_front()

    def leave(self, leaf: LeafFill) -> bool:
        """Removes a satisfied leaf, unless it was blocked before. Returns whether it was removed."""
        if leaf.mask not in self.groups:
            return False
        leaf.satisfied = True
        self.front_takers -= 1
        self.groups[leaf.mask] -= 1
        if not self.groups[leaf.mask]:
            del self.groups[leaf.mask]
        return True


class Flow:
    """One filling of one tree: the events in their order. `inners`: its inner nodes, parents before their children;
    `places`: of the vectors. The kinds of which the cell has nothing are used up from the start.
    """

    def __init__(self, inners: Sequence[InnerFill], capacity: Sequence[int], places: int) -> None:
        self.inners = inners
        self.top = inners[0]
        self.kinds = [j for j, have in enumerate(capacity) if have > 0]
        self.tasks_place = len(capacity)  # Where tasks are counted for the order `fair`, if there is any.
        self.full = 0  # A bit for each kind that is used up.
        for inner in reversed(inners):
            inner.open_leaves()
            for child in inner.inner:
                inner.used = list(map(add, inner.used, child.used))
        if places > len(capacity):
            self.top.used[-1] = NEVER_FULL
        self.shut([j for j, have in enumerate(capacity) if have <= 0])

    def run(self) -> None:
        """Until nobody can take any more."""
        while not self.top.blocked:
            self.step()

    def run_until_full(self, full: Sequence[int]) -> None:
        """Until another kind than these is used up, or nobody can take any more. These count no more from the start."""
        self.shut(full)
        shut = self.full
        while not self.top.blocked and self.full == shut:
            self.step()

    def step(self) -> None:
        """Move on to the next event. Where a kind is full at that very moment, the event comes first."""
        top = self.top
        if top.due is None:
            self.flow_until_full()
            return
        ahead = top.due - top.clock
        used = list(map(add, top.used, [speed * ahead >> ONE_BITS for speed in top.speed]))
        most = max(used)
        if most > ONE + NEAR:
            self.flow_until_full()
            return
        top.arrive(top.due, used)
        self.happen(top)
        if most >= ONE - NEAR:
            self.shut([j for j in self.kinds if used[j] >= ONE - NEAR])

    def flow_until_full(self) -> None:
        """Move on to where the next kind is used up."""
        top = self.top
        ahead = {j: (ONE - top.used[j] << ONE_BITS) // top.speed[j] for j in self.kinds if top.speed[j] > 0}
        first = min(ahead.values())
        top.advance(top.clock + first)
        self.shut([j for j in self.kinds if ahead.get(j) == first or top.used[j] >= ONE - NEAR])

    def happen(self, inner: InnerFill) -> None:
        """Everything that is due at the present of a node, from its children up."""
        lagging = inner.lagging
        heap = inner.lags if lagging else inner.rises
        now = inner.lag if lagging else inner.level
        while heap and heap[0][0] <= now:
            child = heap[0][1]
            stalled, given = child.stalled, child.given
            clock = child.due
            assert clock is not None, "only what is due happens"
            child.advance(clock)
            self.happen(child)
            if stalled or child.stalled or child.blocked:
                heappop(heap)
                inner.detach(child, stalled, given)
                if not child.blocked:
                    inner.attach(child)
                continue
            inner.rise_speed = list(map(add, map(sub, inner.rise_speed, given), child.given))
            child.mark = inner.level
            if child.due is None:
                heappop(heap)
            else:
                heapreplace(heap, (now + (child.pace * (child.due - child.clock) >> ONE_BITS), child))
        if not lagging:
            if inner.front_active or inner.starts:
                inner.satisfy()
            inner.join()
        if inner.most and inner.at_most() & ~inner.shut:
            self.catch_up(inner)
            self.rebuild(inner, inner.shut)
        else:
            inner.settle()

    def shut(self, kinds: Sequence[int]) -> None:
        """These kinds are used up: who needs one is blocked, and they count no more."""
        self.catch_up(self.top)
        for j in kinds:
            self.full |= 1 << j
            self.top.used[j] = NEVER_FULL
        self.rebuild(self.top, self.full)

    def catch_up(self, inner: InnerFill) -> None:
        """Bring everything below to the present, on the straight lines since its last event."""
        if inner.front_active:
            inner.front = inner.level
        for child in inner.inner:
            if child.attached:
                now = inner.lag if child.stalled else inner.level
                clock = child.clock + ((now - child.mark << ONE_BITS) // child.pace)
                child.advance(clock if child.due is None else min(clock, child.due))
                child.mark = now
                self.catch_up(child)

    def rebuild(self, inner: InnerFill, shut: int) -> None:
        """Recompute, from the leaves up, which nodes can take more, their shares, and how fast the shares grow. `shut`:
        the kinds that nobody here can get any more.
        """
        inner.shut = shut | inner.at_most() if inner.most else shut
        compared = self.compared(inner.order, inner.shut)
        for child in inner.inner:
            child.compared = compared
            self.rebuild(child, inner.shut)
        inner.inner = [child for child in inner.inner if not child.blocked]
        inner.start_over(inner.shut)
        if inner.order in RANK_ORDERS:
            inner.ranked = inner.inner[::-1]
        else:
            inner.start_at_lowest()
        inner.settle()

    def compared(self, order: str, shut: int) -> Sequence[int]:
        """The kinds that a node's children are compared by. None under a rank order."""
        if order == "hdrf":
            return [j for j in self.kinds if not shut >> j & 1]
        if order == "naive":
            return self.kinds
        return [self.tasks_place] if order == "fair" else []


NEVER_FULL = -1 << 4 * ONE_BITS
"""What the top seems to hold of a kind that is not to fill up (again): far below anything that flows in."""
