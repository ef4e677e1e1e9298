"""Static H-DRF in whole tasks: always one task to the leaf to which the walk leads, but many at a time while much is
free.

The walk is the one of `dynamic.py` without rescaling. Where a cell takes more tasks than can be given one by one, three
things shorten the way without changing the result by more than a task: far from any event, leaves are filled in
fractions (`static.pour`) up to where every leaf could still get one more task; a leaf gets several tasks at a time as
long as all leaves together could get eight times as much; and only the rest is given task by task.
"""

from collections.abc import Sequence

from services.fairness.hdrf.dynamic import LiveTree
from services.fairness.hdrf.naive import NaiveWalk, is_naive
from services.fairness.hdrf.static import pour
from services.fairness.tree import TreeNode, leaves

STEPS_PLAIN = 4096
"""Tasks given one by one before anything is shortened: small cells come out to the letter."""


def fill_whole(root: TreeNode, capacity: Sequence[int], plain: int = STEPS_PLAIN) -> LiveTree:
    """The static allocation in whole tasks, from empty, as a tree that holds it. `Node.tasks`: what a leaf asks for.

    The first `plain` tasks, and four more a leaf, are given one by one in any case.
    """
    tree = LiveTree(root, capacity, rescales=False)
    asked = {leaf.name: leaf.tasks for leaf in leaves(root)}
    more = _step(tree, plain + 4 * len(tree.leaf_states), bundles=False)
    while more:
        _pour(tree, root, asked)
        more = _step(tree, 4 * len(tree.leaf_states) + 64, bundles=True)
    return tree


def hand_out(tree: LiveTree, *, plain: bool = True) -> None:
    """Give out what is free, like `LiveTree.fill`, but many tasks at a time where there are very many to give.
    `plain`: the first ones one by one in any case.
    """
    more = not plain or _step(tree, STEPS_PLAIN + 4 * len(tree.leaf_states), bundles=False)
    while more:
        more = _step(tree, STEPS_PLAIN, bundles=True)


def held_at_last(root: TreeNode, capacity: Sequence[int]) -> dict[str, list[int]]:
    """What leaves hold, in base units, once what is free is handed out. Changes `root`."""
    naive = is_naive(root)
    if naive:
        walk = NaiveWalk(root, capacity)
        if not walk.give(STEPS_PLAIN + 4 * len(walk.leaves)):
            return {leaf.name: leaf.used for leaf in walk.leaves}
        for node, leaf in zip(leaves(root), walk.leaves, strict=True):
            node.held, node.tasks = leaf.used, leaf.waiting
    tree = LiveTree(root, capacity)
    hand_out(tree, plain=not naive)
    return {name: state.used for name, state in tree.leaf_states.items()}


def _step(tree: LiveTree, steps: int, *, bundles: bool) -> bool:
    """Gives tasks for a number of steps. False if no leaf can take any more."""
    for _ in range(steps):
        leaf = tree.next()
        if leaf is None:
            return False
        tree.give(leaf, _bundle(tree, leaf) if bundles else 1)
    return True


def _bundle(tree: LiveTree, leaf: str) -> int:
    """How many tasks may go to a leaf at once: no more than an eighth of what all leaves could get of the scarcest
    kind."""
    state = tree.leaf_states[leaf]
    shares = [need * unit for need, unit in zip(state.demand, tree.units, strict=True)]
    scarce = min([tree.free[j] * tree.units[j] for j in tree.view.open])
    tasks = scarce // (8 * len(tree.leaf_states) * max(shares))
    return max(1, tasks if state.waiting is None else min(tasks, state.waiting))


def _pour(tree: LiveTree, root: TreeNode, asked: dict[str, int | None]) -> None:
    """Flow up to where every leaf that can take could still get one more task."""
    held = tree.tasks()
    spare = [0] * len(tree.capacity)
    able = []
    for leaf in leaves(root):
        state = tree.leaf_states[leaf.name]
        if state.mask and not state.mask & tree.view.full and tree.short_of(state) is None:
            spare = [units + need for units, need in zip(spare, leaf.demand, strict=True)]
            able.append(leaf)
            leaf.tasks = asked[leaf.name]
        else:
            leaf.tasks = held[leaf.name]
    poured = pour(root, tree.capacity, held, tree.view.full, spare)
    for leaf in able:
        if poured[leaf.name] > held[leaf.name]:
            tree.give(leaf.name, poured[leaf.name] - held[leaf.name])
    for leaf in leaves(root):
        leaf.tasks = asked[leaf.name]
