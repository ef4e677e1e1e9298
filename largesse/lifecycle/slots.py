"""Slots (the baseline of Hadoop's fair scheduler): under the preset `slots` a node has so many places and a task takes
one, whatever they have and ask for. Under other presets both count for their amounts.
"""

from largesse.lifecycle.state import Promises
from schemas import Policy, Vector
from schemas.presets import PRESETS
from schemas.quantities import SLOTS

_ONE_SLOT = {SLOTS: 1}


def slots_of(policy: Policy) -> int:
    """Places a node; 0 where they do not count."""
    return policy.slots_per_node if PRESETS[policy.preset].counts_slots else 0


def counted_demand(policy: Policy, demand: Vector) -> Vector:
    """What a task with such a demand counts for. Not to be changed."""
    return _ONE_SLOT if PRESETS[policy.preset].counts_slots else demand


def counted_capacity(policy: Policy, capacity: Vector) -> Vector:
    """What a node with such a capacity counts for; one without any (unknown as yet) for nothing."""
    return {SLOTS: policy.slots_per_node} if capacity and PRESETS[policy.preset].counts_slots else capacity


def counted_promises(policy: Policy, promises: Promises) -> Vector:
    """What is promised to reservations counts for."""
    return {SLOTS: promises.units} if promises.amount and PRESETS[policy.preset].counts_slots else promises.amount
