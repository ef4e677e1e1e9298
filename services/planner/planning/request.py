"""A request in RDL on the grid of steps: what the planners work on.

Windows are folded into the atoms that they hold: every atom knows the steps it may lie in. Arrivals round up to a
step, deadlines down, leases up.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

GroupKind = Literal["all", "any", "order", "order_no_gap"]


@dataclass(slots=True)
class Atom:
    """Gangs of `gang` units alike, each lease of whole gangs. They may use steps `[begin, end)`."""

    path: str  # Child indexes below the windows, "0" for a lone atom.
    unit: tuple[int, ...]  # Amounts of one unit, by resource.
    gang: int  # Units in a gang.
    gangs_most: int  # In parallel.
    lease: int  # Steps that a lease lasts at least.
    work: int  # Gang-steps.
    begin: int
    end: int

    @property
    def fastest(self) -> int:
        """Steps that it takes at least, on an empty cell."""
        return max(self.lease, -(-self.work // self.gangs_most))


@dataclass(slots=True)
class Group:
    """All of the branches, or one (`any`), or one after the other, with or without time between them."""

    kind: GroupKind
    of: list["Node"] = field(default_factory=list)


Node = Atom | Group


@dataclass(slots=True, frozen=True, order=True)
class Lease:
    """`gangs` gangs of an atom in steps `[begin, end)`."""

    begin: int
    end: int
    gangs: int


Plan = list[tuple[Atom, list[Lease]]]
"""The atoms that are served, with their leases."""


def extent(plan: Plan) -> tuple[int, int]:
    """The first step of a plan, which is not empty, and the step after its last."""
    return min(each.begin for _, leases in plan for each in leases), max(
        each.end for _, leases in plan for each in leases
    )


def gapless(plan: Plan) -> bool:
    """Whether something of the plan runs at every step of its extent."""
    spans = sorted((each.begin, each.end) for _, leases in plan for each in leases)
    reached = spans[0][0]
    for begin, end in spans:
        if begin > reached:
            return False
        reached = max(reached, end)
    return True


def atoms(node: Node) -> Iterator[Atom]:
    """All atoms of a request, in order."""
    if isinstance(node, Atom):
        yield node
    else:
        for branch in node.of:
            yield from atoms(branch)


def fastest(node: Node) -> int:
    """Steps that a request takes at least, on an empty cell."""
    if isinstance(node, Atom):
        return node.fastest
    steps = [fastest(branch) for branch in node.of]
    if node.kind == "any":
        return min(steps)
    return max(steps) if node.kind == "all" else sum(steps)


def bounds(node: Node) -> tuple[int, int]:
    """The steps that a request may use: the first, and the one after the last."""
    within = [(atom.begin, atom.end) for atom in atoms(node)]
    return min(begin for begin, _ in within), max(end for _, end in within)


def least_work(node: Node, capacity: tuple[int, ...]) -> int:
    """Dominant share x steps of the lightest way to serve a request, in 10^-9."""
    if isinstance(node, Atom):
        share = max((need * 10**9 // have for need, have in zip(node.unit, capacity, strict=True) if have), default=0)
        return share * node.gang * node.work
    each = [least_work(branch, capacity) for branch in node.of]
    return min(each) if node.kind == "any" else sum(each)


def inside(node: Node, begin: int, end: int) -> Node:
    """The same request inside steps `[begin, end)`."""
    if isinstance(node, Atom):
        if node.begin >= begin and node.end <= end:
            return node
        first, last = max(node.begin, begin), min(node.end, end)
        return Atom(node.path, node.unit, node.gang, node.gangs_most, node.lease, node.work, first, last)
    return Group(node.kind, [inside(branch, begin, end) for branch in node.of])


def shifted(node: Node, by: int) -> Node:
    """The same request moved by a number of steps."""
    if isinstance(node, Atom):
        return replace(node, begin=node.begin + by, end=node.end + by)
    return Group(node.kind, [shifted(branch, by) for branch in node.of])


def scaled(node: Node, permille: int) -> Node:
    """The same request with so much of its width and work: gangs that run alone get narrower, others fewer."""
    if isinstance(node, Group):
        return Group(node.kind, [scaled(branch, permille) for branch in node.of])
    if node.gangs_most == 1:
        return replace(node, gang=max(1, node.gang * permille // 1000))
    most = max(1, node.gangs_most * permille // 1000)
    return replace(node, gangs_most=most, work=-(-node.work * permille // 1000))
