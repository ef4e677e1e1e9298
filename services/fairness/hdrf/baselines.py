"""The baselines that H-DRF is compared with, as transformations of the tree.

Each function takes a tree and returns another one for `hdrf.fill`, `whole_tasks.fill_whole`, `dynamic.LiveTree` or
`exact.Exact`; names stay, so that results for leaves can be compared. The simple orders (`fifo`, `srtf`, `priority` by
rank, `fair` by tasks) need no transformation: any node may have one as its `order`, and its subtree follows it while
the rest of the tree stays as it was.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from services.fairness.tree import TreeNode, leaves


def flat(root: TreeNode) -> TreeNode:
    """DRF: all leaves side by side, each with its own weight. Groups get nothing for being groups."""
    return TreeNode(root.name, root.weight, [replace(leaf) for leaf in leaves(root)])


def naive(root: TreeNode) -> TreeNode:
    """Hierarchical DRF as first built (section 3.3 of the paper): inner nodes count all that they hold. Leaves may
    starve: a sibling without competition holds their parent's share up.
    """
    return ordered(root, "naive")


def ordered(root: TreeNode, order: str) -> TreeNode:
    """The same order among the children of every inner node."""
    return replace(root, order=order, children=[ordered(child, order) for child in root.children])


def collapsed(root: TreeNode, demanding: Callable[[TreeNode], bool]) -> TreeNode:
    """DRF with the weights of the hierarchy multiplied along each leaf's path (section 3.2 of the paper): of its
    siblings that demand something, each node's part. Right for a single kind; with more, groups lose their guarantee
    as soon as their members ask for different ones. Worked out again whenever who demands something changes.
    """
    return TreeNode(root.name, root.weight, _collapsed(root, Fraction(1), demanding))


def _collapsed(node: TreeNode, weight: Fraction, demanding: Callable[[TreeNode], bool]) -> list[TreeNode]:
    if not node.children:
        return [replace(node, weight=weight)]
    asking = {child.name: any(demanding(leaf) for leaf in leaves(child)) for child in node.children}
    total = sum([child.weight for child in node.children if asking[child.name]], Fraction(0))
    found = []
    for child in node.children:
        rivals = total if asking[child.name] else total + child.weight
        found += _collapsed(child, weight * child.weight / rivals, demanding)
    return found
