"""Dynamic H-DRF (section 3.4 of the paper): tasks come and go, and the leaf with the least share gets what is free.

`LiveTree` keeps a tree of queues between decisions. A leaf holds tasks and waits for more; `next()` says who gets the
next one, `give` and `finish` tell it what happened, `fill()` hands out what is free. Per decision, as the paper has
it: a leaf is blocked if it asks for nothing or needs a kind that is full; what is attributed to an inner node is its
children's, those not blocked rescaled to the least of them, without the kinds that are full; then down to the least
that can use what is free, and only the leaf's own vector changes. A leaf of which no whole task fits, though nothing
it needs is full, is not blocked (its claim stands) but passed over. Ties go by name.

What it is not: where it comes to rest is the static allocation of `hdrf.fill` only where all are blocked at once (a
flat tree, a single kind, tasks that ask for every kind), and a leaf can starve beside a sibling that is blocked on
one kind and holds much of another, which stays counted (tests/unit/test_hdrf_examples.py has the smallest examples).
A caller that must keep the guarantee gives to the leaf that holds least of its static share instead.

With `rescales=False` inner nodes count what they hold: from empty, that is static H-DRF in whole tasks.
"""

from bisect import insort
from collections.abc import Sequence
from fractions import Fraction

from services.fairness.hdrf.leaves import FINE_BITS, Entry, Group, Place, Wants, key_of, minus, plus, remove
from services.fairness.hdrf.views import Branch, View
from services.fairness.tree import ONE_BITS, RANK_ORDERS, TreeNode, walk

VIEWS_MAX = 16
"""Sets of full kinds whose view is kept. Beyond, the one unused for longest is built anew when it comes round."""

KEPT_UP_MAX = 2
"""Views that a change brings nearer to the present while they are not in use: those most likely to be next."""

CAUGHT_UP_MAX = 2
"""By so many nodes each. A change makes no more than two dirty."""


