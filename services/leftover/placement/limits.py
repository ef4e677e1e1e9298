"""The limits that jobs of queues lie under: the maxima of queues (queue_limits.py), and how many tasks of one user run
there at a time (user_limits.py) with what waits for them.
"""

from typing import Final

from schemas.quantities import Vector
from services.leftover.placement.queue_limits import QueueEntry, QueueLimits
from services.leftover.placement.task_class import TaskClass
from services.leftover.placement.user_limits import Gate, GateKey, UserLimits, UserPlaces, free_places

_QUEUES_BITS: Final = 20
"""So many bits tell the sets of queues with a maximum apart, of which there are fewer than queues."""


class Limits:
    """Queues with a maximum, limits on users' tasks, and the gates of buckets under the latter."""

    def __init__(self, maxima: dict[str, Vector], user_running_max: dict[str, int], position: dict[str, int]) -> None:
        """`position`: of every resource that a node has."""
        self.queues = QueueLimits(maxima, position)
        self.users = UserLimits(user_running_max)
        self._gates: dict[GateKey, Gate] = {}

    def add_job(self, queue: str, user: str) -> tuple[int, tuple[QueueEntry, ...], tuple[UserPlaces, ...]]:
        """A user has one live job more in a queue: the number of the set of limits that it lies under, and these."""
        number, under = self.queues.above(queue)
        segment, places = self.users.add_job(queue, user)
        return number | segment << _QUEUES_BITS, under, places

    def maxima_above(self, queue: str) -> tuple[QueueEntry, ...]:
        """The queues with a maximum that tasks of a queue count for."""
        return self.queues.above(queue)[1]

    def places_of(self, queue: str, user: str) -> tuple[UserPlaces, ...]:
        """The limits that tasks of a user in a queue lie under, the nearest first."""
        return self.users.above(queue, user)

    def has_users(self) -> bool:
        """Whether only so many tasks of a user may run in some queue."""
        return bool(self.users.given)

    # ------------------------------------------------------------ gates
    def gate_of(self, places: tuple[UserPlaces, ...], key: GateKey, task: TaskClass) -> Gate:
        """The gate of a bucket in which jobs under these limits wait."""
        gate = self._gates.get(key)
        if gate is None:
            gate = self._gates[key] = Gate(task.gang or 1, places)
            gate.shut = is_full(gate)
            for entry in places:
                entry.gates[key] = gate
                entry.gangs += gate.width > 1
        return gate

    def forget_gate(self, leaf: str, bucket_id: int) -> None:
        """Nobody waits in a bucket any more."""
        gate = self._gates.pop((leaf, bucket_id), None) if self._gates else None
        if gate is not None:
            assert not gate.tasks, f"{leaf}: tasks wait in a bucket of no jobs"
            for entry in gate.places:
                del entry.gates[leaf, bucket_id]
                entry.gangs -= gate.width > 1

    def is_shut(self, leaf: str, bucket_id: int) -> bool:
        """Whether a bucket waits for tasks of its user to end."""
        if not self._gates:
            return False
        gate = self._gates.get((leaf, bucket_id))
        return gate is not None and gate.shut


def is_full(gate: Gate) -> bool:
    """Whether its user may not start one more task there, or one more gang."""
    return free_places(gate.places, gate.width) < gate.width
