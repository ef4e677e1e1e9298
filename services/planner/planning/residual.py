"""What of an accepted request can still be planned again: what begins before a step is left as it is.

With `cut`, leases that run may also end there, once they have lasted as long as a lease has to; the work that they
then miss is planned with the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from services.planner.planning.request import Atom, Group, Lease, Node, Plan, inside

FOR_EVER = 1 << 40
"""A step beyond every horizon."""


@dataclass(slots=True, frozen=True)
class Known:
    """An accepted request as it was accepted, and its leases that began: they do not move. `weight`: beside others."""

    user: str
    node: Node
    begun: Plan = field(default_factory=list)
    weight: int = 1


@dataclass(slots=True)
class Split:
    """`begun`: leases that stay; `rest`: the request for what does not, None where there is none; `coming`: the leases
    that serve the rest by now."""

    begun: Plan
    rest: Node | None
    coming: Plan


def joined(begun: Plan, coming: Plan) -> Plan:
    """One plan of two parts: each atom once."""
    leases: dict[str, list[Lease]] = {}
    found: dict[str, Atom] = {}
    for atom, mine in (*begun, *coming):
        found.setdefault(atom.path, atom)
        leases.setdefault(atom.path, []).extend(mine)
    return [(found[path], sorted(mine)) for path, mine in leases.items()]


def remainder(node: Node, plan: Plan, first: int) -> Split:
    """What is left of an accepted request whose leases all end by step `first`. A lease that was cut before it had
    lasted as long as it has to counts for nothing. `rest` is None where no part of it can be planned again."""
    begun: Plan = []
    for atom, leases in plan:
        over = [Lease(each.begin, min(each.end, first), each.gangs) for each in leases if each.begin < first]
        counted = [each for each in over if each.end - each.begin >= atom.lease]
        if counted:
            begun.append((atom, counted))
    return split(node, begun, first, more=True)


def split(node: Node, plan: Plan, first: int, *, cut: bool = False, more: bool = False) -> Split:
    """An accepted request and its plan at step `first`, the first that can be planned again. `more`: the request asks
    for more work than the plan has."""
    begun: Plan = []
    coming: Plan = []
    for atom, leases in plan:
        stays, goes = _parted(atom, leases, first, cut)
        if stays:
            begun.append((atom, stays))
        if goes:
            coming.append((atom, goes))
    if not begun:
        return Split([], node, coming)
    if not (coming or more) or _touches_gapless(node, {atom.path for atom, _ in begun}):
        return Split(plan, None, [])
    served = {atom.path: leases for atom, leases in begun}
    planned = {atom.path: True for atom, _ in plan}
    rest = _rest(node, served, planned, first)
    return Split(begun, rest, coming) if rest is not None else Split(plan, None, [])


def _parted(atom: Atom, leases: list[Lease], first: int, cut: bool) -> tuple[list[Lease], list[Lease]]:
    stays, goes = [], []
    for each in leases:
        if each.begin >= first:
            goes.append(each)
        elif cut and each.end > first and first - each.begin >= atom.lease:
            stays.append(Lease(each.begin, first, each.gangs))
            goes.append(Lease(first, each.end, each.gangs))
        else:
            stays.append(each)
    return stays, goes


def _touches_gapless(node: Node, begun: set[str]) -> bool:
    """Whether links without a gap have begun: then they cannot move any more."""
    if isinstance(node, Atom):
        return False
    if node.kind == "order_no_gap":
        return any(each in begun for each in _paths(node))
    return any(_touches_gapless(branch, begun) for branch in node.of)


def _paths(node: Node) -> list[str]:
    if isinstance(node, Atom):
        return [node.path]
    return [path for branch in node.of for path in _paths(branch)]


def _rest(node: Node, begun: Mapping[str, list[Lease]], planned: Mapping[str, bool], first: int) -> Node | None:
    if isinstance(node, Atom):
        return _atom_rest(node, begun.get(node.path, []), first)
    if node.kind == "any":
        chosen = [branch for branch in node.of if any(path in planned for path in _paths(branch))]
        if not any(path in begun for branch in chosen for path in _paths(branch)):
            return inside(node, first, FOR_EVER)
        return _rest(chosen[0], begun, planned, first)
    if node.kind == "all":
        parts = [_rest(branch, begun, planned, first) for branch in node.of]
        left = [part for part in parts if part is not None]
        return Group("all", left) if left else None
    ends = [_end(branch, begun) for branch in node.of]
    last = max((i for i, end in enumerate(ends) if end is not None), default=-1)
    after = max([first, *(end for end in ends if end is not None)])
    links: list[Node] = []
    for i, branch in enumerate(node.of):
        if i > last:
            links.append(inside(branch, after, FOR_EVER))
        elif i == last and (part := _rest(branch, begun, planned, first)) is not None:
            links.append(part)
    return Group(node.kind, links) if links else None


def _end(node: Node, begun: Mapping[str, list[Lease]]) -> int | None:
    return max((each.end for path in _paths(node) for each in begun.get(path, [])), default=None)


def _atom_rest(atom: Atom, begun: list[Lease], first: int) -> Atom | None:
    left = atom.work - sum((each.end - each.begin) * each.gangs for each in begun)
    if left <= 0:
        return None
    running = sum(each.gangs for each in begun if each.end > first)
    if running < atom.gangs_most:
        return replace(atom, work=left, begin=max(atom.begin, first), gangs_most=atom.gangs_most - running)
    return replace(atom, work=left, begin=max(each.end for each in begun))
