"""Checks a plan against its request, without knowing how it was made: what a solver proposes is adopted if it holds."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from services.planner.planning.profile import Profile
from services.planner.planning.request import Atom, Lease, Node, Plan, extent


def fault(node: Node, plan: Plan) -> str:
    """What a plan breaks of its request; empty if nothing."""
    leases = {atom.path: mine for atom, mine in plan if mine}
    if len(leases) != len(plan):
        return "an atom without leases, or twice"
    return _fault(node, leases)


def over_capacity(plans: Sequence[Plan], used: Profile, capacity: Sequence[int], horizon: int) -> bool:
    """Whether plans take more than is left beside what is used. `used` is left as it was."""
    _add(plans, used, 1)
    over = any(most > have for most, have in zip(used.most(0, horizon), capacity, strict=True))
    _add(plans, used, -1)
    return over


def _add(plans: Sequence[Plan], used: Profile, sign: int) -> None:
    for plan in plans:
        for atom, leases in plan:
            for each in leases:
                used.add(each.begin, each.end, atom.unit, sign * each.gangs * atom.gang)


def changes(plans: Mapping[str, Plan], capacity: Sequence[int]) -> int:
    """The paper's preemption term: how much is started and ended, in dominant shares of 10^-6."""
    total = 0
    for plan in plans.values():
        for atom, leases in plan:
            total += 2 * atom.gang * _share(atom, capacity) * _started(leases)
    return total


def use(plans: Mapping[str, Plan], capacity: Sequence[int]) -> int:
    """How much is held and for how long, in dominant shares of 10^-6 x steps."""
    total = 0
    for plan in plans.values():
        for atom, leases in plan:
            steps = sum((each.end - each.begin) * each.gangs for each in leases)
            total += atom.gang * _share(atom, capacity) * steps
    return total


def _share(atom: Atom, capacity: Sequence[int]) -> int:
    return max((need * 10**6 // have for need, have in zip(atom.unit, capacity, strict=True) if have), default=0)


def _started(leases: Sequence[Lease]) -> int:
    """Gangs that start where none ends: a lease that follows on another is no change."""
    at: dict[int, int] = {}
    for each in leases:
        at[each.begin] = at.get(each.begin, 0) + each.gangs
        at[each.end] = at.get(each.end, 0) - each.gangs
    return sum(gangs for gangs in at.values() if gangs > 0)


def _fault(node: Node, leases: Mapping[str, list[Lease]]) -> str:
    if isinstance(node, Atom):
        return _atom_fault(node, leases.get(node.path, []))
    served = [_served(branch, leases) for branch in node.of]
    if node.kind == "any":
        chosen = [branch for branch, mine in zip(node.of, served, strict=True) if mine]
        return _fault(chosen[0], leases) if len(chosen) == 1 else f"{len(chosen)} branches of an any"
    for branch in node.of:
        if found := _fault(branch, leases):
            return found
    if node.kind == "all":
        return ""
    extents = [extent(mine) for mine in served]
    for (_, end), (begin, _) in pairwise(extents):
        if begin < end or (node.kind == "order_no_gap" and begin > end):
            return f"links of an {node.kind} at {end} and {begin}"
    return ""


def _served(node: Node, leases: Mapping[str, list[Lease]]) -> Plan:
    if isinstance(node, Atom):
        return [(node, leases[node.path])] if node.path in leases else []
    return [each for branch in node.of for each in _served(branch, leases)]


def _atom_fault(atom: Atom, leases: Sequence[Lease]) -> str:
    if not leases:
        return f"atom {atom.path} not served"
    width: dict[int, int] = {}
    for each in leases:
        if each.begin < atom.begin or each.end > atom.end:
            return f"atom {atom.path} outside its window"
        if each.end - each.begin < atom.lease or each.gangs < 1:
            return f"atom {atom.path} with a lease that is too short"
        width[each.begin] = width.get(each.begin, 0) + each.gangs
        width[each.end] = width.get(each.end, 0) - each.gangs
    gangs = 0
    for step in sorted(width):
        gangs += width[step]
        if gangs > atom.gangs_most:
            return f"atom {atom.path} too wide"
    if sum((each.end - each.begin) * each.gangs for each in leases) < atom.work:
        return f"atom {atom.path} with too little work"
    return ""
