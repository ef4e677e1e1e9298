"""The tree of queues as the fairness policies see it: nodes with weights, leaves with demands in whole base units.

A vector is a sequence of integers in the order of the cell's capacity vector. A share is held as an integer of `ONE`,
so that sums of shares are exact, do not depend on their order and come out alike on every processor.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from schemas.quantities import SHARE_UNITS

ONE_BITS: Final = 128
ONE: Final = 1 << ONE_BITS
"""A share of the whole cell. Far finer than a base unit of any kind, so that no rounding adds up to one."""

NEAR: Final = 1 << 68
"""Shares closer than this (2^-60 of the cell) are the same share: far below one base unit, far above all rounding."""

DEPTH_MAX: Final = 64
"""Levels of a tree. Deeper ones are refused: the walks recurse."""

SHARE_ORDERS = ("hdrf", "naive", "fair")
"""Orders among children that compare how much each has: dominant share (without or with what is full), tasks."""

RANK_ORDERS = ("fifo", "srtf", "priority")
"""Orders among children that serve one child before the next, by ascending `rank`. The caller that builds the tree
computes the rank from time, remaining work or priority."""


@dataclass(slots=True)
class TreeNode:
    """A queue: inner with `children`, or a leaf with a `demand` per task and `tasks` asked for in all (None: endless).

    A leaf may also stand for many unlike tasks: their summed demand as one task, of which it is served a fraction.
    `held` is what it holds now, for the policies that start from current holdings. `order`: how the children are
    compared. `most`: of an inner node, what all leaves below it may have together of each kind; None: no maximum.
    `base`: of a leaf that asks for one task, the part of it that comes before the rest: what it holds and does not wait
    for. `claim`: of a leaf that asks for one task, how much of it, of `ONE`, it has before anything is divided.
    """

    name: str
    weight: int | Fraction = 1
    children: list["TreeNode"] = field(default_factory=list)
    demand: Sequence[int] = ()
    tasks: int | None = 1
    held: Sequence[int] = ()
    order: str = "hdrf"
    rank: int = 0
    most: Sequence[int | None] = ()
    base: Sequence[int] = ()
    claim: int = 0


def walk(root: TreeNode) -> list[TreeNode]:
    """Every node, parents before their children, in the order of the tree."""
    found, ahead = list[TreeNode](), [root]
    while ahead:
        node = ahead.pop()
        found.append(node)
        ahead += reversed(node.children)
    return found


def leaves(root: TreeNode) -> list[TreeNode]:
    """Every leaf, in the order of the tree."""
    return [node for node in walk(root) if not node.children]


def in_rank(children: Sequence[TreeNode]) -> list[TreeNode]:
    """First come first: ascending rank, then name."""
    return sorted(children, key=lambda child: (child.rank, child.name))


def share_units(share: int) -> int:
    """A share of `ONE` in billionths of the cell, rounded down, after what rounding may have taken is put back."""
    return (share + NEAR) * SHARE_UNITS >> ONE_BITS
