"""What the nodes of a cell have, and what of it is divided."""

from dataclasses import dataclass, field

from largesse.lifecycle.promises import divisible
from largesse.lifecycle.slots import counted_capacity
from schemas import Policy, Vector


@dataclass(slots=True)
class Capacity:
    """`nodes`: what each has, as it says; `whole`: what all have, in the units that count (lifecycle/slots.py).
    `divided`: what of that the queues divide, without what was promised to reservations at the last opening.
    """

    nodes: dict[str, Vector] = field(default_factory=dict)
    whole: Vector = field(default_factory=dict)
    divided: Vector = field(default_factory=dict)

    def put(self, node: str, capacity: Vector, policy: Policy) -> None:
        """A node has another capacity, or is new."""
        self.drop(node, policy)
        self.nodes[node] = capacity
        self._count(capacity, policy, 1)

    def drop(self, node: str, policy: Policy) -> None:
        """A node is not there any more."""
        self._count(self.nodes.pop(node, {}), policy, -1)

    def recount(self, policy: Policy) -> None:
        """Other units count."""
        self.whole = {}
        for capacity in self.nodes.values():
            self._count(capacity, policy, 1)

    def divide(self, promised: Vector) -> None:
        """Works out what the queues divide, with what is promised to reservations now."""
        self.divided = divisible(self.whole, promised)

    def _count(self, capacity: Vector, policy: Policy, sign: int) -> None:
        for resource, amount in counted_capacity(policy, capacity).items():
            self.whole[resource] = self.whole.get(resource, 0) + sign * amount
