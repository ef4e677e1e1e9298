"""The directions of the remaining work of live jobs, and their sums by set of jobs that rise and stop together."""

from dataclasses import dataclass, field

from schemas import Vector


@dataclass(slots=True)
class Directions:
    """Of the live jobs: the set that each is in, and its direction; of each set ("queue//kinds") the sum of those.
    `stale`: jobs that have progressed, come or gone since."""

    stale: dict[str, bool]
    jobs: dict[str, tuple[str, Vector]] = field(default_factory=dict)
    sums: dict[str, Vector] = field(default_factory=dict)

    def put(self, name: str, key: str, direction: Vector) -> None:
        """Sets the direction of a job; empty: it has none."""
        before = self.jobs.pop(name, None)
        if before is not None:
            self._add(*before, -1)
        if direction:
            self.jobs[name] = key, direction
            self._add(key, direction, 1)

    def _add(self, key: str, direction: Vector, sign: int) -> None:
        sums = self.sums.setdefault(key, {})
        for kind, part in direction.items():
            sums[kind] = sums.get(kind, 0) + sign * part
        if not any(sums.values()):
            del self.sums[key]
