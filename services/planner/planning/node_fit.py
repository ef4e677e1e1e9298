"""Whether promised units fit on nodes, not only into the sum of their capacity.

Nodes that are alike form a class. Units are packed the largest first, each onto nodes that have least room for it left
over: what this packs fits; what it does not might fit in another way, so a plan may be refused that a perfect packing
would hold. Units that are small beside every node are not looked at: what is lost at the edges of nodes is little.
"""

from collections.abc import Mapping, Sequence

from services.planner.planning.profile import Profile

SMALL = 16
"""A unit is small if at least this many of it fit on every node."""

Unit = tuple[int, ...]
NodeClass = tuple[int, Unit]
"""How many nodes, and the capacity of one."""


def units_on(unit: Unit, capacity: Unit) -> int:
    """Units alike that fit on one node."""
    return min((have // need for have, need in zip(capacity, unit, strict=True) if need), default=0)


def units_in(unit: Unit, classes: Sequence[NodeClass]) -> int:
    """Units alike that fit on all nodes."""
    return sum(count * units_on(unit, capacity) for count, capacity in classes)


def is_small(unit: Unit, classes: Sequence[NodeClass]) -> bool:
    """Whether enough of them fit on every node for the edges of nodes not to matter."""
    return all(units_on(unit, capacity) >= SMALL for _, capacity in classes)


def fit(units: Sequence[tuple[Unit, int]], classes: Sequence[NodeClass]) -> bool:
    """Whether these numbers of units of each shape can be packed."""
    total = tuple(sum(count * capacity[r] for count, capacity in classes) for r in range(len(classes[0][1])))

    def size(unit: Unit) -> int:
        return max(need * 10**9 // have for need, have in zip(unit, total, strict=True) if have)

    groups = list(classes)
    for unit, wanted in sorted(units, key=lambda each: (-size(each[0]), each[0])):
        groups.sort(key=lambda group: (units_on(unit, group[1]), group))
        left, after = wanted, []
        for count, free in groups:
            most = units_on(unit, free) if left else 0
            if not most:
                after.append((count, free))
                continue
            full = min(count, left // most)
            rest = min(left - full * most, most) if full < count else 0
            left -= full * most + rest
            after += [
                (nodes, tuple(have - held * need for have, need in zip(free, unit, strict=True)))
                for nodes, held in ((full, most), (1 if rest else 0, rest), (count - full - (1 if rest else 0), 0))
                if nodes
            ]
        if left:
            return False
        groups = after
    return True


def surely_fit(units: Sequence[Unit], used: Sequence[int], classes: Sequence[NodeClass]) -> bool:
    """Whether so much use lets no packing fail that puts a unit wherever it fits. `units`: the shapes in use.

    Where a unit of `u` fits on no node, every node uses more than `c - u` of some resource. So with fewer nodes' worth
    of that in use than there are nodes, it fits.
    """
    nodes = sum(count for count, _ in classes)
    worth = 0
    for resource, amount in enumerate(used):
        if amount and any(unit[resource] for unit in units):
            spare = min(capacity[resource] for _, capacity in classes) - max(unit[resource] for unit in units)
            if spare <= 0:
                return False
            worth += -(-amount * 10**6 // spare)
    return worth < nodes * 10**6


def moments(shapes: Mapping[Unit, Profile], begin: int, end: int, most: int) -> list[int]:
    """The first steps in `[begin, end)` at which the number of some units changes, with `begin`: at most `most`."""
    found = {begin: True}
    for profile in shapes.values():
        found.update(dict.fromkeys(profile.changes(begin, end, most), True))
    return sorted(found)[:most]
