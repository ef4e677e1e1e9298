"""Dynamic H-DRF (section 3.4 of the paper): tasks come and go, and the leaf with the least share gets what is free.

In a cell it serves only queues whose levels follow what they hold (filling/naive_levels.py); levels of H-DRF are static
(static.py). The offline solver runs it as the paper has it.

`LiveTree` keeps a tree of queues between decisions. A leaf holds tasks and waits for more; `next()` is the leaf that
gets the next one, `give` and `finish` report what happened, `fill()` hands out what is free. Per decision, as in the
paper: a leaf is blocked if it asks for nothing or needs a kind that is full; what is attributed to an inner node is its
children's, those not blocked rescaled to the least of them, without the kinds that are full; then down to the least
that can use what is free, and only the leaf's own vector changes. A leaf without a whole task that fits, though nothing
it needs is full, is not blocked (its claim stands) but passed over. Ties go by name.

Where it ends differs from the static allocation of `hdrf.fill`: they agree only where all are blocked at once (a flat
tree, a single kind, tasks that ask for every kind), and a leaf can starve beside a sibling that is blocked on
one kind and holds much of another, which stays counted (tests/unit/test_hdrf_examples.py has the smallest examples).
A caller that must keep the guarantee gives to the leaf that holds least of its static share instead.

With `rescales=False` inner nodes count what they hold: from empty, that is static H-DRF in whole tasks.
"""

from bisect import insort
from collections.abc import Sequence
from fractions import Fraction

from services.fairness.hdrf.leaves import FINE_BITS, DemandSizes, Entry, Group, LeafState, key_of, minus, plus, remove
from services.fairness.hdrf.views import Branch, View
from services.fairness.tree import ONE_BITS, RANK_ORDERS, TreeNode, walk

VIEWS_MAX = 16
"""Sets of full kinds whose view is kept. Beyond that, the least recently used one is rebuilt when it recurs."""

KEPT_UP_MAX = 2
"""Views not in use that are brought nearer to the present by each change: those most likely to be next."""