class LiveTree:
    """A tree of queues in use. Quantities in base units, in the order of `capacity`; names are unique in the tree."""

    def __init__(
        self, root: TreeNode, capacity: Sequence[int], *, rescales: bool = True, foresees: bool = False
    ) -> None:
        """`root` is an inner node; `Node.held` is what a leaf holds, `Node.tasks` what it still waits for (None:
        endless). `foresees`: build the views beforehand that will be needed when one kind more fills up, and keep
        those likely to be next up to date, for trees that last; otherwise that waits until one is needed."""
        self.rescales, self.foresees = rescales, foresees
        self.free: list[int] = []
        self.fair = any(node.order == "fair" for node in walk(root))
        self.places: dict[str, Place] = {}
        self.branches: dict[str, Branch] = {}
        self._measure(capacity)
        self.root = Branch(root.name, root.weight, root.order, root.rank, None, self._nothing())
        self._add_node(root, self.root)
        self._look()
        if foresees:
            for j in self.view.open[: VIEWS_MAX - 1]:
                self._see(self.view.full | 1 << j)
            self._look()

    # ------------------------------------------------------------------ questions
    def next(self) -> str | None:
        """The leaf that gets the next task, or None if no leaf can use what is free."""
        place = self._least(self.root)
        return place.name if place else None

    def share(self, name: str) -> int:
        """Dominant share, of `ONE`: what a leaf holds, or what is attributed to an inner node, full kinds left out."""
        place = self.places.get(name)
        if place:
            return max(place.shares) >> FINE_BITS - ONE_BITS
        vector = self.view.seen(self.branches[name]).vector
        return max([vector[j] for j in self.view.open], default=0) >> FINE_BITS - ONE_BITS

    def tasks(self) -> dict[str, int]:
        """Tasks that each leaf holds."""
        return {name: place.tasks for name, place in self.places.items()}

    # ------------------------------------------------------------------ what happens
    def give(self, leaf: str, tasks: int = 1) -> None:
        """A leaf gets tasks that it waits for."""
        place = self.places[leaf]
        assert place.waiting is None or place.waiting >= tasks, f"{leaf} does not wait for {tasks} tasks"
        self._out(place)
        if place.waiting is not None:
            place.waiting -= tasks
        self._hold(place, [need * tasks for need in place.demand], tasks)

    def finish(self, leaf: str, tasks: int = 1, usage: Sequence[int] | None = None) -> None:
        """Tasks of a leaf have ended. `usage`: what they held together, if not its present demand that many times."""
        place = self.places[leaf]
        self._out(place)
        held = usage if usage is not None else [need * tasks for need in place.demand]
        self._hold(place, [-units for units in held], -tasks)

    def ask_again(self, leaf: str, tasks: int) -> None:
        """A leaf asks for as many tasks more as have ended. One with an endless demand asks for no more."""
        place = self.places[leaf]
        if place.waiting is not None:
            self.set_demand(leaf, place.demand, place.waiting + tasks)

    def fill(self) -> dict[str, int]:
        """Give out what is free, task by task. Returns the tasks given, by leaf."""
        given: dict[str, int] = {}
        while (leaf := self.next()) is not None:
            self.give(leaf)
            given[leaf] = given.get(leaf, 0) + 1
        return given

    def set_demand(self, leaf: str, demand: Sequence[int], waiting: int | None) -> None:
        """A leaf waits for `waiting` tasks (None: endless) of `demand` from now on; what it holds stays as it is."""
        place = self.places[leaf]
        self._out(place)
        if place.mask:
            self.wants.take(place.mask, place.demand)
            place.mask = 0
        place.pure = not any(place.used) or (place.pure and list(demand) == list(place.demand))
        place.demand, place.waiting, place.direction = demand, waiting, []
        self._in(place)
        self._look()

    def set_weight(self, name: str, weight: int | Fraction) -> None:
        """The weight of a node among its siblings."""
        place = self.places.get(name)
        if place:
            self._out(place)
            place.weight, place.direction = weight, []
            self._in(place)
        else:
            self.branches[name].weight = weight
            self._touch(self.branches[name])
        self._look()

    def set_rank(self, name: str, rank: int) -> None:
        """Where a node comes in turn, if its parent serves one child before the next."""
        place = self.places.get(name)
        if place:
            self._out(place)
            place.rank = rank
            self._in(place)
        else:
            self.branches[name].rank = rank
            self._touch(self.branches[name])
        self._look()

    def set_capacity(self, capacity: Sequence[int]) -> None:
        """The cell grows or shrinks. Costs a walk over all leaves."""
        for place in self.places.values():
            self._out(place)
            place.mask, place.direction = 0, []
        self._measure(capacity)
        for branch in self.branches.values():
            branch.idle = self._nothing()
        for place in self.places.values():
            self.free = minus(self.free, place.used)
            self._in(place)
        self._look()

    def add(self, parent: str, node: TreeNode) -> None:
        """A leaf or a subtree appears below an inner node. A subtree has the views built anew."""
        above = self.branches[parent]
        if node.children:
            self.fair |= any(below.order == "fair" for below in walk(node))
            branch = above.inner[node.name] = Branch(
                node.name, node.weight, node.order, node.rank, above, self._nothing()
            )
            self._add_node(node, branch)
            self.views.clear()
        else:
            self._settle(node, above)
        self._look()

    def remove(self, name: str) -> None:
        """A leaf, or an inner node with everything below it, goes, and what it held is free."""
        if name in self.places:
            self._forget(self.places[name])
        else:
            self._fell(self.branches[name])
            self.views.clear()
        self._look()

    def move(self, leaf: str, parent: str) -> None:
        """A leaf goes below another inner node, with all it holds."""
        place = self.places[leaf]
        self._out(place)
        self._touch(place.parent)
        self._count(place.parent, -place.tasks)
        place.parent = self.branches[parent]
        self._count(place.parent, place.tasks)
        self._in(place)
        self._look()

    # ------------------------------------------------------------------ below
    def _measure(self, capacity: Sequence[int]) -> None:
        self.capacity = list(capacity)
        self.kinds = [j for j, have in enumerate(capacity) if have > 0]
        self.units = [(1 << FINE_BITS) // have if have > 0 else 0 for have in capacity]
        self.free = list(capacity)
        self.wants = Wants()
        self.short: dict[int, list[Entry]] = {}  # Kind -> leaves put aside for want of it, by the size of a task.
        self.views: dict[int, View] = {}

    def _nothing(self) -> list[int]:
        return [0] * len(self.capacity)

    def _add_node(self, node: TreeNode, branch: Branch) -> None:
        self.branches[node.name] = branch
        for child in node.children:
            if child.children:
                below = Branch(child.name, child.weight, child.order, child.rank, branch, self._nothing())
                branch.inner[child.name] = below
                self._add_node(child, below)
            else:
                self._settle(child, branch)

    def _settle(self, node: TreeNode, parent: Branch) -> None:
        used = list(node.held) or self._nothing()
        demand = node.demand or self._nothing()  # An inner node without members asks for nothing.
        tasks = min([held // need for held, need in zip(used, demand, strict=True) if need], default=0)
        place = Place(node.name, parent, node.weight, demand, node.tasks, used, tasks, node.rank)
        place.pure = used == [need * tasks for need in demand]
        self.places[node.name] = place
        self._count(parent, tasks)
        self.free = minus(self.free, used)
        self._in(place)

    def _forget(self, place: Place) -> None:
        self._out(place)
        self._touch(place.parent)
        if place.mask:
            self.wants.take(place.mask, place.demand)
        self._count(place.parent, -place.tasks)
        self.free = plus(self.free, place.used)
        del self.places[place.name]

    def _fell(self, branch: Branch) -> None:
        for below in list(branch.inner.values()):
            self._fell(below)
        for place in [place for place in self.places.values() if place.parent is branch]:
            self._forget(place)
        del self.branches[branch.name]
        if branch.parent:
            del branch.parent.inner[branch.name]

    def _count(self, branch: Branch | None, tasks: int) -> None:
        while branch is not None:
            branch.tasks += tasks
            branch = branch.parent

    def _hold(self, place: Place, units: list[int], tasks: int) -> None:
        """Take what a leaf holds from out to in."""
        place.used = plus(place.used, units)
        place.tasks += tasks
        if not place.pure and not any(place.used):
            place.pure, place.direction = True, []
        self._count(place.parent, tasks)
        self.free = minus(self.free, units)
        self._in(place)
        self._look()

    def _out(self, place: Place) -> None:
        """Take a leaf out of what its parent knows."""
        branch = place.parent
        if place.name in branch.strays:
            del branch.strays[place.name]
        elif place.mask:
            group = branch.groups[place.mask]
            group.take(place)
            if not group.ready and not group.aside:
                del branch.groups[place.mask]
        else:
            branch.idle = minus(branch.idle, place.shares)
        if place.aside is not None:
            remove(self.short[place.aside], place.demand[place.aside], place.name)
            place.aside = None

    def _in(self, place: Place) -> None:
        """Work out how a leaf stands, and put it where it belongs."""
        branch = place.parent
        place.shares = [held * unit for held, unit in zip(place.used, self.units, strict=True)]
        mask = sum([1 << j for j, need in enumerate(place.demand) if need]) if place.waiting != 0 else 0
        if mask != place.mask:
            if place.mask:
                self.wants.take(place.mask, place.demand)
            if mask:
                self.wants.add(mask, place.demand)
            place.mask = mask
        self._stand(place, branch.order)
        if place.stray:
            branch.strays[place.name] = place
        elif mask:
            group = branch.groups.get(mask)
            if group is None:
                group = branch.groups[mask] = Group(self._nothing(), self._nothing())
            group.add(place)
        else:
            branch.idle = plus(branch.idle, place.shares)
        self._touch(branch)

    def _stand(self, place: Place, order: str) -> None:
        """Level, key and direction of a leaf among its siblings."""
        up, down = place.weight.numerator, place.weight.denominator
        if order in RANK_ORDERS:
            place.level, place.key = 0, place.rank
        else:
            height = place.tasks << FINE_BITS if order == "fair" else max(place.shares)
            place.level = height * down // up
            place.key = key_of(place.level)
        if not place.pure or not place.direction:
            # While it holds only tasks of its demand, its direction is that of the demand, held or not.
            held = (
                [need * unit for need, unit in zip(place.demand, self.units, strict=True)]
                if place.pure
                else place.shares
            )
            most = max(held)
            place.direction = [(share * up << FINE_BITS) // (most * down) if most else 0 for share in held]

    def _touch(self, branch: Branch) -> None:
        for view in self.views.values():
            view.dirty[branch.name] = branch

    def _look(self) -> None:
        """See what is full now, in the view that belongs to it. Who found too little before, and now enough, tries
        again."""
        self.view = self._see(self.wants.full(self.free))
        if self.foresees:
            for view in sorted([view for view in self.views.values() if view.dirty], key=self._distance)[:KEPT_UP_MAX]:
                view.catch_up(CAUGHT_UP_MAX)
        for j, entries in self.short.items():
            while entries and entries[0][0] <= self.free[j]:
                place = entries.pop(0)[2]
                place.parent.groups[place.mask].put_aside(place, None)

    def _see(self, full: int) -> View:
        """The view of the tree while these kinds are full, up to date."""
        view = self.views.pop(full, None)
        if view is None or len(view.dirty) * 2 > len(self.branches):
            view = View(self.kinds, len(self.capacity), full, self.rescales, self.fair)
            view.build(self.root)
            if len(self.views) >= VIEWS_MAX:
                del self.views[next(iter(self.views))]
        elif view.dirty:
            view.catch_up()
        self.views[full] = view
        return view

    def _distance(self, view: View) -> tuple[int, int]:
        """How far a view is from being needed: how many kinds would have to fill up or free, and what is left there."""
        apart, full = view.full ^ self.view.full, self.view.full
        left = [self.free[j] * self.units[j] for j in self.kinds if apart >> j & 1 and not full >> j & 1]
        return apart.bit_count(), max(left, default=0)

    def _least(self, branch: Branch) -> Place | None:
        """Down to the child with the least that can use what is free."""
        found: Place | None = None
        too_big: list[tuple[Place, int]] = []
        for _, _, child in self.view.candidates(branch):
            if isinstance(child, Branch):
                found = self._least(child)
            else:
                short = self.short_of(child)
                if short is None:
                    found = child
                elif child.name not in branch.strays:
                    too_big.append((child, short))
            if found:
                break
        for place, short in too_big:
            branch.groups[place.mask].put_aside(place, short)
            insort(self.short.setdefault(short, []), (place.demand[short], place.name, place))
        return found

    def short_of(self, place: Place) -> int | None:
        """A kind of which less is free than a task of it needs."""
        for j, need in enumerate(place.demand):
            if need > self.free[j]:
                return j
        return None
