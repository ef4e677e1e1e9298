"""By what a node is chosen among those that have room: the policy `placement` (docs/concepts/placement.md).

`packed` keeps room for what is hard to place. Resources that some nodes lack, and GPUs, are *scarce*: a node that has
some of a kind that a task does not ask for comes after all that have none. Then what a task spoils decides: how much
room for GPUs is lost to the classes that the cell has to run (fragments.py; nothing, as long as none is known). Then
who asks for a scarce kind goes where it leaves the least behind: fractions of a GPU to the device with the least room
left afterwards, then to the node with the least of the kind free, then with the least CPU; others to the node with the
least of scarce kinds free. In a cell without scarce kinds nodes are taken as under `aligned`, by the dot product of
demand and free room. `spread`: the node of which the least part is in use, in the resource that is used most of those
the task asks for.
"""

from typing import Final

from schemas.quantities import RESOURCES, Vector, on_devices

WHOLE: Final = 1_000
LEFT_BITS: Final = 11
"""What is left of a device stays below 2^11."""

SCARCE_BITS: Final = 20
"""Of a scarce kind the largest node has so many units: amounts are compared in these."""

_AMOUNT_BITS: Final = 26
SUM_MAX: Final = (1 << _AMOUNT_BITS) - 1
GROWTH_BITS: Final = 22
GROWTH_MAX: Final = (1 << GROWTH_BITS) - 1
_LEFT_MAX: Final = (1 << LEFT_BITS) - 1


def scarce_kinds(capacities: list[Vector]) -> list[str]:
    """The kinds of resources that are scarce on nodes of these capacities: GPUs, and countable resources of other names
    that some of the nodes lack.
    """
    kinds = sorted({kind for capacity in capacities for kind, amount in capacity.items() if amount})
    return [
        kind
        for kind in kinds
        if kind == "gpu" or (kind not in RESOURCES and any(not capacity.get(kind) for capacity in capacities))
    ]


def left_on_device(milli: int, devices: list[int]) -> int:
    """What the device that takes the fraction of a GPU demand has left afterwards, the fullest that has room; 0 where
    whole ones are asked for. -1: the demand does not fit.
    """
    whole, part = divmod(milli, WHOLE)
    if not part:
        for room in devices:
            if room >= WHOLE:
                whole -= 1
        return 0 if whole <= 0 else -1
    if whole:
        taken = on_devices(milli, devices)
        return -1 if taken is None else min(devices[taken[-1][0]] - part, _LEFT_MAX)
    least = -1
    for room in devices:
        if room >= part and (least < 0 or room < least):
            least = room
    return -1 if least < 0 else min(least - part, _LEFT_MAX)


class NodeChoice:
    """How nodes are compared for a class of tasks, where not by alignment alone.

    `needs`, of a class that is spread: what it asks for, as (resource position, amount, anything); nothing else counts.
    Else `kinds`: bit set of the scarce kinds that it asks for, by their order; and `amounts`: (resource position, most
    on a node) of the kinds whose free amount counts: those, or if it asks for none, all scarce ones. `last`: the
    resource position of which the least free decides then; -1: alignment, whose ranks are never below `-bound`.
    `shift`: bits for what decides last.
    """

    __slots__ = ("amounts", "bound", "gpu", "is_spread", "kinds", "last", "needs", "shift")

    def __init__(
        self,
        gpu: int,
        kinds: int,
        amounts: list[tuple[int, int]],
        last: int,
        bound: int,
        shift: int,
        needs: list[tuple[int, int, int]] | None = None,
    ) -> None:
        self.gpu = gpu
        self.kinds = kinds
        self.amounts = amounts
        self.last = last
        self.bound = bound
        self.shift = shift
        self.needs: list[tuple[int, int, int]] = needs if needs is not None else []
        self.is_spread = needs is not None

    def rank(self, kinds: int, free: list[int], capacity: list[int], left: int, aligned: int, growth: int) -> int:
        """The rank of a node with room, less is better. `kinds`: bit set of the scarce kinds that the node has; `left`:
        what the device of a fraction has left; `aligned`: the rank by alignment; `growth`: what is spoilt.
        """
        if self.is_spread:
            return part_in_use(self.needs, free, capacity)
        amount = 0
        for p, most in self.amounts:
            have = free[p]
            if have > 0:
                amount += (have << SCARCE_BITS) // most
        if amount > SUM_MAX:
            amount = SUM_MAX
        if self.last < 0:
            last = aligned + self.bound
        else:
            last = free[self.last]
        foreign = (kinds & ~self.kinds).bit_count()
        spoilt = (foreign << GROWTH_BITS | growth) << LEFT_BITS | left
        return (spoilt << _AMOUNT_BITS | amount) << self.shift | max(last, 0)


def part_in_use(needs: list[tuple[int, int, int]], free: list[int], capacity: list[int]) -> int:
    """The largest part of a node in use, in 2^-20, of the resources that a class asks for."""
    most = 0
    for p, _, _ in needs:
        if capacity[p] > 0:
            part = ((capacity[p] - free[p]) << SCARCE_BITS) // capacity[p]
            if part > most:
                most = part
    return most
