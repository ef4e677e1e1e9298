"""What the tasks of one leaf queue ask for, wait for and hold, as vectors in the units that count."""

from dataclasses import dataclass, field

from schemas.quantities import Vector


@dataclass(slots=True)
class LeafDemand:
    """The sums over the tasks of one leaf queue. In vectors a kind of which there is nothing is left out."""

    asked: Vector = field(default_factory=dict)  # All that its jobs run or could start,
    sets: dict[str, Vector] = field(default_factory=dict)  # and the same by set of kinds asked for.
    waiting: Vector = field(default_factory=dict)  # The part of it that no task holds,
    waits: int = 0  # and how many tasks that is.
    resting: Vector = field(default_factory=dict)  # The part of `waiting` that is in back-off,
    rests: int = 0  # and how many tasks that is.
    used: Vector = field(default_factory=dict)  # All that is held, also by tasks of jobs that are over.

    def could_start(self) -> tuple[int, Vector]:
        """How many tasks wait for nothing but room, and what they ask for together."""
        if not self.rests:
            return self.waits, self.waiting
        assert self.waits >= self.rests, "more tasks in back-off than waiting"
        resting = self.resting
        return self.waits - self.rests, {kind: amount - resting.get(kind, 0) for kind, amount in self.waiting.items()}

    def is_empty(self) -> bool:
        """Whether it has no tasks."""
        return not (self.waits or self.used or self.asked or self.sets or self.rests or self.waiting)