CAUGHT_UP_MAX = 2
"""Nodes by which each of them is. A change makes at most two dirty."""


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
        self.leaf_states: dict[str, LeafState] = {}
        self.branches: dict[str, Branch] = {}
        self._measure(capacity)
        self.root = Branch(root.name, root.weight, root.order, root.rank, None, self._nothing())
        self._add_node(root, self.root)
        self._update_view()
        if foresees:
            for j in self.view.open[: VIEWS_MAX - 1]:
                self._view_for(self.view.full | 1 << j)
            self._update_view()

    # ------------------------------------------------------------------ questions
    def next(self) -> str | None:
        """The leaf that gets the next task, or None if no leaf can use what is free."""
        state = self._least(self.root)
        return state.name if state else None

    def share(self, name: str) -> int:
        """Dominant share, of `ONE`: what a leaf holds, or what is attributed to an inner node, full kinds left out."""
        state = self.leaf_states.get(name)
        if state:
            return max(state.shares) >> FINE_BITS - ONE_BITS
        vector = self.view.attributed(self.branches[name]).vector
        return max([vector[j] for j in self.view.open], default=0) >> FINE_BITS - ONE_BITS

    def tasks(self) -> dict[str, int]:
        """Tasks that each leaf holds."""
        return {name: state.tasks for name, state in self.leaf_states.items()}

    # ------------------------------------------------------------------ what happens
    def give(self, leaf: str, tasks: int = 1) -> None:
        """A leaf gets tasks that it waits for."""
        state = self.leaf_states[leaf]
        assert state.waiting is None or state.waiting >= tasks, f"{leaf} does not wait for {tasks} tasks"
        self._unlink(state)
        if state.waiting is not None:
            state.waiting -= tasks
        self._hold(state, [need * tasks for need in state.demand], tasks)

    def finish(self, leaf: str, tasks: int = 1, usage: Sequence[int] | None = None) -> None:
        """Tasks of a leaf have ended. `usage`: what they held together, if not its present demand that many times."""
        state = self.leaf_states[leaf]
        self._unlink(state)
        held = usage if usage is not None else [need * tasks for need in state.demand]
        self._hold(state, [-units for units in held], -tasks)

    def ask_again(self, leaf: str, tasks: int) -> None:
        """A leaf asks for as many tasks more as have ended. One with an endless demand asks for no more."""
        state = self.leaf_states[leaf]
        if state.waiting is not None:
            self.set_demand(leaf, state.demand, state.waiting + tasks)

    def fill(self) -> dict[str, int]:
        """Give out what is free, task by task. Returns the tasks given, by leaf."""
        given: dict[str, int] = {}
        while (leaf := self.next()) is not None:
            self.give(leaf)
            given[leaf] = given.get(leaf, 0) + 1
        return given

    def set_demand(self, leaf: str, demand: Sequence[int], waiting: int | None) -> None:
        """A leaf waits for `waiting` tasks (None: endless) of `demand` from now on; what it holds stays as it is."""
        state = self.leaf_states[leaf]
        self._unlink(state)
        if state.mask:
            self.demand_sizes.take(state.mask, state.demand)
            state.mask = 0
        state.pure = not any(state.used) or (state.pure and list(demand) == list(state.demand))
        state.demand, state.waiting, state.direction = demand, waiting, []
        self._link(state)
        self._update_view()

    def set_weight(self, name: str, weight: int | Fraction) -> None:
        """The weight of a node among its siblings."""
        state = self.leaf_states.get(name)
        if state:
            self._unlink(state)
            state.weight, state.direction = weight, []
            self._link(state)
        else:
            self.branches[name].weight = weight
            self._touch(self.branches[name])
        self._update_view()

    def set_rank(self, name: str, rank: int) -> None:
        """Sets the rank of a node, for a parent that serves one child before the next."""
        state = self.leaf_states.get(name)
        if state:
            self._unlink(state)
            state.rank = rank
            self._link(state)
        else:
            self.branches[name].rank = rank
            self._touch(self.branches[name])
        self._update_view()

    def set_capacity(self, capacity: Sequence[int]) -> None:
        """The cell grows or shrinks. Costs a walk over all leaves."""
        for state in self.leaf_states.values():
            self._unlink(state)
            state.mask, state.direction = 0, []
        self._measure(capacity)
        for branch in self.branches.values():
            branch.idle = self._nothing()
        for state in self.leaf_states.values():
            self.free = minus(self.free, state.used)
            self._link(state)
        self._update_view()

    def add(self, parent: str, node: TreeNode) -> None:
        """A leaf or a subtree appears below an inner node. A subtree has the views built again."""
        above = self.branches[parent]
        if node.children:
            self.fair |= any(below.order == "fair" for below in walk(node))
            branch = above.inner[node.name] = Branch(
                node.name, node.weight, node.order, node.rank, above, self._nothing()
            )
            self._add_node(node, branch)
            self.views.clear()
        else:
            self._add_leaf(node, above)
        self._update_view()

    def remove(self, name: str) -> None:
        """A leaf, or an inner node with everything below it, goes, and what it held is free."""
        if name in self.leaf_states:
            self._remove_leaf(self.leaf_states[name])
        else:
            self._remove_branch(self.branches[name])
            self.views.clear()
        self._update_view()

    def move(self, leaf: str, parent: str) -> None:
        """A leaf goes below another inner node, with all it holds."""
        state = self.leaf_states[leaf]
        self._unlink(state)
        self._touch(state.parent)
        self._count(state.parent, -state.tasks)
        state.parent = self.branches[parent]
        self._count(state.parent, state.tasks)
        self._link(state)
        self._update_view()

    # ------------------------------------------------------------------ below
    def _measure(self, capacity: Sequence[int]) -> None:
        self.capacity = list(capacity)
        self.kinds = [j for j, have in enumerate(capacity) if have > 0]
        self.units = [(1 << FINE_BITS) // have if have > 0 else 0 for have in capacity]
        self.free = list(capacity)
        self.demand_sizes = DemandSizes()
        self.short: dict[
            int, list[Entry]
        ] = {}  # Kind -> leaves for whose tasks too little of it is free, by the size of a task.
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
                self._add_leaf(child, branch)

    def _add_leaf(self, node: TreeNode, parent: Branch) -> None:
        used = list(node.held) or self._nothing()
        demand = node.demand or self._nothing()  # An inner node without members asks for nothing.
        tasks = min([held // need for held, need in zip(used, demand, strict=True) if need], default=0)
        state = LeafState(node.name, parent, node.weight, demand, node.tasks, used, tasks, node.rank)
        state.pure = used == [need * tasks for need in demand]
        self.leaf_states[node.name] = state
        self._count(parent, tasks)
        self.free = minus(self.free, used)
        self._link(state)

    def _remove_leaf(self, state: LeafState) -> None:
        self._unlink(state)
        self._touch(state.parent)
        if state.mask:
            self.demand_sizes.take(state.mask, state.demand)
        self._count(state.parent, -state.tasks)
        self.free = plus(self.free, state.used)
        del self.leaf_states[state.name]

    def _remove_branch(self, branch: Branch) -> None:
        for below in list(branch.inner.values()):
            self._remove_branch(below)
        for state in [state for state in self.leaf_states.values() if state.parent is branch]:
            self._remove_leaf(state)
        del self.branches[branch.name]
        if branch.parent:
            del branch.parent.inner[branch.name]

    def _count(self, branch: Branch | None, tasks: int) -> None:
        while branch is not None:
            branch.tasks += tasks
            branch = branch.parent

    def _hold(self, state: LeafState, units: list[int], tasks: int) -> None:
        """Changes what a leaf holds, and links it again."""
        state.used = plus(state.used, units)
        state.tasks += tasks
        if not state.pure and not any(state.used):
            state.pure, state.direction = True, []
        self._count(state.parent, tasks)
        self.free = minus(self.free, units)
        self._link(state)
        self._update_view()

    def _unlink(self, state: LeafState) -> None:
        """Removes a leaf from the groups of its parent."""
        branch = state.parent
        if state.name in branch.strays:
            del branch.strays[state.name]
        elif state.mask:
            group = branch.groups[state.mask]
            group.take(state)
            if not group.ready and not group.aside:
                del branch.groups[state.mask]
        else:
            branch.idle = minus(branch.idle, state.shares)
        if state.aside is not None:
            remove(self.short[state.aside], state.demand[state.aside], state.name)
            state.aside = None

    def _link(self, state: LeafState) -> None:
        """Recomputes the level of a leaf, and puts it into the right group of its parent."""
        branch = state.parent
        state.shares = [held * unit for held, unit in zip(state.used, self.units, strict=True)]
        mask = sum([1 << j for j, need in enumerate(state.demand) if need]) if state.waiting != 0 else 0
        if mask != state.mask:
            if state.mask:
                self.demand_sizes.take(state.mask, state.demand)
            if mask:
                self.demand_sizes.add(mask, state.demand)
            state.mask = mask
        self._set_level(state, branch.order)
        if state.stray:
            branch.strays[state.name] = state
        elif mask:
            group = branch.groups.get(mask)
            if group is None:
                group = branch.groups[mask] = Group(self._nothing(), self._nothing())
            group.add(state)
        else:
            branch.idle = plus(branch.idle, state.shares)
        self._touch(branch)

    def _set_level(self, state: LeafState, order: str) -> None:
        """Level, key and direction of a leaf among its siblings."""
        up, down = state.weight.numerator, state.weight.denominator
        if order in RANK_ORDERS:
            state.level, state.key = 0, state.rank
        else:
            height = state.tasks << FINE_BITS if order == "fair" else max(state.shares)
            state.level = height * down // up
            state.key = key_of(state.level)
        if not state.pure or not state.direction:
            # While it holds only tasks of its demand, its direction is that of the demand, held or not.
            held = (
                [need * unit for need, unit in zip(state.demand, self.units, strict=True)]
                if state.pure
                else state.shares
            )
            most = max(held)
            state.direction = [(share * up << FINE_BITS) // (most * down) if most else 0 for share in held]

    def _touch(self, branch: Branch) -> None:
        for view in self.views.values():
            view.dirty[branch.name] = branch

    def _update_view(self) -> None:
        """Switches to the view for the kinds that are full now. Leaves for whose tasks there was too little, and now is
        enough, are candidates again."""
        self.view = self._view_for(self.demand_sizes.full(self.free))
        if self.foresees:
            for view in sorted([view for view in self.views.values() if view.dirty], key=self._distance)[:KEPT_UP_MAX]:
                view.catch_up(CAUGHT_UP_MAX)
        for j, entries in self.short.items():
            while entries and entries[0][0] <= self.free[j]:
                state = entries.pop(0)[2]
                state.parent.groups[state.mask].set_lack(state, None)

    def _view_for(self, full: int) -> View:
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
        """How far a view is from being needed: how many kinds would have to become full or free, and what is left of
        them."""
        apart, full = view.full ^ self.view.full, self.view.full
        left = [self.free[j] * self.units[j] for j in self.kinds if apart >> j & 1 and not full >> j & 1]
        return apart.bit_count(), max(left, default=0)

    def _least(self, branch: Branch) -> LeafState | None:
        """Walks down to the leaf with the least level that can use what is free."""
        found: LeafState | None = None
        too_big: list[tuple[LeafState, int]] = []
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
        for state, short in too_big:
            branch.groups[state.mask].set_lack(state, short)
            insort(self.short.setdefault(short, []), (state.demand[short], state.name, state))
        return found

    def short_of(self, state: LeafState) -> int | None:
        """A kind with less free than a task of it needs."""
        for j, need in enumerate(state.demand):
            if need > self.free[j]:
                return j
        return None
