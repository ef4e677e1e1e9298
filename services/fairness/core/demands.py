"""What all leaf queues ask for and hold."""

from dataclasses import dataclass, field

from largesse.lifecycle.remaining import set_of
from schemas import Vector
from schemas.quantities import add_amounts
from services.fairness.accounts.leaf_demand import LeafDemand

NO_DEMAND = LeafDemand()
"""That of a leaf without tasks: shared, and never changed."""


@dataclass(slots=True)
class Demands:
    """By leaf queue what its tasks ask for and hold, as long as it has any; `total`: what is asked for in all leaves
    together; `waits`: how many tasks wait in all.
    """

    leaves: dict[str, LeafDemand] = field(default_factory=dict)
    total: Vector = field(default_factory=dict)
    waits: int = 0

    def of(self, leaf: str) -> LeafDemand:
        """The demand of a leaf, to be read only."""
        return self.leaves.get(leaf, NO_DEMAND)

    def add(self, leaf: str, demand: Vector, asked: int, waiting: int, held: int = 0, resting: int = 0) -> None:
        """Adds tasks (subtracts, where negative) that each ask for `demand`: how many more are asked for, wait, hold it
        and are in back-off.
        """
        of_leaf = self.leaves.get(leaf)
        if of_leaf is None:
            of_leaf = self.leaves[leaf] = LeafDemand()
        if asked:
            _add(of_leaf.asked, demand, asked)
            key = set_of(demand)
            of_set = of_leaf.sets.get(key)
            if of_set is None:
                of_set = of_leaf.sets[key] = {}
            _add(of_set, demand, asked)
            if not of_set:
                del of_leaf.sets[key]
            add_amounts(self.total, demand, asked)
        if waiting:
            self.waits += waiting
            of_leaf.waits += waiting
            _add(of_leaf.waiting, demand, waiting)
        if held:
            _add(of_leaf.used, demand, held)
        if resting:
            of_leaf.rests += resting
            _add(of_leaf.resting, demand, resting)
        if of_leaf.is_empty():
            del self.leaves[leaf]


def _add(vector: Vector, demand: Vector, tasks: int) -> None:
    """Adds tasks (subtracts, where negative) to a vector; kinds that become 0 are dropped."""
    fewer = -tasks
    for resource, amount in demand.items():
        # Multiplied by what is not negative, as in `add_amounts`.
        before = vector.get(resource, 0)
        new = before + amount * tasks if tasks >= 0 else before - amount * fewer
        if new:
            vector[resource] = new
        else:
            vector.pop(resource, None)
