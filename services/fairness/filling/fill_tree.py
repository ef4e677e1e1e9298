"""The tree of queues as input to progressive filling: which units are siblings, with what weights and demands.

Units are what is shared out (largesse/lifecycle/queue_policy.py): leaves, and inner queues that serve their jobs as one
list, each with the summed demand of the leaves below. Under `hdrf`, `naive-hdrf` and `capacity` the children of a
queue are siblings; under `drf` all units below it are, each with its own weight; under `collapsed` too, with the
weights along the path multiplied. A queue with another policy stands among them as one node, with its own weight.

Limits are applied here. *Guarantees*: where a child of a queue has a guarantee, the children's weights are replaced by
what each would get if there were only one kind of resource (`TreeAccounts.divide`): guarantees first, then weights, and
no child gets more than it asks for. *Maxima*: a maximum names a kind, and caps that kind alone. To the queues and tasks
below, a kind of which a queue holds its maximum is full; tasks that need none of it go on (`TreeNode.most`). Two
cases are worked out by clipping what is asked for beforehand, deeper queues first: a unit whose tasks ask for one set
of kinds gets so much less of all of them, beside what it holds and does not wait for (its base, standing.py); and in
trees that are filled in arrays, and for queues whose children are moved up beside others, a queue that asks for more
than its maximum is first filled on its own, in a cell limited to that maximum, and what its units get there replaces
their demand. Weights in the place of guarantees do not know of maxima: below a queue that asks for more than its own,
leaves have what their guarantees cover before anything is divided (`TreeNode.claim`).
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

from schemas.queue_tree import is_below, walk
from schemas.queues import Queue
from schemas.sharing import LIST_POLICIES
from services.fairness.accounts.amounts import factor_beside, factor_of
from services.fairness.accounts.queue_account import Limits, QueueAccount
from services.fairness.accounts.queue_tree import HELD
from services.fairness.filling.shared_tree import SharedTree
from services.fairness.hdrf import arrays
from services.fairness.hdrf.static import fill
from services.fairness.tree import ONE, ONE_BITS, TreeNode, leaves
from services.fairness.tree import walk as walk_nodes

TOP = "/"  # Not a valid path of a queue.

PIECE = "//"
"""Separates the path of a leaf from a set of kinds; no path contains it."""

Caps = Mapping[str, Sequence[int]]
"""By unit, the demand that counts instead of its own, in the order of the capacity vector."""

_WEIGHT_BITS, _LEAST_BITS = 50, 10
"""A share in the place of a weight: this much of it. A queue with next to nothing weighs no more than 2^-40 of all."""

_FINE_BITS: Final = 64


class FillTree:
    """The tree for one filling: `root`, None where no queue asks for anything.

    `bits`: demands are in base units times 2^bits, and so is `capacity`, as maxima leave parts of them. `units`: path
    -> demand; `asked`: those of them that ask for something. `whole`: the others are in it, too. `pieces`: leaves that
    ask for several sets of kinds -> a node for each, side by side below the leaf: it is an inner node of its jobs, so
    that a full kind does not hold back tasks that need none of it. `churned`: the topmost queues of subtrees that are
    shared out by what is held; `passes_over`: some queues are not in it.
    """

    def __init__(self, tree: SharedTree, caps: Caps | None = None) -> None:
        self._caps = caps or {}
        self._tree = tree.queues
        self._policy = tree.policy
        self._accounts = accounts = tree.accounts
        self._parts: dict[str, int] = {}  # Leaf -> the fraction of its demand within all maxima, in units of 2^-bits.
        self._clipped: dict[str, bool] = {}  # Queues that asked for more than their maximum.
        self._found: dict[str, tuple[Queue, str, int]] = {}  # Inner queue -> it, its policy, what it would have.
        self.amounts: dict[str, int] = {}  # Where guarantees say it: what queues would have of one kind.
        self.bits = 0
        self.basable: list[str] = []  # Leaves of which a base would count (standing.py),
        self.bases: dict[str, list[int]] = {}  # and those of them that have one, in the units of the demands.
        self.passes_over = False
        self.units: dict[str, list[int]] = {}
        self.pieces: dict[str, list[str]] = {}
        self._nodes: dict[str, TreeNode] = {}  # Path -> its node in the tree.
        self.churned: list[TreeNode] = []
        self.asking: dict[str, bool] = {}
        self._goes_by_holdings = accounts.by_holdings
        self.asked = {accounts.group_of(leaf).name: True for leaf in accounts.demanding}
        self.whole = len(self.asked) >= arrays.LEAVES_MIN and self._may_be_whole()
        if self.whole:
            self.asking = dict.fromkeys(accounts.queues, True)
        for leaf in accounts.occupied if self._goes_by_holdings else accounts.demanding:
            at: QueueAccount | None = accounts.queues[leaf]
            while at is not None and at.name not in self.asking:
                self.asking[at.name] = True
                at = at.parent
        if accounts.over:
            self.bits = max(8, _FINE_BITS - max(accounts.capacity, default=0).bit_length())
        self.root = self._grow()
        self._by_events = self.root is not None and not arrays.is_large(self.root)
        if self._by_events:
            self._set_bases()
        self._clip(list(accounts.over.values()))
        if self.root is not None and self._by_events:
            limited = [node for node in walk_nodes(self.root) if node.most]
            cells = [(node, node.most) for node in reversed(limited)]
            self._hold_claims([leaf for node in limited for leaf in leaves(node)], [*cells, (self.root, self.capacity)])

    @property
    def capacity(self) -> list[int]:
        """The capacity of the cell, in the units of the demands."""
        return [have << self.bits for have in self._accounts.capacity]

    def leaves_of(self, unit: str) -> Iterator[str]:
        """The leaves of a unit that ask for something or hold something."""
        if unit in self.pieces:
            return iter(self.pieces[unit])
        if PIECE in unit or not self._accounts.queues[unit].children:
            return iter((unit,) if unit.partition(PIECE)[0] in self.asking else ())
        return (leaf.name for leaf in _leaves(self._accounts.queues[unit]) if leaf.name in self.asking)

    def is_clipped(self, unit: str) -> bool:
        """Whether a maximum keeps it from asking for all."""
        if not self._parts or unit in self._parts:
            return bool(self._parts)
        if unit in self.pieces:
            return any(piece in self._parts for piece in self.pieces[unit])
        return (
            PIECE not in unit
            and bool(self._accounts.queues[unit].children)
            and any(leaf in self._parts for leaf in self.leaves_of(unit))
        )

    def follow(self, moved: Sequence[QueueAccount], caps: Caps) -> list[str]:
        """These units, all of which it has, ask for something else or are capped otherwise. Returns the units whose
        demand is another now. Maxima are worked out again where a unit below them is among those.
        """
        self._caps = caps
        tops = {top.name: top for top in map(self._top_clipped, moved) if top is not None}
        units = {account.name: True for account in moved}
        for top in tops.values():
            units |= {unit.name: True for unit in _groups(top) if unit.name in self.units}
        names = [name for unit in units for name in (unit, *self.pieces.get(unit, ()))]
        before = [self.units[name] for name in names]
        for unit in units:
            for leaf in list(self.leaves_of(unit)):
                self._parts.pop(leaf, None)
        for name in names:
            self.units[name] = self._nodes[name].demand = self._demand(name)
        over: list[QueueAccount] = []
        for path in tops:
            for name in [name for name in self._clipped if is_below(name, path)]:
                del self._clipped[name]
            over += [account for name, account in self._accounts.over.items() if is_below(name, path)]
        self._clip(over)
        return [name for name, demand in zip(names, before, strict=True) if self.units[name] != demand]

    def _top_clipped(self, account: QueueAccount) -> QueueAccount | None:
        """The topmost of a queue and its ancestors whose maximum clips demand now, or did before."""
        top: QueueAccount | None = None
        at: QueueAccount | None = account
        while at is not None:
            if at.over or at.name in self._clipped:
                top = at
            at = at.parent
        return top

    def _may_be_whole(self) -> bool:
        """Whether units without demand may be in the tree: only if no other queue's weight depends on them."""
        policies = [self._policy, *[queue.policy for _, queue in walk(self._tree)]]
        return not (self._goes_by_holdings or any(self._accounts.root.claims) or "collapsed" in policies)

    # ------------------------------------------------------------------ building
    def _grow(self) -> TreeNode | None:
        if "" not in self.asking:
            return None
        root = self._node(self._tree, "", self._policy, ONE)
        root.name = TOP
        # Keep only the topmost subtrees that are shared out by what they hold.
        tops = [node.name for node in self.churned]
        self.churned = [
            node
            for node in self.churned
            if node is root or not any(top == TOP or node.name.startswith(f"{top}/") for top in tops)
        ]
        return root

    def _node(self, queue: Queue, path: str, above: str, share: int) -> TreeNode:
        policy = queue.policy or above
        self._found[path] = queue, policy, share
        if not queue.children or policy in LIST_POLICIES:
            self.units[path] = demand = self._demand(path)
            node = self._nodes[path] = TreeNode(path, queue.weight, demand=demand)
            if not queue.children and policy not in LIST_POLICIES:
                self._divide_leaf(node)
            return node
        node = self._nodes[path] = TreeNode(path, queue.weight, order="naive" if policy in HELD else "hdrf")
        if policy == "collapsed":
            node.children = list(self._collapsed(queue, path, Fraction(1), share))
        elif policy == "drf":
            node.children = self._side_by_side(path, list(self._flat(queue, path)), policy, share)
        else:
            node.children = self._side_by_side(path, self._children(queue, path), policy, share)
        if policy in HELD and (above not in HELD or not path):
            self.churned.append(node)
        return node

    def _divide_leaf(self, leaf: TreeNode) -> None:
        """A node for each set of kinds that a leaf asks for, all with the same weight, where there are several."""
        sets = self._accounts.queues[leaf.name].sets
        if not sets or leaf.name in self._caps or self._goes_by_holdings:
            return
        self.pieces[leaf.name] = pieces = [f"{leaf.name}{PIECE}{key}" for key in sorted(sets)]
        for piece in pieces:
            self.units[piece] = demand = self._demand(piece)
            self._nodes[piece] = TreeNode(piece, demand=demand)
        leaf.children = [self._nodes[piece] for piece in pieces]

    def _side_by_side(self, path: str, queues: list[tuple[Queue, str]], policy: str, share: int) -> list[TreeNode]:
        asking = [(queue, name) for queue, name in queues if name in self.asking]
        found = self._divided(path, [name for _, name in asking], share)
        nodes = [self._node(queue, name, policy, found.get(name, 0)) for queue, name in asking]
        if found:
            weights = self._weights(found)
            for node in nodes:
                node.weight = weights.get(node.name, 1)
        return nodes

    def _divided(self, path: str, names: Sequence[str], share: int) -> dict[str, int]:
        """What each of these would have of a share; empty where weights alone say it."""
        if not any(self._accounts.queues[path].claims):
            return {}
        found = self._accounts.divide(names, share)
        self.amounts |= found
        return found

    def _weights(self, found: dict[str, int]) -> dict[str, int]:
        """The weights to use. A queue that is left nothing keeps its own weight, for what the others cannot use."""
        heaviest = max([self._accounts.queues[name].weight for name in found], default=1)
        least = {name: (self._accounts.queues[name].weight << _LEAST_BITS) // heaviest for name in found}
        return {name: max(1, least[name], part >> ONE_BITS - _WEIGHT_BITS) for name, part in found.items()}

    def _children(self, queue: Queue, path: str) -> list[tuple[Queue, str]]:
        """The children of a queue with their paths, which the accounts have in the same order."""
        accounts = self._accounts.queues[path].children
        return [(child, account.name) for child, account in zip(queue.children, accounts, strict=True)]

    def _flat(self, queue: Queue, path: str) -> Iterator[tuple[Queue, str]]:
        for child, name in self._children(queue, path):
            if child.children and child.policy in ("", "drf"):
                self._found[name], self.passes_over = (child, "drf", 0), True
                yield from self._flat(child, name)
            else:
                yield child, name

    def _collapsed(self, queue: Queue, path: str, part: Fraction, share: int) -> Iterator[TreeNode]:
        asking = [(child, name) for child, name in self._children(queue, path) if name in self.asking]
        found = self._divided(path, [name for _, name in asking], share)
        weights = self._weights(found) or {
            name: child.weight for child, name in asking if self._accounts.queues[name].asks
        }
        total = sum(weights.values())
        for child, name in asking:
            each = part * Fraction(max(1, weights.get(name, 0)), max(1, total))
            if child.children and child.policy in ("", "collapsed"):
                self._found[name], self.passes_over = (child, "collapsed", found.get(name, 0)), True
                yield from self._collapsed(child, name, each, found.get(name, 0))
            else:
                node = self._node(child, name, "collapsed", found.get(name, 0))
                node.weight = each
                yield node

    def _demand(self, unit: str) -> list[int]:
        if unit in self._caps:  # A queue's maximum was kept by what it holds.
            return [amount << self.bits for amount in self._caps[unit]]
        if not self._parts:
            asked = self._asked(unit)
            return [amount << self.bits for amount in asked] if self.bits else asked
        total = [0] * len(self._accounts.capacity)
        for leaf in self.leaves_of(unit):
            part, asks = self._parts.get(leaf, 1 << self.bits), self._asked(leaf)
            base = self.bases.get(leaf, ())
            if base:
                rest = [(amount << self.bits) - of_base for amount, of_base in zip(asks, base, strict=True)]
                total = [
                    has + of_base + (of_rest * part >> self.bits)
                    for has, of_base, of_rest in zip(total, base, rest, strict=True)
                ]
            else:
                total = [has + asked * part for has, asked in zip(total, asks, strict=True)]
        return total

    def _asked(self, unit: str) -> list[int]:
        """All that a unit, or a leaf or its tasks for one set of kinds, asks for."""
        leaf, _, key = unit.partition(PIECE)
        account = self._accounts.queues[leaf]
        return account.sets[key] if key else account.demand

    def _set_bases(self) -> None:
        """In leaves that ask for more than their maximum, what they hold and do not wait for comes first."""
        queues = self._accounts.queues
        self.basable = [name for name in self.units if PIECE not in name and name not in self._caps]
        self.basable = [name for name in self.basable if queues[name].over and name not in self.pieces]
        for name in self.basable:
            shares = queues[name].base if queues[name].asked and not queues[name].sets else ()
            if queues[name].children or not shares:
                continue
            # Rounded up: a whole number of base units stays one, and nothing of it is left in the rest.
            amounts = [-(-share * have >> ONE_BITS) for share, have in zip(shares, self.capacity, strict=True)]
            self.bases[name] = self._nodes[name].base = amounts

    # ------------------------------------------------------------------ maxima
    def _clip(self, over: Sequence[QueueAccount]) -> None:
        """Keeps these queues, which ask for more, within their maxima, from the leaves up."""
        for account in sorted(
            over, key=lambda account: (-len(account.name.split("/")), account.name == "", account.name)
        ):
            self._clipped[account.name] = True
            queue, policy, share = self._found.get(account.name, (None, "", 0))
            node = self._nodes.get(account.name)
            if node is not None and node.children:
                if self._by_events:
                    node.most = [None if most is None else most << self.bits for most in account.most]
                else:
                    self._clip_below(account, node)
            elif queue is None or not queue.children or policy in LIST_POLICIES:
                self._clip_evenly(account)
            else:
                # Queues whose children were moved up, beside others, get a node of their own.
                node = self._apart(queue, account.name, policy, share)
                if node.children:
                    self._clip_below(account, node)

    def _apart(self, queue: Queue, path: str, policy: str, share: int) -> TreeNode:
        """A copy of a queue that is not in the tree, to apply its maximum; the tree is not changed."""
        before = dict(self._nodes), list(self.churned), dict(self.amounts)
        node = self._node(queue, path, policy, share)
        self._nodes, self.churned, self.amounts = before
        return node

    def _clip_evenly(self, account: QueueAccount) -> None:
        """A single unit, or a part of one: all that it asks for in the same proportion."""
        most = [limit << self.bits if limit is not None else None for limit in account.most]
        base = self.bases.get(account.name, ())
        part, whole = factor_beside(self._demand(account.name), base, most) or (1, 1)
        if part < whole:
            self._leave(account.name, part, whole)

    def _clip_below(self, account: QueueAccount, node: TreeNode) -> None:
        """The queue as a tree of its own, in a cell that has its maximum."""
        limits = zip(self._accounts.capacity, account.most, strict=True)
        cell = [(have if most is None else min(have, most)) << self.bits for have, most in limits]
        self._hold_claims(leaves(node), [(node, cell)])
        reached_by = fill(node, cell).leaves
        for leaf in leaves(node):
            leaf.claim = 0
        for unit, reached in reached_by.items():
            if not reached.satisfied:
                shares = [asked * (ONE // have) for asked, have in zip(self.units[unit], cell, strict=True) if have]
                if self.bases.pop(unit, None) is not None:
                    self._nodes[unit].base = ()
                self._leave(unit, reached.share, max([reached.share, 1, *shares]))

    # ------------------------------------------------------------------ guarantees below maxima
    def _hold_claims(self, below: Sequence[TreeNode], cells: Sequence[tuple[TreeNode, Limits]]) -> None:
        """These leaves are below a maximum, which weights do not know of: they have what guarantees cover of what they
        ask for before anything is divided. `cells`: nodes with what they may hold, deeper ones first; where more is
        covered below one, all get less in proportion.
        """
        if not any(self._accounts.root.claims):
            return
        for leaf in below:
            leaf.claim = 0 if leaf.base else self._claim(leaf)
        for node, limits in cells:
            claiming = [leaf for leaf in leaves(node) if leaf.claim]
            for kind, limit in enumerate(limits):
                total = sum([leaf.demand[kind] * leaf.claim for leaf in claiming])
                if limit is not None and total > limit << ONE_BITS:
                    for leaf in claiming:
                        if leaf.demand[kind]:
                            leaf.claim = leaf.claim * (limit << ONE_BITS) // total

    def _claim(self, leaf: TreeNode) -> int:
        """How much of what a leaf asks for within its maximum, of `ONE`, its own guarantee covers."""
        account = self._accounts.queues[leaf.name.partition(PIECE)[0]]
        part, whole = factor_of(account.demand, account.floor) or (0, 1)
        asks = [
            (amount << self.bits, within) for amount, within in zip(self._asked(leaf.name), leaf.demand, strict=True)
        ]
        return min([ONE, *[(part * all_ << ONE_BITS) // (whole * within) for all_, within in asks if within]])

    def _leave(self, unit: str, part: int, whole: int) -> None:
        for leaf in self.leaves_of(unit):
            self._parts[leaf] = self._parts.get(leaf, 1 << self.bits) * part // whole
        for name in (*self.pieces.get(unit, ()), unit, unit.partition(PIECE)[0]):
            if name in self.units:
                self.units[name] = self._nodes[name].demand = self._demand(name)


def _groups(account: QueueAccount) -> Iterator[QueueAccount]:
    if account.is_group:
        yield account
    else:
        for child in account.children:
            yield from _groups(child)


def _leaves(account: QueueAccount) -> Iterator[QueueAccount]:
    if not account.children:
        yield account
    for child in account.children:
        yield from _leaves(child)
